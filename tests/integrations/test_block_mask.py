from __future__ import annotations

from collections.abc import Callable
from inspect import signature
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn.attention import flex_attention as torch_flex
from torch.nn.attention.flex_attention import BlockMask, and_masks, or_masks

import attent
from attent.attention import prepare
from attent.errors import ArgumentError
from attent.integrations.block_mask import BlockMaskPairs

B, H, T = 2, 3, 300
DOCUMENTS = torch.arange(T) // 70


def causal(b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
    return i >= j


def near(b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
    return (i - j).abs() < 20


MASKS: dict[str, Callable[..., Tensor]] = {
    "causal": causal,
    "window": and_masks(causal, near),
    "documents": lambda b, h, i, j: DOCUMENTS[i] == DOCUMENTS[j],
    "prefix": or_masks(causal, lambda b, h, i, j: j < 33),
    "one for each head and sequence": lambda b, h, i, j: (i >= j + 5 * h) & (j > 150 * b),
    "with gaps": lambda b, h, i, j: (j // 64) % 2 == 0,
    "nothing": lambda b, h, i, j: i < 0,
    "everything": lambda b, h, i, j: i >= 0,
}


def same(actual: BlockMask, reference: BlockMask) -> bool:
    def equal(result: Any, right: Any) -> bool:
        if isinstance(right, Tensor):
            return torch.equal(result, right) and result.dtype == right.dtype
        return result == right

    return all(map(equal, actual.as_tuple(), reference.as_tuple()))


@pytest.mark.parametrize("name", MASKS)
def test_it_is_the_one_that_pytorch_builds(name: str) -> None:
    for batch, heads, options in (
        (B, H, {}),
        (None, None, {"BLOCK_SIZE": (32, 64)}),
        (B, H, {"separate_full_blocks": False}),
    ):
        arguments = MASKS[name], batch, heads, T, T
        assert same(attent.create_block_mask(*arguments, **options), pytorchs(*arguments, **options))


def pytorchs(*arguments: Any, **options: Any) -> BlockMask:
    """Return what PyTorch builds on a CPU: without a device, its builds for GPUs ask for one that need not be there."""
    if not signature(torch_flex.create_block_mask).parameters.keys() >= options.keys():
        pytest.skip("this PyTorch's create_block_mask has no such option")
    return torch_flex.create_block_mask(*arguments, device="cpu", **options)


def test_without_a_gpu_a_mask_lies_on_the_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    # as in a build for GPUs on a machine that has none
    current = "torch.accelerator.current_accelerator"
    monkeypatch.setattr(current, lambda check_available=False: None if check_available else torch.device("cuda"))
    assert attent.create_block_mask(causal, None, None, T, T).kv_num_blocks.device.type == "cpu"


@pytest.mark.parametrize(("mask_mod", "size"), [(causal, 1), (near, 8)], ids=["booleans", "whole numbers"])
def test_its_memory_does_not_grow_with_the_keys(mask_mod: Callable[..., Tensor], size: int, largest: Any) -> None:
    with largest:
        attent.create_block_mask(mask_mod, None, None, 256, 2**16)
    assert largest.bytes <= size * 2**20


@pytest.mark.parametrize("pairs", [1, 2**14, 2**16])
def test_tiles_of_any_size_make_the_same_mask(pairs: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("attent.integrations.block_mask.PAIRS", pairs)
    arguments = MASKS["with gaps"], B, H, T, T + 100
    assert same(attent.create_block_mask(*arguments, BLOCK_SIZE=(32, 64)), pytorchs(*arguments, BLOCK_SIZE=(32, 64)))


@pytest.mark.parametrize(("queries", "keys"), [(0, 31), (31, 0)])
def test_a_mask_without_queries_or_keys(queries: int, keys: int) -> None:
    blocks = attent.create_block_mask(causal, None, None, queries, keys, BLOCK_SIZE=16)
    assert not bool(blocks.kv_num_blocks.any())


def test_a_compiled_mask_is_refused() -> None:
    with pytest.raises(ArgumentError, match="does not compile"):
        attent.create_block_mask(causal, None, None, T, T, _compile=True)


@pytest.mark.parametrize("name", MASKS)
def test_the_pairs_of_a_block_mask(name: str) -> None:
    block_mask = attent.create_block_mask(MASKS[name], B, H, T, T, BLOCK_SIZE=32)
    mask = BlockMaskPairs.of(block_mask, B, H)
    tensor = torch.zeros(B, H, T, 1)
    pairs = prepare(tensor, tensor, tensor, mask=mask).call.pairs()
    allowed, right = mask.allowed(pairs), torch_flex.create_mask(MASKS[name], B, H, T, T, "cpu")
    assert torch.equal(allowed.expand_as(right), right)
    key_range = mask.key_range(pairs)
    assert key_range is not None
    inside = (pairs.key_index >= key_range.begin) & (pairs.key_index < key_range.end)
    assert not bool((right & ~inside).any())
    visible = mask.visible_keys(pairs)
    assert visible is None or not bool((right.any(0).any(0).any(0) & ~visible).any())


def test_blocks_without_a_function_are_all_that_a_mask_needs() -> None:
    table = torch.tensor([[1, 0], [1, 1]])
    numbers, indices = table.sum(-1).int()[None, None], torch.tensor([[0, 1], [0, 1]]).int()[None, None]
    block_mask = BlockMask.from_kv_blocks(numbers, indices, BLOCK_SIZE=4)
    tensor = torch.zeros(1, 1, 8, 1)
    pairs = prepare(tensor, tensor, tensor).call.pairs()
    allowed = BlockMaskPairs.of(block_mask, 1, 1).allowed(pairs)[0, 0]
    assert torch.equal(allowed, torch.kron(table, torch.ones(4, 4)).bool())


@pytest.mark.parametrize("name", MASKS)
def test_a_range_of_keys_for_each_query(name: str) -> None:
    tensor = torch.zeros(B, H, T, 1)
    pairs = prepare(tensor, tensor, tensor).call.pairs()
    right = torch_flex.create_mask(MASKS[name], B, H, T, T, "cpu")
    for sizes in ((B, H), (None, None)) if name != "one for each head and sequence" else ((B, H),):
        block_mask = attent.create_block_mask(MASKS[name], *sizes, T, T, BLOCK_SIZE=(32, 64))
        ranges = BlockMaskPairs.of(block_mask, B, H).as_key_ranges(T, T)
        assert (ranges is None) == (name == "with gaps")
        if ranges is not None:
            assert torch.equal(ranges.allowed(pairs).expand_as(right), right)
            assert ranges.key_range(pairs).exact
