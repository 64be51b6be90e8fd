import pytest
import torch
from torch import Tensor

from attent.attention.capture.watch import watch
from attent.models import transformer_steps
from attent.models.transformer import Transformer, TransformerState
from attent.models.transformer_packing import TURNS
from attent.models.transformer_settings import TransformerSettings
from attent.models.transformer_steps import Standing
from attent.ops import native

SMALL = {"encoder_layers": 1, "decoder_layers": 2, "width": 24, "feed_forward": 11, "heads": 4, "maximum_length": 31}
SERVED = [
    {"position": "sinusoidal", "norm": "post", "key_value_heads": 2},
    {"position": "learned", "norm": "pre", "share_embeddings": "none"},
    {"position": "rotary", "norm": "post", "key_value_heads": 1},
    {"position": "rotary", "norm": "pre", "activation": "gelu"},
    {"position": "none", "score": "dot"},
]
LEFT = [{"position": "alibi"}, {"position": "relative_bias"}, {"score": "cosine"}, {"normaliser": "sparsemax"}]


def make(variant: dict[str, object]) -> Transformer:
    return Transformer(TransformerSettings.model_validate(SMALL | variant), 13, 11).eval()


def some_source() -> tuple[Tensor, Tensor]:
    return torch.randint(4, 13, (3, 7)), torch.tensor([7, 2, 5])


def begun(model: Transformer) -> Standing:
    state = model.start(model.encode(*some_source()))
    assert isinstance(state, Standing)
    return state


@pytest.fixture(autouse=True)
def little_room(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that more has to be made."""
    monkeypatch.setattr(transformer_steps, "ROOM", TURNS)


@pytest.mark.parametrize("compiled", [True, False], ids=["extension", "eager"])
@pytest.mark.parametrize("variant", SERVED, ids=str)
@torch.inference_mode()
def test_steps_are_those_of_decode(variant: dict[str, object], compiled: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if not compiled:
        monkeypatch.setattr(native, "library", lambda: None)
    model, (source, lengths), tokens = make(variant), some_source(), torch.randint(2, 11, (3, TURNS + 3))
    memory = model.encode(source, lengths)
    state, steps = model.start(memory), []
    assert isinstance(state, Standing)
    for token in tokens.unbind(1):
        features, state = model.step(state, token)
        steps.append(features)
    torch.testing.assert_close(torch.stack(steps, 1), model.decode(memory, tokens))


@torch.inference_mode()
def test_lengths_may_be_one_number_for_all() -> None:
    model, (source, _), token = make(SERVED[0]), some_source(), torch.tensor([3, 4, 5])
    expanded, copied = (model.start(model.encode(source, lengths)) for lengths in (torch.tensor(5).expand(3), torch.full((3,), 5)))
    assert torch.equal(model.step(expanded, token)[0], model.step(copied, token)[0])


@pytest.mark.parametrize("variant", LEFT, ids=str)
@torch.inference_mode()
def test_other_parts_go_the_general_way(variant: dict[str, object]) -> None:
    model = make(variant)
    assert isinstance(model.start(model.encode(*some_source())), TransformerState)


@torch.inference_mode()
def test_what_it_does_not_promise_goes_the_general_way() -> None:
    model, (source, lengths) = make({}), some_source()
    memory = model.encode(source, lengths)
    with watch(model):
        assert isinstance(model.start(memory), TransformerState)
    # a query that may see nothing returns zeros
    assert isinstance(model.start(model.encode(source, torch.tensor([7, 0, 5]))), TransformerState)
    with torch.inference_mode(False), torch.no_grad():
        assert isinstance(model.start(model.encode(source.clone(), lengths.clone())), TransformerState)
    assert isinstance(model.train().start(memory), TransformerState)
    model.eval().bfloat16()
    assert isinstance(model.start(model.encode(source, lengths)), TransformerState)


@torch.inference_mode()
def test_rows_are_selected_moved_and_named_twice() -> None:
    model = make({"position": "rotary", "key_value_heads": 2})
    rows, tokens = torch.tensor([2, 0, 2, 1]), torch.tensor([7, 5, 7, 6])
    _, state = model.step(begun(model), torch.tensor([2, 3, 4]))
    features, after = model.step(state, torch.tensor([5, 6, 7]))
    chosen, more = model.step(state.select(rows), tokens)
    torch.testing.assert_close(chosen, features[rows])
    again, moved = torch.tensor([0, 2, 2, 3]), torch.tensor([3, 4, 5, 6])
    torch.testing.assert_close(model.step(more.select(again), moved)[0], model.step(after.select(rows[again]), moved)[0])
    # of the same source
    other = torch.tensor([2, 1, 0, 3])
    assert torch.equal(model.step(more.reorder(other), moved)[0], model.step(more.select(other), moved)[0])


@torch.inference_mode()
def test_a_state_is_a_value() -> None:
    model = make({"position": "rotary"})
    state = begun(model)
    for _ in range(TURNS - 2):
        _, state = model.step(state, torch.tensor([2, 3, 4]))
    one, other, next_ = torch.tensor([5, 6, 7]), torch.tensor([8, 9, 10]), torch.tensor([4, 4, 4])
    _, after = model.step(state, one)
    expected, _ = model.step(after, next_)
    model.step(state, other)
    assert torch.equal(model.step(after, next_)[0], expected)
    assert torch.equal(model.step(model.step(state, one)[1], next_)[0], expected)
    assert state.length == TURNS - 2
