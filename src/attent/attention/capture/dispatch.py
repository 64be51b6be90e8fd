"""Which modules leave their attention to the `AttentionInterface` of Hugging Face's transformers, read from their code.

No flag of a model's class says so: `_supports_attention_backend` is False for BART, and `_supports_sdpa` for Gemma 2.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from types import CodeType, FunctionType

from torch import nn

# what attention functions are given for features that change the result and that `attend` does not have
UNSUPPORTED = {
    "s_aux": "sinks (s_aux)",
    "sinks": "sinks (sinks)",
    "indices": "keys selected by an indexer (indices)",
    "block_indices": "keys selected by an indexer (block_indices)",
    "cache": "paged cache (cache)",
}
LIKE_ATTENTION = re.compile(r"attention|attn", re.IGNORECASE)
# what stands beside attention and is called after it
PARTS = re.compile(r"adapter|dropout|norm|mask|output|projection|pool|bias|embedding|cache|rotary|structure|loss", re.IGNORECASE)
# functions of PyTorch's that are attention by themselves
FUNCTIONS = {"flex_attention", "scaled_dot_product_attention"}
# whose base classes name no layer of a model: PyTorch's, and the base class of all models
FRAMEWORK = re.compile(r"torch\.|transformers\.modeling_utils$")


def is_attention(kind: type, name: str = "") -> bool:
    """Whether a class of modules, of this name where that is not its own, is called attention, or calls a function of PyTorch's for it."""
    name = name or kind.__name__
    return (LIKE_ATTENTION.search(name) is not None and PARTS.search(name) is None) or bool(FUNCTIONS & names(kind).keys())


def dispatches(kind: type) -> bool:
    """Whether a class looks its attention function up in an `AttentionInterface`, by the name that the configuration asks for."""
    values = names(kind).values()
    return any(base.__name__ == "AttentionInterface" for value in values if value is not None for base in type(value).__mro__)


def unsupported(kind: type) -> bool:
    """Whether a class calls attention functions with what `attend` does not have."""
    # the names of a call's keyword arguments are a constant of its function
    constants = (constant for method in _methods(kind) for code in _codes(method.__code__) for constant in code.co_consts)
    return any(isinstance(constant, tuple) and not UNSUPPORTED.keys().isdisjoint(constant) for constant in constants)


def attention_classes(kind: type) -> tuple[list[type], list[type]]:
    """The classes of attention that a model may be built of: those that dispatch, and those that compute it themselves.

    Models that a model makes by name, such as `AutoModel.from_config`, are not followed.
    """
    classes = _layers(kind)
    dispatching = [each for each in classes if dispatches(each)]
    # a class that holds another's attention, such as BertAttention, computes nothing
    others = [each for each in classes if is_attention(each) and not any(map(dispatches, _layers(each)))]
    return dispatching, [each for each in others if not set(others) & set(_layers(each)) - {each}]


def _layers(kind: type) -> list[type]:
    """A class and all classes of modules that its code names, and theirs."""
    reached: dict[type, None] = {}
    waiting = [kind]
    while waiting:
        reached[each := waiting.pop()] = None
        for value in names(each).values():
            # such as GPTJ_ATTENTION_CLASSES, by the name of the implementation; not the mappings of AutoModel, which would import all
            several = value.values() if type(value) is dict else (value,)
            waiting += [other for other in several if _is_layer(other) and other not in reached]
    return list(reached)


def _is_layer(value: object) -> bool:
    return inspect.isclass(value) and issubclass(value, nn.Module) and not FRAMEWORK.match(value.__module__)


def names(kind: type) -> dict[str, object]:
    """Every name that the methods of a class and functions of the same file that they call use, with its global value, if it has any."""
    values: dict[str, object] = {}
    functions = list(_methods(kind))
    for function in functions:
        for name in (name for code in _codes(function.__code__) for name in code.co_names):
            value = function.__globals__.get(name)
            if isinstance(value, FunctionType) and value.__module__ == function.__module__ and value not in functions:
                functions.append(value)
            values[name] = value
    return values


def _methods(kind: type) -> Iterator[FunctionType]:
    for base in filter(_is_layer, kind.__mro__):
        for name, value in vars(base).items():
            # initialising weights asks what a module is, whether the model has it or not
            method = inspect.unwrap(value) if callable(value) and name != "_init_weights" else None
            if isinstance(method, FunctionType):
                yield method


def _codes(code: CodeType) -> Iterator[CodeType]:
    """A function's code and that of the functions and comprehensions in it."""
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _codes(constant)
