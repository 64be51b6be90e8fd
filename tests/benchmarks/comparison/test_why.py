import json
import sys
import time
from pathlib import Path

import pytest
import torch
import why
from why import alternate, compare, gradient_norms, random_entropy, random_gradient, step_times, steps_in_a_row

ROOT = Path(__file__).parents[3]


@pytest.mark.slow
def test_all_four_answers(options, silent, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(why, "WIDTHS", (8, 16))
    monkeypatch.setattr(why, "HEADS", (1, 2))
    monkeypatch.setattr(why, "step_times", lambda: step_times((4, 8), rounds=1, tokens=16))
    messages: list[str] = []
    comparison = compare(options(), say=messages.append, progress=silent)
    assert messages[0].startswith("6 trainings")
    gradients, times, scales, heads = comparison.report.tables
    assert gradients.rows[0].keys() == {"x", "tanh RNN", "GRU", "LSTM", "LSTM, forget bias 1", "attention, causal"}
    assert [row["length"] for row in times.rows] == [4, 8]
    assert all(row["bahdanau_milliseconds"][0] > 0 for row in times.rows)
    expected = [(score, width) for score in ("dot", "scaled_dot") for width in (8, 16)]
    assert [(row["score"], row["width"]) for row in scales.rows] == expected
    keys = ("loss", "entropy_random", "entropy_model", "gradient_random")
    assert all(row[key] > 0 for row in scales.rows for key in keys)
    assert [row["heads"] for row in heads.rows] == ["1", "2"]
    assert [figure.name for figure in comparison.figures] == ["why-gradients", "why-speed", "why-widths", "why-heads"]


def test_gradients_alone_train_nothing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys) -> None:
    def no_training(*args: object, **options: object) -> None:
        raise AssertionError("a model was trained")

    monkeypatch.setattr(why.trainings, "train", no_training)
    monkeypatch.setattr(why, "SEQUENCES", 2)
    monkeypatch.setattr(sys, "argv", ["why", "--only", "gradients", "--out", str(tmp_path)])
    threads = torch.get_num_threads()
    why.main()
    assert torch.get_num_threads() == threads
    lines = capsys.readouterr().out.splitlines()
    table = [line for line in lines if line.startswith("|")]
    assert table[0] == "| distance, steps | tanh RNN | GRU | LSTM | LSTM, forget bias 1 | attention, causal |"
    assert len(table) == 2 + len(why.DISTANCES) and "1 thread," in lines[3]
    assert "Seeds" not in lines[-1]
    assert {path.stem for path in tmp_path.glob("why*")} == {"why-gradients"}


def test_an_unknown_part_is_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys) -> None:
    monkeypatch.setattr(sys, "argv", ["why", "--only", "gradient", "--out", str(tmp_path)])
    with pytest.raises(SystemExit):
        why.main()
    assert "invalid choice: 'gradient' (choose from" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


def test_sides_alternate_and_only_their_own_work_counts() -> None:
    order: list[str] = []

    def busy() -> None:
        order.append("busy")
        end = time.process_time() + 0.02
        while time.process_time() < end:
            pass

    def idle() -> None:
        order.append("idle")
        time.sleep(0.02)

    times = alternate({"busy": busy, "idle": idle}, 3)
    assert order == ["busy", "busy", "idle", "idle"] * 3
    assert len(times["busy"]) == len(times["idle"]) == 3
    assert min(times["busy"]) >= 20 and min(times["idle"]) < 10


def test_steps_wait_for_each_other_in_the_rnn_alone() -> None:
    # an encoder and then a decoder of one layer, against 2 + 2 layers
    assert [steps_in_a_row("bahdanau", length) for length in (1, 10)] == [2, 20]
    assert [steps_in_a_row("transformer", length) for length in (1, 10)] == [4, 4]


def test_speed_has_a_median_and_its_middle_half(options, monkeypatch: pytest.MonkeyPatch) -> None:
    times = {4: {"bahdanau": [30.0, 10.0, 20.0, 50.0, 40.0], "transformer": [10.0, 10.0, 10.0, 10.0, 10.0]}}
    monkeypatch.setattr(why, "step_times", lambda: times)
    comparison = compare(options(parts=["speed"]), say=lambda line: None)
    (table,), (figure,) = comparison.report.tables, comparison.figures
    assert "median of 5 rounds" in table.title
    # the fixture's Transformer has 1 + 1 layers
    assert table.lines()[-1] == "| 4 | 8 | 2 | 30.0 [20.0, 40.0] | 10.0 [10.0, 10.0] | 3.00 [2.00, 4.00] |"
    assert figure.series[0].points[0][:4] == (4.0, 30.0, 20.0, 40.0)
    assert comparison.name == "why-speed"


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
