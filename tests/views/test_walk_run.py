from __future__ import annotations

import pytest
import torch

from attent.attention.capture.watch import watch
from attent.errors import ArgumentError
from attent.models.encoder import EncoderModel
from attent.models.rnn import RNN
from attent.models.settings import EncoderSettings, RnnSettings
from attent.tasks.classification.classifier import Classifier
from attent.tasks.classification.inputs import Inputs, TextInputs
from attent.tasks.fill_mask.fill_mask import FillMask
from attent.tasks.translation.translator import Translator
from attent.text.tokenizer import CharTokenizer
from attent.views.walk import walk_run


@pytest.mark.parametrize(
    ("settings", "kind"),
    [
        *(({}, kind) for kind in ("encoder", "decoder", "cross")),
        ({"score": "additive", "position": "alibi"}, "decoder"),
        ({"position": "rotary", "key_value_heads": 1, "width": 6}, "cross"),
    ],
)
def test_a_run_is_walked_through_with_the_numbers_that_watch_sees(untrained, kind: str, settings: dict) -> None:
    translator = untrained(**settings)
    walkthrough = walk_run(translator, "abc", kind=kind, layer=0, head=2)
    target = translator.translate(["abc"])[0]
    name = {"encoder": "encoder.layers.0.self_attention", "decoder": "decoder.layers.0.self_attention"}.get(kind)
    attention_map = translator.map("abc", target)[name or "decoder.layers.0.cross_attention"]
    torch.testing.assert_close(walkthrough.steps["weights"].values, attention_map.weights.dense())
    assert walkthrough.steps["weights"].rows == attention_map.rows
    assert walkthrough.steps["weights"].columns == attention_map.columns
    assert ("M" in walkthrough.steps) is (kind == "cross")
    assert f"head 2, step by step: abc → {target}" in f"{walkthrough.title} "


def test_what_a_run_does_not_have(translator) -> None:
    with pytest.raises(ArgumentError, match="layer must be from 0 to 1, got 2"):
        walk_run(translator, "abc", layer=2)
    with pytest.raises(ArgumentError, match="head must be from 0 to 2, got 3"):
        walk_run(translator, "abc", head=3)
    with pytest.raises(ArgumentError, match="empty source"):
        walk_run(translator, "")


def encoder(outputs: int, inputs: int, **settings: object) -> EncoderModel:
    torch.manual_seed(0)
    small = {"layers": 2, "width": 12, "feed_forward": 16, "heads": 3, "dropout": 0.0, **settings}
    return EncoderModel(EncoderSettings.model_validate(small), inputs, outputs)


@pytest.mark.parametrize("norm", ["post", "pre"])
@pytest.mark.parametrize("kind", ["decoder", "cross"])
def test_the_whole_last_layer_of_a_translator_ends_in_its_words(untrained, norm: str, kind: str) -> None:
    translator = untrained(norm=norm)
    walkthrough = walk_run(translator, "abc", kind=kind, whole=True)
    target = translator.translate("abc")
    tokenizer = translator.target_tokenizer
    with torch.no_grad(), watch(translator.model):
        memory = translator.encode(translator.source_tokenizer.encode("abc"))
        features = translator.model.decode(memory, torch.tensor([[2, *tokenizer.encode(target)]]))
        best = translator.model.output(features).softmax(-1)[0].topk(5)
    torch.testing.assert_close(walkthrough.steps["probabilities"].values[0], best.values)
    assert [tokenizer.piece(token) or "special" for token in best.indices[0].tolist()] == [
        "special" if cell in ("</s>", "<s>", "<unk>", "�") else cell
        for cell in walkthrough.steps["probabilities"].cells[0]
    ]
    assert ("cross" in walkthrough.steps) is (kind == "decoder")
    assert ("H" in walkthrough.steps) is (norm == "pre")
    assert "3." in str(walkthrough)


@pytest.mark.parametrize("norm", ["post", "pre"])
def test_a_layer_that_is_not_the_last_ends_with_its_output(untrained, norm: str) -> None:
    translator = untrained(norm=norm)
    first, second = (walk_run(translator, "abc", layer=layer, whole=True) for layer in (0, 1))
    last = list(first.steps.values())[-1]
    assert last.name == ("norm_ffn" if norm == "post" else "residual_ffn")
    torch.testing.assert_close(last.values, second.steps["X" if norm == "post" else "H"].values)
    assert "logits" not in second.steps, "an encoder's output is no word"
    memory = translator.encode(translator.source_tokenizer.encode("abc")).features
    end = list(second.steps.values())[-1].values
    torch.testing.assert_close(
        end if norm == "post" else translator.model.encoder.norm(end), memory, atol=1e-5, rtol=1e-5
    )


@pytest.mark.parametrize("norm", ["post", "pre"])
def test_a_masked_language_model_fills_in_words(norm: str) -> None:
    tokenizer = CharTokenizer("abcdef ")
    run = FillMask(encoder(tokenizer.size, tokenizer.size + 1, norm=norm), tokenizer)
    walkthrough = walk_run(run, "ab [MASK] d", whole=True)
    (prediction,) = run.fill("ab [MASK] d")
    step = walkthrough.steps["probabilities"]
    assert step.rows == ("[MASK]",)
    assert step.cells[0] == tuple(guess.word for guess in prediction.guesses)
    torch.testing.assert_close(
        step.values[0, 0].tolist(), [guess.probability for guess in prediction.guesses], rtol=1e-4, atol=1e-6
    )


def test_a_classifier_tells_classes() -> None:
    tokenizer, labels = CharTokenizer("abcdef "), ("one", "two", "three")
    run = Classifier(encoder(3, tokenizer.size, cls=True), Inputs(labels=labels, inputs=TextInputs()), tokenizer)
    walkthrough = walk_run(run, "abc", head=1, whole=True)
    prediction = run.classify("abc", best=3)
    step = walkthrough.steps["probabilities"]
    assert walkthrough.steps["weights"].rows == ("CLS", "a", "b", "c")
    assert (step.rows, step.cells) == (("CLS",), (prediction.labels,))
    torch.testing.assert_close(step.values[0, 0].tolist(), list(prediction.probabilities), rtol=1e-4, atol=1e-6)
    assert "3 classes" in step.meaning


def test_a_recurrent_decoder_has_no_heads_to_walk_through() -> None:
    source, target = CharTokenizer("abcde "), CharTokenizer("xyz")
    settings = RnnSettings(embedding_width=6, width=8)
    translator = Translator(RNN(settings, source.size, target.size), source, target)
    with pytest.raises(ArgumentError, match="a walk needs a MultiHeadAttention"):
        walk_run(translator, "abc")
