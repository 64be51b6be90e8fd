"""The documentation is true: names are current, links lead somewhere, examples run."""

from __future__ import annotations

import itertools
import re
import runpy
from pathlib import Path
from typing import Any

import pytest
import torch

import attent

ROOT = Path(__file__).parents[1]
PAGES = [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").rglob("*.md"))]


# A figure of speed or quality: "12.8 ms", "1.4×", "41.28 BLEU".
FIGURE = re.compile(
    r"\d[\d.,]*\s?(?:×(?! ?\d)|times (?:as|faster|slower)|"
    r"(?:ms|tokens/s|(?:requests|tokens|lines) (?:per|a) second|BLEU|% (?:faster|slower|exact))\b)"
)


def blocks(page: str) -> list[str]:
    """The Python examples of a page that are no transcript."""
    matches = re.findall(r"```python\n(.*?)```", (ROOT / page).read_text(encoding="utf-8"), flags=re.DOTALL)
    return [block for block in matches if ">>>" not in block]


def test_the_page_of_names_is_what_its_script_writes() -> None:
    script: dict[str, Any] = runpy.run_path(str(ROOT / "scripts" / "names"))
    assert (ROOT / "docs" / "names.md").read_text(encoding="utf-8") == script["page"](), (
        "run .venv/bin/python scripts/names"
    )


def anchors(page: Path) -> set[str]:
    """Return the anchors of a page's headings, as GitHub and MkDocs name them."""
    headings = re.findall(r"^#+ (.+)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    plain = [re.sub(r"\[([^\]]+)\]\([^)]*\)|[`*]", r"\1", heading).lower() for heading in headings]
    return {re.sub(r"[^\w\- ]", "", heading).strip().replace(" ", "-") for heading in plain}


def test_anchors_of_links_from_the_root_exist() -> None:
    for page in ROOT.glob("*.md"):
        for link, anchor in re.findall(r"\]\(([^)#:]+)#([^)]*)\)", page.read_text(encoding="utf-8")):
            assert anchor in anchors(page.parent / link), f"{page.name} links to {link}#{anchor}"


def test_headings_and_tables_follow_a_blank_line_and_links_lead_somewhere() -> None:
    """Elsewhere a table is shown as text; and a heading beside another one is left of two versions of a page."""
    wrong: list[str] = []
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        links = re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", text)
        wrong += [f"{page.name} links to {link}" for link in links if not (page.parent / link).exists()]
        lines = re.sub(r"^```.*?^```", "", text, flags=re.DOTALL | re.MULTILINE).splitlines()
        for before, line in itertools.pairwise(lines):
            begins = line.startswith("#") or (line.startswith("|") and not before.startswith("|"))
            if begins and before.strip() and not before.startswith("<!--"):
                wrong.append(f"{page.name}: {line}")
    assert not wrong, "\n".join(wrong)


def test_the_readme_is_a_door() -> None:
    """Short, with Python and one picture where a stranger sees them; all else is a page of docs/."""
    lines = (ROOT / "README.md").read_text(encoding="utf-8").splitlines()
    assert len(lines) <= 150
    assert sum(len(line.split()) for line in lines) <= 900
    assert next(number for number, line in enumerate(lines, 1) if line.startswith("```python")) <= 40
    assert sum(line.count("![") + line.count("<img ") for line in lines) == 1


def test_figures_of_the_readme_are_those_of_the_picture_and_of_the_table_of_models() -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    drawn = dict(re.findall(r"(\w+): (\w+ [\d.]+)", (ROOT / "docs/figures/black-dog.svg").read_text(encoding="utf-8")))
    word, weight, key = re.findall(r"while writing \*(\w+)\*, .+ a weight of ([\d.]+\d) on \*(\w+)\*", readme)[0]
    assert drawn[word] == f"{key} {weight}"
    rows = re.findall(
        r"^\| `\w+` \| (.+) \| \w+", (ROOT / "docs/hugging-face.md").read_text(encoding="utf-8"), re.MULTILINE
    )
    equal = [row for row in rows if not row.startswith("refused")]
    counts = f"[{len(equal)} of the {len(rows)}"
    assert counts in readme and counts in (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")


def test_figures_of_speed_and_quality_have_a_row_with_a_commit() -> None:
    """On the page itself, in benchmarks/, or on a page that the paragraph links to."""
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        has_rows = re.search(r"\bcommit [0-9a-f]{7}", text) or "benchmarks/" in text
        # bars of the design are no results
        if has_rows or page.name == "design-pages.md":
            continue
        for paragraph in re.sub(r"^```.*?^```", "", text, flags=re.DOTALL | re.MULTILINE).split("\n\n"):
            if FIGURE.search(paragraph):
                links = [page.parent / link for link in re.findall(r"\]\(([^)#:]+\.md)", paragraph)]
                assert any("commit" in link.read_text(encoding="utf-8") for link in links), f"{page.name}: {paragraph}"


def test_changelog_is_short() -> None:
    assert len((ROOT / "CHANGELOG.md").read_text(encoding="utf-8").splitlines()) <= 60


def test_only_comments_say_how_to_install_what_is_not_on_the_index() -> None:
    texts = {page.name: re.sub(r"<!--.*?-->", "", page.read_text(encoding="utf-8"), flags=re.DOTALL) for page in PAGES}
    assert not [name for name, text in texts.items() if re.search(r"pip install '?attent", text)]
    assert "<!-- On the day that the package is on the package index" in (ROOT / "README.md").read_text(
        encoding="utf-8"
    )


def test_the_examples_of_the_formula_run(capsys: pytest.CaptureFixture[str]) -> None:
    examples = {
        fragment: next(block for block in blocks("docs/formula.md") if fragment in block)
        for fragment in ("attent.explain", "reference.steps", "attend(s, s, s")
    }
    namespace: dict[str, Any] = {}
    exec(examples["attent.explain"], namespace)
    assert namespace["context"].shape == (2, 8, 100, 64)
    assert namespace["weights"][0, 3, 5].sum().item() == pytest.approx(1.0, abs=1e-5)
    capsys.readouterr()
    exec(examples["reference.steps"], {})
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == ["products", "scores", "masked", "weights", "output"]
    s = torch.randn(5, 3)
    soft, plain = (eval(line, {"attent": attent, "s": s}) for line in examples["attend(s, s, s"].strip().splitlines())
    torch.testing.assert_close(soft, torch.softmax(s @ s.T, -1) @ s)
    torch.testing.assert_close(plain, s @ s.T @ s)


def test_the_example_of_word_vectors_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (example,) = blocks("docs/word-vectors.md")
    monkeypatch.chdir(tmp_path)
    namespace: dict[str, Any] = {}
    exec(example, namespace)
    assert [word for word, _ in namespace["found"].nearest("dog", 2)] == ["hound", "cat"]
    assert capsys.readouterr().out == "few.vec: 4 lines read, 3 vectors of 2 numbers kept\n"


def added(page: str, class_name: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return the score of a page, found by the name of a file in a folder of scores."""
    import attent.attention.scores as scores
    from attent import registry

    name = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", class_name).lower()
    source = next(block for block in blocks(page) if f"class {class_name}" in block)
    (folder / f"{name}.py").write_text(source, encoding="utf-8")
    monkeypatch.setattr(scores, "__path__", [*scores.__path__, str(folder)])
    monkeypatch.setattr(scores, class_name, None, raising=False)
    score = registry.parts(scores)[name]()
    assert getattr(scores, class_name) is type(score)
    return score


def test_first_contribution_is_found_by_its_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    score = added("docs/first-contribution.md", "Euclidean", tmp_path, monkeypatch)
    query, key, value = torch.randn(3, 5, 2), torch.randn(3, 7, 2), torch.randn(3, 7, 11)
    context = attent.attend(query, key, value, score=score)
    torch.testing.assert_close(context, torch.softmax(-torch.cdist(query, key), -1) @ value)


def test_a_score_added_as_the_page_says_is_found_by_its_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    score = added("docs/adding-a-part.md", "ScaledCosine", tmp_path, monkeypatch)
    query, key, value = torch.randn(3, 5, 2), torch.randn(3, 7, 2), torch.randn(3, 7, 11)
    spec = attent.attend(query, key, value, score=score, implementation="reference")
    for implementation in ("tiled", "sdpa"):
        torch.testing.assert_close(attent.attend(query, key, value, score=score, implementation=implementation), spec)
    expected = torch.softmax(query @ (key / key.norm(dim=-1, keepdim=True)).transpose(1, 2), -1) @ value
    torch.testing.assert_close(spec, expected)
