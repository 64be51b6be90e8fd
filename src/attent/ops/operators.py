"""Dense attention as PyTorch operators, which torch.compile holds in its graphs.

`attent::dense_attention` and its gradients, `attent::dense_attention_backward`, call the compiled library. What depends
on the values or the strides of tensors is decided when they run, so that a graph has no breaks, and its sizes may vary.
"""

from typing import Any

import torch
from torch import Tensor
from torch.library import Library, register_autograd, register_fake

from attent.ops.dense_attention import DenseAttention

# Those of `DenseAttention` and of its call; the seed is a tensor with one number.
ARGUMENTS = (
    "Tensor query, Tensor key, Tensor value, Tensor? bias, Tensor? offset_bias, Tensor? sink, Tensor? begin, "
    "Tensor? end, Tensor? seed, float scale, float? soft_cap, float dropout"
)


def _context(*arguments: Any) -> tuple[Tensor, Tensor]:
    """Return the context, and the statistics of the rows for the gradients."""
    attention, tensors = _attention(*arguments)
    statistics = tensors[0].new_empty(2, *tensors[0].shape[:3], dtype=torch.float32)
    return attention.forward(*tensors, statistics=statistics), statistics


def _gradients(gradient: Tensor, context: Tensor, statistics: Tensor, *inputs: Any) -> list[Tensor]:
    """Return the gradients of queries, keys and values, and of those of the biases and the sink that need one."""
    *arguments, needs_grad = inputs
    attention, tensors = _attention(*arguments)
    context = context.transpose(1, 2).contiguous().transpose(1, 2)
    gradients = attention.backward(tensors, context, statistics, gradient, needs_grad)
    return [tensor for tensor in gradients if tensor is not None]


def _attention(*arguments: Any) -> tuple[DenseAttention, list[Any]]:
    *tensors, begin, end, seed, scale, soft_cap, dropout = arguments
    return DenseAttention(scale, begin, end, soft_cap, dropout, 0 if seed is None else int(seed)), tensors


def _fake_context(query: Tensor, key: Tensor, value: Tensor, *options: Any) -> tuple[Tensor, Tensor]:
    batch, heads, queries, _ = query.shape
    context = value.new_empty(batch, queries, heads, value.shape[3]).transpose(1, 2)
    return context, query.new_empty(2, batch, heads, queries, dtype=torch.float32)


def _fake_gradients(gradient: Tensor, context: Tensor, statistics: Tensor, *inputs: Any) -> list[Tensor]:
    side_by_side = [tensor.new_empty(tensor.transpose(1, 2).shape).transpose(1, 2) for tensor in inputs[:3]]
    terms = zip(inputs[3:6], inputs[-1], strict=True)
    return side_by_side + [term.new_empty(term.shape) for term, needs_grad in terms if needs_grad]


def _save(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    ctx.mark_non_differentiable(output[1])
    ctx.set_materialize_grads(False)
    ctx.save_for_backward(*output, *inputs[:9])
    ctx.options = inputs[9:]


def _backward(ctx: Any, gradient: Tensor, _: None) -> tuple[Tensor | None, ...]:
    if torch.is_grad_enabled():
        raise NotImplementedError("attent::dense_attention has only first derivatives; attend has others in eager mode")
    needs_grad = list(ctx.needs_input_grad[3:6])
    gradients = iter(dense_attention_backward(gradient, *ctx.saved_tensors, *ctx.options, needs_grad))
    inputs = [next(gradients) if needs else None for needs in (True, True, True, *needs_grad)]
    return *inputs, *[None] * 6


# not torch.library.custom_op, whose calls take 20 µs longer
LIBRARY = Library("attent", "FRAGMENT")
for name, schema, function, fake in (
    ("dense_attention", f"({ARGUMENTS}) -> (Tensor, Tensor)", _context, _fake_context),
    (
        "dense_attention_backward",
        f"(Tensor gradient, Tensor context, Tensor statistics, {ARGUMENTS}, bool[] needs_grad) -> Tensor[]",
        _gradients,
        _fake_gradients,
    ),
):
    LIBRARY.define(name + schema, tags=(torch.Tag.needs_exact_strides, torch.Tag.pt2_compliant_tag))
    LIBRARY.impl(name, function, "CPU")
    register_fake(f"attent::{name}", fake, lib=LIBRARY)
register_autograd("attent::dense_attention", _backward, setup_context=_save, lib=LIBRARY)
dense_attention = torch.ops.attent.dense_attention.default
dense_attention_backward = torch.ops.attent.dense_attention_backward.default
