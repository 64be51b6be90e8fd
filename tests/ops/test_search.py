"""The compiled search finds what the loop finds, bit for bit."""

import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

import attent.search.search as searching
from attent.attention.capture.watch import watch
from attent.errors import ArgumentError
from attent.models.settings import TransformerSettings
from attent.models.transformer import Transformer
from attent.ops.packed_linear import WeightType, set_kind
from attent.ops.search import Limits
from attent.ops.search import search as packed_search
from attent.search.constraints import Constraints
from attent.search.search import Hypothesis, search
from attent.search.settings import SearchSettings
from attent.text.tokenizer import BOS, EOS, PAD

pytestmark = pytest.mark.needs_native

SMALL = {
    "encoder_layers": 1, "decoder_layers": 2, "width": 12, "feed_forward": 19, "heads": 2, "maximum_length": 101,
    "share_embeddings": "none", "output_bias": True,
}  # fmt: skip
VARIANTS = [
    {"position": "sinusoidal", "norm": "post", "activation": "gelu"},
    {"position": "learned", "norm": "pre", "key_value_heads": 1},
    {"position": "rotary", "norm": "pre", "activation": "silu"},
    {"position": "none", "score": "dot"},
    {"self_attention": "ssru", "norm": "post"},
]
SETTINGS = [
    {"beam": 1},
    {"beam": 1, "minimum_length": 3},
    {"beam": 2, "length_penalty": 0.0},
    {"beam": 5, "n_best": 5, "minimum_length": 2},
    {"beam": 8, "n_best": 3, "length_penalty": 1.0},
]


def make(variant: dict[str, Any], sharpness: float = 1.0, vocabulary: int = 37) -> Transformer:
    """A random model; the larger the sharpness, the surer it is."""
    model = Transformer(TransformerSettings.model_validate(SMALL | variant), 13, vocabulary).eval()
    with torch.no_grad():
        model.to_logits.weight.mul_(sharpness)
    return model


def sources(count: int, longest: int = 9) -> tuple[Tensor, Tensor]:
    lengths = torch.randint(1, longest + 1, (count,))
    return torch.randint(4, 13, (count, longest)).where(torch.arange(longest) < lengths[:, None], PAD), lengths


def step_by_step(
    model: Transformer, source: Tensor, lengths: Tensor, constraints: Constraints, settings: SearchSettings
) -> list[list[Hypothesis]]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(searching, "LONGEST_PACKED", 0)
        patch.setattr("attent.search.search.packed_search", None)
        result = search(model, source, lengths, constraints, settings)
    torch.set_num_threads(threads)
    return result


def check(
    model: Transformer, count: int, settings: SearchSettings, constraints: Constraints | None = None
) -> list[list[Hypothesis]]:
    source, lengths = sources(count)
    if constraints is None:
        constraints = Constraints.of(torch.randint(1, 14, (count,)), minimum_length=settings.minimum_length)
    with torch.inference_mode():
        assert model.packed_decoders(source, lengths, int(constraints.limits.max()) + 1)
    result = search(model, source, lengths, constraints, settings)
    assert result == step_by_step(model, source, lengths, constraints, settings)
    return result


@pytest.mark.parametrize("settings", SETTINGS, ids=str)
@pytest.mark.parametrize("variants", [VARIANTS[::2], VARIANTS[1::2]])
def test_hypotheses_are_those_of_the_loop(variants: list[dict[str, Any]], settings: dict[str, Any]) -> None:
    for variant, sharpness in ((variants[0], 0.1), (variants[1], 3.0), (variants[0], 30.0)):
        assert all(check(make(variant, sharpness), 7, SearchSettings.model_validate(settings)))


@pytest.mark.usefixtures("level")
@pytest.mark.parametrize("count", [1, 130])
def test_at_every_level(count: int) -> None:
    for settings in (SearchSettings(), SearchSettings(beam=5, n_best=2)):
        check(make(VARIANTS[2], 3.0, 600), count, settings)


@pytest.mark.parametrize("kind", [WeightType.BFLOAT16, WeightType.INT8])
def test_with_weights_of_fewer_bits(kind: WeightType) -> None:
    model = make({"position": "rotary"}, 3.0)
    set_kind(model, kind)
    for settings in (SearchSettings(), SearchSettings(beam=5, n_best=2)):
        check(model, 7, settings)


def test_a_product_that_is_divided_among_threads() -> None:
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(2)
        check(make({"position": "rotary", "width": 128, "feed_forward": 64}, 3.0, 5000), 40, SearchSettings(beam=5))
    finally:
        torch.set_num_threads(before)


@pytest.mark.parametrize("beam", [1, 4])
def test_prefixes_are_forced(beam: int) -> None:
    prefixes = [[], [7], [5, 6, 7, 8], [9, 9], [BOS, 4]]
    constraints = Constraints.of(torch.tensor([1, 5, 2, 9, 4]), prefixes, minimum_length=1)
    for best, prefix in zip(check(make({}, 3.0), 5, SearchSettings(beam=beam), constraints), prefixes, strict=True):
        assert list(best[0].tokens[: len(prefix)]) == prefix


def test_few_tokens_and_a_wide_beam() -> None:
    for vocabulary in (EOS + 1, EOS + 2):
        for _ in range(2):
            check(make({}, 3.0, vocabulary), 7, SearchSettings(beam=8, n_best=8))


def test_long_translations_need_more_keys_and_values() -> None:
    model = make({"position": "rotary"}, 3.0)
    with torch.no_grad():
        model.to_logits.bias[EOS] = -5.0
    result = check(model, 5, SearchSettings(beam=3, n_best=3), Constraints.of(torch.tensor([97, 3, 64, 31, 32])))
    assert max(len(best[0].tokens) for best in result) > 64


@pytest.mark.parametrize("settings", [SearchSettings(), SearchSettings(beam=3, n_best=3)], ids=["greedy", "beam"])
def test_no_bit_depends_on_the_neighbors(settings: SearchSettings) -> None:
    """Nor on whether one of them reached its limit."""
    model, (source, lengths), limits = make({"position": "rotary"}, 3.0), sources(21), torch.randint(1, 14, (21,))
    joint = search(model, source, lengths, Constraints.of(limits), settings)
    for row, expected in enumerate(joint):
        alone = slice(row, row + 1)
        assert search(model, source[alone], lengths[alone], Constraints.of(limits[alone]), settings) == [expected]


@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
@pytest.mark.parametrize("token", [None, 5, EOS], ids=["all", "one", "end"])
def test_what_is_no_number_is_as_in_the_loop(token: int | None, value: float) -> None:
    model, (source, lengths) = make({}, 3.0), sources(7)
    with torch.no_grad():
        model.to_logits.bias[token] = value
    for settings in (SearchSettings(), SearchSettings(beam=3, n_best=2), SearchSettings(beam=3, minimum_length=2)):
        constraints = Constraints.of(torch.full((7,), 5), minimum_length=settings.minimum_length)
        hypotheses = search(model, source, lengths, constraints, settings)
        # NaN is not equal to itself
        assert repr(hypotheses) == repr(step_by_step(model, source, lengths, constraints, settings))


@pytest.mark.skipif(sys.platform != "linux", reason="limits the memory of the process as Linux does")
def test_without_memory_it_says_so_and_goes_on_later() -> None:
    import resource

    model, (source, lengths) = make({}, 3.0, 600), sources(130)
    constraints = Constraints.of(torch.full((130,), 5))
    expected = search(model, source, lengths, constraints)
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    before = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + 2**26, before[1]))
    try:
        with pytest.raises(MemoryError):
            search(model, source, lengths, constraints, SearchSettings(beam=5000))
    finally:
        resource.setrlimit(resource.RLIMIT_AS, before)
    assert search(model, source, lengths, constraints) == expected


@torch.inference_mode()
def test_what_it_does_not_compute_is_searched_step_by_step(monkeypatch: pytest.MonkeyPatch) -> None:
    class OwnOutput(Transformer):
        pass

    model, (source, lengths) = make({"position": "learned"}, 3.0), sources(3)
    with watch(model):
        assert not model.packed_decoders(source, lengths, 5)
    # there are 101 positions
    assert model.packed_decoders(source, lengths, 101)
    assert not model.packed_decoders(source, lengths, 102)
    assert not model.packed_decoders(source, torch.tensor([3, 0, 2]), 5)
    assert not make({"normalizer": "sparsemax"}).packed_decoders(source, lengths, 5)
    assert not OwnOutput(model.settings, 13, 37).eval().packed_decoders(source, lengths, 5)
    model = make({}, 3.0)
    monkeypatch.setattr(model, "packed_decoders", None)
    search(model, source, lengths, Constraints.of(lengths, no_repeat_ngram=2))
    monkeypatch.setattr(searching, "LONGEST_PACKED", 8)
    search(model, source, lengths, Constraints.of(torch.full((3,), 9)))


@torch.inference_mode()
def test_a_prompt_counts_no_log_probability() -> None:
    model, (source, lengths) = make({}, 3.0), sources(7)
    decoders = model.packed_decoders(source, lengths, 6)
    assert decoders
    logits = model.output(model.step(model.start(model.encode(source, lengths)), torch.full((7,), BOS))[0])
    for limits in (torch.full((7,), 5), torch.full((7,), 1)):
        both = [Limits(limits, torch.full((7, 1), 9), 0, (1.0,) * 7, prompt) for prompt in (0, 1)]
        counted, free = (packed_search(decoders, each, 1, 1, (PAD, BOS, EOS)) for each in both)
        log_probs = logits.log_softmax(-1)[:, 9].tolist()
        for [(tokens, total)], [(same, less)], forced in zip(counted, free, log_probs, strict=True):
            assert tokens == same and tokens[0] == 9
            assert total - less == pytest.approx(forced, abs=1e-5)


@torch.inference_mode()
def test_a_prefix_outside_the_vocabulary_is_refused() -> None:
    model, (source, lengths) = make({}), sources(1)
    decoders = model.packed_decoders(source, lengths, 3)
    assert decoders
    for token in (-1, 37):
        limits = Limits(torch.tensor([2]), torch.tensor([[token]]), 0, (1.0,) * 4)
        with pytest.raises(ArgumentError, match="from 0 to 36"):
            packed_search(decoders, limits, 1, 1, (PAD, BOS, EOS))
