"""A Qwen 3 of 0.6B's shape, random weights, float32: its attention, prefill and tokens a second, and their capture.

scripts/bench language_models [attention model]
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import torch
from _sides import Work, head, milliseconds, run, table
from dot import rates_of_products
from torch.nn import functional as F

import attent
from attent.attention import attend

HEADS, GROUPS, WIDTH, LAYERS = 16, 8, 128, 28
# Prompts, and the rounds in which the sides of the whole model take turns.
LENGTHS, ROUNDS = (2000, 8000), {2000: 2, 8000: 1}
NEW_TOKENS = 16
SHAPE = {
    "vocab_size": 151936, "hidden_size": 1024, "intermediate_size": 3072, "num_hidden_layers": LAYERS,
    "num_attention_heads": HEADS, "num_key_value_heads": GROUPS, "head_dim": WIDTH, "max_position_embeddings": 40960,
    "tie_word_embeddings": True, "bos_token_id": None, "eos_token_id": None, "pad_token_id": None,
}  # fmt: skip


def rate_of_a_thread() -> float:
    """Return the rate of the faster product of matrices that fit in the cache, in GFLOP/s of one thread."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    rate = max(rates_of_products().values())
    torch.set_num_threads(threads)
    return rate


@torch.no_grad()
def attention() -> None:
    """Measure one layer's causal attention of a prompt."""
    head(f"Attention of a layer: {HEADS} heads of {WIDTH}, {GROUPS} of keys, causal, float32, without gradients")
    threads, peak = torch.get_num_threads(), rate_of_a_thread()
    print(f"The peak is the faster product of 384 × 384 × 384 on one thread, {peak:.0f} GFLOP/s; {threads} threads.\n")
    rows = []
    for length in LENGTHS:
        query = torch.randn(1, HEADS, length, WIDTH)
        key, value = (torch.randn(1, GROUPS, length, WIDTH) for _ in range(2))
        sides = layer_sides(query, key, value)
        if length < 4000:
            sides["eager"] = lambda q=query, k=key, v=value: eager(q, k, v)
        times = milliseconds(sides, rounds=5, seconds=6)
        work = 2 * HEADS * length * (length + 1) * WIDTH / 1e6
        rates = [f"{work / times['attent']:,.0f}", f"{work / times['attent'] / peak / threads:.0%}"]
        cells = [f"{times[name]:,.0f}" if name in times else "—" for name in ("eager", "sdpa", "attent")]
        rows.append([f"{length:,}", *cells, f"{times['sdpa'] / times['attent']:.2f}", *rates])
    table(["T", "eager, ms", "sdpa, ms", "attent, ms", "sdpa / attent", "attent, GFLOP/s", "share of the peak"], rows)


def layer_sides(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor) -> dict[str, Work]:
    """Return what computes a layer's causal attention, by side."""
    return {
        "sdpa": lambda: F.scaled_dot_product_attention(query, key, value, is_causal=True, enable_gqa=True),
        "attent": lambda: attend(query, key, value, mask="causal"),
    }


def eager(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
    """The formula that eager code of transformers computes."""
    key, value = (side.repeat_interleave(HEADS // GROUPS, 1) for side in (key, value))
    scores = query @ key.mT * WIDTH**-0.5
    hidden = torch.ones(scores.shape[-2:], dtype=torch.bool).triu(1)
    return scores.masked_fill(hidden, -torch.inf).softmax(-1) @ value


@torch.no_grad()
def model() -> None:
    """Measure prefill and steps of the whole model, and what it costs to capture its attention."""
    from transformers import Qwen3Config, Qwen3ForCausalLM

    from attent.integrations.transformers import register

    register()
    torch.manual_seed(0)
    built = Qwen3ForCausalLM._from_config(Qwen3Config(**SHAPE), attn_implementation="attent").eval()
    head(f"Qwen 3 of 0.6B's shape, random weights, float32: prefill, and {NEW_TOKENS} steps after it")
    for length in LENGTHS:
        rows = []
        prompt = torch.randint(0, SHAPE["vocab_size"], (1, length))
        names = ("eager", "sdpa", "attent") if length < 4000 else ("sdpa", "attent")
        sides: dict[str, Callable[[], tuple[float, float]]] = {
            name: lambda name=name, prompt=prompt: generated(built, name, prompt) for name in names
        }
        sides["attent, one head's rows"] = lambda prompt=prompt: one_head(built, prompt)
        sides["attent, all statistics"] = lambda prompt=prompt: all_statistics(built, prompt)
        best: dict[str, tuple[float, float]] = {}
        for _ in range(ROUNDS[length]):
            for name, work in sides.items():
                measured = work()
                best[name] = tuple(map(min, measured, best.get(name, measured)))  # pyright: ignore[reportArgumentType]
        for name, (prefill, steps) in best.items():
            total = prefill + steps
            relative = total / sum(best["attent"])
            rows.append(
                [
                    f"{length:,}, {name}",
                    f"{prefill:.2f}",
                    f"{NEW_TOKENS / steps:.2f}",
                    f"{total:.2f}",
                    f"{relative:.3f}",
                ]
            )
        table(["prompt, side", "prefill, s", "tokens/s", "both, s", "× attent's"], rows)
        print("\n" + allowed(length, {name: best[name][0] for name in ("sdpa", "attent")}) + "\n", flush=True)


def allowed(length: int, prefill: dict[str, float]) -> str:
    """Say what the faster attention allows for a prefill, all else being as fast as beside sdpa."""
    query = torch.randn(1, HEADS, length, WIDTH)
    key, value = (torch.randn(1, GROUPS, length, WIDTH) for _ in range(2))
    times = milliseconds(layer_sides(query, key, value), rounds=5, seconds=6)
    attended = {name: LAYERS * time / 1e3 for name, time in times.items()}
    best = prefill["sdpa"] - attended["sdpa"] + attended["attent"]
    return (
        f"Outside attention, sdpa's prefill spends {1 - attended['sdpa'] / prefill['sdpa']:.0%}; with attention "
        f"{times['sdpa'] / times['attent']:.2f} × as fast it would take {best:.2f} s: "
        f"{best / prefill['attent']:.2f} of what attent's takes."
    )


def generated(
    built: Any, implementation: str, prompt: torch.Tensor, after_step: Callable[[], object] = lambda: None
) -> tuple[float, float]:
    """Return the seconds of the prefill, and of the steps after it."""
    built.set_attn_implementation(implementation)
    begin = time.perf_counter()
    outputs = built(prompt, logits_to_keep=1, use_cache=True)
    after_step()
    middle = time.perf_counter()
    for _ in range(NEW_TOKENS):
        token = outputs.logits[:, -1:].argmax(-1)
        outputs = built(token, cache=outputs.cache, use_cache=True)
        after_step()
    return middle - begin, time.perf_counter() - middle


def one_head(built: Any, prompt: torch.Tensor) -> tuple[float, float]:
    """Measure with the rows of one head read after every step."""
    with attent.watch(built) as seen:

        def read() -> object:
            return seen[[*seen][-1 - LAYERS // 2]][0, 3, -1]

        return generated(built, "attent", prompt, read)


def all_statistics(built: Any, prompt: torch.Tensor) -> tuple[float, float]:
    """Measure with the statistics of every head and new token, read at the end."""
    with attent.watch(built) as seen:
        prefill, steps = generated(built, "attent", prompt)
    begin = time.perf_counter()
    seen.token_statistics(prompt.shape[1])
    return prefill, steps + time.perf_counter() - begin


if __name__ == "__main__":
    run({"attention": attention, "model": model}, __doc__)
