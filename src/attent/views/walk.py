"""A walk through attention: every step with its equation, its shape and its numbers, named by the words."""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from attent.attention.base import Mask, Normalizer, Score
from attent.attention.capture.watch import watch
from attent.attention.multihead import MultiHeadAttention
from attent.attention.scores import ScaledDot
from attent.decoding.translator import Translator
from attent.errors import ArgumentError
from attent.registry import keyword_aliases
from attent.views import walk_html, walk_text
from attent.views.panel import choose
from attent.views.step import Step, equation_of, features, name_of
from attent.views.trace import Listening

UNSCALED = "dot"


@dataclass(frozen=True)
class Walk:
    """Every step of one attention; `print` shows it, a notebook shows it as tables.

    Args:
        title: what is walked through.
        parts: the score, the normalizer and the heads, in words.
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
    """Walk through the self-attention of a sentence, with made-up numbers that are small enough to follow.

    The words are those between spaces. A word's vector is random, but the same word always has the same one; the
    matrices are random by the seed. The numbers are those of `attent.attention.reference`.

    Args:
        text: the sentence.
        score: by name, built for the widths here, or a Score.
        scale: False leaves the division by √Dk out of the scaled dot product.
        heads: how many heads the width is split into.
        normalizer: scores → weights.
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
    if heads < 1 or width % heads:
        raise ArgumentError(f"heads must divide the width, {width}, got {heads}")
    if not scale:
        score = _unscaled(score)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        attention = MultiHeadAttention(width, heads, bias=False, output=None, score=score, normalizer=normalizer).eval()
        for projection in (attention.query_projection, attention.key_projection, attention.value_projection):
            # variance 1 in, variance 1 out: the weights come out neither all alike nor all or nothing
            nn.init.normal_(projection.weight, std=width**-0.5)
    given = torch.stack([_vector(word, width) for word in words])[None]  # (1, T, E)
    with Listening(attention) as heard, watch(attention) as seen:
        attention(given, mask=mask)
    meaning = f"Each word is a row of {width} numbers: made up, but the same word always has the same row."
    steps = heard.steps(seen[""], words, words)
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
        ArgumentError: the model has no such layer or head, or the text is empty or none that it translates.
    """
    modules = {name: module for name, module in translator.model.named_modules() if name.endswith(("self_attention", "cross_attention"))}
    name, attention = choose(modules, kind, layer)
    if not isinstance(attention, MultiHeadAttention):
        raise ArgumentError(f"{name} is a {type(attention).__name__}; a walk needs a MultiHeadAttention")
    if not 0 <= head < attention.heads:
        raise ArgumentError(f"head must be from 0 to {attention.heads - 1}, got {head}")
    if why := translator.refusal(text):
        raise ArgumentError(why)
    target = translator.translate(text)
    with Listening(attention) as heard:
        labelled = translator.map(text, target)[name]
    steps = heard.steps(labelled.weights, labelled.rows, labelled.columns, head=head)
    return Walk(f"{name}, head {head}, step by step: {text} → {target}", _parts(attention), {}, steps, head)


def _vector(word: str, width: int) -> Tensor:
    """A word's made-up embedding, decided by the word alone."""
    seed = int.from_bytes(hashlib.blake2b(word.encode(), digest_size=7).digest(), "big")
    return torch.randn(width, generator=torch.Generator().manual_seed(seed))


def _unscaled(score: str | Score) -> str | Score:
    if score == UNSCALED or (isinstance(score, str) and score in ("scaled_dot", *ScaledDot.aliases)):
        return UNSCALED
    raise ArgumentError(
        f"only the scaled dot product has a scale to leave out, got score {score if isinstance(score, str) else name_of(score)!r}"
    )


def _parameters(attention: MultiHeadAttention) -> dict[str, Step]:
    """The matrices that a walk uses: those of the projections as Q = X·W_Q has them, then those of the score."""
    projections = zip("QKV", (attention.query_projection, attention.key_projection, attention.value_projection), strict=True)
    found = {f"W_{letter}": (projection.weight.T, features(projection.in_features)) for letter, projection in projections}
    for name, parameter in attention.score.named_parameters():
        matrix = parameter.reshape(-1, parameter.shape[-1])
        each = matrix.shape[0] // attention.heads if attention.score.heads is not None else matrix.shape[0]
        # a vector has one row, which no feature names
        labels = features(each) if parameter.dim() > (1 if attention.score.heads is None else 2) else ("",)
        rows = [f"head{row // each}" + (f"·{label}" if label else "") for row, label in enumerate(labels * (matrix.shape[0] // each))]
        found[f"score.{name}"] = (matrix, tuple(rows) if attention.heads > 1 else labels)
    meaning = "Learnt in a trained model; here it is random."
    return {
        name: Step(name, name, meaning, "(rows, columns)", matrix.detach(), rows, features(matrix.shape[1]))
        for name, (matrix, rows) in found.items()
    }


def _parts(attention: MultiHeadAttention) -> str:
    heads = f"{attention.heads} head{'s' if attention.heads > 1 else ''} of width {attention.key_width}"
    return f"{equation_of(attention.score)} · {name_of(attention.normaliser)} · {heads}"
