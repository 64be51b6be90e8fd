"""Mapping between the ids and tensor names of transformers ("their") and those of attent ("our").

Our ids begin with PAD, UNK, BOS and EOS, followed by all other ids of theirs in the same order.

Sinusoidal positions also need another order of features. They put all sines before all cosines, while we interleave
them: our feature 2i is their feature i, and our 2i + 1 is their E/2 + i. Reordering every axis along the residual
stream in this way is exact, since a layer norm treats all features alike.
"""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch
from torch import Tensor

from attent.attention.positions.sinusoidal import waves
from attent.models.settings import TransformerSettings
from attent.runs.config import AlignmentHead
from attent.runs.hugging_face.folder import SourceFolder
from attent.text.tokenizer import PAD, SPECIALS, Tokenizer

# The bias of a token that their model lacks: its probability is practically zero, but the loss stays finite.
ABSENT = -100.0
# The names of parts of layers: ours and theirs.
ATTENTION = {
    "query_projection": "q_proj",
    "key_projection": "k_proj",
    "value_projection": "v_proj",
    "output": "out_proj",
}
FEED_FORWARD = {
    "feed_forward.widen": "fc1",
    "feed_forward.narrow": "fc2",
    "around_feed_forward.norm": "final_layer_norm",
}
SELF = {f"self_attention.{name}": f"self_attn.{key}" for name, key in ATTENTION.items()}
CROSS = {f"cross_attention.{name}": f"encoder_attn.{key}" for name, key in ATTENTION.items()}
ENCODER = SELF | {"around_attention.norm": "self_attn_layer_norm"} | FEED_FORWARD
DECODER = (
    CROSS | {"around_self.norm": "self_attn_layer_norm", "around_cross.norm": "encoder_attn_layer_norm"} | FEED_FORWARD
)
# Of a decoder with a recurrent unit, only in Marian's own files.
RECURRENT = {"self_attention.forget": "rnn.forget", "self_attention.value": "rnn.value"}
# Our names of activations, by their names.
ACTIVATIONS = {"swish": "silu", "silu": "silu", "relu": "relu", "gelu": "gelu"}
FIRST = "model.encoder.layers.0.self_attn.q_proj.weight"
SHARED, LM_HEAD, BIAS = "model.shared.weight", "lm_head.weight", "final_logits_bias"
SIDES = {"source": "encoder", "target": "decoder"}


class SpecialIds(NamedTuple):
    """The special ids of their vocabulary: padding, unknown, decoder start and end."""

    pad: int
    unk: int
    start: int
    eos: int


@dataclass(frozen=True)
class Vocabulary:
    """The ids of one side of a translator.

    The decoder's start is our BOS. If it is their padding (Marian), BOS also has its output, and our PAD has none; if
    it is another token, such as the end (M2M100), BOS is a copy of its row, without an output.

    Args:
        names: the names of their ids; an id without a name occurs in no text.
        size: the number of rows of their embedding.
        special: their special ids.
    """

    names: Mapping[int, str]
    size: int
    special: SpecialIds

    @property
    def ordinary(self) -> list[int]:
        """Their ids except PAD, UNK and EOS."""
        special = {self.special.pad, self.special.unk, self.special.eos}
        return [token for token in range(self.size) if token not in special]

    @property
    def pieces(self) -> list[str]:
        """The pieces of our ids, starting at id 4."""
        return [self.names.get(token) or self.unused(token) for token in self.ordinary]

    @property
    def unnamed(self) -> list[str]:
        """The pieces that occur in no text, since their ids have no names."""
        return [self.unused(token) for token in self.ordinary if not self.names.get(token)]

    @staticmethod
    def unused(token: int) -> str:
        """Return a placeholder name for an id without a name."""
        return f"<unused {token}>"

    def rows(self, table: Tensor) -> Tensor:
        """Convert their embedding into ours (V, E); PAD is zero if its row belongs to BOS."""
        pad, unk, start, eos = self.special
        result = table[torch.tensor([pad, unk, start, eos, *self.ordinary])]
        if start == pad:
            result[PAD] = 0
        return result

    def bias(self, bias: Tensor) -> Tensor:
        """Convert their output bias into ours (V,), with `ABSENT` for tokens that they lack."""
        pad, unk, start, eos = self.special
        result = bias[torch.tensor([pad, unk, start, eos, *self.ordinary])]
        result[PAD if start == pad else SPECIALS - 2] = ABSENT
        return result


@dataclass(frozen=True)
class TranslatorSource:
    """A translator in a folder, ready to be read.

    Args:
        folder: the folder.
        settings: the settings of our model.
        tokenizers: the tokenizers of source and target.
        vocabularies: the vocabularies of source and target.
        positions: their tables of positions (T, E) by side, in the order of their features, if positions are learned.
        languages: the languages by side, if known.
        has_8_bits: whether the weights had 8 bits.
        factors: the factors by which activations are rounded to 8 bits, by our names of the weights, if known.
        alignment: the attention that was trained to align words, if known.
    """

    folder: SourceFolder
    settings: TransformerSettings
    tokenizers: tuple[Tokenizer, Tokenizer]
    vocabularies: tuple[Vocabulary, Vocabulary]
    positions: dict[str, Tensor]
    languages: dict[str, str]
    has_8_bits: bool = False
    factors: Mapping[str, float] = field(default_factory=dict)
    alignment: AlignmentHead | None = None


def common_settings(folder: SourceFolder) -> dict[str, Any]:
    """Return the settings of our model that are common to both families.

    Raises:
        RunError: attent cannot express a setting in config.json.
    """
    config = folder.config
    activation = config.get("activation_function")
    if activation not in ACTIVATIONS:
        raise folder.error(f"activation_function must be one of {', '.join(ACTIVATIONS)}, got {activation!r}")
    for name in ("attention_heads", "ffn_dim"):
        if (encoder := folder.number(f"encoder_{name}")) != (decoder := folder.number(f"decoder_{name}")):
            raise folder.error(f"encoder_{name} and decoder_{name} must be equal, got {encoder} and {decoder}")
    width, heads = folder.number("d_model"), folder.number("encoder_attention_heads")
    if width % 2 or width % heads:
        raise folder.error(f"d_model must be even and divisible by encoder_attention_heads = {heads}, got {width}")
    # checked before a tensor of that width is allocated
    if (shape := folder.weights.shapes.get(FIRST)) != (width, width):
        raise folder.error(f"{FIRST} must be ({width}, {width}) by config.json, got {shape}")
    is_shared, is_tied = (
        config.get("share_encoder_decoder_embeddings", True) is True,
        config.get("tie_word_embeddings", True) is True,
    )
    return {
        "width": width,
        "heads": heads,
        "feed_forward": folder.number("encoder_ffn_dim"),
        # each layer has tensors
        "encoder_layers": folder.number("encoder_layers", len(folder.weights.shapes)),
        "decoder_layers": folder.number("decoder_layers", len(folder.weights.shapes)),
        "activation": ACTIVATIONS[activation],
        "scale_embeddings": config.get("scale_embedding") is True,
        "share_embeddings": ("all" if is_shared else "target") if is_tied else "none",
        "output_bias": True,
        "dropout": _share(config.get("dropout", 0.1)),
        "attention_dropout": _share(config.get("attention_dropout", 0.0)),
    }


def _share(value: Any) -> float:
    return float(value) if isinstance(value, int | float) and 0 <= value < 1 else 0.0


def layer_names(settings: TransformerSettings) -> dict[str, str]:
    """Return their names of the parameters of layers, by our names."""
    decoder = DECODER | (RECURRENT if settings.self_attention == "ssru" else SELF)
    parts = {"encoder": (settings.encoder_layers, ENCODER), "decoder": (settings.decoder_layers, decoder)}
    modules = {
        f"{stack}.layers.{layer}.{name}": f"model.{stack}.layers.{layer}.{key}"
        for stack, (count, names) in parts.items()
        for layer in range(count)
        for name, key in names.items()
    }
    if settings.norm == "pre":
        modules |= {f"{stack}.norm": f"model.{stack}.layer_norm" for stack in parts}
    names = {f"{name}.{kind}": f"{key}.{kind}" for name, key in modules.items() for kind in ("weight", "bias")}
    return {name: key for name, key in names.items() if not name.endswith("self_attention.value.bias")}


def shape_of(name: str, settings: TransformerSettings) -> tuple[int, ...]:
    """Return the shape of one of our layer parameters, which does not depend on the order of features."""
    module, kind = name.split(".")[-2:]
    width, hidden = settings.width, settings.feed_forward
    rows, columns = {"widen": (hidden, width), "narrow": (width, hidden)}.get(module, (width, width))
    return (rows, columns) if kind == "weight" and module != "norm" else (rows,)


def stream_axes(name: str) -> tuple[int, ...]:
    """Return the axes of one of our parameters that lie along the residual stream."""
    module, kind = name.split(".")[-2:]
    return (0,) if module in ("norm", "narrow", "output") else (1,) if kind in ("weight", "table") else ()


def interleaved(width: int) -> Tensor:
    """Return the index of their corresponding feature for each of ours, (E,)."""
    return torch.arange(width).view(2, -1).T.flatten()


def sines_first(width: int) -> Tensor:
    """Return the index of our corresponding feature for each of theirs, (E,): the inverse of `interleaved`."""
    return torch.arange(width).view(-1, 2).T.flatten()


def reordered(tensor: Tensor, axes: tuple[int, ...], order: Tensor | None) -> Tensor:
    """Return a tensor with the features of some axes reordered; unchanged if there is no order."""
    if order is not None:
        for axis in axes:
            tensor = tensor.index_select(axis, order)
    return tensor


def sinusoids(count: int, width: int) -> Tensor:
    """Return Marian's sinusoidal positions (T, E), in the order of its features."""
    return waves(torch.arange(count), width)[:, sines_first(width)]


def offset_positions(count: int, width: int, first: int) -> Tensor:
    """Return sinusoidal positions (T, E) from `first` on as Marian and M2M100 compute them.

    All sines precede all cosines, and frequencies go down to exactly 1/10000.
    """
    half = width // 2
    frequencies = torch.exp(torch.arange(half).float() * -(math.log(10000) / max(half - 1, 1)))
    angles = torch.arange(first, first + count).float()[:, None] * frequencies
    return torch.cat((angles.sin(), angles.cos()), 1)


def embedding_names(settings: TransformerSettings, is_shared: bool) -> dict[str, list[str]]:
    """Return the possible names of each embedding and of the output, the preferred one first.

    Tied tensors have the same names.
    """
    names = {side: [f"model.{stack}.embed_tokens.weight"] for side, stack in SIDES.items()}
    if settings.share_embeddings == "none":
        return {side: [*own, *([SHARED] if is_shared else ())] for side, own in names.items()} | {"output": [LM_HEAD]}
    if settings.share_embeddings == "all":
        return dict.fromkeys((*names, "output"), [SHARED, *names["source"], *names["target"], LM_HEAD])  # noqa: RUF024 - nobody changes it
    return names | dict.fromkeys(("target", "output"), [*names["target"], LM_HEAD])  # noqa: RUF024


def our_tensors(source: TranslatorSource) -> Iterator[tuple[str, Tensor]]:
    """Yield the names and tensors of our model, read one by one; tied tensors appear once.

    Raises:
        RunError: a tensor is missing or damaged or has another shape, or tied tensors differ.
    """
    folder, settings, weights = source.folder, source.settings, source.folder.weights
    is_shared = folder.config.get("share_encoder_decoder_embeddings", True) is True
    names, layers = embedding_names(settings, is_shared), layer_names(settings)
    (source_side, target_side), width = source.vocabularies, settings.width
    sides = {"source": source_side, "target": target_side, "output": target_side}
    optional = {name: (sides[side].size, width) for side, keys in names.items() for name in keys}
    optional[BIAS] = (1, target_side.size)
    maximum = folder.number("max_position_embeddings")
    optional |= {f"model.{stack}.embed_positions.weight": (maximum, width) for stack in SIDES.values()}
    weights.check({key: shape_of(name, settings) for name, key in layers.items()}, optional)
    order = interleaved(width) if settings.position == "sinusoidal" else None
    is_tied = settings.share_embeddings != "none"
    matrices = {side: _first_present(folder, keys, is_tied=is_tied) for side, keys in names.items()}
    targets = {
        "source": "source_embedding.tokens.weight",
        "target": "target_embedding.tokens.weight",
        "output": "to_logits.weight",
    }
    for side, name in matrices.items():
        if not (side == "output" and is_tied) and not (side == "target" and settings.share_embeddings == "all"):
            yield targets[side], reordered(sides[side].rows(weights[name]), (1,), order)
    bias = weights[BIAS][0] if BIAS in weights else torch.zeros(target_side.size)
    yield "to_logits.bias", target_side.bias(bias)
    for side, table in source.positions.items():
        yield f"{side}_embedding.positions.table", table
    for name, key in layers.items():
        yield name, reordered(weights[key], stream_axes(name), order)


def _first_present(folder: SourceFolder, names: list[str], *, is_tied: bool) -> str:
    """Return the first of these names that the folder contains; check that tied tensors are equal."""
    present = [name for name in names if name in folder.weights]
    if not present:
        raise folder.error(f"{names[0]} is missing from its weights")
    for name in present[1:] if is_tied else ():
        if not torch.equal(folder.weights[name], folder.weights[present[0]]):
            raise folder.error(f"{name} differs from {present[0]}, although config.json ties them")
    return present[0]
