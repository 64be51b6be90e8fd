from __future__ import annotations

import weakref

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from attent.attention.capture.dispatch import attention_classes, dispatches, is_attention, names, unsupported


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


class WithSinks(Dispatching):
    def forward(self, features: Tensor) -> Tensor:
        return FUNCTIONS["attent"](self, features, s_aux=features)


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
    assert all(map(dispatches, (Dispatching, ByFunction)))
    assert not any(map(dispatches, (HoldingAttention, OwnAttention, Decoder, nn.MultiheadAttention)))


def test_what_a_model_may_be_built_of_is_read_from_its_code() -> None:
    assert attention_classes(Decoder) == ([Dispatching], [])
    assert attention_classes(Encoder)[0] == []
    assert set(attention_classes(Encoder)[1]) == {OwnAttention, OtherAttention}
    dispatching, computing = attention_classes(Both)
    assert (dispatching, set(computing)) == ([Dispatching], {OwnAttention, OtherAttention})
    assert attention_classes(nn.Linear) == ([], [])


def test_attention_is_known_by_its_name_or_by_what_it_calls() -> None:
    assert all(map(is_attention, (OwnAttention, HoldingAttention, Mixer, nn.MultiheadAttention)))
    assert not any(map(is_attention, (Encoder, Dispatching, nn.Linear)))
    assert not is_attention(type("AttentionDropout", (nn.Module,), {}))
    assert is_attention(torch.jit.ScriptModule, "SelfAttention")


def test_what_attend_does_not_have_is_read_from_the_arguments() -> None:
    assert unsupported(WithSinks)
    assert not unsupported(Dispatching)


def test_names_have_their_global_values() -> None:
    assert names(Dispatching)["FUNCTIONS"] is FUNCTIONS
    assert names(Mixer)["scaled_dot_product_attention"] is None
    assert names(nn.Linear) == {}


def test_what_a_class_names_is_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(globals(), "TERM", torch.ones(3))
    term = weakref.ref(names(Adding)["TERM"])
    globals()["TERM"] = None
    assert term() is None
