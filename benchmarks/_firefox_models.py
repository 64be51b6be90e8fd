"""Random models in Firefox's architectures, written in Marian's format, and their equations in float64.

Their logits are peaked as those of trained models, by construction: token vectors lie in orbits of an orthogonal P
(E[successor(w)] = P·E[w]), the last decoder layer attends to the source token at its own position, and its feed-forward
layer maps what it holds by P. All else is random, and differs from sentence to sentence. Matrices of 8 bits have numbers
up to 63, so that no sum of two products overflows 16 bits in the engine; <unk>, which is never written, has a larger one.
"""

from __future__ import annotations

import gzip
import math
import struct
from collections.abc import Iterable
from io import BytesIO
from pathlib import Path
from typing import NamedTuple

import numpy as np
import sentencepiece
import torch
from torch import Tensor

Arrays = dict[str, np.ndarray]
EOS, UNK, HEADS, LARGEST, LANGUAGES = 0, 1, 8, 63, "enxx"
FLOAT, BYTES, WITH_MULTIPLIER = 0x0404, 0x0101, 0x4101


class Size(NamedTuple):
    """The width, the width of feed-forward layers, and the layers of encoder and decoder."""

    width: int
    hidden: int
    encoder: int
    decoder: int


SIZES = {
    "small": Size(64, 256, 2, 2),
    "tiny": Size(256, 1536, 6, 2),
    "base-memory": Size(384, 1536, 6, 4),
    "base": Size(512, 2048, 6, 2),
}


def vocabulary(lines: Iterable[str], pieces: int) -> bytes:
    """Return a SentencePiece model with Marian's ids, trained on lines."""
    model = BytesIO()
    sentencepiece.SentencePieceTrainer.Train(  # pyright: ignore[reportAttributeAccessIssue]
        sentence_iterator=iter(lines), model_writer=model, vocab_size=pieces, character_coverage=1.0, eos_id=EOS,
        unk_id=UNK, bos_id=-1, pad_id=-1, minloglevel=2, num_threads=1,
    )  # fmt: skip
    return model.getvalue()


class Planted:
    """The parameters of a random model.

    Args:
        size: its architecture.
        pieces: the size of each vocabulary.
        vocabularies: 1 if both sides share it, else 2.
        seed: the seed of its numbers.
        noise: the share of random numbers in what a sublayer adds.
        sharpness: the difference of scores from a position to the next in the last layer.
        peak: the scale of the last norm, and so of the logits.
    """

    def __init__(
        self, size: Size, pieces: int, vocabularies: int, seed: int, *, noise: float, sharpness: float, peak: float
    ) -> None:
        self.random, self.size, self.noise, self.arrays = np.random.default_rng(seed), size, noise, Arrays()
        width, half = size.width, size.width // 2
        # the features of fast positions hold little else
        self.fast = np.arange(half // 5)
        self.quiet = np.ones(width)
        self.quiet[[*self.fast, *self.fast + half]] = 0.1
        step = self._embed(pieces, vocabularies)
        for layer in range(1, size.encoder + 1):
            self._attention(f"encoder_l{layer}_self")
            self._feed(f"encoder_l{layer}_ffn")
        for layer in range(1, size.decoder + 1):
            self._unit(f"decoder_l{layer}_rnn")
            self._attention(f"decoder_l{layer}_context")
            self._feed(f"decoder_l{layer}_ffn")
        self._attend_own_position(f"decoder_l{size.decoder}_context", sharpness)
        self._map(f"decoder_l{size.decoder}_ffn", step)
        for kind in ("scale", "bias"):
            self.arrays[f"decoder_l{size.decoder}_ffn_ffn_ln_{kind}"] *= peak
        self.arrays = {name: array.astype(np.float32) for name, array in self.arrays.items()}

    def _normal(self, *shape: int, std: float) -> np.ndarray:
        return np.clip(self.random.standard_normal(shape), -3, 3) * std

    def _orthogonal(self, width: int) -> np.ndarray:
        return np.linalg.qr(self.random.standard_normal((width, width)))[0]

    def _embed(self, pieces: int, vocabularies: int) -> np.ndarray:
        """Write the embeddings, and return P, (E, E) by rows: successor = vector @ P."""
        width, rest = self.size.width, np.flatnonzero(self.quiet == 1)
        end, inner = np.linalg.qr(self.random.standard_normal((len(rest), len(rest))))[0], np.eye(len(rest))
        inner[1:, 1:] = self._orthogonal(len(rest) - 1)
        inner = end @ inner @ end.T
        step = np.zeros((width, width))
        step[np.ix_(rest, rest)] = inner
        source, target = (self._normal(pieces, width, std=width**-0.5) * self.quiet for _ in range(2))
        order = 1 + self.random.permutation(pieces - 1)
        if vocabularies == 1:
            for before, after in zip(order, order[1:], strict=False):
                source[after, rest] = source[before, rest] @ inner
        else:
            target[order[: pieces - 1]] = (source[1:] @ step) + target[order] * (self.quiet < 1)
            target[EOS] = source[EOS]
        for table in (source, target):
            # </s> follows itself
            table[EOS, rest] = end[:, 0] * math.sqrt(len(rest) / width)
            table[UNK, 0] = np.abs(table).max() * 127 / LARGEST
        tables = {"Wemb": source} if vocabularies == 1 else {"encoder_Wemb": source, "decoder_Wemb": target}
        self.arrays |= tables | {"decoder_ff_logit_out_b": self._normal(1, pieces, std=0.3)}
        return step

    def _norm(self, name: str) -> None:
        self.arrays[f"{name}_ln_scale"] = 1 + self._normal(1, self.size.width, std=0.05)
        self.arrays[f"{name}_ln_bias"] = self._normal(1, self.size.width, std=0.05)

    def _matrix(self, name: str, rows: int, columns: int, std: float) -> None:
        self.arrays[name] = self._normal(rows, columns, std=std / math.sqrt(rows))

    def _attention(self, name: str) -> None:
        width = self.size.width
        for part, std in zip("qkvo", (2.1, 2.1, 1.0, self.noise), strict=True):
            self._matrix(f"{name}_W{part}", width, width, std)
            self.arrays[f"{name}_b{part}"] = self._normal(1, width, std=0.05)
        self.arrays[f"{name}_Wo"] *= self.quiet
        self._norm(f"{name}_Wo")

    def _feed(self, name: str) -> None:
        width, hidden = self.size.width, self.size.hidden
        self._matrix(f"{name}_W1", width, hidden, 1.4)
        self._matrix(f"{name}_W2", hidden, width, self.noise)
        self.arrays[f"{name}_W2"] *= self.quiet
        self.arrays |= {f"{name}_b1": np.zeros((1, hidden)), f"{name}_b2": self._normal(1, width, std=0.05)}
        self._norm(f"{name}_ffn")

    def _unit(self, name: str) -> None:
        width = self.size.width
        self._matrix(f"{name}_W", width, width, 2 * self.noise)
        self.arrays[f"{name}_W"] *= self.quiet
        self._matrix(f"{name}_Wf", width, width, 1.5)
        self.arrays[f"{name}_bf"] = self._normal(1, width, std=0.5)
        self._norm(f"{name}_ffn")

    def _attend_own_position(self, name: str, sharpness: float) -> None:
        """Let all heads but two attend to the position of the step, and read the token there."""
        width, depth, half = self.size.width, self.size.width // HEADS, self.size.width // 2
        query, key = self.arrays[f"{name}_Wq"], self.arrays[f"{name}_Wk"]
        for head in range(HEADS - 2):
            columns = slice(head * depth, (head + 1) * depth)
            pairs = np.sort(self.random.choice(self.fast, depth // 2, replace=depth // 2 > len(self.fast)))
            features, turn = np.concatenate((pairs, pairs + half)), self._orthogonal(depth)
            gap = (1 - np.cos(10000.0 ** (-pairs / (half - 1)))).sum()
            for matrix in (query, key):
                matrix[:, columns] *= 0.2
                for row, feature in enumerate(features):
                    matrix[feature, columns] += turn[row] * math.sqrt(sharpness * math.sqrt(depth) / gap)
        value = self._orthogonal(width)
        self.arrays |= {f"{name}_Wv": value, f"{name}_Wo": 3 * value.T * self.quiet}

    def _map(self, name: str, step: np.ndarray) -> None:
        """Let a feed-forward layer add 2 P x − x: two hidden features, of either sign, for each of x."""
        width = self.size.width
        turn = self._orthogonal(width)
        self.arrays[f"{name}_W1"][:, : 2 * width] = np.concatenate((turn, -turn), 1)
        inverse = turn.T @ (2 * step - np.eye(width))
        self.arrays[f"{name}_W2"][: 2 * width] = np.concatenate((inverse, -inverse))


def is_matrix(name: str) -> bool:
    """Return whether Marian stores a parameter in 8 bits."""
    return "Wemb" in name or name[-3:-1] == "_W" or name[-4:-2] == "_W" or name.endswith("_W")


def rounded(name: str, array: np.ndarray) -> tuple[np.ndarray, np.float32]:
    """Return the 8 bits of a matrix and their multiplier."""
    multiplier = np.float32(127 if "Wemb" in name else LARGEST) / np.abs(array).max()
    return np.rint(array * multiplier).astype(np.int8), np.float32(multiplier)


def binary(arrays: Arrays, settings: str, factors: dict[str, float] | None) -> bytes:
    """Return a .bin file; with factors of activations, by the names of matrices, of 8 bits."""
    items: list[tuple[str, int, tuple[int, ...], bytes]] = []
    for name, array in arrays.items():
        if factors is None or not is_matrix(name):
            items.append((name, FLOAT, array.shape, array.astype("<f4").tobytes()))
            continue
        numbers, multiplier = rounded(name, array)
        content = (numbers if "Wemb" in name else numbers.T).tobytes() + multiplier.tobytes()
        items.append((name, WITH_MULTIPLIER, array.shape, content))
    for name, factor in (factors or {}).items():
        content = np.float32(factor).tobytes()
        # marian-conv packs what has Wemb in its name
        kind, content = (
            (WITH_MULTIPLIER, b"\x7f" + np.float32(127 / factor).tobytes()) if "Wemb" in name else (FLOAT, content)
        )
        items.append((f"{name}_QuantMultA", kind, (1, 1), content))
    items = [(*item[:3], item[3].ljust(-(-len(item[3]) // 256) * 256, b"\0")) for item in sorted(items)]
    items.append(("special:model.yml", BYTES, (len(settings) + 1,), settings.encode() + b"\0"))
    head = struct.pack("<QQ", 1, len(items))
    head += b"".join(
        struct.pack("<4Q", len(name) + 1, kind, len(shape), len(data)) for name, kind, shape, data in items
    )
    head += b"".join(name.encode() + b"\0" for name, *_ in items)
    head += b"".join(struct.pack(f"<{len(shape)}i", *shape) for _, _, shape, _ in items)
    offset = 256 - (len(head) + 8) % 256
    return head + struct.pack("<Q", offset) + bytes(offset) + b"".join(data for *_, data in items)


def settings(size: Size, vocabularies: int, pieces: int) -> str:
    """Return the settings of a model as Marian writes them."""
    values = {
        "type": "transformer", "dim-emb": size.width, "dim-vocabs": f"\n  - {pieces}\n  - {pieces}",
        "enc-depth": size.encoder, "dec-depth": size.decoder, "transformer-heads": HEADS,
        "transformer-dim-ffn": size.hidden, "transformer-ffn-depth": 2, "transformer-ffn-activation": "relu",
        "transformer-preprocess": '""', "transformer-postprocess": "dan", "transformer-postprocess-emb": "d",
        "transformer-postprocess-top": '""', "transformer-decoder-autoreg": "rnn", "dec-cell": "ssru",
        "dec-cell-base-depth": 2, "dec-cell-high-depth": 1, "tied-embeddings-all": vocabularies == 1,
        "tied-embeddings": vocabularies == 2, "tied-embeddings-src": False, "layer-normalization": False,
        "transformer-guided-alignment-layer": "last", "transformer-tied-layers": "\n  []", "version": "v1.12.14",
        "enc-cell": "gru", "enc-cell-depth": 1, "enc-type": "bidirectional", "dim-rnn": 1024, "skip": False,
        "transformer-decoder-dim-ffn": 0, "transformer-train-position-embeddings": False, "input-types": "[]",
    }  # fmt: skip
    texts = (f"{key}: {str(value).lower() if isinstance(value, bool) else value}\n" for key, value in values.items())
    return "".join(texts)


class Equations:
    """A model evaluated in float64, by the equations of Vaswani et al. (2017) and Kim et al. (2019) as Marian has them.

    Args:
        arrays: its parameters, of which matrices of 8 bits are rounded if there are factors.
        size: its architecture.
        factors: the factors by which the inputs of matrices are rounded to 8 bits; None for floats.
    """

    def __init__(self, arrays: Arrays, size: Size, factors: dict[str, float] | None = None) -> None:
        self.size, self.factors = size, factors
        self.p = {
            name: torch.from_numpy(
                array if factors is None or not is_matrix(name)
                else rounded(name, array)[0] * (np.float32(1) / rounded(name, array)[1])
            ).double()
            for name, array in arrays.items()
        }  # fmt: skip
        # the scaled inputs of each matrix, and what they are rounded to in another engine, to be taken over
        self.inputs: dict[str, Tensor] = {}
        self.given: dict[str, Tensor] = {}

    def product(self, name: str, x: Tensor, *, transposed: bool = False) -> Tensor:
        weight = self.p[name].T if transposed else self.p[name]
        if self.factors is None:
            self.inputs[name] = x
            return x @ weight
        factor = np.float32(self.factors[name])
        scaled = self.inputs[name] = (x.float() * factor).double()
        numbers = self.given[name] if name in self.given else scaled.round().clamp(-127, 127)
        return numbers @ weight / float(factor)

    def norm(self, name: str, x: Tensor) -> Tensor:
        x = x - x.mean(-1, keepdim=True)
        return x / (x.square().mean(-1, keepdim=True) + 1e-6).sqrt() * self.p[f"{name}_ln_scale"] + self.p[
            f"{name}_ln_bias"
        ]

    def attend(self, name: str, x: Tensor, memory: Tensor) -> Tensor:
        q, k, v = (
            (self.product(f"{name}_W{part}", of) + self.p[f"{name}_b{part}"]).unflatten(-1, (HEADS, -1)).transpose(0, 1)
            for part, of in (("q", x), ("k", memory), ("v", memory))
        )
        weights = (q @ k.mT / math.sqrt(q.shape[-1])).softmax(-1)
        mixed = (weights @ v).transpose(0, 1).flatten(1)
        return self.norm(f"{name}_Wo", x + self.product(f"{name}_Wo", mixed) + self.p[f"{name}_bo"])

    def feed(self, name: str, x: Tensor) -> Tensor:
        hidden = (self.product(f"{name}_W1", x) + self.p[f"{name}_b1"]).relu()
        return self.norm(f"{name}_ffn", x + self.product(f"{name}_W2", hidden) + self.p[f"{name}_b2"])

    def unit(self, name: str, x: Tensor) -> Tensor:
        forget = (self.product(f"{name}_Wf", x) + self.p[f"{name}_bf"]).sigmoid()
        entered, cells = (1 - forget) * self.product(f"{name}_W", x), [x.new_zeros(x.shape[-1])]
        for f, new in zip(forget, entered, strict=True):
            cells.append(f * cells[-1] + new)
        return self.norm(f"{name}_ffn", x + torch.stack(cells[1:]).relu())

    def embed(self, vectors: Tensor) -> Tensor:
        half = self.size.width // 2
        angles = torch.arange(len(vectors))[:, None] * 10000.0 ** (-torch.arange(half).double() / (half - 1))
        return vectors * math.sqrt(self.size.width) + torch.cat((angles.sin(), angles.cos()), 1)

    def encode(self, source: list[int]) -> Tensor:
        """Return the memory (Tk, E) of the tokens of a source, which end with </s>."""
        memory = self.embed(self.p["Wemb" if "Wemb" in self.p else "encoder_Wemb"][source])
        for layer in range(1, self.size.encoder + 1):
            memory = self.attend(f"encoder_l{layer}_self", memory, memory)
            memory = self.feed(f"encoder_l{layer}_ffn", memory)
        return memory

    def logits(self, memory: Tensor, target: list[int]) -> Tensor:
        """Return the logits (T + 1, V) before and after each token of a target."""
        table = "Wemb" if "Wemb" in self.p else "decoder_Wemb"
        x = self.embed(torch.cat((memory.new_zeros(1, memory.shape[1]), self.p[table][target])))
        for layer in range(1, self.size.decoder + 1):
            x = self.unit(f"decoder_l{layer}_rnn", x)
            x = self.attend(f"decoder_l{layer}_context", x, memory)
            x = self.feed(f"decoder_l{layer}_ffn", x)
        return self.product(table, x, transposed=True) + self.p["decoder_ff_logit_out_b"]

    def greedy(self, source: list[int]) -> tuple[list[int], list[float]]:
        """Return the tokens of a translation, with </s> if it ends, and the margins of each."""
        memory, target, margins = self.encode(source), list[int](), list[float]()
        while len(target) < 2 * len(source) and EOS not in target:
            logits = self.logits(memory, target)[-1]
            logits[UNK] = -math.inf
            best = logits.topk(2)
            target.append(int(best.indices[0]))
            margins.append(float(best.values[0] - best.values[1]))
        return target, margins
