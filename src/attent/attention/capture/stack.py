"""The stack of layers of a model, which can be run again from any layer, with outputs of attention replaced."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from attent.attention.capture.coverage import attention_paths, module_paths
from attent.attention.capture.derived_maps import linear_weight, projection_layer
from attent.errors import ArgumentError, check_index

Wrap = Callable[[Tensor], Any]
# The id of a token, or one for each sequence, (B,).
Token = int | Tensor
# The largest difference between a recorded and a repeated computation, relative to the largest number.
TOLERANCE = 1e-4


class _AttentionOutput(Exception):  # noqa: N818 - not an error
    """The output of a layer's attention, raised to leave the rest of the layer out."""

    def __init__(self, output: Tensor) -> None:
        self.output = output


@dataclass
class StackRun:
    """A run of a model, as recorded by `LayerStack.record`; lists have an item per layer.

    Args:
        arguments: the model's inputs by name.
        output: the model's output.
        contexts: the contexts of all heads before W^O, (B, T, H·Dv).
        inputs: the hidden states that enter a layer, (B, T, E); empty unless states were to be kept.
        attention: the first output of the attention module, (B, T, E); likewise.
        wraps: functions that put other hidden states into the structure that the layer returns.
        attention_wraps: the same for the attention modules.
    """

    arguments: Mapping[str, Any]
    output: Any = None
    contexts: list[Tensor] = field(default_factory=list)
    inputs: list[Tensor] = field(default_factory=list)
    attention: list[Tensor] = field(default_factory=list)
    wraps: list[Wrap] = field(default_factory=list)
    attention_wraps: list[Wrap] = field(default_factory=list)


@dataclass(frozen=True)
class LayerStack:
    """Layers of a model that run one after another, each with one self-attention.

    Args:
        model: the model.
        layers: the layers, in order.
        attention: the attention module of each.
        paths: its path in the model.
        projections: the linear layer W^O of each.
        heads: H.
    """

    model: nn.Module
    layers: Sequence[nn.Module]
    attention: Sequence[nn.Module]
    paths: Sequence[str]
    projections: Sequence[nn.Module]
    heads: int

    @classmethod
    def of(cls, model: nn.Module) -> LayerStack:
        """Return the stack of a Hugging Face model.

        Raises:
            ArgumentError: the model has no single stack, or the heads or output projections are not known.
        """
        modules = module_paths(model)
        paths, attention = {path: module for module, path in modules.items()}, attention_paths(modules)
        for path, layers in paths.items():
            if not isinstance(layers, nn.ModuleList) or len(layers) != len(attention):
                continue
            if all(name.startswith(f"{path}.{number}.") for number, name in enumerate(attention)):
                own = [paths[name] for name in attention]
                projections = [projection_layer(paths[name], name, paths) for name in attention]
                return cls(model, [*layers], own, attention, projections, _head_count(own[0], model))
        raise ArgumentError(
            f"{type(model).__name__} has no single stack of layers that have one attention module each; "
            f"attention: {', '.join(attention) or 'none'}"
        )

    def record(self, arguments: Mapping[str, Any], rows: Sequence[int] | None = None, *, states: bool) -> StackRun:
        """Run the model and record its attention.

        Args:
            arguments: the inputs of the model by name.
            rows: the positions whose logits are needed; all if not given.
            states: whether to keep what `resume` needs.

        Raises:
            ArgumentError: the layers do not run one after another, each once.
        """
        run = StackRun(arguments)

        def keep_attention(module: nn.Module, args: Any, output: Any) -> None:
            run.attention.append(first_of(output))
            run.attention_wraps.append(wrap_of(output))

        def keep_input(module: nn.Module, args: Any, keywords: Mapping[str, Any]) -> None:
            run.inputs.append(hidden_states(args, keywords))

        def keep_output(module: nn.Module, args: Any, output: Any) -> None:
            run.wraps.append(wrap_of(output))

        with ExitStack() as hooks:
            for layer, attention, projection in zip(self.layers, self.attention, self.projections, strict=True):
                keep_context = projection.register_forward_pre_hook(lambda _, args: run.contexts.append(args[0]))
                hooks.enter_context(keep_context)
                if states:
                    hooks.enter_context(layer.register_forward_pre_hook(keep_input, with_kwargs=True))
                    hooks.enter_context(attention.register_forward_hook(keep_attention))
                    hooks.enter_context(layer.register_forward_hook(keep_output))
            hooks.enter_context(self._logits_at(rows))
            run.output = self.model(**arguments)
        if {len(run.contexts), *([len(run.inputs), len(run.attention)] if states else [])} != {len(self.layers)}:
            raise ArgumentError(f"layers of {type(self.model).__name__} do not run one after another, each once")
        for layer, output in enumerate(run.attention):
            projected = run.contexts[layer]
            if self.has_projection_inside(layer):
                projected = nn.functional.linear(projected, self.weight(layer), self.bias(layer))
            if not is_near(projected, output):
                raise ArgumentError(f"the output of {self.paths[layer]} is not the projection of its contexts alone")
        return run

    def resume(
        self,
        run: StackRun,
        start: int,
        replaced: Mapping[int, Tensor],
        rows: Sequence[int] | None = None,
        copies: int = 1,
        *,
        trims: bool = False,
    ) -> Any:
        """Return the model's output when it runs again from a layer, without the layers below.

        Args:
            run: a run of the model, with its states.
            start: the layer.
            replaced: outputs (copies·B, T, E) of attention modules, by layer, that are returned without computing them.
            rows: the positions whose logits are needed; all if not given.
            copies: the number of copies of the batch that are computed together.
            trims: whether the last layer computes these positions alone after its attention.
        """
        last = len(self.layers) - 1
        forwards: dict[nn.Module, Callable[..., Any]] = {}
        if start:
            hidden = repeated(run.inputs[start], copies)
            forwards = {self.layers[below]: _constant(run.wraps[below](hidden)) for below in range(start)}
        for layer, output in replaced.items():
            forwards[self.attention[layer]] = _constant(run.attention_wraps[layer](output))
        if trims and rows is not None:
            forwards[self.layers[last]] = self._last_forward(run, replaced.get(last), rows)
        sequences = len(run.contexts[0])
        arguments = {
            name: repeated(value, copies) if isinstance(value, Tensor) and value.shape[:1] == (sequences,) else value
            for name, value in run.arguments.items()
        }
        with replaced_forwards(forwards), self._logits_at(rows):
            return self.model(**arguments)

    def weight(self, layer: int) -> Tensor:
        """Return W^O of a layer, (E, H·Dv)."""
        weight = linear_weight(self.projections[layer])
        assert weight is not None
        return weight

    def bias(self, layer: int) -> Tensor | None:
        """Return the bias that is added to the projected contexts, (E,)."""
        return getattr(self.projections[layer], "bias", None)

    def has_projection_inside(self, layer: int) -> bool:
        """Return whether the attention module returns projected contexts, not the contexts themselves as BERT's."""
        return any(part is self.projections[layer] for part in self.attention[layer].modules())

    def output_change(self, layer: int, head: int, change: Tensor) -> Tensor:
        """Return the change (B, T, E) of an attention module's output by the change (B, T, Dv) of a head's context."""
        if self.has_projection_inside(layer):
            return change @ self.weight(layer).unflatten(1, (self.heads, -1))[:, head].T
        return nn.functional.pad(change, (head * change.shape[-1], (self.heads - head - 1) * change.shape[-1]))

    def _last_forward(self, run: StackRun, output: Tensor | None, rows: Sequence[int]) -> Callable[..., Any]:
        """Return a forward of the last layer that computes these positions alone after the attention."""
        attention, forward, attend = self.attention[-1], self.layers[-1].forward, self.attention[-1].forward

        def stop(*args: Any, **keywords: Any) -> Any:
            raise _AttentionOutput(first_of(attend(*args, **keywords)))

        def run_last(*args: Any, **keywords: Any) -> Any:
            hidden, attended = hidden_states(args, keywords), output
            if attended is None:
                try:
                    with replaced_forwards({attention: stop}):
                        return forward(*args, **keywords)
                except _AttentionOutput as reached:
                    attended = reached.output
            index = torch.tensor(rows, device=hidden.device)
            with replaced_forwards({attention: _constant(run.attention_wraps[-1](attended[:, index]))}):
                if args:
                    result = forward(hidden[:, index], *args[1:], **keywords)
                else:
                    result = forward(**{**keywords, "hidden_states": hidden[:, index]})
            return run.wraps[-1](torch.zeros_like(hidden).index_copy(1, index, first_of(result)))

        return run_last

    def _logits_at(self, rows: Sequence[int] | None) -> AbstractContextManager[object]:
        """Compute logits of these positions alone while open, if the model says which layer computes them."""
        layer = output_layer(self.model)
        if rows is None or layer is None:
            return nullcontext()
        # a handle is removed at the end of its context
        return layer.register_forward_pre_hook(lambda _, args: (args[0][:, [*rows]], *args[1:]))


@contextmanager
def replaced_forwards(forwards: Mapping[nn.Module, Callable[..., Any]]) -> Iterator[None]:
    """Run other functions in place of modules' forward methods while open; a module's hooks still run."""
    with ExitStack() as stack:
        for module, forward in forwards.items():
            # undone in reverse: removed, then set to its own
            if (own := vars(module).get("forward")) is not None:
                stack.callback(vars(module).__setitem__, "forward", own)
            stack.callback(vars(module).pop, "forward")
            module.forward = forward
        yield


def output_layer(model: nn.Module) -> nn.Module | None:
    """Return the layer that computes the logits of a Hugging Face model; None if it has none."""
    layer = getattr(model, "get_output_embeddings", lambda: None)()
    return layer if isinstance(layer, nn.Module) else None


def counted_from_start(position: int, length: int) -> int:
    """Return a position from 0, of one that may be negative to count from the end.

    Raises:
        ArgumentError: a sequence of this length has no such position.
    """
    if not -length <= position < length:
        raise ArgumentError(f"a position of {length} tokens must be from {-length} to {length - 1}, got {position}")
    return position % length


def logits_of(token: Token, logits: Tensor) -> Tensor:
    """Return the logits (B,) of a token, or of one for each sequence, among those (B, V) of all tokens.

    Raises:
        ArgumentError: there is no such token.
    """
    ids = torch.as_tensor(token, device=logits.device).reshape(-1, 1)
    for number in (ids.amin(), ids.amax()):
        check_index("the id of a token", int(number), logits.shape[-1])
    return logits.gather(1, ids.expand(len(logits), 1))[:, 0]


def first_of(output: Any) -> Tensor:
    """Return the tensor that a module returns, alone or before others."""
    return output if isinstance(output, Tensor) else output[0]


def is_near(actual: Tensor, expected: Tensor) -> bool:
    """Return whether two computations of the same tensor agree up to rounding."""
    has_same_shape = actual.shape == expected.shape
    return has_same_shape and bool((actual - expected).abs().max() <= TOLERANCE * expected.abs().max())


def repeated(tensor: Tensor, copies: int) -> Tensor:
    """Return copies of a batch, one after another."""
    return tensor if copies == 1 else tensor.repeat(copies, *[1] * (tensor.dim() - 1))


def wrap_of(output: Any) -> Wrap:
    """Return a function that puts a tensor in place of the first of a module's output."""
    if isinstance(output, Tensor):
        return lambda first: first
    kind, rest = type(output), output[1:]
    return lambda first: kind((first, *rest))


def _constant(value: Any) -> Callable[..., Any]:
    return lambda *_, **__: value


def hidden_states(args: Sequence[Any], keywords: Mapping[str, Any]) -> Tensor:
    """Return the hidden states among the arguments of a layer.

    Raises:
        ArgumentError: they are not the first, nor named as in Hugging Face's layers.
    """
    if not args and "hidden_states" not in keywords:
        raise ArgumentError(f"a layer gets no hidden states by their name, but {', '.join(keywords) or 'nothing'}")
    return args[0] if args else keywords["hidden_states"]


def _head_count(attention: nn.Module, model: nn.Module) -> int:
    """Return the number of heads, which the configuration of every Hugging Face model has under the same name."""
    config: Any = getattr(attention, "config", None) or getattr(model, "config", None)
    config = config.get_text_config() if hasattr(config, "get_text_config") else config
    heads: Any = getattr(config, "num_attention_heads", None)
    if not isinstance(heads, int):
        raise ArgumentError(f"the number of heads of {type(model).__name__} is not known: its config does not name it")
    return heads
