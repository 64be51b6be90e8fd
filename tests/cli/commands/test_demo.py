from __future__ import annotations

import json
import re
import tomllib
from pathlib import Path

import pytest

import attent as attent_package
from attent.tasks import settings
from attent.tasks.overrides import override
from attent.tasks.phrases import corpus
from attent.tasks.translation.translator import load
from attent.text.tokenizer import unknown_pieces

MATCHES = re.compile(r"exact match \d+\.\d % held-out dates, \d+\.\d % held-out combinations")


@pytest.fixture(autouse=True)
def small(settings_file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The demos, with settings that take less than a second, and few dates.

    A model that has learnt nothing answers at length.
    """
    monkeypatch.setattr("attent.tasks.dates.generated.DATES", ("fr | 3 mars 2026",))
    parts = {"dates": settings.read(settings_file), "words": settings.demo("words")}
    small_words = override(parts["words"], ["model.width=8", "model.feed_forward=8"], updates=2)
    monkeypatch.setattr(settings, "demo", lambda name: small_words if name == "words" else parts["dates"])


def examples_of(page: Path) -> list[str]:
    return json.loads(re.findall(r'"examples":(\[.*?\])', page.read_text(encoding="utf-8"))[0])


def test_the_demo_ends_in_what_it_has_reached(attent, tmp_path: Path) -> None:
    out = tmp_path / "demo"
    done = attent("demo", "--dates", "--out", out, "--date", "en | 5/6/1999", "--seed", 2)
    assert done.code == 0
    assert any(map(MATCHES.fullmatch, done.out))
    assert any(line.startswith("en | 5/6/1999") and "→" in line for line in done.out)
    assert any("cross_attention" in line for line in done.out)
    assert f'  attent translate {out} "it | 3 marzo 2026"' in done.out
    assert done.out[-1].startswith(f"Open {(out / 'attention.html').as_uri()} in a browser")
    assert "fr | 3 mars 2026" in (out / "attention.html").read_text(encoding="utf-8")


def test_the_demo_of_words(attent, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    few = corpus.phrases(40, 60)
    monkeypatch.setattr(corpus, "phrases", lambda: few)
    monkeypatch.chdir(tmp_path)
    done = attent("demo")
    assert done.code == 0
    matches = re.compile(r"exact match \d+\.\d % of sentences whose subject is new to its verb")
    assert any(map(matches.fullmatch, done.out))
    folder = Path("runs") / "words-demo"
    assert done.out[0].startswith("the black dog sings     →  ")
    examples = examples_of(folder / "attention.html")
    test = [sentence.english for sentence in few["test"]]
    assert len(set(examples)) == 8 and set(examples) <= set(test)
    assert examples[:2] == ["the black dog sings", "the cat sat on the mat"]
    assert f'  attent translate {folder} "the black dog sings"' in done.out
    # its sentences remain, for attent evaluate
    assert len((tmp_path / "runs" / "words-demo-data" / "train.tsv").read_text(encoding="utf-8").splitlines()) == 40
    assert attent("evaluate", folder).code == 0
    done = attent("demo", "--date", "3 mars")
    assert done.code == 2 and "--date needs --dates" in done.err[-1]


def test_the_demo_of_words_trains_as_the_recipe_does() -> None:
    shipped, recipe = (
        tomllib.loads(path.read_text(encoding="utf-8"))
        for path in (
            Path(attent_package.__file__).parent / "configs" / "words-demo.toml",
            Path(__file__).parents[3] / "configs" / "phrases.toml",
        )
    )
    assert shipped == recipe


@pytest.mark.parametrize(
    ("called", "is_on_path", "program"),
    [
        (".venv/bin/attent", False, ".venv/bin/attent"),
        ("/usr/bin/attent", True, "attent"),
        ("attent/__main__.py", False, "attent"),
    ],
)
def test_the_next_commands_can_be_typed(
    attent, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, called: str, is_on_path: bool, program: str
) -> None:
    few = corpus.phrases(40, 4)
    monkeypatch.setattr(corpus, "phrases", lambda: few)
    monkeypatch.setattr("sys.argv", [called])
    monkeypatch.setattr("shutil.which", lambda name: name if is_on_path else None)
    done = attent("demo", "--out", tmp_path / "demo")
    after = done.out[done.out.index("Next:") + 1 :]
    commands = [line.split()[:2] for line in after[: after.index("")]]
    assert commands == [[program, command] for command in ("translate", "show", "describe", "walk")]


@pytest.mark.slow
def test_the_demo_of_words_translates_subjects_that_it_has_not_seen_with_a_verb(
    attent, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.undo()
    done = attent("demo", "--out", tmp_path / "demo")
    assert any(re.fullmatch("the black dog sings +→  le chien noir chante", line) for line in done.out)
    (share,) = (line.split()[2] for line in done.out if line.startswith("exact match"))
    assert float(share) > 90
    examples, tokenizer = examples_of(tmp_path / "demo" / "attention.html"), load(tmp_path / "demo").source_tokenizer
    assert len(examples) == 8
    assert [unknown_pieces(text, tokenizer) for text in examples] == [[]] * 8


def test_its_own_folder_is_made_anew(attent, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for _ in range(2):
        done = attent("demo", "--dates")
        assert done.code == 0
        assert any(map(MATCHES.fullmatch, done.out))
    assert (tmp_path / "runs" / "dates-demo" / "config.json").is_file()
    done = attent("demo", "--dates", "--out", Path("runs") / "dates-demo")
    assert done.code == 2 and "already exists" in done.err[-1]
