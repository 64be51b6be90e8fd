"""Packed batches, by the signatures of PyTorch's varlen_attn and of flash-attn's flash_attn_varlen_func, on any device.

Sequences of different lengths lie one after another, without padding, and a query sees a range of the keys of its own
sequence: pairs of different sequences are neither computed nor stored.
"""

from typing import Any

import torch
from torch import Tensor

from attent.attention.attend import attend
from attent.attention.base import Pairs, Position
from attent.attention.mask_info import KeyRanges
from attent.attention.scores.scaled_dot import ScaledDot
from attent.errors import ImplementationError, ShapeError
from attent.ops.eligibility import is_known_true, is_readable

__all__ = ["flash_attn_varlen_func", "varlen_attn"]

# Options that change no number here.
FOR_SPEED = ("deterministic", "num_splits")


def varlen_attn(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    cu_seq_q: Tensor,
    cu_seq_k: Tensor | None,
    max_q: int,
    max_k: int,
    *,
    scale: float | None = None,
    window_size: tuple[int, int] = (-1, -1),
    enable_gqa: bool = False,
    seqused_k: Tensor | None = None,
    **options: Any,
) -> Tensor:
    """Attend within each sequence of a packed batch, as `torch.nn.attention.varlen.varlen_attn` does on a GPU.

    Args:
        query: (Tq, H, D), the queries of all sequences.
        key: (Tk, G, D).
        value: (Tk, G, Dv).
        cu_seq_q: where each sequence begins and the last one ends, in queries, (N + 1,).
        cu_seq_k: the same in keys; cu_seq_q if None.
        max_q: unused, as is `max_k`.
        max_k: unused.
        scale: the factor on qᵀk; 1/√D if not given.
        window_size: how many keys a query sees before and after its own position, which the last query shares with its
            sequence's last key; −1 for all. (−1, 0) is causal.
        enable_gqa: whether query heads may share key heads.
        seqused_k: how many keys of each sequence are in use, (N,); all if not given.
        options: PyTorch's others: `return_aux` and `block_table` are refused, and what only affects speed is ignored.

    Returns:
        The contexts, (Tq, H, Dv).

    Raises:
        ShapeError: the tensors do not fit together, or the sequences do not cover them.
        ImplementationError: log-sum-exps or a paged cache are requested.
    """
    if not enable_gqa and query.shape[1] != key.shape[1]:
        raise ShapeError(
            f"query and key must have one number of heads without enable_gqa, got {query.shape[1]} and {key.shape[1]}"
        )
    return _attend(query, key, value, cu_seq_q, cu_seq_k, window_size, options, scale=scale, used=seqused_k)


def flash_attn_varlen_func(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    cu_seqlens_q: Tensor,
    cu_seqlens_k: Tensor,
    max_seqlen_q: int,
    max_seqlen_k: int,
    dropout_p: float = 0.0,
    softmax_scale: float | None = None,
    causal: bool = False,
    window_size: tuple[int, int] = (-1, -1),
    softcap: float = 0.0,
    alibi_slopes: Tensor | None = None,
    **options: Any,
) -> Tensor:
    """Attend within each sequence of a packed batch, in the signature of flash-attn 2.

    Args: as in `varlen_attn`; `alibi_slopes` are (H,) or, for each sequence, (N, H).

    Returns:
        The contexts, (Tq, H, Dv).

    Raises:
        ShapeError, ImplementationError: as in `varlen_attn`.
    """
    window = (window_size[0], 0) if causal else window_size
    return _attend(
        q, k, v, cu_seqlens_q, cu_seqlens_k, window, options,
        scale=softmax_scale, soft_cap=softcap or None, slopes=alibi_slopes, dropout=dropout_p,
    )  # fmt: skip


def key_ranges(
    queries: int, starts: Tensor, key_starts: Tensor | None, window: tuple[int, int], used: Tensor | None = None
) -> tuple[KeyRanges, Tensor, Tensor]:
    """Return the keys that each query of a packed batch sees, the key at its position, and its sequence, (Tq,) each."""
    starts, key_starts = starts.long(), (starts if key_starts is None else key_starts).long()
    used = key_starts.diff() if used is None else used
    sequence = torch.repeat_interleave(starts.diff(), output_size=queries)
    begin = key_starts[:-1][sequence]
    end = begin + used[sequence]
    position = end - (starts[1:][sequence] - torch.arange(queries, device=starts.device))
    first = begin if window[0] < 0 else torch.maximum(begin, position - window[0])
    last = end if window[1] < 0 else torch.minimum(end, position + window[1] + 1)
    return KeyRanges(first[None, None], last[None, None]), position, sequence


def _attend(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    starts: Tensor,
    key_starts: Tensor | None,
    window: tuple[int, int],
    options: dict[str, Any],
    *,
    scale: float | None,
    used: Tensor | None = None,
    soft_cap: float | None = None,
    slopes: Tensor | None = None,
    dropout: float = 0.0,
) -> Tensor:
    for name, option in options.items():
        # a tensor has no truth value
        if name not in FOR_SPEED and option is not None and option is not False:
            raise ImplementationError(f"packed batches have no {name} here")
    for name, tensor, cumulative in (
        ("query", query, starts),
        ("key", key, starts if key_starts is None else key_starts),
    ):
        if not is_readable(cumulative):
            continue
        if (int(cumulative[0]), int(cumulative[-1])) != (0, len(tensor)) or bool((cumulative.diff() < 0).any()):
            raise ShapeError(
                f"the sequences of {name} must begin at 0, ascend and end at {len(tensor)}, got {int(cumulative[-1])}"
            )
    mask, position, sequence = key_ranges(query.shape[0], starts, key_starts, window, used)
    context = attend(
        *(tensor.transpose(0, 1)[None] for tensor in (query, key, value)),
        score=ScaledDot(scale),
        mask=mask,
        soft_cap=soft_cap,
        position=None if slopes is None else _Slopes(slopes if slopes.dim() == 1 else slopes[sequence], position),
        query_start=0,
        dropout=dropout,
        seed=torch.randint(2**31 - 1, (1,), device=query.device) if dropout else None,
    )
    return context[0].transpose(0, 1)


class _Slopes(Position):
    """ALiBi with given slopes, (H,) or (Tq, H), from each query's own position among the keys."""

    biases = True

    def __init__(self, slopes: Tensor, position: Tensor) -> None:
        super().__init__()
        self.slopes, self.position = slopes, position

    def bias(self, pairs: Pairs) -> Tensor:
        """Return the bias, (1, H, Tq, Tk)."""
        slopes = self.slopes.expand(len(self.position), -1)[pairs.query_index].mT[..., None]
        return -(slopes * (self.position[pairs.query_index, None] - pairs.key_index).abs())[None]

    def bias_by_offset(self, offsets: Tensor) -> Tensor | None:
        """Return the bias of offsets, (H, n), if all sequences have the same slopes, and as many keys as queries."""
        rows = torch.arange(len(self.position), device=self.position.device)
        is_own = self.slopes.dim() == 1 and is_known_true((self.position == rows).all, rows.device)
        return -self.slopes[:, None] * offsets.abs() if is_own else None
