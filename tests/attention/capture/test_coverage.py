from __future__ import annotations

import copy
import weakref

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from attent.attention.capture.coverage import (
    advice_for_uncaptured,
    dispatching_and_computing_classes,
    is_attention,
    is_attention_module,
    is_dispatching,
    needs_unsupported,
    used_globals,
)


def flex_attention(query: Tensor) -> Tensor:
    return query


class FlexMixer(nn.Module):
    def forward(self, query: Tensor) -> Tensor:
        return flex_attention(query)


class SelfAttention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.dropout, self.inner = nn.Dropout(), nn.Linear(1, 1)


def paths_of(model: nn.Module) -> dict[nn.Module, str]:
    return {module: path for path, module in model.named_modules()}


def test_the_innermost_are_listed_unless_they_were_seen() -> None:
    block = nn.ModuleDict({"attention": SelfAttention()})
    paths = paths_of(nn.ModuleDict({"one": block, "two": copy.deepcopy(block), "other": nn.Linear(2, 2)}))
    assert list(advice_for_uncaptured(paths, {"one.attention"})) == ["two.attention"]
    assert list(advice_for_uncaptured(paths, set())) == ["one.attention", "two.attention"]
    # seen within it, or around it
    assert list(advice_for_uncaptured(paths, {"one.attention.inner", "two"})) == []
    assert list(advice_for_uncaptured(paths_of(SelfAttention()), set())) == [""]
    assert list(advice_for_uncaptured(paths_of(SelfAttention()), {""})) == []


class AttentionInterface(dict):
    """As in transformers, told by its name."""


FUNCTIONS = AttentionInterface()


class Dispatching(nn.Module):
    def forward(self, features: Tensor) -> Tensor:
        return FUNCTIONS["attent"](self, features, scaling=1.0)


def attended(module: nn.Module, features: Tensor) -> Tensor:
    return FUNCTIONS["attent"](module, features) if len(features) else attended(module, features)


class ByFunction(nn.Module):
    def forward(self, features: Tensor) -> Tensor:
        return attended(self, features)


class WithPages(Dispatching):
    def forward(self, features: Tensor) -> Tensor:
        return FUNCTIONS["attent"](self, features, cache=features)


class HoldingAttention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.self = Dispatching()


class OwnAttention(nn.Module):
    def forward(self, features: Tensor) -> Tensor:
        return (features @ features.mT).softmax(-1) @ features


class OtherAttention(OwnAttention):
    pass


TERM = torch.zeros(3)


class Adding(nn.Module):
    def forward(self, features: Tensor) -> Tensor:
        return features + TERM


BY_NAME = {"eager": OwnAttention, "other": OtherAttention}


class Mixer(nn.Module):
    def forward(self, features: Tensor) -> Tensor:
        return F.scaled_dot_product_attention(features, features, features)


class Decoder(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList([HoldingAttention() for _ in range(2)])

    def _init_weights(self, module: nn.Module) -> None:
        assert not isinstance(module, OwnAttention)


class Encoder(nn.Module):
    def __init__(self, name: str) -> None:
        super().__init__()
        self.attention = BY_NAME[name]()


class Both(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.encoder, self.decoder = Encoder("eager"), Decoder()


def test_a_class_that_looks_its_function_up_dispatches() -> None:
    assert all(map(is_dispatching, (Dispatching, ByFunction)))
    assert not any(map(is_dispatching, (HoldingAttention, OwnAttention, Decoder, nn.MultiheadAttention)))
    # what attend does not have is read from the arguments
    assert needs_unsupported(WithPages)
    assert not needs_unsupported(Dispatching)


def test_what_a_model_may_be_built_of_is_read_from_its_code() -> None:
    assert dispatching_and_computing_classes(Decoder) == ([Dispatching], [])
    assert dispatching_and_computing_classes(Encoder)[0] == []
    assert set(dispatching_and_computing_classes(Encoder)[1]) == {OwnAttention, OtherAttention}
    dispatching, computing = dispatching_and_computing_classes(Both)
    assert (dispatching, set(computing)) == ([Dispatching], {OwnAttention, OtherAttention})
    assert dispatching_and_computing_classes(nn.Linear) == ([], [])


def test_attention_is_known_by_its_name_or_by_what_it_calls() -> None:
    assert all(map(is_attention, (OwnAttention, HoldingAttention, Mixer, nn.MultiheadAttention)))
    assert not any(map(is_attention, (Encoder, Dispatching, nn.Linear)))
    dropout = type("AttentionDropout", (nn.Module,), {})
    assert not is_attention(dropout)
    assert is_attention(torch.jit.ScriptModule, "SelfAttention")
    assert is_attention_module(nn.MultiheadAttention(2, 1))
    assert is_attention_module(FlexMixer())
    assert not any(map(is_attention_module, (dropout(), nn.Dropout(), nn.Linear(1, 1))))


def test_names_have_their_global_values_which_are_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    assert used_globals(Dispatching)["FUNCTIONS"] is FUNCTIONS
    assert used_globals(Mixer)["scaled_dot_product_attention"] is None
    assert used_globals(nn.Linear) == {}
    monkeypatch.setitem(globals(), "TERM", torch.ones(3))
    term = weakref.ref(used_globals(Adding)["TERM"])
    globals()["TERM"] = None
    assert term() is None
