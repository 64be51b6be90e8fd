import json
from pathlib import Path

import pytest
import torch

from attent.models.build import build
from attent.tasks.dates import dates
from attent.tasks.settings import parse
from attent.tasks.translation.evaluation import evaluate_generated
from attent.tasks.translation.task import TextFilesCorpus, TranslationTask, sample_lines
from attent.tasks.translation.translator import Translator
from attent.text.batches import BatchSize
from attent.text.settings import TextSettings
from attent.text.text import Pair

SETTINGS = parse(
    """
    [dates]
    locales = ["en"]
    training_pairs = 11
    validation_pairs = 5
    held_out_pairs = 3
    held_out_combinations = 1
    [model]
    encoder_layers = 1
    decoder_layers = 1
    width = 8
    feed_forward = 7
    heads = 2
    [training]
    updates = 1
    batch_pairs = 4
    """,
    "some.toml",
)


def test_dates_are_read_learnt_encoded_and_judged() -> None:
    task = TranslationTask()
    corpus = task.corpus(SETTINGS)
    learnt = task.learn_vocabularies(corpus)
    assert (learnt.kinds, learnt.sizes, [*learnt.files]) == ({"source": "char", "target": "char"}, None, [])
    model = build(SETTINGS.model, *(tokenizer.size for tokenizer in learnt.tokenizers))
    judged, messages = task.evaluator(model, corpus, learnt, SETTINGS), []
    scores = judged.validate(messages.append)
    assert list(scores) == ["loss", "exact match"]
    assert len(messages) == 3
    assert list(judged.results(scores)) == ["held-out dates", "held-out combinations"]
    encoded = task.encode(corpus, learnt)
    loss = task.loss(model.train(), next(encoded.stream(BatchSize(4), 1)), 0.1, "float32")
    assert loss.shape == torch.Size([])
    borrowed = task.open_shared(SETTINGS, corpus.share(encoded), learnt)
    assert len(borrowed) == len(encoded) == 11


@pytest.mark.parametrize("has_file", [True, False], ids=["own file", "split off"])
def test_validation_leaves_out_what_training_leaves_out(tmp_path: Path, has_file: bool) -> None:
    lines = [f"{'ab' * (row % 3 + 1)}\tc" for row in range(20)]
    (tmp_path / "a.tsv").write_text(
        "\n".join(lines if has_file else ["a" * 5000 + f"{row}\tb" for row in range(20)] + lines) + "\n"
    )
    (tmp_path / "b.tsv").write_text(f"a\tb\n\nb\t{'c' * 5000}\n{'a' * 5000}\tb\nab\tc\n")
    table = f"[text]\ntrain = {json.dumps(str(tmp_path / 'a.tsv'))}\ntokenizer = 'char'\nmaximum_length = 7\n"
    table += f"valid = {json.dumps(str(tmp_path / 'b.tsv'))}\n" if has_file else "seed = 4\n"
    model = (
        "[model]\nencoder_layers = 1\ndecoder_layers = 1\nwidth = 8\nfeed_forward = 7\nheads = 2\n[training]\n"
        "updates = 1\n"
    )
    settings, task = parse(table + model + "batch_pairs = 4\n", "some.toml"), TranslationTask()
    corpus = task.corpus(settings)
    learnt = task.learn_vocabularies(corpus)
    built = build(settings.model, *(tokenizer.size for tokenizer in learnt.tokenizers))
    longer = [pair for pair in corpus.validation if max(len(pair.source), len(pair.target)) > 7]
    assert longer
    judged = task.evaluator(built, corpus, learnt, settings)
    assert judged.results({})["validation"]["pairs"] == len(corpus.validation) - len(longer)
    message = corpus.report()
    if has_file:
        assert message[-1] == "  2 dropped: longer than the maximum length (lines 3, 4)"
    else:
        assert f"  {len(longer)} dropped: longer than the maximum length " in message[-1]


def test_a_set_without_pairs_is_not_judged() -> None:
    corpus = dates(SETTINGS.dates)
    tokenizers = TranslationTask().learn_vocabularies(TranslationTask().corpus(SETTINGS)).tokenizers
    translator = Translator(build(SETTINGS.model, *(tokenizer.size for tokenizer in tokenizers)), *tokenizers)
    assert evaluate_generated(translator, {"none": []}) == {}
    assert set(evaluate_generated(translator, {"some": corpus.validation})["some"]) == {
        "pairs",
        "exact_match",
        "year_alignment",
        "AER",
    }


@pytest.mark.parametrize(("pairs", "has_interval"), [(10, True), (199, True), (200, False)])
def test_few_pairs_are_judged_with_an_interval(tmp_path: Path, pairs: int, has_interval: bool) -> None:
    (tmp_path / "a.tsv").write_text("a\tb\nc\td\n", encoding="utf-8")
    corpus = TextFilesCorpus(TextSettings(train=str(tmp_path / "a.tsv")))
    references = [f"a dog number {row} sits here" for row in range(pairs)]
    translations = [line.replace("dog", "cat") if row % 2 else line for row, line in enumerate(references)]
    intervals = corpus.intervals(translations, references)
    assert ("BLEU interval" in intervals) == has_interval
    assert intervals.get("BLEU interval", 1.0) > 0


PAIRS = [Pair(f"s{number}", f"t{number}") for number in range(9)]


def test_three_samples_are_taken_evenly_and_the_same_every_time() -> None:
    lines = sample_lines(PAIRS, [f"x{number}" for number in range(9)])
    assert lines == [f"  s{row}  →  x{row}  (right: t{row})" for row in (1, 4, 7)]


def test_there_are_fewer_samples_of_fewer_pairs() -> None:
    assert sample_lines(PAIRS[:2], ["a", "b"]) == ["  s0  →  a  (right: t0)", "  s1  →  b  (right: t1)"]
    assert sample_lines([], []) == []


def test_a_right_sample_has_no_correction() -> None:
    assert sample_lines(PAIRS[:1], ["t0"]) == ["  s0  →  t0"]
