"""A walk through attention: every step with its equation, its shape and its numbers, with words as labels."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from typing import Self

import torch
from torch import Tensor, nn

from attent.attention import reference
from attent.attention.base import LoweredSide, Mask, Normalizer, Score
from attent.attention.capture.watch import watch
from attent.attention.maps.attention_map import AttentionMap
from attent.attention.multihead import MultiHeadAttention
from attent.attention.scores import ScaledDot
from attent.decoding.translator import Translator
from attent.errors import ArgumentError, check_index
from attent.registry import keyword_aliases
from attent.views.panel import choose
from attent.views.render_walk import Walk
from attent.views.step import WalkStep, equation_of, features, formula_steps, name_of, vectors


@torch.no_grad()
@keyword_aliases(normaliser="normalizer")
def walk(
    text: str = "The cat sat on the mat",
    *,
    score: str | Score = "scaled_dot",
    scale: bool = True,
    heads: int = 1,
    normalizer: str | Normalizer = "softmax",
    mask: str | Mask | None = None,
    seed: int = 0,
    width: int = 4,
) -> Walk:
    """Walk through the self-attention of a sentence, with invented numbers that are small enough to follow.

    Words are separated by spaces. The vector of a word is random, but always the same for the same word; the matrices are random by
    the seed. The numbers are those of `attent.attention.reference`.

    Args:
        text: the sentence.
        score: by name, built for the widths here, or a Score.
        scale: False leaves the division by √Dk out of the scaled dot product.
        heads: the number of heads that share the width.
        normalizer: scores → weights.
        mask: "causal", or a Mask.
        seed: of the matrices.
        width: the numbers of a word.

    Raises:
        ArgumentError: there is no word, heads do not divide the width, or there is no scale to leave out.
        UnknownNameError: a part does not exist.
    """
    words = tuple(text.split())
    if not words:
        raise ArgumentError("a walk needs a text of at least one word")
    if width < 1:
        raise ArgumentError(f"width must be ≥ 1, got {width}")
    if heads < 1 or width % heads:
        raise ArgumentError(f"heads must divide the width, {width}, got {heads}")
    if not scale:
        if not isinstance(score, str) or score not in ("dot", "scaled_dot", *ScaledDot.aliases):
            name = score if isinstance(score, str) else name_of(score)
            raise ArgumentError(f"only the scaled dot product has a scale to leave out, got score {name!r}")
        score = "dot"
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        attention = MultiHeadAttention(width, heads, bias=False, output=None, score=score, normalizer=normalizer).eval()
        for projection in (attention.query_projection, attention.key_projection, attention.value_projection):
            # variance 1 in, variance 1 out: the weights come out neither uniform nor one-hot
            nn.init.normal_(projection.weight, std=width**-0.5)
    embeddings = torch.stack([_vector(word, width) for word in words])[None]  # (1, T, E)
    with AttentionTrace(attention) as trace, watch(attention) as maps:
        attention(embeddings, mask=mask)
    steps = trace.steps(maps[""], words, words)
    steps["X"] = replace(
        steps["X"], equation="X", meaning=f"Each word is a row of {width} numbers: made up, but the same word always has the same row."
    )
    parts = f"{_parts(attention)} · mask {mask if isinstance(mask, str) else type(mask).__name__ if mask else 'none'} · seed {seed}"
    return Walk(f"Self-attention, step by step: {' '.join(words)}", parts, _parameters(attention), steps)


@torch.no_grad()
def walk_run(translator: Translator, text: str, *, kind: str = "encoder", layer: int | None = None, head: int = 0) -> Walk:
    """Walk through an attention of a trained model while it translates a text.

    Args:
        translator: as `attent.load` returns it.
        text: the source.
        kind: "encoder" or "decoder" (self-attention), or "cross" (target to source).
        layer: from 0; the last if not given.
        head: the head to show, from 0; the steps have all of them.

    Raises:
        UnknownNameError: there is no such kind.
        ArgumentError: the model has no such layer or head, or the translator refuses the text.
    """
    modules = {name: module for name, module in translator.model.named_modules() if name.endswith(("self_attention", "cross_attention"))}
    name, attention = choose(modules, kind, layer)
    if not isinstance(attention, MultiHeadAttention):
        raise ArgumentError(f"{name} is a {type(attention).__name__}; a walk needs a MultiHeadAttention")
    check_index("head", head, attention.heads)
    if reason := translator.refusal(text):
        raise ArgumentError(reason)
    target = translator.translate(text)
    with AttentionTrace(attention) as trace:
        labelled = translator.map(text, target)[name]
    steps = trace.steps(labelled.weights, labelled.rows, labelled.columns, head=head)
    return Walk(f"{name}, head {head}, step by step: {text} → {target}", _parts(attention), {}, steps, head)


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

    def steps(self, weights: AttentionMap, rows: Sequence[str], columns: Sequence[str], *, head: int = 0) -> dict[str, WalkStep]:
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
        inputs, memory = self.inputs["query_projection"], self.inputs["key_projection"]
        steps = [vectors("X", "X = what the attention is given", "A row of numbers for each query.", "(B, Tq, E)", inputs, rows)]
        if memory is not inputs:
            equation = "M = what the encoder made of the source"
            steps.append(vectors("M", equation, "A row of numbers for each key.", "(B, Tk, E)", memory, columns))
        steps += [
            self._projected("Q", query, rows, "(B, H, Tq, Dk)", "The queries: what each row looks for.", has_rotation=has_rotation),
            self._projected("K", keys, columns, "(B, H, Tk, Dk)", "The keys: what each row can be found by.", has_rotation=has_rotation),
            self._projected(
                "V", call.repeat_kv(value), columns, "(B, H, Tk, Dv)", "The values: what each row gives to those that look at it."
            ),
            *formula_steps(call, reference.steps(call, query, key, value), query, keys, rows, columns, head=head),
        ]
        if call.heads > 1:
            merged = steps[-1].values.transpose(1, 2).flatten(2)
            heads = "; ".join(f"head {number}" for number in range(call.heads))
            steps.append(vectors("merged", f"merged = [{heads}]", "The heads' outputs side by side.", "(B, Tq, H·Dv)", merged, rows))
        if "output" in self.outputs:
            equation = f"result = {steps[-1].name}·W_O" + (" + b_O" if getattr(attention.output, "bias", None) is not None else "")
            steps.append(vectors("result", equation, "What the attention passes on.", "(B, Tq, E)", self.outputs["output"], rows))
        return {step.name: step for step in steps}

    def _projected(
        self, letter: str, values: Tensor, labels: Sequence[str], axes: str, meaning: str, *, has_rotation: bool = False
    ) -> WalkStep:
        attention = self.attention
        source = "M" if letter != "Q" and self.inputs["key_projection"] is not self.inputs["query_projection"] else "X"
        is_shared = letter != "Q" and attention.key_value_heads < attention.heads
        parts = [
            f"{letter} = {source}·W_{letter}" + (f" + b_{letter}" if attention.query_projection.bias is not None else ""),
            f"cut into {attention.key_value_heads if is_shared else attention.heads} heads" if attention.heads > 1 else "",
            f"each for {attention.heads // attention.key_value_heads} heads of queries" if is_shared else "",
            f"turned by {name_of(attention.position)}" if has_rotation else "",
        ]
        return vectors(letter, ", ".join(filter(None, parts)), meaning, axes, values, labels)

    def _record(self, name: str, module: nn.Module, inputs: tuple[Tensor, ...], output: Tensor) -> None:
        self.inputs[name], self.outputs[name] = inputs[0], output


def _vector(word: str, width: int) -> Tensor:
    """Return an invented embedding, a function of the word alone."""
    seed = int.from_bytes(hashlib.blake2b(word.encode(), digest_size=7).digest(), "big")
    return torch.randn(width, generator=torch.Generator().manual_seed(seed))


def _parameters(attention: MultiHeadAttention) -> dict[str, WalkStep]:
    """Return the matrices of a walk: of the projections, transposed as Q = X·W_Q has them, then of the score."""
    projections = zip("QKV", (attention.query_projection, attention.key_projection, attention.value_projection), strict=True)
    matrices = {f"W_{letter}": (projection.weight.T, features(projection.in_features)) for letter, projection in projections}
    for name, parameter in attention.score.named_parameters():
        matrix = parameter.reshape(-1, parameter.shape[-1])
        rows_per_head = matrix.shape[0] // attention.heads if attention.score.heads is not None else matrix.shape[0]
        # a vector is one row without a label
        labels = features(rows_per_head) if parameter.dim() > (1 if attention.score.heads is None else 2) else ("",)
        if attention.heads > 1:
            repeated = labels * (matrix.shape[0] // rows_per_head)
            labels = tuple(f"head{row // rows_per_head}" + (f"·{label}" if label else "") for row, label in enumerate(repeated))
        matrices[f"score.{name}"] = (matrix, labels)
    return {
        name: WalkStep(
            name, name, "Learnt in a trained model; here it is random.", "(rows, columns)", matrix.detach(), rows, features(matrix.shape[1])
        )
        for name, (matrix, rows) in matrices.items()
    }


def _parts(attention: MultiHeadAttention) -> str:
    heads = f"{attention.heads} head{'s' if attention.heads > 1 else ''} of width {attention.key_width}"
    return f"{equation_of(attention.score)} · {name_of(attention.normaliser)} · {heads}"
