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

SIZES = ["heads", "queries", "keys", "width", "v_stride"]
CODE = f"""
import sys
import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
from attent.ops.tanh_score.triton import tiles

sizes = {SIZES}
whole = ("narrow_query", "narrow_key")
blocks = dict(ROWS=32, COLUMNS=32, RUN=32, ACROSS=32, ASSEMBLY=True)
capability, *ones = sys.argv[1:]
for kernel in (tiles._scores, tiles._for_rows, tiles._for_keys):
    kinds, constants = {{}}, {{}}
    for place, name in enumerate(kernel.arg_names):
        if name in blocks or name in ones:
            kinds[name], constants[(place,)] = "constexpr", blocks.get(name, 1)
        elif name in sizes:
            kinds[name] = "i32"
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
    ("capability", "ones"),
    [
        ("90", []),
        ("90", ["heads"]),
        ("80", ["heads", "queries"]),
        ("80", ["heads", "keys"]),
        ("90", ["width"]),
    ],
    ids=["any size", "one head", "one query", "one key", "one feature"],
)
def test_every_kernel_compiles(capability: str, ones: list[str], tmp_path: Path) -> None:
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    environment["TRITON_CACHE_DIR"] = str(tmp_path)
    # the compiler reads a kernel's text, and so it must lie in a file
    script = tmp_path / "compile.py"
    script.write_text(CODE, encoding="utf-8")
    command = [sys.executable, str(script), capability, *ones]
    ran = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr[-2000:]
    assert len(ran.stdout.split()) == 3
