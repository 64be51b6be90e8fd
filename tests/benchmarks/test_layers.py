"""The models that benchmarks compare at equal parameters have equally many."""

from pathlib import Path

import layers
import pytest

from attent.models.build import build
from attent.models.model import Model


def parameters(model: Model) -> tuple[int, int]:
    """Return the number of parameters, and of those outside the embeddings."""
    embedded = {each for part in model.embeddings.values() for each in part.parameters()}
    total = sum(each.numel() for each in model.parameters())
    return total, total - sum(each.numel() for each in embedded)


@pytest.mark.parametrize(("corpus", "sizes"), [("dates", (200, 63)), ("captions", (layers.PIECES, layers.PIECES))])
def test_layers_have_the_same_parameters_without_embeddings_or_in_total(corpus: str, sizes: tuple[int, int]) -> None:
    counts = {}
    for name in layers.MODELS[corpus]:
        settings = layers.settings_of(corpus, name, 1, Path("multi30k")).model
        counts[name] = parameters(build(settings, *sizes))
        assert settings.encoder_layers == settings.decoder_layers == int(name[0])
    total, inner = counts["1 layer of 96"]
    assert len(counts) == 5
    for name, (total_of, inner_of) in counts.items():
        assert (total_of / total if name.endswith("all") else inner_of / inner) == pytest.approx(1, abs=0.02)
