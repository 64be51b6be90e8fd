"""PyTorch's attention functions, patched while anybody watches, and the maps of their calls.

A patch calls PyTorch's own function unchanged and captures its arguments; the map is computed when it is read. PyTorch's modes would
see the same calls, but a `TorchFunctionMode` turns off the fused path of `nn.TransformerEncoderLayer`, which changes results and speed,
and a `TorchDispatchMode` passes every operator of the model through Python.
"""

from __future__ import annotations

import functools
import itertools
import sys
from collections.abc import Callable, Iterable, Iterator
from types import FrameType
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from attent.attention.call import Prepared
from attent.attention.capture.captured_maps import DeferredMap, Snapshot, pad_nested, padding_mask, prepare_scaled_dot_product
from attent.attention.maps.attention_map import AttentionMap

Arguments = tuple[Any, ...]
Keywords = dict[str, Any]
# read at every call in the middle of a model, where each attribute look-up costs
is_compiling, _getframe = torch.compiler.is_compiling, sys._getframe


class CapturedCall(NamedTuple):
    """A call: the running modules, innermost first, and the function that makes its map."""

    modules: Iterator[nn.Module]
    make_map: Callable[[], AttentionMap]


def running_modules(frame: FrameType | None) -> Iterator[nn.Module]:
    """Yield the modules whose methods are running, innermost first."""
    while frame is not None:
        first = first_argument(frame)
        if isinstance(first, nn.Module):
            yield first
        frame = frame.f_back


def first_argument(frame: FrameType) -> object:
    """Return the first argument of a running function: the module, if it is a module's method."""
    code = frame.f_code
    return frame.f_locals.get(code.co_varnames[0]) if code.co_argcount else None


def capture_scaled_dot_product_attention(frame: FrameType, args: Arguments, keywords: Keywords) -> CapturedCall | None:
    """Capture `F.scaled_dot_product_attention`, except from our own backends, whose callers report."""
    if frame.f_globals.get("__name__", "").startswith(("attent.attention.", "attent.ops.")):
        return None
    return CapturedCall(running_modules(frame), lambda: _scaled_dot_product_map(frame, *args, **keywords))


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
    if frame.f_code.co_name == "sdpa_attention_forward" and query.shape[2] > 1 and frame.f_locals.get("q_length") == 1:
        # Hugging Face's decoding passes the heads that share a key head as queries: (B, G, H/G, D)
        query, enable_gqa = query.reshape(len(query), -1, 1, query.shape[-1]), True
        if attn_mask is not None and attn_mask.shape[1] > 1:
            attn_mask = attn_mask.reshape(len(attn_mask), -1, 1, attn_mask.shape[-1])
    # snapshots only: holding the originals would hold their graph
    snapshots = (Snapshot.of(query), Snapshot.of(key), None if attn_mask is None else Snapshot.of(attn_mask))
    return DeferredMap(_prepare_attention, *snapshots, is_causal, scale, enable_gqa)


def _prepare_attention(
    query: Snapshot, key: Snapshot, mask: Snapshot | None, is_causal: bool, scale: float | None, is_grouped: bool
) -> Prepared:
    if query.tensor.is_nested:
        (queries, query_lengths), (keys, key_lengths) = pad_nested(query.get()), pad_nested(key.get())
        return prepare_scaled_dot_product(
            queries, keys, padding_mask(query_lengths, queries.shape[-2], key_lengths), is_causal=is_causal, scale=scale
        )
    mask_tensor = None if mask is None else mask.get()
    return prepare_scaled_dot_product(query.get(), key.get(), mask_tensor, is_causal=is_causal, scale=scale, is_grouped=is_grouped)


def capture_bmm(frame: FrameType, args: Arguments, keywords: Keywords) -> CapturedCall | None:
    """Capture `torch.bmm` where it computes the scores of `nn.MultiheadAttention`."""
    return capture_baddbmm(frame, (None, *args), keywords)


def capture_baddbmm(frame: FrameType, args: Arguments, keywords: Keywords) -> CapturedCall | None:
    """Capture `torch.baddbmm` where it computes the masked scores of `nn.MultiheadAttention`."""
    # the second product in that function is weights · values
    if frame.f_code is not F.multi_head_attention_forward.__code__ or "attn_output_weights" in frame.f_locals:
        return None
    return CapturedCall(running_modules(frame), lambda: _scores_map(frame.f_locals["num_heads"], *args, **keywords))


def _scores_map(heads: int, mask: Tensor | None, query: Tensor, key: Tensor) -> AttentionMap:
    """Return the map of scaled queries (B·H, Tq, D) and transposed keys (B·H, D, Tk)."""
    return DeferredMap(_prepare_scores, heads, Snapshot.of(query), Snapshot.of(key), None if mask is None else Snapshot.of(mask))


def _prepare_scores(heads: int, query: Snapshot, key: Snapshot, mask: Snapshot | None) -> Prepared:
    bias = None if mask is None else mask.get().expand(len(query.tensor), -1, -1).unflatten(0, (-1, heads))
    queries, keys = (tensor.unflatten(0, (-1, heads)) for tensor in (query.get(), key.get().mT))
    return prepare_scaled_dot_product(queries, keys, bias, scale=1.0, has_nan_rows=True)


def capture_encoder_layer(frame: FrameType, args: Arguments, keywords: Keywords) -> CapturedCall | None:
    """Capture the fused path of `nn.TransformerEncoderLayer`, which skips its attention module; the map still gets that module's path."""
    modules = running_modules(frame)
    layer = next(modules, None)
    if not isinstance(layer, nn.TransformerEncoderLayer):
        return None
    return CapturedCall(
        itertools.chain((layer.self_attn, layer), modules), lambda: _encoder_layer_map(_padded_input_length(frame), *args, **keywords)
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


def capture_multi_head(frame: FrameType, args: Arguments, keywords: Keywords) -> CapturedCall | None:
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
        parameters: the weight (3·E, E) and bias (3·E,) that project to queries, keys and values, then the weight and bias of the layer
            norm before them, if there is one.
        mask: PyTorch's mask, not zero where it hides a pair.
        mask_type: 1 for a padding mask (B, Tk), else (Tq, Tk).
        epsilon: the layer norm's.
        length: the length to pad nested features to; the longest sequence's if not given.
    """
    query_snapshot = Snapshot.of(query)
    key_snapshot = query_snapshot if key is query else Snapshot.of(key)
    mask_snapshot = None if mask is None else Snapshot.of(mask)
    parameter_snapshots = [Snapshot.of_parameter(parameter) for parameter in parameters]

    def project(snapshot: Snapshot, chunk: int) -> tuple[Tensor, Tensor | None]:
        """Return queries (chunk 0) or keys (1), (B, H, T, D), and the lengths of nested sequences."""
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

    return DeferredMap(prepare)


class PatchTarget(NamedTuple):
    """A function of PyTorch's: the module that owns it, its name, and the function that captures a call of it."""

    owner: object
    name: str
    capture: Callable[[FrameType, Arguments, Keywords], CapturedCall | None]


TARGETS = (
    PatchTarget(F, "scaled_dot_product_attention", capture_scaled_dot_product_attention),
    # nn.MultiheadAttention calls these two when it returns its weights
    PatchTarget(torch, "bmm", capture_bmm),
    PatchTarget(torch, "baddbmm", capture_baddbmm),
    PatchTarget(torch, "_transformer_encoder_layer_fwd", capture_encoder_layer),
    PatchTarget(torch, "_native_multi_head_attention", capture_multi_head),
)


class Patcher:
    """Patches for all target functions: set for the first watcher, removed after the last.

    Args:
        receive: gets every captured call.
    """

    def __init__(self, receive: Callable[[CapturedCall], None]) -> None:
        self._receive = receive
        self._patches: dict[str, tuple[Any, Any]] = {}  # the original function and its patch, by the target's name
        self._active: dict[int, tuple[Any, Any]] = {}  # the same by the original's id, while anybody watches
        self._replaced: list[tuple[dict[str, Any], str, Any, Any]] = []

    def patch(self, modules: Iterable[nn.Module]) -> None:
        """Patch every target, also where one of the modules, or the file that defines it, holds it under a name of its own."""
        if not self._active:
            for target in TARGETS:
                original = getattr(target.owner, target.name)
                if self._patches.get(target.name, (None,))[0] is not original:
                    self._patches[target.name] = (original, _patched(original, target, self._receive))
                self._active[id(original)] = self._patches[target.name]
            for target in TARGETS:
                self._replace(vars(target.owner), [target.name])
        # PyTorch's own modules call the owners' functions
        foreign = [module for module in modules if not type(module).__module__.startswith("torch.")]
        files = {type(module).__module__ for module in foreign} & sys.modules.keys()
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
        """Restore the originals, except where other code has replaced a patch since."""
        for namespace, name, original, patch in self._replaced:
            if namespace.get(name) is patch:
                namespace[name] = original
        self._replaced.clear()
        self._active.clear()


def _patched(original: Callable[..., Any], target: PatchTarget, receive: Callable[[CapturedCall], None]) -> Callable[..., Any]:
    capture = target.capture

    @functools.wraps(original)
    def patch(*args: Any, **kwargs: Any) -> Any:
        result = original(*args, **kwargs)
        if not is_compiling():
            call = capture(_getframe(1), args, kwargs)
            if call is not None:
                receive(call)
        return result

    return patch
