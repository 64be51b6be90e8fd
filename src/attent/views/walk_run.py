"""A walk through an attention of a trained run, or through its whole layer, up to the words or classes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack, nullcontext
from dataclasses import dataclass
from typing import Any, Protocol, Self, cast

import torch
from torch import nn

from attent.attention.maps.attention_map import LabelledMap
from attent.attention.multihead import MultiHeadAttention
from attent.errors import ArgumentError, check_index
from attent.layers.feed_forward import FeedForward
from attent.layers.residual import Residual, Stream
from attent.views.attention_trace import AttentionTrace, parts_of
from attent.views.layer_steps import feed_forward_steps, norm_step, output_steps, residual_steps
from attent.views.panel import READING, choose, kind_of
from attent.views.render_walk import Walk
from attent.views.step import WalkStep, vectors


@dataclass(frozen=True)
class ForwardPass:
    """A text, and a function that runs the model over it, to be watched.

    Args:
        title: the text, with what the run makes of it.
        model: the run's.
        run: reads the text once, and returns every map by the name of its module.
        stack: the name of the module of layers whose features the output layer reads.
        output_name: the word or class of an output's index.
        outputs: what an output is, such as "words".
        first: the index of the first output that counts.
        rows: the positions with an output; all of them if None.
    """

    title: str
    model: nn.Module
    run: Callable[[], dict[str, LabelledMap]]
    stack: str
    output_name: Callable[[int], str]
    outputs: str = "words"
    first: int = 0
    rows: Sequence[int] | None = None


class Walkable(Protocol):
    """Interface of runs to walk through: a translator, a masked language model, a classifier."""

    def forward_pass(self, text: str, /) -> ForwardPass:
        """Return the forward pass over a text."""
        ...


@torch.no_grad()
def walk_run(
    run: Walkable, text: str, *, kind: str | None = None, layer: int | None = None, head: int = 0, whole: bool = False
) -> Walk:
    """Walk through an attention of a trained model while it reads a text.

    Args:
        run: as `attent.load` returns it.
        text: to translate, to fill in or to classify; or the file of a picture to classify.
        kind: "encoder" or "decoder" (self-attention), or "cross" (target to source); the first that the model has by
            default.
        layer: from 0; the last if not given.
        head: the head to show, from 0; the steps have all of them.
        whole: whether to go on through the layer, and from the last one to the likeliest words or classes.

    Raises:
        UnknownNameError: there is no such kind.
        ArgumentError: the model has no such layer or head, or the run refuses the text.
    """
    forward_pass = run.forward_pass(text)
    modules = {
        name: module
        for name, module in forward_pass.model.named_modules()
        if name.endswith(("self_attention", "cross_attention"))
    }
    kind = kind or kind_of(next(iter(modules), ""))
    name, attention = choose(modules, kind, layer)
    if not isinstance(attention, MultiHeadAttention):
        raise ArgumentError(f"{name} is a {type(attention).__name__}; a walk needs a MultiHeadAttention")
    check_index("head", head, attention.heads)
    layer_trace = LayerTrace(forward_pass.model, name) if whole else None
    with AttentionTrace(attention) as trace, layer_trace or nullcontext():
        labelled = forward_pass.run()[name]
    steps = trace.steps(labelled.weights, labelled.rows, labelled.columns, head=head)
    if layer_trace is not None:
        steps = {step.name: step for step in layer_trace.steps(list(steps.values()), forward_pass)}
    scope = f"{name}, head {head}{', and its layer' if whole else ''}"
    return Walk(
        f"{scope}, step by step: {forward_pass.title}", f"{parts_of(attention)}\n{READING[kind]}", {}, steps, head
    )


class LayerTrace:
    """Records what goes into a Transformer layer, and what its attention sub-layers add, in the last call.

    Args:
        model: the model.
        name: of one of its attentions.
    """

    def __init__(self, model: nn.Module, name: str) -> None:
        layer_name = name.rpartition(".")[0]
        self.stack_name, _, index = layer_name.removesuffix(".").partition(".layers.")
        self.attention, self.layer, self.stack = (
            cast(Any, model.get_submodule(path)) for path in (name, layer_name, self.stack_name)
        )
        self.is_last = int(index) == len(self.stack.layers) - 1
        self._traces = {
            module: AttentionTrace(module)
            for module, _ in self.layer.sub_layers
            if isinstance(module, MultiHeadAttention)
        }
        self._input = torch.empty(0)
        self._hooks = ExitStack()

    def __enter__(self) -> Self:
        for trace in self._traces.values():
            self._hooks.enter_context(trace)
        self._hooks.callback(self.layer.register_forward_pre_hook(self._record).remove)
        return self

    def __exit__(self, *error: object) -> None:
        self._hooks.close()

    def steps(self, attention_steps: list[WalkStep], forward_pass: ForwardPass) -> list[WalkStep]:
        """Return the steps of the attention, and all that follow in the layer.

        After the last layer those of the output.
        """
        first, *following = attention_steps
        sub_layers = list(self.layer.sub_layers)
        index = next(index for index, (module, _) in enumerate(sub_layers) if module is self.attention)
        stream = self._input
        for module, around in sub_layers[:index]:
            total = stream + self._traces[module].outputs["output"]
            stream = total if around.pre else around.norm(total)
        around = sub_layers[index][1]
        steps = [first, *following]
        if around.pre:
            before = vectors(
                "H",
                "H = what comes into the sub-layer",
                "A row of numbers for each position.",
                first.axes,
                stream,
                first.rows,
            )
            normalized = norm_step("X", before, around.norm)
            steps = [before, normalized, *following]
        steps += residual_steps(steps[0], steps[-1], around)
        for module, around in sub_layers[index + 1 :]:
            steps += self._sub_layer_steps(steps[-1], module, around)
        if not self.is_last or self.stack_name != forward_pass.stack:
            return steps
        if isinstance(self.stack.norm, nn.LayerNorm):
            steps.append(norm_step("features", steps[-1], self.stack.norm))
        logits = forward_pass.model.output(steps[-1].values)[..., forward_pass.first :]  # pyright: ignore[reportCallIssue]
        return steps + output_steps(
            steps[-1],
            logits,
            lambda index: forward_pass.output_name(forward_pass.first + index),
            forward_pass.rows,
            forward_pass.outputs,
        )

    def _sub_layer_steps(self, before: WalkStep, module: nn.Module, around: Residual) -> list[WalkStep]:
        """Return the steps of a sub-layer after the attention that is walked through."""
        suffix = "_ffn" if isinstance(module, FeedForward) else "_cross"
        steps = [norm_step(f"norm{suffix}", before, around.norm)] if around.pre else []
        if isinstance(module, FeedForward):
            steps += feed_forward_steps(steps[-1] if steps else before, module)
        else:
            output = self._traces[cast(MultiHeadAttention, module)].outputs["output"]
            equation, meaning = "cross = what the cross-attention adds", "A walk of its own: --kind cross."
            steps.append(vectors("cross", equation, meaning, "(B, T, E)", output, before.rows))
        return steps + residual_steps(before, steps[-1], around, suffix)

    def _record(self, module: nn.Module, inputs: tuple[Stream, ...]) -> None:
        stream = inputs[0]
        self._input = stream.features if stream.output is None else stream.features + stream.output
