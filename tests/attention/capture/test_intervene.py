from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest
import torch
import torch._dynamo  # its rules list PyTorch's functions, which must not be patched meanwhile
from torch import Tensor, nn
from torch.nn import functional as F

from attent.attention.attend import attend
from attent.attention.capture.intervene import head_means, intervene
from attent.attention.capture.interventions import INTERVENTIONS, is_intervened
from attent.attention.capture.watch import watch
from attent.attention.multihead import MultiHeadAttention
from attent.attention.scores.additive import Additive
from attent.errors import ArgumentError, ShapeError, UnknownNameError, UnseenError

pytestmark = pytest.mark.filterwarnings(
    "ignore:The PyTorch API of nested tensors", "ignore:Converting mask without torch.bool"
)

LENGTHS = torch.tensor([5, 3])


def without_columns(module: Any, columns: slice) -> Any:
    """The module with these columns of its output projection set to 0."""
    module = copy.deepcopy(module)
    with torch.no_grad():
        (module.output if isinstance(module, MultiHeadAttention) else module.out_proj).weight[:, columns] = 0.0
    return module


@pytest.mark.parametrize(
    ("need_weights", "has_gradients", "is_padded"),
    [(False, False, False), (False, True, True), (True, False, True), (True, True, False), (False, False, True)],
)
def test_pytorchs_module_loses_a_head_on_every_path(need_weights: bool, has_gradients: bool, is_padded: bool) -> None:
    layer, features = nn.MultiheadAttention(12, 4, batch_first=True).eval(), torch.randn(2, 5, 12)
    padding = torch.arange(5) >= LENGTHS[:, None] if is_padded else None

    def run(module: Any) -> Any:
        return module(features, features, features, need_weights=need_weights, key_padding_mask=padding)

    with torch.set_grad_enabled(has_gradients):
        before = run(layer)
        with watch(layer) as maps, intervene(layer, {"": {1: "zero"}}):
            output = run(layer)
        torch.testing.assert_close(output[0], run(without_columns(layer, slice(3, 6)))[0], atol=1e-6, rtol=1e-6)
        # maps and weights show what the model computes
        assert maps[""].shape == (2, 4, 5, 5)
        assert (output[1] is None) == (not need_weights)
        if need_weights:
            torch.testing.assert_close(output[1], before[1])
        assert torch.equal(run(layer)[0], before[0])


@pytest.mark.parametrize("is_padded", [False, True])
def test_a_fused_encoder_keeps_its_path_where_no_head_is_changed(is_padded: bool) -> None:
    model = nn.TransformerEncoder(nn.TransformerEncoderLayer(12, 4, 17, batch_first=True), 2).eval()
    features, padding = torch.randn(2, 5, 12), torch.arange(5) >= LENGTHS[:, None] if is_padded else None
    fused: list[None] = []
    original = torch._transformer_encoder_layer_fwd  # pyright: ignore[reportPrivateImportUsage]

    def counted(*args: Any) -> Tensor:
        fused.append(None)
        return original(*args)

    with torch.no_grad(), pytest.MonkeyPatch.context() as patch:
        patch.setattr(torch, "_transformer_encoder_layer_fwd", counted)
        before = model(features, src_key_padding_mask=padding)
        assert len(fused) == 2
        with intervene(model, {}), intervene(model, {"layers.1.self_attn": {}}):
            assert torch.equal(model(features, src_key_padding_mask=padding), before)
        assert len(fused) == 4
        with intervene(model, {"layers.1.self_attn": {2: "zero"}}):
            output = model(features, src_key_padding_mask=padding)
        assert len(fused) == 5
        model.layers[1].self_attn = without_columns(model.layers[1].self_attn, slice(6, 9))
        torch.testing.assert_close(output, model(features, src_key_padding_mask=padding), atol=1e-6, rtol=1e-6)
    assert torch.backends.mha.get_fastpath_enabled()


def mixed(weights: Tensor, value: Tensor) -> Tensor:
    """The merged heads of values mixed by weights."""
    return (weights @ value).transpose(1, 2).flatten(2)


@pytest.mark.parametrize(
    ("score", "position"), [("scaled_dot", None), ("scaled_dot", "rotary"), ("additive", "alibi"), ("gated", None)]
)
def test_functions_get_the_weights_and_change_their_head_alone(score: str, position: str | None) -> None:
    module = MultiHeadAttention(16, 4, key_value_heads=2, score=score, position=position, output=None)
    features = torch.randn(2, 5, 16)
    with watch(module) as maps:
        before = module(features, mask="causal", lengths=LENGTHS)
    with intervene(module, {"": {3: lambda weights: weights.flip(-1), 0: lambda weights: weights}}):
        output = module(features, mask="causal", lengths=LENGTHS)
    weights = maps[""].dense()
    value = module.value_projection(features).unflatten(-1, (2, 4)).transpose(1, 2).repeat_interleave(2, 1)
    flipped = torch.stack((*weights.unbind(1)[:3], weights[:, 3].flip(-1)), 1)
    torch.testing.assert_close(output, mixed(flipped, value), atol=1e-5, rtol=1e-5)
    assert torch.equal(output[..., 4:12], before[..., 4:12])


@pytest.mark.parametrize("hidden", [-1e4, -1e9, torch.finfo(torch.float32).min])
def test_uniform_is_the_mean_of_what_may_be_seen(hidden: float) -> None:
    module, features = MultiHeadAttention(6, 2, output=None), torch.randn(2, 5, 6)
    bias = torch.zeros(5, 5)
    bias[:, 1] = hidden
    # small, but no mask
    bias[:, 4] = -900.0
    bias[:, 0] = 3.0
    with intervene(module, {"": {1: "uniform"}}):
        output = module(features, lengths=LENGTHS, bias=bias)
    value = module.value_projection(features)[..., 3:]
    torch.testing.assert_close(output[0, :, 3:], value[0, [0, 2, 3, 4]].mean(0).expand(5, 3))
    torch.testing.assert_close(output[1, :, 3:], value[1, [0, 2]].mean(0).expand(5, 3))


def test_means_are_of_every_query_and_replace_a_head() -> None:
    model = nn.ModuleList([MultiHeadAttention(6, 2, output=None), MultiHeadAttention(6, 3)])
    data = [torch.randn(2, n, 6) for n in (5, 3)]
    with head_means(model) as means:
        contexts = torch.cat([model[0](features).flatten(0, 1) for features in data])
    assert list(means) == ["0"]
    torch.testing.assert_close(means["0"], contexts.mean(0).unflatten(0, (2, 3)))
    with intervene(model, {"0": {1: "mean"}}, means=means):
        output = model[0](data[0])
    torch.testing.assert_close(output[..., 3:], means["0"][1].expand(2, 5, 3))
    with pytest.raises(UnseenError, match=r"^no attention of '1' ran; there are means of 0$"):
        means["1"]
    with pytest.raises(ArgumentError, match=r'^head 0 of 1: "mean" needs means='):
        intervene(model, {"1": {0: "mean"}}, means=means)
    message = r"^the mean of head 0 must be \(Dv,\) = \(2,\), got \(3,\)$"
    with pytest.raises(ShapeError, match=message), intervene(model, {"1": {0: "mean"}}, means={"1": means["0"]}):
        model[1](data[0])


def test_gradients_flow_through_what_is_changed_and_not_into_a_zeroed_head() -> None:
    torch.manual_seed(1)
    module, features = MultiHeadAttention(6, 3).double(), torch.randn(1, 4, 6, dtype=torch.float64, requires_grad=True)
    power = torch.tensor(1.5, dtype=torch.float64, requires_grad=True)

    def run(features: Tensor, power: Tensor) -> Tensor:
        with intervene(module, {"": {0: "zero", 1: lambda weights: weights**power, 2: "uniform"}}):
            return module(features)

    assert torch.autograd.gradcheck(run, (features, power))
    run(features, power).sum().backward()
    gradient = module.value_projection.weight.grad
    assert gradient is not None
    assert not gradient[:2].any()
    assert gradient[2:].abs().min() > 0


class Attending(nn.Module):
    """A module that calls PyTorch's function of one head or several."""

    def forward(self, query: Tensor, key: Tensor, value: Tensor, **options: Any) -> Tensor:
        return F.scaled_dot_product_attention(query, key, value, **options)


@pytest.mark.parametrize("leading", [(), (2,), (2, 3), (5, 2, 3)])
def test_functions_of_any_leading_axes(leading: tuple[int, ...]) -> None:
    model, (query, key, value) = Attending(), (torch.randn(*leading, tokens, 4) for tokens in (3, 7, 7))
    with intervene(model, {"": {0: lambda weights: weights * 2}}):
        output = model(query, key, value)
    expected = F.scaled_dot_product_attention(query, key, value)
    if len(leading) < 2:
        torch.testing.assert_close(output, 2 * expected)
    else:
        torch.testing.assert_close(output[..., :1, :, :], 2 * expected[..., :1, :, :])
        assert torch.equal(output[..., 1:, :, :], expected[..., 1:, :, :])


def test_dropout_drops_the_changed_weights() -> None:
    module, features = MultiHeadAttention(6, 2, dropout=0.5, output=None), torch.randn(2, 5, 6)
    torch.manual_seed(3)
    expected = module(features)
    torch.manual_seed(3)
    with intervene(module, {"": {1: lambda weights: weights}}):
        torch.testing.assert_close(module(features), expected)
    model, query = Attending(), torch.randn(1, 2, 64, 4)
    with intervene(model, {"": {1: lambda weights: weights}}):
        ones = model(query, query, torch.ones_like(query), dropout_p=0.5)
    assert 0.2 < ones[:, 1].std() / ones[:, 0].std() < 5


def test_contexts_nest_and_end_with_an_error() -> None:
    model = nn.ModuleDict({"one": MultiHeadAttention(6, 3), "two": MultiHeadAttention(6, 3)})
    features = torch.randn(1, 4, 6)
    before, patched = model["one"](features), F.scaled_dot_product_attention
    with intervene(model, {"one": {0: "zero", 1: "uniform"}}):
        expected = model["one"](features)
    with intervene(model, {"one": {0: "zero"}}):
        with intervene(model["one"], {"": {1: "uniform"}}), intervene(model, {"two": {0: "zero"}}):
            assert torch.equal(model["one"](features), expected)
            assert is_intervened([model["two"]])
        assert not is_intervened([model["two"]])
        with pytest.raises(ArgumentError, match=r"^head 0 of one is already changed by an enclosing context$"):
            intervene(model, {"one": {0: "uniform", 2: "zero"}}).__enter__()

    def fail(weights: Tensor) -> Tensor:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError), intervene(model, {"one": {0: fail}}):
        model["one"](features)
    assert not INTERVENTIONS
    assert F.scaled_dot_product_attention is patched
    assert not any(module._forward_hooks for module in model.modules())
    assert torch.equal(model["one"](features), before)


def test_what_cannot_be_changed_is_said() -> None:
    model, features = nn.Sequential(MultiHeadAttention(6, 3), nn.Linear(6, 6)), torch.randn(1, 4, 6)
    ways = "zero or uniform or mean, or by a function of its weights, got"
    cases: list[tuple[Any, type[Exception], str]] = [
        ({"1": {-1: "zero"}}, ArgumentError, r"^a head of 1 must be a whole number from 0, got -1$"),
        ({"1": {True: "zero"}}, ArgumentError, r"^a head of 1 must be a whole number from 0, got True$"),
        ({"0": [1, 2]}, ArgumentError, r"^the changes of 0 must be {head: change}, got list$"),
        (["0"], ArgumentError, r"^changes must be {path: {head: change}}, got list$"),
        ({"0": {1: 0.0}}, ArgumentError, rf"^head 1 of 0 must be changed to {ways}"),
        ({"2": {0: "zero"}}, UnknownNameError, r"^unknown attention of Sequential '2'.* \(known: 0\)$"),
        ({"0": {0: "none"}}, UnknownNameError, r"^unknown change of a head 'none'"),
    ]
    for changes, error, message in cases:
        with pytest.raises(error, match=message):
            intervene(model, changes)
    name: Any = "bert-base"
    with pytest.raises(ArgumentError, match=r"^intervene takes a model, a torch.nn.Module, got str$"):
        intervene(name, {})
    means: Any = {"0": [[0.0]]}
    with pytest.raises(ArgumentError, match=r"^the means of 0 must be a tensor \(H, Dv\), got list$"):
        intervene(model, {"0": {0: "mean"}}, means=means)
    with intervene(model, {"0": {np.int64(1): "zero"}}):
        torch.testing.assert_close(model[0](features), without_columns(model[0], slice(2, 4))(features))
    message = r"^no head of 1 could be changed: it was not called, or computes its weights by itself"
    with pytest.raises(UnseenError, match=message), intervene(model, {"1": {0: "zero"}}):
        model(features)
    for function, error in ((lambda weights: weights[..., :1], ShapeError), (lambda weights: None, ArgumentError)):
        with pytest.raises(error, match=r"^the function of head 2 must return"), intervene(model, {"0": {2: function}}):
            model(features)


@pytest.mark.parametrize(
    ("path", "has_gradients"), [("layers.0", False), ("layers.0.self_attn.out_proj", False), ("layers.0", True)]
)
def test_the_attention_of_a_fused_layer_is_named(path: str, has_gradients: bool) -> None:
    model = nn.TransformerEncoder(nn.TransformerEncoderLayer(12, 4, 17, batch_first=True), 2).eval()
    message = rf"^no head of {path} could be changed: its attention is in layers\.0\.self_attn$"
    grad, raised = torch.set_grad_enabled(has_gradients), pytest.raises(UnseenError, match=message)
    with grad, raised, intervene(model, {path: {0: "zero"}}):
        model(torch.randn(2, 5, 12))


@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf")
@pytest.mark.parametrize(("was_run", "has_gradients"), [(False, True), (True, False)])
def test_what_runs_compiled_is_changed_or_refused(was_run: bool, has_gradients: bool) -> None:
    torch._dynamo.reset()
    layer = nn.TransformerEncoderLayer(12, 4, 17, batch_first=True)
    model = nn.TransformerEncoder(layer, 1, enable_nested_tensor=False).eval()
    features, changes = torch.randn(2, 5, 12), {"layers.0.self_attn": {0: "zero"}}
    with torch.set_grad_enabled(has_gradients):
        with intervene(model, changes):  # pyright: ignore[reportArgumentType]
            expected = model(features)
        for function in (model, lambda features: model(features)):
            compiled = torch.compile(function, backend="eager")
            if was_run:
                compiled(features)
            try:
                with intervene(model, changes):  # pyright: ignore[reportArgumentType]
                    output = compiled(features)
            except UnseenError as error:
                assert "no head of layers.0.self_attn could be changed: it was not called, or" in str(error)
            else:
                torch.testing.assert_close(output, expected, atol=1e-6, rtol=1e-6)
    model.layers[0].forward = torch.compile(model.layers[0].forward, backend="eager")
    with pytest.raises(ArgumentError, match=r"^intervene: TransformerEncoder is compiled, and would run unchanged"):
        intervene(model, changes)  # pyright: ignore[reportArgumentType]


def test_a_compiled_model_and_replicas_of_data_parallel_are_refused() -> None:
    model, features = MultiHeadAttention(6, 3), torch.randn(1, 4, 6)
    with intervene(model, {"": {0: "zero"}}):
        replica: Any = model._replicate_for_data_parallel()
        with pytest.raises(UnseenError, match=r"^heads of MultiHeadAttention cannot be changed in replicas of"):
            replica._call_impl(features)
    model.compile(backend="eager")
    with pytest.raises(ArgumentError, match=r"^intervene: MultiHeadAttention is compiled, and would run unchanged"):
        intervene(model, {"": {0: "zero"}})
    with torch.compiler.set_stance("force_eager"), intervene(model, {"": {0: "zero"}}):
        torch.testing.assert_close(model(features), without_columns(model, slice(0, 2))._call_impl(features))


def test_attend_within_a_module_belongs_to_it_with_scores_of_every_head_and_values_behind_padding() -> None:
    query, key, value = torch.randn(2, 3, 4, 5), torch.randn(2, 3, 6, 5), torch.randn(2, 3, 6, 7)
    lengths, score = torch.tensor([6, 2]), Additive(5, 5, 8, heads=3)
    key[1, :, 2:], value[1, :, 2:] = torch.nan, torch.nan

    class Scored(nn.Module):
        def forward(self) -> Tensor:
            return attend(query, key, value, score=score, lengths=lengths)

    model = Scored()
    before = model()
    with intervene(model, {"": {1: lambda weights: weights, 2: "uniform"}}):
        output = model()
        assert torch.equal(attend(query, key, value, score=score, lengths=lengths), before)
    torch.testing.assert_close(output[:, :2], before[:, :2])
    torch.testing.assert_close(output[1, 2], value[1, 2, :2].mean(0).expand(4, 7))


def test_long_sequences_are_computed_by_tiles() -> None:
    model, tokens, sizes = Attending(), 2049, list[int]()
    query = torch.randn(1, 2, tokens, 4)

    def noted(weights: Tensor) -> Tensor:
        sizes.append(weights.numel())
        return weights

    with torch.no_grad(), intervene(model, {"": {1: noted}}):
        output = model(query, query, query, is_causal=True)
    torch.testing.assert_close(
        output, F.scaled_dot_product_attention(query, query, query, is_causal=True), atol=1e-5, rtol=1e-4
    )
    assert sum(sizes) == tokens**2
    assert max(sizes) <= 2**20


def test_gradients_of_tiles_are_those_of_the_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    module, features = MultiHeadAttention(6, 2), torch.randn(2, 13, 6, requires_grad=True)
    power = torch.tensor(1.5, requires_grad=True)

    def gradients() -> tuple[Tensor, ...]:
        with intervene(module, {"": {0: lambda weights: weights**power, 1: "uniform"}}):
            output = module(features, mask="causal")
        return torch.autograd.grad(output.square().sum(), (features, power, *module.parameters()), allow_unused=True)

    expected = gradients()
    monkeypatch.setattr("attent.attention.backends.bands.TILE", 2**6)
    for gradient, whole in zip(gradients(), expected, strict=True):
        torch.testing.assert_close(gradient, whole, atol=1e-5, rtol=1e-5)
