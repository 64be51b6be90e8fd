"""CTranslate2: export of Transformers to its format."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor, nn

from attent.attention.multihead import MultiHeadAttention
from attent.attention.normalizers.softmax import Softmax
from attent.attention.positions.learned import Learned
from attent.attention.positions.sinusoidal import waves
from attent.attention.scores import Dot, ScaledDot
from attent.errors import ArgumentError, first_reason, needs
from attent.layers.feed_forward import FeedForward
from attent.models.settings import TransformerSettings
from attent.models.transformer import Transformer
from attent.models.transformer_layers import Embedding
from attent.runs.config import version_of
from attent.runs.folder import Run
from attent.tasks.translation.alignment import token_texts
from attent.text.tokenizer import SPECIALS, Tokenizer

# The number of sinusoidal positions stored for CTranslate2; ours are computed on demand.
POSITIONS = 2048
ADDED = ("sinusoidal", "learned", "none")
UNK_TOKEN, BOS_TOKEN, EOS_TOKEN = "<unk>", "<s>", "</s>"
SPECIAL: tuple[str, ...] = ("<pad>", UNK_TOKEN, BOS_TOKEN, EOS_TOKEN)
# CTranslate2's factors of queries; None for 1/√D.
SCALES: dict[type[nn.Module], float | None] = {ScaledDot: None, Dot: 1.0}


@needs("this needs CTranslate2", "ctranslate2")
def write(run: Run, name: str, folder: Path, quantization: str | None) -> dict[str, Any]:
    """Write a run's model into a folder in CTranslate2's format, and return the engine's part of the manifest.

    Args:
        run: the run of a Transformer.
        name: the name of the run, for messages.
        folder: an empty folder.
        quantization: the type of the stored weights, in CTranslate2's spelling; by default they are not quantized.

    Raises:
        ArgumentError: CTranslate2 cannot express the model, or has no such quantization.
        AttentError: CTranslate2 is not installed.
    """
    if reason := unsupported(run):
        raise ArgumentError(
            f"CTranslate2 cannot express this model: {reason}; attent export {name} --to onnx supports every translator"
        )
    from ctranslate2.specs.model_spec import ACCEPTED_MODEL_TYPES

    if quantization is not None and quantization not in ACCEPTED_MODEL_TYPES:
        raise ArgumentError(f"quantization must be one of {', '.join(ACCEPTED_MODEL_TYPES)}, got {quantization!r}")
    spec = specification(run)
    spec.validate()
    spec.optimize(quantization=quantization)
    spec.save(str(folder))
    return {"versions": {"ctranslate2": version_of("ctranslate2")}, "longest": max_length(run)}


def unsupported(run: Run) -> str | None:
    """Return the reason why CTranslate2 cannot express a run's model; None if it can."""
    if run.config.model.kind != "transformer":
        return "it does not support recurrent models"
    model = cast(Transformer, run.model)
    settings, attention = model.settings, model.decoder.layers[0].cross_attention
    return first_reason(
        (
            settings.self_attention == "ssru",
            "its decoders have self-attention, and the run's has a recurrent unit (ssru)",
        ),
        (type(attention.score) not in SCALES, f"it has no score {settings.score!r}, only scaled_dot and dot"),
        (type(attention.normalizer) is not Softmax, f"it has no normalizer {settings.normalizer!r}, only softmax"),
        (settings.position == "alibi", "it has position 'alibi' only in decoders, not in encoders"),
        (
            settings.position == "relative_bias",
            "its position 'relative_bias' has one table for all layers, and in this model each layer has its own",
        ),
    )


def max_length(run: Run) -> int | None:
    """Return the maximum number of tokens in a sequence; None if there is no limit."""
    settings = cast(Transformer, run.model).settings
    if settings.position == "learned":
        return settings.maximum_length
    return POSITIONS if settings.position in ADDED else None


def specification(run: Run) -> Any:
    """Return a model that CTranslate2 can express as a `ctranslate2.specs.TransformerSpec`, with its vocabularies."""
    from ctranslate2.specs import TransformerDecoderSpec, TransformerEncoderSpec, TransformerSpec
    from ctranslate2.specs.common_spec import Activation

    model = cast(Transformer, run.model)
    settings = model.settings
    options: dict[str, Any] = {
        "pre_norm": settings.norm == "pre",
        "activation": {"relu": Activation.RELU, "gelu": Activation.GELU, "silu": Activation.SWISH}[settings.activation],
        "num_heads_kv": settings.key_value_heads,
        "rotary_dim": settings.width // settings.heads if settings.position == "rotary" else None,
        "rotary_interleave": True,
    }
    encoder = TransformerEncoderSpec(settings.encoder_layers, settings.heads, **options)
    decoder = TransformerDecoderSpec(settings.decoder_layers, settings.heads, **options)
    _embed(encoder, encoder.embeddings[0], model.source_embedding, settings)
    _embed(decoder, decoder.embeddings, model.target_embedding, settings)
    _linear(decoder.projection, [model.to_logits])
    for spec, layer in zip(encoder.layer, model.encoder.layers, strict=True):
        _attend(spec.self_attention, layer.self_attention, layer.around_attention.norm, to_self=True)
        _feed_forward(spec.ffn, layer.feed_forward, layer.around_feed_forward.norm)
    for spec, layer in zip(decoder.layer, model.decoder.layers, strict=True):
        _attend(spec.self_attention, cast(Any, layer.self_attention), layer.around_self.norm, to_self=True)
        _attend(spec.attention, layer.cross_attention, layer.around_cross.norm, to_self=False)
        _feed_forward(spec.ffn, layer.feed_forward, layer.around_feed_forward.norm)
    if settings.norm == "pre":
        _norm(encoder.layer_norm, model.encoder.norm)
        _norm(decoder.layer_norm, model.decoder.norm)

    spec = TransformerSpec(encoder, decoder)
    spec.register_source_vocabulary(vocabulary(run.source_tokenizer))
    spec.register_target_vocabulary(vocabulary(run.target_tokenizer))
    config: Any = spec.config
    config.layer_norm_epsilon = model.decoder.layers[0].around_self.norm.eps
    config.unk_token, config.eos_token = UNK_TOKEN, EOS_TOKEN
    config.bos_token = config.decoder_start_token = BOS_TOKEN
    # sources have neither BOS nor EOS
    config.add_source_bos = config.add_source_eos = False
    return spec


def vocabulary(tokenizer: Tokenizer) -> list[str]:
    """Return a unique name for each id: the text that it adds, or its number if a lower id adds the same text."""
    names = dict.fromkeys(SPECIAL)
    for token, text in enumerate(token_texts(range(SPECIALS, tokenizer.size), tokenizer), start=SPECIALS):
        name = text if text and text not in names else f"<{token}>"
        while name in names:
            name = f"<{name}>"
        names[name] = None
    return list(names)


def _embed(stack: Any, spec: Any, embedding: Embedding, settings: TransformerSettings) -> None:
    """Set the embedding, √E · W[token] or W[token], and the table of added positions."""
    spec.weight = _array(embedding.tokens.weight)
    stack.scale_embeddings = settings.scale_embeddings
    if settings.position not in ADDED:
        return
    positions = embedding.positions
    if isinstance(positions, Learned):
        table = positions.table
    elif settings.position == "sinusoidal":
        table = waves(torch.arange(POSITIONS), settings.width)
    else:
        # without a table CTranslate2 would add sinusoidal positions
        table = torch.zeros(POSITIONS, settings.width)
    stack.position_encodings.encodings = _array(table)


def _attend(spec: Any, attention: MultiHeadAttention, norm: nn.LayerNorm, *, to_self: bool) -> None:
    queries, keys, values = attention.query_projection, attention.key_projection, attention.value_projection
    if to_self:
        _linear(spec.linear[0], [queries, keys, values])
    else:
        _linear(spec.linear[0], [queries])
        _linear(spec.linear[1], [keys, values])
    _linear(spec.linear[-1], [cast(nn.Linear, attention.output)])
    _norm(spec.layer_norm, norm)
    if (scale := SCALES[type(attention.score)]) is not None:
        spec.queries_scale = np.float32(scale)


def _feed_forward(spec: Any, layer: FeedForward, norm: nn.LayerNorm) -> None:
    _linear(spec.linear_0, [layer.widen])
    _linear(spec.linear_1, [layer.narrow])
    _norm(spec.layer_norm, norm)


def _linear(spec: Any, layers: Sequence[nn.Linear]) -> None:
    """Set a single matrix product for layers that read the same features."""
    spec.weight = _array(torch.cat([layer.weight for layer in layers]))
    if layers[0].bias is not None:
        spec.bias = _array(torch.cat([layer.bias for layer in layers]))


def _norm(spec: Any, norm: nn.Module) -> None:
    assert isinstance(norm, nn.LayerNorm)
    spec.gamma, spec.beta = _array(norm.weight), _array(norm.bias)


def _array(tensor: Tensor) -> np.ndarray:
    # a copy: CTranslate2 quantizes in place
    return np.array(tensor.detach().float().cpu().numpy(), order="C")
