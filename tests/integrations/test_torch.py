"""`scaled_dot_product_attention` of PyTorch by our kernel: each row of the table in docs/adopting.md."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.fx.experimental.proxy_tensor import make_fx
from torch.nn import functional as F
from torch.nn.attention import SDPBackend, current_flash_attention_impl, list_flash_attention_impls, sdpa_kernel

from attent.attention.attend import attend
from attent.attention.backends.heuristics import ROWS, using_row
from attent.attention.capture.watch import watch
from attent.integrations import torch as module
from attent.ops.dense_attention import is_compiled

pytestmark = pytest.mark.skipif(not is_compiled(), reason="the compiled library is not there")


def inputs(*shapes: tuple[int, ...], dtype: torch.dtype = torch.float32, seed: int = 1) -> list[Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return [torch.randn(shape, generator=generator).to(dtype).requires_grad_() for shape in shapes]


def results(function: Callable[..., Tensor], *tensors: Tensor, **options: Any) -> list[Tensor]:
    """The output of a function and the gradients of its tensors."""
    output = function(*tensors, **options)
    leaves = [tensor for tensor in (*tensors, *options.values()) if isinstance(tensor, Tensor) and tensor.requires_grad]
    direction = torch.linspace(-1, 1, output.numel()).view_as(output).to(output)
    return [output, *torch.autograd.grad(output, leaves, direction)]


SHAPE = (2, 4, 12, 8)
KEYS = (2, 4, 9, 8)
SERVED: dict[str, tuple[list[tuple[int, ...]], dict[str, Any]]] = {
    "four axes": ([SHAPE, KEYS, KEYS], {}),
    "three axes": ([SHAPE[1:], KEYS[1:], KEYS[1:]], {}),
    "two axes": ([SHAPE[2:], KEYS[2:], KEYS[2:]], {}),
    "causal": ([SHAPE, KEYS, KEYS], {"is_causal": True}),
    "causal, more keys": ([KEYS, SHAPE, SHAPE], {"is_causal": True}),
    "scale": ([SHAPE, KEYS, KEYS], {"scale": 0.3}),
    "grouped heads": ([SHAPE, (2, 2, 9, 8), (2, 2, 9, 8)], {"enable_gqa": True}),
    "width of values": ([SHAPE, KEYS, (2, 4, 9, 5)], {}),
    "boolean mask": ([SHAPE, KEYS, KEYS], {"attn_mask": torch.arange(108).view(12, 9) % 5 > 0}),
    "padding mask": ([SHAPE, KEYS, KEYS], {"attn_mask": (torch.arange(9) < torch.tensor([[5], [9]]))[:, None, None]}),
    "mask of heads": ([SHAPE, KEYS, KEYS], {"attn_mask": torch.arange(432).view(4, 12, 9) % 7 > 0}),
    "mask of three axes": ([SHAPE[1:], KEYS[1:], KEYS[1:]], {"attn_mask": torch.arange(432).view(4, 12, 9) % 7 > 0}),
    "row without keys": ([SHAPE, KEYS, KEYS], {"attn_mask": torch.arange(12)[:, None].expand(12, 9) > 0}),
    "bias": ([SHAPE, KEYS, KEYS], {"attn_mask": torch.linspace(-2, 2, 108).view(12, 9)}),
    "lowest bias": ([SHAPE, KEYS, KEYS], {"attn_mask": torch.full((12, 9), torch.finfo(torch.float32).min).triu(1)}),
}


@pytest.mark.parametrize("name", SERVED)
def test_these_calls_run_our_kernel(active: Any, calls: Any, name: str) -> None:
    shapes, options = SERVED[name]
    expected = results(F.scaled_dot_product_attention, *inputs(*shapes), **options)
    with active():
        actual = results(F.scaled_dot_product_attention, *inputs(*shapes), **options)
        with torch.inference_mode():
            F.scaled_dot_product_attention(*inputs(*shapes), **options)
    assert calls.count == 2
    torch.testing.assert_close(actual, expected, atol=2e-5, rtol=1e-5)


@pytest.mark.parametrize("shape", [(12, 9), (4, 12, 9), (2, 1, 1, 9), (1, 4, 12, 1)])
def test_a_mask_gets_its_gradient(active: Any, calls: Any, shape: tuple[int, ...]) -> None:
    tensors = inputs(SHAPE, KEYS, KEYS, shape)
    with sdpa_kernel(SDPBackend.MATH):
        expected = results(F.scaled_dot_product_attention, *tensors)
    with active():
        actual = results(F.scaled_dot_product_attention, *tensors)
    assert calls.count == 1
    torch.testing.assert_close(actual, expected, atol=2e-5, rtol=1e-5)


def test_a_mask_that_hides_pairs_gets_its_gradient(active: Any, calls: Any) -> None:
    *tensors, mask = inputs(SHAPE, KEYS, KEYS, (12, 9))
    mask = mask.detach().masked_fill(torch.arange(108).view(12, 9) % 4 == 1, -torch.inf).requires_grad_()
    with sdpa_kernel(SDPBackend.MATH):
        expected = results(F.scaled_dot_product_attention, *tensors, attn_mask=mask)
    with active():
        actual = results(F.scaled_dot_product_attention, *tensors, attn_mask=mask)
        dropped = results(F.scaled_dot_product_attention, *tensors, attn_mask=mask, dropout_p=0.5)
    assert calls.count == 2
    torch.testing.assert_close(actual, expected, atol=2e-5, rtol=1e-5)
    assert all(tensor.isfinite().all() for tensor in dropped)
    assert not dropped[-1][mask.isinf()].any()


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_16_bits_run_our_kernel(active: Any, calls: Any, dtype: torch.dtype) -> None:
    tensors = inputs(SHAPE, KEYS, KEYS, dtype=dtype)
    expected = results(F.scaled_dot_product_attention, *tensors)
    with active():
        actual = results(F.scaled_dot_product_attention, *tensors)
        with torch.autocast("cpu", dtype=dtype):
            context = F.scaled_dot_product_attention(*inputs(SHAPE, KEYS, KEYS))
    assert calls.count == 2
    assert context.dtype == dtype
    torch.testing.assert_close(actual, expected, atol=2e-2, rtol=2e-2)


def test_dropout_takes_its_seed_from_the_generator_of_pytorch(active: Any, calls: Any) -> None:
    query, key = inputs((2, 4, 64, 8), (2, 4, 64, 8))
    value = torch.eye(64).expand(2, 4, 64, 64).contiguous()

    def weights(seed: int) -> Tensor:
        torch.manual_seed(seed)
        return F.scaled_dot_product_attention(query, key, value, dropout_p=0.25)

    saved = F.scaled_dot_product_attention(query, key, value) / 0.75
    with active():
        first, repeated, second = weights(1), weights(1), weights(2)
    assert calls.count == 3
    assert torch.equal(first, repeated)
    assert not torch.equal(first, second)
    assert (first == 0).float().mean().item() == pytest.approx(0.25, abs=0.02)
    torch.testing.assert_close(first, saved.where(first != 0, 0.0))


DECLINED: dict[str, tuple[Callable[[], list[Tensor]], dict[str, Any]]] = {
    "float64": (lambda: inputs(SHAPE, KEYS, KEYS, dtype=torch.float64), {}),
    "no keys": (lambda: inputs(SHAPE, (2, 4, 0, 8), (2, 4, 0, 8)), {}),
    "no sequences": (lambda: inputs((0, 4, 12, 8), (0, 4, 9, 8), (0, 4, 9, 8)), {}),
    "few queries": (lambda: inputs((2, 4, 1, 8), KEYS, KEYS), {}),
    "five axes": (lambda: inputs((1, *SHAPE), (1, *KEYS), (1, *KEYS)), {}),
    "broadcast batch": (lambda: inputs(SHAPE, KEYS[1:], KEYS[1:]), {}),
    "broadcast heads": (lambda: inputs(SHAPE, (2, 1, 9, 8), (2, 1, 9, 8)), {}),
    "broadcast values": (lambda: inputs(SHAPE, KEYS, (2, 1, 9, 8)), {}),
    "all dropped": (lambda: inputs(SHAPE, KEYS, KEYS), {"dropout_p": 1.0}),
}


@pytest.mark.parametrize("limit", ["MULTIPLICATIONS", "MULTIPLICATIONS_WITH_DROPOUT"])
def test_short_calls_are_those_of_pytorch(active: Any, calls: Any, limit: str, monkeypatch: pytest.MonkeyPatch) -> None:
    dropout, multiplications = 0.5 if "DROPOUT" in limit else 0.0, 2 * 4 * 12 * 9 * 8

    def run() -> list[Tensor]:
        torch.manual_seed(2)
        return results(F.scaled_dot_product_attention, *inputs(SHAPE, KEYS, KEYS), dropout_p=dropout)

    expected = run()
    monkeypatch.setattr(module, limit, multiplications + 1)
    with active():
        assert all(map(torch.equal, run(), expected))
        assert not calls.count
        monkeypatch.setattr(module, limit, multiplications)
        run()
    assert calls.count == 1


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", DECLINED)
def test_these_calls_are_those_of_pytorch_bit_for_bit(active: Any, calls: Any, name: str) -> None:
    make, options = DECLINED[name]

    def run() -> tuple[list[Tensor], Tensor]:
        torch.manual_seed(7)
        return results(F.scaled_dot_product_attention, *make(), **options), torch.get_rng_state()

    expected, state = run()
    with active():
        actual, state_after = run()
    assert not calls.count
    assert torch.equal(state, state_after)
    for result, reference in zip(actual, expected, strict=True):
        torch.testing.assert_close(result, reference, atol=0.0, rtol=0.0, equal_nan=True)


def test_a_mask_beside_causality_is_for_pytorch_to_take_or_refuse(active: Any, calls: Any) -> None:
    tensors, options = inputs(SHAPE, KEYS, KEYS), {"attn_mask": torch.ones(12, 9, dtype=torch.bool), "is_causal": True}

    def run() -> list[Tensor] | str:
        # PyTorch 2.13 takes both, 2.15 refuses
        try:
            return results(F.scaled_dot_product_attention, *tensors, **options)
        except RuntimeError as error:
            return str(error).splitlines()[0]

    expected = run()
    with active():
        actual = run()
    assert not calls.count
    assert type(actual) is type(expected)
    assert actual == expected if isinstance(expected, str) else all(map(torch.equal, actual, expected))


WRONG: dict[str, tuple[list[tuple[int, ...]], dict[str, Any]]] = {
    "widths": ([SHAPE, (2, 4, 9, 7), (2, 4, 9, 7)], {}),
    "groups unasked": ([SHAPE, (2, 2, 9, 8), (2, 2, 9, 8)], {}),
    "groups": ([SHAPE, (2, 3, 9, 8), (2, 3, 9, 8)], {"enable_gqa": True}),
    "mask of integers": ([SHAPE, KEYS, KEYS], {"attn_mask": torch.ones(12, 9, dtype=torch.int64)}),
    "mask too long": ([SHAPE, KEYS, KEYS], {"attn_mask": torch.ones(12, 10, dtype=torch.bool)}),
    "dropout": ([SHAPE, KEYS, KEYS], {"dropout_p": 1.5}),
}


@pytest.mark.parametrize("name", WRONG)
def test_errors_are_those_of_pytorch(active: Any, name: str) -> None:
    shapes, options = WRONG[name]

    def message() -> tuple[type[Exception], str]:
        with pytest.raises(Exception) as caught:
            F.scaled_dot_product_attention(*inputs(*shapes), **options)
        return caught.type, str(caught.value).split("Exception raised from")[0]

    expected = message()
    with active():
        assert message() == expected


def test_a_kernel_that_the_caller_chose_is_not_ours(active: Any, calls: Any) -> None:
    tensors = inputs(SHAPE, KEYS, KEYS)
    with sdpa_kernel(SDPBackend.MATH):
        expected = F.scaled_dot_product_attention(*tensors)
        with active():
            output = F.scaled_dot_product_attention(*tensors)
    assert not calls.count
    assert torch.equal(output, expected)


def test_a_processor_on_which_pytorch_is_faster_keeps_pytorch(active: Any, calls: Any) -> None:
    tensors = inputs(SHAPE, KEYS, KEYS)
    expected = results(F.scaled_dot_product_attention, *tensors)
    with active(), using_row(ROWS["baseline"]):
        actual = results(F.scaled_dot_product_attention, *tensors)
    assert not calls.count
    assert all(map(torch.equal, actual, expected))


TRANSFORMS: dict[str, Callable[[Tensor, Tensor, Tensor], Tensor]] = {
    "vmap": torch.vmap(F.scaled_dot_product_attention),
    "grad": torch.func.grad(lambda *parts: F.scaled_dot_product_attention(*parts).sum()),
    "vjp": lambda *parts: torch.func.vjp(F.scaled_dot_product_attention, *parts)[1](parts[0])[0],
    "make_fx": lambda *parts: make_fx(F.scaled_dot_product_attention)(*parts)(*parts),
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", TRANSFORMS)
def test_transforms_are_those_of_pytorch(active: Any, calls: Any, name: str) -> None:
    query, key, value = (tensor.detach() for tensor in inputs(SHAPE, KEYS, KEYS))
    expected = TRANSFORMS[name](query, key, value)
    with active():
        actual = TRANSFORMS[name](query, key, value)
    assert not calls.count
    assert torch.equal(actual, expected)


@pytest.mark.filterwarnings("ignore")
def test_forward_mode_is_that_of_pytorch(active: Any, calls: Any) -> None:
    query, key, value = (tensor.detach() for tensor in inputs(SHAPE, KEYS, KEYS))

    def derivative() -> tuple[Tensor, ...]:
        return torch.func.jvp(lambda part: F.scaled_dot_product_attention(part, key, value), (query,), (query,))

    with sdpa_kernel(SDPBackend.MATH):
        expected = derivative()
        with active():
            result = derivative()
    # PyTorch's fused kernel has no derivative in this mode, and says so
    with active(), pytest.raises(NotImplementedError, match="forward AD"):
        derivative()
    assert not calls.count
    assert all(map(torch.equal, result, expected))


@pytest.mark.slow
def test_a_compiled_graph_is_that_of_pytorch(active: Any, calls: Any) -> None:
    tensors = inputs(SHAPE, KEYS, KEYS)
    expected = results(F.scaled_dot_product_attention, *tensors)
    with active():
        compiled = torch.compile(lambda *parts: F.scaled_dot_product_attention(*parts), backend="aot_eager")
        actual = results(compiled, *tensors)
    assert not calls.count
    assert all(map(torch.equal, actual, expected))


@pytest.mark.parametrize("is_watched", [False, True])
def test_attend_still_calls_pytorch_where_it_chose_it(active: Any, calls: Any, is_watched: bool) -> None:
    query, key, value = (tensor.detach() for tensor in inputs(SHAPE, KEYS, KEYS))
    expected = attend(query, key, value, implementation="sdpa")
    with active(), watch(nn.Identity()) if is_watched else nullcontext():
        output = attend(query, key, value, implementation="sdpa")
    assert not calls.count
    assert torch.equal(output, expected)


def test_it_is_reversible(active: Any, calls: Any) -> None:
    tensors = inputs(SHAPE, KEYS, KEYS)
    expected = F.scaled_dot_product_attention(*tensors)
    module.register()
    assert "attent" in list_flash_attention_impls()
    for _ in range(2):
        with active():
            assert current_flash_attention_impl() == "attent"
            F.scaled_dot_product_attention(*tensors)
        assert current_flash_attention_impl() is None
        count = calls.count
        assert torch.equal(F.scaled_dot_product_attention(*tensors), expected)
        assert calls.count == count
    assert calls.count == 2
