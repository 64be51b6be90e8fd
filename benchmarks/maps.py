"""The time of a map's statistics relative to attend's forward, and the overhead of watching a model."""

from __future__ import annotations

import time

import torch
from _sides import head, milliseconds, run, table
from torch import Tensor

import attent
from attent.attention import attend
from attent.attention.maps.attention_map import AttentionMap
from attent.attention.scores import Additive


def statistics() -> None:
    """Measure each statistic beside attend."""
    head("Statistics of a map beside the forward of the same shape")
    rows = []
    for name, shape, arguments in (
        ("(1, 8, 4096, 64)", (1, 8, 4096, 64), {}),
        ("(1, 8, 4096, 64) causal", (1, 8, 4096, 64), {"mask": "causal"}),
        ("additive (1, 1, 512, 256)", (1, 1, 512, 256), {"score": Additive(256, 256, 256)}),
    ):
        tensors = [torch.randn(shape) for _ in range(3)]
        length = shape[2]
        spans = [(first, min(first + 3, length)) for first in range(0, length, 3)]

        def fresh(tensors: list[Tensor] = tensors, arguments: dict[str, object] = arguments) -> AttentionMap:
            return attend(tensors[0], tensors[1], tensors[2][..., :1], return_map=True, **arguments)[1]  # pyright: ignore[reportCallIssue]

        weights = fresh()
        with torch.no_grad():
            times = milliseconds(
                {
                    "attend": lambda tensors=tensors, arguments=arguments: attend(*tensors, **arguments),  # pyright: ignore[reportCallIssue]
                    "argmax": weights.argmax,
                    "top(5)": lambda weights=weights: weights.top(5),
                    "entropy": weights.entropy,
                    "received": weights.received,
                    "distance": weights.distance,
                    "pooled(64, 64)": lambda weights=weights: weights.pooled(64, 64),
                    "pooled(64, 64, max)": lambda weights=weights: weights.pooled(64, 64, "max"),
                    "grouped": lambda weights=weights, spans=spans: weights.grouped(spans, spans),
                },
                rounds=5,
                seconds=20,
            )
        rows.append([name, *(f"{time_:.1f} ({time_ / times['attend']:.2f})" for time_ in times.values())])
    table(
        [
            "ms (× attend)",
            "attend",
            "argmax",
            "top(5)",
            "entropy",
            "received",
            "distance",
            "pooled",
            "pooled max",
            "grouped by 3",
        ],
        rows,
    )
    query = torch.randn(1, 8, 100_000, 64)
    with torch.no_grad():
        _, long = attend(query[:, :, :1], query, query[..., :1], return_map=True)
        started = time.perf_counter()
        row = long[0, :, 0]
        elapsed = 1000 * (time.perf_counter() - started)
        print(f"\nOne row of a 100,000-token map, 8 heads, first access: {elapsed:.0f} ms, {tuple(row.shape)}.")


def watching() -> None:
    """Measure a Hugging Face encoder and a decoder's generate() with and without watch; no map is read."""
    import transformers

    head(f"Watching, transformers {transformers.__version__}")
    torch.manual_seed(0)
    bert = transformers.BertModel(
        transformers.BertConfig(hidden_size=384, num_hidden_layers=6, num_attention_heads=12, intermediate_size=1536)
    )
    bert.eval()
    gpt = transformers.GPT2LMHeadModel(transformers.GPT2Config(n_layer=6, n_embd=384, n_head=6)).eval()
    rows = []
    for name, work, model in (
        ("BERT 6 × 384, 1 × 12 tokens", lambda: bert(torch.arange(12)[None] + 5), bert),
        ("BERT 6 × 384, 8 × 128 tokens", lambda: bert(torch.arange(1024).reshape(8, 128) + 5), bert),
        (
            "GPT-2 6 × 384, generate 32 tokens",
            lambda: gpt.generate(torch.arange(8)[None], max_new_tokens=32, do_sample=False, pad_token_id=0),
            gpt,
        ),
    ):

        def watched(work: object = work, model: torch.nn.Module = model) -> None:
            with attent.watch(model):
                work()  # pyright: ignore[reportCallIssue]

        with torch.no_grad():
            times = milliseconds({"plain": work, "watched": watched}, rounds=60, seconds=12)
        more = times["watched"] - times["plain"]
        rows.append(
            [
                name,
                f"{times['plain']:.2f}",
                f"{times['watched']:.2f}",
                f"{more:+.2f} ms, {100 * more / times['plain']:+.1f} %",
            ]
        )
    table(["", "plain, ms", "watched, ms", "more"], rows)


PARTS = {"statistics": statistics, "watching": watching}

if __name__ == "__main__":
    run(PARTS, __doc__)
