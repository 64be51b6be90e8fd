from __future__ import annotations

import torch

from attent.ops.autograd import Captures, Replacement


def test_tensors_computed_of_leaves_are_found() -> None:
    leaf = torch.randn(3, requires_grad=True)
    first, second = (2 * leaf).unbind()[:2]
    with Captures() as captures:
        torch.add(first, torch.ones(()))
    assert captures.by_edge[first.grad_fn, first.output_nr] is first
    # another output of the same function is not taken for it
    assert (second.grad_fn, second.output_nr) not in captures.by_edge


def test_a_replaced_tensor_gets_no_gradient_but_its_stand_in_does() -> None:
    leaf = torch.randn(3, requires_grad=True)
    computed, second = 2 * leaf, torch.ones(3, requires_grad=True)
    with Replacement({id(computed): second}):
        result = torch.stack([computed, computed]).sum()
    assert result.item() == 6
    gradients = torch.autograd.grad(result, [leaf, second], allow_unused=True)
    assert gradients[0] is None
    assert gradients[1] is not None
    assert gradients[1].tolist() == [2, 2, 2]
