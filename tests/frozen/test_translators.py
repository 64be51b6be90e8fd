"""Translators that were trained before: what they translate, how probable they say it is, and where they look."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
import torch

import attent as package

RUNS = ("dates", "pairs", "bahdanau", "luong", "none")
LOOKING = RUNS[:-1]
DATES = (
    "en | 3 March 2026\t2026-03-03",
    "fr | mardi 7 avril 2015\t2015-04-07",
    "en | 12/25/1999\t1999-12-25",
    "fr | 1 mai 2031\t2031-05-01",
)


def pairs_of(name: str, folder: Path) -> list[tuple[str, str]]:
    """Four sources of the run's corpus with their translations."""
    lines = DATES if name == "dates" else (folder / "inputs.tsv").read_text(encoding="utf-8").splitlines()
    return [(line.split("\t")[0], line.split("\t")[1]) for line in lines]


@pytest.fixture(params=RUNS)
def name(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture
def sources(name: str, frozen_folder: Path, tmp_path: Path) -> Path:
    file = tmp_path / "sources.txt"
    file.write_text("".join(f"{source}\n" for source, _ in pairs_of(name, frozen_folder)), encoding="utf-8")
    return file


@pytest.fixture
def pairs(name: str, frozen_folder: Path, tmp_path: Path) -> Path:
    file = tmp_path / "pairs.tsv"
    file.write_text(
        "".join(f"{source}\t{target}\n" for source, target in pairs_of(name, frozen_folder)), encoding="utf-8"
    )
    return file


@pytest.mark.parametrize(
    ("name", "way"),
    [
        *((name, "as it is") for name in RUNS),
        *((name, "without the extension") for name in ("pairs", "luong")),
        pytest.param("pairs", "two threads", marks=pytest.mark.slow),
    ],
)
def test_what_is_written(attent, golden, internals, monkeypatch, sources: Path, name: str, way: str) -> None:
    run, threads = f"runs/{name}", torch.get_num_threads()
    # an answer that is no date is written, and said by the exit code
    codes = (0, 2) if name == "dates" else (0,)
    if way == "without the extension":
        internals.without_extension(monkeypatch)
    try:
        torch.set_num_threads(2 if way == "two threads" else 1)
        golden.check(f"{name}: greedy", attent("translate", run, sources, codes=codes).out)
        for search, options in (
            ("beam", ["--beam", 5, "--n-best", 3]),
            ("samples", ["--sample", "--seed", 7, "--n-best", 2]),
        ):
            records = [
                json.loads(line)
                for line in attent("translate", run, sources, *options, "--format", "jsonl", codes=codes).out
            ]
            golden.check(f"{name}: {search}", records)
    finally:
        torch.set_num_threads(threads)


def test_other_ways_to_search(attent, golden, sources: Path, name: str) -> None:
    prefix = "20" if name == "dates" else "une"
    for way, options in {
        "prefix": ["--prefix", prefix],
        "bounds": ["--min-length", 3, "--max-length", 6],
        "n-grams": ["--beam", 3, "--no-repeat-ngram", 2, "--length-penalty", 1.2, "--max-factor", 2],
        "top-k": ["--sample", "--top-k", 3, "--temperature", 0.7],
        "top-p": ["--sample", "--top-p", 0.8, "--seed", 3],
        "batch": ["--batch", 1],
    }.items():
        # a date that is cut off, or forced, is no date, which the command says by its exit code
        if name == "dates" and way in ("prefix", "bounds", "n-grams", "top-k", "top-p"):
            continue
        golden.check(f"{name}: {way}", attent("translate", f"runs/{name}", sources, *options).out)


TERMS = {"dates": None, "pairs": "dog\tchat\n", "bahdanau": "dog\tchat\n", "luong": "horse\tvache\n", "none": None}


def test_other_ways_to_write(attent, golden, sources: Path, tmp_path: Path, name: str) -> None:
    run, codes = f"runs/{name}", (0, 2) if name == "dates" else (0,)
    if name in LOOKING:
        for way, options in {
            "alignments": ["--alignments"],
            "alignments, n-best": ["--alignments", "--beam", 3, "--n-best", 2],
            "unknown": ["--replace-unknown"],
        }.items():
            lines = attent("translate", run, sources, "--format", "jsonl", *options, codes=codes).out
            golden.check(f"{name}: jsonl, {way}", [json.loads(line) for line in lines])
    lines = attent("translate", run, sources, "--beam", 3, "--n-best", 2, codes=codes).out
    # what no number stands in, and the numbers, which other processors round otherwise
    parts = [re.split(r"(-?\d+\.\d+)", line) for line in lines]
    golden.check(f"{name}: n-best", [[parted[::2], [float(number) for number in parted[1::2]]] for parted in parts])
    if TERMS[name] is not None:
        (tmp_path / "terms.tsv").write_text(TERMS[name], encoding="utf-8")
        golden.check(f"{name}: glossary", attent("translate", run, sources, "--glossary", tmp_path / "terms.tsv").out)


HTML = (
    "<p>the small <b>dog</b> sees a cat</p>\n"
    "<ul><li>a black hen</li><li><a href='x'>the horse</a> hears</li></ul><pre>a dog</pre>"
)
MARKDOWN = "# the small dog\n\na black **hen** likes the [sad mouse](x)\n\n- the horse\n- a cat\n\n    a dog\n"


@pytest.mark.parametrize(("markup", "ending", "content"), [("html", ".html", HTML), ("markdown", ".md", MARKDOWN)])
def test_documents(attent, golden, frozen_folder: Path, tmp_path: Path, markup: str, ending: str, content: str) -> None:
    (tmp_path / f"document{ending}").write_text(content, encoding="utf-8")
    for name in ("pairs", "bahdanau"):
        out = tmp_path / f"{name}{ending}"
        attent("translate", f"runs/{name}", tmp_path / f"document{ending}", "--out", out)
        golden.check(f"{name}: {markup}", out.read_text(encoding="utf-8").splitlines())


@pytest.mark.parametrize("name", ["dates", "pairs"])
def test_a_file_of_output(attent, golden, frozen_folder: Path, tmp_path: Path, sources: Path, name: str) -> None:
    codes = (0, 2) if name == "dates" else (0,)
    attent("translate", f"runs/{name}", sources, "--out", tmp_path / "out.txt", codes=codes)
    golden.check(f"{name}: greedy", (tmp_path / "out.txt").read_text(encoding="utf-8").splitlines())


def test_how_probable_it_is(attent, golden, pairs: Path, name: str) -> None:
    golden.check(
        f"{name}: score",
        [[float(number) for number in line.split("\t")] for line in attent("score", f"runs/{name}", pairs).out],
    )


def test_which_word_came_from_which(attent, golden, sources: Path, pairs: Path, name: str) -> None:
    if name not in LOOKING:
        pytest.skip("a network without attention has no links")
    run = f"runs/{name}"
    golden.check(f"{name}: alignments", attent("translate", run, sources, "--alignments").out)
    for key, options in {
        "words": [],
        "tokens": ["--tokens", "--head", 0],
        "read": ["--about", "read"],
        "some": ["--threshold", 0.2],
    }.items():
        golden.check(f"{name}: links, {key}", attent("align", run, pairs, *options).out)


def test_how_good_it_is(attent, golden, request: pytest.FixtureRequest, frozen_folder: Path, name: str) -> None:
    what = f"{request.getfixturevalue('cldr')}: dates" if name == "dates" else name
    golden.check(
        f"{what}: evaluate", json.loads("\n".join(attent("evaluate", f"runs/{name}", "--json").out)), relative=1e-3
    )


def test_how_good_it_is_on_files(attent, golden, frozen_folder: Path, tmp_path: Path) -> None:
    inputs = pairs_of("pairs", frozen_folder)
    for index, side in enumerate(("source", "target")):
        (tmp_path / side).write_text("".join(f"{pair[index]}\n" for pair in inputs), encoding="utf-8")
    options = [
        "--source",
        tmp_path / "source",
        "--target",
        tmp_path / "target",
        "--tokenize",
        "none",
        "--beam",
        3,
        "--json",
    ]
    report = json.loads("\n".join(attent("evaluate", "runs/pairs", *options).out))
    for signature in ("bleu_signature", "chrf_signature"):
        report[signature] = re.sub(r"version:\S+", "", report[signature])
    golden.check("pairs: evaluate on files", report, relative=1e-3)


def test_the_maps(golden, frozen_folder: Path, name: str) -> None:
    run = package.load(f"runs/{name}")
    for source, target in pairs_of(name, frozen_folder)[:2]:
        for module, attention_map in run.map(source, target).items():
            weights = attention_map.weights
            keys = weights.argmax()
            values = {
                "shape": [*weights.shape],
                "entropy": weights.entropy(),
                "distance": weights.distance(),
                "received": weights.received(),
                "pooled": weights.pooled(3, 3),
                "looked at": weights.top(1)[1],
            }
            golden.check(f"{name}: map of {module}, {source}", values, absolute=2e-4)
            assert torch.equal(keys, weights[...].argmax(-1))


def test_a_walk_through_its_numbers(attent, golden, monkeypatch, frozen_folder: Path, name: str) -> None:
    monkeypatch.setenv("COLUMNS", "120")
    source = pairs_of(name, frozen_folder)[0][0]
    if name in ("dates", "pairs"):
        for kind in ("encoder", "decoder", "cross"):
            lines = attent("walk", f"runs/{name}", source, "--kind", kind, "--layer", 0, "--head", 1).out
            golden.check(f"{name}: walk, {kind}", numbers(lines), absolute=0.011)


def numbers(lines: list[str]) -> list[float]:
    """Those with a fraction, which are rounded to two digits or three, of lines of tables."""
    rows = [line for line in lines if "=" not in line and "(" not in line]
    return [float(number) for number in re.findall(r"(?<![\d.])-?\d+\.\d+", "\n".join(rows))]


def test_the_tree_of_its_parts(attent, golden, frozen_folder: Path, name: str) -> None:
    """Names of weights, their shapes, and how many there are; no equation."""
    lines = attent("describe", f"runs/{name}").out
    shapes = [re.sub(r"[^\w×., ]", "", line).strip() for line in lines if re.search(r"── \w+  [\d× ,]+$", line)]
    golden.check(f"{name}: tree", [*shapes, re.match(r"[\d,]+", lines[-1])[0]])


@pytest.mark.parametrize("engine", ["ctranslate2", pytest.param("onnx", marks=pytest.mark.slow)])
def test_other_engines(attent, golden, copied, engine: str) -> None:
    for required in ("onnxscript", "onnxruntime") if engine == "onnx" else ("ctranslate2",):
        pytest.importorskip(required, reason=f"{required} is not installed")
    run = copied("pairs")
    attent("export", run, "--to", engine)
    folder = run / "export" / engine
    golden.check(f"{engine}: files", sorted(path.name for path in folder.iterdir()))
    golden.check(f"{engine}: manifest", sorted(json.loads((folder / "export.json").read_text(encoding="utf-8"))))
    if engine == "onnx":
        import onnx

        for file in sorted(folder.glob("*.onnx")):
            graph = onnx.load(file).graph
            ends = {side: [item.name for item in getattr(graph, side)] for side in ("input", "output")}
            golden.check(f"onnx: {file.name}", ends)
