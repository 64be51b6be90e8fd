import pytest
import torch
from torch import nn
from torch.nn import functional as F

from attent.ops import packed_linear
from attent.ops.eligibility import can_run_native

# rows, features, columns
SHAPES = [(1, 1, 1), (5, 3, 64), (7, 129, 65), (13, 300, 101), (201, 37, 530)]


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.usefixtures("level")
@torch.inference_mode()
def test_it_is_the_layer(shape: tuple[int, int, int], bias: bool) -> None:
    rows, width, columns = shape
    layer, features = nn.Linear(width, columns, bias=bias), torch.randn(rows, width)
    exact = F.linear(features.double(), layer.weight.double(), None if layer.bias is None else layer.bias.double())
    actual = packed_linear.linear(layer, features)
    assert (actual - exact).abs().max() <= max(3 * (layer(features) - exact).abs().max(), 1e-6)
    assert torch.equal(packed_linear.linear(layer, features.view(1, rows, 1, width)).flatten(0, 2), actual)


@pytest.mark.usefixtures("level")
@torch.inference_mode()
def test_each_row_is_computed_alone() -> None:
    layer, features = nn.Linear(131, 70), torch.randn(200, 131)
    whole = packed_linear.linear(layer, features)
    for rows in (slice(0, 1), slice(3, 8), slice(191, 200)):
        assert torch.equal(packed_linear.linear(layer, features[rows]), whole[rows])


@pytest.mark.needs_native
def test_weights_that_change_are_laid_out_again() -> None:
    layer, features = nn.Linear(5, 7), torch.randn(3, 5)

    def check() -> None:
        with torch.inference_mode():
            torch.testing.assert_close(packed_linear.linear(layer, features), layer(features))
            assert packed_linear.packed_weights(layer, list) is packed_linear.packed_weights(layer, list)

    check()
    with torch.no_grad():
        layer.weight.mul_(2)
    check()
    layer.bias = nn.Parameter(torch.randn(7))
    check()
    layer.weight.data = torch.randn(7, 5)
    check()
    layer.load_state_dict(nn.Linear(5, 7).state_dict())
    check()
    layer(features).sum().backward()
    torch.optim.AdamW(layer.parameters(), 1.0, foreach=True).step()
    check()
    # it does not count
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
