from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from attent.attention.capture.coverage import advice, looks_like_attention, unseen


def flex_attention(query: Tensor) -> Tensor:
    return query


class Mixer(nn.Module):
    def forward(self, query: Tensor) -> Tensor:
        return flex_attention(query)


class SelfAttention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.dropout, self.inner = nn.Dropout(), nn.Linear(1, 1)


class AttentionBlock(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.attention = SelfAttention()


def paths_of(model: nn.Module) -> dict[nn.Module, str]:
    return {module: path for path, module in model.named_modules()}


def test_the_innermost_are_listed_unless_they_were_seen() -> None:
    paths = paths_of(nn.ModuleDict({"one": AttentionBlock(), "two": AttentionBlock(), "other": nn.Linear(2, 2)}))
    assert list(unseen(paths, {"one.attention"})) == ["two.attention"]
    assert list(unseen(paths, set())) == ["one.attention", "two.attention"]
    # seen within it, or around it
    assert list(unseen(paths, {"one.attention.inner", "two"})) == []
    assert list(unseen(paths_of(SelfAttention()), set())) == [""]
    assert list(unseen(paths_of(SelfAttention()), {""})) == []


@pytest.mark.parametrize(
    ("module", "alike"), [(nn.MultiheadAttention(2, 1), True), (Mixer(), True), (nn.Dropout(), False), (nn.Linear(1, 1), False)]
)
def test_what_looks_like_attention(module: nn.Module, alike: bool) -> None:
    assert looks_like_attention(module) == alike
    assert not looks_like_attention(type("AttentionDropout", (nn.Module,), {})())


def test_what_to_do_about_it() -> None:
    assert "F.scaled_dot_product_attention or attent.attend in its place" in advice(Mixer())
    assert "it was not called" in advice(SelfAttention())
    model = nn.Sequential(SelfAttention())
    model.compile(backend="eager")
    (said,) = unseen(paths_of(model), set()).values()
    assert 'torch.compiler.set_stance("force_eager")' in said
    torch.compiler.reset()
