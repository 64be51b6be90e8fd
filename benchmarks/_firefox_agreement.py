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
import copy
import gzip
import json
import os
import subprocess
import sys
from collections import Counter
from dataclasses import dataclass, field
from itertools import chain, combinations
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, cast

import numpy as np
import torch
from _firefox_equations import Equations
from _firefox_models import (
    EOS,
    LANGUAGES,
    SIZES,
    UNK,
    Arrays,
    Planted,
    Size,
    binary,
    overflows,
    settings,
    vocabulary,
)
from _sides import head, table
from torch import Tensor, nn

from attent.models.transformer import Transformer
from attent.ops import packed_linear
from attent.ops.packed_linear import WeightType
from attent.runs.hugging_face import import_run
from attent.runs.hugging_face.marian import MarianFolder, read_native
from attent.search.settings import SearchSettings
from attent.tasks.translation.translator import load
from attent.text.tokenizer import BOS
from attent.text.tokenizer import EOS as OUR_EOS

# How near to a half a scaled activation may lie that two orders of sums round differently, and the difference of
# features that float32 alone makes.
NEAR, SAME = 1e-3, 1e-4
# Activations next to a half that are tried.
NEAREST = 24
# Margins that a rounding may turn, and the sentences whose logits are compared with the equations in float64.
NOISE, CHECKED = 0.5, 30
COLUMNS = [
    "precision",
    "equal translations",
    "different texts",
    "equal tokens along the engine's",
    "sentences of these",
    "causes of the others",
    "engine's margins, 1 · 10 · 50 %",
    "largest difference of logits, median",
    "equal without rounding",
]


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
    assert not overflows(planted.arrays)
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
    """An imported run that reads the engine's tokens.

    Args:
        path: the run.
        source: the folder that it was imported from.
        rows: the size of the vocabulary.
    """

    def __init__(self, path: Path, source: Path, rows: int) -> None:
        self.translator, self.rows = load(path), rows
        self.factors = read_native(MarianFolder(source), None, None).factors
        self._shorter: dict[str, Transformer] = {}

    def source(self, line: str) -> list[int]:
        """Return the engine's ids of a line."""
        return [self.their(token) for token in self.translator.read(line).ids]

    @staticmethod
    def their(token: int) -> int:
        return EOS if token == OUR_EOS else UNK if token == UNK else token - 2

    def translate(self, line: str) -> tuple[str, list[int]]:
        """Return a translation and its tokens."""
        limit = SearchSettings(maximum_length=2 * max(len(self.translator.read(line).ids), 1))
        found = self.translator.search([line], limit)[0][0]
        return found.text, [self.their(token) for token in found.tokens]

    def features(self, line: str, target: list[int], model: Transformer, *, encoded: bool = False) -> Tensor:
        """Return the features (T + 1, E) of the engine's tokens, or those of the memory."""
        source = torch.tensor([self.translator.read(line).ids])
        memory = model.encode(source, torch.tensor([source.shape[1]]))
        if encoded:
            return memory.features[0]
        return model.decode(memory, torch.tensor([[BOS, *(token + 2 for token in target)]]))[0]

    def logits(self, line: str, target: list[int], *, by_modules: bool = False) -> Tensor:
        """Return the logits (T + 1, V) of the engine's tokens; by the modules, activations are not rounded."""
        model = cast(Transformer, self.translator.model)
        # the library computes in inference mode alone
        with torch.no_grad() if by_modules else torch.inference_mode():
            ours = model.output(self.features(line, target, model)).double()
        return torch.cat((ours[:, OUR_EOS:][:, :1], ours[:, UNK:][:, :1], ours[:, 4 : self.rows + 2]), 1)

    def layer(self, name: str, line: str, target: list[int]) -> Tensor:
        """Return what a layer returns, which no call of the library does, by a model that ends with it."""
        if name not in self._shorter:
            model = self._shorter[name] = copy.deepcopy(cast(Transformer, self.translator.model))
            stack: Any = model.encoder if name.startswith("encoder") else model.decoder
            stack.layers = stack.layers[: int(name[-1])]
            packed_linear.set_kind(model, WeightType.INT8_FIXED)
            modules = dict(model.named_modules())
            for weight, factor in self.factors.items():
                if isinstance(layer := modules.get(weight.removesuffix(".weight")), nn.Linear):
                    packed_linear.set_factor(layer, factor)
        with torch.inference_mode():
            return self.features(line, target, self._shorter[name], encoded=name.startswith("encoder")).double()


@dataclass
class Tokens:
    """Tokens compared along the engine's.

    Args:
        margins: the margins of the engine's choices.
        differences: the largest differences of logits.
        equal: whether ours has the same best token.
        unrounded: the same of ours without rounded activations.
        sentences: the sentences in which all are equal.
        causes: the number of different tokens by cause.
    """

    margins: list[float] = field(default_factory=list)
    differences: list[float] = field(default_factory=list)
    equal: list[bool] = field(default_factory=list)
    unrounded: list[bool] = field(default_factory=list)
    sentences: int = 0
    causes: Counter[str] = field(default_factory=Counter)


def is_of_step(name: str) -> bool:
    """Return whether a matrix multiplies what belongs to a step, not the memory."""
    return not name.startswith("encoder") and not name.endswith(("context_Wk", "context_Wv"))


def from_half(scaled: Tensor) -> Tensor:
    """Return how far numbers lie from the next half."""
    return (scaled.abs() % 1 - 0.5).abs()


def first_of_theirs(equations: Equations, trace: Trace, step: int) -> float | None:
    """Return how far the first activation, up to a step, that the engine rounds differently lies from a half.

    None if there is none. The equations have just been evaluated along the same tokens.
    """
    factors, order, found = equations.factors or {}, [*equations.inputs], list[tuple[int, int, float]]()
    for factor, parts in trace.rounded.items():
        name = min(factors, key=lambda name: abs(factors[name] - factor))
        scaled = equations.inputs[name]
        theirs = torch.from_numpy(np.concatenate(parts)[: len(scaled)].astype(np.float64)) - 127
        rows = step + 1 if is_of_step(name) else len(scaled)
        for row, column in (theirs != scaled.round().clamp(-127, 127))[:rows].nonzero().tolist():
            place = row if is_of_step(name) else -1, order.index(name)
            found.append((*place, float(from_half(scaled[row, column]))))
    return min(found)[2] if found else None


def first_of_ours(equations: Equations, ours: Ours, line: str, target: list[int], step: int) -> float | None:
    """Return the same of ours, whose activations are not visible, from what its layers return.

    In the first layer that returns something else than the equations, activations next to a half are rounded the other
    way, one by one and in pairs, until the equations return the same. None if they never do.
    """
    source, exact = ours.source(line), dict(equations.layers)
    for name, features in exact.items():
        own = ours.layer(name, line, target)
        rows = ((own - features).abs().amax(-1) > SAME).nonzero().flatten().tolist()
        is_step = name.startswith("decoder")
        if not rows or (is_step and rows[0] > step):
            continue
        until = rows[0] + 1 if is_step else len(own)
        near: list[tuple[float, str, int, int]] = []
        for matrix, scaled in equations.inputs.items():
            if matrix.startswith(name):
                distances = from_half(scaled[:until] if is_of_step(matrix) else scaled)
                places = (distances < NEAR).nonzero().tolist()
                near += [(float(distances[row, column]), matrix, row, column) for row, column in places]
        near = sorted(near)[:NEAREST]
        inputs = dict(equations.inputs)
        for chosen in chain(combinations(near, 1), combinations(near[: NEAREST // 3], 2)):
            equations.given = {matrix: inputs[matrix].round().clamp(-127, 127) for _, matrix, *_ in chosen}
            for _, matrix, row, column in chosen:
                value = float(inputs[matrix][row, column])
                equations.given[matrix][row, column] += 1 if round(value) < value else -1
            equations.logits(equations.encode(source), target)
            equations.given = {}
            if float((equations.layers[name] - own)[:until].abs().max()) < SAME:
                return max(distance for distance, *_ in chosen)
        return None
    return None


def compare(made: Made, ours: Ours, lines: list[str], found: list[Trace]) -> Tokens:
    """Compare token by token, along the engine's tokens."""
    tokens, equations = Tokens(), Equations(made.arrays, made.size, made.factors)
    for index, (line, trace) in enumerate(zip(lines, found, strict=True)):
        theirs = torch.from_numpy(np.concatenate(trace.logits)).double()
        theirs[:, UNK] = -torch.inf
        best, target = theirs.topk(2).values, theirs.argmax(-1).tolist()
        logits, unrounded = (ours.logits(line, target[:-1], by_modules=by_modules) for by_modules in (False, True))
        logits[:, UNK] = unrounded[:, UNK] = -torch.inf
        equal = (logits.argmax(-1) == theirs.argmax(-1)).tolist()
        tokens.margins += (best[:, 0] - best[:, 1]).tolist()
        tokens.differences += (logits - theirs).nan_to_num(0).abs().amax(-1).tolist()
        tokens.equal += equal
        tokens.unrounded += (unrounded.argmax(-1) == theirs.argmax(-1)).tolist()
        tokens.sentences += all(equal)
        for step in (step for step, same in enumerate(equal) if not same):
            equations.logits(equations.encode(ours.source(line)), target[:-1])
            side, distance = "the engine's", first_of_theirs(equations, trace, step)
            if distance is None:
                side, distance = "ours", first_of_ours(equations, ours, line, target[:-1], step)
            place = len(tokens.equal) - len(equal) + step
            is_near, margin = distance is not None and distance < NEAR, tokens.margins[place]
            is_small = margin < NOISE and margin < 2 * tokens.differences[place]
            tokens.causes[f"rounding, {side}" if is_near else "margin" if is_small else "other"] += 1
            print(f"{index}:{step} margin {margin:.3f}, first rounding {side} {distance}", file=sys.stderr, flush=True)
    return tokens


def largest_error(made: Made, ours: Ours, lines: list[str]) -> float:
    """Return the largest difference of our logits from the equations', in float32."""
    equations, largest = Equations(made.arrays, made.size), 0.0
    for line in lines:
        target = [token for token in ours.translate(line)[1] if token != UNK]
        exact = equations.logits(equations.encode(ours.source(line)), target)
        difference = (ours.logits(line, target) - exact)[:, UNK + 1 :]
        largest = max(largest, float(difference.abs().max()))
    return largest


def run_engine(folder: Path, lines: Path, home: Path, precision: str, rows: int) -> tuple[dict[str, Any], Path]:
    """Return what the engine writes, and its trace, which exists if rows are not 0."""
    out, script = lines.with_name(f"{precision}.json"), Path(__file__).with_name("_firefox_engine.mjs")
    model, vocabularies = next(folder.glob("*.bin")), sorted(folder.glob("*.spm"))
    subprocess.run(["node", script, home, model, lines, out, precision, str(rows), *vocabularies], check=True)
    return json.loads(out.read_text("utf-8")), Path(f"{out}.trace")


def agree(options: argparse.Namespace, home: Path) -> list[list[str]]:
    """Return a row of the table for each precision."""
    made, rows = make(options, home), list[list[str]]()
    lines = lines_of(options.data, "test_2016_flickr", "en", options.sentences)
    file = home / "lines.txt"
    file.write_text("\n".join(lines), encoding="utf-8")
    for precision, folder in made.folders.items():
        is_rounded = precision != "float32"
        theirs, trace = run_engine(folder, file, options.engine.resolve(), precision, options.pieces * is_rounded)
        import_run(folder, home / f"run-{precision}", fixed_activations=is_rounded)
        ours = Ours(home / f"run-{precision}", folder, options.pieces)
        answers = [ours.translate(line) for line in lines]
        # ours has no spaces around a translation
        same = [text == other.strip() for (text, _), other in zip(answers, theirs["translations"], strict=True)]
        row = [precision, f"{sum(same)} of {len(same)}", str(len({text for text, _ in answers}))]
        if is_rounded:
            tokens = compare(made, ours, lines, traces(theirs, trace, len(lines)))
            count, quantiles = len(tokens.equal), np.quantile(tokens.margins, (0.01, 0.1, 0.5))
            row += [
                f"{sum(tokens.equal):,} of {count:,} ({sum(tokens.equal) / count:.1%})",
                f"{tokens.sentences}",
                "; ".join(f"{cause} {number}" for cause, number in tokens.causes.items()) or "none",
                " · ".join(f"{quantile:.2f}" for quantile in quantiles),
                f"{np.median(tokens.differences):.1e}, 90 %: {np.quantile(tokens.differences, 0.9):.2f}",
                f"{sum(tokens.unrounded) / count:.1%}",
            ]
        else:
            lengths = [len(target) + 1 for _, target in answers]
            equal = sum(length for length, is_same in zip(lengths, same, strict=True) if is_same)
            error = largest_error(made, ours, lines[:CHECKED])
            row += [
                f"{equal:,} of {sum(lengths):,} ({equal / sum(lengths):.1%})",
                "",
                "",
                "",
                f"float64: {error:.1e}",
                "",
            ]
        rows.append(row)
    return rows


def main(arguments: list[str]) -> None:
    """Print the table of a random model."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--random", choices=SIZES, required=True)
    parser.add_argument("--vocabularies", type=int, choices=(1, 2), default=1)
    parser.add_argument("--engine", type=Path, required=True)
    parser.add_argument("--data", type=Path, default=Path(os.environ.get("ATTENT_DATA", ".")) / "multi30k")
    parser.add_argument("--sentences", type=int, default=300)
    parser.add_argument("--pieces", type=int, default=4000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--noise", type=float, default=0.1)
    parser.add_argument("--sharpness", type=float, default=12.0)
    parser.add_argument("--peak", type=float, default=1.0)
    options = parser.parse_args(arguments)
    torch.set_num_threads(1)
    with TemporaryDirectory() as name:
        rows = agree(options, Path(name))
    head(
        f"Firefox's engine and attent, random {options.random}, vocabularies: {options.vocabularies}, noise "
        f"{options.noise:g}, seed {options.seed}"
    )
    table(COLUMNS, rows)
