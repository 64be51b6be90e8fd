import io
import json
from pathlib import Path

import numpy as np
import pytest

import attent
from attent.errors import ArgumentError, DataError, RunError
from attent.models.settings import EncoderSettings
from attent.runs.config import read_config
from attent.tasks.classification.classifier import load
from attent.tasks.classification.evaluation import evaluate_classifier
from attent.tasks.classification.task import ClassificationTask
from attent.tasks.loading import StoredRun
from attent.tasks.recipe import follow, resume
from attent.tasks.settings import RunSettings, parse
from attent.tasks.translation.translator import load as translator
from attent.text.tokenizer import WordTokenizer
from attent.training.progress import Progress

MODEL = "[model]\nlayers = 1\nwidth = 16\nfeed_forward = 17\nheads = 2\ndropout = 0.1\n"


def make_settings(table: str, **training: object) -> RunSettings:
    given = {"updates": 8, "batch_pairs": 8, "precision": "float32", "threads": 1, "learning_rate": 1e-2, "warmup": 2}
    lines = "\n".join(f"{name} = {json.dumps(value)}" for name, value in (given | training).items())
    return parse(f'task = "classify"\n{table}\n{MODEL}\n[training]\n{lines}', "small.toml")


def pictures(folder: Path) -> str:
    """A table of pictures that are light above or below."""
    generator, classes = np.random.default_rng(0), np.arange(60) % 2
    pixels = generator.uniform(0, 0.3, (60, 4, 6))
    pixels[classes == 0, :2] += 0.6
    pixels[classes == 1, 2:] += 0.6
    np.savez(folder / "a.npz", images=pixels, y=np.array(["above", "below"])[classes])
    return f"[images]\nsource = {json.dumps(str(folder / 'a.npz'))}\npatch = 2\nshift = 0.5\nturn = 5\ntest = 0.2\n"


def texts(folder: Path) -> str:
    lines = [f"{n} {'quick' if n % 2 else 'slow'} steps\t{'fast' if n % 2 else 'late'}" for n in range(60)]
    (folder / "a.tsv").write_text("\n".join([*lines, "no label"]) + "\n")
    return f'[labelled]\ntrain = {json.dumps(str(folder / "a.tsv"))}\ntokenizer = "word"\n'


def test_pictures_end_in_a_run_folder_that_classifies(tmp_path: Path) -> None:
    stream, task, settings = io.StringIO(), ClassificationTask(), make_settings(pictures(tmp_path), updates=60)
    results = follow(settings, tmp_path / "run", progress=Progress(stream))
    assert "2 classes: 43 examples to train on, 5 to validate on, 12 to test" in stream.getvalue()
    assert results["test"]["accuracy"] == 100
    config = read_config(tmp_path / "run")
    assert (config.task, config.tokenizers, config.sizes, config.files) == ("classify", {}, (4, 2), ("inputs.json",))
    (light_above, light_below) = np.full((2, 4, 6), 0.1, np.float32)
    light_above[:2] = light_below[2:] = 0.9
    classifier = attent.load(tmp_path / "run")
    predictions = classifier.classify(np.stack([light_above, light_below]))
    assert [prediction.label for prediction in predictions] == ["above", "below"]
    # its loss worked by hand
    corpus = task.corpus(settings).data
    sample = classifier.examples(corpus.data, corpus.classes, corpus.test)
    loss, confusion = evaluate_classifier(classifier, sample)
    predictions = classifier.classify(corpus.data, best=2)
    chances = [dict(zip(item.labels, item.probabilities, strict=True)) for item in predictions]
    right = [chances[row][corpus.inputs.labels[corpus.classes[row]]] for row in corpus.test]
    assert loss == pytest.approx(-np.log(right).mean(), abs=1e-5)
    assert confusion.counts.sum() == len(corpus.test) == 12


def test_texts_end_in_a_run_folder_that_classifies(tmp_path: Path) -> None:
    stream = io.StringIO()
    follow(make_settings(texts(tmp_path), updates=40), tmp_path / "run", progress=Progress(stream))
    assert "1 dropped: no tab between text and label (line 61)" in stream.getvalue()
    assert " nats/example " in stream.getvalue()
    predictions = load(tmp_path / "run").classify(["7 quick steps", "some slow steps"])
    assert [prediction.label for prediction in predictions] == ["fast", "late"]


def test_texts_are_cut_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cut: list[str] = []
    encode = WordTokenizer.encode
    monkeypatch.setattr(WordTokenizer, "encode", lambda self, text: cut.append(text) or encode(self, text))
    follow(make_settings(texts(tmp_path)), tmp_path / "run")
    assert len(cut) == len(set(cut)) == 60


def test_a_run_that_is_broken_off_ends_with_the_weights_of_one_that_is_not(tmp_path: Path) -> None:
    # in the middle of an epoch, whose pictures vary as they would have
    whole = make_settings(pictures(tmp_path), updates=8, save_every=2, keep_best=0)
    follow(whole, tmp_path / "whole")
    part = whole.model_copy(update={"training": whole.training.model_copy(update={"updates": 3})})
    follow(part, tmp_path / "run")
    resume(tmp_path / "run", {"updates": 8})
    weights = [(tmp_path / name / "model.safetensors").read_bytes() for name in ("whole", "run")]
    assert weights[0] == weights[1]


def test_a_run_does_not_go_on_with_what_it_is_judged_by(tmp_path: Path) -> None:
    table, file = texts(tmp_path), tmp_path / "a.tsv"
    follow(make_settings(table, updates=2), tmp_path / "run")
    whole = file.read_text()
    file.write_text("\n".join(whole.splitlines()[:45]) + "\n")
    log = (tmp_path / "run/log.jsonl").read_bytes()
    with pytest.raises(DataError, match=r"corpus of .*run has changed, so the run would train on its own test data"):
        resume(tmp_path / "run", {"updates": 4})
    assert (tmp_path / "run/log.jsonl").read_bytes() == log
    with pytest.raises(DataError, match=r"its held-out examples may have been trained on: give others with"):
        ClassificationTask().evaluate(StoredRun(tmp_path / "run"), print)
    file.write_text(whole)
    resume(tmp_path / "run", {"updates": 4})
    ClassificationTask().evaluate(StoredRun(tmp_path / "run"), print)


@pytest.mark.parametrize("has_file", [True, False], ids=["own file", "split off"])
def test_validation_leaves_out_what_training_leaves_out(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], has_file: bool
) -> None:
    table = texts(tmp_path) + "maximum_length = 4\n"
    long = [f"{number} slow and slow steps\tlate" for number in range(60, 100)]
    if has_file:
        lines = ["some quick steps\tfast", "some slow steps\tlate", long[0]]
        (tmp_path / "valid.tsv").write_text("\n".join(lines) + "\n")
        table += f"valid = {json.dumps(str(tmp_path / 'valid.tsv'))}\n"
    else:
        (tmp_path / "a.tsv").write_text((tmp_path / "a.tsv").read_text() + "\n".join(long) + "\n")
    stream = io.StringIO()
    results = follow(make_settings(table, updates=2), tmp_path / "run", progress=Progress(stream))
    if has_file:
        assert results["validation"]["examples"] == 2
        assert "valid.tsv: 3 lines read, 2 kept\n  1 dropped: longer than the maximum" in stream.getvalue()
    else:
        assert "  40 dropped: longer than the maximum length " in stream.getvalue()
    messages: list[str] = []
    report = ClassificationTask().evaluate(StoredRun(tmp_path / "run"), messages.append)
    assert report.table["examples"] == results["validation"]["examples"]
    assert any("dropped: longer than the maximum length (line" in message for message in messages)


def test_settings_say_what_they_need(tmp_path: Path) -> None:
    settings = make_settings(pictures(tmp_path))
    assert isinstance(settings.model, EncoderSettings)
    assert (settings.model.input, settings.model.cls) == ("vectors", True)
    assert make_settings(texts(tmp_path)).model.input == "tokens"
    with pytest.raises(ArgumentError, match=r"needs a corpus: \[images\] or \[labelled\]"):
        make_settings("")
    with pytest.raises(ArgumentError, match=r"a run that classifies learns from \[images\] or \[labelled\], got"):
        make_settings('[text]\ntrain = "a.tsv"')
    with pytest.raises(ArgumentError, match="both be the corpus"):
        make_settings(pictures(tmp_path) + texts(tmp_path))


def test_a_run_is_neither_loaded_by_another_task_nor_the_start_of_other_classes(tmp_path: Path) -> None:
    follow(make_settings(pictures(tmp_path), updates=1), tmp_path / "run")
    with pytest.raises(RunError, match=r"run classifies: attent classify .*run FILE"):
        translator(tmp_path / "run")
    # a start from a run of other classes is refused
    np.savez(tmp_path / "a.npz", images=np.random.rand(20, 4, 6), y=np.arange(20) % 3)
    with pytest.raises(ArgumentError, match="the run has 2 classes"):
        table = f"[images]\nsource = {json.dumps(str(tmp_path / 'a.npz'))}\npatch = 2\n"
        follow(make_settings(table), tmp_path / "other", init_from=tmp_path / "run")


@pytest.mark.parametrize("limit", ['position = "learned"\nmaximum_length = 29', 'score = "location"'])
def test_what_the_model_cannot_read_is_left_out_and_what_it_can_is_read_whole(tmp_path: Path, limit: str) -> None:
    maximum = 28 if "learned" in limit else 255
    for name, letters, count in (("a", "xy", 20), ("b", "yx", 4)):
        # in either file a text that just fits, and another that does not
        lines = [" ".join(letters[row % 2] * (maximum + row if row < 2 else row + 1)) for row in range(count)]
        (tmp_path / f"{name}.tsv").write_text("".join(f"{line}\t{'xy'[row % 2]}\n" for row, line in enumerate(lines)))
    table = (
        f'[labelled]\ntrain = "{tmp_path / "a.tsv"}"\nvalid = "{tmp_path / "b.tsv"}"\ntokenizer = "word"\n'
        "maximum_length = 999"
    )
    stream, training = io.StringIO(), "[training]\nupdates = 3\nbatch_pairs = 32\nthreads = 1"
    settings = parse(f'task = "classify"\n{table}\n{MODEL}{limit}\n{training}', "a.toml")
    results = follow(settings, tmp_path / "run", progress=Progress(stream))
    for part in ("train", "validation"):
        assert f"{part}: 1 dropped: longer than the {maximum} tokens, vectors or patches" in stream.getvalue()
    assert results["validation"]["examples"] == 3
    classifier = load(tmp_path / "run")
    fits, long = " ".join("x" * maximum), " ".join("x" * (maximum + 1))
    assert classifier.longest == maximum
    assert len(classifier.classify([fits, "x"])) == 2
    for refused in (lambda: classifier.classify(["x", long]), lambda: classifier.maps(["x", long], row=1)):
        with pytest.raises(DataError, match=f"example 1 has a length of {maximum + 1}, more than the {maximum} tokens"):
            refused()
