"""Activation patching of every head of a model of GPT-2's shape, beside a loop of whole runs with hooks.

    scripts/bench patching [--layers 12] [--pairs 50] [--tokens 30] [--rounds 3]

Each side runs in a process of its own, in turn; the memory of a process is measured above what it needs before its
first forward. "Two forwards" runs the model on the clean and on the corrupt inputs, with all logits.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import Any

import torch
from _machine import peak_memory, run_in_process
from _sides import head, table
from torch import Tensor

import attent

SIDES = ("two forwards", "loop", "attent.patch")


def model_and_inputs(layers: int, pairs: int, tokens: int) -> tuple[Any, Tensor, Tensor, Tensor, Tensor]:
    """Return a model of random weights, clean and corrupt inputs, and the right and wrong tokens of each pair."""
    import transformers

    torch.manual_seed(0)
    model = transformers.GPT2LMHeadModel(transformers.GPT2Config(n_layer=layers)).eval()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "c_attn.weight" in name:
                parameter.mul_(4)
    clean, corrupt = torch.randint(0, model.config.vocab_size, (2, pairs, tokens))
    right, wrong = torch.randint(0, model.config.vocab_size, (2, pairs))
    return model, clean, corrupt, right, wrong


def loop(model: Any, clean: Tensor, corrupt: Tensor, right: Tensor, wrong: Tensor) -> Tensor:
    """Return the values (L, H, B) of whole runs, each with the context of one head from the clean run."""
    blocks, heads = model.transformer.h, model.config.n_head
    contexts: list[Tensor] = []
    projections = [block.attn.c_proj for block in blocks]
    handles = [
        projection.register_forward_pre_hook(lambda _, args: contexts.append(args[0].clone()))
        for projection in projections
    ]
    model(clean)
    for handle in handles:
        handle.remove()
    rows, values = torch.arange(len(clean)), list[Tensor]()
    for layer, projection in enumerate(projections):
        for number in range(heads):

            def put(module: Any, args: Any, layer: int = layer, number: int = number) -> Any:
                context = args[0].clone()
                context.unflatten(-1, (heads, -1))[:, :, number] = contexts[layer].unflatten(-1, (heads, -1))[
                    :, :, number
                ]
                return (context,)

            handle = projection.register_forward_pre_hook(put)
            logits = model(corrupt).logits[:, -1]
            handle.remove()
            values.append(logits[rows, right] - logits[rows, wrong])
    return torch.stack(values).reshape(len(blocks), heads, -1)


@torch.no_grad()
def measure(side: str, layers: int, pairs: int, tokens: int) -> tuple[float, float, list[float]]:
    """Return the seconds, the added memory in MiB, and the values of a side."""
    model, *inputs = model_and_inputs(layers, pairs, tokens)
    # code and buffers that any first forward needs
    model(inputs[0][:1, :2])
    # Linux: the peak restarts at the memory now in use
    Path("/proc/self/clear_refs").write_text("5", encoding="ascii")
    before, begin = peak_memory() or float("nan"), time.perf_counter()
    values = torch.zeros(0)
    if side == "two forwards":
        runs = [model(tokens).logits for tokens in inputs[:2]]
        values = torch.stack([run[:, -1].mean() for run in runs])
    elif side == "loop":
        values = loop(model, *inputs)
    else:
        values = attent.patch(model, inputs[0], inputs[1], (inputs[2], inputs[3])).values
    seconds = time.perf_counter() - begin
    return seconds, (peak_memory() or float("nan")) - before, values.flatten().tolist()


def main() -> None:
    """Measure all sides in turn, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    for name, default in (("layers", 12), ("pairs", 50), ("tokens", 30), ("rounds", 3)):
        parser.add_argument(f"--{name}", type=int, default=default)
    options = parser.parse_args()
    shape = options.layers, options.pairs, options.tokens
    head(f"Patching {shape[0]} × 12 heads, {shape[1]} pairs of {shape[2]} tokens, {torch.get_num_threads()} threads")
    times: dict[str, list[float]] = {side: [] for side in SIDES}
    memory, values = dict[str, float](), dict[str, Tensor]()
    for _ in range(options.rounds):
        for side in SIDES:
            seconds, memory[side], numbers = run_in_process(measure, side, *shape)
            times[side].append(seconds)
            values[side] = torch.tensor(numbers)
    best = {side: min(seconds) for side, seconds in times.items()}
    rows = [
        [
            side,
            f"{best[side]:.1f}",
            f"{best['loop'] / best[side]:.2f}",
            f"{memory[side]:.0f}",
            f"{memory[side] / memory['two forwards']:.2f}",
        ]
        for side in SIDES
    ]
    table(["", "seconds", "× as fast as the loop", "added memory, MiB", "of two forwards"], rows)
    difference = (values["loop"] - values["attent.patch"]).abs().max() / values["loop"].abs().max()
    print(f"\nLargest difference of a value, of the largest value: {difference:.1e}.")


if __name__ == "__main__":
    main()
