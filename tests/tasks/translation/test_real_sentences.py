"""Independence of batches, on realistic sentences."""

import copy
import gzip
import random
from functools import cache
from itertools import islice
from pathlib import Path

import pytest
import torch

from attent.models.build import build
from attent.models.settings import RnnSettings, TransformerSettings
from attent.models.transformer import Transformer
from attent.search.search import Translation
from attent.search.settings import SearchSettings
from attent.tasks.dates import DatesSettings, dates
from attent.tasks.translation.translator import Translator
from attent.text.batches import BatchSize, Bitext
from attent.text.text import Pair
from attent.text.tokenizer import CharTokenizer, WordTokenizer
from attent.training.loss import translation_cross_entropy

BATCHES = (64, 7, 1)
SEARCHES = {
    "greedy": SearchSettings(maximum_length=6),
    "beam": SearchSettings(maximum_length=6, beam=5, n_best=5),
    "samples": SearchSettings(maximum_length=6, sample=True, n_best=2),
}
MODELS = {
    "transformer": TransformerSettings(
        encoder_layers=1, decoder_layers=1, width=48, feed_forward=64, heads=3, dropout=0
    ),
    "rnn": RnnSettings(embedding_width=32, width=48, attention="bahdanau"),
}
# as many as the promise was asked for, and enough to learn from that translations differ
REAL, LEARNT_FROM, UPDATES = 200, 3000, 250


def found_in(
    translator: Translator, texts: list[str], settings: SearchSettings
) -> dict[int, list[list[tuple[int, ...]]]]:
    """Every text's translations as tokens, by the size of the texts' batches, each time in another order."""
    values: dict[int, list[list[tuple[int, ...]]]] = {}
    for batch in BATCHES:
        order = random.sample(range(len(texts)), len(texts))
        n_best_lists = translator.search([texts[index] for index in order], settings, batch=batch)
        placed: dict[int, list[Translation]] = dict(zip(order, n_best_lists, strict=True))
        values[batch] = [[hypothesis.tokens for hypothesis in placed[position]] for position in range(len(texts))]
    return values


@cache
def sentences() -> list[str]:
    """Dates in many scripts, some of them one behind the other, in no order."""
    sizes = {"training_pairs": 64, "validation_pairs": 8, "held_out_dates": 20, "held_out_pairs": 8}
    corpus = dates(DatesSettings.model_validate(sizes | {"held_out_combinations": 2}))
    texts = [pair.source for pair in corpus.train[:64]]
    return [*texts[:20], *(", ".join(texts[first : first + 3]) for first in range(32, 44, 3))]


@pytest.mark.parametrize(
    ("dtype", "kind"), [(torch.float32, "greedy"), (torch.bfloat16, "beam"), (torch.bfloat16, "samples")], ids=str
)
def test_the_same_tokens_for_any_batch_and_order(dtype: torch.dtype, kind: str) -> None:
    texts = sentences()
    source, target = CharTokenizer.learn(texts), CharTokenizer("0123456789-")
    settings = TransformerSettings(encoder_layers=1, decoder_layers=2, width=48, heads=3, share_embeddings="none")
    model = Transformer(settings, source.size, 15)
    with torch.no_grad():
        model.to_logits.weight.mul_(3)
    result = found_in(Translator(model.to(dtype), source, target), texts, SEARCHES[kind])
    assert result[64] == result[7] == result[1]


@pytest.fixture(scope="module")
def corpus(data_folder: Path) -> list[Pair]:
    """English and German descriptions of pictures, in lower case."""
    folder = data_folder / "multi30k"
    with (
        gzip.open(folder / "train.en.gz", "rt", encoding="utf-8") as source,
        gzip.open(folder / "train.de.gz", "rt", encoding="utf-8") as target,
    ):
        lines = islice(zip(source, target, strict=True), LEARNT_FROM + REAL)
        return [Pair(first.strip().lower(), second.strip().lower()) for first, second in lines]


@pytest.fixture(scope="module", params=MODELS)
def translator(corpus: list[Pair], request: pytest.FixtureRequest) -> Translator:
    """A model that has seen some of the corpus for a few hundred updates."""
    torch.manual_seed(0)
    pairs = corpus[:LEARNT_FROM]
    sides = ([getattr(pair, side) for pair in pairs] for side in ("source", "target"))
    source, target = (WordTokenizer.learn(texts, 800) for texts in sides)
    model = build(MODELS[request.param], source.size, target.size)
    optimizer = torch.optim.Adam(model.parameters(), 5e-3)
    batches = Bitext(pairs, source, target).stream(BatchSize(pairs=32), seed=1)
    for _ in range(UPDATES):
        optimizer.zero_grad()
        translation_cross_entropy(model, next(batches), 0.0, "float32").backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
    return Translator(model, source, target)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["greedy", "beam"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["float32", "bfloat16"])
def test_real_sentences_become_the_same_tokens_in_any_batch_and_order(
    translator: Translator, corpus: list[Pair], dtype: torch.dtype, kind: str
) -> None:
    texts = [pair.source for pair in corpus[LEARNT_FROM:]]
    assert len(texts) == REAL
    settings = SearchSettings(maximum_length=10, beam=5 if kind == "beam" else 1, length_penalty=0.6)
    built = copy.deepcopy(translator.model).to(dtype)
    result = found_in(Translator(built, translator.source_tokenizer, translator.target_tokenizer), texts, settings)
    assert result[64] == result[7] == result[1]
    # what says the same whatever it is given would keep any promise
    assert len({tokens for best in result[64] for tokens in best}) > REAL // 4
