from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from attent.attention.watch import watch
from attent.errors import ImplementationError
from attent.integrations import transformers as module


@pytest.fixture(autouse=True)
def registered() -> None:
    pytest.importorskip("transformers", reason="transformers is not installed")
    module.register()


@pytest.mark.parametrize("name", ["bert", "gpt2", "llama", "t5", "marian", "vit", "gemma2"])
def test_outputs_are_those_of_eager_attention_where_there_is_no_padding(models: Any, name: str) -> None:
    ours, inputs = getattr(models, name)("attent")
    eager, _ = getattr(models, name)("eager")
    with torch.no_grad(), watch(ours) as seen:
        found, expected = ours(**inputs)[0], eager(**inputs)[0]
    real = inputs.get("attention_mask", torch.ones(found.shape[:2]))
    if found.shape[1] == real.shape[1]:
        found, expected = found[real.bool()], expected[real.bool()]
    torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-5)
    assert len(seen) >= 2


@pytest.mark.parametrize("name", ["bert", "llama"])
def test_padding_changes_nothing(models: Any, name: str) -> None:
    model, inputs = getattr(models, name)("attent")
    other = {**inputs, "input_ids": torch.where(inputs["attention_mask"].bool(), inputs["input_ids"], 11)}
    assert not torch.equal(other["input_ids"], inputs["input_ids"])
    real = inputs["attention_mask"].bool()
    with torch.no_grad(), watch(model) as seen:
        torch.testing.assert_close(model(**inputs)[0][real], model(**other)[0][real])
    weights = next(iter(seen.values())).dense()
    assert not weights.masked_select(~real[:, None, None]).any()
    assert weights.sum(-1).amax() > 0.99


@pytest.mark.parametrize("more", [{}, {"cache_implementation": "static", "disable_compile": True}])
@pytest.mark.parametrize("name", ["gpt2", "llama", "gemma2", "marian", "t5"])
def test_it_generates_what_eager_attention_does(models: Any, name: str, more: dict[str, Any]) -> None:
    ours, inputs = getattr(models, name)("attent")
    eager, _ = getattr(models, name)("eager")
    inputs.pop("decoder_input_ids", None)
    steps = {"max_new_tokens": 6, "do_sample": False, **more}
    assert torch.equal(ours.generate(**inputs, **steps), eager.generate(**inputs, **steps))


def test_it_trains_with_dropout(models: Any) -> None:
    model, inputs = models.bert("attent")
    model.train()
    first, second = model(**inputs)[0], model(**inputs)[0]
    assert not torch.equal(first, second)
    first.sum().backward()
    assert all(parameter.grad is None or parameter.grad.isfinite().all() for parameter in model.parameters())


def test_position_bias_and_causality_together() -> None:
    query, key, value, bias = torch.randn(2, 3, 5, 4), torch.randn(2, 3, 7, 4), torch.randn(2, 3, 7, 4), torch.randn(1, 3, 5, 7)
    attention = nn.Module()
    context, nothing = module.attention(attention, query, key, value, None, scaling=0.3, is_causal=True, position_bias=bias)
    scores = query @ key[:, :, :5].mT * 0.3 + bias[..., :5]
    weights = scores.masked_fill(torch.ones(5, 5).triu(1).bool(), -torch.inf).softmax(-1)
    torch.testing.assert_close(context, (weights @ value[:, :, :5]).transpose(1, 2))
    assert nothing is None
    masked, _ = module.attention(attention, query, key, value, bias, position_bias=bias)
    torch.testing.assert_close(masked.transpose(1, 2), (query @ key.mT / 2 + 2 * bias).softmax(-1) @ value)


def test_what_we_do_not_have_is_refused() -> None:
    query = torch.randn(1, 2, 3, 4)
    with pytest.raises(ImplementationError, match="sinks"):
        module.attention(nn.Module(), query, query, query, None, s_aux=torch.zeros(2))
    with pytest.raises(ImplementationError, match="paged cache"):
        module.attention(nn.Module(), query, query, query, None, cache=object())
