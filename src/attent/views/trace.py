"""Listening to an attention module: every step from what it is given to what it passes on, out of its own call."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from typing import Self

from torch import Tensor, nn

from attent.attention import reference
from attent.attention.base import Side
from attent.attention.maps.attention_map import AttentionMap
from attent.attention.multihead import MultiHeadAttention
from attent.views.step import Step, formula_steps, name_of, vectors


class Listening:
    """Hears what goes into the projections of an attention and what comes out, the last time that it runs within the block.

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
                self._hooks.callback(module.register_forward_hook(partial(self._hear, name)).remove)
        return self

    def __exit__(self, *error: object) -> None:
        self._hooks.close()

    def steps(self, weights: AttentionMap, rows: Sequence[str], columns: Sequence[str], *, head: int = 0) -> dict[str, Step]:
        """Every step by name, in order; the numbers are those of `attent.attention.reference`.

        Args:
            weights: the map that the attention reported when it ran.
            rows: what each query is about.
            columns: what each key is about.
            head: the head that examples are taken from, from 0.
        """
        attention, call, query, key = self.attention, weights.call, weights.query, weights.key
        raw, value = (
            self.outputs[name].unflatten(-1, (attention.key_value_heads, -1)).transpose(1, 2)
            for name in ("key_projection", "value_projection")
        )  # (B, G, Tk, D)
        turned = attention.position is not None and attention.position.turns
        if call.lowered and (call.score.lowers_exactly or not turned):
            # a cache keeps the keys lowered; from the keys themselves the score shows more of its steps
            call, key = replace(call, lowered=False), key if call.score.lowers_exactly else Side(raw)
        keys = call.spread(raw if call.lowered else key.features)
        found = [
            *self._inputs(rows, columns),
            self._projected("Q", query, rows, "(B, H, Tq, Dk)", "The queries: what each row looks for.", turned=turned),
            self._projected("K", keys, columns, "(B, H, Tk, Dk)", "The keys: what each row can be found by.", turned=turned),
            self._projected(
                "V", call.spread(value), columns, "(B, H, Tk, Dv)", "The values: what each row gives to those that look at it."
            ),
            *formula_steps(call, reference.steps(call, query, key, value), query, keys, rows, columns, head=head),
        ]
        if call.heads > 1:
            merged = found[-1].values.transpose(1, 2).flatten(2)
            heads = "; ".join(f"head {number}" for number in range(call.heads))
            found.append(vectors("merged", f"merged = [{heads}]", "The heads' outputs side by side.", "(B, Tq, H·Dv)", merged, rows))
        if "output" in self.outputs:
            equation = f"result = {found[-1].name}·W_O" + (" + b_O" if getattr(attention.output, "bias", None) is not None else "")
            found.append(vectors("result", equation, "What the attention passes on.", "(B, Tq, E)", self.outputs["output"], rows))
        return {step.name: step for step in found}

    def _inputs(self, rows: Sequence[str], columns: Sequence[str]) -> list[Step]:
        """X, and M where the keys are made of something else."""
        given, memory = self.inputs["query_projection"], self.inputs["key_projection"]
        steps = [vectors("X", "X = what the attention is given", "A row of numbers for each query.", "(B, Tq, E)", given, rows)]
        if memory is not given:
            said = "M = what the encoder made of the source", "A row of numbers for each key."
            steps.append(vectors("M", *said, "(B, Tk, E)", memory, columns))
        return steps

    def _projected(self, letter: str, values: Tensor, labels: Sequence[str], axes: str, meaning: str, *, turned: bool = False) -> Step:
        attention = self.attention
        crossed = letter != "Q" and self.inputs["key_projection"] is not self.inputs["query_projection"]
        shared = letter != "Q" and attention.key_value_heads < attention.heads
        parts = [
            f"{letter} = {'M' if crossed else 'X'}·W_{letter}" + (f" + b_{letter}" if attention.query_projection.bias is not None else ""),
            f"cut into {attention.key_value_heads if shared else attention.heads} heads" if attention.heads > 1 else "",
            f"each for {attention.heads // attention.key_value_heads} heads of queries" if shared else "",
            f"turned by {name_of(attention.position)}" if turned else "",
        ]
        return vectors(letter, ", ".join(filter(None, parts)), meaning, axes, values, labels)

    def _hear(self, name: str, module: nn.Module, inputs: tuple[Tensor, ...], output: Tensor) -> None:
        self.inputs[name], self.outputs[name] = inputs[0], output
