from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from attent.alignment.ablation import Ablation

SOURCES = ["fr | mardi 3 mars 2026", "en | 3/3/26", "en | March 5, 2020"]
TARGETS = ["2026-03-03", "2026-03-03", "2020-03-05"]


@pytest.fixture
def files(tmp_path: Path) -> list[Path]:
    paths = [tmp_path / "source.txt", tmp_path / "target.txt"]
    for path, lines in zip(paths, (SOURCES, TARGETS), strict=True):
        path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return paths


def test_heads_are_ranked_by_their_cost(attent, run_folder: Path, files: list[Path]) -> None:
    source, target = files
    done = attent("ablate", run_folder, source, "--target", target)
    assert done.code == 0
    assert done.out[0].startswith("loss ")
    assert done.out[0].endswith(" nats per token on 3 examples; cost of setting a head to zero:")
    modules = [line.split()[0] for line in done.out[2:8]]
    assert modules[1:3] == ["encoder.layers.1.self_attention", "decoder.layers.0.self_attention"]
    as_json = json.loads("\n".join(attent("ablate", run_folder, source, "--target", target, "--json").out))
    costs = [head["cost"] for head in as_json["heads"]]
    assert len(costs) == 12 and costs == sorted(costs, reverse=True)
    assert as_json["heads"][0].keys() == {"module", "head", "score", "cost", "low", "high", "entropy", "distance"}


@pytest.mark.needs_native
def test_the_heads_of_one_type_of_weights_are_not_those_of_another(
    attent, run_folder: Path, files: list[Path], tmp_path: Path
) -> None:
    run, (source, target), out = tmp_path / "run", files, tmp_path / "heads.jsonl"
    shutil.copytree(run_folder, run)
    command = ("ablate", run, source, "--target", target, "--out", out)
    assert attent(*command).code == 0
    assert "dtype" not in json.loads(out.read_text(encoding="utf-8").split("\n")[0])
    assert attent("quantize", run).code == 0
    done = attent(*command)
    assert done.code == 2 and f"{out} belongs to another run, other examples or other settings" in done.err[-1]
    out.unlink()
    assert attent(*command).code == 0
    assert json.loads(out.read_text(encoding="utf-8").split("\n")[0])["dtype"] == "int8"


def test_a_command_that_was_killed_goes_on(
    attent, run_folder: Path, files: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, target = files
    out, judged = tmp_path / "heads.jsonl", list[tuple[str, int]]()
    cost = Ablation.cost

    def counted(ablation: Ablation, module: str, head: int, *rest: object) -> object:
        judged.append((module, head))
        if len(judged) == 6:
            raise KeyboardInterrupt
        return cost(ablation, module, head, *rest)  # pyright: ignore[reportArgumentType]

    monkeypatch.setattr(Ablation, "cost", counted)
    command = ("ablate", run_folder, source, "--target", target, "--out", out)
    assert attent(*command).code == 130
    assert not out.exists()
    draft = tmp_path / "heads.jsonl.part"
    with draft.open("a", encoding="utf-8") as file:
        file.write('{"module": "a line that a kill cut sh')
    assert "heads.jsonl.part is from another run or from other options" in attent(*command, "--change", "mean").err[-1]
    whole = attent(*command)
    assert whole.code == 0
    assert len(judged) == 6 + 12 - 5
    assert "12 heads, 5 of them evaluated before, on 3 examples" in whole.err
    assert len(out.read_text(encoding="utf-8").splitlines()) == 13
    assert attent(*command).out == whole.out
    assert len(judged) == 13
    # of other lines, or another change
    refusal = f"attent: {out} belongs to another run, other examples or other settings: name another file"
    assert attent(*command, "--change", "uniform").err == [refusal]
    source.write_text("\n".join([*SOURCES[:2], "en | 4/4/24"]) + "\n", encoding="utf-8")
    assert attent(*command).err == [refusal]
    source.write_text("\n".join(SOURCES) + "\n", encoding="utf-8")
    out.write_text(out.read_text(encoding="utf-8") + '{"module": 3}\n', encoding="utf-8")
    done = attent(*command)
    assert done.err[0].startswith(f"attent: {out}, line 14 is damaged: ")


@pytest.mark.slow
def test_translations_are_judged_by_bleu_and_texts_by_perplexity(
    attent, run_folder: Path, generating_folder: Path, files: list[Path]
) -> None:
    source, target = files
    options = ("--target", target, "--metric", "bleu", "--limit", 1, "--change", "mean")
    done = attent("ablate", run_folder, source, *options)
    assert done.out[0].startswith("BLEU ")
    assert done.out[0].endswith(" on 1 examples; cost of setting a head to mean:")
    done = attent("ablate", generating_folder, generating_folder.parent / "train.txt")
    assert done.out[0].startswith("perplexity ")
    assert done.out[2].startswith("decoder.layers.0.self_attention ")


def test_blanks_are_judged_as_evaluate_does(attent, filling_folder: Path, tmp_path: Path) -> None:
    text, repeated = filling_folder.parent / "train.txt", tmp_path / "text.txt"
    repeated.write_text(text.read_text(encoding="utf-8") + "zyzzyva\n", encoding="utf-8")
    values = json.loads("\n".join(attent("evaluate", filling_folder, "--text", text, "--json").out))
    for metric in ("accuracy", "perplexity"):
        done = attent("ablate", filling_folder, repeated, "--metric", metric, "--json")
        judged = json.loads("\n".join(done.out))
        assert judged["score"] == pytest.approx(values[metric])
        assert (judged["metric"], judged["examples"]) == (metric, 8)
        assert (
            f"1 lines of {repeated} have no word that this model knows, or more than it can read: left out" in done.err
        )
    assert attent("ablate", filling_folder, text).out[0].startswith("accuracy ")
