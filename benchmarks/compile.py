"""torch.compile on a CPU: attent eager and compiled, beside PyTorch's attention eager and compiled.

scripts/bench compile [attend bert llama] [--small]
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from _sides import head, milliseconds, table
from dot import SIDE, rates_of_products
from torch import Tensor
from torch.nn import functional as F

from attent.attention import attend

SHAPES = ((8, 8, 256, 64), (1, 8, 1024, 64), (1, 8, 2048, 64), (32, 12, 128, 64))
SIDES = ("attent", "attent, compiled", "PyTorch", "PyTorch, compiled")


def measure(
    name: str, attent: Callable[[], Tensor], pytorch: Callable[[], Tensor], leaves: list[Tensor], operations: float
) -> list[list[str]]:
    """Measure the four sides in turn, and return a row for the forward and one with gradients.

    Args:
        name: what is computed.
        attent: computes it by attent.
        pytorch: computes it by PyTorch.
        leaves: the tensors whose gradients are taken.
        operations: the additions and multiplications of the forward; gradients count twice as many again.
    """
    calls = [attent, torch.compile(attent, fullgraph=True, dynamic=False)]
    calls += [pytorch, torch.compile(pytorch, dynamic=False)]
    rows = []
    for has_gradients in (False, True):
        with torch.set_grad_enabled(has_gradients):
            contexts = [call().detach() for call in calls]
            difference, upstream = float((contexts[1] - contexts[2]).abs().max()), torch.randn_like(contexts[0])

            def backward(call: Callable[[], Tensor], upstream: Tensor = upstream) -> object:
                return torch.autograd.grad(call(), leaves, upstream, allow_unused=True)

            works: dict[str, Callable[[], object]] = {
                side: partial(backward, call) if has_gradients else call
                for side, call in zip(SIDES, calls, strict=True)
            }
            times = milliseconds(works, rounds=ROUNDS, seconds=SECONDS)
        total = operations * (3 if has_gradients else 1)
        rows.append(
            [
                f"{name}{', with gradients' if has_gradients else ''}",
                *(f"{times[side]:.3g} ({total / times[side] / 1e6 / PEAK:.0%})" for side in SIDES),
                f"{times['attent, compiled'] / times['attent']:.3f}",
                f"{times['PyTorch, compiled'] / times['attent, compiled']:.2f}",
                f"{difference:.1e}",
            ]
        )
        print(f"| {' | '.join(rows[-1])} |", flush=True)
    return rows


COLUMNS = [
    "",
    *(f"{side}, ms (share of the peak)" for side in SIDES),
    "attent, compiled / eager",
    "compiled: PyTorch / attent",
    "largest difference",
]


def attention(is_small: bool) -> None:
    """Measure attend: all pairs, causal, and with padding."""
    head("attend and scaled_dot_product_attention, eager and compiled, float32, one thread")
    table(COLUMNS, [])
    for batch, heads, length, width in ((2, 2, 64, 32),) if is_small else SHAPES:
        leaves = [torch.randn(batch, length, heads, width).transpose(1, 2).requires_grad_() for _ in range(3)]
        lengths = torch.full((batch,), length - length // 8)
        padding = (torch.arange(length) < lengths[:, None])[:, None, None]
        forms: dict[str, tuple[dict[str, Any], dict[str, Any], float]] = {
            "all pairs": ({}, {}, 1),
            "causal": ({"mask": "causal"}, {"is_causal": True}, 0.5),
            "padding": ({"lengths": lengths, "query_start": 0}, {"attn_mask": padding}, 7 / 8),
        }
        for name, (ours, theirs, share) in forms.items():
            torch.compiler.reset()
            measure(
                f"{(batch, heads, length, width)}, {name}",
                lambda leaves=leaves, ours=ours: attend(*leaves, **ours),
                lambda leaves=leaves, theirs=theirs: F.scaled_dot_product_attention(*leaves, **theirs),
                leaves,
                4 * batch * heads * length**2 * width * share,
            )


def model(kind: str, config: Any, shape: tuple[int, int], options: dict[str, Any], share: float) -> None:
    """Measure a model of transformers with random weights, whose attention is attent's and PyTorch's."""
    import transformers

    from attent.integrations.transformers import register

    register()
    batch, length = shape
    sizes = f"{config.num_hidden_layers} layers, E = {config.hidden_size}, {batch} × {length} tokens"
    head(f"{kind}, {sizes}, random weights, no dropout, float32, one thread, eager and compiled")
    table(COLUMNS, [])
    models = []
    for name in ("attent", "sdpa"):
        torch.manual_seed(0)
        models.append(getattr(transformers, kind)._from_config(config, attn_implementation=name).train())
    ids = torch.randint(3, config.vocab_size, shape)
    weights = sum(layer.weight.numel() for layer in models[0].modules() if isinstance(layer, torch.nn.Linear))
    pairs = config.num_hidden_layers * batch * length**2 * config.hidden_size * share
    torch.compiler.reset()
    # gradients of the parameters of both, of which each side has its own
    leaves = [parameter for built in models for parameter in built.parameters()]
    calls = [lambda built=built: built(ids, **options)[0] for built in models]
    measure(kind, calls[0], calls[1], leaves, 2 * weights * batch * length + 4 * pairs)


def bert(is_small: bool) -> None:
    """Measure the layers of a BERT of base size."""
    from transformers import BertConfig

    none = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
    sizes = {"hidden_size": 64, "num_attention_heads": 4, "intermediate_size": 128} if is_small else {}
    config = BertConfig(num_hidden_layers=1 if is_small else 4, **sizes, **none)
    model("BertModel", config, (2, 32) if is_small else (8, 128), {}, 1)


def llama(is_small: bool) -> None:
    """Measure layers in the shape of a Llama, whose heads share keys in fours."""
    from transformers import LlamaConfig

    sizes = (64, 4, 1, 128) if is_small else (1024, 16, 4, 2816)
    names = "hidden_size", "num_attention_heads", "num_key_value_heads", "intermediate_size"
    config = LlamaConfig(
        num_hidden_layers=1 if is_small else 4, vocab_size=1000, **dict(zip(names, sizes, strict=True))
    )
    model("LlamaModel", config, (2, 32) if is_small else (2, 512), {"use_cache": False}, 0.5)


PARTS = {"attend": attention, "bert": bert, "llama": llama}
parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("parts", nargs="*", help=f"any of {', '.join(PARTS)}; default: all")
parser.add_argument("--small", action="store_true", help="small sizes and few rounds, to try the benchmark")

if __name__ == "__main__":
    arguments = parser.parse_args()
    torch.manual_seed(0)
    torch.set_num_threads(1)
    ROUNDS, SECONDS = (2, 0.1) if arguments.small else (15, 5.0)
    PEAK = max(rates_of_products(0.2 if arguments.small else 4.0).values())
    print(f"The peak is {PEAK:.0f} GFLOP/s, that of PyTorch's faster product of {SIDE} × {SIDE} × {SIDE}.")
    for part in arguments.parts or PARTS:
        PARTS[part](arguments.small)
