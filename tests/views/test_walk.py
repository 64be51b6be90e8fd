from __future__ import annotations

import math
from pathlib import Path

import pytest
import torch

import attent
from attent.attention.capture.watch import watch
from attent.attention.masks import Prefix, Window
from attent.attention.scores import SCORES
from attent.errors import ArgumentError
from attent.models.encoder import EncoderModel
from attent.models.rnn import RNN
from attent.models.settings import EncoderSettings, RnnSettings
from attent.tasks.classification.classifier import Classifier
from attent.tasks.classification.inputs import Inputs, TextInputs
from attent.tasks.fill_mask.fill_mask import FillMask
from attent.tasks.translation.translator import Translator
from attent.text import word_vectors
from attent.text.tokenizer import CharTokenizer
from attent.text.word_vectors import WordVectors
from attent.views.walk import split_words, walk, walk_run


def test_a_walk_is_the_formula() -> None:
    walkthrough = walk(seed=0)
    steps = walkthrough.steps
    query, key, value = (steps[name].values for name in "QKV")
    context, weights = attent.attend(query, key, value, return_map=True)
    torch.testing.assert_close(query[0, 0], steps["X"].values[0] @ walkthrough.parameters["W_Q"].values)
    torch.testing.assert_close(steps["scores"].values, query @ key.mT)
    torch.testing.assert_close(steps["scaled"].values, query @ key.mT / 2)
    torch.testing.assert_close(steps["weights"].values, weights.dense())
    torch.testing.assert_close(steps["output"].values, context)
    assert list(steps) == ["X", "Q", "K", "V", "scores", "scaled", "weights", "output"]
    assert str(walk("a b c", mask="window:1,0 | prefix:1")) == str(walk("a b c", mask=Window(1, 0) | Prefix(1)))


def test_punctuation_is_split_from_words() -> None:
    assert walk("I was happy, so ...").steps["weights"].rows == ("I", "was", "happy", ",", "so", ".", ".", ".")
    for text, words in (
        ('"Yes (no)!" he said.', '" Yes ( no ) ! " he said .'),
        ("e.g. the U.S., not U.S.A", "e.g. the U.S. , not U.S.A"),
        ("1,000.5 at 10:30, one,two", "1,000.5 at 10:30 , one , two"),
        ("don't dogs' d'été state-of-the-art", "don't dogs' d'été state-of-the-art"),
        ("[MASK] _____ a/b $5", "[MASK] _____ a/b $5"),
    ):
        assert split_words(text) == (*words.split(),)
    # a word has the same vector with and without punctuation after it
    assert torch.equal(walk("happy, so").steps["X"].values[0, 0], walk("happy").steps["X"].values[0, 0])


def test_the_seed_decides_the_matrices_and_a_word_its_vector() -> None:
    first, second = walk("the cat the", seed=1).steps["X"].values[0], walk("cat the", seed=2).steps["X"].values[0]
    assert torch.equal(first[0], first[2])
    assert torch.equal(first[1], second[0])
    assert not torch.equal(first[0], first[1])
    before = torch.random.get_rng_state()
    first, same, second = walk(seed=1), walk(seed=1), walk(seed=2)
    assert torch.equal(torch.random.get_rng_state(), before)
    assert torch.equal(first.steps["output"].values, same.steps["output"].values)
    assert not torch.equal(first.steps["Q"].values, second.steps["Q"].values)


def test_without_scale_there_is_no_scaled_step() -> None:
    scaled, plain = walk(seed=0), walk(scale=False, seed=0)
    assert "scaled" not in plain.steps
    torch.testing.assert_close(plain.steps["scores"].values, scaled.steps["scores"].values)
    torch.testing.assert_close(plain.steps["weights"].values, scaled.steps["scores"].values.softmax(-1))
    walkthrough = walk("a b", score="gated")
    pair = torch.cat((walkthrough.steps["Q"].values[0, 0, 1], walkthrough.steps["K"].values[0, 0, 0]))
    gate = torch.sigmoid(walkthrough.parameters["W_g"].values[0] @ pair + walkthrough.parameters["b_g"].values[0, 0])
    torch.testing.assert_close(walkthrough.steps["gate"].values[0, 0, 1, 0], gate)
    # docs/walk.md shows it
    weights = walk("The cat sat on the mat", seed=21).steps["weights"]
    words = weights.columns
    assert {words[index] for index in weights.values[0, 0, 2].topk(2).indices} == {"cat", "on"}
    assert {words[index] for index in weights.values[0, 0, 5].topk(2).indices} == {"the", "sat"}


@pytest.mark.parametrize("score", SCORES)
def test_every_score_by_name(score: str) -> None:
    walkthrough = walk("a b c", score=score, heads=2)
    assert walkthrough.steps["weights"].shape == (1, 2, 3, 3)
    for step in walkthrough.steps.values():
        assert step.equation and step.meaning and step.shape[-2:] == (len(step.rows), len(step.columns))
    assert str(walkthrough)


def test_the_additive_score_is_the_equation_of_the_matrices_shown() -> None:
    walkthrough = walk("a b c", score="additive")
    first, second, bias, v = (walkthrough.parameters[symbol].values for symbol in ("W₁", "W₂", "b", "v"))
    query, key = (walkthrough.steps[name].values[0, 0] for name in "QK")
    by_hand = [[(v @ torch.tanh(first @ q + second @ k + bias[0])).item() for k in key] for q in query]
    torch.testing.assert_close(walkthrough.steps["scores"].values[0, 0], torch.tensor(by_hand))
    assert walkthrough.steps["scores"].equation == "scores[i, j] = vᵀhidden[i, j]"
    parameters = walk("a b c", score="additive", heads=2).parameters
    assert parameters["W₁"].shape == (4, 2)
    assert parameters["W₁"].rows == ("head0·d1", "head0·d2", "head1·d1", "head1·d2")
    assert parameters["v"].rows == ("head0", "head1")
    assert list(parameters) == ["W_Q", "W_K", "W_V", "W_O", "W₁", "W₂", "b", "v"]


@pytest.mark.parametrize("position", ["sinusoidal", "learned"])
def test_positions_are_added_to_the_words(position: str) -> None:
    steps = walk("a b a", position=position).steps
    assert list(steps)[:3] == ["E", "PE", "X"]
    torch.testing.assert_close(steps["X"].values, steps["E"].values + steps["PE"].values)
    assert torch.equal(steps["E"].values[0, 0], steps["E"].values[0, 2])
    assert not torch.equal(steps["X"].values[0, 0], steps["X"].values[0, 2])
    if position == "sinusoidal":
        assert steps["PE"].values[0, 2, 1].item() == pytest.approx(math.cos(2))


@pytest.mark.parametrize("position", [None, "learned", "rotary"])
def test_only_with_positions_does_the_order_of_words_count(position: str | None) -> None:
    before, after = (
        walk(text, position=position, seed=0).steps["output"].values[0, 0]
        for text in ("The cat sat on the mat", "The mat sat on the cat")
    )
    assert torch.allclose(before[1], after[5]) is (position is None), "what cat takes away"
    assert torch.allclose(before[2], after[2]) is (position is None), "what sat takes away"


def test_positions_inside_attention() -> None:
    rotary, alibi = walk("a b c", position="rotary").steps, walk("a b c", position="alibi").steps
    assert rotary["Q"].equation == "Q = X·W_Q, turned by rotary"
    assert alibi["biased"].equation == "biased[i, j] = scaled[i, j] + alibi(i, j)"
    offsets = torch.arange(3)
    bias = (alibi["biased"].values - alibi["scaled"].values)[0, 0]
    torch.testing.assert_close(bias, -(2.0**-8) * (offsets[:, None] - offsets).abs())


def test_word_vectors_are_the_words(tmp_path: Path) -> None:
    vectors = WordVectors(["the", "cat"], torch.tensor([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]]))
    steps = walk("The cat", vectors=vectors).steps
    assert steps["X"].values.tolist() == [[[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]]]
    with pytest.raises(ArgumentError, match="there is no vector for 'dog', 'zebra'"):
        walk("the dog dog zebra", vectors=vectors)
    with pytest.raises(ArgumentError, match="leave width out"):
        walk("the", vectors=vectors, width=3)
    # a word whose line was cut off is told of
    file = tmp_path / "vectors.txt"
    file.write_text("the 1.0 2.0 3.0\ncat 4.0 5.0", encoding="utf-8")
    with pytest.raises(ArgumentError, match=r"no vector for 'cat' \(.*vectors.txt: .*1 dropped: .* \(line 2\)"):
        walk("the cat", vectors=word_vectors.read(file))


def test_heads_are_merged_by_w_o_and_a_second_text_is_keys_and_values() -> None:
    walkthrough = walk(heads=2)
    assert list(walkthrough.steps)[-2:] == ["merged", "result"]
    merged, output = (walkthrough.steps[name].values for name in ("merged", "output"))
    assert merged.shape == (1, 6, 4)
    assert torch.equal(merged[0, :, 2:], output[0, 1])
    torch.testing.assert_close(walkthrough.steps["result"].values, merged @ walkthrough.parameters["W_O"].values)
    walkthrough = walk("a b", cross="c d e", position="sinusoidal")
    steps = walkthrough.steps
    assert list(steps)[:6] == ["E", "PE", "X", "E_M", "PE_M", "M"]
    torch.testing.assert_close(steps["K"].values[0, 0], steps["M"].values[0] @ walkthrough.parameters["W_K"].values)
    assert steps["K"].equation == "K = M·W_K"
    assert (steps["weights"].rows, steps["weights"].columns) == (("a", "b"), ("c", "d", "e"))
    assert walkthrough.title == "Cross-attention, step by step: a b → c d e"


def test_the_whole_layer_is_the_formula_of_a_transformer_layer() -> None:
    walkthrough = walk("a b c", whole=True, seed=0)
    steps, parameters = {name: step.values for name, step in walkthrough.steps.items()}, walkthrough.parameters
    torch.testing.assert_close(steps["residual"], steps["X"] + steps["result"])
    torch.testing.assert_close(steps["norm"], torch.nn.functional.layer_norm(steps["residual"], (4,)))
    torch.testing.assert_close(steps["wide"], (steps["norm"] @ parameters["W₁ of ffn"].values).relu())
    torch.testing.assert_close(steps["residual_ffn"], steps["norm"] + steps["wide"] @ parameters["W₂ of ffn"].values)
    torch.testing.assert_close(steps["norm_ffn"].mean(-1), torch.zeros(1, 3))
    assert str(walkthrough)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"text": " "}, "at least one word"),
        ({"heads": 3}, "heads must divide the width, 4, got 3"),
        ({"width": 0}, "width must be ≥ 1"),
        ({"seed": -1}, r"seed must be a whole number from 0 to 2\^63 - 1, got -1"),
        ({"scale": False, "score": "cosine"}, "only the scaled dot product has a scale"),
        ({"score": "aditive"}, "did you mean 'additive'"),
    ],
)
def test_what_cannot_be_walked_through(options: dict, says: str) -> None:
    with pytest.raises(ArgumentError, match=says):
        walk(**options)


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
    name = "decoder.layers.0.cross_attention" if kind == "cross" else f"{kind}.layers.0.self_attention"
    attention_map = translator.map("abc", target)[name]
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
    source, target = CharTokenizer("abcde "), CharTokenizer("xyz")
    settings = RnnSettings(embedding_width=6, width=8)
    translator = Translator(RNN(settings, source.size, target.size), source, target)
    with pytest.raises(ArgumentError, match="a walk needs a MultiHeadAttention"):
        walk_run(translator, "abc")


def encoder(outputs: int, inputs: int, **settings: object) -> EncoderModel:
    torch.manual_seed(0)
    small = {"layers": 2, "width": 12, "feed_forward": 16, "heads": 3, "dropout": 0.0, **settings}
    return EncoderModel(EncoderSettings.model_validate(small), inputs, outputs)


@pytest.mark.parametrize(("norm", "kind"), [("post", "decoder"), ("pre", "cross"), ("pre", "decoder")])
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
    specials = dict.fromkeys(("</s>", "<s>", "<unk>", "�"), "special")
    cells = [specials.get(cell, cell) for cell in walkthrough.steps["probabilities"].cells[0]]
    assert [tokenizer.piece(token) or "special" for token in best.indices[0].tolist()] == cells
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
    end = end if norm == "post" else translator.model.encoder.norm(end)
    torch.testing.assert_close(end, memory, atol=1e-5, rtol=1e-5)


def test_a_masked_language_model_fills_in_words() -> None:
    tokenizer = CharTokenizer("abcdef ")
    run = FillMask(encoder(tokenizer.size, tokenizer.size + 1, norm="pre"), tokenizer)
    walkthrough = walk_run(run, "ab [MASK] d", whole=True)
    (prediction,) = run.fill("ab [MASK] d")
    step = walkthrough.steps["probabilities"]
    assert step.rows == ("[MASK]",)
    assert step.cells[0] == tuple(guess.word for guess in prediction.guesses)
    probabilities = [guess.probability for guess in prediction.guesses]
    torch.testing.assert_close(step.values[0, 0].tolist(), probabilities, rtol=1e-4, atol=1e-6)


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
