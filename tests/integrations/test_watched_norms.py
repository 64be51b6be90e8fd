"""Norms and gradients of Hugging Face models, held against a direct computation from eager weights in float64."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from attent.attention.capture.watch import watch
from attent.errors import ArgumentError

# eager attention of Llama gives NaN for padding in float64
UNPADDED = ("llama",)
# the value layers of these models, and the output projections beside them
VALUE, OUTPUT = ("value", "v_proj", "v", "c_attn"), ("out_proj", "o_proj", "o", "c_proj", "dense")


def value_and_output(model: nn.Module, path: str) -> tuple[nn.Module, nn.Module]:
    module = model.get_submodule(path)
    value = next(layer for name in VALUE if (layer := getattr(module, name, None)) is not None)
    parent = model.get_submodule(path.rpartition(".")[0])
    extra = (module, getattr(parent, "output", parent))
    return value, next(layer for owner in extra for name in OUTPUT if (layer := getattr(owner, name, None)) is not None)


@pytest.mark.parametrize("name", ["bert", "gpt2", "marian", "llama", "t5", "vit"])
def test_norms_are_those_of_the_weighted_projected_values(models: Any, eager_weights: Any, name: str) -> None:
    model, inputs = (part.double() if isinstance(part, nn.Module) else part for part in getattr(models, name)())
    eager = getattr(models, name)("eager")[0].double()
    inputs = {key: value.double() if value.is_floating_point() else value for key, value in inputs.items()}
    if name in UNPADDED:
        del inputs["attention_mask"]
    values: dict[str, Tensor] = {}
    with torch.no_grad():
        with watch(model) as captured:
            model(**inputs)
        layers = {path: value_and_output(eager, path) for path in captured}
        for path, (layer, _) in layers.items():
            layer.register_forward_hook(lambda module, args, output, path=path: values.__setitem__(path, output))
        weights = eager_weights(eager(**inputs, output_attentions=True))
        norms = captured.norms()
        assert [*norms] == [*captured]
        for (path, norm), alpha in zip(norms.items(), weights, strict=True):
            heads, output = alpha.shape[1], layers[path][1].weight
            # GPT-2's layers keep their weights the other way round, and project queries, keys and values together
            value, output = (values[path].chunk(3, -1)[2], output.T) if name == "gpt2" else (values[path], output)
            width = output.shape[1] // heads
            value = value.unflatten(-1, (-1, width)).transpose(1, 2)  # (B, G, Tk, D)
            value = value.repeat_interleave(heads // value.shape[1], 1)
            projected = torch.einsum("bhjd,ehd->bhje", value, output.unflatten(1, (heads, width)))
            expected = (alpha[..., None] * projected[:, :, None]).norm(dim=-1)
            alive = captured[path].dense().sum(-1, keepdim=True) > 0
            # eager attention of some models takes its softmax in float32
            torch.testing.assert_close(norm.dense(), torch.where(alive, expected, 0.0), atol=1e-7, rtol=1e-6)
            assert not norm.is_distribution


@pytest.mark.parametrize("name", ["bert", "marian", "llama"])
def test_gradients_are_those_of_eager_weights(models: Any, eager_weights: Any, name: str) -> None:
    model, inputs = getattr(models, name)()
    model, eager = model.double(), getattr(models, name)("eager")[0].double()
    if name in UNPADDED:
        del inputs["attention_mask"]
    with watch(model, gradients=True) as captured:
        output = model(**inputs)[0]
    outputs = eager(**inputs, output_attentions=True)
    weights = eager_weights(outputs)
    gradients = captured.gradients(output[0, 3, 5])
    expected = torch.autograd.grad(outputs[0][0, 3, 5], weights)
    for (path, derived), alpha, gradient in zip(gradients.items(), weights, expected, strict=True):
        alive = captured[path].dense().sum(-1, keepdim=True) > 0
        # PyTorch's gradients of the sequence that is padded on the left, on which the logit does not depend, may be NaN
        expected_product = torch.where(alive, alpha * gradient, 0.0).detach()[0]
        torch.testing.assert_close(derived.dense()[0], expected_product, atol=1e-7, rtol=1e-5)
    # the graph is still there
    output[0, 3, 5].backward()


def test_a_step_of_generate_has_norms_too(models: Any) -> None:
    model, inputs = models.marian()
    inputs.pop("decoder_input_ids")
    with watch(model) as captured:
        model.generate(**inputs, max_new_tokens=4, min_new_tokens=4, do_sample=False)
    path = "model.decoder.layers.1.encoder_attn"
    norms = captured.norms()
    joined = captured.concatenated(path).norms()
    assert joined.shape == captured.concatenated(path).shape
    torch.testing.assert_close(joined[:, :, 1:2], norms[f"{path}#2"].dense())


def test_a_projection_that_is_not_known_is_refused_in_one_line(models: Any) -> None:
    model, inputs = models.bert()
    attention = model.encoder.layer[0].attention.self
    with watch(attention) as captured, torch.no_grad():
        model(**inputs)
    with pytest.raises(ArgumentError, match=r"^norms of the model itself \(Bert.*\) need its output projection,"):
        captured.norms()[""]
    norms = captured.norms({"": model.encoder.layer[0].attention.output.dense})
    with watch(model) as whole, torch.no_grad():
        model(**inputs)
    torch.testing.assert_close(norms[""].dense(), whole.norms()["encoder.layer.0.attention.self"].dense())
