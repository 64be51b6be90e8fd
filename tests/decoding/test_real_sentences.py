"""The promise about batches, kept on sentences that people would write."""

import random
from functools import cache

import pytest
import torch

from attent.data.dates import DatesSettings, dates
from attent.data.tokenizer import CharTokenizer
from attent.decoding.hypothesis import Translation
from attent.decoding.settings import SearchSettings
from attent.decoding.translator import Translator
from attent.models.transformer import Transformer
from attent.models.transformer_settings import TransformerSettings

SEARCHES = {
    "greedy": SearchSettings(maximum_length=6),
    "beam": SearchSettings(maximum_length=6, beam=5, n_best=5),
    "samples": SearchSettings(maximum_length=6, sample=True, n_best=2),
}


@cache
def sentences() -> list[str]:
    """Dates in many scripts, some of them one behind the other, in no order."""
    corpus = dates(
        DatesSettings.model_validate(
            {"training_pairs": 128, "validation_pairs": 8, "held_out_dates": 20, "held_out_pairs": 8, "held_out_combinations": 2}
        )
    )
    texts = [pair.source for pair in corpus.train[:128]]
    return [*texts[:64], *(", ".join(texts[first : first + 3]) for first in range(64, 82, 3))]


@pytest.mark.parametrize("kind", SEARCHES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["float32", "bfloat16"])
def test_the_same_tokens_for_any_batch_and_order(dtype: torch.dtype, kind: str) -> None:
    texts = sentences()
    source, target = CharTokenizer.learn(texts), CharTokenizer("0123456789-")
    model = Transformer(
        TransformerSettings(encoder_layers=1, decoder_layers=2, width=48, heads=3, share_embeddings="none"), source.size, 15
    )
    with torch.no_grad():
        model.to_logits.weight.mul_(3)
    translator = Translator(model.to(dtype), source, target)
    found: dict[int, list[list[tuple[int, ...]]]] = {}
    for batch in (64, 7, 1):
        order = random.sample(range(len(texts)), len(texts))
        placed: dict[int, list[Translation]] = dict(
            zip(order, translator.search([texts[place] for place in order], SEARCHES[kind], batch=batch), strict=True)
        )
        found[batch] = [[one.tokens for one in placed[place]] for place in range(len(texts))]
    assert found[64] == found[7]
    assert found[64] == found[1]
