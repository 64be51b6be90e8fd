"""Attention modules that were not captured, and advice, mostly derived from the code of their classes.

No flag of a Hugging Face class says whether it calls the `AttentionInterface`: `_supports_attention_backend` is False
for BART, and `_supports_sdpa` for Gemma 2.
"""

import inspect
import re
from collections.abc import Iterator, Mapping, Sequence, Set
from types import CodeType, FunctionType
from typing import Any

import torch
from torch import nn

# Keyword arguments of attention functions for features that change the result and that `attend` does not have.
UNSUPPORTED = {
    "sinks": "sinks (sinks)",
    "indices": "keys selected by an indexer (indices)",
    "block_indices": "keys selected by an indexer (block_indices)",
    "cache": "paged cache (cache)",
}
ATTENTION = re.compile(r"attention|attn", re.IGNORECASE)
# Modules that are parts of attention and carry its name.
PARTS = re.compile(
    r"adapter|dropout|norm|mask|output|projection|pool|bias|embedding|cache|rotary|structure|loss", re.IGNORECASE
)
# PyTorch functions that compute attention on their own.
FUNCTIONS = {"flex_attention", "scaled_dot_product_attention"}
# Files whose classes are not layers of a model: PyTorch's, and the base class of all models.
FRAMEWORK = re.compile(r"torch\.|transformers\.modeling_utils$")


def module_paths(model: nn.Module) -> dict[nn.Module, str]:
    """Return each module's path, in the order of `named_modules` but in a fifth of its time."""
    paths: dict[nn.Module, str] = {}
    stack = [(model, "")]
    while stack:
        module, path = stack.pop()
        if module not in paths:
            paths[module] = path
            prefix = f"{path}." if path else ""
            stack += [(child, prefix + name) for name, child in reversed(module._modules.items()) if child is not None]
    return paths


def advice_for_uncaptured(paths: Mapping[nn.Module, str], captured: Set[str]) -> dict[str, str]:
    """Return the innermost attention modules without a map, by path, each with advice.

    Args:
        paths: every module and its path.
        captured: the paths of the maps.
    """
    attention = {path: module for module, path in paths.items() if is_attention_module(module)}
    outer = {parent for path in (*attention, *captured) for parent in _parents(path)}
    compiled = {path for module, path in paths.items() if is_compiled(module)}
    models = [module for module in paths if hasattr(module, "set_attn_implementation")]
    return {
        path: advice(module, models, is_compiled=bool(compiled & {path, *_parents(path)}))
        for path, module in attention.items()
        if path not in outer and captured.isdisjoint({path, *_parents(path)})
    }


def attention_paths(paths: Mapping[nn.Module, str]) -> list[str]:
    """Return the paths of the innermost modules that look like attention, in order."""
    attention = [path for module, path in paths.items() if is_attention_module(module)]
    outer = {parent for path in attention for parent in _parents(path)}
    return [path for path in attention if path not in outer]


def is_compiled(module: nn.Module) -> bool:
    """Return whether a module itself, or its forward, is under `torch.compile`."""
    has_compiled_forward = hasattr(vars(module).get("forward"), "_torchdynamo_orig_callable")
    return module._compiled_call_impl is not None or hasattr(module, "_orig_mod") or has_compiled_forward


def _parents(path: str) -> set[str]:
    """Return the paths of all modules that contain the module of this path."""
    return {"", *(path.rsplit(".", cut)[0] for cut in range(1, path.count(".") + 1))} - {path}


def is_attention_module(module: nn.Module) -> bool:
    """Return whether a module is named as attention, or calls one of PyTorch's attention functions."""
    return is_attention(type(module), module.original_name if isinstance(module, torch.jit.ScriptModule) else "")


def advice(module: nn.Module, models: Sequence[Any] = (), *, is_compiled: bool = False) -> str:
    """Return why a module may not have been captured, and what to do.

    Args:
        module: the module.
        models: the watched Hugging Face models, outermost first.
        is_compiled: the module, or one that contains it, is under `torch.compile`.
    """
    kind = type(module)
    configs = [getattr(owner, "config", None) for owner in (module, *models)]
    implementation = next((name for config in configs if (name := getattr(config, "_attn_implementation", None))), None)
    if implementation == "flex_attention" or "flex_attention" in used_globals(kind):
        remedy = (
            'model.set_attn_implementation("sdpa")'
            if implementation
            else "F.scaled_dot_product_attention or attent.attend in its place"
        )
        return f"FlexAttention keeps queries and keys inside its kernel: use {remedy}"
    if is_compiled:
        return 'it is compiled: run it within torch.compiler.set_stance("force_eager")'
    can_dispatch = is_dispatching(kind)
    is_hidden = implementation not in (None, "sdpa", "attent")
    if is_hidden:
        runs = f"it runs Hugging Face's {implementation!r} attention"
        has_sdpa = bool(models) and all(getattr(model, "_supports_sdpa", False) for model in models)
        if can_dispatch and has_sdpa:
            return f'{runs}: model.set_attn_implementation("sdpa") makes it visible'
        if can_dispatch and not needs_unsupported(kind):
            register = "attent.integrations.transformers.register()"
            return f'{runs}: after {register}, model.set_attn_implementation("attent") makes it visible'
        if has_sdpa and "scaled_dot_product_attention" in used_globals(kind):
            return f'{runs}: loading the model with attn_implementation="sdpa" makes it visible'
    if models and (is_hidden or not can_dispatch):
        return (
            "it computes its weights itself: if the model accepts output_attentions=True, attent.views.page shows "
            "what it returns"
        )
    return (
        "it was not called, or computes its weights by itself: use F.scaled_dot_product_attention or attent.attend "
        "to make it visible"
    )


def is_attention(kind: type, name: str = "") -> bool:
    """Return whether a class of modules is named as attention, or calls one of PyTorch's attention functions.

    The name is that of the class, or the given one.
    """
    name = name or kind.__name__
    return (ATTENTION.search(name) is not None and PARTS.search(name) is None) or bool(
        FUNCTIONS & used_globals(kind).keys()
    )


def is_dispatching(kind: type) -> bool:
    """Return whether a class takes its attention function from an `AttentionInterface`, by its configuration."""
    values = used_globals(kind).values()
    return any(
        base.__name__ == "AttentionInterface" for value in values if value is not None for base in type(value).__mro__
    )


def needs_unsupported(kind: type) -> bool:
    """Return whether a class calls attention functions with features that `attend` does not have."""
    # the keyword names of a call are a constant of the calling function
    constants = (
        constant for method in _methods(kind) for code in _nested_codes(method.__code__) for constant in code.co_consts
    )
    return any(isinstance(constant, tuple) and not UNSUPPORTED.keys().isdisjoint(constant) for constant in constants)


def dispatching_and_computing_classes(kind: type) -> tuple[list[type], list[type]]:
    """Return the attention classes that a model may be built from.

    The first list holds classes that dispatch, the second those that compute attention themselves. Models that a model
    creates by name, such as `AutoModel.from_config`, are not followed.
    """
    classes = _reachable_layers(kind)
    dispatching = [layer for layer in classes if is_dispatching(layer)]
    # a class that only contains another attention class, such as BertAttention, computes nothing itself
    computing = [
        layer for layer in classes if is_attention(layer) and not any(map(is_dispatching, _reachable_layers(layer)))
    ]
    return dispatching, [layer for layer in computing if not set(computing) & set(_reachable_layers(layer)) - {layer}]


def _reachable_layers(kind: type) -> list[type]:
    """Return a class and all classes of modules that its code names, recursively."""
    reached: dict[type, None] = {}
    stack = [kind]
    while stack:
        reached[layer := stack.pop()] = None
        for value in used_globals(layer).values():
            # a dict such as FALCON_ATTENTION_CLASSES is keyed by implementation; AutoModel's mappings are not dicts,
            # and would import all models
            values = value.values() if type(value) is dict else (value,)
            stack += [item for item in values if _is_layer(item) and item not in reached]
    return list(reached)


def _is_layer(value: object) -> bool:
    return inspect.isclass(value) and issubclass(value, nn.Module) and not FRAMEWORK.match(value.__module__)


def used_globals(kind: type) -> dict[str, object]:
    """Return every name used by the methods of a class, with its global value if any.

    This includes functions of the same file that the methods call.
    """
    values: dict[str, object] = {}
    functions = list(_methods(kind))
    for function in functions:
        for name in (name for code in _nested_codes(function.__code__) for name in code.co_names):
            value = function.__globals__.get(name)
            if isinstance(value, FunctionType) and value.__module__ == function.__module__ and value not in functions:
                functions.append(value)
            values[name] = value
    return values


def _methods(kind: type) -> Iterator[FunctionType]:
    for base in filter(_is_layer, kind.__mro__):
        for name, value in vars(base).items():
            # _init_weights tests for module classes whether or not the model has them
            method = inspect.unwrap(value) if callable(value) and name != "_init_weights" else None
            if isinstance(method, FunctionType):
                yield method


def _nested_codes(code: CodeType) -> Iterator[CodeType]:
    """Yield a function's code, and that of the functions and comprehensions in it."""
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _nested_codes(constant)
