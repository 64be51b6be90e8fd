"""A Transformer in CTranslate2's terms, or the reason why it has none for it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor, nn

from attent.attention.multihead import MultiHeadAttention
from attent.attention.normalizers.softmax import Softmax
from attent.attention.positions.learned import Learned
from attent.attention.positions.sinusoidal import waves
from attent.attention.scores import Dot, ScaledDot
from attent.data.tokenizer import SPECIALS, Tokenizer
from attent.evaluation.unk_replacement import token_texts
from attent.layers.feed_forward import FeedForward
from attent.models.settings import TransformerSettings
from attent.models.transformer import Transformer
from attent.models.transformer_layers import Embedding
from attent.runs.folder import Run

# Waves are computed as they are needed; CTranslate2 reads them from a table, which ends somewhere.
POSITIONS = 2048
ADDED = ("sinusoidal", "learned", "none")
UNKNOWN, BOS, EOS = "<unk>", "<s>", "</s>"
SPECIAL: tuple[str, ...] = ("<pad>", UNKNOWN, BOS, EOS)
# What CTranslate2 multiplies queries with, where that is not 1/√D.
SCALES: dict[type[nn.Module], float | None] = {ScaledDot: None, Dot: 1.0}


def unsupported(run: Run) -> str | None:
    """What of a run's model CTranslate2 cannot express; None if it can express all."""
    if run.config.model.kind != "transformer":
        return "it has no recurrent models"
    model = cast(Transformer, run.model)
    settings, attention = model.settings, model.decoder.layers[0].self_attention
    if type(attention.score) not in SCALES:
        return f"it has no score {settings.score!r}, only scaled_dot and dot"
    if type(attention.normaliser) is not Softmax:
        return f"it has no normalizer {settings.normaliser!r}, only softmax"
    if settings.position == "alibi":
        return "it has position 'alibi' in decoders alone, not in encoders"
    if settings.position == "relative_bias":
        return "of position 'relative_bias' it has one table for all layers, and here each layer has its own"
    return None


def max_length(run: Run) -> int | None:
    """The most tokens that a sequence may have; None where there is no limit."""
    settings = cast(Transformer, run.model).settings
    if settings.position == "learned":
        return settings.maximum_length
    return POSITIONS if settings.position in ADDED else None


def specification(run: Run) -> Any:
    """The model as a `ctranslate2.specs.TransformerSpec`, its vocabularies with it; `why_not` must have found nothing."""
    from ctranslate2.specs import TransformerDecoderSpec, TransformerEncoderSpec, TransformerSpec
    from ctranslate2.specs.common_spec import Activation

    model = cast(Transformer, run.model)
    settings = model.settings
    rotary = settings.width // settings.heads if settings.position == "rotary" else None
    alike: dict[str, Any] = {
        "pre_norm": settings.norm == "pre",
        "activation": {"relu": Activation.RELU, "gelu": Activation.GELU}[settings.activation],
        "num_heads_kv": settings.key_value_heads,
        "rotary_dim": rotary,
        "rotary_interleave": True,
    }
    encoder = TransformerEncoderSpec(settings.encoder_layers, settings.heads, **alike)
    decoder = TransformerDecoderSpec(settings.decoder_layers, settings.heads, **alike)
    _embed(encoder, encoder.embeddings[0], model.source_embedding, settings)
    _embed(decoder, decoder.embeddings, model.target_embedding, settings)
    _linear(decoder.projection, [model.to_logits])
    for spec, layer in zip(encoder.layer, model.encoder.layers, strict=True):
        _attend(spec.self_attention, layer.self_attention, layer.around_attention.norm, to_self=True)
        _feed_forward(spec.ffn, layer.feed_forward, layer.around_feed_forward.norm)
    for spec, layer in zip(decoder.layer, model.decoder.layers, strict=True):
        _attend(spec.self_attention, layer.self_attention, layer.around_self.norm, to_self=True)
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
    config.unk_token, config.eos_token = UNKNOWN, EOS
    config.bos_token = config.decoder_start_token = BOS
    # a source is read as it is
    config.add_source_bos = config.add_source_eos = False
    return spec


def vocabulary(tokenizer: Tokenizer) -> list[str]:
    """A name for each id, all different: what it adds to a text where no id before it adds the same, else its number."""
    names = [*SPECIAL]
    taken = set(names)
    for token, text in enumerate(token_texts(range(SPECIALS, tokenizer.size), tokenizer), start=SPECIALS):
        name = text if text and text not in taken else f"<{token}>"
        while name in taken:
            name = f"<{name}>"
        names.append(name)
        taken.add(name)
    return names


def _embed(stack: Any, spec: Any, embedding: Embedding, settings: TransformerSettings) -> None:
    """√E · W[token], plus a row of a table where positions are added."""
    spec.weight = _array(embedding.tokens.weight)
    stack.scale_embeddings = True
    if settings.position not in ADDED:
        return
    positions = embedding.positions
    if isinstance(positions, Learned):
        table = positions.table
    elif settings.position == "sinusoidal":
        table = waves(torch.arange(POSITIONS), settings.width)
    else:
        # without a table it would compute one of its own
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
    scale = SCALES[type(attention.score)]
    if scale is not None:
        spec.queries_scale = np.float32(scale)


def _feed_forward(spec: Any, layer: FeedForward, norm: nn.LayerNorm) -> None:
    _linear(spec.linear_0, [layer.widen])
    _linear(spec.linear_1, [layer.narrow])
    _norm(spec.layer_norm, norm)


def _linear(spec: Any, layers: Sequence[nn.Linear]) -> None:
    """One product for several layers that read the same features."""
    spec.weight = _array(torch.cat([layer.weight for layer in layers]))
    if layers[0].bias is not None:
        spec.bias = _array(torch.cat([layer.bias for layer in layers]))


def _norm(spec: Any, norm: nn.Module) -> None:
    assert isinstance(norm, nn.LayerNorm)
    spec.gamma, spec.beta = _array(norm.weight), _array(norm.bias)


def _array(tensor: Tensor) -> np.ndarray:
    # a copy: CTranslate2 quantises in place
    return np.array(tensor.detach().float().cpu().numpy(), order="C")
