"""Random models of Firefox's architectures in its engine and as imported runs: whole translations, and token by token.

scripts/bench firefox --random tiny|base-memory|base --vocabularies 1|2 --engine ENGINE [--data MULTI30K]
    [--precision float32|int8shiftAlphaAll] [--sentences 300] [--pieces 4000] [--seed 1]

Both translate one sentence at a time. Then ours reads the engine's own tokens, so that one difference has no others
after it. With 8 bits, the engine's logits and rounded activations are read at each product, and held against the
equations in float64 with the same rounding. Each token that differs gets a cause, from this list alone: saturation (a
sum of two products over 16 bits); rounding (the first activation that differs lies within 1e-3 of a half, where the
order of sums in float32 decides); margin (the engine's two best logits differ by less than such a rounding changes
them); other.
"""

from __future__ import annotations

import argparse
import gzip
import os
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import torch
from _firefox_models import EOS, LANGUAGES, SIZES, UNK, Arrays, Equations, Planted, Size, binary, settings, vocabulary
from _sides import head, table
from torch import Tensor

from attent.ops import packed_linear
from attent.runs.hugging_face import import_run
from attent.search.settings import SearchSettings
from attent.tasks.translation.translator import Translator, load
from attent.text.tokenizer import EOS as OUR_EOS

# How near to a half a scaled activation may lie that two orders of sums round differently, the smallest margin of a
# translation in float32 that is compared, and the difference of logits that float32 alone makes.
NEAR, CLEAR, EXACT = 1e-3, 1e-3, 1e-3
CHUNK = 30


@dataclass
class Made:
    """A random model on disk.

    Args:
        arrays: its parameters.
        size: its architecture.
        factors: the factors of activations, by the names of matrices.
        folders: its folders by the engine's precision.
    """

    arrays: Arrays
    size: Size
    factors: dict[str, float]
    folders: dict[str, Path]


def lines_of(data: Path, name: str, language: str, count: int) -> list[str]:
    """Return the first lines of a file of Multi30k."""
    with gzip.open(data / f"{name}.{language}.gz", "rt", encoding="utf-8") as file:
        return [line.strip() for line, _ in zip(file, range(count), strict=False)]


def make(options: argparse.Namespace, home: Path) -> Made:
    """Write a random model as Firefox has it, in floats and in 8 bits."""
    size, count = SIZES[options.random], options.vocabularies
    texts = [lines_of(options.data, "train", language, 29_000) for language in ("en", "de")[:count]]
    models = [vocabulary(text, options.pieces) for text in texts]
    planted = Planted(
        size, options.pieces, count, options.seed, noise=options.noise, sharpness=options.sharpness, peak=options.peak
    )
    factors = factors_of(planted.arrays, size, models[0], lines_of(options.data, "val", "en", 30))
    text = settings(size, count, options.pieces)
    made = Made(planted.arrays, size, factors, {name: home / name for name in ("float32", "int8shiftAlphaAll")})
    for (_, folder), end, own in zip(made.folders.items(), ("bin", "intgemm.alphas.bin"), (None, factors), strict=True):
        folder.mkdir(parents=True)
        (folder / f"model.{LANGUAGES}.{end}").write_bytes(binary(made.arrays, text, own))
        for name, model in zip(["vocab"] if count == 1 else ["srcvocab", "trgvocab"], models, strict=True):
            (folder / f"{name}.{LANGUAGES}.spm").write_bytes(model)
    return made


def factors_of(arrays: Arrays, size: Size, model: bytes, lines: list[str]) -> dict[str, float]:
    """Return the factors of activations as Mozilla computes them, 127 / (mean + 1.1 deviations of the largest).

    They are made different, so that the engine's products are known by them.
    """
    import sentencepiece

    processor = sentencepiece.SentencePieceProcessor(model_proto=model)
    equations, largest = Equations(arrays, size), dict[str, list[Tensor]]()
    for line in lines:
        source = [*processor.EncodeAsIds(line), EOS]
        target, _ = equations.greedy(source)
        equations.logits(equations.encode(source), target[:-1])
        for name, x in equations.inputs.items():
            largest.setdefault(name, []).append(x.abs().amax(-1))
    return {
        name: float(127 / (torch.cat(parts).mean() + 1.1 * torch.cat(parts).std())) * (1 + 1e-4 * index)
        for index, (name, parts) in enumerate(largest.items())
    }


@dataclass
class Trace:
    """What the engine computed of one sentence: the rounded inputs by factor (T, K), and the logits (T, V)."""

    rounded: dict[float, list[np.ndarray]] = field(default_factory=dict)
    logits: list[np.ndarray] = field(default_factory=list)


def traces(out: dict[str, Any], file: Path, count: int) -> list[Trace]:
    """Return the trace of each sentence."""
    content, start, found = np.memmap(file, np.uint8, "r"), 0, [Trace() for _ in range(count)]
    for line, kind, factor, rows, columns in out["calls"]:
        size = rows * columns * (4 if kind == "logits" else 1)
        part, start = content[start : start + size], start + size
        if kind == "logits":
            found[line].logits.append(part.view("<f4").reshape(rows, columns))
        else:
            found[line].rounded.setdefault(factor, []).append(part.reshape(rows, columns))
    return found


class Ours:
    """An imported run that reads given tokens."""

    def __init__(self, translator: Translator, rows: int) -> None:
        self.translator, self.rows = translator, rows

    def source(self, line: str) -> list[int]:
        """Return the engine's ids of a line."""
        return [self.their(token) for token in self.translator.read(line).ids]

    @staticmethod
    def their(token: int) -> int:
        return EOS if token == OUR_EOS else UNK if token == UNK else token - 2

    @torch.inference_mode()
    def logits(self, line: str, target: list[int]) -> Tensor:
        """Return the logits (T + 1, V) of the engine's tokens."""
        model = self.translator.model
        source = torch.tensor([self.translator.read(line).ids])
        memory = model.encode(source, torch.tensor([source.shape[1]]))
        tokens = torch.tensor([[2, *(token + 2 for token in target)]])
        ours = packed_linear.linear(model.to_logits, model.decode(memory, tokens))[0]
        return torch.cat((ours[:, OUR_EOS:][:, :1], ours[:, UNK:][:, :1], ours[:, 4 : self.rows + 2]), 1)


@dataclass
class Tokens:
    """Tokens compared along the engine's.

    Args:
        margins: the margin of the engine's choice.
        differences: the largest difference of logits.
        equal: whether ours has the same best token.
        references: the same of the equations.
        causes: the number of tokens by cause.
    """

    margins: list[float] = field(default_factory=list)
    differences: list[float] = field(default_factory=list)
    equal: list[bool] = field(default_factory=list)
    references: list[bool] = field(default_factory=list)
    causes: Counter[str] = field(default_factory=Counter)
    sentences: int = 0


def first_difference(equations: Equations, trace: Trace, step: int) -> float | None:
    """Return how far the first activation before a step that the engine rounds differently lies from a half.

    None if there is none. The equations have just been evaluated along the same tokens.
    """
    assert equations.factors is not None
    factors = equations.factors
    found: list[tuple[tuple[int, int], float]] = []
    order = list(equations.inputs)
    for factor, parts in trace.rounded.items():
        name = min(factors, key=lambda name: abs(factors[name] - factor))
        is_step = name.startswith("decoder") and not name.endswith(("context_Wk", "context_Wv")) or "Wemb" in name
        theirs = torch.from_numpy(np.concatenate(parts).astype(np.float64)) - 127
        scaled = equations.inputs[name]
        rows = slice(0, step + 1) if is_step else slice(None)
        for row, column in (theirs[: len(scaled)] != scaled.round().clamp(-127, 127))[rows].nonzero().tolist():
            value = float(scaled[row, column].abs())
            found.append(((row if is_step else -1, order.index(name)), abs(value % 1 - 0.5)))
    # of one product, the nearest: the others may follow from an earlier product alone
    return min(found)[1] if found else None


def compare(made: Made, ours: Ours, lines: list[str], found: list[Trace], limit: int) -> Tokens:
    """Compare token by token, along the engine's tokens."""
    tokens, equations = Tokens(), Equations(made.arrays, made.size, made.factors)
    for index, (line, trace) in enumerate(zip(lines, found, strict=True)):
        theirs = torch.from_numpy(np.concatenate(trace.logits)).double()
        theirs[:, UNK] = -torch.inf
        target = theirs.argmax(-1).tolist()
        logits = ours.logits(line, target[:-1]).double()
        best = theirs.topk(2).values
        margins = (best[:, 0] - best[:, 1]).tolist()
        logits[:, UNK] = -torch.inf
        equal = (logits.argmax(-1) == theirs.argmax(-1)).tolist()
        differences = (logits - theirs)[:, UNK + 1 :].abs().amax(-1).tolist()
        tokens.margins += margins
        tokens.differences += differences
        tokens.equal += equal
        tokens.sentences += all(equal)
        if index >= limit and all(equal):
            continue
        exact = equations.logits(equations.encode(ours.source(line)), target[:-1])
        exact[:, UNK] = -torch.inf
        tokens.references += (exact.argmax(-1) == theirs.argmax(-1)).tolist()
        for step in (step for step, same in enumerate(equal) if not same):
            near = first_difference(equations, trace, step)
            of_ours = float((logits - exact)[step, UNK + 1 :].abs().amax())
            print(f"  differs at {index}:{step}, margin {margins[step]:.3f}, logits {differences[step]:.3f}, "
                  f"ours - equations {of_ours:.1e}, first rounding {near}")
            is_near = near is not None and near < NEAR
            tokens.causes["rounding" if is_near else "margin" if margins[step] < 0.1 else "other"] += 1
    return tokens
