"""Figures without a trained model show what attent computes, in several states each."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import attent
from attent.attention.base import Normalizer, Score
from attent.attention.normalizers import TopK
from attent.attention.positions import Rotary, Sinusoidal
from attent.attention.scores import Additive, Gaussian, General
from attent.views.pages.page import web_file

pytestmark = pytest.mark.slow

# Half of the last digit that is shown.
SHOWN = 0.0051
RECORDED = json.loads((Path(__file__).parents[2] / "scripts/figures/recorded.json").read_text(encoding="utf-8"))
QUERY, KEYS = [1.6, 0.8], [[-0.9, 0.5], [2.0, 0.2], [0.3, 2.0], [-0.7, -1.7]]
# Handle, key, vector (0 the query), axis, step.
MOVES = (("q, noir", "ArrowLeft", 0, 0, -0.1), ("dog", "ArrowUp", 3, 1, 0.1), ("the", "ArrowLeft", 1, 0, -0.1))


def general() -> General:
    score = General(2, 2)
    torch.nn.init.zeros_(score.weight)
    score.weight.data[0, 1], score.weight.data[1, 0] = -1.0, 1.0
    return score


def additive() -> Additive:
    score = Additive(2, 2, 2, bias=False)
    for parameter in score.parameters():
        parameter.data.copy_(torch.eye(2) if parameter.dim() == 2 else torch.full((2,), 2.0))
    return score


SCORES: dict[str, Callable[[], str | Score]] = {
    "dot": lambda: "dot",
    "scaled_dot": lambda: "scaled_dot",
    "cosine": lambda: "cosine",
    "general": general,
    "additive": additive,
    "gaussian": lambda: Gaussian(1.0),
}


@pytest.mark.parametrize("name", SCORES)
def test_scores_and_weights_are_attents_after_each_move(figure: Callable[..., Any], name: str) -> None:
    page, score, vectors = figure("scores"), SCORES[name](), np.array([QUERY, *KEYS])
    page.view.select_option("select", name)
    for handle, key, vector, axis, step in ((*MOVES[0][:4], 0.0), *MOVES):
        for _ in range(4 if step else 0):
            page.view.locator(f".handle[aria-label*='{handle} (']").press(key)
            vectors[vector, axis] += step
        line = page.line
        query, keys = (torch.from_numpy(part).float() for part in (vectors[:1], vectors[1:]))
        context, weights = attent.attend(query, keys, keys, score=score, return_map=True)
        np.testing.assert_allclose(page.column(2), weights.scores()[0].detach(), atol=SHOWN)
        np.testing.assert_allclose(page.column(3), weights.dense()[0].detach(), atol=SHOWN)
        average = page.numbers(line.split(" = ")[2].split(").")[0])
        np.testing.assert_allclose(average, context[0].detach(), atol=SHOWN)


def test_normalizers_and_temperature_give_attents_weights(figure: Callable[..., Any]) -> None:
    page, scores = figure("normalizers"), [0.5, 2.0, 1.2, -1.0]
    for name in ("softmax", "entmax15", "sparsemax", "top_k", "hard", "sigmoid", "identity"):
        normalizer: str | Normalizer = TopK(2) if name == "top_k" else name
        page.view.select_option("select", name)
        for temperature, scores[1] in ((1.0, 2.0), (0.3, 2.0), (3.0, 0.1)):
            page.slide(0, temperature)
            page.slide(2, scores[1])
            line = page.line
            keys = torch.tensor(scores)[:, None] / temperature
            _, map_ = attent.attend(torch.ones(1, 1), keys, keys, score="dot", normalizer=normalizer, return_map=True)
            weights = map_.dense()[0]
            np.testing.assert_allclose(page.column(3), weights, atol=SHOWN)
            assert page.numbers(line)[0] == pytest.approx(weights.sum().item(), abs=SHOWN)
            zeros = int((weights == 0).sum())
            assert (f"{zeros} of 4 weights are exactly 0" if zeros else "no weight is exactly 0") in line


def test_positions_matter_by_their_distance_alone(figure: Callable[..., Any]) -> None:
    page = figure("positions")
    encoding = Sinusoidal(64)(torch.zeros(1, 130, 64))[0]
    ones, rotate = torch.ones(1, 1, 1, 16), Rotary().rotate
    for start, distance in ((0, 5), (0, 1), (37, 1), (80, 40)):
        page.slide(0, start)
        page.slide(1, distance)
        added, rotated = (float(number) for number in re.findall(r"\d\.\d{3}", page.line))
        assert added == pytest.approx((encoding[start] @ encoding[start + distance]).item() / 32, abs=SHOWN / 10)
        query, key = (rotate(ones, torch.tensor([[position]])) for position in (start + 5, start + distance))
        assert rotated == pytest.approx((query * key).sum().item() / 16, abs=SHOWN / 10)


def test_the_lookup_is_attents_from_exact_to_soft(figure: Callable[..., Any]) -> None:
    page = figure("lookup")
    grades, salaries = [3.0, 3.4, 3.5, 3.6, 4.0], [32_000, 36_000, 37_000, 38_500, 44_000]
    bandwidths = {2: 0.02, 4: 0.1, 6: 0.3, 8: 1.0, 11: 20.0}
    soft = {step: {"method": "soft", "bandwidth": bandwidth} for step, bandwidth in bandwidths.items()}
    matches: dict[int, dict[str, Any]] = {0: {}, 1: {"method": "nearest"}, **soft}
    for query in (3.5, 3.45, 2.8):
        page.slide(0, query)
        for step, options in matches.items():
            page.slide(1, step)
            answer = attent.lookup(query, grades, salaries, **options)
            if step == 0 and query != 3.5:
                assert page.line == "missing: no such key"
            else:
                assert page.numbers(page.line)[-1] == pytest.approx(answer.value, abs=0.51)
                np.testing.assert_allclose(page.column(3), answer.weights.dense()[0], atol=SHOWN)


def test_the_regression_is_that_of_the_estimator(figure: Callable[..., Any]) -> None:
    pytest.importorskip("sklearn", reason="scikit-learn is not installed")
    page = figure("regression")
    written = re.search(r"^const POINTS = (.+);$", web_file("figures/curves.js"), re.MULTILINE)
    points = np.array(json.loads(written[1] if written else ""))
    page.view.locator(".handle[aria-label^='point 8 (']").press("ArrowUp")
    points[7, 1] += 1
    for bandwidth in (0.05, 0.2, 1.5):
        page.slide(0, bandwidth)
        expected = attent.AttentionRegressor(bandwidth=bandwidth).fit(points[:, :1], points[:, 1]).predict([[3.5]])[0]
        assert page.numbers(page.line)[1] == pytest.approx(expected, abs=SHOWN)


def test_recorded_steps_are_shown(figure: Callable[..., Any]) -> None:
    page = figure("recurrent")
    for index, recorded in enumerate(RECORDED["sentences"]):
        page.view.select_option("select", str(index))
        for step, weights in enumerate(recorded["weights"]):
            page.slide(0, step)
            written, key = recorded["attention"][step], int(np.argmax(weights))
            line = page.line
            assert line.startswith(f"Step {step + 1}: with attention, the network writes {written} and reads ")
            words = recorded["source"].split()
            count = "₀₁₂"[words[: key + 1].count(words[key])] if words.count(words[key]) > 1 else ""
            assert f"⁨{words[key]}{count}⁩ {max(weights):.2f}" in line
            pairs = zip(recorded["fixed"][: step + 1], recorded["right"], strict=False)
            assert page.view.locator("del").all_inner_texts() == [word for word, right in pairs if word != right]


def test_recorded_weights_of_patches_are_shown(figure: Callable[..., Any]) -> None:
    page = figure("patches")
    page.view.select_option("select", "3")
    for layer, weights in enumerate(RECORDED["digits"][3]["layers"]):
        page.slide(0, layer)
        page.view.locator(".patch").nth(9).click()
        assert f"In layer {layer}, the class token gives it {weights[10]:.2f} of its attention" in page.line
