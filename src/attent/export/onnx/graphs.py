"""A model as two graphs: the source up to the first token's logits, and one step further.

    encoder.onnx   source (B, Tk), lengths (B,)  →  logits (B, V) after BOS, state
    step.onnx      tokens (B,), state            →  logits (B, V), what of the state has changed

The state lies open between them, a tensor for each part. What every step needs of the source, such as the memory's keys, is
computed once, in the first graph. Both have the decoder's weights, for the first graph takes the first step.
"""

from __future__ import annotations

import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from attent.data.tokenizer import BOS
from attent.errors import AttentError
from attent.export.manifest import Side, StateTensor
from attent.export.onnx.recurrent import translations
from attent.export.onnx.states import flatten_state, unflatten_state
from attent.export.onnx.tracing import tracing
from attent.models.model import EncoderDecoder
from attent.runs.folder import Run

ENCODER, STEP = "encoder.onnx", "step.onnx"
SOURCE, LENGTHS, TOKENS, LOGITS = "source", "lengths", "tokens", "logits"
# Before the name of a tensor that a step returns.
AFTER = "after."
# Sizes that a model is tried with to see which axes follow from them, all pairs different.
TRIED = {"rows": (3, 5), "source_length": (4, 6), "written": (2, 3)}
LOGGERS = ("torch.onnx", "torch.export", "onnxscript", "onnx_ir")


class EncoderGraph(nn.Module):
    """The first graph."""

    def __init__(self, model: EncoderDecoder[Any]) -> None:
        super().__init__()
        self.model = model

    def forward(self, source: Tensor, lengths: Tensor) -> tuple[Tensor, ...]:
        """The logits after BOS, (B, V), and every tensor of the state."""
        state = self.model.start(self.model.encode(source, lengths))
        features, state = self.model.step(state, torch.full_like(lengths, BOS))
        return self.model.output(features), *(tensor for _, tensor in flatten_state(state))


class StepGraph(nn.Module):
    """The second graph.

    Args:
        model: the model.
        like: a state of the same structure.
        changed: which of the state's tensors a step changes.
    """

    def __init__(self, model: EncoderDecoder[Any], like: Any, changed: list[bool]) -> None:
        super().__init__()
        self.model, self.like, self.changed = model, like, changed

    def forward(self, tokens: Tensor, *state: Tensor) -> tuple[Tensor, ...]:
        """The logits (B, V) after one further token (B,), and what of the state has changed."""
        features, after = self.model.step(unflatten_state(self.like, iter(state)), tokens)
        changed = (tensor for (_, tensor), new in zip(flatten_state(after), self.changed, strict=True) if new)
        return self.model.output(features), *changed


@dataclass(frozen=True)
class TraceInputs:
    """What a model is traced with: a source, its lengths, tokens, and the state behind some steps."""

    source: Tensor
    lengths: Tensor
    tokens: Tensor
    state: Any

    @classmethod
    def of(cls, run: Run, which: int) -> TraceInputs:
        """The first or the second of the sizes that are tried."""
        rows, length, steps = (sizes[which] for sizes in TRIED.values())
        generator = torch.Generator().manual_seed(0)
        source = torch.randint(run.source_tokenizer.size, (rows, length), generator=generator)
        tokens = torch.randint(run.target_tokenizer.size, (rows,), generator=generator)
        lengths = length - torch.arange(rows) % 2
        state = run.model.start(run.model.encode(source, lengths))
        for _ in range(steps):
            _, state = run.model.step(state, tokens)
        return cls(source, lengths, tokens, state)

    @property
    def tensors(self) -> list[Tensor]:
        """The state's."""
        return [tensor for _, tensor in flatten_state(self.state)]


def write(run: Run, folder: Path) -> list[StateTensor]:
    """Write both graphs of a run's model into a folder.

    Returns:
        The state's tensors, in the order in which the graphs have them.

    Raises:
        AttentError: the model cannot be traced, or a part of it has no counterpart in ONNX.
    """
    with torch.no_grad(), tracing():
        one, other = TraceInputs.of(run, 0), TraceInputs.of(run, 1)
        named = [_axes(*shapes) for shapes in zip(one.tensors, other.tensors, strict=True)]
        parts = _parts(run.model, one, named)
        # positions that are learnt number so many tokens
        dims = {name: torch.export.Dim(name, max=None if name == "rows" else run.model.longest) for name in TRIED}
        names, rows = [part.name for part in parts], {0: dims["rows"]}
        _export(
            EncoderGraph(run.model),
            (one.source, one.lengths),
            ({**rows, 1: dims["source_length"]}, rows),
            [SOURCE, LENGTHS],
            [LOGITS, *names],
            folder / ENCODER,
        )
        _export(
            StepGraph(run.model, one.state, [not part.is_constant for part in parts]),
            (one.tokens, *(tensor.contiguous() for tensor in one.tensors)),
            (rows, tuple({axis: dims[name] for axis, name in axes.items()} for axes in named)),
            [TOKENS, *names],
            [LOGITS, *(AFTER + part.name for part in parts if not part.is_constant)],
            folder / STEP,
        )
    return parts


def _parts(model: EncoderDecoder[Any], example: TraceInputs, named: list[dict[int, str]]) -> list[StateTensor]:
    """What a search moves of each of the state's tensors, and whether a step leaves it as it is."""
    _, after = model.step(example.state, example.tokens)
    turned = example.state.reorder(torch.arange(len(example.tokens)).flip(0))
    parts: list[StateTensor] = []
    for (name, tensor), (_, moved), (_, new), axes in zip(
        flatten_state(example.state), flatten_state(turned), flatten_state(after), named, strict=True
    ):
        side: Side = "neither" if axes.get(0) != "rows" else "source" if moved is tensor else "written"
        parts.append(StateTensor(name=name, side=side, is_constant=new is tensor))
    return parts


def _axes(one: Tensor, other: Tensor) -> dict[int, str]:
    """What the axes are called whose sizes differ between the two that were tried."""
    names = {sizes: name for name, sizes in TRIED.items()}
    return {axis: names[pair] for axis, pair in enumerate(zip(one.shape, other.shape, strict=True)) if pair[0] != pair[1]}


def _export(
    module: nn.Module, arguments: tuple[Tensor, ...], axes: tuple[Any, ...], inputs: list[str], outputs: list[str], file: Path
) -> None:
    try:
        with _quiet():
            # traced here: the exporter itself would go on with sizes fixed where they cannot be left open
            graph = torch.export.export(
                module.eval(),
                arguments,
                dynamic_shapes=axes,
                # what cannot be proved of sizes, such as min(2n, n) = n, is left to whoever gives them
                prefer_deferred_runtime_asserts_over_guards=True,
            )
            program = torch.onnx.export(
                graph,
                dynamo=True,
                verbose=False,
                # for the names of the axes
                dynamic_shapes=axes,
                input_names=inputs,
                output_names=outputs,
                custom_translation_table=translations(),
            )
        assert program is not None
        program.save(file)
    except ImportError as error:
        raise AttentError(f"this needs ONNX: pip install 'attent[onnx]' ({error})") from error
    except (RuntimeError, ValueError, NotImplementedError, torch.onnx.errors.OnnxExporterError) as error:
        raise AttentError(f"this model cannot be written as ONNX: {str(error).splitlines()[0]}") from error


@contextmanager
def _quiet() -> Iterator[None]:
    """Leave out what the exporter says of its own doings."""
    loggers = [logging.getLogger(name) for name in LOGGERS]
    levels = [logger.level for logger in loggers]
    try:
        for logger in loggers:
            logger.setLevel(logging.ERROR)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)
