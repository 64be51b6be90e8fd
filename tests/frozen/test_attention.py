"""attend with every part: its numbers, which implementation runs, the statistics of maps; regression and look-up."""

from __future__ import annotations

import re

import numpy as np
import pytest
import torch
from torch import Tensor

import attent as package
from attent.attention import masks, normalizers, positions, scores, weightings


def wave(*shape: int, step: float) -> Tensor:
    """Numbers that no random generator makes."""
    return torch.sin(torch.arange(int(np.prod(shape)), dtype=torch.float64) * step).float().reshape(shape)


NUMBER = re.compile(r"-?\d+\.\d+")
QUERY, KEY, VALUE = wave(2, 2, 5, 8, step=0.37), wave(2, 2, 7, 8, step=0.59), wave(2, 2, 7, 6, step=0.83)


def filled(part: torch.nn.Module) -> torch.nn.Module:
    with torch.no_grad():
        for number, parameter in enumerate(part.parameters()):
            parameter.copy_(wave(*parameter.shape, step=0.7 + number) if parameter.ndim else torch.tensor(0.5))
    return part


CALLS = {
    "plain": lambda: {},
    "dot": lambda: {"score": "dot"},
    "cosine": lambda: {"score": "cosine"},
    "gaussian": lambda: {"score": scores.Gaussian(1.5)},
    "general": lambda: {"score": filled(scores.General(8, 8))},
    "concat": lambda: {"score": filled(scores.Concat(8, 8, 5))},
    "additive": lambda: {"score": filled(scores.Additive(8, 8, 5))},
    "gated": lambda: {"score": filled(scores.Gated(8, 8))},
    "location": lambda: {"score": filled(scores.Location(8, 9))},
    "hard": lambda: {"normalizer": "hard"},
    "top_k": lambda: {"normalizer": normalizers.TopK(3)},
    "sparsemax": lambda: {"normalizer": "sparsemax"},
    "entmax15": lambda: {"normalizer": "entmax15"},
    "sigmoid": lambda: {"normalizer": "sigmoid"},
    "identity": lambda: {"normalizer": "identity"},
    "causal": lambda: {"mask": "causal"},
    "window": lambda: {"mask": masks.Window(2, 1)},
    "prefix": lambda: {"mask": masks.Causal() | masks.Prefix(3)},
    "padding": lambda: {"mask": masks.Padding(torch.tensor([4, 7]))},
    "lengths": lambda: {"lengths": torch.tensor([5, 7]), "mask": "causal"},
    "rotary": lambda: {"position": "rotary"},
    "alibi": lambda: {"position": "alibi"},
    "relative": lambda: {"position": filled(positions.RelativeBias(2))},
    "soft cap": lambda: {"soft_cap": 2.0},
    "dropout": lambda: {"dropout": 0.3, "seed": 11},
    "weighting": lambda: {"weighting": weightings.GaussianWindow(torch.full((2, 5), 3.0), 1.5)},
}


@pytest.mark.parametrize("name", CALLS)
def test_attend(golden, internals, monkeypatch, name: str) -> None:
    arguments = CALLS[name]()
    output = package.attend(QUERY, KEY, VALUE, **arguments)
    golden.check(f"{name}: context", output[:, 1], absolute=1e-5)
    internals.without_extension(monkeypatch)
    golden.check(f"{name}: context", package.attend(QUERY, KEY, VALUE, **arguments)[:, 1], absolute=1e-5)


# Calls that took slower ways until dense attention capped scores and added biases of offsets; what they compute is
# frozen all the same.
TAKEN_BY_DENSE = "alibi", "relative", "soft cap"
RECORDED = {"dense": "short", "reference": "formula"}


@pytest.mark.parametrize("name", CALLS)
def test_which_implementation_runs(golden, internals, name: str) -> None:
    if not internals.has_extension():
        pytest.skip("without the extension others run")
    query, key, value = (torch.zeros(2, 2, 96, 8) for _ in range(3))
    for shape, inputs in {"small": (QUERY, KEY, VALUE), "large": (query, key, value)}.items():
        if shape == "large" and name in ("location", "weighting"):
            continue
        explained = package.explain(*inputs, **CALLS[name]())
        if name in TAKEN_BY_DENSE:
            assert explained.chosen == "dense"
            continue
        # recorded under their names of then; "dropped" was removed, for it was slower
        chosen, *others = (RECORDED.get(item, item) for item in (explained.chosen, *explained.reasons))
        golden.check(f"{name}: {shape}", [chosen, *sorted({*others, "dropped"})])


@pytest.mark.parametrize("name", [name for name in CALLS if name not in ("sigmoid", "identity", "weighting")])
def test_maps(golden, name: str) -> None:
    _, weights = package.attend(QUERY, KEY, VALUE, return_map=True, **CALLS[name]())
    values = {
        "argmax": weights.argmax(),
        "entropy": weights.entropy(),
        "distance": weights.distance(),
        "received": weights.received(),
        "pooled": weights.pooled(2, 3),
        "largest": weights.pooled(2, 3, "max"),
        "grouped": weights.grouped([(0, 2), (2, 5)], [(0, 3), (4, 7)]),
        "scores": weights.scores("raw")[0, 0, 1],
    }
    golden.check(f"{name}: map", values, absolute=1e-5)


def test_a_module_of_several_heads(golden) -> None:
    kinds = {
        "plain": {},
        "shared": {"key_value_heads": 1},
        "additive": {"score": "additive"},
        "rotary": {"position": "rotary"},
    }
    for name, options in kinds.items():
        module = filled(package.MultiHeadAttention(8, 2, **options)).eval()
        golden.check(
            f"module, {name}: parameters", {key: [*tensor.shape] for key, tensor in module.state_dict().items()}
        )
        golden.check(f"module, {name}", module(QUERY[:, 0]), absolute=1e-4)


def test_a_look_up(golden) -> None:
    majors = {"Ada Quill": "mathematics", "Ben Okafor": "physics", "Chiara Lund": "physics"}
    golden.check("exact", str(package.lookup(["Ben Okafor", "Zoe Park"], majors)).split()[:2])
    for method in ("nearest", "soft"):
        golden.check(method, package.lookup(["Chiara Lunt"], majors, method=method).weights[...])
    golden.check(
        "numbers", package.lookup([2.5, 7.0], [1.0, 2.0, 4.0], [10.0, 20.0, 40.0], method="soft", bandwidth=0.8).values
    )


def test_kernel_regression(golden) -> None:
    pytest.importorskip("sklearn", reason="scikit-learn is not installed")
    x, y = wave(30, 2, step=0.9).double().numpy(), wave(30, step=0.31).double().numpy()
    for kernel in ("gaussian", "epanechnikov", "tricube"):
        model = package.AttentionRegressor(0.7, kernel=kernel).fit(x, y)
        golden.check(f"regression, {kernel}", [float(number) for number in model.predict(x[:5])])
    golden.check("rule", [float(number) for number in package.AttentionRegressor("rule").fit(x, y).bandwidth_])


def has_all(numbers: list[float], expected: list[float], absolute: float = 0.011) -> bool:
    """Return whether each expected number is among some, as often as expected; both are sorted."""
    rest = iter(numbers)
    return all(any(abs(number - fragment) <= absolute for number in rest) for fragment in expected)


def test_a_walk_through_made_up_numbers(attent, golden, monkeypatch) -> None:
    monkeypatch.setenv("COLUMNS", "120")
    for options in (
        (),
        ("--score", "additive"),
        ("--heads", "2", "--mask", "causal", "--seed", "3"),
        ("--normalizer", "sparsemax"),
    ):
        # without a seed, words are those of a trained model since
        seed = () if "--seed" in options else ("--seed", "0")
        words = " ".join(attent("walk", "a b c", *options, *seed).out).split()
        printed = sorted(float(word) for word in words if NUMBER.fullmatch(word))
        # recorded under the option's former name
        name = f"walk {' '.join(options)}".replace("--normalizer", "--normaliser")
        # further steps are printed since, and matrices in the equation's orientation
        expected = sorted(golden.values[name])
        golden.check(name, golden.values[name] if has_all(printed, expected) else printed)
