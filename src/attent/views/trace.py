"""The steps of a model's last call: those of an attention, from its projections and map, and those of its layer.

The latter are the residual connection, layer normalization, feed-forward network and output.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, cast

import torch
from torch import Tensor, nn

from attent.attention import reference
from attent.attention.base import LoweredSide
from attent.attention.maps.attention_map import AttentionMap, LabelledMap
from attent.attention.multihead import MultiHeadAttention
from attent.layers.feed_forward import FeedForward
from attent.layers.residual import Residual, Stream
from attent.views.labels import visible
from attent.views.step import WalkStep, equation_of, formula_steps, name_of, vectors


class AttentionTrace(ExitStack):
    """Records the inputs and outputs of an attention's projections in its last call, until it is closed.

    Args:
        attention: the attention, whose map is recorded by `watch`.
    """

    def __init__(self, attention: MultiHeadAttention) -> None:
        super().__init__()
        self.attention = attention
        self.inputs: dict[str, Tensor] = {}
        self.outputs: dict[str, Tensor] = {}
        for name in ("query_projection", "key_projection", "value_projection", "output"):
            if (module := getattr(attention, name)) is not None:
                self.callback(module.register_forward_hook(partial(self._record, name)).remove)

    def steps(
        self, weights: AttentionMap, rows: Sequence[str], columns: Sequence[str], *, head: int = 0
    ) -> dict[str, WalkStep]:
        """Return every step by name, in order; the numbers are those of `attent.attention.reference`.

        Args:
            weights: the map of the recorded call.
            rows: a label for each query.
            columns: a label for each key.
            head: the head of the examples, from 0.
        """
        attention, call, query, key = self.attention, weights.call, weights.query, weights.key
        raw_key, value = (
            self.outputs[name].unflatten(-1, (attention.key_value_heads, -1)).transpose(1, 2)
            for name in ("key_projection", "value_projection")
        )  # (B, G, Tk, D)
        has_rotation = attention.position is not None and attention.position.rotates
        if call.lowered and (call.score.lowers_exactly or not has_rotation):
            # a cache holds lowered keys; the score shows more of its steps if it is given the original keys
            call, key = replace(call, lowered=False), key if call.score.lowers_exactly else LoweredSide(raw_key)
        keys = call.repeat_kv(raw_key if call.lowered else key.features)
        steps = [
            *self._given(rows, columns),
            self._projected(
                "Q", query, rows, "(B, H, Tq, Dk)", "The queries: what each row looks for.", has_rotation=has_rotation
            ),
            self._projected(
                "K",
                keys,
                columns,
                "(B, H, Tk, Dk)",
                "The keys: what each row can be found by.",
                has_rotation=has_rotation,
            ),
            self._projected(
                "V",
                call.repeat_kv(value),
                columns,
                "(B, H, Tk, Dv)",
                "The values: what each row gives to those that look at it.",
            ),
            *formula_steps(call, reference.steps(call, query, key, value), query, keys, rows, columns, head=head),
        ]
        if call.heads > 1:
            merged = steps[-1].values.transpose(1, 2).flatten(2)
            heads = "; ".join(f"head {number}" for number in range(call.heads))
            steps.append(
                vectors(
                    "merged", f"merged = [{heads}]", "The heads' outputs side by side.", "(B, Tq, H·Dv)", merged, rows
                )
            )
        if "output" in self.outputs:
            equation = f"result = {steps[-1].name}·W_O" + (
                " + b_O" if getattr(attention.output, "bias", None) is not None else ""
            )
            steps.append(
                vectors("result", equation, "What the attention passes on.", "(B, Tq, E)", self.outputs["output"], rows)
            )
        return {step.name: step for step in steps}

    def _given(self, rows: Sequence[str], columns: Sequence[str]) -> Iterator[WalkStep]:
        inputs, memory = self.inputs["query_projection"], self.inputs["key_projection"]
        equation = "X = what the attention is given"
        yield vectors("X", equation, "A row of numbers for each query.", "(B, Tq, E)", inputs, rows)
        if memory is not inputs:
            equation = "M = what the encoder made of the source"
            yield vectors("M", equation, "A row of numbers for each key.", "(B, Tk, E)", memory, columns)

    def _projected(
        self, letter: str, values: Tensor, labels: Sequence[str], axes: str, meaning: str, *, has_rotation: bool = False
    ) -> WalkStep:
        attention = self.attention
        source = "M" if letter != "Q" and self.inputs["key_projection"] is not self.inputs["query_projection"] else "X"
        is_shared = letter != "Q" and attention.key_value_heads < attention.heads
        parts = [
            f"{letter} = {source}·W_{letter}"
            + (f" + b_{letter}" if attention.query_projection.bias is not None else ""),
            f"cut into {attention.key_value_heads if is_shared else attention.heads} heads"
            if attention.heads > 1
            else "",
            f"each for {attention.heads // attention.key_value_heads} heads of queries" if is_shared else "",
            f"turned by {name_of(attention.position)}" if has_rotation else "",
        ]
        return vectors(letter, ", ".join(filter(None, parts)), meaning, axes, values, labels)

    def _record(self, name: str, module: nn.Module, inputs: tuple[Tensor, ...], output: Tensor) -> None:
        self.inputs[name], self.outputs[name] = inputs[0], output


def parts_of(attention: MultiHeadAttention) -> str:
    """Return a description of an attention's score, normalizer and heads."""
    heads = f"{attention.heads} head{'s' if attention.heads > 1 else ''} of width {attention.key_width}"
    return f"{equation_of(attention.score)} · {name_of(attention.normalizer)} · {heads}"


# Number of most likely words shown per row.
BEST = 5
ACTIVATIONS = {"relu": "max(0, {})", "gelu": "gelu({})", "silu": "silu({})"}


def residual_steps(before: WalkStep, output: WalkStep, around: Residual, suffix: str = "") -> list[WalkStep]:
    """Return the sum of a sub-layer's input and output and, with post-norm, its layer normalization.

    Args:
        before: the residual stream before the sub-layer.
        output: the output of the sub-layer.
        around: the residual connection of the sub-layer.
        suffix: a suffix for the names of the steps.
    """
    equation = f"residual{suffix} = {before.name} + {output.name}"
    meaning = "What came in, and what was found: the sub-layer only has to add."
    total = vectors(f"residual{suffix}", equation, meaning, "(B, T, E)", before.values + output.values, before.rows)
    return [total] if around.pre else [total, norm_step(f"norm{suffix}", total, around.norm)]


def norm_step(name: str, before: WalkStep, norm: nn.Module) -> WalkStep:
    """Return the layer normalization of a step."""
    values = before.values
    mean, variance = values.mean(-1), values.var(-1, correction=0)
    step = vectors(
        name,
        f"{name} = γ · ({before.name} − mean) / √(variance + ε) + β",
        "Layer normalization: each row has mean 0 and variance 1, then a factor γ and a term β for each feature.",
        "(B, T, E)",
        norm(values),
        before.rows,
    )
    statistics = f"mean {mean[0, 0]:.2f} and variance {variance[0, 0]:.2f}" if step.rows else ""
    return replace(step, example=f"{before.name}[{visible(step.rows[0])}] has {statistics}") if step.rows else step


def feed_forward_steps(before: WalkStep, module: FeedForward) -> list[WalkStep]:
    """Return the two steps of a feed-forward network: to the wider layer, and back."""
    activation = ACTIVATIONS[module.activation.__name__].format(f"{before.name}·W₁ + b₁")
    hidden = vectors(
        "wide",
        f"wide = {activation}",
        "The feed-forward network, the same for each position: what a position has gathered is compared with patterns.",
        "(B, T, F)",
        module.activation(module.widen(before.values)),
        before.rows,
    )
    meaning = "Each pattern that fits writes something to the position."
    return [
        hidden,
        vectors("ffn", "ffn = wide·W₂ + b₂", meaning, "(B, T, E)", module.narrow(hidden.values), before.rows),
    ]


def output_steps(
    before: WalkStep, logits: Tensor, name: Callable[[int], str], rows: Sequence[int] | None, letters: str
) -> list[WalkStep]:
    """Return the logits and the softmax over all words or classes; each row shows the most likely ones.

    Args:
        before: the features that the output layer reads.
        logits: the logits of every row, (1, T, V).
        name: a function from an output's index to its name.
        rows: the rows with an output; all of them if None.
        letters: the outputs counted by V, such as "words".
    """
    rows = range(len(before.rows)) if rows is None else rows
    logits = logits[:, list(rows)].float()
    labels = tuple(before.rows[row] for row in rows)
    best = min(BEST, logits.shape[-1])
    probabilities, indices = logits.softmax(-1).topk(best, -1)
    words = tuple(tuple(name(index) for index in row) for row in indices[0].tolist())
    columns = tuple(f"{rank}." for rank in range(1, best + 1))
    count = f"{logits.shape[-1]:,} {letters}"
    return [
        WalkStep(
            "logits", f"logits = {before.name}·W + b",
            f"A number for each of {count}; shown are the largest.", "(B, T, V)",
            logits.gather(-1, indices), labels, columns, cells=words,
        ),
        WalkStep(
            "probabilities", "probabilities = softmax(logits)",
            f"exp logits / Σ exp logits over {count}: the likeliest.", "(B, T, V)", probabilities, labels, columns,
            cells=words,
        ),
    ]  # fmt: skip


@dataclass(frozen=True)
class ForwardPass:
    """A text, and a function that runs the model on it.

    Args:
        title: the text and the run's result for it.
        model: the model of the run.
        run: a function that reads the text once, and returns every map by module name.
        stack: the name of the stack of layers whose features the output layer reads.
        output_name: a function from an output's index to its word or class.
        outputs: the kind of outputs, such as "words".
        first: the index of the first output that is shown.
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


class LayerTrace(ExitStack):
    """Records the input of a Transformer layer and the outputs of its attention sub-layers in the last call.

    Args:
        model: the model.
        name: the name of one of its attentions.
    """

    def __init__(self, model: nn.Module, name: str) -> None:
        super().__init__()
        layer_name = name.rpartition(".")[0]
        self.stack_name, _, index = layer_name.partition(".layers.")
        self.attention, self.layer, self.stack = (
            cast(Any, model.get_submodule(path)) for path in (name, layer_name, self.stack_name)
        )
        self.is_last = int(index) == len(self.stack.layers) - 1
        self._traces = {
            module: self.enter_context(AttentionTrace(module))
            for module, _ in self.layer.sub_layers
            if isinstance(module, MultiHeadAttention)
        }
        self._input = torch.empty(0)
        self.callback(self.layer.register_forward_pre_hook(self._record).remove)

    def steps(self, attention_steps: list[WalkStep], forward_pass: ForwardPass) -> list[WalkStep]:
        """Return the steps of the attention and all later steps in the layer.

        The last layer is followed by the steps of the output.
        """
        first, *following = attention_steps
        sub_layers = list(self.layer.sub_layers)
        index = next(index for index, (module, _) in enumerate(sub_layers) if module is self.attention)
        stream = self._input
        for module, around in sub_layers[:index]:
            total = stream + self._output(module, stream, around)
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
            steps = [before, norm_step("X", before, around.norm), *following]
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

    def _output(self, module: nn.Module, stream: Tensor, around: Residual) -> Tensor:
        if isinstance(module, MultiHeadAttention):
            return self._traces[module].outputs["output"]
        return module(around.norm(stream) if around.pre else stream)[0]

    def _sub_layer_steps(self, before: WalkStep, module: nn.Module, around: Residual) -> list[WalkStep]:
        """Return the steps of a sub-layer after the attention shown in the walk."""
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
