"""The formula in JavaScript against Python: every score, normalizer, mask and position, under node and in a browser."""

from __future__ import annotations

import json
import shutil
from itertools import chain, product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from _live_engine import node

from attent.attention import masks, positions, scores
from attent.attention.arguments import prepare
from attent.attention.normalizers import NORMALIZERS, TopK
from attent.attention.reference import steps
from attent.views.pages.page import bundle

needs_node = pytest.mark.skipif(shutil.which("node") is None, reason="node is not on the path")
RELATIVE, NEAR_ZERO = 1e-5, 1e-7
HEADS, WIDTH, HIDDEN = 3, 6, 5
# Computes cases, given the bundle of the formula.
COMPUTE = Path(__file__).with_name("formula_cases.js").read_text(encoding="utf-8")
NODE = 'process.stdout.write(JSON.stringify(JSON.parse(require("fs").readFileSync(0, "utf8")).map(computed)));'


def tables() -> dict[str, tuple[Any, list[dict[str, Any]]]]:
    """Return each mask, in Python and as JavaScript makes it; `hidden` hides whole rows."""
    return {
        "none": (None, [{"name": "none"}]),
        "causal": (masks.Causal(), [{"name": "causal"}]),
        "window": (masks.Window(2, 0), [{"name": "window", "left": 2, "right": 0}]),
        "ahead": (masks.Window(0, 1), [{"name": "window", "left": 0, "right": 1}]),
        "prefix": (masks.Prefix(2), [{"name": "prefix", "length": 2}]),
        "hidden": (masks.Causal() & masks.Prefix(0), [{"name": "causal"}, {"name": "prefix", "length": 0}]),
    }


def parameterized(length: int) -> dict[str, Any]:
    """Return each score of Python by name, for these widths."""
    sigma = torch.tensor([0.5, 1.0, 2.0, 0.7, 1.3, 3.0])
    return {
        "dot": scores.Dot(),
        "scaled_dot": scores.ScaledDot(),
        "cosine": scores.Cosine(0.3),
        "gaussian": scores.Gaussian(sigma.tolist()),
        "general": scores.General(WIDTH, WIDTH, scale=0.5),
        "additive": scores.Additive(WIDTH, WIDTH, HIDDEN),
        "concat": scores.Concat(WIDTH, WIDTH, HIDDEN),
        "gated": scores.Gated(WIDTH, WIDTH),
        "location": scores.Location(WIDTH, length + 2),
    }


def as_matrix(tensor: torch.Tensor) -> dict[str, Any]:
    return {"rows": tensor.shape[-2], "columns": tensor.shape[-1], "data": tensor.flatten().tolist()}


def for_script(score: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the parameters of a score: matrices, and numbers."""
    named = dict(score.named_parameters())
    numbers: dict[str, Any] = {
        "scale": getattr(score, "factor", None),
        "temperature": getattr(score, "temperature", None),
    }
    numbers |= {"sigma": getattr(score, "sigma", None)}
    numbers |= {name: part.flatten().tolist() for name, part in named.items() if part.dim() != 2}
    if isinstance(score, scores.Gated):
        numbers["bias"] = named["bias"].item()
    matrices = {name: as_matrix(part.detach()) for name, part in named.items() if part.dim() == 2 and name != "bias"}
    return matrices, {name: number for name, number in numbers.items() if number is not None}


def tensors(kind: str, length: int, generator: torch.Generator) -> list[torch.Tensor]:
    """Return queries, keys and values; numbers whose products float32 holds exactly, where rounding would decide."""
    query, key, value = (torch.randn(length, WIDTH, generator=generator) for _ in range(3))
    whole = [torch.randint(-3, 4, (length, WIDTH), generator=generator).float() for _ in range(2)]
    match kind:
        case "huge":
            query, key = (part * 2.0**10 for part in whole)
        case "tiny":
            query, key, value = (part * 1e-20 for part in (query, key, value))
        case "ties":
            query, key = whole[0], whole[1][:1].expand(length, -1).clone()
        case "zero":
            query, key = torch.zeros_like(query), torch.zeros_like(key)
    return [query, key, value]


def case(
    tensors: list[torch.Tensor],
    score: Any,
    name: str,
    normalizer: str,
    mask: tuple[Any, Any],
    position: str,
    start: int,
) -> tuple[dict[str, Any], dict[str, torch.Tensor]]:
    """Return a case for the script, and Python's steps."""
    query, key, value = (part[None, None] for part in tensors)
    modules = {
        "alibi": positions.Alibi(HEADS),
        "relative_bias": positions.RelativeBias(HEADS),
        "rotary": positions.Rotary(),
    }
    described: dict[str, Any] = {"kind": position}
    head = 1
    if position in ("alibi", "relative_bias"):
        query, key, value = (part.expand(1, HEADS, -1, -1) for part in (query, key, value))
        described |= {"head": head, "heads": HEADS}
    if position == "relative_bias":
        torch.nn.init.normal_(modules[position].table)
        described["table"] = as_matrix(modules[position].table.detach())
    part = TopK(2) if normalizer == "top_k" else normalizer
    call = prepare(
        query, key, value, score=score, normalizer=part, mask=mask[0], position=modules.get(position), query_start=start
    )
    with torch.no_grad():
        computed = steps(*call)
    matrices, numbers = for_script(score)
    sides = dict(zip(("query", "key", "value"), map(as_matrix, tensors), strict=True))
    question = {
        **sides, "score": name, "parameters": matrices, "vectors": numbers, "normalizer": normalizer, "mask": mask[1],
        "position": described, "start": start,
    }  # fmt: skip
    own = head if position in ("alibi", "relative_bias") else 0
    return question, {name: step[0, own] for name, step in computed.items()}


def cases(*, exhaustive: bool = False) -> list[tuple[dict[str, Any], dict[str, torch.Tensor]]]:
    """Return all combinations of score and normalizer, with masks, positions and kinds of numbers in turn.

    With `exhaustive`, also each combination of score, normalizer, mask and position.
    """
    generator = torch.Generator().manual_seed(0)
    torch.manual_seed(0)
    kinds, position_names = ("plain", "huge", "tiny", "ties", "zero"), ("none", "rotary", "alibi", "relative_bias")
    results = []
    names = [*tables()]
    rounds = chain(
        product(parameterized(1), NORMALIZERS, ("plain", "ties")),
        # masks and positions do not depend on the score
        product(("scaled_dot",), NORMALIZERS, [*kinds, *names, *position_names]),
    )
    for number, (name, normalizer, variant) in enumerate(rounds, 1):
        length = 1 if number % 7 == 3 else 3 + number % 9
        mask = variant if variant in names else names[number % len(names)]
        position = (
            variant if variant in position_names else position_names[number % 2 if variant == "ties" else number % 4]
        )
        kind = variant if variant in kinds else "plain"
        if kind == "ties" and normalizer == "hard" and name not in ("dot", "scaled_dot"):
            # the rounding of products with parameters decides between equal scores
            kind = "plain"
        # a turned huge or equal number is no longer exact, and rounding decides between equal scores
        position = "none" if kind != "plain" and position == "rotary" else position
        start = number % 3
        score = parameterized(length)[name]
        parts = tensors(kind, length, generator)
        results.append(case(parts, score, name, normalizer, tables()[mask], position, start))
    rest = product(parameterized(1), NORMALIZERS, names, position_names) if exhaustive else ()
    for number, (name, normalizer, mask, position) in enumerate(rest):
        length = 3 + number % 5
        parts, score = tensors("plain", length, generator), parameterized(length)[name]
        results.append(case(parts, score, name, normalizer, tables()[mask], position, 0))
    return results


def check(questions: list[dict[str, Any]], answers: list[Any], expected: list[dict[str, torch.Tensor]]) -> None:
    for question, answer, computed in zip(questions, answers, expected, strict=True):
        about = {name: question[name] for name in ("score", "normalizer", "mask", "position", "start")}
        masked = next(computed[name] for name in ("masked", "biased", "scores") if name in computed)
        for name, tensor in {"scores": masked, "weights": computed["weights"], "context": computed["output"]}.items():
            step = tensor.numpy()
            result = np.array([float(number) for number in answer[name]]).reshape(step.shape)
            if question["normalizer"] == "top_k" and name != "scores":
                # which of equal scores are kept is not determined
                if name == "context":
                    continue
                result, step = np.sort(result), np.sort(step)
            scale = np.abs(np.where(np.isfinite(step), step, 0)).max(initial=0)
            np.testing.assert_allclose(
                result, step, rtol=RELATIVE, atol=max(RELATIVE * scale, NEAR_ZERO), err_msg=f"{name} of {about}"
            )


@needs_node
def test_under_node_every_part_computes_what_python_computes() -> None:
    questions, expected = map(list, zip(*cases(), strict=True))
    assert len(questions) > 200
    check(questions, node(bundle("engine/attention") + COMPUTE + NODE, questions), expected)


@pytest.mark.slow
def test_in_a_browser_every_part_computes_what_python_computes(window: Any, tmp_path: Path) -> None:
    questions, expected = map(list, zip(*cases(exhaustive=True), strict=True))
    assert len(questions) > 1_700
    data = json.dumps(questions)
    script = f"{bundle('engine/attention')}{COMPUTE}globalThis.answers = {data}.map(computed);"
    file = tmp_path / "formula.html"
    file.write_text(f"<!DOCTYPE html><meta charset=utf-8><title>x</title><script>{script}</script>", encoding="utf-8")
    check(questions, window.open(file).evaluate("() => answers"), expected)


@needs_node
def test_sines_of_positions_are_pythons() -> None:
    for length, width, start in ((5, 7, 0), (1, 64, 4000), (40, 16, 3)):
        (answer,) = node(
            bundle("engine/attention") + COMPUTE + NODE,
            [{"added": {"length": length, "width": width, "start": start}}],
        )
        expected = positions.Sinusoidal(width)(torch.zeros(1, length, width), start)[0]
        # the last bit of a frequency, which not every exponential function has, counts once per position
        near = 1e-6 + 1.2e-7 * start
        np.testing.assert_allclose(np.array(answer["added"]).reshape(length, width), expected, rtol=RELATIVE, atol=near)
