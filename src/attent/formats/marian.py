"""Export of Transformers, with their tokenizers, to Marian checkpoints for Hugging Face's transformers."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

import torch
from torch import Tensor

from attent.attention.scores import ScaledDot
from attent.errors import first_reason, refuse
from attent.models.settings import TransformerSettings
from attent.models.transformer import Transformer
from attent.runs.durable import write_text
from attent.runs.folder import Run
from attent.runs.hugging_face import PAD_PIECE
from attent.runs.hugging_face.layout import (
    BIAS,
    LM_HEAD,
    SHARED,
    SIDES,
    layer_names,
    reordered,
    sines_first,
    sinusoids,
    stream_axes,
)
from attent.runs.weights import write_tensors
from attent.text.tokenizer import BOS, EOS, PAD, SPECIALS, UNK, Tokenizer, prompt_of
from attent.text.tokenizers import SentencePieceTokenizer, SubwordTokenizer

NAMES = {UNK: "<unk>", EOS: "</s>"}
# A sinusoidal table has a fixed length in Marian; ours has none.
POSITIONS = 1024
# The names of activations in Marian's configs, by their names in runs.
SWISH = {"silu": "swish"}


def unsupported(run: Run) -> str | None:
    """Return the reason why a Marian checkpoint cannot express a run; None if it can."""
    if run.config.model.kind != "transformer":
        return "it does not support recurrent models"
    model = cast(Transformer, run.model)
    settings, attention = model.settings, model.decoder.layers[0].cross_attention
    return first_reason(
        (
            settings.self_attention == "ssru",
            "its decoder in transformers has self-attention, and the run's has a recurrent unit (ssru)",
        ),
        (
            settings.norm != "post",
            "its layer normalization follows each residual connection, and the run's precedes it",
        ),
        (
            settings.position not in ("sinusoidal", "learned"),
            f"it has no position {settings.position!r}, only sinusoidal and learned",
        ),
        (
            settings.score != "scaled_dot"
            or type(attention.score) is not ScaledDot
            or settings.normalizer != "softmax",
            f"it has only scaled_dot and softmax, got {settings.score!r} and {settings.normalizer!r}",
        ),
        (
            settings.key_value_heads not in (None, settings.heads),
            "it needs the same number of heads for keys and values as for queries",
        ),
        *(
            (
                not isinstance(run.tokenizers[side], SubwordTokenizer | SentencePieceTokenizer),
                f"its tokenizer is SentencePiece, and the {side}'s is {run.config.tokenizers[side]!r}",
            )
            for side in SIDES
        ),
        (prompt_of(run.tokenizers["target"]), "it forces no language token at the beginning of a translation"),
    )


def write(run: Run, name: str, folder: Path, quantization: str | None) -> dict[str, Any]:
    """Write a run into a folder that transformers' MarianMTModel and MarianTokenizer can load.

    Our sources end without </s>, which MarianTokenizer appends unless it is called with `add_special_tokens=False`;
    those of an imported Marian model end with it. Byte pieces, and the escapes that distinguish "▁" from a space, are
    unchanged, since SentencePiece uses the same ones.

    Args:
        run: the run of a Transformer.
        name: the name of the run, for messages.
        folder: an empty folder.
        quantization: must be None.

    Returns:
        The engine's part of the manifest, which is empty.

    Raises:
        ArgumentError: Marian cannot express the run, or `quantization` is not None.
    """
    reason = unsupported(run)
    refuse(
        (reason, f"a Marian checkpoint cannot express {name}: {reason}"),
        (quantization is not None, "a Marian checkpoint is written in float32 only: omit --quantization"),
    )
    write_tensors(tensors(run.model), folder / "model.safetensors")
    for file, content in _files(run).items():
        write_text(folder / file, json.dumps(content, indent=2, ensure_ascii=False) + "\n")
    for side in SIDES:
        (folder / f"{side}.spm").write_bytes(cast(SubwordTokenizer, run.tokenizers[side]).model)
    return {}


def tensors(model: Transformer) -> dict[str, Tensor]:
    """Return the tensors of a checkpoint by name, one of each tied group; BOS, Marian's padding, comes last."""
    settings = model.settings
    order = sines_first(settings.width) if settings.position == "sinusoidal" else None
    state = model.state_dict()
    result = {key: reordered(state[name], stream_axes(name), order) for name, key in layer_names(settings).items()}
    embeddings = {side: _moved(state[f"{side}_embedding.tokens.weight"]) for side in SIDES}
    if settings.share_embeddings == "all":
        result[SHARED] = reordered(embeddings["target"], (1,), order)
    else:
        result |= {
            f"model.{stack}.embed_tokens.weight": reordered(embeddings[side], (1,), order)
            for side, stack in SIDES.items()
        }
    if settings.share_embeddings == "none":
        result[LM_HEAD] = reordered(_moved(model.to_logits.weight), (1,), order)
    bias = torch.zeros(len(model.to_logits.weight)) if model.to_logits.bias is None else model.to_logits.bias.detach()
    result[BIAS] = _moved(bias)[None]
    for side, stack in SIDES.items():
        table = state.get(f"{side}_embedding.positions.table")
        result[f"model.{stack}.embed_positions.weight"] = (
            sinusoids(POSITIONS, settings.width) if table is None else table
        )
    return result


def _moved(rows: Tensor) -> Tensor:
    """Reorder rows by id into the order of `_ids`.

    The order is EOS, UNK, PAD, the pieces, and finally BOS, from which Marian's decoder starts.
    """
    return rows.detach()[torch.tensor([EOS, UNK, PAD, *range(SPECIALS, len(rows)), BOS])]


def _ids(tokenizer: Tokenizer) -> dict[str, int]:
    """Return the vocabulary, with pieces in the order of `_moved`; our PAD gets a name that occurs in no text."""
    own = cast(SubwordTokenizer, tokenizer)
    pieces = [own.name(token) for token in range(SPECIALS, own.size)]
    unused = "<unused 0>"
    while unused in pieces:
        unused = f"<{unused}>"
    return {piece: token for token, piece in enumerate((NAMES[EOS], NAMES[UNK], unused, *pieces, PAD_PIECE))}


def _files(run: Run) -> dict[str, Mapping[str, Any]]:
    settings = cast(TransformerSettings, run.config.model)
    sizes = {side: run.tokenizers[side].size for side in SIDES}
    ids = {side: _ids(run.tokenizers[side]) for side in SIDES}
    is_separate = settings.share_embeddings != "all"
    special = {
        "pad_token_id": sizes["target"] - 1,
        "decoder_start_token_id": sizes["target"] - 1,
        "eos_token_id": 0,
        "bos_token_id": None,
    }
    stacks = {
        f"{stack}_{name}": value
        for stack in SIDES.values()
        for name, value in (("attention_heads", settings.heads), ("ffn_dim", settings.feed_forward))
    }
    config = {
        "model_type": "marian",
        "architectures": ["MarianMTModel"],
        "is_encoder_decoder": True,
        "d_model": settings.width,
        "encoder_layers": settings.encoder_layers,
        "decoder_layers": settings.decoder_layers,
        "activation_function": SWISH.get(settings.activation, settings.activation),
        "scale_embedding": settings.scale_embeddings,
        "max_position_embeddings": settings.maximum_length if settings.position == "learned" else POSITIONS,
        "dropout": settings.dropout,
        "attention_dropout": settings.attention_dropout,
        "vocab_size": sizes["source"],
        "decoder_vocab_size": sizes["target"],
        "share_encoder_decoder_embeddings": not is_separate,
        "tie_word_embeddings": settings.share_embeddings != "none",
        **special,
        **stacks,
    }
    # our PAD and BOS are never generated
    generation = special | {"bad_words_ids": [[2], [sizes["target"] - 1]], "num_beams": 1}
    tokenizer = {
        "tokenizer_class": "MarianTokenizer",
        "separate_vocabs": is_separate,
        "eos_token": "</s>",
        "unk_token": "<unk>",
    }
    files: dict[str, Mapping[str, Any]] = {
        "config.json": config,
        "generation_config.json": generation,
        "tokenizer_config.json": tokenizer | {"pad_token": PAD_PIECE},
        "vocab.json": ids["source"],
    }
    return files | ({"target_vocab.json": ids["target"]} if is_separate else {})
