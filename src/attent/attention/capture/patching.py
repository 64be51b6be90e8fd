"""Patches of PyTorch's attention functions while a `watch` or an `intervene` is open, and the maps of their calls.

A patch calls PyTorch's own function unchanged and captures its arguments; the map is computed when it is read, and
contexts that an intervention changes are put into the result. PyTorch's modes would see the same calls, but a
`TorchFunctionMode` turns off the fused path of `nn.TransformerEncoderLayer`, which changes results and speed, and a
`TorchDispatchMode` passes every operator of the model through Python.
"""

from __future__ import annotations

import functools
import itertools
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from types import FrameType
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensor
from torch.nn import functional as F

from attent.attention.call import Prepared
from attent.attention.capture import changed_calls
from attent.attention.capture.captured_maps import (
    DeferredMap,
    Snapshot,
    pad_nested,
    padding_mask,
    prepare_scaled_dot_product,
)
from attent.attention.capture.growing import Beginning, growing_snapshot, note_concatenation
from attent.attention.capture.interventions import INTERVENTIONS, concerned, first_argument, running_modules
from attent.attention.maps.attention_map import AttentionMap
from attent.attention.maps.contributions import HeadOutputs

Arguments = tuple[Any, ...]
Keywords = dict[str, Any]
# read at every call inside a model, where every attribute lookup counts
is_compiling, _getframe = torch.compiler.is_compiling, sys._getframe
# Patches and lists of watchers are shared by the whole process: a thread holds this lock while it changes them.
LOCK = threading.Lock()


class CapturedCall(NamedTuple):
    """A call: the running modules, the function that makes its map, and the contexts with their graph.

    The innermost module comes first; the contexts are None if they are not known.
    """

    modules: Iterator[nn.Module]
    make_map: Callable[[], AttentionMap]
    context: Tensor | Sequence[Tensor] | None = None


def capture_scaled_dot_product_attention(
    frame: FrameType, args: Arguments, keywords: Keywords, result: Tensor
) -> CapturedCall | None:
    """Capture `F.scaled_dot_product_attention`, except from our own backends, whose callers report."""
    if changed_calls.is_own(frame):
        return None
    return CapturedCall(running_modules(frame), lambda: _scaled_dot_product_map(frame, *args, **keywords), result)


def _scaled_dot_product_map(
    frame: FrameType,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> AttentionMap:
    query, attn_mask, enable_gqa = changed_calls.with_heads(frame, query, attn_mask, enable_gqa)
    # snapshots only: holding the originals would hold their graph
    snapshots = (Snapshot.of(query), growing_snapshot(key), None if attn_mask is None else Snapshot.of(attn_mask))
    weights = DeferredMap(_prepare_attention, *snapshots, is_causal, scale, enable_gqa)
    weights.outputs = HeadOutputs(partial(_padded, growing_snapshot(value)), dropout_p)
    return weights


def _padded(value: Snapshot | Beginning) -> Tensor:
    """Return the values of a call, with nested sequences padded."""
    tensor = value.get()
    return pad_nested(tensor)[0] if tensor.is_nested else tensor


def _prepare_attention(
    query: Snapshot,
    key: Snapshot | Beginning,
    mask: Snapshot | None,
    is_causal: bool,
    scale: float | None,
    is_grouped: bool,
) -> Prepared:
    if query.tensor.is_nested:
        (queries, query_lengths), (keys, key_lengths) = pad_nested(query.get()), pad_nested(key.get())
        return prepare_scaled_dot_product(
            queries, keys, padding_mask(query_lengths, queries.shape[-2], key_lengths), is_causal=is_causal, scale=scale
        )
    mask_tensor = None if mask is None else mask.get()
    return prepare_scaled_dot_product(
        query.get(), key.get(), mask_tensor, is_causal=is_causal, scale=scale, is_grouped=is_grouped
    )


def capture_bmm(frame: FrameType, args: Arguments, keywords: Keywords, result: Tensor) -> CapturedCall | None:
    """Capture `torch.bmm` where it computes the scores of `nn.MultiheadAttention`."""
    return capture_baddbmm(frame, (None, *args), keywords, result)


def capture_baddbmm(frame: FrameType, args: Arguments, keywords: Keywords, result: Tensor) -> CapturedCall | None:
    """Capture `torch.baddbmm` where it computes the masked scores of `nn.MultiheadAttention`."""
    # the second product in that function is weights · values
    if frame.f_code is not F.multi_head_attention_forward.__code__ or "attn_output_weights" in (
        variables := frame.f_locals
    ):
        return None
    heads, value, dropout = (variables[name] for name in ("num_heads", "v", "dropout_p"))
    return CapturedCall(running_modules(frame), lambda: _scores_map(heads, value, dropout, *args, **keywords))


def _scores_map(
    heads: int, value: Tensor, dropout: float, mask: Tensor | None, query: Tensor, key: Tensor
) -> AttentionMap:
    """Return the map of scaled queries (B·H, Tq, D) and transposed keys (B·H, D, Tk); the values are (B·H, Tk, D)."""
    mask_snapshot = None if mask is None else Snapshot.of(mask)
    weights = DeferredMap(_prepare_scores, heads, Snapshot.of(query), Snapshot.of(key), mask_snapshot)
    weights.outputs = HeadOutputs(Snapshot.of(value).get, dropout)
    return weights


def _prepare_scores(heads: int, query: Snapshot, key: Snapshot, mask: Snapshot | None) -> Prepared:
    bias = None if mask is None else mask.get().expand(len(query.tensor), -1, -1).unflatten(0, (-1, heads))
    queries, keys = (tensor.unflatten(0, (-1, heads)) for tensor in (query.get(), key.get().mT))
    return prepare_scaled_dot_product(queries, keys, bias, scale=1.0, has_nan_rows=True)


def capture_encoder_layer(frame: FrameType, args: Arguments, keywords: Keywords, result: Tensor) -> CapturedCall | None:
    """Capture the fused path of `nn.TransformerEncoderLayer`, which bypasses its attention module.

    The map still gets that module's path.
    """
    modules = running_modules(frame)
    layer = next(modules, None)
    if not isinstance(layer, nn.TransformerEncoderLayer):
        return None
    return CapturedCall(
        itertools.chain((layer.self_attn, layer), modules),
        lambda: _encoder_layer_map(_padded_input_length(frame), *args, **keywords),
    )


def _padded_input_length(frame: FrameType | None) -> int | None:
    """Return the length of the encoder's input before PyTorch removed its padding."""
    while frame is not None:
        if isinstance(first_argument(frame), nn.TransformerEncoder):
            source = frame.f_locals["src"]
            return None if source.is_nested else source.shape[1]
        frame = frame.f_back
    return None


def _encoder_layer_map(
    length: int | None, source: Tensor, width: int, heads: int, weight: Tensor, bias: Tensor, *rest: Any
) -> AttentionMap:
    _, _, _, norm_first, epsilon, norm_weight, norm_bias, *_, mask, mask_type = rest
    parameters = (weight, bias, norm_weight, norm_bias) if norm_first else (weight, bias)
    return _projected_map(source, source, heads, parameters, mask, mask_type, epsilon, length)


def capture_multi_head(frame: FrameType, args: Arguments, keywords: Keywords, result: Any) -> CapturedCall | None:
    """Capture the fused path of `nn.MultiheadAttention`."""
    return CapturedCall(running_modules(frame), lambda: _multi_head_map(*args, **keywords))


def _multi_head_map(
    query: Tensor, key: Tensor, value: Tensor, width: int, heads: int, weight: Tensor, bias: Tensor, *rest: Any
) -> AttentionMap:
    _, _, mask, _, _, mask_type = rest
    return _projected_map(query, key, heads, (weight, bias), mask, mask_type)


def _projected_map(
    query: Tensor,
    key: Tensor,
    heads: int,
    parameters: tuple[Tensor, ...],
    mask: Tensor | None,
    mask_type: int | None,
    epsilon: float = 0.0,
    length: int | None = None,
) -> AttentionMap:
    """Return the map of features that a fused path projects; the map projects them again when read.

    Args:
        query: the features of the queries, (B, Tq, E).
        key: the features of the keys, (B, Tk, E).
        heads: H.
        parameters: the weight (3·E, E) and bias (3·E,) that project to queries, keys and values, then the weight and
            bias of the layer norm before them, if there is one.
        mask: PyTorch's mask, nonzero where it hides a pair.
        mask_type: 1 for a padding mask (B, Tk), else (Tq, Tk).
        epsilon: the epsilon of the layer norm.
        length: the length to pad nested features to; the longest sequence's if not given.
    """
    query_snapshot = Snapshot.of(query)
    key_snapshot = query_snapshot if key is query else Snapshot.of(key)
    mask_snapshot = None if mask is None else Snapshot.of(mask)
    parameter_snapshots = [Snapshot.of_parameter(parameter) for parameter in parameters]

    def project(snapshot: Snapshot, chunk: int) -> tuple[Tensor, Tensor | None]:
        """Return queries (chunk 0), keys (1) or values (2), (B, H, T, D), and the lengths of nested sequences."""
        features, lengths = pad_nested(snapshot.get(), length) if snapshot.tensor.is_nested else (snapshot.get(), None)
        weight, bias, *norm = (parameter.get() for parameter in parameter_snapshots)
        if norm:
            features = F.layer_norm(features, features.shape[-1:], norm[0], norm[1], epsilon)
        features = F.linear(features, weight.chunk(3)[chunk], bias.chunk(3)[chunk])
        return features.unflatten(-1, (heads, -1)).transpose(1, 2), lengths

    def prepare() -> Prepared:
        (queries, query_lengths), (keys, key_lengths) = project(query_snapshot, 0), project(key_snapshot, 1)
        if query_lengths is not None and key_lengths is not None:
            return prepare_scaled_dot_product(queries, keys, padding_mask(query_lengths, queries.shape[2], key_lengths))
        allowed = None if mask_snapshot is None else mask_snapshot.get() == 0
        if allowed is not None and mask_type == 1:
            allowed = allowed[:, None, None]
        return prepare_scaled_dot_product(queries, keys, allowed, has_nan_rows=True)

    weights = DeferredMap(prepare)
    # keys and values are projected from the same features
    weights.outputs = HeadOutputs(lambda: project(key_snapshot, 2)[0])
    return weights


class PatchTarget(NamedTuple):
    """A PyTorch function that computes attention, or appends keys to a cache.

    Args:
        owner: the module that holds the function.
        name: the name of the function.
        capture: a function that captures a call.
        change: a function that applies interventions to the result; None if the result hides the contexts of heads.
        plain: in that case, a function that computes the running module's result by other functions.
    """

    owner: object
    name: str
    capture: Callable[[FrameType, Arguments, Keywords, Any], CapturedCall | None]
    change: Callable[[FrameType, Arguments, Keywords, Tensor], Tensor] | None = None
    plain: Callable[[FrameType], Any] | None = None


TARGETS = (
    PatchTarget(
        F, "scaled_dot_product_attention", capture_scaled_dot_product_attention, changed_calls.change_attention
    ),
    # nn.MultiheadAttention calls these two when it returns its weights
    PatchTarget(torch, "bmm", capture_bmm, changed_calls.change_bmm),
    PatchTarget(torch, "baddbmm", capture_baddbmm, changed_calls.change_baddbmm),
    PatchTarget(torch, "cat", note_concatenation),
    PatchTarget(
        torch, "_transformer_encoder_layer_fwd", capture_encoder_layer, plain=changed_calls.plain_encoder_layer
    ),
    PatchTarget(torch, "_native_multi_head_attention", capture_multi_head, plain=changed_calls.plain_multi_head),
)


class Patcher:
    """Patches for all target functions: applied for the first watch or intervention, removed after the last.

    Args:
        receive: a function that is called with every captured call.
    """

    def __init__(self, receive: Callable[[CapturedCall], None]) -> None:
        self._receive = receive
        self._patches: dict[str, tuple[Any, Any]] = {}  # the original function and its patch, by the target's name
        self._active: dict[int, tuple[Any, Any]] = {}  # the same by the original's id, while patched
        self._replaced: list[tuple[dict[str, Any], str, Any, Any]] = []
        self._users = 0

    def patch(self, modules: Iterable[nn.Module]) -> None:
        """Patch every target, including its aliases in the modules and in the files that define them."""
        # PyTorch's own modules call the owners' functions
        foreign = [module for module in modules if not type(module).__module__.startswith("torch.")]
        files = {type(module).__module__ for module in foreign} & sys.modules.keys()
        with LOCK:
            self._users += 1
            if not self._active:
                for target in TARGETS:
                    original = getattr(target.owner, target.name)
                    if self._patches.get(target.name, (None,))[0] is not original:
                        self._patches[target.name] = (original, _patched(original, target, self._receive))
                    self._active[id(original)] = self._patches[target.name]
                for target in TARGETS:
                    self._replace(vars(target.owner), [target.name])
            for namespace in (*(vars(sys.modules[file]) for file in files), *map(vars, foreign)):
                # a quick test first, as most namespaces hold no target
                if not self._active.keys().isdisjoint(map(id, namespace.values())):
                    self._replace(namespace, [name for name, value in namespace.items() if id(value) in self._active])

    def _replace(self, namespace: dict[str, Any], names: Iterable[str]) -> None:
        for name in names:
            original, patch = self._active[id(namespace[name])]
            namespace[name] = patch
            self._replaced.append((namespace, name, original, patch))

    def restore(self) -> None:
        """Restore the originals once every `patch` call has been undone, unless other code has replaced a patch."""
        with LOCK:
            self._users -= 1
            if self._users:
                return
            for namespace, name, original, patch in self._replaced:
                if namespace.get(name) is patch:
                    namespace[name] = original
            self._replaced.clear()
            self._active.clear()


def _patched(
    original: Callable[..., Any], target: PatchTarget, receive: Callable[[CapturedCall], None]
) -> Callable[..., Any]:
    capture, change, plain = target.capture, target.change, target.plain

    @functools.wraps(original)
    def patch(*args: Any, **kwargs: Any) -> Any:
        # PyTorch 2.11 compiles with tensors without numbers, and says here that it does not
        if is_compiling() or (args and isinstance(args[0], FakeTensor)):
            return original(*args, **kwargs)
        frame = _getframe(1)
        if plain is not None and INTERVENTIONS:
            fused_call = capture(frame, args, kwargs, None)
            if fused_call is not None and concerned(fused_call.modules):
                return plain(frame)
        result = original(*args, **kwargs)
        call = capture(frame, args, kwargs, result)
        if call is not None:
            receive(call)
        return change(frame, args, kwargs, result) if change is not None and INTERVENTIONS else result

    return patch
