import io
from collections.abc import Callable
from pathlib import Path

import pytest

import attent
from attent.errors import ArgumentError, DataError, RunError
from attent.runs.config import read_config
from attent.tasks.caption.task import CaptionTask
from attent.tasks.loading import StoredRun
from attent.tasks.recipe import follow, resume
from attent.tasks.settings import RunSettings, parse
from attent.training.progress import Progress

Run = Callable[[str], Path]
Write = Callable[[Path, dict[str, int]], Path]
Make = Callable[..., RunSettings]


@pytest.mark.parametrize("kind", ["transformer", "rnn"])
def test_a_run_folder_and_its_evaluation(captioned: Run, kind: str) -> None:
    run = captioned(kind)
    config = read_config(run)
    assert (config.task, config.tokenizers, config.files) == ("caption", {"target": "word"}, ("inputs.json",))
    # four pixels; four special tokens and five words
    assert config.sizes == (4, 4 + 5)
    assert config.model.model_dump()["input"] == "vectors"
    assert config.results["valid"]["exact match"] == pytest.approx(100)
    assert config.results["test"]["captions"] == 6
    stored, lines = StoredRun(run), list[str]()
    evaluation = stored.task.evaluate(stored, lines.append)
    assert evaluation.table == config.results
    assert lines == [
        "captions: 40 of train, 8 of valid, 6 of test; pictures of 4 x 6 pixels in 6 patches",
    ]
    assert evaluation.lines[1].startswith("test   BLEU 100.0  exact match 100.0 %")
    pictures = run.parent / "pictures"
    on_folder = stored.task.evaluate(stored, lines.append, images=str(pictures))
    on_file = stored.task.evaluate(stored, lines.append, images=str(pictures / "test.tsv"))
    assert on_folder.table == on_file.table == {"test": config.results["test"]}
    (run.parent / "other.tsv").write_text("pictures/test0.png\tlight on the right\n")
    other = stored.task.evaluate(stored, lines.append, images=str(run.parent / "other.tsv"))
    assert other.table["other"]["exact match"] == 0
    assert repr(attent.load(run)).startswith("Captioner: captions, ")


def test_a_run_resumes_where_it_was(tmp_path: Path, write: Write, make_settings: Make) -> None:
    pictures = write(tmp_path / "a", {"train": 16, "valid": 4})
    settings = make_settings(pictures, table="shift = 0.5", updates=6)
    whole = follow(settings, tmp_path / "whole", progress=Progress(io.StringIO()))
    follow(settings, tmp_path / "run", progress=Progress(io.StringIO()))
    resume(tmp_path / "run", {"updates": 8}, progress=Progress(io.StringIO()))
    assert read_config(tmp_path / "run").training["outcome"]["updates"] == 8
    assert whole.keys() == {"valid"}


def test_a_changed_corpus_is_not_evaluated(tmp_path: Path, write: Write, make_settings: Make) -> None:
    pictures = write(tmp_path / "a", {"train": 9})
    follow(
        make_settings(pictures, table="validation = 0.2", updates=2), tmp_path / "run", progress=Progress(io.StringIO())
    )
    stored = StoredRun(tmp_path / "run")
    for number in range(8):
        (pictures / f"train{number}.png").write_bytes((pictures / "train8.png").read_bytes())
    with pytest.raises(DataError, match=r"the corpus of .* has changed"):
        stored.task.evaluate(stored, print)
    (pictures / "train.tsv").unlink()
    for file in pictures.iterdir():
        file.unlink()
    pictures.rmdir()
    with pytest.raises(ArgumentError, match="cannot be read again"):
        stored.task.evaluate(stored, print)


def test_settings(tmp_path: Path, write: Write) -> None:
    pictures = write(tmp_path / "a", {"train": 4})
    text = 'task = "caption"\n[captions]\nsource = "a"\n[training]\nupdates = 1\nbatch_pairs = 1\n[model]\n'
    assert parse(f"{text}width = 8", "small.toml").model.model_dump()["input"] == "vectors"
    with pytest.raises(ArgumentError, match="input"):
        parse(f'{text}input = "tokens"', "small.toml")
    with pytest.raises(ArgumentError, match="encoder"):
        parse(f'{text}kind = "encoder"', "small.toml")
    tables, captions = CaptionTask().suggest({"source": str(pictures)})
    assert captions == 4
    assert tables["model"]["encoder_layers"] == 2
    with pytest.raises(DataError, match=r"must be a \.tsv or a folder"):
        CaptionTask().suggest({"source": "missing"})


def test_another_run_of_the_same_pictures_is_the_start(captioned: Run, tmp_path: Path, make_settings: Make) -> None:
    run = captioned("transformer")
    settings = make_settings(run.parent / "pictures", updates=1, learning_rate=1e-6)
    results = follow(settings, tmp_path / "run", init_from=run, progress=Progress(io.StringIO()))
    assert results["test"]["exact match"] == 100
    other = make_settings(run.parent / "pictures", table="size = 4", updates=1)
    with pytest.raises(ArgumentError, match="the run reads pictures of 4 x 6 pixels in grey, and these have 4 x 4"):
        follow(other, tmp_path / "other", init_from=run)


def test_ten_pictures_without_a_recipe(tmp_path: Path, write: Write) -> None:
    tables, _ = CaptionTask().suggest({"source": str(write(tmp_path / "a", {"train": 10}))})
    training = tables["training"] | {"updates": 2, "validate_every": 1, "precision": "float32", "threads": 1}
    tables |= {"training": training, "task": "caption", "captions": {"source": str(tmp_path / "a")}}
    results = follow(RunSettings.model_validate(tables), tmp_path / "run", progress=Progress(io.StringIO()))
    assert results["valid"]["captions"] == 1


def test_commands_of_other_tasks_are_refused(captioned: Run) -> None:
    stored = StoredRun(captioned("rnn"))
    with pytest.raises(RunError, match="captions: attent caption"):
        stored.task.judge(stored, "file", "loss", print)
    with pytest.raises(RunError, match="captions: attent caption"):
        next(iter(stored.task.scores(stored, ["a"], "file")))
