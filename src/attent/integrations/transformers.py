"""Hugging Face models that attend with us: attn_implementation="attent"."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from attent.attention.attend import run
from attent.attention.call import prepare
from attent.attention.map import AttentionMap
from attent.attention.scores.scaled_dot import ScaledDot
from attent.attention.watch import report, watched
from attent.errors import ImplementationError

NAME = "attent"


def register() -> None:
    """Make `attn_implementation="attent"` known to Hugging Face's transformers: `attent.attend` with the model's own masks.

    The masks are registered too: without them, transformers would leave the padding out in silence.

    Example:
        >>> attent.integrations.transformers.register()
        >>> model = AutoModel.from_pretrained(path, attn_implementation="attent")

    Raises:
        ImportError: transformers is not installed.
    """
    from transformers import AttentionInterface, AttentionMaskInterface
    from transformers.masking_utils import sdpa_mask

    AttentionInterface.register(NAME, attention)
    # boolean, True where a query may attend, which is our convention as well
    AttentionMaskInterface.register(NAME, sdpa_mask)


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
    cache: object | None = None,
    **others: Any,
) -> tuple[Tensor, None]:
    """What a model's attention module calls, in transformers' signature.

    Args:
        module: the module that attends.
        query: (B, H, Tq, D).
        key: (B, G, Tk, D).
        value: (B, G, Tk, Dv).
        attention_mask: boolean, True where a query may attend, or a float term to be added.
        dropout: the share of weights dropped, in [0, 1).
        scaling: the factor on qᵀk.
        is_causal: whether queries see only what is before them, if there is no mask; as the module says if not given.
        softcap: see `soft_cap` in attend.
        position_bias: a float term to be added, such as T5's.
        s_aux: sinks, which we do not have.
        cache: a paged cache, which we do not have.
        others: what other implementations are told.

    Returns:
        The contexts (B, Tq, H, Dv), and None: weights are had from `attent.watch`.

    Raises:
        ImplementationError: sinks or a paged cache.
    """
    if s_aux is not None or cache is not None:
        raise ImplementationError(f"attn_implementation {NAME!r} has no {'sinks (s_aux)' if cache is None else 'paged cache'}")
    boolean = attention_mask is not None and attention_mask.dtype == torch.bool
    causal = attention_mask is None and query.shape[2] > 1 and (getattr(module, "is_causal", True) if is_causal is None else is_causal)
    bias = None if boolean else attention_mask
    if position_bias is not None:
        bias = position_bias if bias is None else position_bias + bias
    if causal:
        # the queries stand on the first keys; a cache of fixed length has more of them, not yet written
        key, value = key[:, :, : query.shape[2]], value[:, :, : query.shape[2]]
        bias = bias if bias is None else bias[..., : query.shape[2]]
    prepared = prepare(
        query,
        key,
        value,
        score=ScaledDot(scaling),
        mask="causal" if causal else attention_mask if boolean else None,
        bias=bias,
        soft_cap=softcap,
        query_start=0 if causal else None,
        dropout=dropout,
        seed=torch.randint(2**31 - 1, (1,), device=query.device) if dropout else None,
    )
    context = run(prepared)
    if watched():
        report(module, AttentionMap.of(prepared))
    return context.transpose(1, 2).contiguous(), None
