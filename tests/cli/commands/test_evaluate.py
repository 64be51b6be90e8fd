from __future__ import annotations

import io
import json
from pathlib import Path

import pytest
from fuzzing.mutators import toml

from attent.search.settings import SearchSettings
from attent.tasks.evaluation import result_lines
from attent.tasks.recipe import follow
from attent.tasks.settings import RunSettings, parse
from attent.tasks.translation.evaluation import chrf
from attent.tasks.translation.translator import load
from attent.training.progress import Progress


def test_the_results_are_those_of_the_run_itself(attent, run_folder: Path) -> None:
    results = json.loads("\n".join(attent("evaluate", run_folder, "--json").out))
    assert list(results) == ["held-out dates", "held-out combinations"]
    assert results == json.loads((run_folder / "config.json").read_text(encoding="utf-8"))["results"]

    lines = attent("evaluate", run_folder).out
    assert [line.split("  ")[0] for line in lines] == list(results) and all("(8 pairs)" in line for line in lines)


def test_numbers_stand_below_each_other() -> None:
    row = {"pairs": 1000, "exact_match": 99.96, "year_alignment": 7.0, "AER": 0.0495}
    assert result_lines({"a": row, "longer": row}) == [
        "a       exact match 100.0 %  year alignment   7.0 %  AER 0.050  (1,000 pairs)",
        "longer  exact match 100.0 %  year alignment   7.0 %  AER 0.050  (1,000 pairs)",
    ]
    scores = {"pairs": 10, "translated": 10, "loss": 2.0, "chrF2": 41.0, "BLEU": 22.8}
    assert result_lines({"validation": scores}) == [
        "validation  BLEU  22.8  chrF2  41.0  loss 2.000 nats per token  (10 pairs)"
    ]


def test_a_run_without_a_corpus_that_can_be_made_again(refused, run_folder: Path, tmp_path: Path) -> None:
    for file in filter(Path.is_file, run_folder.iterdir()):
        (tmp_path / file.name).write_bytes(file.read_bytes())
    config = json.loads((tmp_path / "config.json").read_text(encoding="utf-8")) | {"corpus": {}}
    (tmp_path / "config.json").write_text(json.dumps(config), encoding="utf-8")
    assert "corpus that can be generated again" in refused("evaluate", tmp_path)


SOURCES = ["fr | mardi 3 mars 2026", "en | 3/3/26", "en | 1/1/2001"]


@pytest.fixture
def files(run_folder: Path, tmp_path: Path) -> tuple[Path, Path]:
    """Lines to translate, and what a beam search makes of them, one of them changed."""
    references = load(run_folder).translate(SOURCES, SearchSettings(beam=2))
    references[1] = "2026-03-03 x"
    source, target = tmp_path / "source.txt", tmp_path / "target.txt"
    source.write_text("\n".join(SOURCES), encoding="utf-8")
    target.write_text("\n".join(references), encoding="utf-8")
    return source, target


def test_a_file_is_judged_by_its_references(attent, run_folder: Path, files: tuple[Path, Path]) -> None:
    source, target = files
    options = ("--source", source, "--target", target, "--beam", 2, "--tokenize", "none")
    measured = json.loads("\n".join(attent("evaluate", run_folder, *options, "--json").out))
    assert measured["pairs"] == 3
    assert measured["exact_match"] == pytest.approx(200 / 3)
    assert "tok:none" in measured["bleu_signature"]
    assert 0 <= measured["bleu"] <= 100 and 0 < measured["chrf"] < 100
    scores = load(run_folder).score(list(zip(SOURCES, target.read_text(encoding="utf-8").split("\n"), strict=True)))
    assert measured["loss"] == pytest.approx(
        -sum(score.log_probability for score in scores) / sum(score.tokens for score in scores)
    )
    done = attent("evaluate", run_folder, *options)
    assert [line.split("  ")[0] for line in done.out] == ["BLEU", "chrF2", "exact match", "loss"]
    assert done.err == [f"translating 3 lines of {source}"]
    small = json.loads("\n".join(attent("evaluate", run_folder, *options, "--json", "--lowercase").out))
    assert "case:lc" in small["bleu_signature"] and "case:lc" in small["chrf_signature"]
    # lines that are no dates are counted
    source.write_text("\n".join([SOURCES[0], "banana", "apple"]), encoding="utf-8")
    done = attent("evaluate", run_folder, "--source", source, "--target", target)
    assert (done.code, done.out[-1].split(", ")[1:]) == (0, ["3 pairs", "2 of them not translated"])


@pytest.fixture
def own_pairs(tmp_path: Path) -> tuple[Path, RunSettings]:
    """Pairs of one's own, and settings of a run on them."""
    file = tmp_path / "pairs.tsv"
    file.write_text(
        "".join(f"{'ab' * (row % 7 + 1)} {row}\t{'c' * (row % 5 + 1)}\n" for row in range(60)) + "a" * 99 + "\tb\n"
    )
    tables = toml(
        {
            "text": {"train": str(file), "tokenizer": "char", "maximum_length": 30},
            "model": {"encoder_layers": 1, "decoder_layers": 1, "width": 8, "feed_forward": 8, "heads": 2},
            "training": {"updates": 3, "batch_pairs": 8, "precision": "float32", "threads": 1},
        }
    )
    return file, parse(tables, "own.toml")


def test_a_run_on_own_pairs_is_judged_on_its_validation(attent, own_pairs, tmp_path: Path) -> None:
    file, settings = own_pairs
    results = follow(settings, tmp_path / "run", progress=Progress(io.StringIO()))
    done = attent("evaluate", tmp_path / "run", "--json")
    assert done.code == 0
    judged = json.loads("\n".join(done.out))["validation"]
    assert judged == pytest.approx(results["validation"])
    assert judged["pairs"] == 3
    assert any("1 dropped: longer than the maximum length (line 61)" in line for line in done.err)
    assert attent("evaluate", tmp_path / "run").out[0].startswith("validation  BLEU ")
    whole = file.read_text()
    file.write_text("ab\tcc\n" * 2 + whole)
    done = attent("evaluate", tmp_path / "run")
    assert done[:2] == (2, [])
    says = "has changed, so the run may have trained on this test data; --source FILE --target FILE evaluates it"
    assert says in done.err[0]
    file.unlink()
    done = attent("evaluate", tmp_path / "run")
    assert done[:2] == (2, [])
    assert done.err[0].endswith(f"it was in {file}; --source FILE --target FILE evaluates it on other pairs")


def test_the_validation_of_own_pairs_is_translated_with_a_beam(attent, own_pairs, tmp_path: Path) -> None:
    _, settings = own_pairs
    sources = [f"{'ab' * length} {length}" for length in range(1, 9)]
    (tmp_path / "valid.tsv").write_text("".join(f"{source}\tccc\n" for source in sources))
    text = settings.text.model_copy(update={"valid": str(tmp_path / "valid.tsv")})
    training = settings.training.model_copy(update={"updates": 60, "learning_rate": 0.01})
    settings = settings.model_copy(update={"text": text, "training": training})
    follow(settings, tmp_path / "run", progress=Progress(io.StringIO()))
    run = load(tmp_path / "run")
    values = {}
    for beam, penalty, form in ((1, 0.0, "wu"), (4, 0.0, "wu"), (4, 3.0, "length")):
        options = ("--beam", beam, "--length-penalty", penalty, "--length-form", form)
        done = attent("evaluate", tmp_path / "run", *options, "--json")
        values[beam, form] = json.loads("\n".join(done.out))["validation"]["chrF2"]
        translations = run.translate(sources, SearchSettings(beam=beam, length_penalty=penalty, length_form=form))
        assert values[beam, form] == pytest.approx(chrf(translations, ["ccc"] * len(sources)).score)
    assert len(set(values.values())) == 3


def test_an_ensemble_is_judged_as_one(attent, refused, own_pairs, run_folder: Path, tmp_path: Path) -> None:
    _, settings = own_pairs
    runs = [tmp_path / "first", tmp_path / "second"]
    for seed, run in enumerate(runs):
        training = settings.training.model_copy(update={"seed": seed, "updates": 20, "learning_rate": 0.01})
        follow(settings.model_copy(update={"training": training}), run, progress=Progress(io.StringIO()))

    def judged(*runs: Path) -> dict[str, float]:
        return json.loads("\n".join(attent("evaluate", *runs, "--json").out))["validation"]

    single, both = [judged(run) for run in runs], judged(*runs)
    # the mean of two distributions is at least as good as the mean of their log-probabilities
    assert both["loss"] <= sum(scores["loss"] for scores in single) / 2 + 1e-6
    assert both["loss"] not in [scores["loss"] for scores in single] and both["pairs"] == 3
    assert judged(runs[0], runs[0])["loss"] == pytest.approx(single[0]["loss"], abs=1e-5)
    assert attent("evaluate", run_folder, run_folder).out == attent("evaluate", run_folder).out
    assert "have different vocabularies, and cannot be an ensemble" in refused("evaluate", runs[0], run_folder)
