"""A copy of a run folder is of files that did not change meanwhile.

It stays as it is when the folder changes.
"""

import os
import shutil
from pathlib import Path

import pytest
import torch

from attent.errors import RunError
from attent.models.settings import TransformerSettings
from attent.models.transformer import Transformer
from attent.ops.mapped import is_mapped
from attent.runs import snapshot as module
from attent.runs.config import RunConfig, read_config, write_config
from attent.runs.durable import draft_of, sweep_drafts
from attent.runs.folder import RunWriter, read, without_digest, write_weights
from attent.runs.snapshot import Stamp, UnsettledError, is_bound, snapshot, stamp_of
from attent.text.tokenizer import CharTokenizer

SETTINGS = TransformerSettings(
    encoder_layers=1, decoder_layers=1, width=8, feed_forward=5, heads=2, share_embeddings="target"
)


def write(path: Path, seed: int = 1, letters: str = "abc") -> Path:
    torch.manual_seed(seed)
    source, target = CharTokenizer(letters), CharTokenizer("01")
    with RunWriter(path) as run:
        run.finish(RunConfig(model=SETTINGS), Transformer(SETTINGS, source.size, target.size).eval(), source, target)
    return path


def check_refused(run: Path, says: str, error: type[RunError] = RunError, stamp: Stamp | None = None) -> None:
    with pytest.raises(error, match=says), snapshot(run, stamp_of(run) if stamp is None else stamp):
        pytest.fail("it was copied")


def numbers(model: torch.nn.Module) -> dict[str, torch.Tensor]:
    return {name: tensor.clone() for name, tensor in model.state_dict().items()}


@pytest.mark.parametrize("memory", ["disk", "full disk", "no /proc"])
def test_a_model_of_a_copy_outlives_its_folder_and_what_is_written_there(
    tmp_path: Path, memory: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, waiting = write(tmp_path / "run"), tmp_path / "waiting"
    waiting.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(waiting))
    if memory == "full disk":
        monkeypatch.setenv("TMPDIR", str(tmp_path / "missing"))
    if memory == "no /proc":
        monkeypatch.setattr(module, "DESCRIPTORS", tmp_path / "missing")
    before = numbers(read(run).model)
    with snapshot(run, stamp_of(run)) as copy:
        assert copy.name == "run" and waiting in copy.parents and is_bound(copy)
        loaded = read(copy).model
    assert not [*waiting.iterdir()]
    assert all(map(is_mapped, loaded.parameters()))
    # in place, as cp does
    (run / "model.safetensors").write_bytes(b"")
    shutil.rmtree(run)
    after = numbers(loaded)
    assert after.keys() == before.keys() and all(torch.equal(after[name], before[name]) for name in before)


@pytest.mark.usefixtures("windows")
def test_on_windows_copies_are_removed_and_weights_in_use_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, waiting = write(tmp_path / "run"), tmp_path / "waiting"
    waiting.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(waiting))
    with snapshot(run, stamp_of(run)) as copy:
        loaded = read(copy)
    assert not [*waiting.iterdir()]
    # weights that are written into the folder
    own = read(run)
    write_weights(own.config, loaded.model, run)
    assert all(map(torch.equal, own.model.parameters(), read(run).model.parameters()))
    # a training that was killed: its log is open while its draft is removed
    draft = draft_of(tmp_path / "other")
    (draft / "log.jsonl").touch()
    os.utime(draft / "log.jsonl", (0, 0))
    sweep_drafts(tmp_path / "other")
    assert not draft.exists()


def test_a_stamp_changes_with_every_file_that_is_read_and_with_no_other(tmp_path: Path) -> None:
    run = write(tmp_path / "run")
    stamps = [stamp_of(run)]
    (run / "log.jsonl").write_text("{}\n")
    (run / ".model.safetensors.part").write_text("draft")
    (run / "checkpoints").mkdir()
    (run / "checkpoints" / "state.json").write_text("{}")
    assert stamp_of(run) == stamps[0]
    for name in ("config.json", "model.safetensors", "source.tokenizer.json", "target.tokenizer.json"):
        # as rsync -a: of the same size, under a temporary name, with the times of before
        status, new = (run / name).stat(), run / ".new"
        shutil.copyfile(run / name, new)
        os.utime(new, ns=(status.st_atime_ns, status.st_mtime_ns))
        new.replace(run / name)
        stamps.append(stamp_of(run))
    os.utime(run / "config.json")
    stamps += [stamp_of(run), stamp_of(tmp_path / "missing")]
    assert len(set(stamps)) == len(stamps) == 7


def test_what_changes_meanwhile_is_not_copied(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = write(tmp_path / "run")
    stamp = stamp_of(run)
    os.utime(run / "source.tokenizer.json")
    check_refused(run, r"source\.tokenizer\.json changed while it was read", UnsettledError, stamp)
    stamp = stamp_of(run)
    (run / "source.tokenizer.json").unlink()
    check_refused(run, r"source\.tokenizer\.json changed while it was read", UnsettledError, stamp)
    monkeypatch.setattr(module, "_copy", lambda *arguments, **named: (run / "target.tokenizer.json").touch())
    check_refused(run, "run changed while it was read", UnsettledError)


def test_large_weights_are_compared_with_their_digest_while_they_are_copied(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = write(tmp_path / "run")
    monkeypatch.setattr(module, "MAX_HASHED", (run / "model.safetensors").stat().st_size - 1)
    with snapshot(run, stamp_of(run)) as copy:
        read(copy)
    content = bytearray((run / "model.safetensors").read_bytes())
    content[-3] ^= 1
    (run / "model.safetensors").write_bytes(content)
    check_refused(run, rf"{run}/model\.safetensors is damaged: .* SHA-256 .* {run}/config\.json")
    write_config(without_digest(read_config(run)), run)
    with snapshot(run, stamp_of(run)) as copy:
        read(copy)


def test_errors_name_the_run_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    check_refused(tmp_path / "missing", "there is no such folder")
    run = write(tmp_path / "run")
    (run / "source.tokenizer.json").write_text("{")
    with (
        pytest.raises(RunError, match=rf"^{run}/source\.tokenizer\.json cannot be read"),
        snapshot(run, stamp_of(run)) as copy,
    ):
        read(copy)
    (run / "target.tokenizer.json").unlink()
    with pytest.raises(RunError, match=rf"{run}/model\.int8"), snapshot(run, stamp_of(run)) as copy:
        (copy / "model.int8.safetensors").stat()
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "missing"))
    check_refused(run, rf"^{run} cannot be copied for serving: No such file")
