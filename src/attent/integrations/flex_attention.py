"""FlexAttention with gradients on every device.

It has PyTorch's signature and computes a tile at a time, in memory linear in the sequence.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.nn.attention.flex_attention import AuxOutput, AuxRequest, BlockMask

from attent.attention import mask_info
from attent.attention.arguments import prepare
from attent.attention.attend import run
from attent.attention.backends import dense, tiled
from attent.attention.base import Pairs
from attent.attention.call import Prepared
from attent.attention.maps.attention_map import AttentionMap
from attent.attention.scores.scaled_dot import ScaledDot
from attent.errors import ArgumentError, DeviceError, ShapeError, refuse
from attent.integrations.block_mask import BlockMaskPairs
from attent.integrations.score_mod import parts_of
from attent.ops.eligibility import without_autocast
from attent.ops.pair_functions import for_all_pairs

# a function of a score and its batch, head, query and key indices that returns the modified score
ScoreMod = Callable[[Tensor, Tensor, Tensor, Tensor, Tensor], Tensor]

# PyTorch's mask that hides nothing has one block of this size.
ALL_KEYS = 2**30


@torch.compiler.disable(reason="attent.flex_attention computes by tiles and recomputes them for its gradients")
def flex_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    score_mod: ScoreMod | None = None,
    block_mask: BlockMask | None = None,
    scale: float | None = None,
    enable_gqa: bool = False,
    return_lse: bool = False,
    kernel_options: Mapping[str, Any] | None = None,
    *,
    return_aux: AuxRequest | None = None,
    return_map: bool = False,
) -> Any:
    """Compute PyTorch's `flex_attention`, forward and backward, a tile of queries at a time.

    Memory is linear in the sequence. Scores are computed in float32 at least. Blocks of keys that the BlockMask hides
    are skipped, and nothing of a hidden block reaches the result. Dong et al. 2024, "Flex Attention"
    (arXiv:2412.05496).

    Args:
        query: (B, H, Tq, D).
        key: (B, G, Tk, D), G = H unless `enable_gqa`; a single sequence is shared by the whole batch of a BlockMask.
        value: (B, G, Tk, Dv).
        score_mod: (score, b, h, q_idx, kv_idx) → the modified score, each a tensor of one number. Tensors that it
            captures receive gradients.
        block_mask: which pairs attend, from PyTorch's `create_block_mask` or attent's.
        scale: the factor on the products; 1/√D if not given.
        enable_gqa: whether H may be a multiple of G: query heads share key heads in runs of H/G.
        return_lse: whether to return the logarithm of the sum of the exponentials of each query's scores, (B, H, Tq).
        kernel_options: PyTorch's options for its GPU kernels; ignored.
        return_aux: which of the statistics of each query's scores to return, `AuxRequest(lse=…, max_scores=…)`.
        return_map: whether to return the weights too, as an AttentionMap that is computed where it is read.

    Returns:
        The contexts (B, H, Tq, Dv); with `return_aux` also an AuxOutput, with `return_lse` the logarithms, and with
        `return_map`, last, the map.

    Raises:
        ShapeError, DTypeError, DeviceError: the tensors or the BlockMask do not fit together.
        ArgumentError: both `return_lse` and `return_aux`, or a `score_mod` that captures a tensor whose gradient would
            be lost.
    """
    if return_lse and return_aux is not None:
        raise ArgumentError("return_lse is the old name of return_aux=AuxRequest(lse=True): give only one of them")
    _check(query, key, block_mask, enable_gqa=enable_gqa)
    if len(key) == 1 < len(query) and block_mask is not None:
        key, value = (tensor.expand(len(query), -1, -1, -1) for tensor in (key, value))
    prepared, implementation = _prepare(query, key, value, score_mod, block_mask, scale)
    results: list[Any] = [run(prepared, implementation)]
    if return_aux is not None:
        results.append(_statistics(prepared, return_aux))
    elif return_lse:
        results.append(_statistics(prepared, AuxRequest(lse=True)).lse)
    if return_map:
        results.append(AttentionMap.of(prepared))
    return results[0] if len(results) == 1 else tuple(results)


def _check(query: Tensor, key: Tensor, block_mask: BlockMask | None, *, enable_gqa: bool) -> None:
    """Make the checks that PyTorch makes and `attend` does not."""
    if query.is_nested or key.is_nested:
        raise ArgumentError(
            "flex_attention does not support nested tensors: pad them, and hide the padding with a block_mask"
        )
    if query.dim() != 4 or key.dim() != 4:
        raise ShapeError(f"query and key must be (B, H, T, D), got {tuple(query.shape)} and {tuple(key.shape)}")
    if not enable_gqa and query.shape[1] != key.shape[1]:
        raise ShapeError(
            f"query and key have {query.shape[1]} and {key.shape[1]} heads: set enable_gqa=True if queries share key "
            "heads"
        )
    if block_mask is None or block_mask.BLOCK_SIZE == (ALL_KEYS, ALL_KEYS):
        return
    if block_mask.kv_num_blocks.device != query.device:
        raise DeviceError(f"block_mask must be on {query.device} as query, got {block_mask.kv_num_blocks.device}")
    sizes = tuple(block_mask.shape[-2:])
    if sizes != (query.shape[2], key.shape[2]):
        raise ShapeError(
            f"block_mask was made for (Tq, Tk) = {sizes}, got {(query.shape[2], key.shape[2])}: create one of this size"
        )
    for name, size, own in zip(("B", "H"), query.shape, block_mask.kv_num_blocks.shape, strict=False):
        if own not in (1, size):
            raise ShapeError(f"block_mask was made for {name} = {own}, got {size}")


def _prepare(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    score_mod: ScoreMod | None,
    block_mask: BlockMask | None,
    scale: float | None,
) -> tuple[Prepared, str]:
    """Return a call and the implementation that computes it in linear memory."""
    is_full = block_mask is None or block_mask.BLOCK_SIZE == (ALL_KEYS, ALL_KEYS)
    mask = None if block_mask is None or is_full else BlockMaskPairs.of(block_mask, len(query), query.shape[1])
    on_cpu, arguments = query.device.type == "cpu", dict[str, Any](score=ScaledDot(scale))
    if on_cpu and isinstance(mask, BlockMaskPairs):
        # cheaper than asking for every pair, in every kind of tile
        mask = mask.as_key_ranges(query.shape[2], key.shape[2]) or mask
    dtype = torch.float64 if query.dtype == torch.float64 else torch.float32
    parts = (
        parts_of(score_mod, query.shape[1], query.shape[2], key.shape[2], dtype)
        if on_cpu and score_mod is not None
        else None
    )
    if parts is not None:
        score_mod = None
        arguments |= {"soft_cap": parts.soft_cap, "position": parts.position, "query_start": 0}
        mask = parts.mask if mask is None else mask if parts.mask is None else mask & parts.mask
    prepared = prepare(query, key, value, mask=mask, **arguments)
    if score_mod is not None:
        return prepared._replace(call=replace(prepared.call, score_mod=partial(_modify, score_mod))), "tiled"
    if mask is parts is None:
        return prepared, "auto"
    # a mask without ranges needs a table of all pairs there
    is_dense = dense.unsupported(prepared.call) is None and not mask_info.needs_table(prepared.call)
    return prepared, "dense" if is_dense else "tiled"


def _modify(score_mod: ScoreMod, scores: Tensor, pairs: Pairs) -> Tensor:
    """Apply a function to each score of a tile."""
    batch, head = (torch.arange(size, device=scores.device) for size in scores.shape[:2])
    modified = for_all_pairs(score_mod, batch, head, pairs.query_index, pairs.key_index, scores)
    refuse((not modified.is_floating_point(), f"score_mod must return a floating-point score, got {modified.dtype}"))
    return modified.to(scores.dtype)


def _statistics(prepared: Prepared, request: AuxRequest) -> AuxOutput:
    """Return the requested statistics of each query's scores.

    The maximum carries no gradient, as in PyTorch.
    """
    lse = maximum = None
    with without_autocast(prepared.call.device):
        if request.lse:
            lse = tiled.row_statistic(prepared, lambda scores: scores.logsumexp(-1))
        if request.max_scores:
            with torch.no_grad():
                maximum = tiled.row_statistic(prepared, lambda scores: scores.amax(-1))
    return AuxOutput(lse, maximum)
