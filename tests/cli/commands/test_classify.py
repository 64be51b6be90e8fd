import io
import json
from pathlib import Path

import numpy as np
import pytest

from attent.cli.app import run as command
from attent.tasks.recipe import follow
from attent.tasks.settings import parse
from attent.training.progress import Progress

SMALL = """
task = "classify"
{table}
[model]
layers = 1
width = 8
feed_forward = 8
heads = 2
{model}
[training]
updates = 2
batch_pairs = 8
precision = "float32"
threads = 1
"""


def make_run(folder: Path, table: str, model: str = "") -> Path:
    follow(
        parse(SMALL.format(table=table, model=model), "small.toml"), folder / "run", progress=Progress(io.StringIO())
    )
    return folder / "run"


@pytest.fixture
def of_pictures(tmp_path: Path) -> Path:
    image = pytest.importorskip("PIL.Image", reason="Pillow is not installed")
    for label in ("cat", "dog"):
        (tmp_path / "animals" / label).mkdir(parents=True)
        for number in range(10):
            pixels = np.random.default_rng(number).integers(0, 256, (4, 6), np.uint8)
            image.fromarray(pixels).save(tmp_path / "animals" / label / f"{number}.png")
    return make_run(tmp_path, f'[images]\nsource = "{tmp_path / "animals"}"\npatch = 2\nvalidation = 0.2')


@pytest.fixture
def of_vectors(tmp_path: Path) -> Path:
    np.savez(tmp_path / "v.npz", x=np.random.rand(20, 5, 3), y=np.arange(20) % 2)
    return make_run(tmp_path, f'[images]\nsource = "{tmp_path / "v.npz"}"\n')


@pytest.fixture(scope="module")
def of_texts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("texts")
    (folder / "a.tsv").write_text("".join(f"text {number}\t{'xy'[number % 2]}\n" for number in range(20)))
    return make_run(folder, f'[labelled]\ntrain = "{folder / "a.tsv"}"\ntokenizer = "char"')


def test_a_line_for_each_picture(of_pictures: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    cats = tmp_path / "animals" / "cat"
    assert command(["classify", str(of_pictures), str(cats)]) == 0
    lines = [line.split("\t") for line in capsys.readouterr().out.splitlines()]
    assert len(lines) == 10
    assert all(label in ("cat", "dog") and 0.5 <= float(share) <= 1 for label, share in lines)
    assert command(["classify", str(of_pictures), str(cats / "3.png"), "--top-k", "2"]) == 0
    cells = capsys.readouterr().out.rstrip().split("\t")
    assert cells[:2] == lines[3]
    assert float(cells[1]) + float(cells[3]) == pytest.approx(1, abs=2e-4)


def test_names_of_pictures_come_through_standard_input(
    of_pictures: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    files = [str(tmp_path / "animals" / "dog" / f"{number}.png") for number in (4, 2)]

    class Stdin:
        buffer = io.BytesIO("\n".join([*files, ""]).encode())

    monkeypatch.setattr("sys.stdin", Stdin())
    assert command(["classify", str(of_pictures), "-", "--json"]) == 0
    records = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [record["name"] for record in records] == files
    assert {*records[0]["best"][0]} == {"label", "probability"}


def test_dark_is_taken_for_light(of_pictures: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    image = pytest.importorskip("PIL.Image", reason="Pillow is not installed")
    file = tmp_path / "animals" / "cat" / "3.png"
    image.fromarray(255 - np.asarray(image.open(file))).save(tmp_path / "dark.png")
    assert command(["classify", str(of_pictures), str(file)]) == 0
    assert command(["classify", str(of_pictures), str(tmp_path / "dark.png"), "--invert"]) == 0
    first, second = capsys.readouterr().out.splitlines()
    assert first == second


def test_texts_and_vectors_are_classified(of_texts: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert command(["classify", str(of_texts), "text 3"]) == 0
    assert len(capsys.readouterr().out.splitlines()) == 1


def test_a_line_for_each_line(of_texts: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "in.txt").write_text("text 3\n\ntext 4\n")
    assert command(["classify", str(of_texts), str(tmp_path / "in.txt")]) == 0
    first, empty, last = capsys.readouterr().out.splitlines()
    assert (first.count("\t"), empty, last.count("\t")) == (1, "", 1)
    assert command(["classify", str(of_texts), str(tmp_path / "in.txt"), "--json"]) == 0
    records = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [(record["name"], len(record["best"])) for record in records] == [("text 3", 1), ("", 0), ("text 4", 1)]
    assert (
        command(
            ["classify", str(of_texts), str(tmp_path / "in.txt"), "--row", "1", "--attention", str(tmp_path / "a.png")]
        )
        == 2
    )
    assert "--attention draws an example, and the line is empty or too long" in capsys.readouterr().err


def test_a_line_that_is_too_long_is_named_and_stays_empty(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "a.tsv").write_text("".join(f"text {number}\t{'xy'[number % 2]}\n" for number in range(20)))
    make_run(
        tmp_path,
        f'[labelled]\ntrain = "{tmp_path / "a.tsv"}"\ntokenizer = "char"',
        'position = "learned"\nmaximum_length = 12',
    )
    (tmp_path / "in.txt").write_text(f"{'t' * 11}\n{'t' * 12}\ntext\n")
    assert command(["classify", str(tmp_path / "run"), str(tmp_path / "in.txt")]) == 2
    out, error = capsys.readouterr()
    assert [bool(line) for line in out.splitlines()] == [True, False, True]
    assert error == "line 2: not classified: more than the 11 tokens that this model can read\n"


def test_where_it_looked_is_drawn(of_texts: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("matplotlib", reason="matplotlib is not installed")
    assert command(["classify", str(of_texts), "text 3", "--attention", str(tmp_path / "a.png")]) == 0
    assert (tmp_path / "a.png").read_bytes().startswith(b"\x89PNG")
    (tmp_path / "in.txt").write_text("text 3\ntext 4\n")
    assert command(["classify", str(of_texts), str(tmp_path / "in.txt"), "--attention", str(tmp_path / "a.png")]) == 2
    assert "--attention draws one example, got 2: --row says which" in capsys.readouterr().err
    assert (
        command(
            ["classify", str(of_texts), str(tmp_path / "in.txt"), "--attention", str(tmp_path / "a.png"), "--row", "1"]
        )
        == 0
    )


def test_vectors_are_classified_and_others_refused(
    of_vectors: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert command(["classify", str(of_vectors), str(tmp_path / "v.npz"), "--row", "7"]) == 0
    assert len(capsys.readouterr().out.splitlines()) == 1
    for arguments, message in (
        ([str(tmp_path / "v.npz"), "--row", "20"], "--row must be below the 20 examples"),
        ([str(tmp_path / "v.npz"), "--invert"], "--invert is for pictures, and this run reads vectors"),
    ):
        assert command(["classify", str(of_vectors), *arguments]) == 2
        error = capsys.readouterr().err
        assert message in error
        assert len(error.splitlines()) == 1


def test_digits_are_scikit_learns_whatever_lies_here(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    image = pytest.importorskip("PIL.Image", reason="Pillow is not installed")
    monkeypatch.chdir(tmp_path)
    # the folder of the run is called digits too
    assert command(["train", "--task", "classify", "--images", "digits", "--updates", "1", "--out", "digits"]) == 0
    capsys.readouterr()
    assert command(["classify", "digits", "digits", "--row", "3"]) == 0
    out, err = capsys.readouterr()
    assert len(out.splitlines()) == 1
    assert "the folder here" not in err
    image.fromarray(np.zeros((8, 8), np.uint8)).save(tmp_path / "digits" / "a.png")
    assert command(["classify", "digits", "digits", "--row", "3"]) == 0
    repeated = capsys.readouterr()
    assert repeated.out == out
    assert repeated.err == "digits are scikit-learn's; the folder here is ./digits\n"
    assert command(["classify", "digits", "./digits"]) == 0
    assert len(capsys.readouterr().out.splitlines()) == 1


def test_where_it_looked_is_a_page(of_pictures: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    cat = str(tmp_path / "animals" / "cat" / "3.png")
    assert command(["classify", str(of_pictures), cat, "--attention", str(tmp_path / "a.html")]) == 0
    assert '"picture":{"grid":[2,3]' in (tmp_path / "a.html").read_text(encoding="utf-8")
    assert command(["show", str(of_pictures), cat, "--out", str(tmp_path / "b.html")]) == 0
    assert '"patch 2,3"' in (tmp_path / "b.html").read_text(encoding="utf-8")
    assert "encoder.layers.0.self_attention, mean over 2 heads" in capsys.readouterr().out


def test_a_text_is_shown_as_a_page(of_texts: Path, tmp_path: Path) -> None:
    assert command(["show", str(of_texts), "text 3", "--out", str(tmp_path / "a.html")]) == 0
    assert '"labels":["CLS","t","e","x","t"," ","3"]' in (tmp_path / "a.html").read_text(encoding="utf-8")


def test_a_run_of_vectors_says_what_shows_it(
    of_vectors: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert command(["show", str(of_vectors), "text"]) == 2
    assert "attent classify RUN FILE.npz --row N --attention FILE" in capsys.readouterr().err
    vectors = str(tmp_path / "v.npz")
    assert command(["classify", str(of_vectors), vectors, "--row", "1", "--attention", str(tmp_path / "a.html")]) == 0
    assert '"labels":["CLS","0","1","2","3","4"]' in (tmp_path / "a.html").read_text(encoding="utf-8")
