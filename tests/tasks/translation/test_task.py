import json
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from attent.errors import DataError
from attent.models.build import build
from attent.tasks.dates.generated import held_out_digest
from attent.tasks.settings import parse
from attent.tasks.translation.evaluation import evaluate_generated
from attent.tasks.translation.task import TextFilesCorpus, TranslationTask, sample_lines
from attent.tasks.translation.translator import Translator
from attent.text.batches import BatchSize
from attent.text.settings import TextSettings
from attent.text.text import Pair

DATES = "training_pairs = 11\nvalidation_pairs = 5\nheld_out_pairs = 3\nheld_out_combinations = 1\n"
MODEL = "[model]\nencoder_layers = 1\ndecoder_layers = 1\nwidth = 8\nfeed_forward = 7\nheads = 2\n"
TRAINING = "[training]\nupdates = 1\nbatch_pairs = 4\n"
SETTINGS = parse(f'[dates]\nlocales = ["en"]\n{DATES}{MODEL}{TRAINING}', "some.toml")


def test_dates_are_read_learnt_encoded_and_judged() -> None:
    task = TranslationTask()
    corpus = task.corpus(SETTINGS)
    assert list(corpus.held_out) == ["held-out dates", "held-out combinations"]
    assert (len(corpus.validation), corpus.translated, list(corpus.table)) == (5, 5, ["dates"])
    assert task.held_out_digest(corpus) == held_out_digest(corpus.held_out)
    learnt = task.learn_vocabularies(corpus)
    assert (learnt.kinds, learnt.sizes, [*learnt.files]) == ({"source": "char", "target": "char"}, None, [])
    model = build(SETTINGS.model, *(tokenizer.size for tokenizer in learnt.tokenizers))
    judged, messages = task.evaluator(model, corpus, learnt, SETTINGS), []
    scores = judged.validate(messages.append)
    assert list(scores) == ["loss", "exact match"]
    assert len(messages) == 3
    assert list(judged.results(scores)) == ["held-out dates", "held-out combinations"]
    translator = Translator(model, *learnt.tokenizers)
    assert evaluate_generated(translator, {"none": []}) == {}
    stored, source = SimpleNamespace(tool=translator), corpus.validation[0].source
    assert task.unknown_words(stored, f"{source}字½字") == ["字", "½"]  # pyright: ignore[reportArgumentType]
    assert task.unknown_words(stored, source) == []  # pyright: ignore[reportArgumentType]
    scores = evaluate_generated(translator, {"some": corpus.validation})["some"]
    assert {*scores} == {"pairs", "exact_match", "year_alignment", "AER"}
    encoded = task.encode(corpus, learnt)
    loss = task.loss(model.train(), next(encoded.stream(BatchSize(4), 1)), 0.1, "float32")
    assert loss.shape == torch.Size([])
    # every process generates the dates itself
    assert corpus.folder is None and len(encoded) == 11
    assert task.encode(task.corpus(SETTINGS), learnt).digest() == encoded.digest()


@pytest.mark.parametrize("has_file", [True, False], ids=["own file", "split off"])
def test_validation_leaves_out_what_training_leaves_out(tmp_path: Path, has_file: bool) -> None:
    lines = [f"{'ab' * (row % 3 + 1)}\tc" for row in range(20)]
    long = ["a" * 5000 + f"{row}\tb" for row in range(20)]
    (tmp_path / "a.tsv").write_text("\n".join(lines if has_file else long + lines) + "\n")
    (tmp_path / "b.tsv").write_text(f"a\tb\n\nb\t{'c' * 5000}\n{'a' * 5000}\tb\nab\tc\n")
    table = f"[text]\ntrain = {json.dumps(str(tmp_path / 'a.tsv'))}\ntokenizer = 'char'\nmaximum_length = 7\n"
    table += f"valid = {json.dumps(str(tmp_path / 'b.tsv'))}\n" if has_file else "seed = 4\n"
    settings, task = parse(table + MODEL + TRAINING, "some.toml"), TranslationTask()
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


def test_texts_are_judged(tmp_path: Path) -> None:
    (tmp_path / "a.tsv").write_text("a\tb\nc\td\n", encoding="utf-8")
    corpus = TextFilesCorpus(TextSettings(train=str(tmp_path / "a.tsv")))
    scores = corpus.measure(["a b c d"], ["a b c d"])
    assert list(scores) == ["exact match", "chrF2", "BLEU"]
    assert scores["BLEU"] == pytest.approx(100)
    (tmp_path / "none.tsv").write_text("\n\n", encoding="utf-8")
    with pytest.raises(DataError, match="no line contains a pair"):
        TextFilesCorpus(TextSettings(train=str(tmp_path / "none.tsv")))


def test_three_samples_are_taken_evenly_and_the_same_every_time() -> None:
    pairs = [Pair(f"s{number}", f"t{number}") for number in range(9)]
    lines = sample_lines(pairs, [f"x{number}" for number in range(9)])
    assert lines == [f"  s{row}  →  x{row}  (right: t{row})" for row in (1, 4, 7)]
    assert sample_lines(pairs[:2], ["a", "b"]) == ["  s0  →  a  (right: t0)", "  s1  →  b  (right: t1)"]
    assert sample_lines([], []) == []
    assert sample_lines(pairs[:1], ["t0"]) == ["  s0  →  t0"]


def test_text_is_read_split_and_encoded(tmp_path: Path) -> None:
    file = tmp_path / "pairs.tsv"
    lines = [f"a{'b' * number}\tc{'d' * number}" for number in range(1, 41)]
    file.write_text("\n".join([*lines, "", "x\ty\tz"]) + "\n", encoding="utf-8")
    read = TranslationTask().corpus(parse(f"[text]\ntrain = {str(file)!r}\ntokenizer = 'char'\n{TRAINING}", "a.toml"))
    source, target = read.learn_tokenizers()
    assert len(read.encode(source, target, None)) + len(read.validation) == 40
    assert source.decode(source.encode("abb")) == "abb"
    assert read.kinds == {"source": "char", "target": "char"}
    assert read.table["text"]["train"] == str(file)
    message = " ".join(read.report())
    assert "42" in message and "empty" in message
