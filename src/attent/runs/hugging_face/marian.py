"""Import of Marian's own files: Firefox's translators (.bin), and OPUS-MT's native folders (.npz with decoder.yml).

They are read as `attent.runs.hugging_face` reads a folder of transformers: parameters get the names of transformers,
and settings those of its Marian config. Weights of 8 bits become floats exactly: number · (1 / multiplier).

Sources: Junczys-Dowmunt et al. (2018), arXiv 1804.00344; https://github.com/browsermt/marian-dev: common/binary.cpp,
models/transformer.h, graph/node_initializers.cpp.
"""

import gzip
import hashlib
import io
import json
import math
import re
import struct
import zipfile
import zlib
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor

from attent.bounded import bytes_of, open_regular
from attent.errors import DataError, reraise
from attent.models.settings import TransformerSettings
from attent.runs.config import AlignmentHead
from attent.runs.hugging_face.folder import LARGEST_MODEL, SourceFolder, SourceWeights
from attent.runs.hugging_face.layout import (
    ABSENT,
    BIAS,
    LM_HEAD,
    SHARED,
    SIDES,
    SpecialIds,
    TranslatorSource,
    Vocabulary,
    common_settings,
    layer_names,
    offset_positions,
)
from attent.text.readers import max_unpacked
from attent.text.tokenizers import EOS_PIECE, UNK_PIECE, SentencePieceTokenizer, processor_of

# Errors that a damaged model raises.
DAMAGES = (DataError, ValueError, IndexError, EOFError, zipfile.BadZipFile, zlib.error, struct.error)
# Maximum bytes of a model, and axes of a parameter.
LARGEST, MANY_AXES = 2**32, 8
# Types of numbers in a .bin file by Marian's codes. Matrices of 8 bits are followed by their multiplier.
WITH_MULTIPLIER = 0x4101
TYPES = {0x0404: np.dtype("<f4"), 0x0402: np.dtype("<f2"), 0x0101: np.dtype("i1"), WITH_MULTIPLIER: np.dtype("i1")}
# The item and the file of settings, and what ends the names of the multipliers of activations of 8 bits.
CONFIG, DECODER, ALPHA = "special:model.yml", "decoder.yml", "_QuantMultA"
# Names of parameters: Marian's, and those of transformers.
LAYER = re.compile(r"(encoder|decoder)_l([1-9]\d{0,2})_(\w+)")
SUBLAYERS = {"self": "self_attn", "context": "encoder_attn", "rnn": "self_attn", "ffn": "final"}
PARTS = {
    **{
        f"{part_name}_{kind}{part}": f"{SUBLAYERS[part_name]}.{'out' if part == 'o' else part}_proj.{name}"
        for part_name in ("self", "context")
        for part in "qkvo"
        for kind, name in (("W", "weight"), ("b", "bias"))
    },
    **{f"ffn_{kind}{n}": f"fc{n}.{name}" for n in "12" for kind, name in (("W", "weight"), ("b", "bias"))},
    **{"rnn_W": "rnn.value.weight", "rnn_Wf": "rnn.forget.weight", "rnn_bf": "rnn.forget.bias"},
    **{
        f"{part_name}_{'ffn' if part_name in ('rnn', 'ffn') else 'Wo'}_ln_{kind}": f"{module}_layer_norm.{name}"
        for part_name, module in SUBLAYERS.items()
        for kind, name in (("scale", "weight"), ("bias", "bias"))
    },
}
TABLES = {
    "Wemb": SHARED,
    "encoder_Wemb": "model.encoder.embed_tokens.weight",
    "decoder_Wemb": "model.decoder.embed_tokens.weight",
    "decoder_ff_logit_out_Wt": LM_HEAD,
}
OUTPUT_BIAS = "decoder_ff_logit_out_b"
# Settings with the only values that attent can express; the first one is that of a file without the setting.
REQUIRED: dict[str, tuple[str, ...]] = {
    "type": ("transformer",),
    "transformer-postprocess": ("dan",),
    "transformer-decoder-autoreg": ("self-attention", "rnn"),
    "dec-cell": ("ssru", "gru"),
    "transformer-ffn-depth": ("2",),
    **dict.fromkeys(("transformer-preprocess", "transformer-postprocess-top"), ("",)),
    **dict.fromkeys(("lemma-dim-emb", "transformer-decoder-dim-ffn"), ("0",)),
    **dict.fromkeys(
        (
            *("layer-normalization", "transformer-train-position-embeddings", "transformer-pool", "ulr", "right-left"),
            *(f"transformer-{name}" for name in ("no-projection", "no-affine", "no-bias", "rnn-projection")),
        ),
        ("false",),
    ),
}
# The settings of transformers, by Marian's names.
SIZES = {
    "d_model": "dim-emb",
    "encoder_layers": "enc-depth",
    "decoder_layers": "dec-depth",
    **{f"{stack}_attention_heads": "transformer-heads" for stack in SIDES.values()},
    **{f"{stack}_ffn_dim": "transformer-dim-ffn" for stack in SIDES.values()},
}
GUIDED, LAST = "transformer-guided-alignment-layer", "last"
# Positions of a run (Firefox cuts sentences at 128 tokens), and the number added to variances.
POSITIONS, EPSILON = 512, 1e-6


class MarianFolder(SourceFolder):
    """A folder with one model of Marian, .bin or .npz, and its vocabularies; files may be compressed with gzip.

    Args:
        path: the folder.

    Attributes:
        alphas: the multipliers of activations of 8 bits, by the names of the weights; empty without any.
        has_8_bits: whether the weights have 8 bits.

    Raises:
        RunError: a file is missing or damaged, or attent cannot express the model.
    """

    def __init__(self, path: Path | str) -> None:
        self.path = Path(path)
        self.generation = self.tokenizer_config = self.special_tokens = {}
        self.metadata = self.json("metadata.json", {})
        self.decoder = settings_of(self.bytes(DECODER)) if (self.path / DECODER).is_file() else {}
        name = self._model_name()
        content = self.bytes(name, LARGEST)
        if self.metadata.get("hash") not in (None, hashlib.sha256(content).hexdigest()):
            raise self.error(f"the SHA-256 of {name} does not match metadata.json")
        with reraise(self.error, f"{name} is damaged", *DAMAGES):
            arrays, self.has_8_bits = (read_zipped if ".npz" in name else read_binary)(content)
        if CONFIG not in arrays:
            raise self.error(f"{name} has no {CONFIG}")
        self.marian = settings_of(arrays.pop(CONFIG).tobytes().rstrip(b"\0"))
        for key, values in REQUIRED.items():
            if (value := self.marian.get(key, values[0])) not in values:
                raise self.error(f"its {key} must be {' or '.join(map(repr, values))}, got {value!r}")
        self.alphas = {
            _name(key.removesuffix(ALPHA)): float(arrays.pop(key).flat[0]) for key in [*arrays] if ALPHA in key
        }
        self.config = self._config()
        # not the cached property of SourceFolder, which reads safetensors
        self.__dict__["weights"] = MarianWeights(self, arrays)

    def bytes(self, name: str, limit: int = LARGEST_MODEL) -> bytes:
        """Read a file of the folder, and decompress it if its name ends in .gz.

        Raises:
            RunError: it is missing, damaged or too large.
        """
        if Path(name).name != name:
            raise self.error(f"{name!r} must be in the folder itself")
        with (
            reraise(self.error, f"{name} is missing or damaged", OSError, EOFError, zlib.error, DataError),
            open_regular(self.path / name) as file,
        ):
            if not name.endswith(".gz"):
                return bytes_of(file, limit)
            limit = min(limit, max_unpacked((self.path / name).stat().st_size))
            with gzip.open(file) as unpacked:
                content = unpacked.read(limit + 1)
        if len(content) > limit:
            raise self.error(f"{name} has more than {limit:,} bytes unpacked")
        return content

    def find(self, *patterns: str) -> list[str]:
        """Return the files that match the first of these patterns with any, compressed or not."""
        matches = (sorted(file.name for end in ("", ".gz") for file in self.path.glob(each + end)) for each in patterns)
        return next(filter(None, matches), [])

    def _model_name(self) -> str:
        names = [Path(name).name for name in self.decoder.get("models", ())] or [
            name for name in self.find("*.bin", "*.npz") if not name.startswith("lex.") and ".alphas.npz" not in name
        ]
        if len(names) != 1:
            raise self.error(f"it must have one model, .bin or .npz, got {', '.join(names) or 'none'}")
        return names[0]

    def _config(self) -> dict[str, Any]:
        marian = self.marian
        is_all, is_shared = marian.get("tied-embeddings-all") == "true", marian.get("tied-embeddings-src") == "true"
        sizes = {name: str(marian.get(key, "")) for name, key in SIZES.items()}
        return {
            **{name: int(size) if size.isdecimal() else size for name, size in sizes.items()},
            "activation_function": marian.get("transformer-ffn-activation"),
            "scale_embedding": True,
            "share_encoder_decoder_embeddings": is_all or is_shared,
            "tie_word_embeddings": is_all or marian.get("tied-embeddings") == "true",
            "max_position_embeddings": POSITIONS,
            "dropout": 0.1,
        }


class MarianWeights(SourceWeights):
    """Marian's parameters by the names and in the layout of transformers.

    Tables and the output bias get one more row, for the decoder's first input, a vector of zeros.

    Args:
        folder: the folder, for messages.
        arrays: Marian's parameters.

    Raises:
        RunError: a parameter has a name or a shape that a Transformer of Marian does not have.
    """

    def __init__(self, folder: MarianFolder, arrays: dict[str, np.ndarray]) -> None:
        self._folder, self._tensors = folder, dict[str, Tensor]()
        for name in [*arrays]:
            array = torch.from_numpy(np.array(arrays.pop(name), np.float32))
            if array.ndim != 2 or not array.isfinite().all():
                raise folder.error(f"{name} must be a matrix of finite numbers, got the shape {tuple(array.shape)}")
            self._tensors[_name(name)] = _laid_out(name, array)
        self.shapes = {name: tuple(tensor.shape) for name, tensor in self._tensors.items()}

    def __getitem__(self, name: str) -> Tensor:
        return self._tensors[name]


def _name(name: str) -> str:
    """Return the name of a parameter in transformers; an unknown name stays."""
    if name in TABLES:
        return TABLES[name]
    if (match := LAYER.fullmatch(name)) and match[3] in PARTS:
        return f"model.{match[1]}.layers.{int(match[2]) - 1}.{PARTS[match[3]]}"
    return BIAS if name == OUTPUT_BIAS else name


def _laid_out(name: str, array: Tensor) -> Tensor:
    if name in TABLES:
        return torch.cat((array, array.new_zeros(1, array.shape[1])))
    if name == OUTPUT_BIAS:
        return torch.cat((array, array.new_full((len(array), 1), ABSENT)), 1)
    return array[0] if len(array) == 1 else array.T


def read_binary(content: bytes) -> tuple[dict[str, np.ndarray], bool]:
    """Return the parameters in a .bin file by name, and whether they have 8 bits.

    Raises:
        DataError: the file is damaged, or has numbers of another type.
    """
    version, count = struct.unpack_from("<QQ", content)
    if version != 1 or count > len(content) // 32:
        raise DataError(f"its version must be 1, got {version}")
    headers = [struct.unpack_from("<4Q", content, 16 + 32 * index) for index in range(count)]
    offset = 16 + 32 * count
    names: list[str] = []
    for length, *_ in headers:
        names.append(content[offset : offset + length].rstrip(b"\0").decode())
        offset += length
    shapes: list[tuple[int, ...]] = []
    for name, (_, _, axes, _) in zip(names, headers, strict=True):
        if axes > MANY_AXES:
            raise DataError(f"{name!r} has {axes:,} axes")
        shapes.append(struct.unpack_from(f"<{axes}i", content, offset))
        offset += 4 * axes
    offset += 8 + struct.unpack_from("<Q", content, offset)[0]
    arrays: dict[str, np.ndarray] = {}
    for name, shape, (_, kind, _, size) in zip(names, shapes, headers, strict=True):
        if kind not in TYPES:
            raise DataError(f"{name!r} has numbers of type {kind:#x}, which attent does not read")
        count = math.prod(shape) if shape and min(shape) > 0 else 0
        if not count or count * TYPES[kind].itemsize > size or offset + size > len(content) or name in arrays:
            raise DataError(f"{name!r} does not fit its header")
        numbers = np.frombuffer(content, TYPES[kind], count, offset)
        if kind == WITH_MULTIPLIER:
            (multiplier,) = struct.unpack_from("<f", content, offset + count)
            # other matrices are stored transposed, though their shape is not
            is_stored = "Wemb" in name or len(shape) != 2
            numbers = numbers.reshape(shape) if is_stored else numbers.reshape(shape[::-1]).T
            numbers = numbers * (np.float32(1) / np.float32(multiplier))
        arrays[name] = numbers.reshape(shape)
        offset += size
    return arrays, any(kind == WITH_MULTIPLIER for _, kind, _, _ in headers)


def read_zipped(content: bytes) -> tuple[dict[str, np.ndarray], bool]:
    """Return the parameters in a .npz file by name; they have floats. Errors as for `read_binary`."""
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        if sum(entry.file_size for entry in archive.infolist()) > max_unpacked(len(content)):
            raise DataError("it is too large unpacked")
    with np.load(io.BytesIO(content), allow_pickle=False) as arrays:
        # what is no array, or no numbers, is an error of a value here
        return {
            name: np.asarray(arrays[name]).astype("i1" if name == CONFIG else "<f4") for name in arrays.files
        }, False


def settings_of(text: bytes) -> dict[str, Any]:
    """Return the top level of a YAML file of Marian: texts, and lists of texts."""
    settings: dict[str, Any] = {}
    key = ""
    for line in text.decode(errors="replace").splitlines():
        name, colon, value = line.partition(":")
        if item := line.strip().removeprefix("- ") if line.strip().startswith("- ") else "":
            settings[key] = [*(settings[key] or ()), _unquoted(item)] if key else None
        elif colon and name == name.strip():
            key, value = name, value.strip()
            is_list = value.startswith("[") and value.endswith("]")
            settings[key] = [*map(_unquoted, filter(None, value[1:-1].split(",")))] if is_list else _unquoted(value)
    return settings


def _unquoted(text: str) -> str:
    text = text.strip()
    return text[1:-1] if len(text) > 1 and text[0] == text[-1] and text[0] in "\"'" else text


def ids_of(text: str) -> dict[str, int]:
    """Return the ids of pieces in a vocabulary of Marian, JSON or YAML with a piece a line.

    Raises:
        DataError: it is neither, or two pieces have the same id.
    """
    with reraise(DataError, "it must map pieces to ids", ValueError, RecursionError):
        if text.lstrip().startswith("{"):
            ids = json.loads(text)
        else:
            ids = {
                json.loads(piece) if piece.startswith('"') else _unquoted(piece).replace("''", "'"): int(token)
                for piece, _, token in (
                    line.rpartition(":") for line in text.splitlines() if line.strip() and line.strip() != "---"
                )
            }
    if len(set(map(str, ids.values()))) != len(ids) or any(
        type(token) is not int or token < 0 for token in ids.values()
    ):
        raise DataError("it must map pieces to different ids")
    return cast(dict[str, int], ids)


def read_native(folder: MarianFolder, source_language: str | None, target_language: str | None) -> TranslatorSource:
    """Read the settings and tokenizers of a folder of Marian.

    Args:
        folder: the folder.
        source_language: the source language; by default that of metadata.json or of the names of files.
        target_language: the target language; see `attent.runs.hugging_face.read_marian`.

    Raises:
        RunError: a file is missing or damaged, or attent cannot express the model.
    """
    is_recurrent = folder.marian.get("transformer-decoder-autoreg") == "rnn"
    if is_recurrent and folder.marian.get("dec-cell") != "ssru":
        raise folder.error("its decoder has the unit gru; attent has ssru")
    settings = TransformerSettings.model_validate(
        common_settings(folder)
        | {"position": "learned", "maximum_length": POSITIONS, "norm_epsilon": EPSILON}
        | ({"self_attention": "ssru"} if is_recurrent else {})
    )
    languages = _languages(folder, source_language, target_language)
    names = [(SHARED, TABLES[f"{stack}_Wemb"]) for stack in SIDES.values()]
    rows = [
        next((folder.weights.shapes[name][0] for name in of_side if name in folder.weights), 0) for of_side in names
    ]
    (source_model, source_ids), (target_model, target_ids) = _vocabulary_files(folder)
    source, source_model = _vocabulary(folder, source_model, source_ids, rows[0])
    target, target_model = _vocabulary(folder, target_model, target_ids, rows[1])
    mark = f">>{target_language}<<"
    before, pieces = [mark] if mark in source.names.values() else [], source.pieces
    has_language = not before and any(piece.startswith(">>") and piece.endswith("<<") for piece in pieces)
    options: dict[str, Any] = {"before": before, "after": [EOS_PIECE], "has_language": has_language}
    with reraise(folder.error, "its vocabulary", ValueError):
        tokenizers = (
            SentencePieceTokenizer(source_model, pieces, marks=source.unnamed, **options),
            SentencePieceTokenizer(target_model, target.pieces, marks=target.unnamed),
        )
    # Marian never writes <unk>
    if folder.weights.shapes.get(BIAS) != (1, target.size):
        raise folder.error(f"{OUTPUT_BIAS} must be (1, {target.size - 1:,}), and cannot be omitted")
    folder.weights[BIAS][0, target.special.unk] = ABSENT
    positions = dict.fromkeys(SIDES, offset_positions(POSITIONS, settings.width, 0))
    factors = {name: folder.alphas[key] for name, key in layer_names(settings).items() if key in folder.alphas}
    output = next((key for key in (LM_HEAD, TABLES["decoder_Wemb"], SHARED) if key in folder.alphas), None)
    return TranslatorSource(
        folder,
        settings,
        tokenizers,
        (source, target),
        positions,
        languages,
        folder.has_8_bits,
        factors if output is None else factors | {"to_logits.weight": folder.alphas[output]},
        _alignment(folder, settings.decoder_layers),
    )


def _alignment(folder: MarianFolder, layers: int) -> AlignmentHead:
    """Return the head that Marian reads alignments from, the first of the last layer or of the one named, from 1."""
    named = folder.marian.get(GUIDED, LAST)
    if named not in (LAST, *map(str, range(1, layers + 1))):
        raise folder.error(f"its {GUIDED} must be {LAST!r} or from 1 to {layers}, got {named!r}")
    return AlignmentHead(layer=None if named == LAST else int(named) - 1, head=0)


def _vocabulary_files(folder: MarianFolder) -> list[tuple[str, str | None]]:
    """Return each side's SentencePiece model and, if the ids are not those of the model, the file of ids."""
    if named := folder.decoder.get("vocabs"):
        names = (named if isinstance(named, list) else [named]) * 2
        return [
            (name, None) if name.endswith(".spm") else (f"{side}.spm", name)
            for side, name in zip(SIDES, names[:: len(names) // 2][:2], strict=True)
        ]
    matches = folder.find("vocab.*.spm")[:1] * 2 or [*folder.find("srcvocab.*.spm"), *folder.find("trgvocab.*.spm")]
    if len(matches) != 2:
        raise folder.error("it must have vocab.*.spm, or srcvocab.*.spm and trgvocab.*.spm, or decoder.yml with vocabs")
    return [(name, None) for name in matches]


def _vocabulary(folder: MarianFolder, name: str, ids_file: str | None, rows: int) -> tuple[Vocabulary, bytes]:
    model = folder.bytes(name)
    with reraise(folder.error, ids_file or name, ValueError, DataError):
        processor = processor_of(model)
        own = {processor.IdToPiece(token): token for token in range(processor.GetPieceSize())}
        ids = own if ids_file is None else ids_of(folder.bytes(ids_file).decode(errors="replace"))
    if missing := next((piece for piece in (UNK_PIECE, EOS_PIECE) if piece not in ids), None):
        raise folder.error(f"{missing} is missing in {ids_file or name}")
    # the last row is that of the decoder's first input
    if max(ids.values()) >= rows - 1:
        raise folder.error(f"{ids_file or name} has ids up to {max(ids.values()):,}, and the model {rows - 1:,} rows")
    names = {token: piece for piece, token in ids.items()}
    return Vocabulary(names, rows, SpecialIds(rows - 1, ids[UNK_PIECE], rows - 1, ids[EOS_PIECE])), model


def _languages(folder: MarianFolder, source: str | None, target: str | None) -> dict[str, str]:
    matches = re.search(r"\.([a-z]{2})([a-z]{2})\.", " ".join(folder.find("model.*.bin", "*vocab.*.spm")))
    named = [
        folder.metadata.get(f"{side}Language") or (matches and matches[1 + which]) for which, side in enumerate(SIDES)
    ]
    chosen = dict(zip(SIDES, (source or named[0], target or named[1]), strict=True))
    return {side: language for side, language in chosen.items() if isinstance(language, str)}
