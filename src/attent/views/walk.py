"""A walk through attention: every step with its equation, shape and numbers, labeled with words."""

import hashlib
import re
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from attent import registry
from attent.attention.base import Mask, Normalizer, Position, Score
from attent.attention.capture.watch import watch
from attent.attention.multihead import MultiHeadAttention
from attent.attention.positions.learned import Learned
from attent.attention.positions.sinusoidal import Sinusoidal
from attent.attention.scores import ScaledDot
from attent.errors import ArgumentError, check_index, refuse
from attent.layers.feed_forward import FeedForward
from attent.layers.residual import Residual
from attent.mask_text import mask_of
from attent.views.panel import READING, choose, kind_of
from attent.views.render_walk import Walk
from attent.views.step import WalkStep, features, name_of
from attent.views.step import vectors as vector_step
from attent.views.trace import (
    AttentionTrace,
    ForwardPass,
    LayerTrace,
    feed_forward_steps,
    output_steps,
    parts_of,
    residual_steps,
)

# The small trained model, and the key of its vector for unknown words.
WORD_MODEL, UNKNOWN = "word_model.npz", ""
# Default width of a word's vector, small enough to follow by hand.
WIDTH = 4
# Ratio of the feed-forward network's width to the model's; it is four in real models.
WIDENING = 2
# An abbreviation such as e.g.; a word, with a point or colon inside, or a comma inside a number; or a sign.
SIGNS = re.escape('.,;:!?…"“”„«»()，。！？；：、（）،؟।')
WORD = re.compile(rf"(?:[^\W\d_]\.){{2,}}(?![^\W_])|[^\s{SIGNS}]+(?:(?:[.:]|(?<=\d),(?=\d))[^\s{SIGNS}]+)*|[{SIGNS}]")
# The positions added to words before attention, by name.
POSITIONS: dict[str, type[Any]] = {"sinusoidal": Sinusoidal, "learned": Learned}
# The positions added to words before attention, with their equations and meanings.
ADDED: dict[type[nn.Module], tuple[str, str]] = {
    Sinusoidal: (
        "PE[p, 2i] = sin(p / 10000^(2i/E)), PE[p, 2i + 1] = cos(p / 10000^(2i/E))",
        "A row of sines and cosines for each position p, from 0, which no two positions share.",
    ),
    Learned: ("PE = a learned row for each position", "Learnt in a trained model; here it is random."),
}


class Vectors(Protocol):
    """Interface of word vectors, such as `attent.text.word_vectors.WordVectors`.

    Attributes:
        report: the report on the file from which they were read, if any.
    """

    report: Any

    @property
    def width(self) -> int:
        """The width of a vector."""
        ...

    def __contains__(self, word: object) -> bool: ...

    def __getitem__(self, word: str, /) -> Tensor: ...


@torch.no_grad()
def walk(
    text: str = "The cat sat on the mat",
    *,
    score: str | Score = "scaled_dot",
    scale: bool = True,
    heads: int = 1,
    normalizer: str | Normalizer = "softmax",
    mask: str | Mask | None = None,
    seed: int | None = None,
    width: int | None = None,
    position: str | Position | None = None,
    cross: str | None = None,
    vectors: Vectors | None = None,
    whole: bool = False,
) -> Walk:
    """Walk through the self-attention of a sentence, with numbers that are few enough to follow.

    Words are separated by spaces, and punctuation from words. The numbers are those of a small trained model, which
    gives each word its French form (docs/walk.md). With a seed, or a part that it was not trained with, they are made
    up: the vector of a word is random, but always the same for the same word, and the matrices depend on the seed. The
    results are those of `attent.attention.reference`.

    Args:
        text: the sentence.
        score: the name of a score, built for these widths, or a Score.
        scale: whether to divide the scaled dot product by √Dk.
        heads: the number of heads, which share the width; with several, W_O is applied to their outputs.
        normalizer: the name of a normalizer, or a Normalizer.
        mask: "causal", "window:2", "window:4,0 & prefix:3" and the like, or a Mask.
        seed: the seed of random matrices, by default 0; if given, nothing is trained.
        width: the width of a random word's vector; by default 4, or that of the word vectors.
        position: "sinusoidal" or "learned", added to the words; or "rotary", "alibi", "relative_bias" or a Position,
            inside attention.
        cross: a second text, whose words are keys and values: cross-attention.
        vectors: word vectors to use instead of made-up ones, see `attent.text.word_vectors.read`.
        whole: whether to continue through the rest of a Transformer layer: residual connections, layer normalization,
            feed-forward network; with the trained model, up to the words' French forms.

    Raises:
        ArgumentError: there is no word, heads do not divide the width, there is no scale to leave out, a word has no
            vector, or the seed is negative.
        UnknownNameError: a part does not exist.
    """
    words, memory_words = (split_words(sentence or "") for sentence in (text, cross))
    refuse(
        (not words or (cross is not None and not memory_words), "a walk needs a text of at least one word"),
        (not 0 <= (seed or 0) < 2**63, f"seed must be a whole number from 0 to 2^63 - 1, got {seed}"),
    )
    is_plain = (seed, score, heads, width, position, cross, vectors) == (None, "scaled_dot", 1, None, None, None, None)
    model, note = word_model_for(words) if is_plain else (None, "")
    vectors, position = (vectors, position) if model is None else (model, "sinusoidal")
    width = _checked_width(width, heads, vectors)
    mask = mask_of(mask) if isinstance(mask, str) else mask
    score = score if scale else _without_scale(score)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed or 0)
        layer = _Layer(
            width, heads, score, normalizer, position, max(len(words), len(memory_words)), model, whole=whole
        )
    parts = (
        parts_of(layer.attention),
        f"mask {_mask_name(mask)}",
        _position_name(position),
        "trained" if model else f"seed {seed or 0}",
    )
    title = f"{'Self' if cross is None else 'Cross'}-attention, step by step: {' '.join(words)}"
    title = " → ".join(filter(None, (title, " ".join(memory_words))))
    steps = layer.steps(words, memory_words, vectors, mask)
    return Walk(title, "\n".join(filter(None, (" · ".join(filter(None, parts)), note))), layer.matrices(), steps)


@dataclass
class WordModel:
    """A small trained model, which gives each English word its French form; scripts/train_word_model.py trains it.

    It is one layer of a Transformer with one head. "the" is le, la or les, and "black" is noir, noire, noirs or noires,
    so the attention has to find the word that decides: the noun of an adjective, the subject of a verb. Word vectors
    are looked up as in `attent.text.word_vectors.WordVectors`.

    Args:
        width: the width E of a word's vector.
        words: the index of each known word's vector, in lower case.
        forms: the French forms.
        tensors: the weights by name; "embeddings" (words, E), "logits.weight" (forms, E).
    """

    width: int
    words: dict[str, int]
    forms: list[str]
    tensors: dict[str, Tensor]
    report: None = None

    def __contains__(self, word: object) -> bool:
        return True

    def __getitem__(self, word: str, /) -> Tensor:
        return self.tensors["embeddings"][self.words.get(word.lower(), self.words[UNKNOWN])]

    def output_steps(self, before: WalkStep) -> list[WalkStep]:
        """Return the logits and probabilities of French forms, computed from the output of the layer."""
        logits = F.linear(before.values, self.tensors["logits.weight"], self.tensors["logits.bias"])
        return output_steps(before, logits, self.forms.__getitem__, None, "French forms")


@cache
def word_model() -> WordModel:
    """Return the model that comes with the package."""
    with files("attent.views").joinpath(WORD_MODEL).open("rb") as file, np.load(file, allow_pickle=False) as arrays:
        tensors = {name: torch.from_numpy(arrays[name]).float() for name in arrays if arrays[name].dtype.kind == "f"}
        words = {word: index for index, word in enumerate(arrays["words"].tolist())}
        return WordModel(tensors["embeddings"].shape[-1], words, arrays["forms"].tolist(), tensors)


def word_model_for(words: Sequence[str]) -> tuple[WordModel | None, str]:
    """Return the model, or None if it knows none of these words, and a line that says which ones it does not know."""
    model = word_model()
    unknown = [word for word in dict.fromkeys(words) if word.lower() not in model.words]
    if len(unknown) == len(set(words)):
        return None, "The trained model knows none of these words, so the numbers are random."
    return (
        model,
        f"The trained model does not know {', '.join(unknown)}: one vector for every unknown word." if unknown else "",
    )


def split_words(text: str) -> tuple[str, ...]:
    """Return the words of a text and its punctuation marks, in order."""
    return tuple(WORD.findall(text))


def _checked_width(width: int | None, heads: int, vectors: Vectors | None) -> int:
    """Return the width of a word's vector: that of `vectors`, the given width, or the default."""
    own_width = vectors.width if vectors is not None else WIDTH if width is None else width
    refuse(
        (vectors is not None and width is not None, "word vectors have their own width; leave width out"),
        (own_width < 1, f"width must be ≥ 1, got {own_width}"),
        (heads < 1 or own_width % heads, f"heads must divide the width, {own_width}, got {heads}"),
    )
    return own_width


def _without_scale(score: str | Score) -> str:
    """Return the name of the unscaled dot product, after checking that the score is the scaled one."""
    name = score if isinstance(score, str) else name_of(score)
    is_scaled_dot = isinstance(score, str) and score in ("dot", "scaled_dot", *ScaledDot.aliases)
    refuse((not is_scaled_dot, f"only the scaled dot product has a scale to leave out, got score {name!r}"))
    return "dot"


class _Layer(nn.Module):
    """An attention, with the positions added before it and, if `whole` is set, the rest of a layer.

    Its numbers are random, or those of a trained model.
    """

    def __init__(
        self,
        width: int,
        heads: int,
        score: str | Score,
        normalizer: str | Normalizer,
        position: str | Position | None,
        length: int,
        model: WordModel | None,
        *,
        whole: bool,
    ) -> None:
        super().__init__()
        added = registry.with_aliases(POSITIONS).get(position) if isinstance(position, str) else None
        self.attention = MultiHeadAttention(
            width,
            heads,
            bias=False,
            key_head_width=None if model is None else len(model.tensors["attention.key_projection.weight"]),
            output=None,
            score=score,
            normalizer=normalizer,
            position=None if added else position,
        ).eval()
        _initialize(self.attention.query_projection, self.attention.key_projection, self.attention.value_projection)
        if heads > 1 or whole:
            self.attention.output = nn.Linear(heads * self.attention.value_width, width, bias=False)
            _initialize(self.attention.output)
        self.feed_forward = FeedForward(width, WIDENING * width) if whole else None
        if self.feed_forward is not None:
            _initialize(self.feed_forward.widen, self.feed_forward.narrow)
        self.positions = None if added is None else added(width) if added is Sinusoidal else added(width, length)
        self.model = model
        if model is not None:
            self.load_state_dict({name: model.tensors[name] for name in self.state_dict()})

    def steps(
        self, words: Sequence[str], memory_words: Sequence[str], vectors: Vectors | None, mask: Mask | None
    ) -> dict[str, WalkStep]:
        """Return every step by name, in order."""
        width = self.attention.query_projection.in_features
        inputs = _input_steps("X", words, width, vectors, self.positions)
        memory = _input_steps("M", memory_words, width, vectors, self.positions) if memory_words else []
        with AttentionTrace(self.attention) as trace, watch(self.attention) as maps:
            self.attention(inputs[-1].values, memory[-1].values if memory else None, mask=mask, query_start=0)
        steps = {step.name: step for step in (*inputs, *memory)}
        traced = trace.steps(maps[""], words, memory_words or words)
        steps |= {name: step for name, step in traced.items() if name not in ("X", "M")}
        if self.feed_forward is not None:
            after = residual_steps(steps["X"], steps["result"], Residual(width, "post"))
            after += feed_forward_steps(after[-1], self.feed_forward)
            after += residual_steps(after[1], after[-1], Residual(width, "post"), "_ffn")
            after += [] if self.model is None else self.model.output_steps(after[-1])
            steps |= {step.name: step for step in after}
        return steps

    def matrices(self) -> dict[str, WalkStep]:
        """Return the matrices by name: those of the projections, the score and the layer.

        The projections are transposed, as in Q = X·W_Q.
        """
        attention = self.attention
        linear = {
            "W_Q": attention.query_projection,
            "W_K": attention.key_projection,
            "W_V": attention.value_projection,
        }
        if isinstance(attention.output, nn.Linear):
            linear["W_O"] = attention.output
        if self.feed_forward is not None:
            linear |= {"W₁ of ffn": self.feed_forward.widen, "W₂ of ffn": self.feed_forward.narrow}
        matrices = {name: (layer.weight.T, features(layer.in_features)) for name, layer in linear.items()}
        for symbol, parameter in attention.score.symbols().items():
            matrix = parameter.reshape(-1, parameter.shape[-1])
            rows_per_head = matrix.shape[0] // attention.heads if attention.score.heads is not None else matrix.shape[0]
            # a vector is one row without a label
            labels = features(rows_per_head) if parameter.dim() > (1 if attention.score.heads is None else 2) else ("",)
            if attention.heads > 1:
                repeated = labels * (matrix.shape[0] // rows_per_head)
                labels = tuple(
                    f"head{row // rows_per_head}" + (f"·{label}" if label else "") for row, label in enumerate(repeated)
                )
            matrices[symbol] = (matrix, labels)
        return {
            name: WalkStep(
                name,
                name,
                "random here, learnt in a model" if self.model is None else "learned in training",
                "(rows, columns)",
                matrix.detach(),
                rows,
                features(matrix.shape[1]),
            )
            for name, (matrix, rows) in matrices.items()
        }


def _initialize(*layers: nn.Linear) -> None:
    for layer in layers:
        # keep variance 1, so that the attention weights are neither uniform nor one-hot
        nn.init.normal_(layer.weight, std=layer.in_features**-0.5)
        if layer.bias is not None:
            nn.init.zeros_(layer.bias)


def _input_steps(
    name: str,
    words: Sequence[str],
    width: int,
    vectors: Vectors | None,
    positions: Sinusoidal | Learned | None,
) -> list[WalkStep]:
    """Return the steps up to the input of the attention.

    These are the vectors of the words and the positions added to them.

    Args:
        name: the name of the result, "X" or "M".
        words: the words of the text.
        width: the width of a word's vector.
        vectors: the word vectors; made-up ones if None.
        positions: the positions to add, if any.
    """
    if vectors is None:
        embeddings = torch.stack([_vector(word, width) for word in words])[None]  # (1, T, E)
        origin = "made up, but the same word always has the same row"
    else:
        embeddings, origin = torch.stack(_look_up(words, vectors)).float()[None], "its word vector"
    meaning = f"Each word is a row of {width} numbers: {origin}."
    letters = "(B, Tq, E)" if name == "X" else "(B, Tk, E)"
    if positions is None:
        return [vector_step(name, name, meaning, letters, embeddings, words)]
    suffix = "" if name == "X" else f"_{name}"
    equation, position_meaning = ADDED[type(positions)]
    return [
        vector_step(f"E{suffix}", f"E{suffix}", meaning, letters, embeddings, words),
        vector_step(f"PE{suffix}", equation, position_meaning, letters, positions(torch.zeros_like(embeddings)), words),
        vector_step(
            name,
            f"{name} = E{suffix} + PE{suffix}",
            "The word and its position.",
            letters,
            positions(embeddings),
            words,
        ),
    ]


def _vector(word: str, width: int) -> Tensor:
    """Return a made-up embedding, which depends only on the word."""
    seed = int.from_bytes(hashlib.blake2b(word.encode(), digest_size=7).digest(), "big")
    return torch.randn(width, generator=torch.Generator().manual_seed(seed))


def _look_up(words: Sequence[str], vectors: Vectors) -> list[Tensor]:
    missing = [word for word in dict.fromkeys(words) if word not in vectors and word.lower() not in vectors]
    if missing:
        # the missing vector may be on a line that was cut off
        dropped = f" ({vectors.report.one_line()})" if vectors.report is not None and vectors.report.dropped else ""
        raise ArgumentError(f"there is no vector for {', '.join(map(repr, missing))}{dropped}")
    return [vectors[word if word in vectors else word.lower()] for word in words]


def _position_name(position: str | Position | None) -> str:
    return f"position {position if isinstance(position, str) else name_of(position)}" if position else ""


def _mask_name(mask: Mask | None) -> str:
    if mask is None:
        return "none"
    text = repr(mask)
    # a table of pairs has no short name
    return (
        name_of(mask) if text.endswith("()") else text if len(text) < 40 and "\n" not in text else type(mask).__name__
    )


class Walkable(Protocol):
    """Interface of runs that support walks: a translator, a masked language model, a classifier."""

    def forward_pass(self, text: str, /) -> ForwardPass:
        """Return the forward pass over a text."""
        ...


@torch.no_grad()
def walk_run(
    run: Walkable, text: str, *, kind: str | None = None, layer: int | None = None, head: int = 0, whole: bool = False
) -> Walk:
    """Walk through an attention of a trained model as it reads a text.

    Args:
        run: the run, as returned by `attent.load`.
        text: the text to translate, fill in or classify, or the path of a picture to classify.
        kind: "encoder" or "decoder" (self-attention), or "cross" (target to source); by default the first one that the
            model has.
        layer: the index of the layer, from 0; the last by default.
        head: the head to show, from 0; the steps contain all heads.
        whole: whether to continue through the rest of the layer and, after the last one, to the most likely words or
            classes.

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
