from typing import Any

import pytest
import torch
from torch import Tensor

import attent.search.search as searching
from attent.errors import ArgumentError
from attent.models.build import build
from attent.models.ensemble import Ensemble
from attent.models.settings import RnnSettings, TransformerSettings
from attent.ops import native
from attent.search.constraints import Constraints
from attent.search.search import Hypothesis, search
from attent.search.settings import SearchSettings
from attent.text.tokenizer import BOS, PAD

SIZE = 37
SMALL = {"encoder_layers": 1, "decoder_layers": 2, "width": 16, "feed_forward": 24, "heads": 2}
VARIANTS: list[dict[str, Any]] = [
    {"share_embeddings": "none"},
    {"share_embeddings": "none", "position": "rotary", "norm": "pre", "width": 24},
    {"share_embeddings": "none", "self_attention": "ssru", "decoder_layers": 1},
]


def make(seed: int, variant: dict[str, Any]) -> Any:
    torch.manual_seed(seed)
    model = build(TransformerSettings.model_validate(SMALL | variant), 13, SIZE).eval()
    with torch.no_grad():
        model.to_logits.weight.mul_(4.0)
    return model


@pytest.fixture
def models() -> list[Any]:
    return [make(seed, variant) for seed, variant in enumerate(VARIANTS)]


def sources(count: int) -> tuple[Tensor, Tensor]:
    lengths = torch.randint(1, 10, (count,))
    return torch.randint(4, 13, (count, 9)).where(torch.arange(9) < lengths[:, None], PAD), lengths


def probabilities(model: Any, source: Tensor, lengths: Tensor, target: Tensor) -> Tensor:
    return model.output(model.decode(model.encode(source, lengths), target)).double().softmax(-1)


@torch.no_grad()
def test_it_predicts_the_mean_of_the_distributions(models: list[Any]) -> None:
    source, lengths = sources(5)
    target = torch.cat((torch.full((5, 1), BOS), torch.randint(4, SIZE, (5, 6))), 1)
    expected = torch.stack([probabilities(model, source, lengths, target) for model in models]).mean(0)
    ensemble = Ensemble(models)
    memory = ensemble.encode(source, lengths)
    torch.testing.assert_close(
        ensemble.output(ensemble.decode(memory, target)).double().exp(), expected, atol=1e-6, rtol=1e-4
    )
    rows = torch.tensor([3, 0])
    state = ensemble.start(memory.select(rows))
    for step in range(3):
        features, state = ensemble.step(state, target[rows, step])
        torch.testing.assert_close(ensemble.output(features).double().exp(), expected[rows, step], atol=1e-6, rtol=1e-4)
    # the models disagree, so that no model alone predicts it
    assert all((probabilities(model, source, lengths, target) - expected).abs().max() > 0.05 for model in models)


@pytest.mark.parametrize("settings", [{}, {"beam": 4, "n_best": 2}, {"beam": 3, "minimum_length": 4}], ids=str)
def test_the_library_searches_as_the_loop_does(models: list[Any], settings: dict[str, Any]) -> None:
    ensemble, (source, lengths) = Ensemble(models), sources(9)
    chosen = SearchSettings.model_validate(settings)
    prefixes = [[7] if row % 3 == 0 else [] for row in range(9)]
    constraints = Constraints.of(torch.randint(1, 14, (9,)), prefixes, minimum_length=chosen.minimum_length)
    result = search(ensemble, source, lengths, constraints, chosen)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(searching, "LONGEST_PACKED", 0)
        assert result == search(ensemble, source, lengths, constraints, chosen)
    if native.library() is not None:
        with torch.inference_mode():
            assert len(ensemble.packed_decoders(source, lengths, 15)) == 3


def test_a_translation_does_not_depend_on_its_batch(models: list[Any]) -> None:
    ensemble, (source, lengths) = Ensemble(models), sources(20)
    settings, limits = SearchSettings(beam=3), torch.randint(4, 14, (20,))

    def found(rows: Tensor) -> list[list[Hypothesis]]:
        return search(ensemble, source[rows], lengths[rows], Constraints.of(limits[rows]), settings)

    together = found(torch.arange(20))
    assert together == [found(torch.tensor([row]))[0] for row in range(20)]
    assert len({hypotheses[0].tokens for hypotheses in together}) > 5


def test_one_model_alone_and_copies_of_it_find_what_it_finds(models: list[Any]) -> None:
    source, lengths = sources(12)
    constraints, settings = Constraints.of(torch.full((12,), 9)), SearchSettings(beam=3, n_best=3)
    expected = search(models[1], source, lengths, constraints, settings)
    assert search(Ensemble([models[1]]), source, lengths, constraints, settings) == expected
    for n_best, same in zip(
        search(Ensemble([models[1]] * 3), source, lengths, constraints, settings), expected, strict=True
    ):
        assert [item.tokens for item in n_best] == [item.tokens for item in same]
        assert [item.log_probability for item in n_best] == pytest.approx(
            [item.log_probability for item in same], abs=1e-4
        )


def test_models_of_other_kinds_are_searched_step_by_step(models: list[Any]) -> None:
    torch.manual_seed(5)
    rnn = build(RnnSettings(width=14, embedding_width=10), 13, SIZE).eval()
    ensemble, (source, lengths) = Ensemble([models[0], rnn]), sources(6)
    assert not ensemble.packed_decoders(source, lengths, 5)
    found = search(ensemble, source, lengths, Constraints.of(torch.full((6,), 8)), SearchSettings(beam=2))
    assert len({hypotheses[0].tokens for hypotheses in found}) > 1


def test_vocabularies_of_different_sizes_are_refused(models: list[Any]) -> None:
    other = build(TransformerSettings.model_validate(SMALL | VARIANTS[0]), 13, 9)
    with pytest.raises(ArgumentError, match=r"must share a vocabulary, got \[9, 37\] tokens"):
        Ensemble([*models, other])
    with pytest.raises(ArgumentError, match="at least one model"):
        Ensemble([])
