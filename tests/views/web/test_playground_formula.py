"""The formulas of the playground: their trees, errors and derivatives, and the program that follows the same losses."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

MODULES = Path(__file__).parents[3] / "src" / "attent" / "views" / "web" / "playground"
FORMULAS = (
    "q·k / sqrt(d)",
    "-|q-k|^2",
    "v·tanh(q+k)",
    "0",
    "q·W k",
    "v·tanh(W1 q + W2 k)",
    "8*q*k / (|q|·|k|)",
    "exp(-abs(q·k)) + |q|^1.5 / 4 - 1 / (1 + |k|)",
)
NEW = 'import { Tape, Tensor } from "./gradients.js";\nimport { parse } from "./formula.js";\n'


def node(script: str, *inputs: Any) -> Any:
    """Run a module in the playground's folder and return what it prints, as JSON."""
    program = shutil.which("node")
    if program is None:
        pytest.skip("no node: it is not on the path")
    command = [program, "--input-type=module", "--no-warnings", "--eval", script, json.dumps(inputs)]
    done = subprocess.run(command, cwd=MODULES, capture_output=True, text=True, encoding="utf-8", check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


# The scores of a formula, and the derivative of their weighted sum by each parameter, as rows of numbers.
SCORE = f"""{NEW}import {{ scoreOf }} from "./score.js";
const [formula, numbers, slopes] = JSON.parse(process.argv.at(-1));
const tape = new Tape();
const tensor = (rows) => new Tensor(rows.length, rows[0].length, Float64Array.from(rows.flat()));
const given = Object.fromEntries(Object.entries(numbers).map(([name, rows]) => [name, tensor(rows)]));
const scores = scoreOf(tape, parse(formula), given.q, given.k, given);
Object.assign(scores, {{ rows: 1, columns: slopes.length }});
tape.backward(tape.sum(tape.zip(scores, tensor([slopes]), (x, y) => x * y, (x, y) => [y, x])));
const gradients = Object.entries(given).map(([name, {{ gradient }}]) => [name, [...gradient]]);
console.log(JSON.stringify([[...scores.data], Object.fromEntries(gradients)]));
"""
# The function `score` of the program for Python.
PROGRAM = """
import { pythonOf } from "./python.js";
import { DEFAULTS } from "./settings.js";
const [settings, updates] = JSON.parse(process.argv.at(-1));
console.log(JSON.stringify(pythonOf({ ...DEFAULTS, ...settings }, updates)));
"""
LOSSES = """
import { Training } from "./training.js";
import { DEFAULTS } from "./settings.js";
const [settings, length] = JSON.parse(process.argv.at(-1));
const training = new Training({ ...DEFAULTS, ...settings });
console.log(JSON.stringify(Array.from({ length }, () => training.update())));
"""
TREE = f"""{NEW}const results = JSON.parse(process.argv.at(-1)).map((text) => {{
  try {{ return parse(text).kind; }} catch (error) {{ return [error.constructor.name, error.message, error.position]; }}
}});
console.log(JSON.stringify(results));
"""


def expected(formula: str, inputs: dict[str, torch.Tensor]) -> torch.Tensor:
    q, k = inputs["q"][:, None], inputs["k"][None]
    v, d = inputs["v"][0], q.shape[-1]
    products = (q * k).sum(-1)
    lengths = q.norm(dim=-1), k.norm(dim=-1)
    return {
        FORMULAS[0]: lambda: products / d**0.5,
        FORMULAS[1]: lambda: -((q - k) ** 2).sum(-1),
        FORMULAS[2]: lambda: torch.tanh(q + k) @ v,
        FORMULAS[3]: lambda: 0 * products,
        FORMULAS[4]: lambda: inputs["q"] @ inputs["W"] @ inputs["k"].T,
        FORMULAS[5]: lambda: torch.tanh(q @ inputs["W1"].T + k @ inputs["W2"].T) @ v,
        FORMULAS[6]: lambda: 8 * products / (lengths[0] * lengths[1]),
        FORMULAS[7]: lambda: torch.exp(-products.abs()) + lengths[0] ** 1.5 / 4 - 1 / (1 + lengths[1]),
    }[formula]()


@pytest.mark.parametrize("formula", FORMULAS)
def test_scores_and_derivatives_are_those_of_pytorch(formula: str) -> None:
    shapes = {"q": (3, 5), "k": (4, 5), "v": (1, 5), "W": (5, 5), "W1": (5, 5), "W2": (5, 5)}
    inputs = {name: torch.randn(shape, dtype=torch.float64, requires_grad=True) for name, shape in shapes.items()}
    slopes = torch.randn(12, dtype=torch.float64)
    values, gradients = node(
        SCORE, formula, {name: tensor.tolist() for name, tensor in inputs.items()}, slopes.tolist()
    )
    scores = expected(formula, inputs)
    assert values == pytest.approx(scores.flatten().tolist(), rel=1e-12, abs=1e-12)
    (scores.flatten() @ slopes).backward()
    for name, tensor in inputs.items():
        gradient = torch.zeros_like(tensor) if tensor.grad is None else tensor.grad
        assert gradients[name] == pytest.approx(gradient.flatten().tolist(), rel=1e-10, abs=1e-12), name


def test_normalizers_have_the_derivatives_of_finite_differences() -> None:
    script = f"""{NEW}import {{ normalize, SLOPES }} from "./attention.js";
const [scores, slopes] = JSON.parse(process.argv.at(-1));
const mask = (query, key) => key !== 2;
const results = Object.keys(SLOPES).filter((name) => name !== "hard").map((name) => {{
  const row = (numbers) => new Tensor(1, 5, Float64Array.from(numbers));
  const total = (given) => {{
    const weights = normalize(new Tape(), given, name, mask, 5).data;
    return weights.reduce((sum, weight, place) => sum + weight * slopes[place], 0);
  }};
  const at = (shift, place) => total(row(scores.map((score, index) => score + (index === place ? shift : 0))));
  const tape = new Tape();
  const given = row(scores);
  const weights = normalize(tape, given, name, mask, 5);
  weights.gradient.set(slopes);
  weights.pass(weights);
  return [name, [...given.gradient], scores.map((_, place) => (at(1e-5, place) - at(-1e-5, place)) / 2e-5)];
}});
console.log(JSON.stringify(results));
"""
    results = node(script, [0.3, -0.4, 5.0, 0.9, -0.2], [1.0, -2.0, 3.0, 0.5, -0.7])
    assert {name for name, _, _ in results} == {"softmax", "sparsemax", "entmax15", "sigmoid", "top_k", "identity"}
    for name, gradient, differences in results:
        assert gradient == pytest.approx(differences, abs=1e-4), name
        assert any(abs(slope) > 0.01 for slope in gradient)
        assert gradient[2] == 0


def test_the_whole_model_has_the_derivatives_of_finite_differences() -> None:
    script = """
import { Tape } from "./gradients.js";
import { ENCODED, Training } from "./training.js";
import { TRAINING } from "./pairs.js";
import { DEFAULTS } from "./settings.js";
const { model } = new Training({ ...DEFAULTS, formula: "v·tanh(W1 q + W2 k) + q·W k / d" });
const [{ source, written, words }] = ENCODED.pairs([TRAINING[0]]);
const loss = (tape) => tape.crossEntropy(model.decode(tape, model.encode(tape, source).memory, written).logits, words);
const tape = new Tape();
tape.backward(loss(tape));
console.log(JSON.stringify(Object.entries(model.parameters).map(([name, { data, gradient }]) => {
  const sizes = [...gradient].map(Math.abs);
  const place = sizes.indexOf(Math.max(...sizes));
  const at = (shift) => {
    data[place] += shift;
    const value = loss(new Tape()).data[0];
    data[place] -= shift;
    return value;
  };
  return [name, gradient[place], (at(1e-5) - at(-1e-5)) / 2e-5];
})));
"""
    results = node(script)
    assert len(results) == 14
    for name, gradient, difference in results:
        assert abs(gradient) > 1e-4, name
        assert gradient == pytest.approx(difference, rel=1e-5), name


def test_what_is_wrong_is_said_in_one_line_with_its_position() -> None:
    wrong = {
        "": ("got the end", 1),
        "q": ("the score must be a number, but this is a vector", 1),
        "q·": ("got the end", 3),
        "q + 1": ("a vector and a number cannot be added", 3),
        "q·k)": ("expected an operator or the end, got “)”", 4),
        "(q·k": ("expected “)”, got the end", 5),
        "|q": ("expected “|”", 3),
        "W·k": ("expected a vector after W", 2),
        "q·k / q": ("a vector cannot be divided by", 5),
        "q^2": ("only a number has powers", 2),
        "2^(q·k)": ("the exponent must be a constant", 2),
        "q·x": ("“x” is not known", 3),
        "1e9": ("a number is at most", 1),
        "sqrt q": ("expected “(”", 6),
        "constructor": ("“constructor” is not known", 1),
        "__proto__·k": ("“__proto__” is not known", 1),
        "fetch('//x.example')": ("“fetch” is not known", 1),
        "<img src=x onerror=alert(1)>": ("got “<”", 1),
        "\u202eq": ("expected a number", 1),
        "(" * 60 + "0" + ")" * 60: ("nested at most", 14),
        "-" * 150 + "1": ("nested at most", 26),
        "|" * 199: ("nested at most", 14),
        "0+" * 150 + "0": ("at most 200 characters", 201),
    }
    for (text, (message, position)), result in zip(wrong.items(), node(TREE, *wrong), strict=True):
        assert isinstance(result, list), text
        kind, line, column = result
        assert kind == "FormulaError", (text, line)
        assert message in line, (text, line)
        assert "\n" not in line
        if len(text) < 60:
            assert column == position, (text, line)
    assert node(TREE, *FORMULAS, " q . k ", "q∗k − 1", "--1", "2^-1", "||q|-|k||") == [
        "/", "negative", "dot", "number", "dot", "dot", "/", "-", "dot", "-", "negative", "^", "abs",
    ]  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize(
    "settings",
    [
        *({"formula": formula} for formula in FORMULAS),
        {"normalizer": "entmax15", "mask": "window", "positions": False},
        {"normalizer": "sparsemax", "mask": "causal", "identity": True},
        {"normalizer": "sigmoid", "seed": 123456},
        {"fixed": True},
        {"formula": "4·tanh(q·k / 4)"},
    ],
    ids=str,
)
def test_the_copied_program_follows_the_losses(settings: dict[str, Any], tmp_path: Path) -> None:
    file = tmp_path / "copied.py"
    # a program takes most of a second for each update: all 50 of two formulas, and few of the others
    updates = 50 if settings.get("formula") in FORMULAS[:3:2] else 12
    file.write_text(node(PROGRAM, settings, updates), encoding="utf-8")
    done = subprocess.run([sys.executable, file], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    losses = [float(line) for line in done.stdout.split()]
    assert len(losses) == updates and losses[-1] < losses[0] - 0.1
    assert losses == pytest.approx(node(LOSSES, settings, updates), abs=1e-4)


def test_the_same_settings_give_the_same_program() -> None:
    first, second = node(PROGRAM, {"seed": 1}), node(PROGRAM, {"seed": 2})
    assert first.replace("SEED, UPDATES = 32, 16, 1,", "SEED, UPDATES = 32, 16, 2,") == second
    compile(first, "copied.py", "exec")


def test_an_address_and_its_settings_round_trip() -> None:
    script = """
import { addressOf, DEFAULTS, readSettings } from "./settings.js";
const list = JSON.parse(process.argv.at(-1)).map((settings) => ({ ...DEFAULTS, ...settings }));
console.log(JSON.stringify(list.map((settings) => [settings, readSettings(addressOf(settings))])));
"""
    settings = [
        {},
        {"formula": "exp(-|q-k|^2 / 2) + 1", "seed": 999999, "text": "a <b> & #c=d % é"},
        {"normalizer": "entmax15", "mask": "causal", "positions": False, "fixed": True, "identity": True},
    ]
    for settings_read, read in node(script, *settings):
        assert read == {"settings": settings_read, "wrong": ""}
