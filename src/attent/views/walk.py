"""A walk through attention: every step with its equation, its shape and its numbers, named by the words."""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from attent.attention import formula
from attent.attention.map import AttentionMap
from attent.attention.multihead import MultiHeadAttention
from attent.attention.parts import Mask, Normaliser, Score, Side
from attent.attention.scores import ScaledDot
from attent.attention.watch import watch
from attent.decoding.translator import Translator
from attent.errors import ArgumentError
from attent.views import walk_html, walk_text
from attent.views.panel import choose, kind_of
from attent.views.step import Step, equation_of, features, formula_steps

UNSCALED = "dot"


@dataclass(frozen=True)
class Walk:
    """Every step of one attention; `print` shows it, a notebook shows it as tables.

    Args:
        title: what is walked through.
        parts: the score, the normaliser and the heads, in words.
        parameters: the matrices that the steps use, by name.
        steps: the steps by name, in order.
        head: the one head that is shown, from 0; all of them if None.
    """

    title: str
    parts: str
    parameters: Mapping[str, Step]
    steps: Mapping[str, Step]
    head: int | None = None

    def text(self, columns: int | None = None) -> str:
        """The walk for a terminal of so many columns, found out if not given."""
        columns = shutil.get_terminal_size().columns if columns is None else columns
        return walk_text.written(self.title, self.parts, self.parameters, self.steps, head=self.head, columns=columns)

    def __str__(self) -> str:
        return self.text()

    def _repr_html_(self) -> str:
        return walk_html.written(self.title, self.parts, self.parameters, self.steps, head=self.head)


@torch.no_grad()
def walk(
    text: str = "The cat sat on the mat",
    *,
    score: str | Score = "scaled_dot",
    scale: bool = True,
    heads: int = 1,
    normaliser: str | Normaliser = "softmax",
    mask: str | Mask | None = None,
    seed: int = 0,
    width: int = 4,
) -> Walk:
    """Walk through the self-attention of a sentence, with made-up numbers that are small enough to follow.

    The words are those between spaces. A word's vector is random, but the same word always has the same one; the
    matrices are random by the seed. The numbers are those of `attent.attention.formula`.

    Args:
        text: the sentence.
        score: by name, built for the widths here, or a Score.
        scale: False leaves the division by √Dk out of the scaled dot product.
        heads: how many heads the width is split into.
        normaliser: scores → weights.
        mask: "causal", or a Mask.
        seed: of the matrices.
        width: how many numbers a word has.

    Raises:
        ArgumentError: there is no word, heads do not divide the width, or there is no scale to leave out.
        UnknownNameError: a part that does not exist.
    """
    words = tuple(text.split())
    if not words:
        raise ArgumentError("a walk needs a text of at least one word")
    if width < 1:
        raise ArgumentError(f"width must be ≥ 1, got {width}")
    if not scale:
        score = _unscaled(score)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        attention = MultiHeadAttention(width, heads, bias=False, output=None, score=score, normaliser=normaliser).eval()
        for projection in (attention.query_projection, attention.key_projection, attention.value_projection):
            # variance 1 in, variance 1 out: the weights come out neither all alike nor all or nothing
            nn.init.normal_(projection.weight, std=width**-0.5)
    given = torch.stack([_vector(word, width) for word in words])[None]  # (1, T, E)
    heard = _Heard(attention)
    with heard, watch(attention) as seen:
        attention(given, mask=mask)
    steps = _steps(attention, seen[""], heard, words, words, ("X", "X"))
    meaning = f"Each word is a row of {width} numbers: made up, but the same word always has the same row."
    steps["X"] = replace(steps["X"], equation="X", meaning=meaning)
    parts = f"{_parts(attention)} · mask {mask if isinstance(mask, str) else type(mask).__name__ if mask else 'none'} · seed {seed}"
    return Walk(f"Self-attention, step by step: {' '.join(words)}", parts, _parameters(attention), steps)


@torch.no_grad()
def walk_run(translator: Translator, text: str, *, kind: str = "encoder", layer: int | None = None, head: int = 0) -> Walk:
    """Walk through an attention of a trained model, while it translates a text.

    Args:
        translator: the model and its tokenizers, as `attent.load` returns them.
        text: the source.
        kind: "encoder" and "decoder" (each looks at itself), or "cross" (the target looks at the source).
        layer: from 0; the last if not given.
        head: which head is shown, from 0; the steps hold all of them.

    Raises:
        UnknownNameError: no such kind.
        ArgumentError: the model has no such layer or head, or the text is empty.
    """
    name, _ = choose(translator.map(text), kind, layer)
    attention = translator.model.get_submodule(name)
    if not isinstance(attention, MultiHeadAttention):
        raise ArgumentError(f"{name} is a {type(attention).__name__}; a walk needs a MultiHeadAttention")
    if not 0 <= head < attention.heads:
        raise ArgumentError(f"head must be from 0 to {attention.heads - 1}, got {head}")
    target = translator.translate([text])[0]
    heard = _Heard(attention)
    with heard:
        labelled = translator.map(text, target)[name]
    steps = _steps(attention, labelled.weights, heard, labelled.rows, labelled.columns, ("X", "M" if kind_of(name) == "cross" else "X"))
    return Walk(f"{name}, head {head}, step by step: {text} → {target}", _parts(attention), {}, steps, head)


class _Heard:
    """What goes into the projections of an attention and what comes out, the last time that it runs within the block."""

    def __init__(self, attention: MultiHeadAttention) -> None:
        self.attention = attention
        self.inputs: dict[str, Tensor] = {}
        self.outputs: dict[str, Tensor] = {}
        self._hooks = ExitStack()

    def __enter__(self) -> None:
        for name in ("query_projection", "key_projection", "value_projection", "output"):
            module = self.attention.get_submodule(name) if getattr(self.attention, name) is not None else None
            if module is not None:
                self._hooks.callback(module.register_forward_hook(partial(self._hear, name)).remove)

    def __exit__(self, *error: object) -> None:
        self._hooks.close()

    def _hear(self, name: str, module: nn.Module, inputs: tuple[Tensor, ...], output: Tensor) -> None:
        self.inputs[name], self.outputs[name] = inputs[0].detach(), output.detach()


def _steps(
    attention: MultiHeadAttention,
    weights: AttentionMap,
    heard: _Heard,
    rows: tuple[str, ...],
    columns: tuple[str, ...],
    names: tuple[str, str],
) -> dict[str, Step]:
    """Every step from the input to the output, out of what the attention itself did."""
    call, query, key = weights._call, weights._query, weights._key  # pyright: ignore[reportPrivateUsage]
    raw = heard.outputs["key_projection"].unflatten(-1, (attention.key_value_heads, -1)).transpose(1, 2)
    value = heard.outputs["value_projection"].unflatten(-1, (attention.key_value_heads, -1)).transpose(1, 2)
    turned = attention.position is not None and attention.position.turns
    if call.lowered and (call.score.lowers_exactly or not turned):
        # a cache keeps lowered keys; from the keys themselves the score shows more of its steps
        call, key = replace(call, lowered=False), key if call.score.lowers_exactly else Side(raw)
    keys = raw if call.lowered else key.features
    given, remembered = heard.inputs["query_projection"], heard.inputs["key_projection"]
    x, m = names
    found = [Step("X", "X = what the layer is given", _INPUT, "(B, Tq, E)", given, rows, features(given.shape[-1]))]
    if m != x:
        found.append(
            Step("M", "M = what the encoder made of the source", _INPUT, "(B, Tk, E)", remembered, columns, features(remembered.shape[-1]))
        )
    for letter, source, values, labels, axes, meaning in (
        ("Q", x, query, rows, "(B, H, Tq, Dk)", "The queries: what each row looks for."),
        ("K", m, keys, columns, "(B, H, Tk, Dk)", "The keys: what each row can be found by."),
        ("V", m, value, columns, "(B, H, Tk, Dv)", "The values: what each row gives to those that look at it."),
    ):
        equation = f"{letter} = {source}·W_{letter}" + (f" + b_{letter}" if attention.query_projection.bias is not None else "")
        equation += f", cut into {call.heads} heads" if call.heads > 1 else ""
        equation += f", of which {call.heads // values.shape[1]} at a time share one" if values.shape[1] < call.heads else ""
        equation += f", turned by {_name(attention.position)}" if turned and letter != "V" else ""
        found.append(Step(letter, equation, meaning, axes, call.spread(values), labels, features(values.shape[-1])))
    found += formula_steps(call, formula.steps(call, query, key, value), query, keys, rows, columns)
    output = found[-1].values
    if call.heads > 1:
        merged = output.transpose(1, 2).flatten(2)
        found.append(
            Step(
                "merged",
                "merged = [output of head 0; head 1; …]",
                "The heads side by side.",
                "(B, Tq, H·Dv)",
                merged,
                rows,
                features(merged.shape[-1]),
            )
        )
    if "output" in heard.outputs:
        result = heard.outputs["output"]
        before = found[-1].name
        found.append(
            Step(
                "result",
                f"result = {before}·W_O + b_O",
                "What the layer passes on.",
                "(B, Tq, E)",
                result,
                rows,
                features(result.shape[-1]),
            )
        )
    return {step.name: step for step in found}


_INPUT = "One row of numbers for each piece."


def _vector(word: str, width: int) -> Tensor:
    """A word's made-up embedding, decided by the word alone."""
    seed = int.from_bytes(hashlib.blake2b(word.encode(), digest_size=7).digest(), "big")
    return torch.randn(width, generator=torch.Generator().manual_seed(seed))


def _unscaled(score: str | Score) -> str | Score:
    if score == UNSCALED or (isinstance(score, str) and score in ("scaled_dot", *ScaledDot.aliases)):
        return UNSCALED
    raise ArgumentError(
        f"only the scaled dot product has a scale to leave out, got score {score if isinstance(score, str) else _name(score)!r}"
    )


def _parameters(attention: MultiHeadAttention) -> dict[str, Step]:
    """The matrices that a walk uses: those of the projections as Q = X·W_Q has them, then those of the score."""
    projections = zip("QKV", (attention.query_projection, attention.key_projection, attention.value_projection), strict=True)
    found = {f"W_{letter}": (projection.weight.T, features(projection.in_features)) for letter, projection in projections}
    for name, parameter in attention.score.named_parameters():
        matrix = parameter.reshape(-1, parameter.shape[-1])
        each = matrix.shape[0] // attention.heads if attention.score.heads is not None else matrix.shape[0]
        rows = [f"head {row // each} {label}" for row, label in enumerate(features(each) * (matrix.shape[0] // each))]
        found[f"score.{name}"] = (matrix, tuple(rows) if attention.heads > 1 else features(each))
    meaning = "Learnt in a trained model; here it is random."
    return {
        name: Step(name, name, meaning, "(rows, columns)", matrix.detach(), rows, features(matrix.shape[1]))
        for name, (matrix, rows) in found.items()
    }


def _parts(attention: MultiHeadAttention) -> str:
    heads = f"{attention.heads} head{'s' if attention.heads > 1 else ''} of width {attention.key_width}"
    return f"{equation_of(attention.score)} · {_name(attention.normaliser)} · {heads}"


def _name(part: Any) -> str:
    return type(part).__name__.lower()
