"""What PyTorch's FlexAttention tests have come to hold since.

Biases that are learnt, BlockMasks built in other ways; and the list of all. Read:
`test/inductor/test_flex_attention.py` at commit 09708f57 of a fork of PyTorch's repository (IvanYashchuk/pytorch),
newer than torch 2.13, from its first test to its last. The names are those of its tests, without `test_`.

Cases, written anew here or in `test_flex_attention_cases.py` and `test_flex_attention.py`, forward and backward:

- TestFlexAttention:
  builtin_score_mods{,_seqlen_lt_default_sparse_block_size,_seqlen_lt_custom_sparse_block_size,_different_seqlen,
  _different_block_size}, kv_batch_broadcast{,_causal_mask}, GQA{,_causal_mask}, strided_inputs, doc_mask_sparse,
  index_{multiple,weird1,weird2}, skip_odd_keys, function_composition, captured_buffers_all_dims,
  bf16_score_mod_captured_grad_dtype, seq_masking, load_from_bias_{seq_only, seq_batch,head_seq_batch},
  load_from_view_buffer, load_rel_bias, dependent_causal_bidirectional, natten_2d, silu_on_score, padded_dense_causal,
  captured_{scale,scalar_grad,0d_scalar_grad}, unused_captured_score_mod_grad, recompile_changed_score_mod,
  captured_reduction (fails there), compacted_block_mask_matches_reference_after_recompile, return_max, return_aux,
  autocast, mask_mod_handles_{symint_addition, derived_symint_closure}, multiple_score_mod_calls{,2},
  multiple_mask_calls, inputs_are_realized, mask_mod_combiners, njt_causal, non_equal_head_dims,
  autograd_function_in_score_mod, causal_block{,_non_divisible,_non_divisible_with_captured_buffer}, new_empty_mask_mod,
  non_pow_2_headdim, custom_block_mask_generator, logsumexp_correctness, aot_eager_gradcheck,
  captured_score_mod_aot_eager_gradcheck, eager_backward_strides, differentiable_logsumexp_{gradcheck,compiled},
  score_mod_without_score_gradient_errors, document_masking_edge_case, strided_backwards, non_contiguous_last_dim,
  fully_masked_out_rows{,_0_check}, block_mask_non_divisible, modular_indexing, lse_masked_output, reduction_unrolled,
  narrow_kv_block_size_uses_clamped_default_config, sparse_block_not_dividing_seqlen, small_q_kv_len,
  non_divisible_with_captured_buffer, cpu_qk_chunk_same_addmm_buffer, nested_tensor_inputs_error,
  custom_score_mod_layout_freeze, selective_ac, mask_mod_functools_partial, callable_class_mask_mod
- TestBlockMask: sliced_blockmask_mask_mod_error, from_kv_blocks_unpadded_kv_indices_with_seq_lengths,
  upcast_appropriately, doc_mask_clamped_repro, block_mask_vs_sequence_lengths, forward_pass_with_none_q_indices,
  flex_attention_poison{ed_rel_logits,_mod_fwd,_mod_bwd}, broadcasted_head_block_mask
- TestPagedAttention: paged_builtin_score_mods
- TestLearnableBiases:
  {relative_1d,absolute_2d,head_specific,batch_head,multiplicative,local_window,global_tokens,weird,indirect,symmetric
  (fails there),flipped_indexed}_bias, head_specific_gate, distinct_biases, learnable_bias_global_compiled,
  backprop_error_case, relative_1d_bias_only_grad, head_bias_req_grad, comparison_vs_sdpa_with_learnable_bias

Left out, with the reason:

TestFlexAttention
- of generated code, its guards, its number or its text: builtin_score_mods_dynamic,
  builtin_score_mods_automatic_dynamic, small_block_mask, create_block_mask_recompile_persistent_reduction_oob,
  subgraph_respect_decompostion, dynamic_captured_buffer, dynamic_divisibility_guards, make_block_mask, epilogue_fused,
  max_autotune, max_autotune_with_captured, logsumexp_only_return, cant_lower_error_message,
  dynamic_shapes_bug_dynamic_batch (its mask is a case), dynamic_shapes_with_custom_kernel_options,
  dynamic_shapes_with_max_autotune, free_symbol_dynamic (its mask is a case), symbol_closure_in_score_mod,
  fw_bw_graph_correctness, flex_attention_always_freezes_layout, backward_fake_symbolic_query_key_batch_metadata,
  debug_flag_disables_internal_compilation, selective_ac_with_max_autotune_short_query
- of Triton's kernels and options, without effect here: kernel_options_argument_is_respected,
  backward_kernel_options_filtering, invalid_{forward,backward,decode}_kernel_options_error,
  flex_flash_honors_sparse_metadata_with_trivial_mask, backend_auto_matches_triton_large,
  backend_triton_decode_matches_auto, backend_triton_decode_errors_when_not_supported,
  backend_triton_decode_errors_with_non_power_of_two_gqa, backend_rejects_legacy_force_use_flag,
  backend_defaults_and_rejects_invalid, invalid_block_size (any size serves here), kv_order_invariance_padded_causal,
  num_warps_8_error, triton_template_warp_specialization, tma_with_customer_kernel_options,
  large_batch_heads_grid_dimension, force_write_lse, float32_matmul_precision (TF32),
  validate_small_embedding_size_error_message (widths below 16 serve here)
- flex decoding, a kernel of its own: flex_decode_{full_and_partial_index_widths (its lists are a case),
  runtime_split_owns_max_scratch, runtime_split_bands_per_row_tile_cap, split_policy_uses_physical_kv_and_fwd_block_m,
  selected_split_owns_scratch_and_explicit_skips_tuning, split_k_rubin_two_wave_target,
  split_k_symbolic_work_fails_closed, split_policy_uses_largest_sparse_list, split_proxy_occupancy_and_broadcast_gate,
  split_k_preserves_other_backend_policy, split_kv_autotune_candidates, rubin_paged_d256_config,
  graph_module_cache_key_includes_get_attr_state}, unbacked_flex_decoding_eligibility_falls_back
- PyTorch's inner operator, called by itself: direct_backward_preserves_explicit_buffers,
  direct_backward_supports_symint_score_mod_buffers, direct_backward_inductor_batch_broadcast_matches_eager,
  direct_backward_inductor_supports_scalar_mask_mod_buffers, tensor_subclass_dispatch_order
- keys of another type than queries, which raise a DTypeError here:
  mixed_dtypes_{eager,compiled,sqnr_per_tensor,sqnr_per_head}, mixed_dtype_backwards_{eager,compiled}
- a second device: mixed_device_error_message, captured_wrong_device_error_message,
  qkv_and_block_mask_on_the_same_device, device_cuda_1
- errors of what works here: cpu_error_message_return_lse, zero_length_sequence_error (no query gives an empty context)
- the order of the result's strides, which is `attend`'s own: flex_attention_stride_ordering,
  flex_attention_backward_stride_ordering
- warnings of names that PyTorch gives up: return_aux_deprecation_warnings (both at once are refused, as there)
- memory: large_kv_int64_pointer_math takes 12 GB, and is skipped there too
- paged attention compiled: multiple_score_mod_calls_paged_attention, multiple_score_mod_calls2_paged_attention,
  causal_block_paged_attention

TestBlockMask
- methods of PyTorch's class alone, with which `create_block_mask` is compared field by field
  (tests/integrations/test_block_mask.py): block_mask_attributes, block_mask_sparsity_with_partial_block,
  adjust_block_mask_ignores_entries_past_num_blocks, block_size_changes, getitem_query_slice_updates_shape, getitem,
  block_mask_positional_constructor_preserves_block_size, block_mask_device_change, block_mask_viz, from_kv_blocks,
  from_kv_blocks_without_q_computation, block_size, init_mismatched_full_kv, init_mismatched_full_q,
  block_mask_operations_with_none_q_indices, pytree_{flatten_unflatten,flatten_with_keys,preserves_new_attributes}
- the order in which a GPU writes a query's gradient: block_mask_transform_preserves_dq_write_order,
  from_kv_blocks_accepts_dq_metadata, compute_dq_write_order_with_expanded_kv_indices,
  create_block_mask_{defaults_to_spt_dq_write_order,rejects_non_bool_dq_kv_order}
- of generated code: compiling_create_block_mask, compiling_create_block_mask_no_recompile, create_is_cuda_graphable,
  eager_tracing_correctness, from_kv_blocks_fullgraph_compile_with_inferred_seq_lengths,
  block_mask_check_does_not_specialize_backed_dynamic_length
- an error of what works here: backward_error_with_none_q_indices

TestPagedAttention: page_allocation, allocate, convert_logical_block_mask (three), convert_mask_mod, update are of
PyTorch's class of pages alone; that class' masks and score_mods are a case.

TestLearnableBiases: flex_attention_with_dynamic_max_autotune (two), flex_attention_logging, inspect_bug (its mask is a
case) are of generated code.
"""

from __future__ import annotations

import functools
from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from torch.nn.attention.experimental._paged_attention import PagedAttention
from torch.nn.attention.flex_attention import BlockMask
from torch.utils.checkpoint import checkpoint

import attent
from attent.errors import ArgumentError

B, H, T, D = 2, 3, 37, 8
INFINITY = float("inf")
Mod = Callable[..., Tensor]


def leaf(*shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.randn(shape).to(dtype).requires_grad_()


def inputs(dtype: torch.dtype = torch.float32, keys: int = T, heads: int = H, width: int = D) -> list[Tensor]:
    torch.manual_seed(0)
    return [
        leaf(B, heads, T, width, dtype=dtype),
        leaf(B, heads, keys, width, dtype=dtype),
        leaf(B, heads, keys, width, dtype=dtype),
    ]


def formula(tensors: list[Tensor], score_mod: Mod | None = None, mask_mod: Mod | None = None) -> Tensor:
    """The dense formula: every index is an axis of its own, over which elementwise functions are broadcast."""
    query, key, value = tensors
    scores = query @ key.mT / query.shape[-1] ** 0.5
    b, h, i, j = torch.meshgrid(*(torch.arange(size) for size in scores.shape), indexing="ij")
    scores = scores if score_mod is None else score_mod(scores, b, h, i, j).to(scores.dtype)
    hidden = scores == -INFINITY if mask_mod is None else ~mask_mod(b, h, i, j) | (scores == -INFINITY)
    scores = scores.masked_fill(hidden, torch.finfo(scores.dtype).min)
    return scores.softmax(-1).masked_fill(hidden, 0.0) @ value


def gradients(context: Tensor, leaves: list[Tensor]) -> list[Tensor]:
    torch.manual_seed(2)
    return [
        context,
        *torch.autograd.grad(context, leaves, torch.randn(context.shape).to(context.dtype), materialize_grads=True),
    ]


def close(context: Tensor, right: Tensor, leaves: list[Tensor]) -> None:
    for result, expected in zip(gradients(context, leaves), gradients(right, leaves), strict=True):
        torch.testing.assert_close(result, expected, atol=1e-5, rtol=1e-4)


def blocks_of(mask_mod: Mod, block: int | tuple[int, int] = 8, keys: int = T) -> BlockMask:
    return attent.create_block_mask(mask_mod, B, H, T, keys, BLOCK_SIZE=block)


def make_cases(dtype: torch.dtype) -> dict[str, tuple[Mod, list[Tensor]]]:
    torch.manual_seed(1)
    of_pair, of_sequence, of_all = leaf(2 * T, dtype=dtype), leaf(B, T, T, dtype=dtype), leaf(B, H, T, T, dtype=dtype)
    near, first, second, gate = (leaf(size, dtype=dtype) for size in (11, T, T, H))
    parts, rows, number, single = (
        leaf(B, H, 4, T, dtype=dtype),
        leaf(B, H, T, 5, dtype=dtype),
        leaf(dtype=dtype),
        leaf(1, dtype=dtype),
    )
    table, of_tokens, wide = leaf(2 * T, H, dtype=dtype), leaf(B, 2, H, T, dtype=dtype), leaf(B, 256, dtype=dtype)
    index, order, half = torch.tensor(2), torch.randperm(T), torch.arange(T) > T // 2
    poisoned = torch.cat([torch.randn(B, H, T, T), torch.full((B, H, T, T), float("nan"))]).to(dtype)
    causal = torch.ones(B, 1, T, T, dtype=torch.bool).tril()

    def continuous(s: Tensor, b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
        weight = torch.sigmoid(gate)[h] * (of_tokens[b, 0, h, i] + of_tokens[b, 1, h, j])
        return s + ((i >= 5) & (j >= 5)).to(s.dtype) * weight * table.tanh()[i - j + T, h]

    return {
        "distance": (lambda s, b, h, i, j: s + of_pair[torch.abs(i - j)], [of_pair]),
        "distance, clamped": (lambda s, b, h, i, j: s + near[torch.clamp(i - j + 5, 0, 10)], [near]),
        "of the key": (lambda s, b, h, i, j: s + first[j], [first]),
        "of query and key, one tensor": (lambda s, b, h, i, j: s + first[i] + first[j], [first]),
        "of query and key, two tensors": (lambda s, b, h, i, j: s + first[i] + second[j], [first, second]),
        "of a permuted query": (lambda s, b, h, i, j: s + first[order[i]], [first]),
        "a table of each sequence": (lambda s, b, h, i, j: s + of_sequence[b, i, j], [of_sequence]),
        "a table of each sequence and head": (lambda s, b, h, i, j: s + of_all[b, h, i, j], [of_all]),
        "a row of one of four": (lambda s, b, h, i, j: s + parts[b, h, index, i], [parts]),
        "a row of key blocks": (lambda s, b, h, i, j: s + rows[b, h, i, j // 8], [rows]),
        "a gate of the head": (lambda s, b, h, i, j: s * torch.sigmoid(gate[h]), [gate]),
        "a number, times and added": (lambda s, b, h, i, j: s * number + number, [number]),
        "a number, cut off": (lambda s, b, h, i, j: s + number.detach(), [number]),
        "the one element": (lambda s, b, h, i, j: s * single[0], [single]),
        "read and not used": (lambda s, b, h, i, j: (gate[h], s)[1], [gate]),
        "a sum of 256": (lambda s, b, h, i, j: s * wide[b].sum(-1), [wide]),
        "continuous": (continuous, [table, gate, of_tokens]),
        "half of the sequence": (lambda s, b, h, i, j: torch.where(half[i] == half[j], s, -INFINITY), []),
        "a boolean, added": (lambda s, b, h, i, j: s + causal[b, h.new_zeros(h.shape), i, j], []),
        "NaN where nothing is read": (lambda s, b, h, i, j: s + poisoned[b, h, i, j], []),
        "logarithm of the positive": (lambda s, b, h, i, j: torch.where(s > 0, torch.log(s), s), []),
    }


@pytest.mark.parametrize("score", make_cases(torch.float32))
@pytest.mark.parametrize("masked", [False, True], ids=["all", "causal"])
def test_biases_that_are_learnt(score: str, masked: bool) -> None:
    def causal(b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
        return i >= j

    outcomes: list[list[Tensor]] = []
    for is_ours, dtype in ((False, torch.float64), (False, torch.float32), (True, torch.float32)):
        (score_mod, captured), tensors = make_cases(dtype)[score], inputs(dtype)
        if is_ours:
            context = attent.flex_attention(*tensors, score_mod, blocks_of(causal) if masked else None)
        else:
            context = formula(tensors, score_mod, causal if masked else None)
        outcomes.append(gradients(context, tensors + captured))
    for exact, plain, mine in zip(*outcomes, strict=True):
        floor = 1e-6 * max(float(exact.detach().abs().max()), 1.0)
        errors = [float((tensor.detach().double() - exact.detach()).abs().max()) for tensor in (plain, mine)]
        assert errors[1] <= 3 * max(errors[0], floor)


def test_a_tensor_read_step_by_step() -> None:
    tensors, parts, of_query, index = inputs(), leaf(B, H, 4, T), leaf(B, T), torch.tensor(2)
    mine = attent.flex_attention(*tensors, lambda s, b, h, i, j: s + parts[b][h][index, i] * of_query[b][i] * s)
    right = formula(tensors, lambda s, b, h, i, j: s + parts[b, h, index, i] * of_query[b, i] * s)
    close(mine, right, [*tensors, parts, of_query])


def test_one_over_the_score_is_finite() -> None:
    tensors = inputs()
    context = attent.flex_attention(*tensors, lambda s, b, h, i, j: 1 / s, blocks_of(lambda b, h, i, j: i >= j))
    assert all(bool(result.isfinite().all()) for result in gradients(context, tensors))


def test_a_bias_alone_is_learnt() -> None:
    tensors, bias = [tensor.detach() for tensor in inputs()], leaf(2 * T)

    def score_mod(s: Tensor, b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
        return s + bias[torch.abs(i - j)]

    close(attent.flex_attention(*tensors, score_mod), formula(tensors, score_mod), [bias])


def test_a_table_made_of_what_is_learnt_and_one_tensor_for_all() -> None:
    x, of_token = leaf(B, T, D), leaf(B, T)
    table, heads = of_token[:, :, None] * of_token[:, None], x[:, :, None].repeat(1, 1, H, 1).transpose(1, 2)

    def score_mod(s: Tensor, b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
        return s + table[b, i, j]

    context, right = attent.flex_attention(heads, heads, heads, score_mod), formula([heads] * 3, score_mod)
    for result, expected in zip(
        *(torch.autograd.grad(c.square().sum(), [x, of_token], retain_graph=True) for c in (context, right)),
        strict=True,
    ):
        torch.testing.assert_close(result, expected, atol=1e-4, rtol=1e-4)


def test_a_bias_of_a_layer_in_sixteen_bits() -> None:
    layer, x = torch.nn.Linear(D, T, dtype=torch.bfloat16), torch.randn(B, H, T, D, dtype=torch.bfloat16)
    bias = layer(x)
    attent.flex_attention(x, x, x, lambda s, b, h, i, j: s + bias[b, h, i, j]).sum().backward()
    assert layer.weight.grad is not None
    assert layer.weight.grad.dtype == torch.bfloat16
    assert bool(layer.weight.grad.any())
    mass = torch.full((1,), 2.0, dtype=torch.float16)
    half = x.half()
    plain = attent.flex_attention(half, half, half)
    torch.testing.assert_close(
        attent.flex_attention(half, half, half, lambda s, b, h, i, j: s + torch.log(mass[0])), plain
    )


LENGTHS = torch.tensor([29, 11])
DOCUMENTS = torch.arange(T).repeat(B, 1) // torch.tensor([[11], [17]])


class CausalOrNear:
    def __init__(self, size: int) -> None:
        self.size = size

    def __call__(self, b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
        return (i >= j) | (j - i < self.size)


def near(b: Tensor, h: Tensor, i: Tensor, j: Tensor, *, size: Tensor | int) -> Tensor:
    return (i - j).abs() < size


MASKS: dict[str, Mod] = {
    "padding": lambda b, h, i, j: (i < LENGTHS[b]) & (j < LENGTHS[b]),
    "documents of each sequence": lambda b, h, i, j: DOCUMENTS[b, i] == DOCUMENTS[b, j],
    "documents, clamped": lambda b, h, i, j: DOCUMENTS[b, i.clamp(0, T - 1)] == DOCUMENTS[b, j.clamp(0, T - 1)],
    "documents or causal": lambda b, h, i, j: (DOCUMENTS[b, i] == DOCUMENTS[b, j]) | (i >= j),
    "the last keys": lambda b, h, i, j: j >= 32,
    "the first keys and the last": lambda b, h, i, j: (j < 8) | (j >= 32),
    "a partial function": functools.partial(near, size=5),
    "a partial function of a tensor": functools.partial(near, size=torch.tensor(7)),
    "an object": CausalOrNear(3),
}


@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize("block", [8, 24, (16, 128)], ids=str)
def test_masks(mask: str, block: int | tuple[int, int]) -> None:
    tensors = inputs()
    close(
        attent.flex_attention(*tensors, block_mask=blocks_of(MASKS[mask], block)),
        formula(tensors, None, MASKS[mask]),
        tensors,
    )


def test_one_sequence_of_keys_and_shared_heads() -> None:
    query, key, value = leaf(5, 4, T, D), leaf(1, 2, T, D), leaf(1, 2, T, D)
    mask = attent.create_block_mask(lambda b, h, i, j: i >= j, 5, 1, T, T, BLOCK_SIZE=8)
    shared = [side.repeat_interleave(2, 1).expand(5, -1, -1, -1) for side in (key, value)]
    right = formula([query, *shared], None, lambda b, h, i, j: i >= j)
    close(attent.flex_attention(query, key, value, block_mask=mask, enable_gqa=True), right, [query, key, value])


def test_two_masks_of_the_same_tensors() -> None:
    tensors, masks = inputs(), [MASKS["documents or causal"], MASKS["an object"]]
    mine, right = torch.zeros(()), torch.zeros(())
    for mask in masks:
        mine, right = (
            mine + attent.flex_attention(*tensors, block_mask=blocks_of(mask)),
            right + formula(tensors, None, mask),
        )
    close(mine, right, tensors)


@pytest.mark.parametrize("mask", ["documents or causal", "the first keys and the last", "an object"])
def test_lists_of_blocks_as_short_as_the_longest_row(mask: str) -> None:
    whole, tensors = blocks_of(MASKS[mask]), inputs()
    assert whole.full_kv_num_blocks is not None
    assert whole.full_kv_indices is not None
    short = [
        (numbers, indices[..., : max(int(numbers.max()), 1)].contiguous())
        for numbers, indices in (
            (whole.kv_num_blocks, whole.kv_indices),
            (whole.full_kv_num_blocks, whole.full_kv_indices),
        )
    ]
    assert short[0][1].shape != short[1][1].shape
    # gradients need no lists of queries
    blocks = BlockMask.from_kv_blocks(
        *short[0], *short[1], BLOCK_SIZE=8, mask_mod=whole.mask_mod, seq_lengths=(T, T), compute_q_blocks=False
    )
    close(attent.flex_attention(*tensors, block_mask=blocks), formula(tensors, None, MASKS[mask]), tensors)


def test_lists_of_blocks_by_hand() -> None:
    tensors, rows = [tensor[:, :, :32] for tensor in inputs()], torch.arange(4)
    blocks = BlockMask.from_kv_blocks(
        (rows + 1)[None, None], rows.expand(1, 1, 4, 4), BLOCK_SIZE=8, mask_mod=lambda b, h, i, j: i >= j
    )
    close(
        attent.flex_attention(*tensors, block_mask=blocks), formula(tensors, None, lambda b, h, i, j: i >= j), tensors
    )


def test_one_row_of_a_mask_for_one_query() -> None:
    query, key, value = inputs(keys=32)
    row = attent.create_block_mask(lambda b, h, i, j: i >= j, B, None, 32, 32, BLOCK_SIZE=8)[:, :, 2]
    row.seq_lengths = (1, 32)
    with pytest.raises(RuntimeError, match="sliced BlockMask"):
        attent.flex_attention(query[:, :, 19:20], key, value, block_mask=row)
    row.mask_mod = lambda b, h, i, j: i + 19 >= j
    tensors = [query[:, :, 19:20], key, value]
    close(
        attent.flex_attention(*tensors, block_mask=row),
        formula([tensors[0], key[:, :, :20], value[:, :, :20]]),
        [query, key, value],
    )


def test_pages_in_any_order() -> None:
    tensors, page = [tensor.detach()[:, :, :32] for tensor in inputs()], 8
    pages = PagedAttention(11, page, B, device="cpu")
    for lengths in ((8, 16), (24, 24), (32, 32)):
        for sequence, length in enumerate(lengths):
            pages.reserve(torch.tensor(sequence), torch.tensor(length))
    key, value = torch.zeros(1, H, 11 * page, D), torch.zeros(1, H, 11 * page, D)
    pages.assign(torch.arange(B), torch.arange(32).expand(B, 32), tensors[1], tensors[2], key, value)
    logical = attent.create_block_mask(lambda b, h, i, j: i >= j, B, 1, 32, 32, BLOCK_SIZE=page)
    lengths = torch.full((B,), 32)

    def score_mod(s: Tensor, b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
        return s * 2 + (i - j)

    blocks = pages.convert_logical_block_mask(logical, kv_len=lengths)
    context = attent.flex_attention(tensors[0], key, value, pages.get_score_mod(score_mod, kv_len=lengths), blocks)
    torch.testing.assert_close(context, formula(tensors, score_mod, lambda b, h, i, j: i >= j), atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("width", [17, 24, 94, 121])
def test_widths_of_no_power_of_two(width: int) -> None:
    tensors = inputs(width=width)

    def score_mod(s: Tensor, b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
        return s + (i - j)

    close(attent.flex_attention(*tensors, score_mod), formula(tensors, score_mod), tensors)


def test_parts_of_tensors_and_columns() -> None:
    query, key, value = inputs()
    assert attent.flex_attention(query[:, :, :0], key, value).shape == (B, H, 0, D)
    shorter = [query, key[:, :, :-5], value[:, :, :-5]]
    close(attent.flex_attention(*shorter), formula(shorter), [query, key, value])
    columns = [tensor.detach().mT.contiguous().mT.requires_grad_() for tensor in (query, key, value)]
    close(attent.flex_attention(*columns), formula(columns), columns)
    combined = leaf(B, T, 2 * H * D)
    chunks = [part.view(B, T, H, D).permute(0, 2, 1, 3) for part in combined.chunk(2, dim=-1)]
    close(attent.flex_attention(*chunks, value), formula([*chunks, value]), [combined, value])


def test_within_a_checkpoint_and_autocast() -> None:
    tensors = inputs()
    score_mod, captured = make_cases(torch.float32)["of query and key, two tensors"]
    context = checkpoint(attent.flex_attention, *tensors, score_mod, use_reentrant=False)
    assert isinstance(context, Tensor)
    close(context, formula(tensors, score_mod), tensors + captured)
    with torch.autocast("cpu", torch.float16):
        context = attent.flex_attention(tensors[0].half(), *tensors[1:])
    assert context.dtype == torch.float16
    torch.testing.assert_close(context.float(), formula(tensors), atol=2e-3, rtol=2e-3)


def test_nested_tensors_are_refused() -> None:
    nested = torch.nested.nested_tensor([torch.randn(size, H, D) for size in (3, 2)], layout=torch.jagged).transpose(
        1, 2
    )
    with pytest.raises(ArgumentError, match="nested"):
        attent.flex_attention(nested, nested, nested)
