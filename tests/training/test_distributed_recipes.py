"""Recipes that processes follow together, and the command under torchrun."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from attent.errors import RunError
from attent.runs.config import read_config
from attent.runs.weights import read_tensors
from attent.tasks.overrides import override
from attent.tasks.recipe import follow, resume
from attent.tasks.settings import parse, read
from attent.training.checkpoint import latest_checkpoint, read_state
from attent.training.progress import Progress, SilentProgress


def followed(folder: Path, file: Path) -> tuple[Any, str]:
    stream = io.StringIO()
    # the others need no run folder
    folder = folder if os.environ["RANK"] == "0" else folder / "nowhere"
    return follow(override(read(file), updates=6, save_every=2), folder, progress=Progress(stream)), stream.getvalue()


def gone_on(folder: Path, trust_code: bool = False) -> Any:
    folder = folder if os.environ["RANK"] == "0" else folder / "nowhere"
    return resume(folder, {"updates": 9}, trust_code=trust_code, progress=SilentProgress())


def of_standard_input(folder: Path) -> None:
    follow(parse('[text]\ntrain = "-"\n[training]\nupdates = 1\nbatch_pairs = 2\n', "small.toml"), folder)


@pytest.mark.slow
def test_a_recipe_is_followed_together(run_processes, settings_file: Path, tmp_path: Path) -> None:
    (first, message), (second, empty) = run_processes(2, followed, tmp_path / "run", settings_file)
    assert set(first) == {"held-out dates", "held-out combinations"}
    assert first == second
    assert message
    assert empty == ""
    assert read_config(tmp_path / "run").state == "finished"
    assert read_state(latest_checkpoint(tmp_path / "run")).update == 6
    first, second = run_processes(2, gone_on, tmp_path / "run")
    assert first == second == read_config(tmp_path / "run").results
    assert read_state(latest_checkpoint(tmp_path / "run")).update == 9
    first, second = run_processes(2, followed, tmp_path / "run", settings_file)
    assert (str(first), type(second)) == (f"{tmp_path / 'run'} already exists", RunError)
    first, _ = run_processes(2, of_standard_input, tmp_path / "other")
    assert str(first) == "standard input cannot be read by several processes: put the pairs into a file"
    assert not (tmp_path / "other").exists()


@pytest.mark.slow
def test_own_parts_are_built_by_every_process_where_the_first_may(
    run_processes, settings_file: Path, tmp_path: Path
) -> None:
    own = '[model]\nscore = "attent.attention.scores.dot:Dot"'
    text = settings_file.read_text(encoding="utf-8").replace("[model]", own)
    (tmp_path / "own.toml").write_text(text, encoding="utf-8")
    (first, _), (second, _) = run_processes(2, followed, tmp_path / "run", tmp_path / "own.toml")
    assert first == second == read_config(tmp_path / "run").results
    refused, _ = run_processes(2, gone_on, tmp_path / "run")
    assert "attent.attention.scores.dot:Dot' would import" in str(refused)
    assert run_processes(2, gone_on, tmp_path / "run", True) == [read_config(tmp_path / "run").results] * 2


@pytest.mark.slow
def test_frozen_embeddings_stay_as_they_start_in_every_process(
    run_processes, settings_file: Path, tmp_path: Path
) -> None:
    vectors, recipe = tmp_path / "letters.txt", tmp_path / "recipe.toml"
    for index, letter in enumerate("abcdefgh0123"):
        with vectors.open("a") as file:
            file.write(f"{letter} {' '.join(str((index + n) % 7) for n in range(8))}\n")
    text = settings_file.read_text(encoding="utf-8") + "averaging = 'ema'\n"
    recipe.write_text(f"{text}[vectors]\nsource = {json.dumps(str(vectors))}\nfrozen = true\n", encoding="utf-8")
    follow(override(read(recipe), updates=1), tmp_path / "alone", progress=SilentProgress())
    run_processes(2, followed, tmp_path / "run", recipe)
    run_processes(2, gone_on, tmp_path / "run")
    single, run = (read_tensors(tmp_path / name / "model.safetensors") for name in ("alone", "run"))
    (frozen,) = (name for name in run if "source_embedding" in name)
    assert run[frozen].equal(single[frozen])
    assert not any(weight.equal(single[name]) for name, weight in run.items() if "target_embedding" in name)
    assert read_config(tmp_path / "run").coverage == read_config(tmp_path / "alone").coverage


@pytest.mark.slow
def test_the_command_trains_on_what_torchrun_starts(settings_file: Path, tmp_path: Path) -> None:
    train, source = ["-m", "attent", "train", "--device", "cpu"], str(Path(__file__).parents[2] / "src")
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]

    def call(*words: str) -> subprocess.CompletedProcess[str]:
        environment = os.environ | {"PYTHONPATH": source, "OMP_NUM_THREADS": "1"}
        return subprocess.run(
            words, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False, timeout=300
        )

    done = call(*torchrun, *train, "--config", str(settings_file), "--out", "run")
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[0] == "run: run"
    assert len(done.stdout.splitlines()) == 3
    assert done.stderr.count("training into run") == 1
    assert read_state(latest_checkpoint(tmp_path / "run")).processes == 2
    repeated = call(sys.executable, *train, "--resume", "run", "--updates", "8")
    assert (repeated.returncode, repeated.stdout.splitlines()[0]) == (0, "run: run")
    assert "1 process instead of 2" in repeated.stderr
    together = call(*torchrun, *train, "--resume", "run", "--updates", "9")
    assert (together.returncode, together.stdout.splitlines()[0]) == (0, "run: run"), together.stderr
    assert "2 processes instead of 1 process" in together.stderr
    process_result = call(*torchrun, *train, "--config", str(settings_file), "--out", "run")
    assert process_result.returncode != 0
    assert "attent: run already exists" in process_result.stderr
