"""The core needs torch and NumPy alone, and what is missing for the rest is said in one line."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tomllib
from importlib.metadata import packages_distributions
from importlib.util import find_spec
from pathlib import Path

import pytest

from attent.requirements import EXTRAS

ROOT = Path(__file__).parents[1]
CORE = (
    *("attention", "bounded", "devices", "errors", "installation", "integrations", "layers", "mask_text", "ops"),
    *("printable", "registry", "requirements", "system", "testing", "types", "views"),
)
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
REQUIRED = [re.split(">", line)[0] for line in PROJECT["dependencies"]]

# No package of this environment can be imported but attent and the requirements, direct and indirect, of those named.
BLOCK = """
import re, sys
from importlib.metadata import PackageNotFoundError, packages_distributions, requires

def collect(name, collected):
    name = re.sub(r"[-_.]+", "-", name).lower()
    if name not in collected:
        collected.add(name)
        try:
            lines = requires(name) or []
        except PackageNotFoundError:
            return
        for line in lines:
            if "extra ==" not in line:
                collect(re.match(r"[\\w.-]+", line)[0], collected)

allowed = {"attent"}
for name in NAMES:
    collect(name, allowed)
blocked = {
    name.partition(".")[0]
    for name, owners in packages_distributions().items()
    if not {re.sub(r"[-_.]+", "-", owner).lower() for owner in owners} & allowed
}
for name in blocked:
    sys.modules[name] = None
"""
USE_CORE = """
import torch
from torch import nn
import attent

query = torch.randn(1, 2, 5, 8, requires_grad=True)
context, map = attent.attend(query, query, query, mask="causal", return_map=True)
expected = nn.functional.scaled_dot_product_attention(query, query, query, is_causal=True)
torch.testing.assert_close(context, expected)
context.sum().backward()
assert query.grad.isfinite().all()
assert "<html" in attent.views.page(map, list("abcde")).html

model = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True).eval()
with attent.watch(model) as maps:
    model(torch.randn(1, 5, 8))
torch.testing.assert_close(maps["self_attn"][..., :, :].sum(-1), torch.ones(1, 2, 5))
assert "<html" in attent.views.page(maps, list("abcde")).html

from attent.views.describe import describe
assert "parameters in all" in describe(attent.MultiHeadAttention(8, 2))
assert "The" in str(attent.walk("The cat sat", whole=True))

from attent.integrations import torch as door

door.register()
nn.attention.activate_flash_attention_impl(door.NAME)
torch.testing.assert_close(nn.functional.scaled_dot_product_attention(query, query, query, is_causal=True), expected)
nn.attention.restore_flash_attention_impl()

with torch.no_grad():
    blocks = attent.create_block_mask(lambda b, h, i, j: i >= j, 1, 2, 5, 5)
    flex = attent.flex_attention(query, query, query, block_mask=blocks)
torch.testing.assert_close(flex, expected)
assert not [name for name in blocked if sys.modules.get(name) is not None]
"""
USE_TRANSFORMERS = """
import torch
from transformers import BertConfig, BertModel
from attent.integrations.transformers import register

register()
sizes = dict(vocab_size=11, hidden_size=8, num_hidden_layers=1, num_attention_heads=2, intermediate_size=8)
model = BertModel(BertConfig(**sizes)).eval()
tokens = torch.tensor([[3, 4, 5]])
expected = model(tokens).last_hidden_state
model.set_attn_implementation("attent")
torch.testing.assert_close(model(tokens).last_hidden_state, expected)
"""


def python(code: str, *names: str) -> subprocess.CompletedProcess[str]:
    """Run code where only attent and the requirements of some distributions can be imported."""
    command = [sys.executable, "-c", f"NAMES = {names}\n{BLOCK}\n{code}"]
    return subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT)


def core_modules() -> list[str]:
    package = ROOT / "src" / "attent"
    files = [file for name in CORE for file in (package / f"{name}.py", *(package / name).rglob("*.py"))]
    names = [".".join(file.relative_to(package.parent).with_suffix("").parts) for file in files if file.is_file()]
    # Triton's kernels need Triton, and the build of the compiled library setuptools
    separate = (".triton.", ".build_extension")
    return sorted(name.removesuffix(".__init__") for name in names if not any(part in name for part in separate))


PACKAGES = {
    *("pydantic", "typer", "rich", "babel", "sacrebleu", "sentencepiece", "safetensors", "markdown_it"),
    *("starlette", "uvicorn", "lxml"),
}
NEEDS = {
    "attent.load('runs/dates')": "models",
    "attent.models": "models",
    "import attent.training.loop": "models",
    "from attent.tasks import recipe": "models",
    "from attent.documents import read_document": "models",
    "import attent.formats.onnx": "models",
    "attent.explore({})": "explore",
    "import attent.server.server": "serve",
    "attent.AttentionRegressor": "regression",
    "attent.integrations.transformers.register()": "transformers",
}
TRY_EACH = f"""
import attent, attent.integrations.transformers
for code in {list(NEEDS)}:
    try:
        exec(code)
    except attent.errors.MissingExtraError as error:
        print(error)
"""
# Run in one process, in this order: a new one takes seconds to import PyTorch.
PROGRAMS = {
    "command": "sys.argv[1:] = ['translate', 'RUN']\nimport runpy\nrunpy.run_module('attent', run_name='__main__')",
    "use": USE_CORE,
    "import": f"import importlib\nfor name in {core_modules()}: importlib.import_module(name)",
    "missing": TRY_EACH,
    "doctor": "sys.argv = ['attent', 'doctor']\nfrom attent.cli import main\nmain()",
    "report": "sys.argv = ['attent', 'doctor', '--report']\nfrom attent.cli import main\nmain()",
}
RUN_PROGRAMS = f"""
import contextlib, io, json, traceback
assert {PACKAGES} <= blocked, blocked
results = {{}}
for name, code in {PROGRAMS}.items():
    out, err, status = io.StringIO(), io.StringIO(), 0
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            exec(code, {{"sys": sys, "blocked": blocked}})
        except SystemExit as error:
            status = error.code or 0
        except BaseException:
            traceback.print_exc()
            status = 1
    results[name] = status, out.getvalue(), err.getvalue()
print(json.dumps(results))
"""


@pytest.fixture(scope="module")
def results() -> dict[str, tuple[int, str, str]]:
    """The exit status, output and errors of each program of `PROGRAMS` on the core alone."""
    done = python(RUN_PROGRAMS, *REQUIRED)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.parametrize("name", ["use", "import"])
def test_the_core_is_used_without_any_other_package(results: dict[str, tuple[int, str, str]], name: str) -> None:
    assert len(core_modules()) > 100
    assert results[name][0] == 0, results[name][2]


@pytest.mark.slow
@pytest.mark.skipif(find_spec("transformers") is None, reason="transformers are not installed")
def test_models_of_transformers_run_by_attend_without_the_packages_of_ours() -> None:
    done = python(USE_TRANSFORMERS, *REQUIRED, "transformers")
    assert done.returncode == 0, done.stderr


def test_missing_packages_are_named_in_one_line(results: dict[str, tuple[int, str, str]]) -> None:
    status, out, err = results["missing"]
    assert status == 0, err
    named = [re.findall(r": in a clone of attent, pip install '\.\[(\w+)\]'", line) for line in out.splitlines()]
    assert named == [[name] for name in NEEDS.values()]
    status, out, err = results["command"]
    assert (status, out, len(err.splitlines())) == (2, "", 1)
    assert err.startswith("attent: the command attent needs typer, ")
    assert err.endswith(": in a clone of attent, pip install '.[cli]'\n")
    status, out, err = results["doctor"]
    assert (status, err) == (0, "")
    assert [line.split()[0] for line in out.splitlines()][1:4] == ["required", "extras", "missing"]
    assert results["report"][1].splitlines()[1:8] == out.splitlines()[:7]


def test_a_single_missing_package_is_named() -> None:
    code = "import sys; sys.modules['sacrebleu'] = None; import attent; attent.load"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stderr.splitlines()[-1].endswith(
        "models and training need sacrebleu: in a clone of attent, pip install '.[models]'"
    )


def test_extras_are_those_of_the_package() -> None:
    """Each extra that a folder checks lists what pyproject.toml does, and contains what that contains."""
    assert REQUIRED == ["torch", "numpy"]
    owners = packages_distributions()
    for name, extra in EXTRAS.items():
        required = {re.split(r"[>;]", line)[0].lower() for line in PROJECT["optional-dependencies"][name]}
        own = next((line for line in required if line.startswith("attent[")), "attent[]")
        assert set(filter(None, own[len("attent[") : -1].split(","))) == set(extra.contains)
        named = {owner.lower().replace("_", "-") for package in extra.packages for owner in owners[package]}
        # asyncio's event loop serves without uvloop
        assert named == {line for line in required if not line.startswith("attent[")} - {"uvloop"}
