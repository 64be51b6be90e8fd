from __future__ import annotations

import re
import sys
from types import ModuleType

import pytest
import torch
from torch import Tensor, nn

from attent.attention import choices
from attent.attention.base import Position, Score
from attent.attention.masks import Causal
from attent.attention.normalizers import Softmax, TopK
from attent.attention.positions import Alibi, RelativeBias, Rotary
from attent.attention.scores import Additive, Dot, General, ScaledDot
from attent.errors import ArgumentError, MissingArgumentError, UnknownNameError


def product(query: Tensor, key: Tensor) -> Tensor:
    return query @ key.transpose(-2, -1)


class Wide(Score):
    def __init__(self, query_width: int, key_width: int) -> None:
        super().__init__()
        self.widths = (query_width, key_width)

    @classmethod
    def for_widths(cls, query_width: int, key_width: int, heads: int) -> Wide:
        return cls(query_width, key_width)


class Far(Position): ...


class Steep(Position):
    def __init__(self, slope: float) -> None:
        super().__init__()
        self.slope = slope


class Near(Score):
    def forward(self, query: Tensor, key: Tensor) -> Tensor:
        return product(query, key)


class Powered(Near):
    def __init__(self, power: float) -> None:
        super().__init__()
        self.power = power


class Plain(nn.Module):
    forward = staticmethod(product)


@pytest.fixture(autouse=True)
def mine(monkeypatch: pytest.MonkeyPatch) -> None:
    """This file as a module that a caller could name."""
    module = ModuleType("mine")
    vars(module).update(product=product, Wide=Wide, Far=Far, Causal=Causal, linear=nn.Bilinear(3, 3, 1))
    vars(module).update(Near=Near, Powered=Powered, Plain=Plain, Steep=Steep)
    monkeypatch.setitem(sys.modules, "mine", module)


def test_names_and_aliases_and_parts() -> None:
    assert isinstance(choices.score("scaled_dot"), ScaledDot)
    assert isinstance(choices.score("luong_dot"), Dot)
    assert choices.score("dot") is choices.score("dot")
    own = General(3, 5)
    assert choices.score(own) is own
    assert isinstance(choices.normalizer("softmax"), Softmax)
    top_k = TopK(2)
    assert choices.normalizer(top_k) is top_k
    assert isinstance(choices.mask("causal"), Causal)
    assert choices.mask(None) is None
    assert isinstance(choices.position("rope"), Rotary)
    assert choices.position(None) is None


def test_a_function_or_module_is_a_score_of_ones_own() -> None:
    query, key = torch.randn(2, 3, 5, 7), torch.randn(2, 3, 11, 7)
    for spec in (product, "mine:product"):
        scores = choices.score(spec)
        assert isinstance(scores, choices.Own)
        assert torch.equal(scores(query, key), product(query, key))
    module = nn.Bilinear(3, 3, 1)
    assert list(choices.score(module).parameters()) == list(module.parameters())


def test_modules_build_parts_from_names() -> None:
    score = choices.score_for("bahdanau", 3, 5, 2)
    assert isinstance(score, Additive)
    assert (score.widths, score.heads) == ((3, 5), 2)
    assert choices.score_for("mine:Wide", 3, 5, 2).widths == (3, 5)
    assert isinstance(choices.score_for("mine:product", 3, 5, 2), choices.Own)
    assert isinstance(choices.score_for(product, 3, 5, 2), choices.Own)
    assert isinstance(choices.score_for("mine:Near", 3, 5, 2), Near)
    own = choices.score_for("mine:Plain", 3, 5, 2)
    assert isinstance(own, choices.Own)
    assert isinstance(own.function, Plain)
    bias = choices.position_for("t5", 3)
    assert isinstance(bias, RelativeBias)
    assert bias.heads == 3
    assert isinstance(choices.position_for("alibi", 3), Alibi)
    assert isinstance(choices.position_for("mine:Far", 3), Far)
    assert choices.position_for(None, 3) is None


def test_a_module_cannot_build_what_it_knows_no_arguments_of() -> None:
    line = r"^score 'mine:Powered' needs arguments .*, score=Powered\(power\), or give its class for_widths$"
    with pytest.raises(MissingArgumentError, match=line):
        choices.score_for("mine:Powered", 3, 5, 2)
    with pytest.raises(MissingArgumentError, match=r", position=Steep\(slope\), or give its class for_heads$"):
        choices.position_for("mine:Steep", 3)
    with pytest.raises(ArgumentError, match=r"^score must be a name, a Score or a function \(query, key\) →"):
        choices.score_for("mine:Causal", 3, 5, 2)


def test_what_a_name_misses_and_which_names_suffice() -> None:
    assert choices.missing("mask", "window") == ("mask=Window(left, right)", ["causal"])
    assert choices.missing("normalizer", "softmax") is None
    assert choices.missing("score", "mine:product") is None
    with pytest.raises(UnknownNameError):
        choices.missing("mask", "casual")


def needs(line: str) -> str:
    return f"needs arguments that its name alone does not provide: pass an instance that you keep, {line}"


@pytest.mark.parametrize(
    ("choose", "value", "error", "message"),
    [
        (choices.score, "aditive", UnknownNameError, "unknown score 'aditive'; did you mean 'additive'? (known: add"),
        (choices.normalizer, "softmx", UnknownNameError, "unknown normalizer 'softmx'; did you mean 'softmax'? (known"),
        (choices.mask, "casual", UnknownNameError, "unknown mask 'casual'; did you mean 'causal'? (known: around, "),
        (choices.position, "rotory", UnknownNameError, "unknown position 'rotory'; did you mean 'rotary'? (known: al"),
        (choices.score, "additive", MissingArgumentError, needs("score=Additive(query_width, key_width, hidden)")),
        (choices.score, "luong", MissingArgumentError, needs("score=General(query_width, key_width)")),
        (choices.score, "mine:Wide", MissingArgumentError, needs("score=Wide(query_width, key_width)")),
        (choices.normalizer, "top_k", MissingArgumentError, needs("normalizer=TopK(k)")),
        (choices.mask, "window", MissingArgumentError, needs("mask=Window(left, right)")),
        (choices.position, "relative_bias", MissingArgumentError, needs("position=RelativeBias(heads)")),
        (choices.position, "sine", ArgumentError, "position 'sine' is added to embeddings, before attention"),
        (lambda name: choices.position_for(name, 3), "learned", ArgumentError, "is added to embeddings"),
        (choices.score, 3, ArgumentError, "must be a name, a Score or a function (query, key) → scores, got 3"),
        (choices.score, Dot, ArgumentError, "must be a name, a Score or a function (query, key) → scores, got <class"),
        (choices.normalizer, torch.softmax, ArgumentError, "normalizer must be a name or a Normalizer, got <"),
        (choices.mask, 0.5, ArgumentError, "mask must be a name, a Mask or a boolean tensor, got 0.5"),
        (choices.position, Causal(), ArgumentError, "a Position that acts inside attention, got Causal()"),
        (choices.position, "mine:Causal", ArgumentError, "must be a name or a Position that acts inside attention"),
        (choices.position, "mine:linear", ArgumentError, "must be a name or a Position that acts inside attention"),
    ],
)
def test_what_is_no_part_is_refused(choose, value: object, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=re.escape(message)):
        choose(value)
