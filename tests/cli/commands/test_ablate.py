from __future__ import annotations

import json
from pathlib import Path

import pytest

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
    assert done.err[:2] == ["12 heads on 3 examples", "1 of 12: encoder.layers.0.self_attention, head 0"]
    assert done.out[0].startswith("loss ")
    assert done.out[0].endswith(" nats per token on 3 examples; cost of setting a head to zero:")
    modules = [line.split()[0] for line in done.out[2:8]]
    assert modules[1:3] == ["encoder.layers.1.self_attention", "decoder.layers.0.self_attention"]
    as_json = json.loads("\n".join(attent("ablate", run_folder, source, "--target", target, "--json").out))
    costs = [head["cost"] for head in as_json["heads"]]
    assert len(costs) == 12 and costs == sorted(costs, reverse=True)
    assert as_json["heads"][0].keys() == {"module", "head", "score", "cost", "low", "high", "entropy", "distance"}


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
