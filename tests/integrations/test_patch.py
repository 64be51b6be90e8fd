"""`attent.patch` beside the plain way: a whole run of an eager model for every head, changed by hooks."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch
from torch import Tensor

import attent
from attent.attention.capture import patch as patching
from attent.errors import UnseenError

RIGHT, WRONG = torch.tensor([3, 5, 7, 11]), 4
ATTENDING = ("gpt2", "llama", "qwen3", "gemma3", "gpt_oss", "phi")
IMPLEMENTATIONS = [
    *((name, "attent") for name in ATTENDING),
    *((name, "sdpa") for name in ATTENDING if name != "gpt_oss"),
]


def difference(logits: Tensor) -> Tensor:
    return logits[torch.arange(4), -1, RIGHT] - logits[:, -1, WRONG]


def projection_of(model: Any, path: str) -> Any:
    module = model.get_submodule(path)
    return getattr(module, "c_proj", None) or getattr(module, "o_proj", None) or module.dense


@contextmanager
def projected(model: Any, path: str, change: Callable[[Tensor], Tensor | None]) -> Iterator[None]:
    """Call a function with the contexts (B, T, H·Dv) of a module, and use those that it returns, if any."""

    def hook(module: Any, args: Any) -> Any:
        changed = change(args[0])
        return None if changed is None else (changed,)

    handle = projection_of(model, path).register_forward_pre_hook(hook)
    try:
        yield
    finally:
        handle.remove()


@contextmanager
def attending(model: Any, path: str, change: Callable[..., Tensor | None]) -> Iterator[None]:
    """Use the contexts (B, T, H, Dv) that a function returns from what the eager attention of a module gets."""
    module = model.get_submodule(path)
    namespace = vars(sys.modules[type(module).__module__])
    original = namespace["eager_attention_forward"]

    def eager(own: Any, query: Tensor, key: Tensor, value: Tensor, mask: Any, **options: Any) -> Any:
        context, weights = original(own, query, key, value, mask, **options)
        if own is not module:
            return context, weights
        changed = change(lambda *sides: original(own, *sides, mask, **options)[0], query, key, value, context)
        return context if changed is None else changed, weights

    namespace["eager_attention_forward"] = eager
    try:
        yield
    finally:
        namespace["eager_attention_forward"] = original


def outputs_by_hooks(decoder: Any, path: str, head: int, heads: int, position: int | None) -> Tensor:
    model, clean, corrupt = decoder.model, decoder.clean, decoder.corrupt
    contexts: list[Tensor] = []
    with projected(model, path, contexts.append):  # pyright: ignore[reportArgumentType]
        model(clean)

    def put(context: Tensor) -> Tensor:
        own, new = (part.clone().unflatten(-1, (heads, -1)) for part in (context, contexts[0]))
        rows = slice(None) if position is None else slice(position, position + 1)
        own[:, rows, head] = new[:, rows, head]
        return own.flatten(2)

    with projected(model, path, put):
        return difference(model(corrupt).logits)


def sides_by_hooks(decoder: Any, path: str, head: int, activation: str, position: int | None) -> Tensor:
    model, clean, corrupt = decoder.model, decoder.clean, decoder.corrupt
    sides: list[Tensor] = []
    with attending(model, path, lambda _, *parts: sides.extend(parts[:3])):
        model(clean)
    queries, keys, values = sides
    rows = slice(None) if position is None else slice(position, position + 1)

    def put(attend: Any, query: Tensor, key: Tensor, value: Tensor, context: Tensor) -> Tensor:
        query, key, value, context = (part.clone() for part in (query, key, value, context))
        if activation == "weights":
            new = attend(queries, keys, value)
        else:
            for name, own, source in (("queries", query, queries), ("keys", key, keys), ("values", value, values)):
                if name == activation:
                    own[:, :, rows] = source[:, :, rows]
            new = attend(query, key, value)
        only = rows if activation in ("weights", "queries") else slice(None)
        context[:, only, head] = new[:, only, head]
        return context

    with attending(model, path, put):
        return difference(model(corrupt).logits)


@pytest.mark.parametrize(("name", "implementation"), [*IMPLEMENTATIONS, ("openai", "eager"), ("llama", "eager")])
@pytest.mark.parametrize("activation", ["output", "weights", "queries", "keys", "values"])
@torch.no_grad()
def test_effects_are_those_of_whole_runs_with_hooks(
    decoder: Any, name: str, implementation: str, activation: Any
) -> None:
    eager, own = decoder(name, "eager"), decoder(name, implementation)
    if implementation == "eager" and activation != "output":
        with pytest.raises(UnseenError, match="cannot be patched"):
            attent.patch(own.model, own.clean, own.corrupt, (RIGHT, WRONG), activation=activation)
        return
    for by_position in (False, True):
        result = attent.patch(
            own.model, own.clean, own.corrupt, (RIGHT, WRONG), activation=activation, by_position=by_position
        )
        assert result.paths == tuple(own.paths)
        for expected, values in ((eager.clean, result.clean), (eager.corrupt, result.corrupt)):
            torch.testing.assert_close(values.float(), difference(eager.model(expected).logits), atol=1e-5, rtol=1e-5)
        heads = result.values.shape[1]
        moved = 0.0
        for layer, path in enumerate(own.paths):
            for head in range(0, heads, 2):
                position = 4 if by_position else None
                values = result.values[layer, head, 4] if by_position else result.values[layer, head]
                if activation == "output":
                    plain = outputs_by_hooks(eager, path, head, heads, position)
                else:
                    plain = sides_by_hooks(eager, path, head, activation, position)
                torch.testing.assert_close(values.float(), plain, atol=1e-5, rtol=1e-5)
                moved = max(moved, (plain - result.corrupt).abs().max().item())
        # the comparison is of runs that differ
        assert moved > 1e-2


@torch.no_grad()
def test_layers_below_are_left_out_and_the_last_one_computes_one_position(decoder: Any) -> None:
    own, runs = decoder("gpt2", "sdpa"), []

    def count(number: int) -> Callable[..., None]:
        return lambda _, args, __: runs.append((number, args[0].shape[:2].numel()))

    handles = [block.mlp.register_forward_hook(count(number)) for number, block in enumerate(own.model.transformer.h)]
    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.setattr(patching, "BATCH_TOKENS", 1)
        attent.patch(own.model, own.clean, own.corrupt, (RIGHT, WRONG))
    for handle in handles:
        handle.remove()
    heads = [[(0, 28), (1, 28), (2, 4)], [(1, 28), (2, 4)], [(2, 4)]]
    assert runs[-9 * 2 :] == [run for layer in heads for run in layer * 3]
