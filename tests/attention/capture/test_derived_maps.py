from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from attent.attention.attend import attend
from attent.attention.capture.watch import watch
from attent.attention.maps.rollout import rollout
from attent.attention.multihead import MultiHeadAttention
from attent.errors import ArgumentError, ShapeError, StaleMapError, UnseenError


class Stack(nn.Module):
    """Two layers of self-attention with a residual connection, and one to a memory."""

    def __init__(self, **options: Any) -> None:
        super().__init__()
        self.layers = nn.ModuleList(MultiHeadAttention(6, 3, **options) for _ in range(2))
        self.cross = MultiHeadAttention(6, 2, output=None)
        self.memory = torch.randn(2, 4, 6, dtype=torch.float64)

    def forward(self, features: Tensor) -> Tensor:
        for layer in self.layers:
            features = features + layer(features, lengths=torch.tensor([5, 3]))
        return self.cross(features, self.memory)


def direct(attention: MultiHeadAttention, weights: Tensor, memory: Tensor) -> Tensor:
    """‖αᵢⱼ f(xⱼ)‖ as written, by the vectors of all pairs."""
    heads = weights.shape[1]
    value = attention.value_projection(memory).unflatten(-1, (heads, -1)).transpose(1, 2)
    if isinstance(attention.output, nn.Linear):
        value = torch.einsum("bhjd,ehd->bhje", value, attention.output.weight.unflatten(1, (heads, -1)))
    return (weights[..., None] * value[:, :, None]).norm(dim=-1)


def run_watched(model: nn.Module, features: Tensor) -> watch:
    with watch(model) as captured, torch.no_grad():
        model(features)
    return captured


@pytest.mark.parametrize("normalizer", ["softmax", "identity", "sparsemax"])
@torch.no_grad()
def test_norms_of_our_attention(normalizer: str) -> None:
    model, features = Stack(normalizer=normalizer).double(), torch.randn(2, 5, 6, dtype=torch.float64)
    first = features + model.layers[0](features, lengths=torch.tensor([5, 3]))
    captured = run_watched(model, features)
    norms = captured.norms()
    assert list(norms) == ["layers.0", "layers.1", "cross"]
    modules, memories = (*model.layers, model.cross), (features, first, model.memory)
    for path, module, memory in zip(norms, modules, memories, strict=True):
        torch.testing.assert_close(norms[path].dense(), direct(module, captured[path].dense(), memory))
    assert norms["cross"] is norms["cross"]


def test_a_norm_worked_by_hand() -> None:
    # one head: f(x) = 2 · (3, 4) of the first key, weight 0.5 on each of two alike keys
    attention = MultiHeadAttention(2, 1, bias=False)
    with torch.no_grad():
        attention.value_projection.weight.copy_(torch.eye(2))
        attention.output.weight.copy_(2 * torch.eye(2))
        attention.key_projection.weight.zero_()
    with watch(attention) as captured, torch.no_grad():
        attention(torch.tensor([[[3.0, 4.0], [0.0, 1.0]]]))
    torch.testing.assert_close(captured.norms()[""][0, 0], torch.tensor([[5.0, 1.0], [5.0, 1.0]]))


def test_norms_have_the_statistics_and_rows_of_maps() -> None:
    captured = run_watched(Stack().double(), torch.randn(2, 5, 6, dtype=torch.float64))
    norms = captured.norms()["layers.1"]
    dense = norms.dense()
    torch.testing.assert_close(norms.rows(torch.tensor([3, 1])), dense[:, :, [3, 1]])
    torch.testing.assert_close(norms.top(2).weights, dense.topk(2).values)
    torch.testing.assert_close(norms.received(), dense.sum(-2))
    torch.testing.assert_close(norms.pooled(2, 2, "max")[..., 0, 0], dense[..., :2, :2].amax((-2, -1)))
    with pytest.raises(ArgumentError, match="entropy requires a distribution, which ValueNorms weights are not"):
        norms.entropy()
    torch.testing.assert_close(norms.keep().dense(), dense)
    torch.testing.assert_close(captured["layers.1"].keep().norms().dense(), dense)


def test_nan_at_a_hidden_key_reaches_no_norm_and_changed_weights_are_noticed() -> None:
    attention, features = MultiHeadAttention(6, 3), torch.randn(1, 4, 6)
    features[0, 3] = torch.nan
    with watch(attention) as captured, torch.no_grad():
        attention(torch.randn(1, 2, 6), features, lengths=torch.tensor([3]))
    assert captured.norms()[""].dense().isfinite().all()
    with torch.no_grad():
        attention.output.weight.mul_(2)
    with pytest.raises(StaleMapError):
        captured.norms()[""].dense()


@pytest.mark.parametrize("way", ["fused", "weights", "layer"])
@torch.no_grad()
def test_norms_of_pytorchs_modules(way: str) -> None:
    layer = nn.TransformerEncoderLayer(6, 3, 7, batch_first=True, norm_first=True).double().eval()
    features, module = torch.randn(2, 5, 6).double(), layer.self_attn
    with watch(layer) as captured:
        if way == "layer":
            layer(features)
        else:
            module(features, features, features, need_weights=way == "weights")
    (norms,), (weights,) = captured.norms().values(), captured.values()
    inputs = layer.norm1(features) if way == "layer" else features
    torch.testing.assert_close(norms.dense(), direct(MultiHeadAttention.from_torch(module), weights.dense(), inputs))


def test_gradients_are_those_of_the_formula() -> None:
    model, features = Stack(normalizer="sigmoid").double(), torch.randn(2, 5, 6, dtype=torch.float64)
    with watch(model, gradients=True) as captured:
        output = model(features)
    derived = captured.gradients(output.square().sum())
    # the last attention again, with weights that gradients can be taken by
    weights = captured["cross"].dense().requires_grad_()
    value = model.cross.value_projection(model.memory).unflatten(-1, (2, 3)).transpose(1, 2)
    context = (weights @ value).transpose(1, 2).flatten(2)
    (gradient,) = torch.autograd.grad(context.square().sum(), weights)
    torch.testing.assert_close(derived["cross"].dense(), (weights * gradient).detach())
    # y is a sum of squares: α ∂y/∂α summed over all pairs of the last layer is 2y
    torch.testing.assert_close(derived["cross"].dense().sum(), 2 * output.square().sum().detach())
    assert bool((derived["layers.0"].dense() < 0).any())
    dense = derived["layers.1"].dense()
    torch.testing.assert_close(derived["layers.1"].top(3).weights, dense.topk(3).values)
    torch.testing.assert_close(derived["layers.1"].pooled(5, 1, "max")[..., 0], dense.amax(-1))


def test_what_gradients_need_is_said() -> None:
    attention, features = MultiHeadAttention(6, 3, dropout=0.5), torch.randn(1, 4, 6)
    with watch(attention) as captured:
        output = attention(features)
    with pytest.raises(ArgumentError, match=r"use attent\.watch\(model, gradients=True\)$"):
        captured.gradients(output.sum())
    with watch(attention, gradients=True) as captured:
        output = attention(features)
    with pytest.raises(ArgumentError, match=r"a single number with its graph, such as a loss or one logit, got"):
        captured.gradients(output)
    with pytest.raises(ArgumentError, match=r"call model\.eval\(\) before running the model"):
        captured.gradients(output.sum())[""]
    with watch(attention, gradients=True) as captured, torch.no_grad():
        attention(features)
    with pytest.raises(ArgumentError, match="the model itself ran without gradients"):
        captured.gradients(output.sum())[""]
    # a call that the number does not depend on has gradients of 0
    model = nn.ModuleList([MultiHeadAttention(6, 3), MultiHeadAttention(6, 3)])
    with watch(model, gradients=True) as captured:
        output, _ = (module(features) for module in model)
    assert captured.gradients(output.sum())["1"].dense().abs().max() == 0


def test_what_norms_need_is_said() -> None:
    class Own(nn.Module):
        def forward(self, features: Tensor) -> Tensor:
            return F.scaled_dot_product_attention(features, features, features)

    model, features = nn.ModuleList([Own(), MultiHeadAttention(6, 3, output=nn.ReLU())]), torch.randn(1, 3, 4, 6)
    with watch(model) as captured, torch.no_grad():
        for module, value in zip(model, (features, features[0]), strict=True):
            module(value)
    with pytest.raises(ArgumentError, match=r"norms of 0 \(Own\) need its output projection, and no layer is"):
        captured.norms()["0"]
    with pytest.raises(ArgumentError, match="its output is ReLU, not a linear layer"):
        captured.norms()["1"]
    with pytest.raises(UnseenError, match="no map of 'there'"):
        captured.norms({"there": None})
    with pytest.raises(UnseenError, match=r"no norms of 'there'; there are maps of '0', '1'"):
        captured.norms()["there"]
    value: Any = "layer"
    with pytest.raises(ArgumentError, match="an output projection must be a linear layer"):
        captured.norms({"0": value})
    with pytest.raises(ShapeError, match="takes 7 features, and 3 heads have 6 each"):
        captured.norms({"0": torch.randn(5, 7)})["0"].dense()
    expected = captured["0"].dense() * features.norm(dim=-1)[:, :, None]
    torch.testing.assert_close(captured.norms({"0": None})["0"].dense(), expected)
    _, weights = attend(features, features, features, return_map=True)
    with pytest.raises(ArgumentError, match=r"which attent\.watch finds in a model"):
        weights.norms()


def test_rollout_of_each_layer_as_a_map() -> None:
    captured = run_watched(Stack().double(), torch.randn(2, 5, 6, dtype=torch.float64))
    shares = captured.rollout()
    expected = rollout([captured["layers.0"], captured["layers.1"]], range(5))[:, None]
    weights = shares["layers.1"]
    torch.testing.assert_close(weights.dense(), expected)
    first = 0.5 * (captured["layers.0"].dense().mean(1, keepdim=True) + torch.eye(5).double())
    torch.testing.assert_close(shares["layers.0"].dense(), first)
    torch.testing.assert_close(weights.entropy(), torch.special.entr(expected).sum(-1))
    torch.testing.assert_close(weights.top(2).weights, expected.topk(2).values)
    torch.testing.assert_close(weights.keep()[..., 3, :], expected[..., 3, :])
    with pytest.raises(ShapeError, match="rollout needs self-attention maps"):
        shares["cross"]


def test_calls_of_a_shared_layer_have_no_rollout() -> None:
    layer, features = MultiHeadAttention(6, 3), torch.randn(2, 5, 6)
    with watch(nn.ModuleList([layer])) as captured, torch.no_grad():
        layer(layer(features))
    shares = captured.rollout()
    assert [*shares] == ["0", "0#2"]
    torch.testing.assert_close(shares["0"].dense(), 0.5 * (captured["0"].dense().mean(1, keepdim=True) + torch.eye(5)))
    with pytest.raises(ArgumentError, match=r"^there is no rollout of 0#2: the order of the calls of one module"):
        shares["0#2"]
    # a stack that runs twice has two
    model = Stack()
    model.memory = model.memory.float()
    with watch(model) as captured, torch.no_grad():
        model(features)
        model(features)
    shares, maps = captured.rollout(), [captured["layers.0"], captured["layers.1"]]
    torch.testing.assert_close(shares["layers.1#2"].dense(), shares["layers.1"].dense())
    torch.testing.assert_close(shares["layers.1"].dense()[:, 0], rollout(maps, range(5)))


def test_norms_behind_a_gate_of_any_name_are_refused() -> None:
    class Gated(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.q_proj, self.o_proj = nn.Linear(6, 12), nn.Linear(6, 6)

        def forward(self, features: Tensor) -> Tensor:
            query, half = self.q_proj(features).chunk(2, -1)
            return self.o_proj(F.scaled_dot_product_attention(query, features, features) * torch.sigmoid(half))

    model = Gated()
    with watch(model) as captured, torch.no_grad():
        model(torch.randn(1, 4, 6))
    with pytest.raises(ArgumentError, match=r"\(Gated\) are not known: its code uses a sigmoid, which may gate"):
        captured.norms()[""]
