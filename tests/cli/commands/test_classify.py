import io
import json
from pathlib import Path

import numpy as np
import pytest

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
[training]
updates = 2
batch_pairs = 8
precision = "float32"
threads = 1
"""


def make_run(folder: Path, table: str) -> Path:
    settings = parse(SMALL.format(table=f"[images]\n{table}"), "small.toml")
    follow(settings, folder / "run", progress=Progress(io.StringIO()))
    return folder / "run"


@pytest.fixture(scope="module")
def of_pictures(tmp_path_factory: pytest.TempPathFactory) -> Path:
    image, folder = pytest.importorskip("PIL.Image", reason="Pillow is missing"), tmp_path_factory.mktemp("pictures")
    for label in ("cat", "dog"):
        (folder / "animals" / label).mkdir(parents=True)
        for number in range(10):
            pixels = np.random.default_rng(number).integers(0, 256, (4, 6), np.uint8)
            image.fromarray(pixels).save(folder / "animals" / label / f"{number}.png")
    return make_run(folder, f'source = "{folder / "animals"}"\npatch = 2\nvalidation = 0.2')


def test_a_line_for_each_picture(attent, of_pictures: Path, tmp_path: Path) -> None:
    cats = of_pictures.parent / "animals" / "cat"
    done = attent("classify", of_pictures, cats)
    lines = [line.split("\t") for line in done.out]
    assert (done.code, len(lines)) == (0, 10)
    assert all(label in ("cat", "dog") and 0.5 <= float(share) <= 1 for label, share in lines)
    cells = attent("classify", of_pictures, cats / "3.png", "--top-k", 2).out[0].split("\t")
    assert cells[:2] == lines[3]
    assert float(cells[1]) + float(cells[3]) == pytest.approx(1, abs=2e-4)
    # dark ink on light paper
    image = pytest.importorskip("PIL.Image", reason="Pillow is not installed")
    image.fromarray(255 - np.asarray(image.open(cats / "3.png"))).save(tmp_path / "dark.png")
    assert attent("classify", of_pictures, tmp_path / "dark.png", "--invert").out == done.out[3:4]
    page = tmp_path / "a.html"
    assert attent("classify", of_pictures, cats / "3.png", "--attention", page).code == 0
    assert '"picture":{"grid":[2,3]' in page.read_text(encoding="utf-8")
    done = attent("show", of_pictures, cats / "3.png", "--out", page)
    assert '"patch 2,3"' in page.read_text(encoding="utf-8")
    assert "encoder.layers.0.self_attention, mean over 2 heads" in "\n".join(done.out)


def test_names_of_pictures_come_through_standard_input(
    attent, of_pictures: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = [str(of_pictures.parent / "animals" / "dog" / f"{number}.png") for number in (4, 2)]
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO("\n".join([*files, ""]).encode())))
    records = [json.loads(line) for line in attent("classify", of_pictures, "-", "--json").out]
    assert [record["name"] for record in records] == files
    assert {*records[0]["best"][0]} == {"label", "probability"}


def test_a_line_for_each_line(attent, refused, classifying_folder: Path, tmp_path: Path) -> None:
    file, drawing = tmp_path / "in.txt", tmp_path / "a.png"
    file.write_text("text 3\n\ntext 4\n")
    done = attent("classify", classifying_folder, file)
    assert (done.code, [line.count("\t") for line in done.out]) == (0, [1, 0, 1])
    assert attent("classify", classifying_folder, "text 3").out == done.out[:1]
    records = [json.loads(line) for line in attent("classify", classifying_folder, file, "--json").out]
    assert [(record["name"], len(record["best"])) for record in records] == [("text 3", 1), ("", 0), ("text 4", 1)]
    empty = refused("classify", classifying_folder, file, "--row", 1, "--attention", drawing)
    assert empty == "--attention cannot draw this line: it is empty or too long"
    three = refused("classify", classifying_folder, file, "--attention", drawing)
    assert three == "--attention draws one example, got 3: choose one with --row"
    assert not drawing.exists()
    # a line that is too long is named and stays empty
    file.write_text(f"{'t' * 11}\n{'t' * 12}\ntext\n")
    done = attent("classify", classifying_folder, file)
    assert (done.code, [bool(line) for line in done.out]) == (2, [True, False, True])
    assert done.err == ["line 2: not classified: more than the 11 tokens that this model can read"]
    pytest.importorskip("matplotlib", reason="matplotlib is not installed")
    assert attent("classify", classifying_folder, "text 3", "--attention", drawing).code == 0
    assert drawing.read_bytes().startswith(b"\x89PNG")
    assert attent("show", classifying_folder, "text 3", "--out", tmp_path / "a.html").code == 0
    assert '"labels":["CLS","t","e","x","t"," ","3"]' in (tmp_path / "a.html").read_text(encoding="utf-8")


def test_vectors_are_classified_and_others_refused(attent, refused, tmp_path: Path) -> None:
    vectors, page = tmp_path / "v.npz", tmp_path / "a.html"
    np.savez(vectors, x=np.random.rand(20, 5, 3), y=np.arange(20) % 2)
    of_vectors = make_run(tmp_path, f'source = "{vectors}"\n')
    done = attent("classify", of_vectors, vectors, "--row", 7, "--attention", page)
    assert (done.code, len(done.out)) == (0, 1)
    assert '"labels":["CLS","0","1","2","3","4"]' in page.read_text(encoding="utf-8")
    says = "--row must be below the number of examples, 20"
    assert refused("classify", of_vectors, vectors, "--row", 20).startswith(says)
    assert "attent classify RUN FILE.npz --row N --attention FILE" in refused("show", of_vectors, "text")


def test_digits_are_scikit_learns_whatever_lies_here(attent, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    image = pytest.importorskip("PIL.Image", reason="Pillow is not installed")
    monkeypatch.chdir(tmp_path)
    # the folder of the run is called digits too
    sizes = [word for size in ("width=8", "feed_forward=8", "layers=1") for word in ("--set", f"model.{size}")]
    files = ("--task", "classify", "--images", "digits", "--out", "digits")
    assert attent("train", *files, "--updates", 1, *sizes).code == 0
    done = attent("classify", "digits", "digits", "--row", 3)
    assert (done.code, len(done.out), done.err) == (0, 1, [])
    image.fromarray(np.zeros((8, 8), np.uint8)).save(tmp_path / "digits" / "a.png")
    repeated = attent("classify", "digits", "digits", "--row", 3)
    assert (repeated.out, repeated.err) == (done.out, ["digits are scikit-learn's; the folder here is ./digits"])
    assert len(attent("classify", "digits", "./digits").out) == 1
