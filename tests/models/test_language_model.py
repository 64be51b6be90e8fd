import pytest
import torch
from torch import Tensor

from attent.errors import ShapeError
from attent.models.build import build
from attent.models.language_model import LanguageModel, LanguageModelState
from attent.models.settings import DecoderSettings
from attent.ops import native
from attent.ops.transformer import IncrementalState

SIZE = 13
SMALL = {"layers": 2, "width": 36, "feed_forward": 41, "heads": 3, "maximum_length": 37, "dropout": 0.1}
VARIANTS = [
    {"position": "sinusoidal", "norm": "post"},
    {"position": "learned", "norm": "pre", "activation": "gelu"},
    {"position": "rotary", "norm": "pre", "key_value_heads": 1, "output_bias": True},
    {"position": "alibi", "tie_embeddings": False},
    {"position": "relative_bias", "norm": "pre"},
    {"position": "none", "score": "dot", "heads": 4, "key_value_heads": 2},
    {"position": "sinusoidal", "score": "additive", "normalizer": "sparsemax"},
]


def make(variant: dict[str, object]) -> LanguageModel:
    return build(DecoderSettings.model_validate(SMALL | variant), SIZE, SIZE).eval()


def steps(model: LanguageModel, tokens: Tensor) -> Tensor:
    state, features = model.start(len(tokens)), list[Tensor]()
    for column in tokens.unbind(1):
        feature, state = model.step(state, column)
        features.append(feature)
    return torch.stack(features, 1)


@pytest.mark.parametrize("variant", VARIANTS, ids=str)
def test_one_token_at_a_time_is_all_at_once(variant: dict[str, object]) -> None:
    model, tokens = make(variant), torch.randint(0, SIZE, (5, 19))
    with torch.no_grad():
        assert isinstance(model.start(5), LanguageModelState)
        whole = model(tokens)
        torch.testing.assert_close(steps(model, tokens), whole, atol=2e-5, rtol=2e-5)
        model.double()
        torch.testing.assert_close(whole.double(), model(tokens), atol=2e-5, rtol=2e-5)


@pytest.mark.needs_native
@pytest.mark.parametrize(("variant", "level"), [(0, 1), (1, 1), (2, 1), (0, 0), (2, 0), (1, 2), (2, 2)])
def test_the_compiled_step_is_that_of_the_modules(variant: int, level: int, monkeypatch: pytest.MonkeyPatch) -> None:
    if level > native.simd_level():
        pytest.skip("this processor has no such registers")
    monkeypatch.setattr(native, "simd_level", lambda: level)
    model, tokens = make(VARIANTS[variant]), torch.randint(0, SIZE, (5, 19))
    with torch.no_grad():
        whole = model(tokens)
    with torch.inference_mode():
        assert model.batch_invariant
        assert isinstance(model.start(5), IncrementalState)
        torch.testing.assert_close(steps(model, tokens), whole, atol=2e-5, rtol=2e-5)


def test_without_the_extension_steps_are_the_modules(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(native, "library", lambda: None)
    model, tokens = make(VARIANTS[2]), torch.randint(0, SIZE, (3, 7))
    with torch.inference_mode():
        assert isinstance(model.start(3), LanguageModelState)
        assert not model.batch_invariant
        torch.testing.assert_close(steps(model, tokens), model(tokens), atol=2e-5, rtol=2e-5)


@pytest.mark.needs_native
@torch.inference_mode()
def test_a_row_of_the_compiled_step_is_computed_alone() -> None:
    model, tokens = make(VARIANTS[2]), torch.randint(0, SIZE, (11, 17))
    whole = model.output(steps(model, tokens))
    for rows in ([4], [0, 7, 9], list(range(10, -1, -1))):
        assert torch.equal(model.output(steps(model, tokens[rows])), whole[rows])


@pytest.mark.parametrize("variant", [VARIANTS[2], VARIANTS[3]], ids=str)
@torch.inference_mode()
def test_rows_can_be_selected_and_go_on_apart(variant: dict[str, object]) -> None:
    model, tokens = make(variant), torch.randint(0, SIZE, (3, 11))
    rows = torch.tensor([2, 0, 0])
    state = model.start(3)
    for column in tokens[:, :5].unbind(1):
        _, state = model.step(state, column)
    state = state.select(rows)
    mixed = torch.cat([tokens[rows, :5], tokens[:, 5:]], 1)
    whole = model(mixed)
    for position in range(5, 11):
        features, state = model.step(state, mixed[:, position])
        torch.testing.assert_close(features, whole[:, position], atol=2e-5, rtol=2e-5)


def test_the_output_is_the_embedding_unless_it_is_not_and_all_parameters_learn() -> None:
    tied, untied = make(VARIANTS[0]), make(VARIANTS[3])
    assert tied.to_logits.weight is tied.embedding.tokens.weight
    assert untied.to_logits.weight is not untied.embedding.tokens.weight
    assert (make(VARIANTS[1]).longest, tied.longest) == (37, None)
    assert list(tied.embeddings) == ["text"]
    tied.output(tied(torch.randint(0, SIZE, (3, 37)))).square().sum().backward()
    # the bias of the keys adds the same to all scores of a query
    idle = {name for name, weight in tied.named_parameters() if weight.grad is None or not weight.grad.any()}
    assert all("key_projection.bias" in name for name in idle)


def test_a_model_of_two_vocabularies_is_refused() -> None:
    with pytest.raises(ShapeError, match="a language model reads and writes one vocabulary, got 13 and 11 tokens"):
        build(DecoderSettings(), 13, 11)
    with pytest.raises(ShapeError, match=r"tokens must be \(B, T\), got \(3,\)"):
        make({})(torch.zeros(3, dtype=torch.long))
