"""intervene(): change what heads of a model contribute while it runs.

head_means(): the means that a change may need.
"""

import operator
import sys
from collections.abc import Callable, Iterator, Mapping
from types import TracebackType
from typing import Any, Literal, Self, cast

import torch
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from attent.attention.call import Prepared
from attent.attention.capture.changed_calls import FUSED_MODULE
from attent.attention.capture.coverage import advice, attention_paths, is_compiled, module_paths
from attent.attention.capture.interventions import INTERVENTIONS, HeadChange, Intervention, RowFunction, change_heads
from attent.attention.capture.watch import PATCHER
from attent.errors import ArgumentError, UnknownNameError, UnseenError, check_index, check_known, refuse

CHANGES = ("zero", "uniform", "mean")
# What a head may be changed to: see `intervene`.
Change = Literal["zero", "uniform", "mean"] | RowFunction


class ModelIntervention(Intervention):
    """An intervention on a model, as a context manager."""

    def __init__(self, model: nn.Module) -> None:
        name = type(self).__name__
        if not isinstance(model, nn.Module):
            raise ArgumentError(f"{name} takes a model, a torch.nn.Module, got {type(model).__name__}")
        super().__init__(module_paths(model))
        self._name = type(model).__name__
        if any(map(is_compiled, self.paths)) and not _is_forced_eager():
            reason = (
                "is compiled, and would run unchanged: give the model itself, or run it in "
                'torch.compiler.set_stance("force_eager")'
            )
            raise ArgumentError(f"{name}: {self._name} {reason}")

    def __enter__(self) -> Self:
        INTERVENTIONS.append(self)
        PATCHER.patch(self.paths)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        INTERVENTIONS.remove(self)
        PATCHER.restore()


class intervene(ModelIntervention):  # noqa: N801 - used like a function: with attent.intervene(model, changes)
    """Change what heads of a model contribute while it runs, without changing the model itself.

    The context of a changed head, α(q, D) v for each query, is replaced before the output projection:

    - `"zero"`: by 0 (Michel et al. 2019, §2.3, ξ_h = 0, arXiv:1905.10650; Voita et al. 2019, §6.1, a closed gate,
      arXiv:1905.09418);
    - `"uniform"`: by the mean of the values that the mask lets the query see (Kovaleva et al. 2019, arXiv:1908.08593);
    - `"mean"`: by the head's mean context over data, taken from `means` (mean ablation: Wang et al. 2022,
    arXiv:2211.00593);
    - a function of the weights: it receives some of their rows, (B, n, Tk) in float32 or wider, and returns new rows of
      the same shape, each computed from its own row; the values are mixed with these rows as they are, so the function
      must normalize them if needed. It is applied before dropout.

    It works on everything that `attent.watch` captures: our modules and models, `nn.MultiheadAttention`,
    `nn.Transformer`, and any PyTorch model that calls `F.scaled_dot_product_attention`, such as most of Hugging Face's,
    also under `generate`. Paths are those of `watch`; all calls of a module are changed. Heads that are not listed are
    computed by the model's own code and are bit-identical within their layer; without changes, so is the whole result.
    Maps show the weights as the model computes them, before the change. Gradients flow through it; under gradient
    checkpointing, which recomputes layers, call backward() inside the context. A function and `"uniform"` are computed
    by tiles, in memory linear in the sequence.

    Contexts may be nested, but only one of them may change a given head. While a context is open, its changes apply in
    every thread.

    Example:
        >>> with attent.intervene(
        ...     model, {"encoder.layer.5.attention.self": {11: "zero", 3: lambda weights: weights.roll(1, -1)}}
        ... ):
        ...     model(**inputs)

    Args:
        model: the model, or any part of it.
        changes: for each path of an attention module, a mapping from the index of a query head to "zero", "uniform",
            "mean" or a function.
        means: the mean contexts for "mean" by path, (H, Dv) each, as collected by `attent.head_means`.

    Raises:
        ArgumentError: `model` is not a module or is compiled; a head is not an index; "mean" is given without means; an
            argument has the wrong form; a head is already changed (when the context is entered), or the module has
            fewer heads (when it runs).
        UnknownNameError: the model has no such module, or there is no such change.
        UnseenError: a module ran, but computed no attention that could be changed (when it runs); or one of PyTorch's
            attention modules may have run compiled (when the context ends).
    """

    def __init__(
        self,
        model: nn.Module,
        changes: Mapping[str, Mapping[int, Change]],
        *,
        means: Mapping[str, Tensor] | None = None,
    ) -> None:
        super().__init__(model)
        modules = {path: module for module, path in self.paths.items()}
        self._changes: dict[nn.Module, dict[int, HeadChange]] = {}
        for path, heads in _checked_mapping("changes", "{path: {head: change}}", changes).items():
            if path not in modules:
                raise UnknownNameError(f"attention of {self._name}", str(path), attention_paths(self.paths))
            _checked_mapping(f"the changes of {path}", "{head: change}", heads)
            for owner in (path[:end] for end, letter in enumerate(path) if letter == "."):
                if isinstance(modules.get(owner), FUSED_MODULE):
                    raise UnseenError(f"no head of {path} could be changed: its attention is in {owner}")
            own: dict[int, HeadChange] = {
                _checked_head(path, head): _checked_change(path, head, change, means) for head, change in heads.items()
            }
            if own:
                self._changes[modules[path]] = own
        self._calls: dict[nn.Module, int] = {}
        self._applied: set[nn.Module] = set()
        self._hooks: list[RemovableHandle] = []

    def __enter__(self) -> Self:
        for outer in (intervention for intervention in INTERVENTIONS if isinstance(intervention, intervene)):
            for module, heads in self._changes.items():
                if twice := heads.keys() & outer._changes.get(module, {}).keys():
                    raise ArgumentError(
                        f"head {min(twice)} of {self.paths[module]} is already changed by an enclosing context"
                    )
        self._calls.clear()
        self._applied.clear()
        super().__enter__()
        # a copy of the model has a copy of a method, but the same function
        self._hooks = [
            module.register_forward_hook(lambda module, *_: self._check_call(module)) for module in self._changes
        ]
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        super().__exit__(kind, error, trace)
        for hook in self._hooks:
            hook.remove()
        if kind is None and "torch._dynamo" in sys.modules and not _is_forced_eager():
            # code compiled earlier calls no hooks of PyTorch's own modules
            for module in self._changes:
                if isinstance(module, FUSED_MODULE) and module not in self._applied:
                    raise UnseenError(
                        f"no head of {_shown(self.paths[module])} could be changed: it was not called, or ran compiled"
                    )

    def concerns(self, module: nn.Module) -> bool:
        """Return whether heads of this module are changed."""
        return module in self._changes

    def apply(self, module: nn.Module, context: Tensor, prepare: Callable[[], Prepared]) -> Tensor:
        """Return the contexts with those of the changed heads replaced."""
        self._calls[module] = self._calls.get(module, 0) + 1
        self._applied.add(module)
        for head in self._changes[module]:
            check_index(f"the head of {self.paths[module]}", head, context.shape[1])
        return change_heads(context, self._changes[module], prepare)

    def _check_call(self, module: nn.Module) -> None:
        """Raise if no attention was captured during the forward of a changed module."""
        if getattr(module, "_is_replica", False):
            raise UnseenError(
                f"heads of {type(module).__name__} cannot be changed in replicas of nn.DataParallel: run the model "
                "itself"
            )
        if self._calls.pop(module, 0) or module not in self._changes:
            return
        path = self.paths[module]
        inner = [
            name for name in attention_paths(self.paths) if name.startswith(f"{path}." if path else "") and name != path
        ]
        models = [owner for owner in self.paths if hasattr(owner, "set_attn_implementation")]
        reason = f"its attention is in {', '.join(inner)}" if inner else advice(module, models)
        raise UnseenError(f"no head of {_shown(path)} could be changed: {reason}")


class head_means(ModelIntervention, Mapping[str, Tensor]):  # noqa: N801 - used like a function: with attent.head_means(model) as means
    """The mean context of each head over the data that a model processes within this block.

    This is a mapping from the path of each module to its means, (H, Dv) in the dtype of the contexts, for
    `attent.intervene(…, means=…)`. Every query position has the same weight, including padding: give the model
    sequences of equal length, or one at a time.

    Example:
        >>> with attent.head_means(model) as means:
        ...     for inputs in data:
        ...         model(**inputs)
        >>> with attent.intervene(model, {"encoder.layer.5.attention.self": {11: "mean"}}, means=means):
        ...     model(**inputs)

    Args:
        model: the model, or any part of it.

    Raises:
        ArgumentError: `model` is not a module or is compiled.
    """

    def __init__(self, model: nn.Module) -> None:
        super().__init__(model)
        self._sums: dict[str, Tensor] = {}
        self._counts: dict[str, int] = {}
        self._dtypes: dict[str, torch.dtype] = {}

    def concerns(self, module: nn.Module) -> bool:
        """Return True: every attention is averaged."""
        return True

    @torch.no_grad()
    def apply(self, module: nn.Module, context: Tensor, prepare: Callable[[], Prepared]) -> Tensor:
        """Add the contexts to the sums and return them unchanged."""
        path, total = self.paths[module], context.detach().double().sum((0, 2))
        self._sums[path] = self._sums[path] + total if path in self._sums else total
        self._counts[path] = self._counts.get(path, 0) + context.shape[0] * context.shape[2]
        self._dtypes[path] = context.dtype
        return context

    def __getitem__(self, path: str) -> Tensor:
        if path not in self._sums:
            raise UnseenError(f"no attention of {path!r} ran; there are means of {', '.join(self._sums) or 'nothing'}")
        return (self._sums[path] / self._counts[path]).to(self._dtypes[path])

    def __iter__(self) -> Iterator[str]:
        return iter(self._sums)

    def __len__(self) -> int:
        return len(self._sums)

    # compared and hashed by identity, whatever it contains
    __hash__, __eq__ = object.__hash__, object.__eq__  # pyright: ignore[reportAssignmentType]

    def __repr__(self) -> str:
        return f"head_means({', '.join(f'{path}: {tuple(total.shape)}' for path, total in self._sums.items())})"


def _shown(path: str) -> str:
    return path or "(the model itself)"


def _checked_mapping(name: str, form: str, value: Any) -> Mapping[Any, Any]:
    refuse((not isinstance(value, Mapping), f"{name} must be {form}, got {type(value).__name__}"))
    return value


def _checked_head(path: str, head: Any) -> int:
    try:
        number = -1 if isinstance(head, bool) else operator.index(head)
    except TypeError:
        number = -1
    refuse((number < 0, f"a head of {path} must be a whole number from 0, got {head!r}"))
    return number


def _checked_change(path: str, head: int, change: Any, means: Mapping[str, Tensor] | None) -> HeadChange:
    if not isinstance(change, str):
        if callable(change):
            return cast(RowFunction, change)
        raise ArgumentError(
            f"head {head} of {path} must be changed to {' or '.join(CHANGES)}, or by a function of its weights, got "
            f"{change!r}"
        )
    check_known("change of a head", change, CHANGES)
    if change != "mean":
        return "zero" if change == "zero" else "uniform"
    if means is None or path not in _checked_mapping("means", "{path: (H, Dv)}", means):
        raise ArgumentError(
            f'head {head} of {path}: "mean" needs means={{{path!r}: (H, Dv)}}, which attent.head_means collects'
        )
    mean = means[path]
    if not isinstance(mean, Tensor) or mean.dim() != 2:
        form = tuple(mean.shape) if isinstance(mean, Tensor) else type(mean).__name__
        raise ArgumentError(f"the means of {path} must be a tensor (H, Dv), got {form}")
    return mean[check_index(f"the head of {path}", head, len(mean))]


def _is_forced_eager() -> bool:
    frames = sys.modules.get("torch._dynamo.eval_frame")
    return frames is not None and getattr(getattr(frames, "_stance", None), "stance", None) == "force_eager"
