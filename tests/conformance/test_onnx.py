"""ONNX's Attention operator, opset 23 to 25, in the words of `attend`.

See https://onnx.ai/onnx/operators/onnx__Attention.html. Names are changed, heads split, the past laid in front and
masks widened to all keys; what attention computes, `attend` and its map compute.
"""

import importlib
import warnings
from functools import cache
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from attent.attention import Mask, attend
from attent.attention.masks import Causal, Table, Window
from attent.attention.scores import ScaledDot

onnx = pytest.importorskip("onnx", reason="the cases come from the onnx package")

# the operator's cases in onnx 1.23, so that none gets lost; more are welcome
KNOWN = 93
# cases of 16 bits: the reference rounds each of its steps to them
SIXTEEN_BITS = 1e-2
# what `qk_matmul_output` is, by `qk_matmul_output_mode`; the fourth is the weights
STAGES = ("raw", "capped", "masked")


def attention(inputs: dict[str, Tensor], attributes: dict[str, Any], implementation: str) -> dict[str, Tensor]:
    """The operator's outputs by name."""
    heads = (attributes.get("q_num_heads"), attributes.get("kv_num_heads"), attributes.get("kv_num_heads"))
    query, key, value = (split(inputs[name], count) for name, count in zip("QKV", heads, strict=True))
    past = inputs["past_key"].shape[2] if "past_key" in inputs else 0
    if past:
        key, value = torch.cat((inputs["past_key"], key), 2), torch.cat((inputs["past_value"], value), 2)
    lengths = inputs.get("nonpad_kv_seqlen")
    mask, bias = masks(attributes, inputs.get("attn_mask"), key.shape[2])
    context, weights = attend(
        query,
        key,
        value,
        score=ScaledDot(attributes.get("scale")),
        mask=mask,
        bias=bias,
        soft_cap=attributes.get("softcap") or None,
        # the operator counts from the past, or so that the last query stands on the last key that there is
        query_start=past if lengths is None else None,
        lengths=lengths,
        implementation=implementation,
        return_map=True,
    )
    joined = context if inputs["Q"].dim() == 4 else context.transpose(1, 2).flatten(2)
    mode = attributes.get("qk_matmul_output_mode", 0)
    observed = weights if mode == len(STAGES) else weights.scores(STAGES[mode])
    outputs = {"Y": joined, "present_key": key, "present_value": value}
    return outputs | {"qk_matmul_output": observed.dense().to(query.dtype)}


def split(features: Tensor, heads: int | None) -> Tensor:
    """(B, H, T, D) of (B, T, H·D)."""
    return features if features.dim() == 4 else features.unflatten(-1, (heads, -1)).transpose(1, 2)


def masks(attributes: dict[str, Any], inputs: Tensor | None, keys: int) -> tuple[Mask | None, Tensor | None]:
    """The mask and the bias that the attributes and `attn_mask` stand for."""
    sides = [attributes.get(f"{side}_window_size", -1) for side in ("left", "right")]
    parts: list[Mask] = [Causal()] if attributes.get("is_causal") else []
    if max(sides) >= 0:
        parts.append(Window(*(None if side < 0 else side for side in sides)))
    bias = None
    if inputs is not None:
        hides = inputs.dtype == torch.bool
        # keys that the mask does not reach are hidden
        wide = F.pad(inputs, (0, keys - inputs.shape[-1]), value=False if hides else -torch.inf)
        wide = wide[(None,) * (4 - wide.dim())]
        if hides:
            parts.append(Table(wide))
        else:
            bias = wide
    mask = None
    for part in parts:
        mask = part if mask is None else mask & part
    return mask, bias


@cache
def cases() -> dict[str, Any]:
    """The Attention cases that the package makes; the expanded twins have the operator written out in others."""
    with warnings.catch_warnings():
        # NumPy on the reference's −∞
        warnings.simplefilter("ignore")
        from onnx.backend.test.case import node

        # its cases are made when it is imported; `collect_testcases` imports every operator, which takes seconds
        importlib.import_module("onnx.backend.test.case.node.attention")
    result = node._NodeTestCases
    named = {case.name.removeprefix("test_attention_"): case for case in result if not case.name.endswith("_expanded")}
    assert len(named) >= KNOWN
    return named


def tensor(array: Any) -> Tensor:
    if str(array.dtype) == "bfloat16":
        return torch.from_numpy(array.astype("float32")).bfloat16()
    return torch.from_numpy(array.copy())


@pytest.mark.parametrize("name", cases())
def test_it_gives_what_the_case_expects(name: str) -> None:
    case = cases()[name]
    (node,) = case.model.graph.node
    attributes = {attribute.name: onnx.helper.get_attribute_value(attribute) for attribute in node.attribute}
    ((value, expected),) = case.data_sets
    # optional inputs and outputs in between are left empty by name
    inputs = dict(zip(filter(None, node.input), map(tensor, value), strict=True))
    for implementation in ("auto", "reference", "tiled"):
        actual = attention(inputs, attributes, implementation)
        for output, right in zip(filter(None, node.output), map(tensor, expected), strict=True):
            exact = right.dtype == torch.float32
            rtol, atol = (case.rtol, case.atol) if exact else (SIXTEEN_BITS, SIXTEEN_BITS)
            where = f"{implementation}, {output}: "
            torch.testing.assert_close(
                actual[output], right, rtol=rtol, atol=atol, msg=lambda text, where=where: where + text
            )
