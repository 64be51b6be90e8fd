import copy
import gc
import weakref

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from attent.ops import packed_linear
from attent.ops.eligibility import can_run_native
from attent.ops.packed_linear import WeightType, kind_of, module_tree, packed_columns, set_kind


@pytest.mark.parametrize("shape", [(1, 1, 1), (5, 3, 64), (7, 129, 65), (13, 300, 101), (201, 37, 530)], ids=str)
@pytest.mark.usefixtures("level")
@torch.inference_mode()
def test_it_is_the_layer(shape: tuple[int, int, int]) -> None:
    rows, width, columns = shape
    bias = rows % 3 != 1
    layer, features = nn.Linear(width, columns, bias=bias), torch.randn(rows, width)
    exact = F.linear(features.double(), layer.weight.double(), None if layer.bias is None else layer.bias.double())
    actual = packed_linear.linear(layer, features)
    assert (actual - exact).abs().max() <= max(3 * (layer(features) - exact).abs().max(), 1e-6)
    assert torch.equal(packed_linear.linear(layer, features.view(1, rows, 1, width)).flatten(0, 2), actual)


@pytest.mark.needs_native
def test_weights_that_change_are_laid_out_again() -> None:
    layer, features = nn.Linear(5, 7), torch.randn(3, 5)

    def check() -> None:
        with torch.inference_mode():
            torch.testing.assert_close(packed_linear.linear(layer, features), layer(features))
            assert packed_linear.packed_weights(layer, list) is packed_linear.packed_weights(layer, list)

    layer(features).sum().backward()
    for change in (
        lambda: None,
        lambda: layer.weight.detach().mul_(2),
        lambda: setattr(layer, "bias", nn.Parameter(torch.randn(7))),
        lambda: setattr(layer.weight, "data", torch.randn(7, 5)),
        lambda: layer.load_state_dict(nn.Linear(5, 7).state_dict()),
        torch.optim.AdamW(layer.parameters(), 1.0, foreach=True).step,
    ):
        change()
        check()
    # it does not count
    layer(features).sum().backward()
    torch.optim.AdamW(layer.parameters(), 1.0, fused=True).step()
    packed_linear.forget(nn.Sequential(layer))
    check()


@torch.inference_mode()
def test_parameters_that_count_no_changes_are_laid_out_every_time() -> None:
    layer, features = nn.Linear(5, 7), torch.randn(3, 5)
    packed_linear.linear(layer, features)
    layer.weight.mul_(2)
    torch.testing.assert_close(packed_linear.linear(layer, features), layer(features))


def test_what_it_is_not_for() -> None:
    layer, features = nn.Linear(5, 7), torch.randn(3, 5)
    assert packed_linear.linear(layer, features).requires_grad
    with torch.inference_mode():
        assert not can_run_native(layer.weight.bfloat16(), in_inference=True)
        assert packed_linear.linear(nn.Linear(5, 7, dtype=torch.float64), features.double()).dtype == torch.float64
        with torch.autocast("cpu"):
            assert packed_linear.linear(layer, features).dtype == torch.bfloat16


def make() -> nn.Sequential:
    return nn.Sequential(nn.Linear(3, 5), nn.Sequential(nn.Dropout(), nn.LayerNorm(5)))


def test_it_is_read_again_when_a_module_or_a_parameter_was_replaced() -> None:
    model = make()
    assert all(map(torch.equal, module_tree(model).parameters, model.parameters()))
    for change in (
        lambda: setattr(model[1], "0", nn.Identity()),
        lambda: setattr(model[0], "weight", nn.Parameter(torch.ones(5, 3))),
        lambda: setattr(model[0], "bias", None),
        lambda: model.append(nn.Identity()),
        lambda: model.pop(0),
    ):
        tree = module_tree(model)
        change()
        assert not tree.is_current
        assert module_tree(model).modules == [*model.modules()][1:]
        assert module_tree(model).is_current


def test_it_sees_hooks_of_every_module() -> None:
    model = make()
    for module in model.modules():
        assert not module_tree(model).has_hooks
        for register in (module.register_forward_hook, module.register_forward_pre_hook):
            hook = register(lambda *_: None)
            assert module_tree(model).has_hooks
            hook.remove()


def test_a_module_that_nobody_holds_is_freed() -> None:
    model = make()
    module_tree(model)
    reference = weakref.ref(model)
    del model
    gc.collect()
    assert reference() is None


def test_a_copy_packs_its_own_weights() -> None:
    layer = nn.Linear(2, 3)
    set_kind(layer, WeightType.INT8)
    packed = packed_columns(layer)
    copied = copy.deepcopy(layer)
    assert kind_of(copied) is WeightType.FLOAT32
    assert packed_columns(copied).shape != packed.shape
    assert packed_columns(layer) is packed
