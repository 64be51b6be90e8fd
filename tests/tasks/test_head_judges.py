from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from attent.alignment.ablation import ACCURACY, CLASS_LOSS, LOSS, PERPLEXITY, Ablation, head_summaries
from attent.attention.capture.intervene import intervene
from attent.models.encoder import EncoderModel
from attent.models.settings import EncoderSettings
from attent.tasks.classification.classifier import Classifier
from attent.tasks.classification.evaluation import ClassJudge, evaluate_classifier
from attent.tasks.classification.inputs import Inputs, TextInputs
from attent.tasks.fill_mask.fill_mask import FillMask
from attent.tasks.fill_mask.task import BlankJudge, evaluate_masked_lm
from attent.tasks.text_generation.task import NextTokenJudge, evaluate_language_model
from attent.tasks.text_generation.text_generator import TextGenerator
from attent.tasks.translation.evaluation import BleuJudge, bleu
from attent.tasks.translation.translator import load
from attent.text.tokenizers import learn


def test_bleu_is_that_of_the_translations() -> None:
    translator = load(Path(__file__).parents[1] / "frozen" / "runs" / "pairs")
    sources = ["the small dog", "a hen sees the cat", "the cow", "a black horse hears the sad mouse"]
    right = translator.translate(sources)
    references = [reference[:-1] + "0" for reference in right]
    ablation = Ablation(BleuJudge(translator, [*zip(sources, references, strict=True)], "char"))
    assert ablation.score == pytest.approx(bleu(right, references, "char").score)
    cost = ablation.cost("decoder.layers.0.cross_attention", 0)
    assert cost.cost == pytest.approx(ablation.score - cost.score)


def test_classes_and_next_tokens_have_judges_too(generator: TextGenerator) -> None:
    torch.manual_seed(5)
    texts = ["the dog slept .", "the cat ran .", "the dog ran ."]
    tokenizer = learn("word", texts * 4)
    sizes = {"layers": 2, "width": 8, "feed_forward": 7, "heads": 2, "cls": True}
    model = EncoderModel(EncoderSettings.model_validate(sizes), tokenizer.size, 2)
    classifier = Classifier(model, Inputs(labels=("yes", "no"), inputs=TextInputs()), tokenizer)
    examples = classifier.examples(classifier.data(texts * 3), np.array([0, 1, 1] * 3))
    expected, confusion = evaluate_classifier(classifier, examples)
    assert Ablation(ClassJudge(classifier, examples, ACCURACY)).score == pytest.approx(confusion.accuracy)
    judge = ClassJudge(classifier, examples, CLASS_LOSS)
    assert Ablation(judge).score == pytest.approx(expected)
    assert len(head_summaries(judge)) == 4
    report = evaluate_language_model(generator, texts)
    assert report is not None
    assert Ablation(NextTokenJudge(generator, texts)).score == pytest.approx(report.table["perplexity"])
    judged = NextTokenJudge(generator, texts, LOSS)
    generator.stops_at_line_end = False
    assert judged.statistics()[:, 1].tolist() == [5, 5, 5]
    (module, head), summary = next(iter(head_summaries(judged).items()))
    assert Ablation(judged).cost(module, head, summary).distance == summary.distance


def test_blanks_have_a_judge_too(filler: FillMask) -> None:
    texts = ["the dog slept .", "the cat was happy .", "the bird slept ."]
    report = evaluate_masked_lm(filler, texts)
    assert report is not None
    for metric, expected in ((ACCURACY, report.accuracy), (PERPLEXITY, report.perplexity)):
        judge = BlankJudge(filler, texts, metric)
        assert Ablation(judge).score == pytest.approx(expected)
    assert BlankJudge(filler, texts, LOSS).statistics()[:, 1].tolist() == [4, 5, 3]
    (module, head), summary = next(iter(head_summaries(judge).items()))
    assert judge.maps(2)[module].shape == (1, 2, 4, 4)
    assert summary.distance is not None
    with intervene(filler.model, {module: {head: "zero"}}):
        changed = evaluate_masked_lm(filler, texts)
    assert changed is not None
    cost = Ablation(judge).cost(module, head, summary)
    assert cost.cost == pytest.approx(changed.perplexity - report.perplexity)
