"""What the interpreter does not see.

That every kernel compiles for GPUs, whichever sizes are 1, which Triton takes for constants.
"""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

SIZES = ["heads", "queries", "keys", "width", "values", "count", "v_stride", "start"]
CODE = f"""
import sys
import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
from attent.ops.tanh_score.triton import attention, tiles

sizes = {SIZES}
whole = ("narrow_query", "narrow_key", "key_begin", "key_end")
blocks = dict(ROWS=32, COLUMNS=32, RUN=32, ACROSS=32, ASSEMBLY=True, PRECISION="tf32x3")
capability, values, *ones = sys.argv[1:]
kernels = tiles._scores, tiles._for_rows, tiles._for_keys, attention._forward, attention._weights, attention._values
for kernel in kernels:
    kinds, constants = {{}}, {{}}
    for place, name in enumerate(kernel.arg_names):
        if name in blocks or name in ones:
            kinds[name], constants[(place,)] = "constexpr", blocks.get(name, 1)
        elif name in sizes:
            kinds[name] = "i32"
        elif name in ("value", "context") or (name == "gradient" and kernel.fn.__module__ == attention.__name__):
            kinds[name] = values
        else:
            kinds[name] = "*i32" if name in whole else "*fp32"
    options = dict(num_warps=8, enable_fp_fusion=True)
    target = GPUTarget("cuda", int(capability), 32)
    compiled = triton.compile(ASTSource(kernel, kinds, constants), target=target, options=options)
    assert compiled.asm["cubin"]
    print(kernel.fn.__name__)
"""


@pytest.mark.slow
@pytest.mark.skipif(find_spec("triton") is None, reason="no Triton: it is installed with torch for CUDA")
@pytest.mark.parametrize(
    ("capability", "values", "ones"),
    [
        ("90", "*fp32", []),
        ("90", "*bf16", ["heads"]),
        ("80", "*fp32", ["heads", "queries", "count"]),
        ("80", "*bf16", ["heads", "keys"]),
        ("90", "*fp32", ["width", "values"]),
    ],
    ids=["any size", "one head", "one query", "one key", "one feature"],
)
def test_every_kernel_compiles(capability: str, values: str, ones: list[str], tmp_path: Path) -> None:
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    environment["TRITON_CACHE_DIR"] = str(tmp_path)
    # the compiler reads a kernel's text, and so it must lie in a file
    script = tmp_path / "compile.py"
    script.write_text(CODE, encoding="utf-8")
    command = [sys.executable, str(script), capability, values, *ones]
    ran = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr[-2000:]
    assert len(ran.stdout.split()) == 6
