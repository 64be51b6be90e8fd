"""Maps derived from those that `watch` captured, by the same paths.

These are norms (with the search for output projections), gradients and rollout.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Protocol, runtime_checkable

import torch
from torch import Tensor, nn

from attent.attention.capture.coverage import used_globals
from attent.attention.maps.attention_map import AttentionMap
from attent.attention.maps.rollout import RolloutMap
from attent.errors import ArgumentError, UnseenError, refuse

# A layer's number in the path of a module.
LAYER_NUMBER = re.compile(r"(?<=\.)\d+(?=\.|$)|^\d+(?=\.|$)")
# GPT-2's and Transformer-XL's relatives, Llama's, T5's, DistilBERT's, BART's and PyTorch's, GPT-NeoX' and Falcon's,
# vision models'.
NAMES = ("c_proj", "o_proj", "o", "out_lin", "out_proj", "dense", "proj", "output", "to_out", "wo")
# Modules and parameters that change the contexts before they are projected.
BETWEEN = re.compile(r"gate|sub_?norm|sub_?ln|lambda|inner_attn_ln", re.IGNORECASE)
Projection = nn.Linear | Tensor | None


class DerivedMaps(Mapping[str, AttentionMap]):
    """A mapping of maps derived from other maps, by the same paths, each computed at the first access.

    Args:
        name: the kind of map, for messages.
        maps: the maps to derive from.
        derive: a function that returns the map of a path, or raises ArgumentError if there is none.
    """

    def __init__(self, name: str, maps: Mapping[str, AttentionMap], derive: Callable[[str], AttentionMap]) -> None:
        self._name, self._paths, self._derive = name, (*maps,), derive
        self._cache: dict[str, AttentionMap] = {}

    def __getitem__(self, path: str) -> AttentionMap:
        if path not in self._cache:
            if path not in self._paths:
                raise UnseenError(
                    f"no {self._name} of {path!r}; there are maps of {', '.join(map(repr, self._paths)) or 'nothing'}"
                )
            self._cache[path] = self._derive(path)
        return self._cache[path]

    def available(self) -> dict[str, AttentionMap]:
        """Return the maps that can be computed, leaving out each path whose map raises ArgumentError."""
        maps: dict[str, AttentionMap] = {}
        for path in self._paths:
            with suppress(ArgumentError):
                maps[path] = self[path]
        return maps

    def __iter__(self) -> Iterator[str]:
        return iter(self._paths)

    def __len__(self) -> int:
        return len(self._paths)

    def __repr__(self) -> str:
        return f"{self._name} of {', '.join(self._paths)}"


def gradient_maps(maps: Mapping[str, AttentionMap], output: Tensor, *, keeps_gradients: bool) -> DerivedMaps:
    """Return the weights times a number's gradients with respect to them; see `watch.gradients`.

    Args:
        maps: the maps of a watch.
        output: the number, with its graph.
        keeps_gradients: whether the watch keeps gradients.

    Raises:
        ArgumentError: see `watch.gradients`.
    """
    refuse((not keeps_gradients, "gradients need the graph of each call: use attent.watch(model, gradients=True)"))
    if not isinstance(output, Tensor) or output.numel() != 1 or not output.requires_grad:
        description = (
            f"{tuple(output.shape)}, requires_grad={output.requires_grad}"
            if isinstance(output, Tensor)
            else type(output).__name__
        )
        raise ArgumentError(
            f"gradients need a single number with its graph, such as a loss or one logit, got {description}"
        )
    contexts = {path: context for path, weights in maps.items() if (context := _context(weights)) is not None}
    flat = [part for parts in contexts.values() for part in parts]
    gradients = iter(torch.autograd.grad(output.sum(), flat, retain_graph=True, allow_unused=True) if flat else ())
    by_path = {path: [next(gradients) for _ in parts] for path, parts in contexts.items()}

    def derive(path: str) -> AttentionMap:
        if path not in by_path:
            raise ArgumentError(
                f"{path or 'the model itself'} ran without gradients, or does not expose its contexts: run it with "
                "gradients enabled, without need_weights"
            )
        weights, parts = maps[path], by_path[path]
        assert weights.outputs is not None
        if isinstance(weights.outputs.context, Tensor):
            return weights.gradients(parts[0])
        # the number does not depend on these steps
        pairs = zip(parts, contexts[path], strict=True)
        return weights.gradients([torch.zeros_like(context) if part is None else part for part, context in pairs])

    return DerivedMaps("gradients", maps, derive)


def _context(weights: AttentionMap) -> Sequence[Tensor] | None:
    """Return the contexts of a call with their graph; None if they are not known or have no graph."""
    context = None if weights.outputs is None else weights.outputs.context
    if context is None:
        return None
    parts = (context,) if isinstance(context, Tensor) else (*context,)
    return parts if all(part.requires_grad and not part.is_nested for part in parts) else None


def rollout_maps(maps: Mapping[str, AttentionMap]) -> DerivedMaps:
    """Return the rollout through each map and those of the layers below it; see `watch.rollout`."""

    def pattern(path: str) -> tuple[str, str]:
        """Return a module's path without its layer number, and the number of its call."""
        module, _, call = path.partition("#")
        return LAYER_NUMBER.sub("*", module), call

    def derive(path: str) -> AttentionMap:
        layers = [name for name in maps if pattern(name) == pattern(path)]
        if "#" in path and layers == [path]:
            raise ArgumentError(f"there is no rollout of {path}: the order of the calls of one module is not known")
        return RolloutMap([maps[name] for name in layers[: layers.index(path) + 1]])

    return DerivedMaps("rollout", maps, derive)


@runtime_checkable
class ProjectsContexts(Protocol):
    """An attention module that exposes its output projection, as ours do."""

    @property
    def context_projection(self) -> Tensor | nn.Module | None:
        """The weight (E, H·Dv), None if contexts are the output, or the module itself if it is not linear."""
        ...


def output_projection(module: nn.Module, path: str, parents: Mapping[str, nn.Module]) -> Tensor | None:
    """Return W^O, (E, H·Dv), of an attention module; None if contexts are its output.

    Args:
        module: the module.
        path: its path in the model.
        parents: every module of the model by path.

    Raises:
        ArgumentError: the projection is not known.
    """
    name = f"{path or 'the model itself'} ({type(module).__name__})"
    if isinstance(module, ProjectsContexts):
        weight = module.context_projection
        if isinstance(weight, nn.Module):
            raise ArgumentError(
                f"norms of {name} are not known: its output is {type(weight).__name__}, not a linear layer"
            )
        return weight
    return linear_weight(projection_layer(module, path, parents))


def projection_layer(module: nn.Module, path: str, parents: Mapping[str, nn.Module]) -> nn.Module:
    """Return the linear layer that projects the contexts of an attention module; arguments as of `output_projection`.

    Raises:
        ArgumentError: the layer is not known.
    """
    name = f"{path or 'the model itself'} ({type(module).__name__})"
    advice = "give it as norms({path: layer})"
    for part, _ in (*module.named_children(), *module.named_parameters(recurse=False)):
        refuse((BETWEEN.search(part), f"norms of {name} are not known: {part!r} changes what is projected"))
    if "sigmoid" in used_globals(type(module)):
        raise ArgumentError(f"norms of {name} are not known: its code uses a sigmoid, which may gate what is projected")
    layers = [getattr(module, attribute, None) for attribute in NAMES]
    if not any(linear_weight(layer) is not None for layer in layers) and path:
        # BERT and its relatives: a sibling of the self-attention
        layers = [getattr(getattr(parents.get(path.rpartition(".")[0]), "output", None), "dense", None)]
    layers = [layer for layer in layers if isinstance(layer, nn.Module) and linear_weight(layer) is not None]
    if len(layers) != 1:
        count = "no layer" if not layers else "more than one layer"
        raise ArgumentError(f"norms of {name} need its output projection, and {count} is named as one; {advice}")
    return layers[0]


def as_weight(layer: Projection) -> Tensor | None:
    """Return the weight (E, H·Dv) of a projection given by the caller.

    The projection is a linear layer, its weight, or None if the contexts are the output.

    Raises:
        ArgumentError: the projection is none of these.
    """
    weight = layer if isinstance(layer, Tensor) else linear_weight(layer)
    if layer is not None and (weight is None or weight.dim() != 2):
        raise ArgumentError(
            f"an output projection must be a linear layer, its weight (E, H·Dv) or None, got {type(layer).__name__}"
        )
    return weight


def linear_weight(layer: object) -> Tensor | None:
    """Return the weight of a linear layer as PyTorch stores it, (out, in); None if the layer is not linear."""
    if isinstance(layer, nn.Linear):
        return layer.weight
    weight = getattr(layer, "weight", None)
    # GPT-2's layer stores its weight transposed
    return weight.T if type(layer).__name__ == "Conv1D" and isinstance(weight, Tensor) and weight.dim() == 2 else None
