"""`attent.patch` beside the plain way: a whole run of an eager model for every head, changed by hooks."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor

import attent
from attent.attention.capture import patch as patching
from attent.errors import ArgumentError, UnseenError

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


@pytest.mark.parametrize("name", [*ATTENDING, "openai"])
def test_every_architecture_is_resumed_and_computes_single_positions(decoder: Any, name: str) -> None:
    own = decoder(name, "eager")
    experiment = patching.Experiment(own.model, (RIGHT, WRONG), has_calls=False)
    with torch.no_grad():
        base, _ = patching.recorded(experiment, experiment.arguments(own.clean, own.corrupt), "noise")
    assert base.run is not None and experiment.stack is not None and experiment._trims  # pyright: ignore[reportPrivateUsage]
    with pytest.raises(ArgumentError, match="from -7 to 6, got 7"):
        attent.patch(own.model, own.clean, own.corrupt, attent.logit_difference(RIGHT, WRONG, 7))


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


def paths_by_hooks(decoder: Any, sender: tuple[int, int], receivers: list[tuple[int, int]], into: str) -> Tensor:
    """The effect of a sender by whole runs of an eager model: freeze, record, patch (Wang et al. 2022, §3.1)."""
    model, paths = decoder.model, decoder.paths
    heads = model.config.num_attention_heads
    (layer, head), contexts, frozen = sender, list[Tensor](), dict[str, Tensor]()
    with projected(model, paths[layer], contexts.append):  # pyright: ignore[reportArgumentType]
        model(decoder.clean)
    modules = {path: model.get_submodule(path) for path in paths}
    hooks = [
        module.register_forward_hook(lambda *call, path=path: frozen.update({path: call[2][0]}))
        for path, module in modules.items()
    ]
    model(decoder.corrupt)
    for hook in hooks:
        hook.remove()
    hooks = [
        module.register_forward_hook(lambda *call, path=path: type(call[2])((frozen[path], *call[2][1:])))
        for path, module in modules.items()
        if path != paths[layer]
    ]
    sides: dict[str, tuple[Tensor, ...]] = {}

    def put(context: Tensor) -> Tensor:
        own, new = (part.clone().unflatten(-1, (heads, -1)) for part in (context, contexts[0]))
        own[:, :, head] = new[:, :, head]
        return own.flatten(2)

    with ExitStack() as stack:
        stack.enter_context(projected(model, paths[layer], put))
        for number in {number for number, _ in receivers}:
            keep = lambda _, *parts, number=number: sides.update({number: parts[:3]})  # noqa: E731
            stack.enter_context(attending(model, paths[number], keep))
        logits = model(decoder.corrupt).logits
    for hook in hooks:
        hook.remove()
    if not receivers:
        return difference(logits)

    def receive(number: int, attend: Any, query: Tensor, key: Tensor, value: Tensor, context: Tensor) -> Tensor:
        new = {"queries": query, "keys": key, "values": value}
        new[into] = sides[number][["queries", "keys", "values"].index(into)]
        mixed, context = attend(*new.values()), context.clone()
        for own, receiver in receivers:
            if own == number:
                context[:, :, receiver] = mixed[:, :, receiver]
        return context

    with ExitStack() as stack:
        for number in {number for number, _ in receivers if number > layer}:
            stack.enter_context(attending(model, paths[number], partial(receive, number)))
        return difference(model(decoder.corrupt).logits)


@pytest.mark.parametrize("into", ["queries", "keys", "values"])
@pytest.mark.parametrize(("name", "implementation"), IMPLEMENTATIONS)
@torch.no_grad()
def test_paths_are_those_of_whole_runs_with_hooks(decoder: Any, name: str, implementation: str, into: Any) -> None:
    eager, own = decoder(name, "eager"), decoder(name, implementation)
    receivers = [(1, 1), (2, 0), (2, 2)]
    result = attent.patch_paths(own.model, own.clean, own.corrupt, (RIGHT, WRONG), receivers, into=into)
    direct = attent.patch_paths(own.model, own.clean, own.corrupt, (RIGHT, WRONG))
    for sender in ((0, 0), (0, 2), (1, 1)):
        for expected, values in ((receivers, result.values), ([], direct.values)):
            plain = paths_by_hooks(eager, sender, expected, into)
            torch.testing.assert_close(values[sender].float(), plain, atol=1e-5, rtol=1e-5)
    assert torch.equal(result.values[2], result.corrupt.expand_as(result.values[2]))
    moves = [(values - result.corrupt).abs().max() for values in (result.values[0], result.values[1], direct.values[2])]
    assert min(moves) > 1e-3


@torch.no_grad()
def test_an_attention_that_computes_itself_has_outputs_and_paths_to_the_logits_alone(decoder: Any) -> None:
    own = decoder("openai", "eager")
    result = attent.patch_paths(own.model, own.clean, own.corrupt, (RIGHT, WRONG))
    for sender in ((0, 0), (2, 1)):
        plain = paths_by_hooks(own, sender, [], "keys")
        torch.testing.assert_close(result.values[sender].float(), plain, atol=1e-5, rtol=1e-5)
    with pytest.raises(UnseenError, match="cannot be patched"):
        attent.patch_paths(own.model, own.clean, own.corrupt, (RIGHT, WRONG), [(1, 0)])
