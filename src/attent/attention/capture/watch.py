"""watch(): capture the attention maps of a model without changing the model.

Our attention modules report their maps here; PyTorch's functions are patched while a model is watched.
"""

from __future__ import annotations

import difflib
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from types import TracebackType
from typing import Any, Self

import torch
from torch import Tensor, nn
from torch.fx import GraphModule
from torch.utils.hooks import RemovableHandle

from attent.attention.capture.attribution import LogitAttribution, attribute_logit
from attent.attention.capture.captured_maps import ConcatenatedMap, Snapshot, may_be_overwritten
from attent.attention.capture.coverage import advice_for_uncaptured, module_paths
from attent.attention.capture.derived_maps import (
    DerivedMaps,
    Projection,
    as_weight,
    gradient_maps,
    output_projection,
    rollout_maps,
)
from attent.attention.capture.growing import Beginning, share_keys
from attent.attention.capture.interventions import running_modules
from attent.attention.capture.patching import LOCK, CapturedCall, Patcher
from attent.attention.capture.stack import Token
from attent.attention.maps.attention_map import AttentionMap
from attent.attention.maps.contributions import HeadOutputs
from attent.attention.maps.statistics import TokenStatistics, token_statistics
from attent.errors import ArgumentError, UnseenError

WATCHERS: list[watch] = []


class watch(Mapping[str, AttentionMap]):  # noqa: N801 - used like a function: with attent.watch(model) as maps
    """An ordered mapping from a module's path in the model to its map, filled while the model runs.

    It captures our own modules, and in any PyTorch model the calls of `F.scaled_dot_product_attention`,
    `nn.MultiheadAttention` and `nn.Transformer`, which most of Hugging Face's models use by default, also under
    `generate`. When printed, it also lists the modules that look like attention but were not captured, with advice.
    Results stay the same, bit for bit.

    A call belongs to the innermost module that is running. Further calls of a module are named `name#2`, `name#3` and
    so on. Maps are detached and show the call as the model made it: its masks, biases and scale, before dropout; the
    row of a query that may see no key is as in PyTorch. Maps hold queries, keys and values, copied only where the model
    may overwrite them.

    A model under `torch.compile` runs as before, uncaptured, though PyTorch may compile it once more; within
    `torch.compiler.set_stance("force_eager")` its maps are captured.

    Example:
        >>> with attent.watch(model) as maps:
        ...     model(inputs)
        >>> maps["decoder.layers.3.cross_attention"].dense()

    Args:
        model: the model, or any part of it.
        gradients: whether to keep the graph of each call, which `gradients` needs, for as long as this mapping exists.
        own_thread: whether to capture only the calls of the thread that creates this mapping, so that threads may run
            and watch the same model at the same time.
        inputs: whether to keep the inputs of the model's last run, which `logit_attribution` needs.

    Raises:
        ArgumentError: `model` is not a PyTorch module.
    """

    def __init__(
        self, model: nn.Module, *, gradients: bool = False, own_thread: bool = False, inputs: bool = False
    ) -> None:
        if not isinstance(model, nn.Module):
            raise ArgumentError(f"watch takes a model, a torch.nn.Module, got {type(model).__name__}")
        self._name = type(model).__name__
        self._paths = module_paths(model)
        self._pending: list[tuple[str, AttentionMap]] = []  # reported, but not named yet
        self._named: dict[str, AttentionMap] = {}
        self._calls: Counter[str] = Counter()
        self._projections: dict[str, Tensor | str | None] = {}  # or the reason why one is not known, by path
        self.keeps_gradients = gradients
        self._thread = threading.get_ident() if own_thread else None
        self._model = model if inputs else None
        self._inputs: tuple[tuple[Any, ...], dict[str, Any]] | None = None
        self._hook: RemovableHandle | None = None

    def __enter__(self) -> Self:
        with LOCK:
            WATCHERS.append(self)
        PATCHER.patch(self._paths)
        if self._model is not None:
            self._hook = self._model.register_forward_pre_hook(self._keep_inputs, with_kwargs=True)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with LOCK:
            WATCHERS.remove(self)
        PATCHER.restore()
        if self._hook is not None:
            self._hook.remove()

    def __getitem__(self, path: str) -> AttentionMap:
        if path not in self._maps:
            nearest = difflib.get_close_matches(path, self._maps, n=1, cutoff=0.5)
            hint = f"did you mean {nearest[0]!r}?" if nearest else "print(seen) lists what was seen, and what was not"
            raise UnseenError(f"no map of {path!r} among the {len(self)} of {self._name}; {hint}")
        return self._maps[path]

    def __iter__(self) -> Iterator[str]:
        return iter(self._maps)

    def __len__(self) -> int:
        return len(self._maps)

    @property
    def _maps(self) -> dict[str, AttentionMap]:
        """All maps by name; names the maps reported since the last access."""
        for path, weights in self._pending:
            self._calls[path] += 1
            self._named[_call_name(path, self._calls[path])] = weights
        self._pending.clear()
        return self._named

    # compared and hashed by identity, whatever it contains
    __hash__, __eq__ = object.__hash__, object.__eq__  # pyright: ignore[reportAssignmentType]

    def __repr__(self) -> str:
        return f"watch({', '.join(f'{path}: {weights.shape}' for path, weights in self._maps.items())})"

    def __str__(self) -> str:
        """Return a line for each module: the shapes of its maps, or the reason why it has none."""
        lines = [
            f"{self._name}: {len(self)} {'map' if len(self) == 1 else 'maps'}"
            if self
            else f"{self._name}: nothing was seen"
        ]
        lines += [f"  {path or '(the model itself)'}  {self._shapes(path)}" for path in self._calls]
        kinds = {path: type(module).__name__ for module, path in self._paths.items()}
        missing: dict[tuple[str, str], list[str]] = {}
        for path, advice in advice_for_uncaptured(self._paths, self._calls.keys()).items():
            missing.setdefault((kinds[path], advice), []).append(path)
        for (kind, advice), paths in missing.items():
            more = f" and {len(paths) - 1} more" if len(paths) > 1 else ""
            lines.append(f"  not seen: {paths[0] or '(the model itself)'}{more} ({kind}): {advice}")
        return "\n".join(lines)

    def concatenated(self, path: str) -> AttentionMap:
        """Return all calls of one module as one map with their queries concatenated, such as the steps of `generate()`.

        The row of a step is zero at keys that were added later. If a search reorders its beams, a row belongs to the
        hypothesis that was in that place when the step was computed.

        Raises:
            UnseenError: there is no map of this path.
            ShapeError: the calls differ in batch or heads.
        """
        maps = [self[path]] + [self._maps[_call_name(path, call)] for call in range(2, self._calls[path] + 1)]
        return maps[0] if len(maps) == 1 else ConcatenatedMap(maps)

    def token_statistics(self, prompt: int) -> dict[str, TokenStatistics]:
        """Return statistics of the weights with which each token after a prompt was written, by path.

        They are computed from all calls of a module, by tiles of rows.

        Example:
            >>> with attent.watch(model) as seen:
            ...     model.generate(prompt, max_new_tokens=50)
            >>> seen.token_statistics(prompt.shape[1])["model.layers.3.self_attn"].entropy  # (B, H, 50)

        Args:
            prompt: the number of tokens of the prompt. Row prompt − 1 of a map writes the first token after it.

        Raises:
            ArgumentError: a map has fewer rows, or its weights are no distribution and have no sink.
            ShapeError: as of `concatenated`.
        """
        results: dict[str, TokenStatistics] = {}
        for path in (name for name in self if name in self._calls):
            weights = self.concatenated(path)
            call = weights.call
            if call.sink is None:
                weights.check_distribution("statistics of tokens")
            if not 1 <= prompt <= call.queries:
                raise ArgumentError(f"prompt must be from 1 to the {call.queries} rows of {path}, got {prompt}")
            with weights.tiles(range(prompt - 1, call.queries)) as tiles:
                results[path] = token_statistics(call, tiles, prompt)
        return results

    def norms(self, projections: Mapping[str, Projection] | None = None) -> DerivedMaps:
        """Return maps of the norms of what each key adds to an output, ‖αᵢⱼ f(xⱼ)‖, instead of the weights.

        For each head, f(x) = (x W^V + b^V) W^O. A large weight on a value of small norm adds little: Kobayashi et al.
        2020, §2.3 (arXiv:2004.10102). The maps have the same paths, rows, statistics and views; norms are nonnegative,
        and rows do not sum to one. They are computed when read, in memory linear in the sequence.

        Example:
            >>> seen.norms()["encoder.layer.3.attention.self"].top(3)

        Args:
            projections: for each path whose output projection W^O is not known, a linear layer, its weight (E, H·Dv),
                or None if the contexts are the output.

        Raises:
            ArgumentError: a value is not a projection, or a path has no maps. A map whose projection is not known
                raises this error when it is accessed.
        """
        own_weights = {path: as_weight(layer) for path, layer in (projections or {}).items()}
        for path in own_weights:
            # raises where there is no map
            self[path]

        def norms(path: str) -> AttentionMap:
            weights, module_path = self[path], path.partition("#")[0]
            if module_path not in own_weights or weights.outputs is None:
                return weights.norms()
            call = replace(weights.outputs, projection=_snapshot(own_weights[module_path])).norm_call(weights.call)
            return AttentionMap(call, weights.query, weights.key, is_detached=True)

        return DerivedMaps("norms", self._maps, norms)

    def gradients(self, output: Tensor) -> DerivedMaps:
        """Return maps of the weights times a number's gradients with respect to them, αᵢⱼ ∂y/∂αᵢⱼ of each head.

        To first order, this is what y loses if a weight is set to zero without renormalizing; `.dense().sum(1)` sums
        over the heads. The maps have the same paths, rows, statistics and views; values are signed, and rows do not sum
        to one. A single backward pass reaches the contexts of all calls, ∂y/∂αᵢⱼ = ∂y/∂cᵢ · vⱼ: the gradients of all
        pairs are never held.

        Example:
            >>> with attent.watch(model, gradients=True) as seen:
            ...     logits = model(inputs)
            >>> seen.gradients(logits[0, label])["encoder.layers.0.self_attention"]

        Args:
            output: y, a single number with its graph, such as a loss or one logit. The graph is kept.

        Raises:
            ArgumentError: `output` is not such a number, or this watch keeps no gradients. A map without a graph raises
                this error when it is accessed.
        """
        return gradient_maps(self._maps, output, keeps_gradients=self.keeps_gradients)

    def last_gradients(self, output: Tensor) -> dict[str, AttentionMap]:
        """Return the available gradients (none if `output` has no graph) and release the graph of the calls."""
        gradients = self.gradients(output).available() if output.requires_grad else {}
        for weights in self._maps.values():
            if weights.outputs is not None:
                weights.outputs.context = None
        return gradients

    def logit_attribution(self, token: Token | tuple[Token, Token], position: int = -1) -> LogitAttribution:
        """Return what each head, each MLP, the embedding and the biases add to a logit through the residual stream.

        The scales of all norms are those of the model's last run while it was watched, as constants; then the logit is
        a sum of these terms (Elhage et al. 2021, *A Mathematical Framework for Transformer Circuits*; Wang et al. 2022,
        §3.1, arXiv:2211.00593). The model runs once more, forward and backward. A logit with a soft cap is that before
        the cap.

        Example:
            >>> with attent.watch(model, inputs=True) as seen:
            ...     model(input_ids)
            >>> seen.logit_attribution((mary, john)).top(3)

        Args:
            token: the id of a token, or one for each sequence, (B,); or two of these: the logit of the first minus that
                of the second.
            position: the position of the logit.

        Raises:
            ArgumentError: this watch keeps no inputs, or the terms do not sum to the logit, as in a model whose output
                is not a linear function of its normalized hidden states.
        """
        if self._model is None or self._inputs is None:
            raise ArgumentError("attribution needs the inputs of a run: use attent.watch(model, inputs=True)")
        args, keywords = self._inputs
        return attribute_logit(self._model, args, keywords, token, position)

    def rollout(self) -> DerivedMaps:
        """Return `attent.rollout` through each layer of self-attention and those below it.

        Each map is (B, 1, T, T) and replaces the layer's weights, with the same path, rows, statistics and views. A map
        raises ArgumentError when it is accessed if it is not self-attention, or is a further call of a module whose
        calls may be stacked as layers, as in ALBERT.
        """
        return rollout_maps(self._maps)

    def _keep_inputs(self, module: nn.Module, args: tuple[Any, ...], keywords: dict[str, Any]) -> None:
        self._inputs = args, keywords

    def _shapes(self, path: str) -> str:
        calls = self._calls[path]
        first = str(self._maps[path].shape)
        return first if calls == 1 else f"{first} … {self._maps[_call_name(path, calls)].shape}, {calls} calls"

    def _innermost_module(self, modules: Iterable[nn.Module]) -> nn.Module | None:
        """Return the innermost running module that belongs to this model; None within a compiled graph."""
        for module in modules:
            if module in self._paths:
                return module
            if isinstance(module, GraphModule):
                return None
        return None

    def _projection(self, module: nn.Module, path: str) -> Tensor | str | None:
        """Return the output projection of a module, or the reason why it is not known."""
        if path not in self._projections:
            try:
                self._projections[path] = output_projection(
                    module, path, {path: module for module, path in self._paths.items()}
                )
            except ArgumentError as error:
                self._projections[path] = str(error)
        return self._projections[path]


def _call_name(path: str, call: int) -> str:
    return path if call == 1 else f"{path}#{call}"


def is_watched() -> bool:
    """Return whether a model is watched in this thread; attention modules make a map only then.

    False while a model is being compiled.
    """
    return not torch.compiler.is_compiling() and bool(WATCHERS) and bool(_watchers_of_thread())


def _watchers_of_thread() -> list[watch]:
    """Return the watches that capture this thread's calls; other watches may open and close meanwhile."""
    return [watcher for watcher in (*WATCHERS,) if watcher._thread in (None, threading.get_ident())]  # pyright: ignore[reportPrivateUsage]


def report(
    module: nn.Module | None,
    weights: AttentionMap,
    value: Tensor | None = None,
    context: Tensor | Sequence[Tensor] | None = None,
) -> None:
    """Report a map to all watches of the module, or of the innermost running module if none is given.

    Args:
        module: the module that attends.
        weights: its map.
        value: the values of the call.
        context: its contexts, or those of each query.
    """

    def make_map() -> AttentionMap:
        detached = share_keys(weights)
        if value is not None:
            snapshot = Snapshot.of_parameter(value) if may_be_overwritten(value) else Beginning(value)
            detached.outputs = HeadOutputs(snapshot.get, weights.call.dropout)
        return detached

    modules = running_modules(sys._getframe(1)) if module is None else iter((module,))
    _add_map_to_watchers(CapturedCall(modules, make_map, context))


def _add_map_to_watchers(call: CapturedCall) -> None:
    """Add the map of a call to every watch of the calling module; without one, no map is made."""
    watchers = _watchers_of_thread()
    modules = list(call.modules) if len(watchers) > 1 else call.modules
    weights = None
    for watcher in watchers:
        module = watcher._innermost_module(modules)  # pyright: ignore[reportPrivateUsage]
        if module is not None:
            path = watcher._paths[module]  # pyright: ignore[reportPrivateUsage]
            weights = call.make_map() if weights is None else weights
            outputs = weights.outputs
            if outputs is not None:
                if isinstance(outputs.projection, str):
                    outputs.projection = _snapshot(watcher._projection(module, path))  # pyright: ignore[reportPrivateUsage]
                if watcher.keeps_gradients:
                    outputs.context = call.context
            # naming the map can wait until it is read: the model is running
            watcher._pending.append((path, weights))  # pyright: ignore[reportPrivateUsage]


def _snapshot(projection: Tensor | str | None) -> Callable[[], Tensor] | str | None:
    """Return a function that returns a parameter unless it was changed in place; return anything else as it is."""
    return Snapshot.of_parameter(projection).get if isinstance(projection, Tensor) else projection


PATCHER = Patcher(_add_map_to_watchers)
