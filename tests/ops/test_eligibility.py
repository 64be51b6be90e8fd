"""Derivatives by torch.func, in forward mode and of many gradients at once.

Whatever `auto` takes, they are the formula's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from itertools import cycle, product
from typing import Any

import pytest
import torch
from torch import Tensor, func
from torch.autograd import forward_ad

from attent.attention import attend, explain
from attent.attention.backends import bands, select
from attent.attention.base import Score
from attent.attention.masks import Window
from attent.attention.scores import SCORES, Additive
from attent.ops import sdpa
from attent.ops.autograd import checkpointed, double_backward, needs_double_backward
from attent.ops.eligibility import is_transformed, is_vmap_alone, needs_plain_torch

B, H, TQ, TK, D, DV = 2, 3, 5, 7, 4, 3
# PyTorch's own forward mode
pytestmark = pytest.mark.filterwarnings("ignore:.torch.jit")
Attention = Callable[..., Tensor]


def drawn(*shape: int, seed: int, dtype: torch.dtype = torch.float64) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).to(dtype)


def tensors(dtype: torch.dtype = torch.float64, queries: int = TQ, keys: int = TK) -> list[Tensor]:
    shapes = (queries, D), (keys, D), (keys, DV)
    return [drawn(B, H, *shape, seed=seed, dtype=dtype) for seed, shape in enumerate(shapes)]


def leaves(inputs: list[Tensor]) -> list[Tensor]:
    return [tensor.clone().requires_grad_() for tensor in inputs]


def many_gradients(attention: Attention, inputs: list[Tensor], by_vmap: bool = False) -> Any:
    leaf_inputs = leaves(inputs)
    context = attention(*leaf_inputs)
    several = drawn(6, *context.shape, seed=9, dtype=context.dtype)

    def gradients_of(gradient: Tensor, **options: bool) -> tuple[Tensor, ...]:
        return torch.autograd.grad(context, leaf_inputs, gradient, materialize_grads=True, **options)

    if by_vmap:
        return torch.vmap(partial(gradients_of, retain_graph=True))(several)
    return gradients_of(several, is_grads_batched=True)


def total(attention: Attention) -> Attention:
    return lambda *inputs: attention(*inputs).sin().sum()


def of_one(attention: Attention) -> Attention:
    return lambda *inputs: attention(*(part[None] for part in inputs))


def tangents_of_gradients(attention: Attention, inputs: list[Tensor]) -> Any:
    """The forward was none of a transform; its backward is in forward mode."""
    leaf_inputs = leaves(inputs)
    context = attention(*leaf_inputs)
    with forward_ad.dual_level():
        dual = forward_ad.make_dual(context.detach().cos(), context.detach().sin())
        gradients = torch.autograd.grad(context, leaf_inputs, dual, materialize_grads=True)
        along = [forward_ad.unpack_dual(gradient).tangent for gradient in gradients]
    return [torch.zeros_like(like) if item is None else item for item, like in zip(along, leaf_inputs, strict=True)]


def gradient_of_a_gradient(attention: Attention, inputs: list[Tensor]) -> Any:
    """One by torch.func, whose own is PyTorch's."""
    leaf_inputs = leaves(inputs)
    inner = func.grad(total(attention))(*leaf_inputs)
    return torch.autograd.grad(inner.square().sum(), leaf_inputs, materialize_grads=True)


ALL = (0, 1, 2)
DERIVATIVES: dict[str, Callable[[Attention, list[Tensor]], Any]] = {
    "many gradients": many_gradients,
    "many gradients by vmap": partial(many_gradients, by_vmap=True),
    "tangents of gradients": tangents_of_gradients,
    "grad": lambda attention, inputs: func.grad(total(attention), ALL)(*inputs),
    "jacrev": lambda attention, inputs: func.jacrev(attention, ALL)(*inputs),
    "jacfwd": lambda attention, inputs: func.jacfwd(attention, ALL)(*inputs),
    "hessian": lambda attention, inputs: func.hessian(total(attention), (0, 1))(*inputs),
    "hessian, vectorised": lambda attention, inputs: torch.autograd.functional.hessian(
        total(attention), tuple(inputs), vectorize=True
    ),
    "jacobian, forward mode": lambda attention, inputs: torch.autograd.functional.jacobian(
        attention, tuple(inputs), vectorize=True, strategy="forward-mode"
    ),
    "per sample": lambda attention, inputs: torch.vmap(func.grad(total(of_one(attention)), ALL))(*inputs),
    "gradient of a gradient": gradient_of_a_gradient,
    "vmap": lambda attention, inputs: torch.vmap(of_one(attention))(*inputs),
}


def assert_those_of_the_formula(derivative: str, attention: Attention, inputs: list[Tensor]) -> None:
    ways = (partial(attention, implementation=way) for way in ("auto", "reference"))
    actual, expected = (DERIVATIVES[derivative](way, inputs) for way in ways)
    exactly = inputs[0].dtype == torch.float64
    torch.testing.assert_close(actual, expected, rtol=1e-9 if exactly else 1e-3, atol=1e-9 if exactly else 1e-4)


def score_of(name: str, dtype: torch.dtype) -> Score:
    score = SCORES[name].for_widths(D, D, H).to(dtype)
    for seed, parameter in enumerate(score.parameters()):
        parameter.data = 0.5 * drawn(*parameter.shape, seed=20 + seed, dtype=dtype)
    return score


def cases() -> Iterator[tuple[str, str, str, torch.dtype]]:
    """Every derivative of two scores, every score with two derivatives, and normalizers and types in turn."""
    pairs = [*product(DERIVATIVES, ("scaled_dot", "additive")), *product(("grad", "many gradients"), SCORES)]
    for number, (derivative, name) in enumerate(dict.fromkeys(pairs)):
        yield (
            derivative,
            name,
            ("softmax", "sparsemax")[number // 2 % 2],
            (torch.float64, torch.float32)[number % 3 % 2],
        )


@pytest.mark.no_cover
@pytest.mark.parametrize(("derivative", "name", "normalizer", "dtype"), [*cases()])
def test_derivatives_of_every_score(derivative: str, name: str, normalizer: str, dtype: torch.dtype) -> None:
    attention = partial(attend, score=score_of(name, dtype), normalizer=normalizer, mask="causal")
    assert_those_of_the_formula(derivative, attention, tensors(dtype))


CALLS: dict[str, dict[str, Any]] = {
    "dropout tiled": {"dropout": 0.3, "seed": 5},
    "dense": {"mask": Window(2, 1), "dropout": 0.3, "seed": 5},
    "sdpa": {"lengths": torch.tensor([0, 11])},
    "sdpa, long": {"mask": "causal"},
    "sdpa, bands": {"mask": Window(2, 0)},
    "tanh": {"score": Additive(D, D, 6), "lengths": torch.tensor([0, 11])},
    "tiled": {"position": "alibi"},
    "tiled tanh": {"score": Additive(D, D, 6), "dropout": 0.3, "seed": 5},
}


@pytest.mark.parametrize("name", CALLS)
@pytest.mark.parametrize("derivative", ["many gradients", "many gradients by vmap", "tangents of gradients"])
def test_derivatives_of_every_kernel(derivative: str, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each is what `auto` takes for its call, in more than one piece."""
    monkeypatch.setattr(bands, "TILE", 500)
    monkeypatch.setattr(bands, "WHOLE", 0)
    if name == "sdpa, long":
        monkeypatch.setattr(sdpa, "SHORT", 0)
    if name == "sdpa, bands":
        monkeypatch.setattr(select, "MANY", 1)
        monkeypatch.setattr("attent.attention.backends.bands.ROWS", 1)
    dtype = torch.float32 if name == "dense" else torch.float64
    inputs, arguments = tensors(dtype, 17, 29), CALLS[name]
    if isinstance(arguments.get("score"), Score):
        arguments = arguments | {"score": arguments["score"].to(dtype)}
    chosen = explain(*leaves(inputs), **arguments).chosen
    if name == "dense" and chosen != "dense":
        pytest.skip("the extension is not compiled")
    assert chosen == name.split(",")[0].split()[-1]
    assert_those_of_the_formula(derivative, partial(attend, **arguments), inputs)


@pytest.mark.parametrize(("name", "normalizer"), [*zip(SCORES, cycle(("softmax", "sparsemax")), strict=False)])
def test_batched_gradients_pass_pytorchs_own_check(name: str, normalizer: str) -> None:
    score = score_of(name, torch.float64)
    leaf_inputs, rest = leaves(tensors()), []
    if name == "location":  # which looks at no key
        leaf_inputs, rest = [leaf_inputs[0], leaf_inputs[2]], [leaf_inputs[1].detach()]

    def attention(*inputs: Tensor) -> Tensor:
        query, *key, value = *inputs[:-1], *rest, inputs[-1]
        return attend(query, *key, value, score=score, normalizer=normalizer, lengths=torch.tensor([7, 4]))

    arguments = {"check_batched_grad": True, "check_forward_ad": True, "check_batched_forward_grad": True}
    assert torch.autograd.gradcheck(attention, leaf_inputs, fast_mode=True, **arguments)


def test_what_is_explained_under_a_transform_is_what_runs() -> None:
    inputs, records = tensors(torch.float32), []

    def loss(query: Tensor) -> Tensor:
        records.append([explain(query, *inputs[1:], score=score) for score in ("scaled_dot", Additive(D, D, 5))])
        return attend(query, *inputs[1:]).sum()

    func.grad(loss)(inputs[0])
    assert [record.chosen for record in records[0]] == ["reference", "reference"]
    assert "functional derivatives" in records[0][0].reasons["sdpa"]


def test_which_transforms_are_noticed() -> None:
    records: dict[str, tuple[bool, bool, bool]] = {}

    def probe(name: str, tensor: Tensor) -> Tensor:
        records[name] = is_transformed(), is_vmap_alone(), needs_plain_torch()
        return tensor.sin().sum()

    x = torch.randn(3)
    probe("nothing", x)
    torch.vmap(lambda tensor: probe("vmap", tensor))(x)
    torch.vmap(func.grad(lambda tensor: probe("vmap of grad", tensor)))(x)
    func.jvp(lambda tensor: probe("jvp", tensor), (x,), (x,))
    with forward_ad.dual_level():
        probe("forward mode", x)
    assert records == {
        "nothing": (False, False, False),
        "vmap": (True, True, True),
        "vmap of grad": (True, False, True),
        "jvp": (True, False, True),
        "forward mode": (False, False, True),
    }


def test_a_backward_learns_of_many_gradients_at_once() -> None:
    flags: list[bool] = []

    class Doubled(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, tensor: Tensor) -> Tensor:
            ctx.save_for_backward(tensor)
            return 2 * tensor

        @staticmethod
        def backward(ctx: Any, gradient: Tensor) -> Tensor:  # pyright: ignore[reportIncompatibleMethodOverride]
            flags.append(needs_double_backward(gradient))
            return double_backward(lambda tensor: checkpointed(torch.mul, tensor, 2), ctx.saved_tensors, gradient)[0]

    x = torch.randn(3, requires_grad=True)
    for flag in (False, True):
        several = torch.randn(5, 3) if flag else torch.randn(3)
        (actual,) = torch.autograd.grad(Doubled.apply(x), x, several, is_grads_batched=flag)
        torch.testing.assert_close(actual, 2 * several)
        assert not actual.requires_grad
    (actual,) = torch.autograd.grad(Doubled.apply(x).sum(), x, create_graph=True)
    assert flags == [False, True, True]
