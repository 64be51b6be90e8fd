"""PyTorch's BlockMask: built in linear memory, and converted to a mask for attend."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import product
from typing import cast

import torch
from torch import Tensor
from torch.nn import functional as F
from torch.nn.attention.flex_attention import BlockMask, noop_mask

from attent.attention.base import KeyRange, Mask, Pairs
from attent.attention.mask_info import KeyRanges
from attent.errors import refuse
from attent.ops.pair_functions import for_all_pairs

# a function of a pair's batch, head, query and key indices that returns whether the query may see the key
MaskMod = Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]

# Pairs, over all sequences and heads, that are examined together; at least one block of each.
PAIRS = 2**20
HIDDEN, PARTIAL, FULL = range(3)


def create_block_mask(
    mask_mod: MaskMod,
    B: int | None,
    H: int | None,
    Q_LEN: int,
    KV_LEN: int,
    device: torch.device | str | None = None,
    BLOCK_SIZE: int | tuple[int, int] = 128,
    _compile: bool = False,
    separate_full_blocks: bool = True,
) -> BlockMask:
    """Build the same BlockMask as PyTorch's `create_block_mask`, a few blocks at a time.

    It takes only the memory of the mask's tables.

    Args:
        mask_mod: (b, h, q_idx, kv_idx) → whether the query may see the key, each index a tensor of one number.
        B: the size of the batch, or None for a mask that is the same for all sequences.
        H: the number of query heads, or None for a mask that is the same for all of them.
        Q_LEN: the number of queries.
        KV_LEN: the number of keys.
        device: the device of the mask; by default the accelerator, if there is one.
        BLOCK_SIZE: the size of a block: one number, or a pair for queries and keys.
        _compile: must be False.
        separate_full_blocks: whether blocks whose pairs all attend are listed separately, so that they need no
            `mask_mod`.

    Returns:
        A BlockMask, for `attent.flex_attention` and for PyTorch's.
    """
    refuse((_compile, "create_block_mask does not compile: it computes the pairs by tiles"))
    # a GPU build of PyTorch names a GPU even if there is none
    device = torch.device(device or torch.accelerator.current_accelerator(check_available=True) or "cpu")
    query_block, key_block = (BLOCK_SIZE, BLOCK_SIZE) if isinstance(BLOCK_SIZE, int) else BLOCK_SIZE
    batch, head = (torch.arange(size, device=device) for size in (B or 1, H or 1))
    rows, columns = -(-Q_LEN // query_block), -(-KV_LEN // key_block)
    is_visible, is_full = torch.zeros(2, len(batch), len(head), rows, columns, dtype=torch.bool, device=device)
    blocks = max(PAIRS // (len(batch) * len(head) * query_block * key_block), 1)
    width = min(blocks, max(columns, 1))
    height = blocks // width
    for row, column in product(range(0, rows, height), range(0, columns, width)):
        queries = torch.arange(row * query_block, min((row + height) * query_block, Q_LEN), device=device)
        keys = torch.arange(column * key_block, min((column + width) * key_block, KV_LEN), device=device)
        allowed = for_all_pairs(mask_mod, batch, head, queries, keys)
        allowed = F.pad(allowed, (0, -len(keys) % key_block, 0, -len(queries) % query_block))
        allowed = allowed.unflatten(3, (-1, key_block)).unflatten(2, (-1, query_block))
        # The tables are allocated beforehand: a small result left between large ones would keep their memory from being
        # reused. Not sum, which would convert each pair to int64.
        is_visible[:, :, row : row + height, column : column + width] = allowed.any(5).any(3)
        is_full[:, :, row : row + height, column : column + width] = allowed.all(5).all(3)
    if not separate_full_blocks:
        is_full.zero_()
    lists = [*_in_order(is_visible & ~is_full), *(_in_order(is_full) if separate_full_blocks else (None, None))]
    return BlockMask.from_kv_blocks(
        *lists, BLOCK_SIZE=(query_block, key_block), mask_mod=mask_mod, seq_lengths=(Q_LEN, KV_LEN)
    )  # pyright: ignore[reportArgumentType]


def _in_order(blocks: Tensor) -> tuple[Tensor, Tensor]:
    """Return the number of marked blocks of each row, and the indices of the row's blocks, the marked ones first."""
    numbers = blocks.to(torch.int32)
    return numbers.sum(-1).to(torch.int32), torch.argsort(numbers, dim=-1, descending=True, stable=True).to(torch.int32)


@dataclass(frozen=True, eq=False)
class BlockMaskPairs(Mask):
    """The pairs that a PyTorch BlockMask allows.

    These are all pairs of full blocks, and the pairs of partial blocks that its `mask_mod` allows.

    Args:
        mask_mod: the function of the BlockMask.
        blocks: (B|1, H|1, blocks of queries, blocks of keys) of HIDDEN, PARTIAL and FULL.
        sizes: the size of a block, in queries and keys.
        batch: the number of sequences.
        heads: the number of query heads.
    """

    mask_mod: MaskMod
    blocks: Tensor
    sizes: tuple[int, int]
    batch: int
    heads: int

    @classmethod
    def of(cls, block_mask: BlockMask, batch: int, heads: int) -> BlockMaskPairs:
        """Convert a BlockMask to a mask for this number of sequences and heads."""
        size = block_mask.BLOCK_SIZE
        sizes = (size, size) if isinstance(size, int) else size
        columns = -(-block_mask.seq_lengths[1] // sizes[1])
        blocks = PARTIAL * _table(block_mask.kv_num_blocks, block_mask.kv_indices, columns)
        if block_mask.full_kv_num_blocks is not None:
            full = _table(block_mask.full_kv_num_blocks, cast("Tensor", block_mask.full_kv_indices), columns)
            blocks = blocks.masked_fill(full.bool(), FULL)
        return cls(block_mask.mask_mod, blocks, sizes, batch, heads)

    def allowed(self, pairs: Pairs) -> Tensor:
        """Return which pairs may attend, (B|1, H|1, Tq, Tk)."""
        blocks = self.blocks[:, :, pairs.query_index // self.sizes[0]][..., pairs.key_index // self.sizes[1]]
        if self.mask_mod is noop_mask:
            return blocks > HIDDEN
        batch, head = (torch.arange(size, device=blocks.device) for size in (self.batch, self.heads))
        allowed = for_all_pairs(self.mask_mod, batch, head, pairs.query_index, pairs.key_index)
        # an expanded axis has one row of its own
        allowed = allowed[: None if allowed.stride(0) else 1, : None if allowed.stride(1) else 1]
        return (blocks == FULL) | ((blocks == PARTIAL) & allowed)

    def key_range(self, pairs: Pairs) -> KeyRange | None:
        """Return the range from the first block with visible keys to the last."""
        is_visible, index = self.blocks > HIDDEN, torch.arange(self.blocks.shape[-1], device=self.blocks.device)
        own = pairs.query_index // self.sizes[0]
        first = torch.where(is_visible, index, self.blocks.shape[-1]).amin(-1)[:, :, own, None] * self.sizes[1]
        end = torch.where(is_visible, index + 1, 0).amax(-1)[:, :, own, None] * self.sizes[1]
        return KeyRange(first, end, exact=False)

    def visible_keys(self, pairs: Pairs) -> Tensor | None:
        """Return the keys of blocks that are not hidden from all of these queries.

        None if no row of blocks has gaps.
        """
        is_visible = self.blocks > HIDDEN
        starts = is_visible & ~F.pad(is_visible, (1, 0))[..., :-1]
        if not bool((starts.sum(-1) > 1).any()):
            return None
        own = (pairs.query_index // self.sizes[0]).unique()
        return is_visible[:, :, own].any(0).any(0).any(0)[pairs.key_index // self.sizes[1]]

    def as_key_ranges(self, queries: int, keys: int) -> KeyRanges | None:
        """Return the same mask as a range of keys for each query; None if the keys of any query have gaps.

        This calls `mask_mod` for every pair of the partial blocks.
        """
        parts: list[tuple[Tensor, Tensor]] = []
        all_keys = torch.arange(keys, device=self.blocks.device)
        for first in range(0, queries, self.sizes[0]):
            rows = torch.arange(first, min(first + self.sizes[0], queries), device=all_keys.device)
            blocks = self.blocks[:, :, first // self.sizes[0]][..., all_keys // self.sizes[1]]  # (B|1, H|1, keys)
            full, partial_keys = blocks == FULL, all_keys[(blocks == PARTIAL).any(0).any(0)]
            begin, end, count = _bounds(full[:, :, None], all_keys, keys)
            if len(partial_keys):
                # only the pairs of partial blocks
                allowed = (
                    self.allowed(Pairs(rows, partial_keys, rows[None], self.heads)) & ~full[:, :, None, partial_keys]
                )
                first_partial, end_of_partial, partial_count = _bounds(allowed, partial_keys, keys)
                begin, end = torch.minimum(begin, first_partial), torch.maximum(end, end_of_partial)
                count = count + partial_count
            if not torch.equal(count, (end - begin).clamp(min=0)):
                return None
            parts.append((begin.expand(-1, -1, len(rows)), end.expand(-1, -1, len(rows))))
        if not parts:
            return None
        batch, heads = (max(part[0].shape[axis] for part in parts) for axis in (0, 1))
        begins, ends = (
            torch.cat([bound.expand(batch, heads, -1) for bound in bounds], 2).long()
            for bounds in zip(*parts, strict=True)
        )
        return KeyRanges(begins, ends)


def _bounds(allowed: Tensor, index: Tensor, keys: int) -> tuple[Tensor, Tensor, Tensor]:
    """Return the first of the marked keys of each row, the end of their range, and their number.

    (keys, 0, 0) for none.
    """
    begin = torch.where(allowed, index.int(), keys).amin(-1)
    return begin, torch.where(allowed, index.int() + 1, 0).amax(-1), allowed.sum(-1, dtype=torch.int32)


def _table(numbers: Tensor, indices: Tensor, columns: int) -> Tensor:
    """Return ordered lists of blocks, of which the first `numbers` count, as rows of a table of zeros and ones.

    The lists may be shorter than these rows.
    """
    is_listed = torch.arange(indices.shape[-1], device=indices.device) < numbers[..., None]
    table = torch.zeros(*indices.shape[:-1], columns + 1, dtype=torch.uint8, device=indices.device)
    # entries that are not listed mark a spare column
    return table.scatter_(-1, indices.long().where(is_listed, columns), 1)[..., :-1]
