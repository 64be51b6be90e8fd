import hashlib
import json
import os
import shutil
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from attent.errors import RunError
from attent.models.settings import TransformerSettings
from attent.models.transformer import Transformer
from attent.runs import folder
from attent.runs.config import FORMAT, RunConfig, read_config, write_config
from attent.runs.durable import draft_of, held
from attent.runs.folder import RunWriter, read, tokenizers_as_text, tokenizers_of_text, without_digest
from attent.runs.snapshot import is_bound
from attent.runs.weights import tensors_of, write_tensors
from attent.text.tokenizer import CharTokenizer

SETTINGS = TransformerSettings(
    encoder_layers=1, decoder_layers=1, width=8, feed_forward=5, heads=2, share_embeddings="target"
)
SOURCE, TARGET = CharTokenizer("abc"), CharTokenizer("01")


def make_model(settings: TransformerSettings = SETTINGS) -> Transformer:
    return Transformer(settings, SOURCE.size, TARGET.size).eval()


def write(path: Path, model: Transformer | None = None, *, replace: bool = False) -> Transformer:
    model = model or make_model()
    with RunWriter(path, replace=replace) as run:
        run.finish(RunConfig(model=model.settings, results={"test": {"exact_match": 99.5}}), model, SOURCE, TARGET)
    return model


@pytest.fixture
def finished(tmp_path: Path) -> Path:
    write(tmp_path / "run")
    return tmp_path / "run"


def tree(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


@pytest.mark.parametrize("shared", ["none", "target"])
def test_what_is_written_is_read(tmp_path: Path, shared: str) -> None:
    built = write(tmp_path / "run", make_model(SETTINGS.model_copy(update={"share_embeddings": shared})))
    run = read(tmp_path / "run")
    assert not run.model.training
    assert (run.model.to_logits.weight is run.model.target_embedding.tokens.weight) == (shared == "target")
    assert run.config.model == built.settings
    assert run.config.results == {"test": {"exact_match": 99.5}}
    assert run.source_tokenizer.encode("cab") == SOURCE.encode("cab")
    assert run.target_tokenizer.size == TARGET.size
    assert all(torch.equal(value, run.model.state_dict()[name]) for name, value in built.state_dict().items())


def test_a_run_alone_is_replaced_and_only_when_asked(tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt), RunWriter(tmp_path / "run"):
        raise KeyboardInterrupt
    assert tree(tmp_path) == set()
    write(tmp_path / "run")
    with pytest.raises(RunError, match="run already exists"):
        RunWriter(tmp_path / "run")
    second = write(tmp_path / "run", replace=True)
    assert torch.equal(read(tmp_path / "run").model.to_logits.weight, second.to_logits.weight)
    assert tree(tmp_path) == {"run"}
    (tmp_path / "run" / "config.json").unlink()
    before = tree(tmp_path / "run")
    with pytest.raises(RunError, match="is not a run folder"):
        RunWriter(tmp_path / "run", replace=True)
    assert tree(tmp_path / "run") == before
    with pytest.raises(RunError, match="cannot be written"):
        RunWriter(tmp_path / "run" / "log.jsonl" / "run")


def config(table: str | None = None, **values: object) -> Callable[[Path], object]:
    """A change of config.json or of one of its tables."""

    def change(run: Path) -> None:
        content = json.loads((run / "config.json").read_text())
        (content if table is None else content[table]).update(values)
        (run / "config.json").write_text(json.dumps(content))

    return change


NEWER = FORMAT + 1
DAMAGES: dict[str, tuple[Callable[[Path], object], str]] = {
    "no folder": (shutil.rmtree, "run is not a run folder: there is no such folder"),
    "bad JSON": (lambda run: (run / "config.json").write_text('{"format": 4'), r"config\.json is damaged: "),
    "newer": (config(format=NEWER, versions={"attent": "9.9"}), r"has format 5, written by attent 9\.9; .* up to 4"),
    "newer of nobody": (config(format=NEWER, versions=[]), "has format 5, written by attent of a newer version"),
    "no table": (lambda run: (run / "config.json").write_text("[]"), "damaged: it has no valid format number"),
    "format of truth": (config(format=True), "damaged: it has no valid format number"),
    "format 0": (config(format=0), "damaged: it has no valid format number"),
    "a file outside": (config(files=[".."]), r"config\.json is damaged: tokenizers and files must be .*'\.\.'$"),
    "no size": (config(sizes=[0, 3]), r"config\.json is damaged: sizes\.0: input should be .* 1$"),
    "uneven heads": (config("model", heads=3), r"config\.json is damaged: model\S*: heads must divide width = 8"),
    "unknown score": (config("model", score="dott"), r"config\.json is damaged: model: unknown score .* mean 'dot'"),
    "larger than memory": (config("model", width=10**12), r"config\.json is damaged: model: "),
    "unknown setting": (config("model", colour="red"), r"config\.json is damaged: model\.colour: "),
    "more layers": (config("model", encoder_layers=2), r"safetensors is damaged: encoder\.layers\.1\.\S+ is missing"),
    "unknown tokenizer": (config("tokenizers", target="rune"), "target tokenizer has the unknown kind 'rune'"),
    "no weights": (lambda run: (run / "model.safetensors").unlink(), r"model\.safetensors is missing or damaged: "),
    "no tokenizer": (lambda run: (run / "source.tokenizer.json").unlink(), r"source\.tokenizer\.json cannot be read"),
}


@pytest.mark.parametrize("name", DAMAGES)
def test_damage_is_named_in_one_line(finished: Path, name: str) -> None:
    damage, message = DAMAGES[name]
    damage(finished)
    with pytest.raises(RunError, match=message) as caught:
        read(finished)
    assert "\n" not in str(caught.value)


def test_a_run_is_there_from_the_beginning_and_says_that_it_is_unfinished(tmp_path: Path) -> None:
    model = make_model()
    with RunWriter(tmp_path / "run") as run:
        run.log({"pace": "slow"})
        run.begin(RunConfig(model=model.settings), SOURCE, TARGET)
        run.log({"update": 1})
        assert read_config(tmp_path / "run").state == "unfinished"
        with pytest.raises(RunError, match=r"run is unfinished .*attent train --resume \S+run$"):
            read(tmp_path / "run")
        run.finish(RunConfig(model=model.settings), model, SOURCE, TARGET)
    assert read(tmp_path / "run").config.state == "finished"
    assert (tmp_path / "run" / "log.jsonl").read_text() == '{"pace": "slow"}\n{"update": 1}\n'
    assert tree(tmp_path) == {"run"}


def test_what_was_logged_after_the_last_checkpoint_is_taken_back(tmp_path: Path) -> None:
    with RunWriter(tmp_path / "run") as run:
        run.begin(RunConfig(model=SETTINGS), SOURCE, TARGET)
        run.log({"update": 1})
        length = run.sync_log()
        run.log({"update": 2})
    (tmp_path / "run" / ".config.json.part").write_text("half")
    with RunWriter.again(tmp_path / "run") as run:
        run.rewind(length)
        run.log({"update": 3})
    assert (tmp_path / "run" / "log.jsonl").read_text() == '{"update": 1}\n{"update": 3}\n'
    assert ".config.json.part" not in tree(tmp_path / "run")


def test_one_writer_at_a_time_has_a_run(tmp_path: Path) -> None:
    trained = RunConfig(model=SETTINGS)
    with RunWriter(tmp_path / "run") as run:
        run.begin(trained, SOURCE, TARGET)
        run.log({"update": 1})
        for attempt in (lambda: RunWriter.again(tmp_path / "run"), lambda: RunWriter(tmp_path / "run", replace=True)):
            with pytest.raises(RunError, match=r"/run is being trained by another process$"):
                attempt()
        with pytest.raises(RunError, match="is being trained"), held(tmp_path / "run"):
            pass
        assert tree(tmp_path) == {"run"}
        assert (tmp_path / "run" / "log.jsonl").read_text() == '{"update": 1}\n'
    with RunWriter.again(tmp_path / "run") as run, pytest.raises(RunError, match="is being trained"):
        RunWriter.again(tmp_path / "run")
    write(tmp_path / "run", replace=True)


def test_another_process_is_named_also_while_it_removes_files(finished: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def gone(*_: object) -> None:
        raise FileNotFoundError(2, "No such file or directory")

    with held(finished):
        monkeypatch.setattr(Path, "rglob", gone)
        with pytest.raises(RunError, match=r"is being trained by another process$"):
            RunWriter.again(finished)
    with pytest.raises(RunError, match=r"run cannot be written: No such file or directory$"):
        RunWriter.again(finished)


def test_a_draft_that_is_moved_while_it_is_looked_at_is_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    draft(tmp_path, age=100.0)
    monkeypatch.setattr(Path, "is_file", lambda path: True)
    (next(tmp_path.glob(".run.*")) / "log.jsonl").unlink()
    with RunWriter(tmp_path / "run"):
        pass
    assert len(tree(tmp_path)) == 1


def test_of_two_that_start_at_once_the_second_to_begin_gives_way(tmp_path: Path) -> None:
    trained = RunConfig(model=SETTINGS)
    for replace, says in ((False, "run already exists"), (True, "run is being trained by another process")):
        path = tmp_path / str(replace) / "run"
        with RunWriter(path, replace=replace) as first, RunWriter(path, replace=replace) as second:
            first.begin(trained, SOURCE, TARGET)
            with pytest.raises(RunError, match=says):
                second.begin(trained, SOURCE, TARGET)
            first.log({"update": 1})
        assert (path / "log.jsonl").read_text() == '{"update": 1}\n'
        assert tree(path.parent) == {"run"}


def test_weights_that_have_changed_are_known_by_their_digest(finished: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    weights = finished / "model.safetensors"
    config = read_config(finished)
    assert config.digests == {"model.safetensors": hashlib.sha256(weights.read_bytes()).hexdigest()}
    content = bytearray(weights.read_bytes())
    content[-3] ^= 1
    weights.write_bytes(content)
    with pytest.raises(RunError, match=r"model\.safetensors is damaged: .* SHA-256 "):
        read(finished)
    with monkeypatch.context() as patched:
        patched.setattr(folder, "MAX_HASHED", len(content) - 1)
        read(finished)
    write_config(without_digest(config), finished)
    read(finished)


def test_a_run_that_goes_on_has_no_digest_until_it_is_finished(tmp_path: Path) -> None:
    built = write(tmp_path / "run")
    config = read_config(tmp_path / "run")
    with RunWriter.again(tmp_path / "run") as run:
        run.begin(config)
        assert read_config(tmp_path / "run").digests == {}
        write_tensors(tensors_of(make_model()), tmp_path / "run" / "model.safetensors")
        read(tmp_path / "run")
        run.finish(config, built)
    assert read_config(tmp_path / "run").digests == config.digests


def test_tokenizers_travel_as_text(finished: Path) -> None:
    source, target = tokenizers_of_text(tokenizers_as_text(finished), read_config(finished))
    assert (source.encode("cab"), target.encode("10")) == (SOURCE.encode("cab"), TARGET.encode("10"))
    assert (source.size, target.size) == (SOURCE.size, TARGET.size)


def draft(folder: Path, age: float = 3600.0) -> Path:
    """What a process leaves beside a run folder that is killed before training begins."""
    left = draft_of(folder / "run")
    (left / "log.jsonl").touch()
    os.utime(left / "log.jsonl", (time.time() - age,) * 2)
    return left


def test_what_was_killed_before_it_began_is_swept_by_the_next(tmp_path: Path) -> None:
    for _ in range(2):
        draft(tmp_path)
    write(tmp_path / "run")
    assert tree(tmp_path) == {"run"}
    draft(tmp_path)
    os.utime(draft_of(tmp_path / "run"), (0, 0))
    with RunWriter.again(tmp_path / "run"):
        assert tree(tmp_path) == {"run"}


def test_drafts_in_use_and_what_may_be_somebody_elses_are_left(tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.mkdir()
    (victim / "log.jsonl").write_text("mine")
    os.utime(victim / "log.jsonl", (0, 0))
    (tmp_path / ".run.abcdefgh.part").symlink_to(victim)
    draft_of(tmp_path / "run")
    draft(tmp_path, age=1.0)
    (tmp_path / ".run.more.abcdefgh.part").mkdir()
    (tmp_path / ".run.withfile.part").mkdir()
    (tmp_path / ".run.withfile.part" / "file").write_text("mine")
    os.utime(tmp_path / ".run.withfile.part", (0, 0))
    tree_after = tree(tmp_path)
    with RunWriter(tmp_path / "run") as living:
        (own,) = tree(tmp_path) - tree_after
        old = tmp_path / own / "log.jsonl"
        os.utime(old, (0, 0))
        before = tree(tmp_path)
        with RunWriter(tmp_path / "run"):
            assert before < tree(tmp_path)
        assert tree(tmp_path) == before
        living.log({"update": 1})
        assert old.read_text() == '{"update": 1}\n'
    assert (victim / "log.jsonl").read_text() == "mine"


def test_weights_know_the_tokenizers_that_they_were_written_with(finished: Path) -> None:
    assert is_bound(finished)
    # of the same size, and as good as any by itself
    CharTokenizer("acb").save(finished / "source.tokenizer.json")
    with pytest.raises(RunError, match=r"source\.tokenizer\.json does not have the SHA-256"):
        read(finished)
    SOURCE.save(finished / "source.tokenizer.json")
    read(finished)
    # as earlier versions wrote them
    write_tensors(tensors_of(make_model()), finished / "model.safetensors")
    write_config(without_digest(read_config(finished)), finished)
    assert not is_bound(finished)
    CharTokenizer("acb").save(finished / "source.tokenizer.json")
    read(finished)
