from __future__ import annotations

import numpy as np
import pytest
import torch
from pydantic import ValidationError

from attent.errors import ArgumentError, DataError
from attent.explorer import explorer as explorer_file
from attent.explorer.explorer import ExampleRequest, Explorer, HeadRequest, TextRequest, TileRequest, TranslateRequest
from attent.explorer.loaded_run import LoadedRun, with_examples
from attent.explorer.scheduler import SceneStore
from attent.models.encoder import EncoderModel
from attent.models.settings import EncoderSettings
from attent.search.settings import GenerationSettings
from attent.tasks.classification.classifier import Classifier
from attent.tasks.classification.inputs import Inputs, PictureInputs, TextInputs
from attent.tasks.classification.pictures import Pictures
from attent.tasks.text_generation.text_generator import TextGenerator
from attent.text.tokenizer import EOS
from attent.text.tokenizers import learn
from attent.views.scene import Scene


def test_a_long_text_is_looked_at_before_its_translation_ends(
    explorer: Explorer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(explorer_file, "MAX_TOKENS_WITH_WEIGHTS", 10)
    view = HeadRequest(group="cross", layer=0, head=None)
    events = explorer.translate(TranslateRequest(text="abcde" * 3, where=view))
    kinds = [next(events)["kind"], (scene := next(events))["kind"]]
    assert kinds == ["start", "scene"]
    assert [group.name for group in explorer.scenes[scene["scene"]].groups] == ["self"]
    assert next(events)["weights"] is None


def test_the_weights_of_each_step_are_those_of_the_layer_that_is_shown(explorer: Explorer) -> None:
    for layer, head in ((0, 1), (99, None)):
        view = HeadRequest(group="cross", layer=layer, head=head)
        *_, last, end = explorer.translate(TranslateRequest(text="abc", where=view))
        weights = explorer.scenes[end["scene"]].group("cross").layers[min(layer, 1)].weights
        expected = weights[0, :, -1].mean(0) if head is None else weights[0, head, -1]
        assert last["weights"] == pytest.approx(expected.tolist(), abs=1e-5)
    *_, last, _ = explorer.translate(TranslateRequest(text="abc", where=HeadRequest(group="nothing", layer=0, head=0)))
    assert last["weights"] is None


def test_characters_are_read_as_attent_translate_reads_them(explorer: Explorer) -> None:
    start, *_ = explorer.translate(TranslateRequest(text="a\u202fb"))
    assert (start["source"], start["unknown"]) == (("a", " ", "b"), [])


def test_a_text_is_continued_and_a_token_is_gone_on_from(generator: TextGenerator) -> None:
    explorer = Explorer([LoadedRun("captions", "text-generation", generator)])
    view = HeadRequest(group="self", layer=1, head=None)
    start, *steps, end = explorer.generate(TranslateRequest(text="the dog", where=view))
    assert start == {"kind": "start", "source": ("<s>", " the", " dog"), "unknown": []}
    written = generator.generate("the dog", GenerationSettings(max_new_tokens=64))
    assert [step["said"]["token"] for step in steps] == list(written.tokens)
    assert end["text"] == written.text
    assert all(len(step["weights"]) == 3 and len(step["best"]) == 8 for step in steps)
    scene = explorer.scenes[end["scene"]]
    assert [(group.name, group.rows) for group in scene.groups] == [("self", "tokens")]
    assert scene.texts["tokens"].labels[:3] == ("<s>", " the", " dog")
    second = steps[0]["best"][1]["token"]
    _, first, *_, changed = explorer.generate(TranslateRequest(text="the dog", prefix=(second,)))
    assert (first["said"]["token"], first["forced"], first["weights"]) == (second, True, None)
    rest = generator.generate(f"the dog{generator.tokenizer.piece(second)}", GenerationSettings(max_new_tokens=63))
    assert changed["tokens"] == [second, *(token for token in rest.tokens if token != EOS)]
    with pytest.raises(ArgumentError, match="a prefix must consist of word ids from 1 to"):
        next(explorer.generate(TranslateRequest(text="the dog", prefix=(10_000,))))
    with pytest.raises(ArgumentError, match="captions is for the task text-generation, not for translate"):
        next(explorer.translate(TranslateRequest(text="the dog")))
    with pytest.raises(DataError, match="'bird' is unknown to this model"):
        next(explorer.generate(TranslateRequest(text="the bird")))
    explorer.longest = 5
    with pytest.raises(DataError, match="the text has 6 tokens, more than the limit of 5"):
        next(explorer.generate(TranslateRequest(text="the dog was happy ,", more="so")))


@pytest.fixture
def classifiers() -> Explorer:
    torch.manual_seed(5)
    tokenizer = learn("word", ["the dog slept .", "the cat ran ."] * 4)
    small = {"layers": 2, "width": 8, "feed_forward": 7, "heads": 2, "cls": True}
    texts = EncoderModel(EncoderSettings.model_validate(small), tokenizer.size, 3)
    inputs = PictureInputs(height=6, width=4, colours="grey", patch=2, mean=(0.5,), deviation=(0.5,))
    pictures = EncoderModel(EncoderSettings.model_validate({**small, "input": "vectors"}), 4, 3)
    labels = ("one", "two", "three")
    runs = [
        LoadedRun("texts", "classify", Classifier(texts, Inputs(labels=labels, inputs=TextInputs()), tokenizer)),
        with_examples(
            LoadedRun("pictures", "classify", Classifier(pictures, Inputs(labels=labels, inputs=inputs))),
            Pictures(np.arange(5 * 24, dtype=np.uint8).reshape(5, 6, 4, 1), None, ()),
        ),
    ]
    return Explorer(runs)


def test_texts_and_pictures_are_classified(classifiers: Explorer) -> None:
    predictions = classifiers.classify(TextRequest(text="the dog ran"))
    assert {best["label"] for best in predictions["best"]} == {"one", "two", "three"}
    assert classifiers.scenes[predictions["scene"]].groups[0].shape == (2, 4, 4)
    predictions = classifiers.classify(ExampleRequest(run=1, row=4))
    scene = classifiers.scenes[predictions["scene"]]
    assert scene.picture.grid == (3, 2)
    assert (scene.texts["tokens"].labels[0], len(scene.texts["tokens"].labels)) == ("CLS", 7)
    for error, request, message in (
        (DataError, TextRequest(text=" "), "the text is empty"),
        (ArgumentError, ExampleRequest(row=0), "no examples"),
        (ArgumentError, ExampleRequest(run=1, row=5), "row must be from 0 to 4, got 5"),
        (
            ArgumentError,
            TextRequest(run=1, text="/etc/hostname"),
            "pictures reads pictures: choose one of its examples",
        ),
    ):
        with pytest.raises(error, match=message):
            classifiers.classify(request)


def test_the_oldest_scenes_of_a_run_are_forgotten_but_for_those_used_last() -> None:
    fixed, *others = (Scene(str(number), {}, ()) for number in range(4))
    scenes = SceneStore([fixed], bound=2)
    assert [scenes.add(scene) for scene in others] == [1, 2, 3]
    assert (scenes[0], scenes[2], scenes[3]) == (fixed, others[1], others[2])
    with pytest.raises(ArgumentError, match="view 1 is unknown, or was dropped"):
        scenes[1]
    with pytest.raises(ArgumentError, match="view -1 is unknown"):
        scenes[-1]
    # a run forgets its own, and what was looked at last stays
    saved, used = scenes.add(fixed, run_number=1), scenes.add(others[0])
    for number in range(3):
        assert scenes[used] is others[0]
        scenes.add(Scene(str(number), {}, ()))
    assert scenes[saved] is fixed and scenes[used] is others[0]
    with pytest.raises(ArgumentError, match="dropped"):
        scenes[used + 1]


WRONG = [{"head": "median"}, {"head": -1}, {"layer": 1.5}, {"level": -2}, {"how": "min"}, {"more": 1}]
WRONG += [{"temperature": 0.5}]


def test_requests_are_validated() -> None:
    head = {"group": "cross", "layer": "1"}
    assert HeadRequest.model_validate({**head, "head": "mean"}).head is None
    assert HeadRequest.model_validate({**head, "head": "3"}) == HeadRequest(group="cross", layer=1, head=3)
    tile = {**head, "head": 0, "level": 0, "y": 0, "x": 0}
    assert TileRequest.model_validate(tile).y == 0
    for wrong in WRONG:
        with pytest.raises(ValidationError):
            TileRequest.model_validate({**tile, **wrong})
    assert TranslateRequest(text="a", prefix=[4, 5]).prefix == (4, 5)
    for wrong in ([4, -5], ["x"], "45", [None]):
        with pytest.raises(ValidationError):
            TranslateRequest(text="a", prefix=wrong)
