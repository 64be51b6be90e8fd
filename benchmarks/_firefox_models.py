"""Random models in Firefox's architectures, written in Marian's format.

Their logits are peaked as those of trained models, by construction: token vectors lie in orbits of an orthogonal P
(E[successor(w)] = P·E[w]), the last decoder layer attends to the source token at its own position, and its
feed-forward layer maps what it holds by P. All else is random, and differs from sentence to sentence. Matrices of 8
bits have numbers up to 63, so that no sum of two products overflows 16 bits in the engine; <unk>, which is never
written, has a larger one.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Iterable
from io import BytesIO
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import sentencepiece

Arrays = dict[str, np.ndarray[Any, Any]]
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
        self.random, self.size, self.noise = np.random.default_rng(seed), size, noise
        self.arrays: Arrays = {}
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
            for before, after in pairwise(order):
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

    def _quieten(self, name: str) -> None:
        self.arrays[name] = self.arrays[name] * self.quiet

    def _attention(self, name: str) -> None:
        width = self.size.width
        for part, std in zip("qkvo", (2.1, 2.1, 1.0, self.noise), strict=True):
            self._matrix(f"{name}_W{part}", width, width, std)
            self.arrays[f"{name}_b{part}"] = self._normal(1, width, std=0.05)
        self._quieten(f"{name}_Wo")
        self._norm(f"{name}_Wo")

    def _feed(self, name: str) -> None:
        width, hidden = self.size.width, self.size.hidden
        self._matrix(f"{name}_W1", width, hidden, 1.4)
        self._matrix(f"{name}_W2", hidden, width, self.noise)
        self._quieten(f"{name}_W2")
        self.arrays |= {f"{name}_b1": np.zeros((1, hidden)), f"{name}_b2": self._normal(1, width, std=0.05)}
        self._norm(f"{name}_ffn")

    def _unit(self, name: str) -> None:
        width = self.size.width
        self._matrix(f"{name}_W", width, width, 2 * self.noise)
        self._quieten(f"{name}_W")
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


def overflows(arrays: Arrays) -> int:
    """Return how many pairs of numbers could make a sum of two products over 16 bits, except those of <unk>."""
    count = 0
    for name, array in filter(lambda item: is_matrix(item[0]) and item[0] != "encoder_Wemb", arrays.items()):
        numbers = np.abs(rounded(name, array)[0].astype(np.int64))
        numbers = np.delete(numbers, UNK, 0).T if "Wemb" in name else numbers
        # activations are 127 more than they are, up to 254
        count += int((254 * (numbers[::2] + numbers[1::2]) > 2**15 - 1).sum())
    return count
