"""Hugging Face's BERT and GPT-2 in base size on a CPU, end to end.

Plain PyTorch is compared with `register(linear=True)`, and the time is broken down by operators, with random weights,
one sequence and float32. A training step consists of loss, gradients and AdamW, with the models' default dropout. A
part is a model with a number of tokens and threads.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from functools import partial

import torch
import transformers
from _sides import head, run, table
from torch import nn
from torch.nn.attention import activate_flash_attention_impl, restore_flash_attention_impl
from torch.profiler import ProfilerActivity, profile

from attent.integrations.torch import register

SIDES = "PyTorch", "attent"
# operators by purpose, the first match counts; PyTorch applies attention dropout with the operators of any dropout
KINDS = {
    "linear": ("aten::addmm", "aten::mm", "mkldnn::_linear_pointwise"),
    "dropout": ("bernoulli", "dropout"),
    "attention": ("scaled_dot_product", "flash_attention", "DenseAttention", "bmm", "softmax"),
}


def bert(tokens: int) -> nn.Module:
    return transformers.BertForMaskedLM(
        transformers.BertConfig(max_position_embeddings=tokens, attn_implementation="sdpa")
    )


def gpt2(tokens: int) -> nn.Module:
    return transformers.GPT2LMHeadModel(transformers.GPT2Config(n_positions=tokens, attn_implementation="sdpa"))


MODELS: dict[str, Callable[[int], nn.Module]] = {"bert": bert, "gpt2": gpt2}


def works(build: Callable[[int], nn.Module], tokens: int) -> dict[str, Callable[[], object]]:
    """Return a forward and a training step of a model."""
    model = build(tokens)
    ids = torch.randint(1000, 20_000, (1, tokens))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5, fused=True)

    def forward() -> None:
        model.eval()
        with torch.inference_mode():
            model(ids)

    def step() -> None:
        model.train()
        model(ids, labels=ids).loss.backward()
        optimizer.step()
        optimizer.zero_grad()

    return {"forward": forward, "training step": step}


def on_side(side: str, work: Callable[[], object]) -> None:
    """Run the work with PyTorch only, or with attent's kernels active."""
    if side == "PyTorch":
        work()
        return
    activate_flash_attention_impl("attent")  # pyright: ignore[reportArgumentType]
    try:
        work()
    finally:
        restore_flash_attention_impl()


def seconds(work: Callable[[], object], rounds: int) -> dict[str, float]:
    """Return the shortest time of each side; the sides alternate.

    With one thread it is processor time, which other programs disturb less.
    """
    clock = time.process_time if torch.get_num_threads() == 1 else time.perf_counter
    least = dict.fromkeys(SIDES, float("inf"))
    for number in range(rounds + 1):
        for side in SIDES:
            begin = clock()
            on_side(side, work)
            # the first round warms up
            least[side] = min(least[side], clock() - begin if number else float("inf"))
    return least


def shares(work: Callable[[], object], side: str) -> dict[str, float]:
    """Return each operator kind's share of the work's time."""
    with profile(activities=[ProfilerActivity.CPU]) as profiled:
        on_side(side, work)
    times: Counter[str] = Counter()
    for event in profiled.key_averages():
        kind = next((kind for kind, names in KINDS.items() if any(name in event.key for name in names)), "rest")
        times[kind] += event.self_cpu_time_total
    return {kind: times[kind] / times.total() for kind in (*KINDS, "rest")}


def measure(name: str, tokens: int, threads: int, rounds: int) -> None:
    """Measure a model at a length, and break down its time."""
    register(linear=True)
    torch.set_num_threads(threads)
    head(f"{name}, {tokens:,} tokens, batch 1, float32, seconds and shares of the time")
    rows: list[list[str]] = []
    for what, work in works(MODELS[name], tokens).items():
        times = seconds(work, rounds)
        for side in SIDES:
            kinds = [f"{share:.0%}" for share in shares(work, side).values()]
            rows.append([what, side, f"{times[side]:.2f}", f"{times['PyTorch'] / times[side]:.2f}", *kinds])
    table(["", "", "s", "×", *KINDS, "rest"], rows)


PARTS = {
    f"{name}-{tokens}-{threads}": partial(measure, name, tokens, threads, rounds)
    for name in MODELS
    for tokens, rounds in ((512, 5), (2048, 2))
    for threads in (1, 2)
}

if __name__ == "__main__":
    run(PARTS, __doc__)
