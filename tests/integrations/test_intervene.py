"""Heads of Hugging Face's models, changed by `attent.intervene`."""

from __future__ import annotations

import copy
from typing import Any, NamedTuple

import pytest
import torch
from torch import Tensor

import attent
from attent.errors import ArgumentError, UnknownNameError, UnseenError


class Head(NamedTuple):
    """The first head but one of a module, and the columns of the output projection that read it."""

    path: str
    projection: str
    columns: slice
    is_transposed: bool = False


HEADS = {
    "bert": Head("encoder.layer.1.attention.self", "encoder.layer.1.attention.output.dense", slice(4, 8)),
    "gpt2": Head("transformer.h.0.attn", "transformer.h.0.attn.c_proj", slice(4, 8), is_transposed=True),
    "llama": Head("model.layers.1.self_attn", "model.layers.1.self_attn.o_proj", slice(4, 8)),
    "marian": Head("model.decoder.layers.0.encoder_attn", "model.decoder.layers.0.encoder_attn.out_proj", slice(6, 12)),
    "t5": Head("decoder.block.1.layer.1.EncDecAttention", "decoder.block.1.layer.1.EncDecAttention.o", slice(4, 8)),
}


def without_head(model: Any, head: Head) -> Any:
    """The model with the head's columns of the output projection set to 0."""
    model = copy.deepcopy(model)
    weight = model.get_submodule(head.projection).weight
    with torch.no_grad():
        (weight.mT if head.is_transposed else weight)[:, head.columns] = 0.0
    return model


@pytest.mark.parametrize("name", HEADS)
def test_a_zeroed_head_is_one_whose_columns_are_zero(models: Any, name: str) -> None:
    (model, inputs), head = getattr(models, name)(), HEADS[name]
    with torch.no_grad():
        before = model(**inputs)[0]
        with attent.intervene(model, {head.path: {1: "zero"}}):
            output = model(**inputs)[0]
        assert not torch.allclose(output, before, atol=1e-3)
        torch.testing.assert_close(output, without_head(model, head)(**inputs)[0], atol=1e-6, rtol=1e-6)
        assert torch.equal(model(**inputs)[0], before)


@pytest.mark.parametrize("name", ["gpt2", "marian", "t5"])
def test_generation_goes_on_without_a_head(models: Any, name: str) -> None:
    (model, inputs), head = getattr(models, name)(), HEADS[name]
    inputs.pop("decoder_input_ids", None)
    options = {"max_new_tokens": 6, "do_sample": False, "output_scores": True, "return_dict_in_generate": True}
    with attent.intervene(model, {head.path: {1: "zero"}}):
        changed = model.generate(**inputs, **options)
    expected = without_head(model, head).generate(**inputs, **options)
    assert torch.equal(changed.sequences, expected.sequences)
    torch.testing.assert_close(torch.stack(changed.scores), torch.stack(expected.scores), atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("name", ["bert", "llama", "t5"])
def test_the_same_weights_give_the_same_contexts(models: Any, name: str) -> None:
    (model, inputs), path = getattr(models, name)(), HEADS[name].path
    rows: list[Tensor] = []

    def unchanged(weights: Tensor) -> Tensor:
        rows.append(weights)
        return weights

    with torch.no_grad():
        before = model(**inputs)[0]
        with attent.watch(model) as maps, attent.intervene(model, {path: {1: unchanged}}):
            output = model(**inputs)[0]
    torch.testing.assert_close(output, before, atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(torch.cat(rows, 1), maps[path].dense()[:, 1])


def test_uniform_is_what_the_mask_allows(models: Any) -> None:
    model, inputs = models.t5()
    path = "decoder.block.0.layer.0.SelfAttention"

    def spread(weights: Tensor) -> Tensor:
        causal = torch.ones(weights.shape[-2:]).tril()
        return (causal / causal.sum(-1, keepdim=True)).expand_as(weights)

    with torch.no_grad():
        with attent.intervene(model, {path: {0: spread}}):
            expected = model(**inputs)[0]
        with attent.intervene(model, {path: {0: "uniform"}}):
            torch.testing.assert_close(model(**inputs)[0], expected)


def test_what_there_is_not_is_refused(models: Any) -> None:
    model, inputs = models.bert()
    with pytest.raises(UnknownNameError, match=r"unknown attention of BertModel"):
        attent.intervene(model, {"encoder.layer.5.attention.self": {0: "zero"}})
    eager, _ = models.bert("eager")
    for run, changes, error, message in (
        (model, {"encoder.layer.1.attention.self": {3: "zero"}}, ArgumentError, "must be from 0 to 2, got 3"),
        (model, {"encoder.layer.1": {0: "zero"}}, UnseenError, "no head of encoder.layer.1 could be changed: its"),
        (eager, {"encoder.layer.1.attention.self": {0: "zero"}}, UnseenError, "it runs Hugging Face's 'eager'"),
    ):
        with pytest.raises(error, match=message), attent.intervene(run, changes):
            run(**inputs)
    assert not any(module._forward_hooks for module in eager.modules())
