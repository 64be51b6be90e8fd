"""Path patching: the effect of one head on the output through the queries, keys or values of later heads alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch import Tensor

from attent.attention.capture.activations import Activation, ActivationRecorder, ContextChange, mixed_contexts
from attent.attention.capture.effects import PatchEffects
from attent.attention.capture.patch import Direction, Experiment, Inputs, Metric, Record, recorded, summarized
from attent.attention.capture.stack import LayerStack, wrap_of
from attent.errors import ArgumentError, check_index, check_known


@torch.no_grad()
def patch_paths(
    model: Any,
    clean: Inputs,
    corrupt: Inputs,
    metric: Metric,
    receivers: Sequence[tuple[int, int]] = (),
    *,
    into: Activation = "keys",
    direction: Direction = "denoise",
) -> PatchEffects:
    """Patch each head's output on its direct paths to some later heads alone, or to the logits.

    Wang et al. 2022, §3.1 (arXiv:2211.00593). By default, the corrupt run is changed: (1) one head, the sender, gets
    its output of the clean run, the output of every other head stays that of the corrupt run, and MLPs are computed
    again; (2) the queries, keys or values that the receivers have in this run are put into another corrupt run, in
    which all else is computed; the metric of that run is the value of the sender. Without receivers, it is the metric
    of the first run: the effect on the logits through the residual stream and MLPs.

    Args:
        model: a Hugging Face model of one stack of layers, in evaluation mode.
        clean: as in `patch`.
        corrupt: as in `patch`.
        metric: as in `patch`.
        receivers: (layer, head) of each receiver; the logits if there are none.
        into: what of the receivers takes the change: "queries", "keys" or "values".
        direction: "denoise", or "noise" to put activations of the corrupt run into the clean run.

    Returns:
        The effects of all heads as senders. Heads that are not below a receiver change nothing.

    Raises:
        ArgumentError: the model has no such stack, or a receiver is no head; see also `patch`.
        UnseenError: attention of the receivers cannot be read.
    """
    check_known("activation of receivers", into, ("queries", "keys", "values"))
    experiment = Experiment(model, metric, has_calls=bool(receivers))
    base, source = recorded(experiment, experiment.arguments(clean, corrupt), direction)
    stack, run = experiment.stack, base.run
    if stack is None or run is None:
        raise ArgumentError(f"{type(model).__name__} has no single stack of layers, along which paths are known")
    heads: dict[int, list[int]] = {}
    for layer, head in receivers:
        check_index("the layer of a receiver", layer, len(stack.layers))
        heads.setdefault(layer, []).append(check_index("the head of a receiver", head, stack.heads))
    summary = summarized(base, source, f"output into {into}" if receivers else "output into logits", direction)
    values = base.values.expand(len(stack.layers), stack.heads, -1).clone()
    for sender in range(max(heads) if receivers else len(stack.layers)):
        change = source.contexts[stack.paths[sender]] - base.contexts[stack.paths[sender]]
        reached = {layer: own for layer, own in heads.items() if layer > sender}
        for head in range(stack.heads):
            frozen = dict(enumerate(run.attention[sender:], start=sender))
            frozen[sender] = frozen[sender] + stack.output_change(sender, head, change[:, head])
            output = (
                _through_receivers(experiment, stack, base, sender, frozen, reached, into)
                if receivers
                else experiment.resumed(base, sender, frozen)
            )
            values[sender, head] = experiment.measure(output)
    return replace(summary, values=values)


def _through_receivers(
    experiment: Experiment,
    stack: LayerStack,
    base: Record,
    sender: int,
    frozen: Mapping[int, Tensor],
    receivers: Mapping[int, Sequence[int]],
    into: Activation,
) -> Any:
    """Return the output of a run in which receivers have the queries, keys or values of the run with frozen heads."""
    with ExitStack() as hooks:
        recorder = hooks.enter_context(ActivationRecorder(stack.model, has_calls=True))
        for layer in receivers:
            # computed for their queries, keys and values alone
            output = frozen[layer]
            hooks.enter_context(
                stack.attention[layer].register_forward_hook(lambda *call, output=output: wrap_of(call[2])(output))
            )
        assert base.run is not None
        replaced = {layer: output for layer, output in frozen.items() if layer not in receivers}
        # its logits are not read
        stack.resume(base.run, sender, replaced, rows=[0])
    calls = recorder.calls

    def mix(path: str, heads: Sequence[int], context: Tensor, prepare: Any) -> Tensor:
        index = torch.tensor([*heads], device=context.device)
        return context.index_copy(1, index, mixed_contexts(into, prepare(), calls[path])[:, index])

    paths = {stack.paths[layer]: heads for layer, heads in receivers.items()}
    with ContextChange(stack.model, {path: partial(mix, path, heads) for path, heads in paths.items()}):
        return experiment.resumed(base, min(receivers), {})
