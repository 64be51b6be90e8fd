from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

import attent
from attent.attention.capture.watch import watch
from attent.errors import ArgumentError, DataError, RunError
from attent.search.settings import SearchSettings
from attent.tasks.caption.captioner import Captioner, load, picture_inputs
from attent.tasks.classification.inputs import INPUTS
from attent.tasks.translation.translator import load as translator

Run = Callable[[str], Path]
Light = Callable[[str, int], np.ndarray]
KINDS = "transformer", "rnn"


@pytest.mark.parametrize("kind", KINDS)
def test_pictures_become_words(captioned: Run, light: Light, kind: str) -> None:
    captioner = attent.load(captioned(kind))
    assert isinstance(captioner, Captioner)
    pictures = np.stack([light(side, 900 + number) for number, side in enumerate(("left", "right", "right", "left"))])
    expected = ["light on the left", "light on the right", "light on the right", "light on the left"]
    assert captioner.caption(pictures) == expected
    assert captioner.caption((pictures / 255).astype(np.float32)) == expected
    assert captioner.caption(pictures, SearchSettings(beam=3)) == expected
    assert captioner.caption([]) == []
    files = [captioned(kind).parent / "pictures" / f"test{number}.png" for number in range(2)]
    assert captioner.caption(files) == expected[:2]
    assert captioner.caption(str(files[1])) == expected[1:2]


@pytest.mark.parametrize("kind", KINDS)
def test_a_caption_does_not_depend_on_its_batch(captioned: Run, light: Light, kind: str) -> None:
    captioner = load(captioned(kind))
    captioner.model.to_logits.weight.data *= 0.3
    pictures = np.stack([light(("left", "right")[number % 2], number) for number in range(9)])
    for settings in (SearchSettings(), SearchSettings(beam=3, length_penalty=0), SearchSettings(minimum_length=6)):
        alone = [captioner.caption(pictures[row][None], settings)[0] for row in range(9)]
        assert captioner.caption(pictures, settings) == alone
    assert all(len(text.split()) >= 6 for text in captioner.caption(pictures, SearchSettings(minimum_length=6)))
    assert all(len(text.split()) == 2 for text in captioner.caption(pictures, SearchSettings(maximum_length=2)))


@pytest.mark.parametrize("kind", KINDS)
def test_the_map_of_a_caption(captioned: Run, light: Light, kind: str) -> None:
    captioner, pixels = load(captioned(kind)), light("left", 5)[None]
    maps = captioner.map(pixels, gradients=True)
    name = "decoder.layers.0.cross_attention" if kind == "transformer" else "decoder.cross_attention"
    labelled = maps[name]
    assert labelled.rows == (" light", " on", " the", " left", "</s>")
    assert labelled.columns == tuple(f"patch {row},{column}" for row in (1, 2) for column in (1, 2, 3))
    weights = labelled.weights.dense()[0]
    assert weights.shape == (2 if kind == "transformer" else 1, 5, 6)
    torch.testing.assert_close(weights.sum(-1), torch.ones(weights.shape[:-1]))
    assert labelled.gradients is not None
    forced = captioner.map(pixels, "light on the right")[name]
    assert forced.rows[3] == " right"
    # rows up to the word that differs are the same
    torch.testing.assert_close(forced.weights.dense()[0, :, :4], weights[:, :4])
    encoder = next(labelled for path, labelled in maps.items() if path.startswith("encoder"))
    assert encoder.rows == encoder.columns == labelled.columns
    scene = captioner.scene(pixels, title="a picture")
    assert scene.picture is not None
    assert (scene.picture.text, scene.picture.before, scene.picture.grid) == ("source", 0, (2, 3))
    assert scene.group("cross").columns == "source"


def test_the_encoder_declines_the_packed_form(captioned: Run, light: Light) -> None:
    captioner = load(captioned("transformer"))
    model = captioner.model
    assert not model.batch_invariant
    assert not model.packed_decoders(torch.zeros(1, 6, 4), torch.tensor([6]), 4)
    pictures = light("right", 3)[None]
    packed = captioner.caption(pictures)
    # watched modules are not packed
    with watch(model):
        assert captioner.caption(pictures) == packed


def test_what_is_not_a_picture(captioned: Run, light: Light) -> None:
    captioner = load(captioned("transformer"))
    with pytest.raises(DataError, match=r"missing\.png cannot be read"):
        captioner.caption("missing.png")
    with pytest.raises(ArgumentError, match=r"pictures \(H, W, C\) = \(4, 6, 1\)"):
        captioner.caption(np.zeros((1, 3, 6), np.uint8))
    with pytest.raises(ArgumentError, match="the run reads pictures"):
        captioner.caption(3)
    with pytest.raises(ArgumentError, match="a map is of one picture, got 2"):
        captioner.map(np.stack([light("left", 0), light("left", 1)]))
    with pytest.raises(ArgumentError, match="not sampled"):
        captioner.caption(np.zeros((1, 4, 6), np.uint8), SearchSettings(sample=True))


def test_what_is_not_a_captioner(captioned: Run) -> None:
    run = captioned("transformer")
    with pytest.raises(RunError, match=f"{run} captions: attent caption {run} PICTURE"):
        translator(run)
    texts = '{"labels": [], "inputs": {"kind": "texts"}}'
    for files, message in (({}, "damaged"), ({INPUTS: "{}"}, "damaged"), ({INPUTS: texts}, "got texts")):
        with pytest.raises(DataError, match=f"inputs.json is damaged|{message}"):
            picture_inputs(files)
