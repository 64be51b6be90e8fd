from typing import Any

import pytest
import torch
from torch import Tensor, nn

from attent.attention.capture.watch import watch
from attent.attention.normalizers.sparsemax import Sparsemax
from attent.models.settings import TransformerSettings
from attent.models.transformer import Transformer, TransformerState
from attent.models.transformer_packing import ANGLE_BLOCK, has_packed_form
from attent.ops import native, transformer
from attent.ops.transformer import IncrementalState

pytestmark = pytest.mark.needs_native
SMALL = {"encoder_layers": 2, "decoder_layers": 2, "width": 36, "feed_forward": 67, "heads": 3, "maximum_length": 101}
SERVED = [
    {"position": "sinusoidal", "norm": "post", "activation": "gelu", "heads": 4, "key_value_heads": 2},
    {"position": "learned", "norm": "pre", "share_embeddings": "none", "key_value_heads": 1},
    {"position": "rotary", "norm": "pre", "heads": 1},
    {"position": "none", "score": "dot", "activation": "silu"},
    {"position": "rotary", "norm": "post", "key_value_heads": 1, "activation": "gelu"},
    {"self_attention": "ssru", "norm": "post"},
    {"self_attention": "ssru", "norm": "pre", "key_value_heads": 1, "position": "rotary"},
]
LENGTHS = torch.tensor([7, 2, 31, 1, 13, 100, 31, 0, 5])


def make(variant: dict[str, object]) -> Transformer:
    return Transformer(TransformerSettings.model_validate(SMALL | variant), 13, 11).eval()


def some_source(lengths: Tensor = LENGTHS) -> Tensor:
    return torch.randint(4, 13, (len(lengths), int(lengths.max())))


@pytest.fixture(autouse=True)
def little_room(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that more has to be made."""
    monkeypatch.setattr(transformer, "BUFFER_BLOCK", ANGLE_BLOCK)


@pytest.mark.parametrize(
    ("variant", "level"), [*((each, 1) for each in SERVED), *zip(SERVED, (0, 2, 0, 2, 2, 0, 2), strict=True)], ids=str
)
def test_the_memory_and_steps_are_those_of_the_modules(
    variant: dict[str, object], level: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    if level > native.simd_level():
        pytest.skip("this processor has no such registers")
    monkeypatch.setattr(native, "simd_level", lambda: level)
    model, source, tokens = make(variant), some_source(), torch.randint(2, 11, (8, ANGLE_BLOCK + 3))
    with torch.no_grad():
        expected = model.encode(source, LENGTHS)
        sample = expected.select(LENGTHS.nonzero()[:, 0])
        features = model.decode(sample, tokens)
    with torch.inference_mode():
        assert model.batch_invariant
        memory = model.encode(source, LENGTHS)
        for actual, exact, length in zip(memory.features, expected.features, LENGTHS.tolist(), strict=True):
            torch.testing.assert_close(actual[:length], exact[:length], atol=1e-5, rtol=1e-5)
            assert not actual[length:].any()
        state = model.start(sample)
        assert isinstance(state, IncrementalState)
        for token, exact in zip(tokens.unbind(1), features.unbind(1), strict=True):
            actual, state = model.step(state, token)
            torch.testing.assert_close(actual, exact, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("variant", SERVED, ids=str)
@torch.inference_mode()
def test_each_row_is_computed_alone_on_any_number_of_threads(variant: dict[str, object]) -> None:
    model, lengths = make(variant), torch.randint(1, 40, (67,))
    source, threads = some_source(lengths), torch.get_num_threads()
    tokens = torch.randint(2, 11, (2, 67))

    def run_rows(rows: slice) -> tuple[Tensor, Tensor]:
        memory = model.encode(source[rows], lengths[rows])
        _, state = model.step(model.start(memory), tokens[0, rows])
        return memory.features, model.output(model.step(state, tokens[1, rows])[0])

    whole = run_rows(slice(None))
    try:
        for rows, count in ((slice(None), 3), (slice(5, 6), 1), (slice(9, 66), 2)):
            torch.set_num_threads(count)
            assert all(torch.equal(part, full[rows]) for part, full in zip(run_rows(rows), whole, strict=True))
    finally:
        torch.set_num_threads(threads)


@torch.inference_mode()
def test_what_was_exchanged_or_is_listened_to_goes_the_general_way() -> None:
    model = make({})
    assert has_packed_form(model.encoder)
    with watch(model):
        assert not has_packed_form(model.encoder)
    layer = model.encoder.layers[1]
    around, widen = layer.around_attention, layer.feed_forward.widen
    for module in (layer, layer.feed_forward, widen, around.norm, around.dropout):
        hook = module.register_forward_hook(lambda *_: None)
        assert not has_packed_form(model.encoder)
        hook.remove()
    assert has_packed_form(model.encoder)
    model.decoder.layers[0].cross_attention.normalizer = Sparsemax()
    assert not has_packed_form(model.decoder)
    model.encoder.layers[0].feed_forward.widen = nn.Sequential(nn.Linear(36, 67))
    assert not has_packed_form(model.encoder)
    assert not model.batch_invariant


def test_without_inference_mode_gradients_may_be_wanted(monkeypatch: pytest.MonkeyPatch) -> None:
    run = native.run

    def checked(name: str, *operands: Any) -> None:
        assert not name.startswith("attent_transformer")
        run(name, *operands)

    monkeypatch.setattr(native, "run", checked)
    model, source = make({}), some_source()
    with torch.no_grad():
        assert not model.batch_invariant
        model.encode(source, LENGTHS)
    with torch.inference_mode():
        assert not model.train().batch_invariant
        model.encode(source, LENGTHS)
        assert not model.eval().bfloat16().batch_invariant
        model.encode(source, LENGTHS)
        with pytest.raises(AssertionError):
            model.float().encode(source, LENGTHS)


@torch.inference_mode()
def test_lengths_may_be_one_number_for_all() -> None:
    model, source, token = make(SERVED[0]), torch.randint(4, 13, (3, 7)), torch.tensor([3, 4, 5])
    expanded, copied = (
        model.start(model.encode(source, lengths)) for lengths in (torch.tensor(5).expand(3), torch.full((3,), 5))
    )
    assert torch.equal(model.step(expanded, token)[0], model.step(copied, token)[0])


@torch.inference_mode()
def test_what_it_does_not_promise_goes_the_general_way() -> None:
    lengths = torch.tensor([7, 2, 5])
    source = some_source(lengths)
    for part in ("position = alibi", "position = relative_bias", "score = cosine", "normalizer = sparsemax"):
        model = make(dict([part.split(" = ")]))
        assert isinstance(model.start(model.encode(source, lengths)), TransformerState)
    model = make({})
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
    model, lengths = make({"position": "rotary", "key_value_heads": 1}), torch.tensor([7, 2, 5])
    rows, tokens = torch.tensor([2, 0, 2, 1]), torch.tensor([7, 5, 7, 6])
    _, state = model.step(model.start(model.encode(some_source(lengths), lengths)), torch.tensor([2, 3, 4]))
    features, after = model.step(state, torch.tensor([5, 6, 7]))
    chosen, more = model.step(state.select(rows), tokens)
    torch.testing.assert_close(chosen, features[rows])
    repeated, moved = torch.tensor([0, 2, 2, 3]), torch.tensor([3, 4, 5, 6])
    torch.testing.assert_close(
        model.step(more.select(repeated), moved)[0], model.step(after.select(rows[repeated]), moved)[0]
    )
    # of the same source
    second = torch.tensor([2, 1, 0, 3])
    assert torch.equal(model.step(more.reorder(second), moved)[0], model.step(more.select(second), moved)[0])


@torch.inference_mode()
def test_a_state_is_a_value() -> None:
    model, lengths = make({"position": "rotary"}), torch.tensor([7, 2, 5])
    state = model.start(model.encode(some_source(lengths), lengths))
    for _ in range(ANGLE_BLOCK - 2):
        _, state = model.step(state, torch.tensor([2, 3, 4]))
    first, second, next_ = torch.tensor([5, 6, 7]), torch.tensor([8, 9, 10]), torch.tensor([4, 4, 4])
    _, after = model.step(state, first)
    expected, _ = model.step(after, next_)
    model.step(state, second)
    assert torch.equal(model.step(after, next_)[0], expected)
    assert torch.equal(model.step(model.step(state, first)[1], next_)[0], expected)
    assert state.length == ANGLE_BLOCK - 2
