from __future__ import annotations

import pytest
import torch

from attent.attention import attend, choices
from attent.attention.scores import SCORES, Additive, Dot, ScaledDot
from attent.experiments.benchmarking.plain.attention import fused, scale_of, tanh_scores, textbook


@pytest.mark.parametrize("name", sorted(SCORES))
@pytest.mark.parametrize("causal", [False, True])
def test_the_textbook_is_the_formula(name: str, causal: bool) -> None:
    query, key, value = (torch.randn(2, 3, 7, 5) for _ in range(3))
    score = choices.score_for(name, 5, 5, 3)
    expected = attend(query, key, value, score=score, mask="causal" if causal else None, implementation="formula")
    torch.testing.assert_close(textbook(query, key, value, score, causal=causal), expected)


def test_scores_of_tanh_form_by_hand() -> None:
    score = Additive(1, 1, 1, bias=False, v=False)
    torch.nn.init.ones_(score.query_weight)
    torch.nn.init.ones_(score.key_weight)
    found = tanh_scores(torch.tensor([[[[0.5]]]]), torch.tensor([[[[0.5], [-0.5]]]]), score)
    assert found.flatten().tolist() == pytest.approx([0.761594, 0.0], abs=1e-6)


def test_the_fused_function_has_two_scores() -> None:
    query, key, value = (torch.randn(2, 3, 7, 5) for _ in range(3))
    for score in (Dot(), ScaledDot(), ScaledDot(scale=0.3)):
        scale = scale_of(score, 5)
        torch.testing.assert_close(fused(query, key, value, scale, causal=True), textbook(query, key, value, score, causal=True))
    assert scale_of(choices.score("cosine"), 5) is None


def test_dropout_drops() -> None:
    query = torch.randn(1, 1, 9, 4)
    assert not torch.equal(textbook(query, query, query, Dot(), dropout=0.5), textbook(query, query, query, Dot()))
