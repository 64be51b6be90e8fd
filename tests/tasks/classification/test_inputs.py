import json
import tracemalloc

import numpy as np
import pytest
import torch

from attent.errors import ArgumentError, DataError
from attent.tasks.classification.arrays import VectorSequences
from attent.tasks.classification.inputs import Inputs, PictureInputs, TextInputs, VectorInputs, suitable_patch
from attent.tasks.classification.pictures import Pictures
from attent.tasks.classification.settings import ImagesSettings

ROWS = np.arange(40)


def test_pixels_are_brought_to_mean_0_and_variance_1(pictures: Pictures) -> None:
    inputs = PictureInputs.of(pictures, ROWS, ImagesSettings(source="x", patch=2))
    read = inputs(torch.from_numpy(pictures.pixels))
    assert read.shape == (40, inputs.length, inputs.size) == (40, 6, 4)
    assert read.mean().item() == pytest.approx(0, abs=1e-5)
    assert read.std().item() == pytest.approx(1, abs=1e-3)


def test_what_is_not_trained_on_does_not_count(pictures: Pictures) -> None:
    settings = ImagesSettings(source="x", patch=2)
    half = PictureInputs.of(pictures, ROWS[::2], settings)
    assert half != PictureInputs.of(pictures, ROWS, settings)
    pictures.pixels[1::2] = 0
    assert half == PictureInputs.of(pictures, ROWS[::2], settings)


def test_bytes_and_floats_are_the_same(pictures: Pictures) -> None:
    whole = (255 * pictures.pixels.clip(0, 1)).astype(np.uint8)
    settings = ImagesSettings(source="x", patch=2)
    sides = (whole, whole.astype(np.float32) / 255)
    single, second = (PictureInputs.of(Pictures(side, None, pictures.labels), ROWS, settings) for side in sides)
    assert single.mean == pytest.approx(second.mean)
    assert single.deviation == pytest.approx(second.deviation)


def test_real_vectors_alone_count() -> None:
    vectors = np.array([[[1.0, 7.0], [3.0, 7.0]], [[5.0, 7.0], [99.0, 99.0]]], np.float32)
    inputs = VectorInputs.of(VectorSequences(vectors, np.array([2, 1]), np.array([0, 1]), ("a", "b")), np.arange(2))
    assert inputs.mean == (3, 7)
    assert inputs.deviation == pytest.approx(((8 / 3) ** 0.5, 1))  # what never varies is left as wide as it is
    assert inputs.size == 2
    assert inputs(torch.tensor([[[3.0, 7.0]]])).tolist() == [[[0, 0]]]


def test_the_mean_needs_little_memory_beside_the_pictures() -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (3000, 32, 32, 3), np.uint8)
    pixels[..., 2] = 77
    rows = np.arange(1, 3000)
    tracemalloc.start()
    inputs = PictureInputs.of(Pictures(pixels, np.zeros(3000, np.int64), ("a",)), rows, ImagesSettings(source="x"))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 2 * pixels.nbytes
    expected = pixels[rows].reshape(-1, 3) / 255
    assert inputs.mean == pytest.approx(tuple(expected.mean(0)))
    assert inputs.deviation == pytest.approx((*expected.std(0)[:2], 1))


@pytest.mark.parametrize(
    ("height", "width", "patch"), [(8, 8, 2), (28, 28, 4), (32, 32, 4), (64, 64, 8), (224, 224, 28), (6, 9, 3)]
)
def test_a_patch_is_found(height: int, width: int, patch: int) -> None:
    assert suitable_patch(height, width) == patch


def test_where_none_divides_one_is_asked_for(pictures: Pictures) -> None:
    with pytest.raises(ArgumentError, match=r"no patch size cuts 29 x 31 pixels into 4 to 64 patches: give another"):
        suitable_patch(29, 31)
    with pytest.raises(ArgumentError, match=r"must divide .* 4 x 6 pixels, got 3"):
        PictureInputs.of(pictures, ROWS, ImagesSettings(source="x", patch=3))


def test_a_file_gives_back_the_same(pictures: Pictures) -> None:
    picture_inputs = PictureInputs.of(pictures, ROWS, ImagesSettings(source="x", patch=2))
    for inputs in (picture_inputs, TextInputs(), VectorInputs(mean=(0.5,), deviation=(2.0,))):
        written = Inputs(labels=("a", "b"), inputs=inputs)
        assert Inputs.read(written.model_dump_json()) == written
    with pytest.raises(DataError, match=r"inputs\.json is damaged: "):
        Inputs.read("{}")


PICTURES = {"kind": "pictures", "height": 4, "width": 4, "colours": "grey", "patch": 1, "mean": [0.5], "deviation": [1]}
NO_PICTURES = [{"patch": 0}, {"patch": 3}, {"height": 10**9}, {"mean": [0.5, 0.5]}, {"mean": [float("nan")]}]


@pytest.mark.parametrize("changes", [*NO_PICTURES, {"deviation": [0.0]}, {"colours": "rgb"}])
def test_numbers_that_no_picture_has_are_damage(changes: dict[str, object]) -> None:
    Inputs.read(json.dumps({"labels": ["a"], "inputs": PICTURES}))
    with pytest.raises(DataError, match=r"inputs\.json is damaged: inputs\.pictures"):
        Inputs.read(json.dumps({"labels": ["a"], "inputs": PICTURES | changes}))
