"""Causal attention of a prompt: ggml's, which llama.cpp runs on a CPU, beside ours and PyTorch's.

pip install llama-cpp-python  (builds llama.cpp for this processor)
scripts/bench ggml [one two]  (threads)

llama.cpp passes a prompt in parts of 512 tokens (`n_ubatch`), each with the keys until its end, kept in float16 or
float32; so does this.
"""

from __future__ import annotations

import ctypes
import math
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
from _sides import Work, head, milliseconds, run, table
from dot import rates_of_products
from torch.nn import functional as F

from attent.attention import attend

# The shape of Qwen 3 0.6B's layer.
HEADS, GROUPS, WIDTH = 16, 8, 128
LENGTHS, PART = (2000, 8000), 512
TYPES = {torch.float32: 0, torch.float16: 1}
FAR = 1e-4


class InitParams(ctypes.Structure):
    _fields_ = [("mem_size", ctypes.c_size_t), ("mem_buffer", ctypes.c_void_p), ("no_alloc", ctypes.c_bool)]


class Ggml:
    """ggml of the package llama_cpp; tensors are of (heads, tokens, width).

    Raises:
        SystemExit: llama-cpp-python is not installed.
    """

    def __init__(self) -> None:
        found = find_spec("llama_cpp")
        if found is None or found.origin is None:
            raise SystemExit("this benchmark needs llama-cpp-python: pip install llama-cpp-python")
        folder = Path(found.origin).parent / "lib"
        base, cpu = (
            ctypes.CDLL(str(folder / f"libggml-{name}.so"), mode=ctypes.RTLD_GLOBAL) for name in ("base", "cpu")
        )
        pointer, long, size, real = ctypes.c_void_p, ctypes.c_int64, ctypes.c_size_t, ctypes.c_float
        self.init = declared(base.ggml_init, pointer, InitParams)
        self.free = declared(base.ggml_free, None, pointer)
        self.new = declared(base.ggml_new_tensor_4d, pointer, pointer, ctypes.c_int, *[long] * 4)
        self.view = declared(base.ggml_view_4d, pointer, pointer, pointer, *[long] * 4, *[size] * 4)
        self.data = declared(base.ggml_get_data, pointer, pointer)
        self.attention = declared(base.ggml_flash_attn_ext, pointer, *[pointer] * 5, *[real] * 3)
        self.graph = declared(base.ggml_new_graph, pointer, pointer)
        self.expand = declared(base.ggml_build_forward_expand, None, pointer, pointer)
        self.compute = declared(cpu.ggml_graph_compute_with_ctx, ctypes.c_int, pointer, pointer, ctypes.c_int)
        declared(cpu.ggml_cpu_init, None)()

    def tensor(self, context: Any, filled: torch.Tensor) -> Any:
        """Return a copy of a tensor of three axes."""
        filled = filled.contiguous()
        made = self.new(context, TYPES[filled.dtype], *reversed(filled.shape), 1)
        ctypes.memmove(self.data(made), filled.data_ptr(), filled.nbytes)
        return made

    def causal(
        self, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, threads: int
    ) -> tuple[Work, Callable[[], torch.Tensor], Callable[[], None]]:
        """Return what computes causal attention by parts, its result of (tokens, heads, width), and what frees it."""
        length = query.shape[1]
        bytes_ = sum(side.nbytes for side in (query, query, key, value)) + length * (length + PART) * 2
        context = self.init(InitParams(bytes_ + 2**26, None, False))
        graph, parts = self.graph(context), []
        sides = [(side, self.tensor(context, side)) for side in (query, key, value)]
        for begin in range(0, length, PART):
            end = min(begin + PART, length)
            rows = torch.arange(begin, end)[:, None]
            hidden = torch.zeros(end - begin, end).masked_fill(torch.arange(end) > rows, -math.inf)
            mask = self.tensor(context, hidden.half()[None])
            spans = [(begin, end), (0, end), (0, end)]
            views = [
                self.view(
                    context, made, WIDTH, last - first, side.shape[0], 1,
                    *(side.element_size() * count for count in (WIDTH, WIDTH * length, side.numel(), WIDTH * first)),
                )
                for (side, made), (first, last) in zip(sides, spans, strict=True)
            ]  # fmt: skip
            parts.append((self.attention(context, *views, mask, WIDTH**-0.5, 0.0, 0.0), end - begin))
            self.expand(graph, parts[-1][0])

        def compute() -> None:
            if self.compute(context, graph, threads):
                raise RuntimeError("ggml did not compute the graph")

        def result() -> torch.Tensor:
            found = []
            for made, count in parts:
                numbers = (ctypes.c_float * (WIDTH * HEADS * count)).from_address(self.data(made))
                found.append(torch.frombuffer(numbers, dtype=torch.float32).reshape(count, HEADS, WIDTH).clone())
            return torch.cat(found)

        return compute, result, lambda: self.free(context)


def declared(function: Any, returned: Any, *arguments: Any) -> Any:
    """Declare a C function's types."""
    function.restype, function.argtypes = returned, arguments
    return function


@torch.no_grad()
def prompt(threads: int) -> None:
    """Measure one layer's causal attention of a prompt by so many threads."""
    ggml = Ggml()
    torch.set_num_threads(1)
    peak = max(rates_of_products().values())
    torch.set_num_threads(threads)
    head(
        f"Causal attention of {HEADS} heads of {WIDTH}, {GROUPS} of keys, beside ggml's (llama.cpp), {threads} threads"
    )
    print(f"The peak is the faster product of 384 × 384 × 384 on one thread, {peak:.0f} GFLOP/s, times the threads.\n")
    rows = []
    for length in LENGTHS:
        query = torch.randn(1, HEADS, length, WIDTH)
        key, value = (torch.randn(1, GROUPS, length, WIDTH) for _ in range(2))
        ours = attend(query, key, value, mask="causal")[0].transpose(0, 1)
        sides: dict[str, Work] = {
            "attent": lambda q=query, k=key, v=value: attend(q, k, v, mask="causal"),
            "sdpa": lambda q=query, k=key, v=value: F.scaled_dot_product_attention(
                q, k, v, is_causal=True, enable_gqa=True
            ),
        }
        frees = []
        for dtype, name in ((torch.float32, "ggml"), (torch.float16, "ggml, keys in float16")):
            sides[name], result, free = ggml.causal(query[0], key[0].to(dtype), value[0].to(dtype), threads)
            frees.append(free)
            sides[name]()
            far = (result() - ours).abs().max().item()
            if not far < (FAR if dtype is torch.float32 else 10 * FAR):
                raise SystemExit(f"{name} differs from ours by {far:.1e}")
        times = milliseconds(sides, rounds=5, seconds=8)
        for free in frees:
            free()
        work = 2 * HEADS * length * (length + 1) * WIDTH / 1e6
        for name, time in times.items():
            rate = work / time
            rows.append(
                [
                    f"{length:,}",
                    name,
                    f"{time:,.0f}",
                    f"{rate:,.0f}",
                    f"{rate / peak / threads:.0%}",
                    f"{time / times['attent']:.2f}",
                ]
            )
    table(["T", "side", "ms", "GFLOP/s", "share of the peak", "× attent's time"], rows)


if __name__ == "__main__":
    run({"one": lambda: prompt(1), "two": lambda: prompt(2)}, __doc__)
