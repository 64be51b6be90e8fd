"""Direct attribution of a logit: what each head, each MLP and the embedding add to it through the residual stream.

With the scale of every norm frozen, the way from the output of a head or an MLP to a logit is linear: the term of an
output is its product with the logit's gradient, where no further head or MLP is on the way.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from attent.attention.capture.stack import (
    TOLERANCE,
    LayerStack,
    Token,
    counted_from_start,
    first_of,
    hidden_states,
    is_near,
    logits_of,
    output_layer,
    replaced_forwards,
    wrap_of,
)
from attent.errors import ArgumentError


@dataclass(frozen=True)
class LogitAttribution:
    """The terms of a logit, or of the difference of two logits, of B sequences.

    Args:
        paths: the attention modules, in order; L of them.
        logit: the logit, (B,): the sum of all terms.
        heads: of each head, (L, H, B).
        attention_bias: of the bias of each W^O, (L, B).
        mlps: of each MLP with its biases, (L, B).
        embedding: of what enters the first layer, (B,).
        bias: of the biases of norms and of the logits, (B,).
        is_before_cap: whether the logit is that before the model's soft cap.
    """

    paths: tuple[str, ...]
    logit: Tensor
    heads: Tensor
    attention_bias: Tensor
    mlps: Tensor
    embedding: Tensor
    bias: Tensor
    is_before_cap: bool = False

    def terms(self) -> dict[str, Tensor]:
        """Return all terms (B,) by name."""
        terms = {"embedding": self.embedding}
        for layer, path in enumerate(self.paths):
            terms |= {f"{path}, head {head}": term for head, term in enumerate(self.heads[layer])}
            terms |= {f"{path}, bias": self.attention_bias[layer], f"MLP of layer {layer}": self.mlps[layer]}
        return terms | {"bias": self.bias}

    def top(self, count: int = 10) -> list[tuple[str, float]]:
        """Return the terms of largest size with their names; means over the sequences."""
        means = [(name, term.mean().item()) for name, term in self.terms().items()]
        return sorted(means, key=lambda item: -abs(item[1]))[:count]

    def __str__(self) -> str:
        """Return the logit and its ten largest terms."""
        title = f"logit{' before the soft cap' if self.is_before_cap else ''} {self.logit.mean():.4g}"
        return "\n".join([title, *(f"  {term:+8.3f}  {name}" for name, term in self.top())])


@dataclass
class _Leaves:
    """Tensors at which the graph of a frozen run begins, and its logits."""

    embedding: list[Tensor] = field(default_factory=list)
    mlps: list[Tensor] = field(default_factory=list)
    biases: list[Tensor] = field(default_factory=list)
    logits: list[Tensor] = field(default_factory=list)


@torch.inference_mode(False)
@torch.enable_grad()
def attribute_logit(
    model: nn.Module,
    args: Sequence[Any],
    keywords: Mapping[str, Any],
    token: Token | tuple[Token, Token],
    position: int,
) -> LogitAttribution:
    """Run a model forward and backward, and return the terms of a logit; see `watch.logit_attribution`.

    Args:
        model: the model.
        args: its inputs by position.
        keywords: its inputs by name.
        token: the id of a token, or of two.
        position: the position of the logit.
    """
    begin, stack, leaves = f"logits of {type(model).__name__} cannot be attributed", LayerStack.of(model), _Leaves()
    arguments = {**dict(zip(inspect.signature(model.forward).parameters, args, strict=False)), **keywords}
    if model.training or any(hasattr(value, "get_seq_length") for value in arguments.values()):
        raise ArgumentError(f"{begin} from a run with a cache or in training mode: run model.eval() on whole texts")
    lengths = [value.shape[1] for value in arguments.values() if isinstance(value, Tensor) and value.dim() > 1]
    position = counted_from_start(position, lengths[0])
    with replaced_forwards(_frozen_forwards(model, stack, leaves, begin)):
        run = stack.record(arguments, [position], states=True)
    is_before_cap = bool(getattr(getattr(model, "config", None), "final_logit_softcapping", None))
    row = (leaves.logits[0] if is_before_cap else run.output.logits)[:, -1]
    right, *wrong = token if isinstance(token, tuple) else (token,)
    logit = logits_of(right, row) - sum(logits_of(second, row) for second in wrong)
    ends = [*leaves.embedding, *leaves.mlps, *leaves.biases, *run.attention]
    gradients = torch.autograd.grad(logit.sum(), ends, allow_unused=True, materialize_grads=True)
    with torch.no_grad():
        terms = [(part * end).flatten(1).sum(1) for part, end in zip(gradients, ends, strict=True)]
        heads, biases = list[Tensor](), list[Tensor]()
        for layer, gradient in enumerate(gradients[-len(run.attention) :]):
            products = (gradient @ stack.weight(layer)) * run.contexts[layer]  # (B, T, H·Dv)
            heads.append(products.unflatten(-1, (stack.heads, -1)).sum((1, 3)).T)
            bias = stack.bias(layer)
            biases.append(torch.zeros_like(terms[0]) if bias is None else (gradient @ bias).sum(1))
        result = LogitAttribution(
            (*stack.paths,), logit.detach(), torch.stack(heads), torch.stack(biases),
            mlps=torch.stack(terms[1 : 1 + len(leaves.mlps)]), embedding=terms[0],
            bias=torch.stack([torch.zeros_like(terms[0]), *terms[1 + len(leaves.mlps) : -len(run.attention)]]).sum(0),
            is_before_cap=is_before_cap,
        )  # fmt: skip
        parts = torch.stack([*result.terms().values()])
        size = torch.maximum(parts.abs().amax(0), result.logit.abs())
        if not bool(((parts.sum(0) - result.logit).abs() <= TOLERANCE * size).all()):
            raise ArgumentError(
                f"{begin}: terms sum to {parts.sum(0)[0]:.6g}, and the logit is {result.logit[0]:.6g}, so that it "
                "is not linear in the normalized hidden states"
            )
    return result


def _frozen_forwards(
    model: nn.Module, stack: LayerStack, leaves: _Leaves, begin: str
) -> dict[nn.Module, Callable[..., Any]]:
    """Return forwards of components, norms and logits, of which only the way through the residual stream has a graph.

    Raises:
        ArgumentError: a layer is not attention and an MLP besides norms, or no layer of logits is known.
    """
    head = output_layer(model)
    if head is None:
        raise ArgumentError(f"{begin}: it does not say which layer computes its logits")
    forwards: dict[nn.Module, Callable[..., Any]] = {head: _logits_forward(head, leaves)}
    for layer, attention in zip(stack.layers, stack.attention, strict=True):
        parts = [part for part in layer.children() if [*part.parameters()] and not _is_norm(part)]
        if attention not in parts or len(parts) != 2:
            kinds = ", ".join(type(part).__name__ for part in parts)
            raise ArgumentError(f"{begin}: besides norms, a layer must be its attention and an MLP, got {kinds}")
        forwards |= {part: _leaf_forward(part.forward, [] if part is attention else leaves.mlps) for part in parts}
    inside = {part for component in forwards for part in component.modules()}
    forwards |= {
        norm: _frozen_norm(norm, leaves.biases) for norm in model.modules() if _is_norm(norm) and norm not in inside
    }
    first = stack.layers[0].forward

    def enter(*args: Any, **keywords: Any) -> Any:
        hidden = hidden_states(args, keywords).detach().requires_grad_()
        leaves.embedding.append(hidden)
        return first(hidden, *args[1:], **keywords) if args else first(**{**keywords, "hidden_states": hidden})

    return forwards | {stack.layers[0]: enter}


def _is_norm(module: nn.Module) -> bool:
    return "Norm" in type(module).__name__


def _leaf_forward(forward: Callable[..., Any], leaves: list[Tensor]) -> Callable[..., Any]:
    """Return a forward whose output is a leaf of the graph, added to a list."""

    def run(*args: Any, **keywords: Any) -> Any:
        with torch.no_grad():
            output = forward(*args, **keywords)
        leaves.append(first_of(output).detach().requires_grad_())
        return wrap_of(output)(leaves[-1])

    return run


def _frozen_norm(norm: nn.Module, biases: list[Tensor]) -> Callable[[Tensor], Tensor]:
    """Return the forward of a norm with its scale as a constant and its bias as a leaf of the graph.

    The scale is read off the norm's own output: y = s · w ∘ (x − mean(x)) + b or y = s · w ∘ x, where w is its weight,
    or 1 + its weight as in Gemma.

    Raises:
        ArgumentError: the output has no such form.
    """
    forward, weight = norm.forward, getattr(norm, "weight", None)
    factors = [torch.ones(())] if weight is None else [weight.detach(), 1 + weight.detach()]

    def run(features: Tensor) -> Tensor:
        with torch.no_grad():
            output, bias = forward(features), getattr(norm, "bias", None)
            shift = (torch.zeros_like(output) if bias is None else bias.expand_as(output)).clone()
        for is_centered in (True, False):
            centered = features - features.mean(-1, keepdim=True) if is_centered else features
            for factor in factors:
                direction = centered * factor
                with torch.no_grad():
                    product = ((output - shift) * direction).sum(-1, keepdim=True)
                    scale = product / direction.square().sum(-1, keepdim=True)
                if is_near(direction * scale + shift, output):
                    biases.append(shift.requires_grad_())
                    return direction * scale + biases[-1]
        raise ArgumentError(f"{type(norm).__name__} is no norm with a scale for each position, which could be frozen")

    return run


def _logits_forward(layer: nn.Module, leaves: _Leaves) -> Callable[[Tensor], Tensor]:
    """Return the forward of the layer of logits, with its bias as a leaf of the graph, which keeps the logits."""
    forward, bias = layer.forward, getattr(layer, "bias", None)

    def run(features: Tensor) -> Tensor:
        output = forward(features)
        if bias is not None:
            leaves.biases.append(bias.detach().expand_as(output).clone().requires_grad_())
            output = output - bias.detach() + leaves.biases[-1]
        leaves.logits.append(output)
        return output

    return run
