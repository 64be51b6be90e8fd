"""Activation patching: how much of a difference between two inputs each attention head carries.

Sources: Meng et al. 2022 (arXiv:2202.05262), causal tracing; Wang et al. 2022 (arXiv:2211.00593), §3.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from functools import cache
from itertools import islice
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor, nn

from attent.attention.call import Prepared
from attent.attention.capture.activations import (
    ACTIVATIONS,
    Activation,
    ActivationRecorder,
    ContextChange,
    at_position,
    mixed_contexts,
)
from attent.attention.capture.coverage import advice, attention_paths, module_paths
from attent.attention.capture.effects import EffectFile, HeadEffect, PatchEffects, tensor_digest
from attent.attention.capture.stack import (
    LayerStack,
    StackRun,
    Token,
    counted_from_start,
    is_near,
    logits_of,
    output_layer,
)
from attent.errors import ArgumentError, ShapeError, UnseenError, check_known

Direction = Literal["denoise", "noise"]
Inputs = Mapping[str, Any] | Tensor
Metric = Callable[[Any], Any] | tuple[Token, Token]
# Maximum tokens of patched copies that run through the layers in one batch.
BATCH_TOKENS = 2048
# Errors of a model's own code that cannot run a layer on some of the positions.
RUNTIME_ERRORS = (RuntimeError, TypeError, ValueError, IndexError)


@dataclass(frozen=True)
class logit_difference:  # noqa: N801 - used like a function: attent.logit_difference(right, wrong)
    """The logit of one token minus that of another, for each sequence: a metric for `patch`.

    Args:
        right: the id of the first token, or one for each sequence, (B,).
        wrong: likewise, that of the second.
        position: the position of the logits.
    """

    right: Token
    wrong: Token
    position: int = -1

    def __call__(self, output: Any) -> Tensor:
        """Return the differences (B,) of logits (B, T, V) or (B, V), or of an output that has such `logits`."""
        logits = output if isinstance(output, Tensor) else output.logits
        if logits.dim() == 3:
            logits = logits[:, 0 if logits.shape[1] == 1 else self.position]
        return logits_of(self.right, logits) - logits_of(self.wrong, logits)


@dataclass
class Record:
    """A recorded run.

    Args:
        arguments: the model's inputs by name.
        values: the metric, (B,).
        contexts: the contexts of each attention module, (B, H, T, Dv), in order.
        calls: its queries, keys and values, by path, if they were needed.
        run: the run of the stack; None if the model runs as a whole.
    """

    arguments: Mapping[str, Any]
    values: Tensor
    contexts: dict[str, Tensor]
    calls: dict[str, Prepared]
    run: StackRun | None


class Experiment:
    """Runs of one model on clean and corrupt inputs, and on one of them with contexts replaced.

    Args:
        model: the model.
        metric: see `patch`.
        positions: see `patch`.
        has_calls: whether queries, keys and values are needed.
    """

    def __init__(
        self, model: nn.Module, metric: Metric, positions: Sequence[int] | None = None, *, has_calls: bool
    ) -> None:
        if not isinstance(model, nn.Module) or any(module.training for module in model.modules()):
            raise ArgumentError("patching takes a model in evaluation mode: call model.eval() first")
        self.model, self._has_calls = model, has_calls
        self.metric = logit_difference(metric[0], metric[1]) if isinstance(metric, tuple) else metric
        self._positions = [self.metric.position] if isinstance(self.metric, logit_difference) else positions
        self._rows: list[int] | None = None
        self._trims = True
        try:
            self.stack = LayerStack.of(model)
        except ArgumentError:
            self.stack = None

    def arguments(self, clean: Inputs, corrupt: Inputs) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return both inputs by name.

        Raises:
            ShapeError: they differ in names or shapes.
        """
        parameters = inspect.signature(self.model.forward).parameters
        name = next(iter(parameters))
        sides = [{name: side} if isinstance(side, Tensor) else dict(side) for side in (clean, corrupt)]
        shapes = [
            {key: tuple(value.shape) for key, value in side.items() if isinstance(value, Tensor)} for side in sides
        ]
        if shapes[0] != shapes[1] or sides[0].keys() != sides[1].keys():
            raise ShapeError(f"clean and corrupt inputs must have the same shapes, got {shapes[0]} and {shapes[1]}")
        lengths = [shape[1] for key, shape in shapes[0].items() if key in ("input_ids", "inputs_embeds")]
        if self._positions is not None and lengths and output_layer(self.model) is not None:
            self._rows = [counted_from_start(number, lengths[0]) for number in self._positions]
        extra = {"use_cache": False} if "use_cache" in parameters else {}
        return extra | sides[0], extra | sides[1]

    def record(self, arguments: Mapping[str, Any], *, states: bool) -> Record:
        """Run the model and record its heads; with `states`, also what patched runs start from.

        Raises:
            UnseenError: its attention cannot be read.
        """
        if self.stack is not None:
            try:
                return self._record(self.stack, arguments, states=states)
            except ArgumentError:
                # its layers do not run as a stack: each run is a whole one
                self.stack = None
        with self._recorder() as recorder:
            output = self.model(**arguments)
        return self._checked(Record(arguments, self.measure(output), recorder.contexts, recorder.calls, None))

    def _record(self, stack: LayerStack, arguments: Mapping[str, Any], *, states: bool) -> Record:
        recorder = self._recorder()
        with recorder if self._has_calls else nullcontext():
            run = stack.record(arguments, self._rows, states=states)
        merged = zip(stack.paths, run.contexts, strict=True)
        contexts = {path: context.unflatten(-1, (stack.heads, -1)).transpose(1, 2) for path, context in merged}
        values, run.output = self.measure(run.output), None
        return self._checked(Record(arguments, values, contexts, recorder.calls, run))

    def _recorder(self) -> ActivationRecorder:
        return ActivationRecorder(self.model, has_calls=self._has_calls)

    def _checked(self, record: Record) -> Record:
        """Return a record; raise UnseenError if it lacks what is to be patched."""
        missing = [path for path in record.contexts if self._has_calls and path not in record.calls]
        if missing or not record.contexts:
            models = [owner for owner in self.model.modules() if hasattr(owner, "set_attn_implementation")]
            path = missing[0] if missing else next(iter(attention_paths(module_paths(self.model))), "")
            reason = advice(self.model.get_submodule(path), models)
            raise UnseenError(f"attention of {path or 'the model'} cannot be patched: {reason}")
        return record

    def resumable(self, base: Record) -> Record:
        """Return a record whose stack resumes to the recorded metric, or one without a stack if it does not."""
        stack, run = self.stack, base.run
        if stack is None or run is None:
            return base
        last = len(stack.layers) - 1
        for self._trims in (True, False):
            try:
                ends = [
                    self.resumed(base, last // 2, {}),
                    self.resumed(base, last, {last: run.attention[last]}),
                ]
                if all(is_near(self.measure(end), base.values) for end in ends):
                    return base
            except RUNTIME_ERRORS:
                continue
        self.stack = None
        return self.record(base.arguments, states=False)

    def resumed(self, base: Record, layer: int, replaced: Mapping[int, Tensor], copies: int = 1) -> Any:
        """Return the output of the run resumed from a layer; see `LayerStack.resume`."""
        assert self.stack is not None and base.run is not None
        return self.stack.resume(base.run, layer, replaced, self._rows, copies, trims=self._trims)

    def measure(self, output: Any) -> Tensor:
        """Return the metric of an output, (B,) or (1,) in float64.

        Raises:
            ShapeError: it is not one number, or one for each pair.
        """
        value = torch.as_tensor(self.metric(output)).detach().cpu().double()
        if value.dim() > 1:
            raise ShapeError(f"the metric must be one number, or one for each pair, (B,), got {tuple(value.shape)}")
        return value.reshape(-1)

    def batch_size(self, base: Record) -> int:
        """Return the number of patched copies that run in one batch."""
        context = next(iter(base.contexts.values()))
        tokens = context.shape[0] * context.shape[2]
        can_split = self.stack is not None and isinstance(self.metric, logit_difference)
        return max(BATCH_TOKENS // tokens, 1) if can_split else 1

    def patched(self, base: Record, layer: int, changes: Sequence[tuple[int, Tensor]]) -> list[Tensor]:
        """Return the metric (B,) of runs that each have one head's context replaced.

        Args:
            base: the run.
            layer: the number of the attention module.
            changes: the head and its new context (B, T, Dv) of each run; at most `batch_size` of them.
        """
        path, contexts = [*base.contexts.items()][layer]
        if self.stack is None or base.run is None:
            values: list[Tensor] = []
            for head, new in changes:
                index = torch.tensor([head], device=new.device)
                with ContextChange(self.model, {path: lambda own, _: own.index_copy(1, index, new[:, None])}):  # noqa: B023
                    values.append(self.measure(self.model(**base.arguments)))
            return values
        own = base.run.attention[layer]
        outputs = [own + self.stack.output_change(layer, head, new - contexts[:, head]) for head, new in changes]
        output = self.resumed(base, layer, {layer: torch.cat(outputs)}, len(changes))
        if len(changes) == 1:
            return [self.measure(output)]
        logits = output if isinstance(output, Tensor) else output.logits
        return [self.measure(part) for part in logits.chunk(len(changes))]


@torch.no_grad()
def patch(
    model: nn.Module,
    clean: Inputs,
    corrupt: Inputs,
    metric: Metric,
    *,
    activation: Activation = "output",
    direction: Direction = "denoise",
    by_position: bool = False,
    positions: Sequence[int] | None = None,
    file: Path | str | None = None,
    on_effect: Callable[[HeadEffect, int], None] = lambda effect, total: None,
) -> PatchEffects:
    """Patch each head of one run with its activation in another run, one at a time, and measure the output.

    By default, an activation of the clean run is put into the corrupt run. Later layers are computed again by the
    model's own code, and the layers below are not: the result is that of whole runs, up to rounding.

    Example:
        >>> effects = attent.patch(model, clean_ids, corrupt_ids, (mary, john))
        >>> effects.top(3)

    Args:
        model: a model in evaluation mode.
        clean: its inputs by name, or token ids (B, T).
        corrupt: inputs of the same shapes.
        metric: a function of the model's output that returns one number, or one per pair, (B,); or two token ids, each
            also (B,): the difference of their logits at the last position, as by `attent.logit_difference`.
        activation: a head's "output" (its context, before W^O), its attention "weights", or its "queries", "keys" or
            "values", as this head reads them where heads share them.
        direction: "denoise", or "noise" to put activations of the corrupt run into the clean run.
        by_position: whether to patch each position by itself.
        positions: the only positions of the logits that a metric of your own reads; it then gets logits of these alone.
        file: a file of JSON lines, to which each value is written when it is computed. The same call continues it.
        on_effect: called with each effect when it is computed, and with their total number.

    Raises:
        ArgumentError: the model is in training mode or compiled, the metric is the same for both inputs, or the file
            belongs to another patching.
        ShapeError: inputs differ in shape, or the metric has the wrong one.
        UnseenError: `attent.watch` does not see the attention; an "output" can be patched without this.
        UnknownNameError: there is no such activation or direction.
    """
    check_known("activation", activation, ACTIVATIONS)
    check_known("direction", direction, ("denoise", "noise"))
    experiment = Experiment(model, metric, positions, has_calls=activation != "output")
    inputs = experiment.arguments(clean, corrupt)
    base, source = recorded(experiment, inputs, direction)
    summary = summarized(base, source, activation, direction)
    with nullcontext() if file is None else EffectFile(file, _facts(experiment, inputs, summary, by_position)) as store:
        return replace(summary, values=_values(experiment, base, source, summary, store, on_effect, by_position))


def _values(
    experiment: Experiment,
    base: Record,
    source: Record,
    summary: PatchEffects,
    store: EffectFile | None,
    on_effect: Callable[[HeadEffect, int], None],
    by_position: bool,
) -> Tensor:
    """Return the metric of every patch, (L, H, B) or (L, H, T, B); values in the file are not computed again."""
    context = next(iter(base.contexts.values()))
    heads, choices = context.shape[1], [*range(context.shape[2])] if by_position else [None]
    total, cells = len(summary.paths) * heads * len(choices), list[Tensor]()
    for layer, path in enumerate(summary.paths):
        patches = _patches(base, source, path, summary.activation, choices)
        while batch := [*islice(patches, experiment.batch_size(base))]:
            keys = [(layer, head, position) for head, position, _ in batch]
            values = [None if store is None else store.values.get(key) for key in keys]
            if None in values:
                values = experiment.patched(base, layer, [(head, make()) for head, _, make in batch])
            for key, value in zip(keys, values, strict=True):
                cells.append(torch.as_tensor(value, dtype=torch.float64))
                if store is not None and key not in store.values:
                    store.write(*key, cells[-1].tolist())
                on_effect(HeadEffect(path, *key, summary.effects_of(cells[-1]).item()), total)
    # heads vary fastest within a layer
    stacked = torch.stack(cells).reshape(len(summary.paths), len(choices), heads, -1).transpose(1, 2)
    return stacked if by_position else stacked[:, :, 0]


def recorded(
    experiment: Experiment, inputs: tuple[Mapping[str, Any], Mapping[str, Any]], direction: Direction
) -> tuple[Record, Record]:
    """Return the run that is patched, and the run that activations are taken from.

    Raises:
        ArgumentError: the metric is the same for both.
    """
    source, own = inputs if direction == "denoise" else inputs[::-1]
    record = experiment.record(source, states=False)
    base = experiment.resumable(experiment.record(own, states=True))
    if base.values.mean() == record.values.mean():
        raise ArgumentError(f"the metric is {base.values.mean():.4g} for both inputs: no patch has an effect")
    return base, record


def summarized(base: Record, source: Record, activation: str, direction: Direction) -> PatchEffects:
    """Return effects without values yet."""
    clean, corrupt = (base, source) if direction == "noise" else (source, base)
    return PatchEffects(activation, direction, (*base.contexts,), clean.values, corrupt.values, torch.empty(0))


def _patches(
    base: Record, source: Record, path: str, activation: Any, choices: Sequence[int | None]
) -> Iterator[tuple[int, int | None, Callable[[], Tensor]]]:
    """Yield every head and position with a function that returns the head's new context (B, T, Dv)."""
    own = base.contexts[path]
    for position in choices:

        @cache
        def contexts(position: int | None = position) -> Tensor:
            if activation == "output":
                return at_position(own, source.contexts[path], position)
            mixed = mixed_contexts(activation, base.calls[path], source.calls[path], position)
            return mixed if activation in ("keys", "values") else at_position(own, mixed, position)

        for head in range(own.shape[1]):
            yield head, position, lambda head=head, contexts=contexts: contexts()[:, head]


def _facts(
    experiment: Experiment,
    inputs: tuple[Mapping[str, Any], Mapping[str, Any]],
    summary: PatchEffects,
    by_position: bool,
) -> dict[str, Any]:
    """Return everything that the values of a file depend on."""
    metric = experiment.metric
    name = getattr(metric, "__qualname__", type(metric).__name__)
    return {
        "format": 1,
        "class": type(experiment.model).__name__,
        "model": tensor_digest(experiment.model.state_dict().items()),
        "inputs": [tensor_digest(side.items()) for side in inputs],
        "metric": tensor_digest(vars(metric).items()) if isinstance(metric, logit_difference) else name,
        "activation": summary.activation,
        "direction": summary.direction,
        "by_position": by_position,
    }
