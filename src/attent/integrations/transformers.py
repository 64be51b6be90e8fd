"""attn_implementation="attent" for Hugging Face models."""

from __future__ import annotations

import sys
import warnings
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from attent.attention.arguments import prepare
from attent.attention.attend import run
from attent.attention.call import Prepared
from attent.attention.capture.coverage import UNSUPPORTED, dispatching_and_computing_classes
from attent.attention.capture.watch import is_watched, report
from attent.attention.maps.attention_map import AttentionMap
from attent.attention.scores.scaled_dot import ScaledDot
from attent.errors import ImplementationError, needs
from attent.integrations.varlen import key_ranges
from attent.requirements import check_version

NAME = "attent"
# True for the classes of configurations whose models accept boolean masks
_accepts_boolean: dict[type, bool] = {}


def register() -> None:
    """Register `attn_implementation="attent"` with Hugging Face's transformers.

    Models then call `attent.attend` with their own masks. This registers masks too: boolean ones for models that are
    known to accept them, else float ones as for eager attention, which models such as LongT5 add to the scores that
    they compute themselves. A model that computes all its attention itself, such as BLOOM, is refused when it is built;
    a model that computes part of it gets a warning.

    Example:
        >>> attent.integrations.transformers.register()
        >>> model = AutoModel.from_pretrained(path, attn_implementation="attent")

    Raises:
        MissingExtraError: transformers is not installed.
        VersionError: transformers is too old.
        ImplementationError: this version of transformers has no hook to check a model before it is built.
    """
    with needs(f"attn_implementation={NAME!r} needs transformers", "transformers"):
        import transformers
    check_version("transformers", transformers.__version__)
    from transformers.masking_utils import eager_mask, sdpa_mask

    choose = getattr(transformers.PreTrainedModel, "get_correct_attn_implementation", None)
    if choose is None:
        raise ImplementationError(
            f"transformers {transformers.__version__} has no PreTrainedModel.get_correct_attn_implementation, where "
            f"models that compute attention themselves are refused: attn_implementation {NAME!r} needs a version from "
            "5.0 to 5.24"
        )

    def get_correct_attn_implementation(self: Any, requested_attention: str | None, *args: Any, **options: Any) -> str:
        if requested_attention == NAME:
            _check(self)
        return choose(self, requested_attention, *args, **options)

    def mask(*args: Any, config: Any, **options: Any) -> Tensor | None:
        return (sdpa_mask if _accepts_boolean.get(type(config)) else eager_mask)(*args, config=config, **options)

    if choose.__module__ != __name__:
        transformers.PreTrainedModel.get_correct_attn_implementation = get_correct_attn_implementation
    transformers.AttentionInterface.register(NAME, attention)
    transformers.AttentionMaskInterface.register(NAME, mask)


def _check(model: Any) -> None:
    """Refuse a model, or part of one, that computes all its attention itself.

    Record the masks that other models need.

    Raises:
        ImplementationError: the model does not call the interface.
    """
    kind = type(model)
    dispatching, computing = dispatching_and_computing_classes(kind)
    names = ", ".join(sorted(layer.__name__ for layer in computing))
    if computing and not dispatching:
        raise ImplementationError(
            f"{kind.__name__} computes its attention itself ({names}) instead of calling transformers' "
            "AttentionInterface: load it "
            'with attn_implementation="eager", or, if it is part of a larger model, name the parts that attend '
            f'with {NAME!r}, such as attn_implementation={{"text_config": "{NAME}"}}'
        )
    # without either flag, a model may need the mask of eager attention even where it hides nothing, as NLLB-MoE does
    accepts_boolean = getattr(kind, "_supports_sdpa", False) or getattr(kind, "_supports_attention_backend", False)
    if dispatching:
        config = type(model.config)
        _accepts_boolean[config] = _accepts_boolean.get(config, True) and accepts_boolean and not computing
    if dispatching and computing:
        warnings.warn(
            f"attn_implementation {NAME!r}: the attention that {names} computes by itself is unchanged", stacklevel=2
        )


def attention(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    *,
    dropout: float = 0.0,
    scaling: float | None = None,
    is_causal: bool | None = None,
    softcap: float | None = None,
    position_bias: Tensor | None = None,
    s_aux: Tensor | None = None,
    **options: Any,
) -> tuple[Tensor, Tensor | None]:
    """Attend for a model's attention module, in transformers' signature.

    Args:
        module: the module that attends.
        query: (B, H, Tq, D).
        key: (B, G, Tk, D).
        value: (B, G, Tk, Dv).
        attention_mask: boolean, True where a query may attend, or a float term added to the scores.
        dropout: the share of weights dropped, in [0, 1).
        scaling: the factor on qᵀk.
        is_causal: queries see only earlier keys, if there is no mask; the module's `is_causal` if not given.
        softcap: see `soft_cap` in attend.
        position_bias: a float term added to the scores, such as T5's.
        s_aux: sinks, (H,), such as gpt-oss'; see `sink` in attend.
        options: `output_attentions`; `cu_seq_lens_q`, `cu_seq_lens_k` and `sliding_window` of packed batches; others.

    Returns:
        The contexts (B, Tq, H, Dv), and the weights before dropout, (B, H, Tq, Tk); None without `output_attentions`.

    Raises:
        ImplementationError: the model needs a feature that attend does not have, such as a paged cache.
    """
    _check_options(module, options)
    queries, keys = query.shape[2], key.shape[2]
    is_causal = getattr(module, "is_causal", True) if is_causal is None else is_causal
    is_masked_causally = is_causal and attention_mask is None and queries > 1
    mask, bias = _mask_and_bias(attention_mask, position_bias)
    if (starts := options.get("cu_seq_lens_q")) is not None and position_bias is None:
        # a packed batch, whose mask would be a table of all pairs
        window = (options.get("sliding_window") or 0) - 1, 0 if is_causal else -1
        mask, bias, is_masked_causally = (
            key_ranges(queries, starts, options.get("cu_seq_lens_k"), window)[0],
            None,
            False,
        )
    if is_masked_causally:
        # the queries align with the first keys; a cache of fixed length has further ones, not yet written
        key, value = key[:, :, :queries], value[:, :, :queries]
        mask, bias = "causal", None if bias is None else bias[..., :queries]
    prepared = prepare(
        query, key, value, score=ScaledDot(scaling), mask=mask, bias=bias, sink=s_aux, soft_cap=softcap,
        query_start=0 if is_masked_causally else None, dropout=dropout,
        seed=torch.randint(2**31 - 1, (1,), device=query.device) if dropout else None,
    )  # fmt: skip
    context = run(prepared)
    if is_watched():
        report(module, AttentionMap.of(prepared), prepared.value, context)
    return context.transpose(1, 2).contiguous(), _weights(prepared, keys) if _needs_weights(options) else None


def _check_options(module: nn.Module, options: dict[str, Any]) -> None:
    """Raise an error if a model requests a feature that attend does not have."""
    for name, feature in UNSUPPORTED.items():
        if options.get(name) is not None:
            raise ImplementationError(
                f"attn_implementation {NAME!r} has no {feature}, which {type(module).__name__} needs: "
                'load the model with attn_implementation="eager"'
            )


def _mask_and_bias(attention_mask: Tensor | None, position_bias: Tensor | None) -> tuple[Tensor | None, Tensor | None]:
    """Return the boolean mask, and the sum of the float terms; None where there is none."""
    if attention_mask is not None and attention_mask.dtype == torch.bool:
        return attention_mask, position_bias
    if position_bias is None or attention_mask is None:
        return None, attention_mask if position_bias is None else position_bias
    return None, position_bias + attention_mask


def _needs_weights(options: dict[str, Any]) -> bool:
    """Return whether the caller of the model asked for weights; False in a graph that is compiled or traced."""
    if torch.compiler.is_compiling() or torch.jit.is_tracing():  # pyright: ignore[reportPrivateImportUsage]
        return False
    # most models collect outputs by hooks, and not all of them pass the option on
    capturing = sys.modules.get("transformers.utils.output_capturing")
    outputs = None if capturing is None else capturing._active_collector.get()
    return bool(options.get("output_attentions")) or any("attentions" in name for name in outputs or ())


def _weights(prepared: Prepared, keys: int) -> Tensor:
    """Return the weights of a call, (B, H, Tq, Tk), with zeros for the keys that it left out."""
    weights = AttentionMap.of(prepared).dense().to(prepared.query.dtype)
    return F.pad(weights, (0, keys - weights.shape[-1]))
