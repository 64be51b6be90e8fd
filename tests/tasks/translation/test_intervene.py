from __future__ import annotations

import copy
from typing import Any

import pytest
import torch

import attent
from attent.models.rnn import RNN
from attent.models.settings import RnnSettings, TransformerSettings
from attent.models.transformer import Transformer
from attent.search.settings import SearchSettings
from attent.tasks.text_generation.text_generator import TextGenerator
from attent.tasks.translation.translator import Translator
from attent.text.tokenizer import CharTokenizer

TEXTS = ["abc", "bad cab", "e", "dead bee cab"]


@pytest.fixture
def translator() -> Translator:
    source, target = CharTokenizer("abcde "), CharTokenizer("0123456")
    sizes = {"encoder_layers": 2, "decoder_layers": 2, "width": 24, "feed_forward": 17, "heads": 3}
    settings = TransformerSettings.model_validate(sizes | {"share_embeddings": "none"})
    return Translator(Transformer(settings, source.size, target.size), source, target)


def without_heads(tool: Any, paths: list[str], width: int = 8) -> Any:
    """A copy whose output projections read nothing of head 1 of these modules."""
    tool = copy.deepcopy(tool)
    with torch.no_grad():
        for path in paths:
            tool.model.get_submodule(path).output.weight[:, width : 2 * width] = 0.0
    return tool


@pytest.mark.parametrize("path", ["encoder.layers.1.self_attention", "decoder.layers.1.cross_attention"])
def test_a_translator_loses_a_head_in_search_and_where_targets_are_given(translator: Translator, path: str) -> None:
    pairs, expected = [(text, "0123") for text in TEXTS], without_heads(translator, [path])
    before = translator.translate(TEXTS)
    with attent.intervene(translator.model, {path: {1: "zero"}}):
        scores = [score.log_probability for score in translator.score(pairs)]
        hypotheses = [translator.search(TEXTS, SearchSettings(beam=beam, maximum_length=9)) for beam in (1, 3)]
    assert scores == pytest.approx([score.log_probability for score in expected.score(pairs)], abs=1e-5)
    for results, beam in zip(hypotheses, (1, 3), strict=True):
        others = expected.search(TEXTS, SearchSettings(beam=beam, maximum_length=9))
        assert [best[0].tokens for best in results] == [best[0].tokens for best in others]
        log_probs = [best[0].log_probability for best in others]
        assert [best[0].log_probability for best in results] == pytest.approx(log_probs, abs=1e-4)
    assert translator.translate(TEXTS) == before


PATHS = [f"{stack}.layers.{layer}.self_attention" for stack in ("encoder", "decoder") for layer in (0, 1)]
PATHS += [f"decoder.layers.{layer}.cross_attention" for layer in (0, 1)]


def logits(model: Any) -> torch.Tensor:
    """Of every step, of two pairs with padding on both sides."""
    source, tokens = torch.tensor([[4, 5, 6, 7, 8], [6, 4, 9, 0, 0]]), torch.tensor([[2, 5, 6, 7], [2, 4, 0, 0]])
    return model.output(model.decode(model.encode(source, torch.tensor([5, 3])), tokens))


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 1e-6), (torch.float64, 1e-12)])
@torch.inference_mode()
def test_a_zeroed_head_is_a_model_that_reads_nothing_of_it(
    translator: Translator, dtype: torch.dtype, tolerance: float
) -> None:
    model = translator.model.to(dtype)
    before = logits(model)
    for path in PATHS:
        with attent.intervene(model, {path: {1: "zero"}}):
            changed = logits(model)
        expected = logits(without_heads(translator, [path]).model)
        torch.testing.assert_close(changed, expected, rtol=tolerance, atol=tolerance)
        assert (changed - before).abs().max() > 1e-3


@pytest.mark.parametrize("is_inference", [False, True])
def test_changes_that_change_nothing_keep_every_bit(translator: Translator, is_inference: bool) -> None:
    pairs, settings = [(text, "0123") for text in TEXTS], SearchSettings(beam=3, maximum_length=9)
    with torch.inference_mode(is_inference):
        before = logits(translator.model), translator.score(pairs), translator.search(TEXTS, settings)
        for changes in ({}, {path: {} for path in PATHS}):
            with attent.intervene(translator.model, changes):
                assert torch.equal(logits(translator.model), before[0])
                assert (translator.score(pairs), translator.search(TEXTS, settings)) == before[1:]


@pytest.mark.needs_native
@torch.inference_mode()
def test_the_compiled_search_stays_where_no_head_is_changed(translator: Translator) -> None:
    changes = {"encoder.layers.0.self_attention": {0: "zero"}}
    with attent.intervene(translator.model, {}):
        assert translator.model.batch_invariant
    with attent.intervene(copy.deepcopy(translator.model), changes):
        assert translator.model.batch_invariant
    with attent.intervene(translator.model, changes):
        assert not translator.model.batch_invariant


def test_a_language_model_writes_on_without_a_head(generator: TextGenerator) -> None:
    path = "decoder.layers.0.self_attention"
    expected = without_heads(generator, [path], 6)
    with attent.intervene(generator.model, {path: {1: "zero"}}):
        text, log_probs = generator.generate("the dog"), generator.log_probs(generator.encode("the cat slept ."))
    assert text.text == expected.generate("the dog").text
    torch.testing.assert_close(log_probs, expected.log_probs(expected.encode("the cat slept .")), atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize(("attention", "is_training"), [("bahdanau", False), ("bahdanau", True), ("luong", True)])
def test_a_recurrent_decoder_gets_no_context(attention: str, is_training: bool) -> None:
    settings = RnnSettings.model_validate({"attention": attention, "width": 8, "embedding_width": 6})
    model = RNN(settings, 11, 13).train(is_training)
    for part in model.modules():
        if "Dropout" in type(part).__name__:
            part.eval()
    source, lengths, tokens = torch.randint(4, 11, (2, 5)), torch.tensor([5, 3]), torch.randint(4, 13, (2, 4))
    with attent.intervene(model, {"decoder.cross_attention": {0: "zero"}}):
        output = model.decode(model.encode(source, lengths), tokens)
    blind = copy.deepcopy(model).eval()
    width = settings.memory_width
    blind.decoder.cross_attention.context = lambda prepared, queries: queries.new_zeros(2, queries.shape[1], width)
    torch.testing.assert_close(output, blind.decode(blind.encode(source, lengths), tokens), atol=1e-6, rtol=1e-6)
