"""check_part finds each fault, by one part that has it, and passes parts that have none.

The house's own are in the contract test.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, ClassVar

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from attent.attention.base import DotScore, KeyRange, LoweredSide, Mask, Normalizer, Pairs, Position, Score, Weighting
from attent.attention.masks import Causal, Selected, Table, Window
from attent.attention.normalizers import Softmax
from attent.attention.scores import General, ScaledDot
from attent.errors import ArgumentError, AttentError, PartError, ShapeError
from attent.testing import check_part


def distance(query: Tensor, key: Tensor) -> Tensor:
    return -(query[..., :, None, :] - key[..., None, :, :]).square().sum(-1)


class Wrong(torch.autograd.Function):
    """The square, whose gradient is said to be x."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.save_for_backward(x)
        return x.square()

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:  # pyright: ignore[reportIncompatibleMethodOverride]
        return gradient * ctx.saved_tensors[0]


class Product(DotScore):
    def forward(self, query: Tensor, key: Tensor) -> Tensor:
        return query @ key.mT


class Lowered(Product):
    def lower_key(self, key: Tensor, center: Tensor | None = None) -> LoweredSide:
        return LoweredSide(2 * key)


class Detached(Product):
    """Whose key half has the right numbers and no gradients."""

    def lower_key(self, key: Tensor, center: Tensor | None = None) -> LoweredSide:
        return LoweredSide(key.detach())


class Centred(DotScore):
    """Whose center is that of all keys, not of the visible ones alone, so that hidden ones change the scores."""

    def center(self, key: Tensor, visible: Tensor | None = None) -> Tensor:
        return key.mean(-2, keepdim=True)

    def lower_key(self, key: Tensor, center: Tensor | None = None) -> LoweredSide:
        center = self.center(key) if center is None else center
        return LoweredSide(key - center, center=center)

    def lower_query(self, query: Tensor, center: Tensor | None = None) -> LoweredSide:
        return LoweredSide(query if center is None else query - center)

    def forward(self, query: Tensor, key: Tensor) -> Tensor:
        return self.score_lowered(self.lower_query(query, self.center(key)), self.lower_key(key))


class OneHead(ScaledDot):
    def forward(self, query: Tensor, key: Tensor) -> Tensor:
        return super().forward(query, key)[:, :1]


class Later(Product):
    def lower_later_key(self, key: Tensor, start: int, center: Tensor | None = None) -> LoweredSide:
        return LoweredSide(key + start)


class Steps(Score):
    last = "scores"

    def forward(self, query: Tensor, key: Tensor) -> Tensor:
        return query @ key.mT

    def steps(self, query: Tensor, key: Tensor) -> dict[str, Tensor]:
        return {self.last: self(query, key) + (self.last == "scores")}


class Unnamed(Steps):
    last = "products"


class Places(Score):
    """Which says nothing of places, and adds them."""

    def score_lowered(self, query: LoweredSide, key: LoweredSide) -> Tensor:
        return query.features @ key.features[..., 1:].mT + key.features[..., 0][..., None, :]

    def lower_key(self, key: Tensor, center: Tensor | None = None) -> LoweredSide:
        return self.lower_later_key(key, 0)

    def lower_later_key(self, key: Tensor, start: int, center: Tensor | None = None) -> LoweredSide:
        positions = torch.arange(start, start + key.shape[-2], dtype=key.dtype)
        return LoweredSide(torch.cat((positions[:, None].expand(*key.shape[:-1], 1), key), -1))

    def forward(self, query: Tensor, key: Tensor) -> Tensor:
        return self.score_lowered(LoweredSide(query), self.lower_key(key))


class Own(Normalizer):
    """A normalizer made of a function."""

    def __init__(
        self, function: Callable[[Tensor], Tensor], *, distribution: bool = False, shift_invariant: bool = False
    ) -> None:
        self.function = function
        self.is_distribution, self.shift_invariant = distribution, shift_invariant  # pyright: ignore[reportAttributeAccessIssue]

    def normalize(self, scores: Tensor) -> Tensor:
        return self.function(scores)


class Leaking(Softmax):
    """Which hides nothing."""

    def __call__(self, scores: Tensor, allowed: Tensor | None = None) -> Tensor:
        return self.normalize(scores)


class Spoilt(Softmax):
    """Which hides by a factor of zero, that NaN survives not."""

    def __call__(self, scores: Tensor, allowed: Tensor | None = None) -> Tensor:
        weights = self.normalize(scores)
        return weights if allowed is None else weights.masked_fill(~allowed, 0.0)


class Neighbourly(Mask):
    """A mask of which `broken` says what is wrong."""

    def __init__(self, **broken: Callable[[Pairs], Any]) -> None:
        self.broken = broken

    def allowed(self, pairs: Pairs) -> Tensor:
        return self.broken["allowed"](pairs) if "allowed" in self.broken else Window(1, 1).allowed(pairs)

    def key_range(self, pairs: Pairs) -> KeyRange | None:
        return self.broken["key_range"](pairs) if "key_range" in self.broken else None

    def visible_keys(self, pairs: Pairs) -> Tensor | None:
        return self.broken["visible_keys"](pairs) if "visible_keys" in self.broken else None


def loose(left: int, right: int) -> Callable[[Pairs], Any]:
    """The range of a window, as one that may have gaps."""
    return lambda pairs: Window(left, right).key_range(pairs)._replace(exact=False)  # pyright: ignore[reportOptionalMemberAccess]


class Added(Position):
    biases: ClassVar[bool] = True

    def __init__(self, function: Callable[[Pairs], Tensor]) -> None:
        super().__init__()
        self.function = function

    def bias(self, pairs: Pairs) -> Tensor:
        return self.function(pairs)


class Apart(Added):
    """A penalty of the distance, whose bias by offset has another sign for keys before the query."""

    def __init__(self) -> None:
        super().__init__(lambda pairs: -gaps(pairs))

    def bias_by_offset(self, offsets: Tensor) -> Tensor:
        return -offsets[None].double()


class Turned(Position):
    rotates: ClassVar[bool] = True

    def __init__(self, function: Callable[[Tensor, Tensor], Tensor]) -> None:
        super().__init__()
        self.function = function

    def rotate(self, features: Tensor, positions: Tensor) -> Tensor:
        return self.function(features, positions)


class Factors(Weighting):
    def __init__(self, function: Callable[[Pairs], Tensor]) -> None:
        self.function = function

    def factors(self, pairs: Pairs) -> Tensor:
        return self.function(pairs)


def gaps(pairs: Pairs) -> Tensor:
    query, key = pairs.broadcast_positions()
    return (query - key).abs().double()


FAULTY: dict[str, tuple[Any, str]] = {
    "a score's shape": (lambda query, key: (query @ key.mT)[:, :1], "a score must return (B, H, Tq, Tk) = (2, 3, 5,"),
    "a score's own shape": (OneHead(), "forward of float64 must be (B, H, Tq, Tk) = (2, 3, 5, 7), got (2, 1, 5, 7)"),
    "a score's dtype": (lambda query, key: (query @ key.mT).float(), "forward of float64 must be torch.float64, got"),
    "a score's steps": (Steps(), "the last of its steps must equal what forward returns: they differ by up to 1"),
    "a score's last step": (Unnamed(), "its steps must end in 'scores', got 'products'"),
    "a lowered form": (Lowered(), "lower_query and lower_key must give what forward returns"),
    "a later key": (Later(), "lower_later_key must lower keys as lower_key does in a longer sequence"),
    "a score that looks at all keys": (
        lambda query, key: query @ (key - key.mean(-2, keepdim=True)).mT,
        "a pair's score must depend on its query and key alone",
    ),
    "a gradient at equal vectors": (
        lambda query, key: -(query[..., :, None, :] - key[..., None, :, :]).square().sum(-1).sqrt(),
        "the gradient must be finite where a query equals a key",
    ),
    "a score that looks at all queries": (
        lambda query, key: (query - query.mean(-2, keepdim=True)) @ key.mT,
        "a pair's score must depend on its query and key alone",
    ),
    "a score that looks at its neighbours": (lambda query, key: query @ key.mT * len(query), "a sequence's scores"),
    "a score of places": (Places(), "in another order of the keys the scores must be the same"),
    "a score's gradient": (lambda query, key: Wrong.apply(query) @ key.mT, "the gradient of query must match"),
    "a lowered form's gradient": (
        Detached(),
        "the gradient of key must equal the formula's, by tiled: they differ by up",
    ),
    "a score that raises": (lambda query, key: query @ key, "raises RuntimeError"),
    "an center of hidden keys": (Centred(), "must not depend on a key that no query sees and that was set to NaN, by"),
    "a score of NaN": (lambda query, key: distance(query, key).sqrt(), "must be finite"),
    "a normalizer's shape": (Own(lambda scores: scores.sum(-1, keepdim=True)), "weights of float64 scores must be (B,"),
    "a normalizer's dtype": (Own(lambda scores: scores.float().sigmoid()), "weights of float64 scores must be"),
    "rows that are no distribution": (
        Own(lambda scores: scores.sigmoid(), distribution=True),
        "it declares is_distribution,",
    ),
    "rows below zero": (
        Own(lambda scores: 2 * scores.softmax(-1) - 1 / scores.shape[-1], distribution=True),
        "with a smallest weight of -0.",
    ),
    "rows that are none where some is hidden": (
        Own(lambda scores: scores.clamp(min=-2.0).softmax(-1), distribution=True),
        "but its rows of what is seen sum to",
    ),
    "a shift that is seen": (Own(lambda scores: scores.sigmoid(), shift_invariant=True), "it declares shift_invariant"),
    "a normalizer over queries": (Own(lambda scores: scores.softmax(-2)), "a row's weights must depend on the row"),
    "a normalizer of places": (Own(lambda scores: scores.cumsum(-1).sigmoid()), "in another order of the keys the"),
    "a hidden weight": (Leaking(), "a hidden pair must have weight zero, got up to 0."),
    "a hidden score": (Spoilt(), "the weights must not depend on hidden scores"),
    "a normalizer's gradient": (
        Own(lambda scores: Wrong.apply(scores.clamp(min=-9.0))),
        "must match finite differences",
    ),
    "a mask's type": (
        Neighbourly(allowed=lambda pairs: Window(1, 1).allowed(pairs).float()),
        "allowed must be torch.bool, got torch.float32",
    ),
    "a mask's shape": (Neighbourly(allowed=lambda pairs: Window(1, 1).allowed(pairs)[0, 0]), "allowed must broadcast"),
    "a mask that counts tiles": (
        Neighbourly(allowed=lambda pairs: torch.eye(len(pairs.query_index), len(pairs.key_index)).bool()[None, None]),
        "allowed of some rows and keys must equal those of all",
    ),
    "a short reach": (Neighbourly(key_range=loose(0, 1)), "key_range leaves out 30 of 84 pairs that may attend"),
    "a short span": (Neighbourly(key_range=Window(1, 0).key_range), "key_range leaves out"),
    "a wide span": (Neighbourly(key_range=Window(2, 1).key_range), "an exact key_range holds"),
    "unseen keys": (Neighbourly(visible_keys=lambda pairs: pairs.key_index > 2), "visible_keys leaves out keys that"),
    "a position of nothing": (Position(), "it must set rotates or biases"),
    "a bias that is infinite": (
        Added(lambda pairs: gaps(pairs).masked_fill(gaps(pairs) > 2, -torch.inf)),
        "bias must be finite numbers",
    ),
    "a bias of tiles": (Added(lambda pairs: gaps(pairs) - gaps(pairs).mean()), "bias of some rows and keys must equal"),
    "a bias by offset": (Apart(), "bias_by_offset must equal the bias of pairs at that offset"),
    "a turn's dtype": (
        Turned(lambda features, positions: features.float()),
        "rotation of float64 must be torch.float64,",
    ),
    "a turn by neighbours": (
        Turned(lambda features, positions: features - features.mean(-2, keepdim=True)),
        "a token's rotation must depend only on its own",
    ),
    "a factor below zero": (Factors(lambda pairs: 1 - gaps(pairs)), "factors must be finite and ≥ 0, got -"),
    "factors of tiles": (Factors(lambda pairs: gaps(pairs) / gaps(pairs).amax()), "factors of some rows and keys must"),
}


@pytest.mark.parametrize("fault", FAULTY)
def test_a_faulty_part_is_found(fault: str) -> None:
    part, message = FAULTY[fault]
    with pytest.raises(PartError, match=re.escape(message)) as raised:
        check_part(part)
    assert isinstance(raised.value, AssertionError)
    assert isinstance(raised.value, AttentError)
    assert re.match(r"(score|normalizer|mask|position|weighting) \w+", str(raised.value))
    assert "\n" not in str(raised.value)


GOOD = {
    "a function": distance,
    "a score with parameters": General(4, 4),
    "a score whose parameters are frozen": General(4, 4).requires_grad_(False),
    "a score": ScaledDot(),
    "a normalizer": Own(lambda scores: F.relu(scores)),
    "a mask": Neighbourly(key_range=loose(2, 3), visible_keys=lambda pairs: pairs.key_index >= 0),
    "a bias": Added(lambda pairs: -gaps(pairs)),
    "a turn": Turned(lambda features, positions: features * torch.cos(positions[:, None, :, None].to(features.dtype))),
    "factors": Factors(lambda pairs: torch.exp(-gaps(pairs))),
}


@pytest.mark.parametrize("name", GOOD)
def test_a_part_without_faults_passes_unchanged(name: str) -> None:
    part, state = GOOD[name], torch.get_rng_state()
    parameters = dict(part.named_parameters()) if isinstance(part, nn.Module) else {}
    before = {key: tensor.clone() for key, tensor in parameters.items()}
    assert check_part(part) is None
    assert torch.equal(torch.get_rng_state(), state)
    for key, tensor in before.items():
        after = part.get_parameter(key)
        assert after.dtype == tensor.dtype and torch.equal(after, tensor) and after.grad is None


def test_parts_made_for_some_sizes_are_tried_at_them() -> None:
    check_part(Table(torch.rand(11, 13) < 0.5), queries=11, keys=13)
    check_part(Selected(torch.randint(0, 13, (1, 1, 11, 3))), queries=11, keys=13, batch=3, heads=2)
    check_part(General(3, 5, heads=2))
    check_part(Causal(), queries=1, keys=1, batch=1, heads=1)
    with pytest.raises(ShapeError, match=r"^mask must be \(Tq, Tk\) = \(5, 7\), got \(11, 13\)$"):
        check_part(Table(torch.ones(11, 13, dtype=torch.bool)))
    for value in ("softmax", Softmax, 3):
        with pytest.raises(ArgumentError):
            check_part(value)
