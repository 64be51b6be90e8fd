"""The page of a walk: all of its numbers, and in a browser what each is made of."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from attent.views.pages.page import walk_page
from attent.views.walk import walk


def test_it_has_every_number_of_a_wide_walk() -> None:
    walkthrough = walk("a b c", width=80)
    html = walk_page(walkthrough).html
    steps = [*walkthrough.steps.values(), *walkthrough.parameters.values()]
    # and the sums of the rows
    assert html.count("<td") == sum(step.values.numel() for step in steps) + len(walkthrough.steps["weights"].rows)
    assert f">{walkthrough.steps['X'].values[0, 2, 79]:.4f}<" in html
    assert "d80" in html
    assert "<script>alert" not in walk_page(walk("</title><script>alert(1)</script> b")).html


@pytest.mark.slow
def test_a_score_is_written_out_where_one_points(window: Any, tmp_path: Path) -> None:
    walkthrough = walk("good dog", width=2)
    page = window.open(walk_page(walkthrough).save(tmp_path / "walk.html"))
    query, key, score = (walkthrough.steps[name].values[0, 0] for name in ("Q", "K", "scores"))
    page.locator("table[data-step=scores] td").nth(2).hover()
    pairs = zip(query[1].tolist(), key[0].tolist(), strict=True)
    factors = " + ".join(f"({left:.4f})({right:.4f})" for left, right in pairs)
    assert page.inner_text("#readout") == f"scores[dog, good] = {factors} = {score[1, 0]:.4f}"
    assert page.locator("table[data-step=K] tr.marked th").inner_text() == "good"
    assert page.locator("table[data-step=Q] tr.marked th").inner_text() == "dog"
    page.locator("table[data-step=output] td").nth(1).click()
    page.locator("table[data-step=X] td").nth(0).hover()
    weights = walkthrough.steps["weights"].values[0, 0, 0].tolist()
    values = walkthrough.steps["V"].values[0, 0, :, 1].tolist()
    terms = " + ".join(f"({share:.4f})({value:.4f})" for share, value in zip(weights, values, strict=True))
    assert page.inner_text("#readout").startswith(f"output[good, d2] = {terms} = ")
