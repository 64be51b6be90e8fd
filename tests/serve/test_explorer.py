from __future__ import annotations

import numpy as np
import pytest
import torch

from attent.data.labelled.inputs import Inputs, PictureInputs, TextInputs
from attent.data.labelled.pictures import Pictures
from attent.data.tokenizers import learn
from attent.decoding.classifier import Classifier
from attent.errors import ArgumentError, DataError
from attent.models.encoder import EncoderModel
from attent.models.encoder_settings import EncoderSettings
from attent.serve import explorer as explorer_file
from attent.serve.explorer import Explorer
from attent.serve.loaded_run import Opened, with_examples
from attent.serve.requests import Example, Text, Translate, Where


def test_a_long_text_is_looked_at_before_its_translation_ends(explorer: Explorer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(explorer_file, "TOLD", 10)
    events = explorer.translate(Translate(text="abcde" * 3, where=Where(group="cross", layer=0, head=None)))
    kinds = [next(events)["kind"], (scene := next(events))["kind"]]
    assert kinds == ["start", "scene"]
    assert [group.name for group in explorer.scenes[scene["scene"]].groups] == ["self"]
    assert next(events)["weights"] is None


def test_the_weights_of_each_step_are_those_of_the_layer_that_is_shown(explorer: Explorer) -> None:
    for layer, head in ((0, 1), (99, None)):
        *_, last, end = explorer.translate(Translate(text="abc", where=Where(group="cross", layer=layer, head=head)))
        weights = explorer.scenes[end["scene"]].group("cross").layers[min(layer, 1)].weights
        expected = weights[0, :, -1].mean(0) if head is None else weights[0, head, -1]
        assert last["weights"] == pytest.approx(expected.tolist(), abs=1e-5)
    *_, last, _ = explorer.translate(Translate(text="abc", where=Where(group="nothing", layer=0, head=0)))
    assert last["weights"] is None


def test_characters_are_read_as_attent_translate_reads_them(explorer: Explorer) -> None:
    start, *_ = explorer.translate(Translate(text="a\u202fb"))
    assert (start["source"], start["unknown"]) == (("a", " ", "b"), [])


def test_too_many_tokens_are_refused(explorer: Explorer) -> None:
    explorer.longest = 5
    with pytest.raises(DataError, match="the text has 6 tokens, more than the 5 that are read at once here"):
        next(explorer.translate(Translate(text="abcdea")))
    with pytest.raises(DataError, match="more than the 5"):
        explorer.fill(Text(run=1, text="the dog was [MASK] , so it slept"))


@pytest.fixture
def classifiers() -> Explorer:
    torch.manual_seed(5)
    tokenizer = learn("word", ["the dog slept .", "the cat ran ."] * 4)
    small = {"layers": 2, "width": 8, "feed_forward": 7, "heads": 2, "cls": True}
    texts = EncoderModel(EncoderSettings.model_validate(small), tokenizer.size, 3)
    how = PictureInputs(height=6, width=4, colours="grey", patch=2, mean=(0.5,), deviation=(0.5,))
    pictures = EncoderModel(EncoderSettings.model_validate({**small, "input": "vectors"}), 4, 3)
    labels = ("one", "two", "three")
    runs = [
        Opened("texts", "classify", Classifier(texts, Inputs(labels=labels, inputs=TextInputs()), tokenizer)),
        with_examples(
            Opened("pictures", "classify", Classifier(pictures, Inputs(labels=labels, inputs=how))),
            Pictures(np.arange(5 * 24, dtype=np.uint8).reshape(5, 6, 4, 1), None, ()),
        ),
    ]
    return Explorer(runs)


def test_texts_are_classified(classifiers: Explorer) -> None:
    found = classifiers.classify(Text(text="the dog ran"))
    assert {best["label"] for best in found["best"]} == {"one", "two", "three"}
    assert classifiers.scenes[found["scene"]].groups[0].shape == (2, 4, 4)
    with pytest.raises(DataError, match="the text is empty"):
        classifiers.classify(Text(text=" "))
    with pytest.raises(ArgumentError, match="no examples"):
        classifiers.classify(Example(row=0))


def test_pictures_are_chosen(classifiers: Explorer) -> None:
    found = classifiers.classify(Example(run=1, row=4))
    scene = classifiers.scenes[found["scene"]]
    assert scene.picture.grid == (3, 2)
    assert (scene.texts["tokens"].labels[0], len(scene.texts["tokens"].labels)) == ("CLS", 7)
    with pytest.raises(ArgumentError, match="row must be from 0 to 4, got 5"):
        classifiers.classify(Example(run=1, row=5))
    with pytest.raises(ArgumentError, match="pictures reads pictures: choose one of its examples"):
        classifiers.classify(Text(run=1, text="/etc/hostname"))
