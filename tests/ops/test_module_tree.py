import copy
import gc
import weakref

import torch
from torch import nn

from attent.ops.packed_linear import WeightType, kind_of, module_tree, packed_columns, set_kind


def make() -> nn.Sequential:
    return nn.Sequential(nn.Linear(3, 5), nn.Sequential(nn.Dropout(), nn.LayerNorm(5)))


def test_it_holds_all_modules_and_parameters() -> None:
    model = make()
    tree = module_tree(model)
    assert tree.modules == [*model.modules()][1:]
    assert all(map(torch.equal, tree.parameters, model.parameters()))
    assert module_tree(model) is tree


def test_it_is_read_again_when_a_module_or_a_parameter_was_replaced() -> None:
    model = make()
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


def test_versions_change_with_parameters() -> None:
    model = make()
    before = module_tree(model).versions()
    assert module_tree(model).versions() == before
    with torch.no_grad():
        model[0].weight.mul_(2)
    after = module_tree(model).versions()
    assert after != before
    model[0].weight.data = model[0].weight.data[:4]
    assert module_tree(model).versions() != after
    with torch.inference_mode():
        assert module_tree(nn.Linear(2, 3)).versions() is None


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
