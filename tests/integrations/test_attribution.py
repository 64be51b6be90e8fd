"""`seen.logit_attribution`: its terms sum to the logit, and each is the one that plain code computes."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

import attent
from attent.errors import ArgumentError

RIGHT, WRONG, WORDS = 3, 4, 29
CASES = [
    *((name, "eager") for name in ("gpt2", "llama", "qwen3", "gemma3", "gpt_oss", "phi", "openai")),
    *((name, "attent") for name in ("gpt2", "llama", "gpt_oss", "gemma3")),
    *((name, "sdpa") for name in ("gpt2", "qwen3", "phi")),
]
# The norms on the way from the output of a layer's attention, before it is added, to the output of the layer.
BRANCH = {"gemma3": ("post_attention_layernorm",)}


def frozen(norm: Any, features: Tensor, change: Tensor) -> Tensor:
    """A change of a norm's input, multiplied by what the norm multiplies these features by."""
    if isinstance(norm, torch.nn.LayerNorm):
        deviation = (features.var(-1, correction=0, keepdim=True) + norm.eps).sqrt()
        return (change - change.mean(-1, keepdim=True)) / deviation * norm.weight
    weight = norm.weight + 1 if type(norm).__name__.startswith("Gemma") else norm.weight
    epsilon = getattr(norm, "variance_epsilon", None) or norm.eps
    return change / (features.square().mean(-1, keepdim=True) + epsilon).sqrt() * weight


def inputs_of(model: Any, modules: list[Any], clean: Tensor) -> list[Tensor]:
    captured: dict[int, Tensor] = {}
    handles = [
        module.register_forward_pre_hook(lambda _, args, number=number: captured.update({number: args[0]}))
        for number, module in enumerate(modules)
    ]
    model(clean)
    for handle in handles:
        handle.remove()
    return [captured[number] for number in range(len(modules))]


def plain_terms(name: str, decoder: Any, layer: int) -> Tensor:
    """The terms (H, B) of the heads of a layer, step by step from their contexts."""
    model, module = decoder.model, decoder.model.get_submodule(decoder.paths[layer])
    body = model.transformer if hasattr(model, "transformer") else model.model
    layers = [*(body.h if hasattr(body, "h") else body.layers)]
    projection = getattr(module, "c_proj", None) or getattr(module, "o_proj", None) or module.dense
    weight = projection.weight if name in ("gpt2", "openai") else projection.weight.T  # (H·Dv, E)
    if name == "openai":
        norms = [norm for block in layers[layer:] for norm in (block.ln_1, block.ln_2)]
    else:
        last = getattr(body, "ln_f", None) or getattr(body, "norm", None) or body.final_layernorm
        norms = [*(getattr(layers[layer], norm) for norm in BRANCH.get(name, ())), last]
    context, *features = inputs_of(model, [projection, *norms], decoder.clean)
    heads = model.config.num_attention_heads
    terms: list[Tensor] = []
    for head, rows in enumerate(weight.unflatten(0, (heads, -1))):
        change = context.unflatten(-1, (heads, -1))[:, :, head] @ rows
        for norm, own in zip(norms, features, strict=True):
            change = frozen(norm, own, change)
        unembedding = model.lm_head.weight
        terms.append((change @ (unembedding[RIGHT] - unembedding[WRONG]))[:, -1])
    return torch.stack(terms)


@pytest.mark.parametrize(("name", "implementation"), CASES)
@torch.no_grad()
def test_terms_sum_to_the_logit_and_those_of_heads_are_computed_by_hand(
    decoder: Any, name: str, implementation: str
) -> None:
    own = decoder(name, implementation)
    with attent.watch(own.model, inputs=True) as seen:
        logits = own.model(own.clean).logits[:, -1]
    result = seen.logit_attribution((RIGHT, WRONG))
    cap = getattr(own.model.config, "final_logit_softcapping", None)
    assert result.is_before_cap == bool(cap)
    if cap:
        logits = cap * torch.atanh(logits / cap)
    difference = logits[:, RIGHT] - logits[:, WRONG]
    torch.testing.assert_close(result.logit, difference, atol=1e-4, rtol=1e-4)
    terms = torch.stack([*result.terms().values()])
    torch.testing.assert_close(terms.sum(0), difference, atol=1e-4, rtol=1e-4)
    for layer in range(3):
        plain = plain_terms(name, own, layer)
        torch.testing.assert_close(result.heads[layer], plain, atol=1e-5, rtol=1e-4)
        assert plain.abs().max() > 1e-2
    first, second = (seen.logit_attribution(token, -1).heads for token in (RIGHT, WRONG))
    torch.testing.assert_close(first - second, result.heads, atol=1e-5, rtol=1e-4)
    assert (seen.logit_attribution(RIGHT, 2).logit - seen.logit_attribution(RIGHT).logit).abs().max() > 1e-2
    each = seen.logit_attribution((torch.tensor([RIGHT, 5, 6, 7]), WRONG))
    assert torch.equal(each.heads[..., 0], result.heads[..., 0]) and not torch.equal(each.heads, result.heads)
    assert result.top(1)[0][0] in result.terms() and f"{result.logit.mean():.4g}" in str(result)
    # nothing stays changed
    after = own.model(own.clean).logits[:, -1]
    assert torch.equal(after, own.model(own.clean).logits[:, -1]) and not after.requires_grad


def test_what_cannot_be_attributed_is_refused(decoder: Any, models: Any) -> None:
    own = decoder("gpt2", "sdpa")
    with attent.watch(own.model) as seen:
        own.model(own.clean)
    with pytest.raises(ArgumentError, match="inputs=True"):
        seen.logit_attribution(RIGHT)
    with attent.watch(own.model, inputs=True) as seen:
        own.model.generate(own.clean, max_new_tokens=2, do_sample=False)
    with pytest.raises(ArgumentError, match="with a cache"):
        seen.logit_attribution(RIGHT)
    with torch.inference_mode(), attent.watch(own.model, inputs=True) as seen:
        own.model(input_ids=own.clean)
        assert seen.logit_attribution(RIGHT).heads.shape == (3, 3, 4)
    for token, position, message in ((WORDS, -1, "the id of a token"), (RIGHT, 7, "from -7 to 6, got 7")):
        with pytest.raises(ArgumentError, match=message):
            seen.logit_attribution(token, position)
    bert, inputs = models.bert()
    with attent.watch(bert, inputs=True) as seen:
        bert(**inputs)
    with pytest.raises(ArgumentError, match="cannot be attributed"):
        seen.logit_attribution(RIGHT)


def test_a_logit_that_is_not_linear_is_refused_by_its_sum(decoder: Any) -> None:
    own = decoder("llama", "sdpa")
    handle = own.model.lm_head.register_forward_hook(lambda _, __, output: output.exp())
    with attent.watch(own.model, inputs=True) as seen:
        own.model(own.clean)
    with pytest.raises(ArgumentError, match="not linear"):
        seen.logit_attribution(RIGHT)
    handle.remove()
