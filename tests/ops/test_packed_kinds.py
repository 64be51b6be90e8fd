"""Packed weights in bfloat16 and in 8 bits.

Every kernel and width of registers computes the same numbers, row by row.
"""

from collections.abc import Callable
from itertools import product

import pytest
import torch
from torch import Tensor, nn

from attent.models.settings import TransformerSettings
from attent.models.transformer import Transformer
from attent.ops import native, packed_linear
from attent.ops.packed_linear import WeightType

pytestmark = pytest.mark.needs_native

# features, columns
SHAPES = [(1, 1), (3, 64), (64, 65), (129, 7), (300, 101), (512, 192)]


def kernels(monkeypatch: pytest.MonkeyPatch, run) -> list[Tensor]:
    """Return what a function returns with each width of registers and each kernel of this processor."""
    results = []
    for level, kernel in product(range(native.simd_level() + 1), native.int8_kernels()):
        with monkeypatch.context() as patch:
            patch.setattr(native, "simd_level", lambda level=level: level)
            patch.setattr(native, "int8_kernel", lambda kernel=kernel: kernel)
            results.append(run())
    return results


def layer_of(width: int, columns: int, kind: WeightType, bias: bool = True) -> nn.Linear:
    layer = nn.Linear(width, columns, bias=bias)
    packed_linear.set_kind(layer, kind)
    return layer


def rounded_product(layer: nn.Linear, features: Tensor) -> Tensor:
    """Return the layer's output by the formula.

    Rows and weights rounded to 8 bits, each sum exact, scaled and shifted in float32.
    """
    scale, largest = layer.weight.abs().amax(1) / 127, features.abs().amax(1, keepdim=True)
    weight = (layer.weight / scale[:, None]).round().nan_to_num().double()
    rows = (features * (torch.full_like(largest, 127) / largest)).round().nan_to_num().double()
    return (rows @ weight.T).float() * scale * (largest / 127) + (0 if layer.bias is None else layer.bias)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@torch.inference_mode()
def test_8_bits_are_the_formula_bit_for_bit_in_every_kernel(
    shape: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    layer = layer_of(*shape, WeightType.INT8, bias=shape[1] != 7)
    for rows in (*range(1, 34), 70, 200):
        features = torch.randn(rows, shape[0]) * torch.rand(rows, 1) * 100
        expected = rounded_product(layer, features)
        for result in kernels(monkeypatch, lambda x=features: packed_linear.linear(layer, x)):
            assert torch.equal(result, expected)


@torch.inference_mode()
def test_8_bits_sum_the_largest_numbers_exactly(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pairs of 255 · 127 do not fit 16 bits."""
    layer, features = layer_of(4096, 64, WeightType.INT8), torch.ones(7, 4096)
    layer.weight.fill_(2)
    layer.weight[::2] = -2
    for kernel in kernels(monkeypatch, lambda: packed_linear.linear(layer, features)):
        torch.testing.assert_close(kernel, features @ layer.weight.T + layer.bias)


@torch.inference_mode()
def test_rows_of_zeros_and_of_extreme_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    layer, features = layer_of(70, 10, WeightType.INT8), torch.randn(8, 70)
    features[1], features[2], features[3, 5] = 0, 3e38 * features[2].sign(), 1e-40
    features[4, 69], features[5, 0], features[6] = torch.nan, -torch.inf, 1e-35 * features[6].sign()
    for kernel in kernels(monkeypatch, lambda: packed_linear.linear(layer, features)):
        assert torch.equal(kernel[1], layer.bias)
        assert torch.equal(kernel[[0, 3, 7]], packed_linear.linear(layer, features[[0, 3, 7]]))
        assert kernel[[4, 5]].isnan().all()
        torch.testing.assert_close(kernel[[2, 6]], features[[2, 6]] @ layer.weight.T + layer.bias, rtol=0.02, atol=2e36)
        assert kernel[6].isfinite().all()


@torch.inference_mode()
def test_a_column_of_zeros_gives_its_bias() -> None:
    layer = layer_of(9, 3, WeightType.INT8)
    layer.weight[1] = 0
    assert (packed_linear.linear(layer, torch.randn(2, 9))[:, 1] == layer.bias[1]).all()


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@torch.inference_mode()
def test_bfloat16_is_the_product_of_rounded_weights_bit_for_bit(
    shape: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    layer = layer_of(*shape, WeightType.BFLOAT16)
    exact, features = layer_of(*shape, WeightType.FLOAT32), torch.randn(71, shape[0])
    exact.weight.copy_(layer.weight.bfloat16())
    exact.bias.copy_(layer.bias)
    results = (kernels(monkeypatch, lambda x=x: packed_linear.linear(x, features)) for x in (layer, exact))
    assert all(map(torch.equal, *results))


@pytest.mark.parametrize("kind", [WeightType.BFLOAT16, WeightType.INT8])
@torch.inference_mode()
def test_each_row_is_computed_alone_on_any_number_of_threads(
    kind: WeightType, assert_same_bits: Callable[..., None]
) -> None:
    layer, features = layer_of(131, 70, kind), torch.randn(200, 131)
    whole = packed_linear.linear(layer, features)
    for rows in (slice(0, 1), slice(3, 8), slice(191, 200)):
        assert torch.equal(packed_linear.linear(layer, features[rows]), whole[rows])
    assert_same_bits(lambda: [packed_linear.linear(layer, features)], (1, 3))


@pytest.mark.parametrize(
    ("kind", "shared"),
    [
        (WeightType.BFLOAT16, "none"),
        (WeightType.INT8, "none"),
        (WeightType.BFLOAT16, "all"),
        (WeightType.INT8, "target"),
    ],
)
def test_a_transformer_of_fewer_bits_is_close_and_its_rows_are_alone(kind: WeightType, shared: str) -> None:
    settings = TransformerSettings(
        encoder_layers=2, decoder_layers=2, width=72, feed_forward=100, heads=4, share_embeddings=shared
    )
    model, size = Transformer(settings, 90, 90).eval(), 90
    source, target = torch.randint(4, size, (9, 19)), torch.randint(4, size, (9, 5))
    lengths = torch.randint(3, 20, (9,))

    @torch.inference_mode()
    def logits(rows: slice) -> Tensor:
        state, steps = model.start(model.encode(source[rows], lengths[rows])), []
        for tokens in target[rows].T:
            features, state = model.step(state, tokens)
            steps.append(model.output(features))
        return torch.stack(steps, 1)

    exact = logits(slice(None))
    packed_linear.set_kind(model, kind)
    actual = logits(slice(None))
    assert 1e-4 < (actual - exact).norm() / exact.norm() < 0.03
    assert torch.equal(torch.cat([logits(slice(row, row + 1)) for row in range(9)]), actual)
    packed_linear.set_kind(model, WeightType.FLOAT32)
    assert torch.equal(logits(slice(None)), exact)
    tied = model.target_embedding.tokens
    packed_linear.set_kind(model, kind)
    is_one = packed_linear.table(tied).data_ptr() == packed_linear.packed_weights(model.to_logits, list).data_ptr()
    assert is_one is (shared != "none")
