import json
from pathlib import Path

import pytest
import torch
import why
from why import compare, gradient_norms, random_entropy, random_gradient

ROOT = Path(__file__).parents[2]


@pytest.mark.slow
def test_all_four_answers(options, silent, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(why, "WIDTHS", (8, 16))
    monkeypatch.setattr(why, "HEADS", (1, 2))
    measure = why.time_figure
    monkeypatch.setattr(why, "time_figure", lambda: measure((4, 8), rounds=1, seconds=0.0, tokens=16))
    messages: list[str] = []
    comparison = compare(options(), say=messages.append, progress=silent)
    assert messages[0].startswith("6 trainings")
    gradients, times, scales, heads = comparison.report.tables
    assert gradients.rows[0].keys() == {"x", "tanh RNN", "GRU", "LSTM", "LSTM, forget bias 1", "attention, causal"}
    assert [row["x"] for row in times.rows] == ["4", "8"]
    expected = [(score, width) for score in ("dot", "scaled_dot") for width in (8, 16)]
    assert [(row["score"], row["width"]) for row in scales.rows] == expected
    keys = ("loss", "entropy_random", "entropy_model", "gradient_random")
    assert all(row[key] > 0 for row in scales.rows for key in keys)
    assert [row["heads"] for row in heads.rows] == ["1", "2"]
    assert [figure.name for figure in comparison.figures] == ["why-gradients", "why-speed", "why-widths", "why-heads"]


def test_one_step_of_a_linear_recurrence_by_hand() -> None:
    # y_T = Σ 0.5^d x_{T−d}
    def layer(inputs: torch.Tensor) -> torch.Tensor:
        powers = 0.5 ** torch.arange(inputs.shape[1] - 1, -1, -1.0)
        return (inputs * powers[:, None]).sum(1, keepdim=True)

    norms = gradient_norms(layer, width=3, length=4, sequences=2)
    torch.testing.assert_close(norms, torch.tensor([1.0, 0.5, 0.25, 0.125], dtype=torch.float64))


def test_the_page_has_these_entropies_and_gradients() -> None:
    tables = json.loads((ROOT / "docs" / "compare" / "why.json").read_text(encoding="utf-8"))["tables"]
    rows = next(table["rows"] for table in tables if table["title"] == "Dot and scaled dot product by width")
    assert len(rows) == 10
    for row in rows:
        assert random_entropy(row["score"], row["width"]) == pytest.approx(row["entropy_random"], rel=1e-3)
        assert random_gradient(row["score"], row["width"]) == pytest.approx(row["gradient_random"], rel=1e-3)


def test_the_gradient_of_a_query_by_hand(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(why, "QUERIES", 1)
    monkeypatch.setattr(why, "KEYS", 2)
    generator = torch.Generator().manual_seed(0)
    query, direction, *pairs = (torch.randn(count, 3, generator=generator) for count in (1, 1, 2, 2))
    key, value = pairs
    first, second = torch.softmax((query @ key.T)[0], -1)
    # of two keys: the derivative of a weight by the difference of the scores, times what the weight moves
    moved = (value[0] - value[1]) @ (direction[0] / direction[0].norm())
    expected = first * second * moved.abs() * (key[0] - key[1]).norm()
    assert random_gradient("dot", 3) == pytest.approx(expected.item(), rel=1e-4)
