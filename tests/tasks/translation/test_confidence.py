"""Confidence of an untrained translator, whose attention is peaked so that faults show."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
import torch

from attent.errors import ArgumentError, RunError
from attent.models.build import build
from attent.models.settings import RnnSettings, TransformerSettings
from attent.search.search import Translation
from attent.tasks.translation.calibration import SENTENCE, WORD, Calibration, Regression
from attent.tasks.translation.confidence import Confidence, calibrate
from attent.tasks.translation.translator import Translator
from attent.text.tokenizer import BOS, CharTokenizer

WIDTH = 16
SOURCE, TARGET = CharTokenizer("abcdefg "), CharTokenizer("0123 ")


def untrained(*, is_rnn: bool = False) -> Translator:
    torch.manual_seed(5)
    if is_rnn:
        settings = RnnSettings.model_validate({"width": WIDTH, "embedding_width": WIDTH, "attention": "luong"})
        return Translator(build(settings, SOURCE.size, TARGET.size), SOURCE, TARGET)
    sizes = {"encoder_layers": 1, "decoder_layers": 2, "width": WIDTH, "feed_forward": 17, "heads": 2}
    settings = TransformerSettings.model_validate(sizes | {"share_embeddings": "none"})
    model = build(settings, SOURCE.size, TARGET.size)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "cross_attention" in name and parameter.dim() > 1:
                parameter *= 4
    return Translator(model, SOURCE, TARGET)


def calibration(*, coverage: float = 0.0, width: int = WIDTH, **weights: float) -> Calibration:
    """Return a calibration that uses the named features alone, for sentences and words."""
    sentence, word = (dict.fromkeys(names, 0.0) | {n: weights.get(n, 0.0) for n in names} for names in (SENTENCE, WORD))
    return Calibration(
        weights=None,
        label="by hand",
        pairs=1,
        sentence=Regression(bias=0, weights=sentence),
        word=Regression(bias=0, weights=word),
        mean=[0.0] * width,
        scale=[1.0] * width,
        coverage=coverage,
    )


def written(translator: Translator, source: str, target: str) -> Translation:
    tokens = tuple(TARGET.encode(target))
    return Translation(tokens, 0.0, 1.0, target, translator.read(source))


def log_odds(probability: float) -> float:
    return math.log(probability / (1 - probability))


def texts(count: int, seed: int = 3) -> list[str]:
    draw = random.Random(seed)
    return ["".join(draw.choices("abcdefg ", k=draw.randrange(3, 23))).strip() or "a" for _ in range(count)]


@pytest.mark.parametrize("is_rnn", [False, True])
def test_the_loss_of_a_sentence_is_that_of_its_score(*, is_rnn: bool) -> None:
    translator = untrained(is_rnn=is_rnn)
    translator.calibration = calibration(loss=-1.0)
    pairs = [("abc de", "01 2"), ("g", "3"), ("fade bad cab", "0 1 2 3 0")]
    confidences = Confidence.of(translator, [written(translator, *pair) for pair in pairs])
    for confidence, score in zip(confidences, translator.score(pairs), strict=True):
        assert confidence is not None
        assert log_odds(confidence.confidence) == pytest.approx(score.per_token, abs=3e-3)


def test_the_losses_of_words_add_up_to_that_of_the_sentence() -> None:
    translator = untrained()
    translator.calibration = calibration(loss=-0.1)
    source, target = "abc de", "012 33 1"
    (confidence,) = Confidence.of(translator, [written(translator, source, target)])
    assert confidence is not None and [word for word, _ in confidence.words] == target.split()
    losses = [-10 * log_odds(value) for _, value in confidence.words]
    model, ids = translator.model, torch.tensor([[BOS, *TARGET.encode(target)]])
    log_probs = model.output(model.decode(translator.encode(SOURCE.encode(source)), ids))[0].log_softmax(-1)
    of_tokens = -log_probs[torch.arange(8), ids[0, 1:]].detach().numpy()
    expected = [of_tokens[:3].mean(), of_tokens[4:6].mean(), of_tokens[7]]
    assert losses == pytest.approx(expected, abs=2e-2)


def test_confidences_do_not_depend_on_the_batch() -> None:
    translator = untrained()
    features = dict.fromkeys((*SENTENCE, *WORD), 0.01)
    translator.calibration = calibration(coverage=0.5, **features)
    items = [n_best[0] for n_best in translator.search(texts(23))]
    together = Confidence.of(translator, items)
    assert together == [Confidence.of(translator, [item])[0] for item in items]
    assert together[::-1] == Confidence.of(translator, items[::-1])
    assert len({item.confidence for item in together if item}) > 10


def test_what_was_not_translated_has_no_confidence() -> None:
    translator = untrained()
    translator.calibration = calibration()
    items = [written(translator, "", ""), written(translator, "abc", ""), written(translator, "abc", "0")]
    refused = replace(items[2], source=replace(items[2].source, refusal="too long"))
    nothing, empty, usual, of_refused = Confidence.of(translator, [*items, refused])
    assert nothing is None and empty == Confidence(0.0, warnings=("is empty",))
    assert usual == Confidence(0.5, (("0", 0.5),)) and of_refused is None


def test_loops_and_dropped_words_are_warned_of() -> None:
    translator = untrained()
    looping, short = written(translator, "ab cd ef g", "0123" * 6), written(translator, "ab cd", "01")
    # a translation may repeat what its source repeats
    copied = written(translator, "abcd" * 6, "0123" * 6)
    translator.calibration = calibration(coverage=0.0)
    assert [item and item.warnings for item in Confidence.of(translator, [looping, copied])] == [
        ("repeats itself",),
        (),
    ]
    translator.calibration = calibration(coverage=100.0)
    warnings = [item and item.warnings for item in Confidence.of(translator, [looping, short])]
    assert warnings == [("repeats itself", "source words 1-4 not attended to"), ()]


def test_words_that_are_not_attended_to_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    translator = untrained()
    translator.calibration = calibration(coverage=0.25)
    # words of one character, and spaces that belong to none
    source = "a b c d e f g a"

    def forced(*arguments: object) -> list[object]:
        weights = torch.zeros(1, 2, 15)
        weights[..., [0, 2, 14]] = 1 / 3

        class Batch:
            rows, memory, features = np.array([0]), torch.zeros(1, 15, WIDTH), torch.zeros(1, 2, WIDTH)

            def mean_weights(self) -> torch.Tensor:
                return weights

        return [Batch()]

    monkeypatch.setattr("attent.tasks.translation.confidence.forced_passes", forced)
    (confidence,) = Confidence.of(translator, [written(translator, source, "0")])
    # c d e, d e f and e f g receive nothing; b c d and f g a a third of 2/3
    assert confidence is not None and confidence.warnings == ("source words 2-8 not attended to",)
    translator.calibration = calibration(coverage=0.2)
    (confidence,) = Confidence.of(translator, [written(translator, source, "0")])
    assert confidence is not None and confidence.warnings == ("source words 3-7 not attended to",)


def test_a_minimum_gives_a_reason() -> None:
    assert Confidence(0.25).problem(0.3) == "not translated: confidence 0.25 is below 0.3"
    assert Confidence(0.25).problem(0.25) is None and Confidence(0.25).problem(None) is None


def corrupted(translator: Translator, sources: Sequence[str], share: float) -> list[str]:
    """Return the translator's own translations, some of which are changed, those of long sources more often."""
    draw, results = random.Random(1), []
    for source, text in zip(sources, translator.translate(sources), strict=True):
        is_wrong = draw.random() < share * len(source) / 12
        results.append(text + "0" if is_wrong else text)
    return results


def test_calibration_learns_which_translations_are_usable() -> None:
    translator, sources = untrained(), texts(300)
    references = corrupted(translator, sources, 0.5)
    translator.calibration, lines = calibrate(translator, sources, references)
    assert translator.calibration.label == "equals the reference" and lines[0].endswith(translator.calibration.label)
    assert len(lines) == 3 and lines[1].startswith("sentences  AUC 0.") and lines[2].startswith("words      AUC ")
    found = [(n_best[0], text) for n_best, text in zip(translator.search(sources), references, strict=True)]
    found = [(item, text) for item, text in found if item.tokens]
    assert translator.calibration.pairs == len(found) > 200
    confidences = Confidence.of(translator, [item for item, _ in found])
    values = np.array([item.confidence for item in confidences if item])
    usable = np.array([item.text == text for item, text in found])
    # a regression with a bias is right on average
    assert values.mean() == pytest.approx(usable.mean(), abs=0.01)
    assert values[usable].mean() > values[~usable].mean() + 0.05
    # few exact matches: chrF2 is the label
    other = [reference[:-1] + "3" for reference in references]
    assert calibrate(translator, sources, other)[0].label.startswith("chrF2 of at least ")


def test_pairs_that_teach_nothing_are_refused() -> None:
    translator, sources = untrained(), texts(60)
    with pytest.raises(ArgumentError, match="at least 50 pairs that the run translates, got 7"):
        calibrate(translator, [*sources[:7], ""], ["0"] * 8)
    with pytest.raises(ArgumentError, match="all sentences are right"):
        calibrate(translator, sources, translator.translate(sources))
    with pytest.raises(ArgumentError, match="attent calibrate RUN --source FILE --target FILE"):
        Confidence.of(translator, translator.search("abc"))
    translator.calibration = calibration(width=3)
    with pytest.raises(RunError, match=r"confidence\.json is damaged: it is for 3 features, the model has 16"):
        Confidence.of(translator, [written(translator, "abc", "0")])
