"""The steps of an attention module's last call, from what its projections read and write, and from its map."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from typing import Self

from torch import Tensor, nn

from attent.attention import reference
from attent.attention.base import LoweredSide
from attent.attention.maps.attention_map import AttentionMap
from attent.attention.multihead import MultiHeadAttention
from attent.views.step import WalkStep, equation_of, formula_steps, name_of, vectors


class AttentionTrace:
    """Records the inputs and outputs of an attention's projections, of its last call within the block.

    Args:
        attention: the module, whose map `watch` has.
    """

    def __init__(self, attention: MultiHeadAttention) -> None:
        self.attention = attention
        self.inputs: dict[str, Tensor] = {}
        self.outputs: dict[str, Tensor] = {}
        self._hooks = ExitStack()

    def __enter__(self) -> Self:
        for name in ("query_projection", "key_projection", "value_projection", "output"):
            module = getattr(self.attention, name)
            if module is not None:
                self._hooks.callback(module.register_forward_hook(partial(self._record, name)).remove)
        return self

    def __exit__(self, *error: object) -> None:
        self._hooks.close()

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
            # a cache holds lowered keys; the score shows more of its steps when it gets the keys themselves
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
    """Return the score, the normalizer and the heads of an attention in words."""
    heads = f"{attention.heads} head{'s' if attention.heads > 1 else ''} of width {attention.key_width}"
    return f"{equation_of(attention.score)} · {name_of(attention.normalizer)} · {heads}"
