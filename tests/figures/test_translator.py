"""Figures of the course's translator show what attent computes with the same weights."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import site_figures
import torch
from torch import Tensor

from attent.attention.masks import Causal, Mask, Prefix, Window
from attent.views.pages.page import bundle

pytestmark = pytest.mark.slow

# Half of the last digit that is shown.
SHOWN = 0.0051
SENTENCES = 30
BLANK = '<!doctype html><meta charset="utf-8"><title>x</title>'
START = "() => { globalThis.course = new module_figures_translator.Translator(ATTENT_FIGURES.translator); }"
TRANSLATE = """([words, hasPositions]) => {
  const { ids, vectors: [, , memory], maps, logits } = course.translate(words, hasPositions);
  return {
    ids, encoder: maps.encoder, memory: memory.list(), self_attention: maps.decoder, cross_attention: maps.cross,
    logits: logits.map((row) => [...row]),
  };
}"""
MASKS: dict[tuple[str, int], Mask | None] = {
    ("causal", 1): Causal(),
    ("none", 1): None,
    ("window", 1): Window(1, 1),
    ("window", 0): Window(0, 0),
    ("causal and window", 2): Causal() & Window(2, 0),
    ("prefix", 2): Prefix(2),
    ("prefix", 4): Prefix(4),
}


def test_the_page_computes_what_python_does(window: Any, tmp_path: Path, translator: Any) -> None:
    (tmp_path / "page.html").write_text(BLANK, encoding="utf-8")
    view = window.open(tmp_path / "page.html")
    view.add_script_tag(content=bundle("figures/translator"))
    view.add_script_tag(content=site_figures.numbers("translator"))
    view.evaluate(START)
    draw = random.Random(0)
    words = [piece.strip() for piece in translator.source if piece]
    nonsense = (" ".join(draw.choices(words, k=draw.randint(1, 9))) for _ in range(SENTENCES))
    for sentence in ("the black dog sings", "the dog sees the cat", *nonsense):
        for has_positions in (True, False):
            computed = view.evaluate(TRANSLATE, [sentence.split(), has_positions])
            tokens, expected = translator.translate(sentence, has_positions=has_positions)
            assert computed.pop("ids") == tokens, sentence
            assert computed.keys() == expected.keys()
            for name, values in computed.items():
                numbers = torch.tensor(values, dtype=torch.float32)
                # logits are of the size of 10
                near = 1e-4 if name == "logits" else 1e-5
                torch.testing.assert_close(numbers, expected[name], atol=near, rtol=near)


def test_masks_hide_what_attents_masks_hide(figure: Callable[..., Any], translator: Any) -> None:
    page = figure("masks")
    tokens, _ = translator.translate("the black dog sings")
    y = translator.model.target_embedding(torch.tensor([[2, *tokens[:-1]]]))
    for (name, size), mask in MASKS.items():
        page.view.select_option("select", name)
        page.slide(0, size)
        assert page.line
        _, recorded = translator.model.decoder.layers[0].self_attention(y, mask=mask, return_map=True)
        weights = recorded.dense()[0, 0].detach()
        torch.testing.assert_close(page.weights(), weights, atol=SHOWN, rtol=0)
        are_hidden = torch.tensor([[cell == "–" for cell in row] for row in page.cells()])
        assert torch.equal(are_hidden, weights == 0)


def test_cells_of_a_mask_are_hidden_one_by_one(figure: Callable[..., Any]) -> None:
    page = figure("masks")
    page.view.locator("td[role=gridcell]").nth(15).press("Enter")
    assert page.line.startswith("chante may see 3 of 5: ")
    assert sum(page.weights()[3].tolist()) == pytest.approx(1, abs=2 * SHOWN)
    page.view.select_option("select", "none")
    for key in range(5):
        page.view.locator("td[role=gridcell]").nth(key).press("Enter")
    assert page.line == "le may see nothing: all its weights are 0."
    assert page.cells()[0] == ["–"] * 5


def test_matrices_of_a_typed_sentence(figure: Callable[..., Any], translator: Any) -> None:
    sentence = "the horse sees a small cat"
    tokens, expected = translator.translate(sentence)
    x = translator.model.source_embedding(torch.tensor([translator.ids(sentence)]))[0].detach()
    page = figure("projections")
    page.type(sentence)
    page.view.select_option("select", "2")
    assert page.line
    torch.testing.assert_close(page.weights(0), (x @ x.T).softmax(-1), atol=SHOWN, rtol=0)
    torch.testing.assert_close(page.weights(1), expected["encoder"][2], atol=SHOWN, rtol=0)
    page = figure("seeing")
    page.type(sentence)
    for name, weights in (("encoder", "encoder"), ("decoder", "self_attention"), ("cross", "cross_attention")):
        for head in (0, 3):
            page.view.click(f"button[aria-label='{name}, head {head}']")
            assert page.line.startswith(f"{name}, head {head}: ")
            torch.testing.assert_close(page.weights(), expected[weights][head], atol=SHOWN, rtol=0)
    page = figure("heads")
    page.type(sentence)
    page.view.locator(".board").first.locator(".list").last.locator("li").nth(2).click()
    for head in (0, 1):
        weight, key = expected["cross_attention"][head, 2].max(0)
        assert f"⁨{sentence.split()[key]}⁩ {weight:.2f}" in page.line
    labels = [translator.target[token].strip() or "</s>" for token in tokens]
    assert page.view.locator(".board").first.locator(".list").last.locator("li").all_inner_texts() == labels


def test_the_vector_of_a_word_in_context(figure: Callable[..., Any], translator: Any) -> None:
    model = translator.model

    @torch.no_grad()
    def vectors(sentence: str, word: int) -> list[Tensor]:
        tokens = torch.tensor([translator.ids(sentence)])
        x = model.source_embedding(tokens)
        memory = model.encode(tokens, torch.tensor([tokens.shape[1]]))
        return [matrix[0, word] for matrix in (x, model.encoder.layers[0].self_attention(x), memory.features)]

    page = figure("context")
    for sentence in ("the black cat sings", "the black horse sings", "the black dogs sing"):
        page.type(sentence)
        for word in (0, 1):
            page.view.locator(".board .list").last.locator("li").nth(word).click()
            assert page.line.endswith(f"Translation: {translator.text(translator.translate(sentence)[0])}")
            pairs = zip(vectors("the black dog sings", word), vectors(sentence, word), strict=True)
            cosines = [torch.cosine_similarity(*pair, dim=0).item() for pair in pairs]
            np.testing.assert_allclose(page.column(3), cosines, atol=SHOWN)


def test_words_that_the_translator_does_not_know_are_named_as_text(figure: Callable[..., Any]) -> None:
    page = figure("context")
    before = page.line
    page.type("the black <img/src=x/onerror=alert(1)>")
    note = page.view.inner_text(".note")
    assert note.startswith("The run does not know “<img/src=x/onerror=alert(1)>”, so the figure still shows ")
    page.type("the black hippo sings")
    assert "Its 132 words are " in page.view.inner_text(".note") and " horse, " in page.view.inner_text(".note")
    page.type("the the the the the the the the")
    assert page.view.inner_text(".note") == "Up to 7 words."
    assert page.line == before and not page.view.locator("img").count()


def test_the_whole_transformer_step_by_step(figure: Callable[..., Any], translator: Any) -> None:
    page = figure("transformer")
    _, expected = translator.translate("the black dog sings")
    labels = ["le", "chien", "noir", "chante", "</s>"]
    assert page.line.startswith("4 vectors of 64 numbers")
    for _ in range(3):
        page.view.click("button:text('next')")
    for step, label in enumerate(labels):
        for part in ("self_attention", "cross_attention"):
            assert page.line.startswith(f"Given {' '.join(['<s>', *labels[:step]])}: to write {label}, ")
            weights = expected[part][0, : step + 1]
            visible = weights[:, : step + 1] if part == "self_attention" else weights
            torch.testing.assert_close(page.weights(), visible, atol=SHOWN, rtol=0)
            page.view.click("button:text('next')")
        probability = expected["logits"][step].softmax(-1).max().item()
        assert f"⁨{label}⁩ {probability:.2f}" in page.line
        assert page.line.endswith(f"is written: {' '.join(labels[: step + 1])}")
        page.view.click("button:text('next')")
    assert page.line.startswith("4 vectors of 64 numbers"), "it begins again"


def test_equal_words_are_counted_where_they_are_shown(figure: Callable[..., Any], translator: Any) -> None:
    sentence, words = "the dog sees the cat", ["the₁", "dog", "sees", "the₂", "cat"]
    tokens, expected = translator.translate(sentence)
    assert translator.text(tokens) == "le chien voit le chat"
    page = figure("heads")
    page.type(sentence)
    above, below = page.view.locator(".board").first.locator(".list").all()
    assert above.locator("li").all_inner_texts() == words
    assert below.locator("li").all_inner_texts() == ["le₁", "chien", "voit", "le₂", "chat", "</s>"]
    below.locator("li").nth(3).click()
    assert page.line.startswith("To write le₂, ")
    for head in (0, 1):
        weight, key = expected["cross_attention"][head, 3].max(0)
        assert f"⁨{words[key]}⁩ {weight:.2f}" in page.line
    page = figure("projections")
    page.type(sentence)
    assert page.view.locator("table").first.locator("tbody th").all_inner_texts() == words
    assert page.view.locator("table").first.locator("thead th").all_inner_texts() == words
    page = figure("context")
    page.type(sentence)
    page.view.locator(".board .list >> nth=1").locator("li").nth(3).click()
    assert "“the₂” attends to " in page.line and page.line.endswith("Translation: le chien voit le chat")


def test_without_positions_the_order_of_words_is_lost(figure: Callable[..., Any], translator: Any) -> None:
    page = figure("positions")
    translations = {}
    for has_positions in (True, False):
        page.view.set_checked("input[type=checkbox]", has_positions)
        lines = page.view.inner_text(".said").split("\n")
        for line, sentence in zip(lines, ("the dog sees the cat", "the cat sees the dog"), strict=True):
            tokens, _ = translator.translate(sentence, has_positions=has_positions)
            assert line == f"{sentence} → {translator.text(tokens)}"
        translations[has_positions] = {line.split(" → ")[1] for line in lines}
    assert [len(translations[has_positions]) for has_positions in (True, False)] == [2, 1]
