import attention
import pytest
import torch
from attention import ATTENT, Case, Sides, backward_memory, compare, measure, parse_shape

from attent.attention.scores import SCORES
from attent.errors import ShapeError, UnknownNameError


@pytest.mark.parametrize("score", sorted(SCORES))
def test_both_sides_compute_the_same(score: str) -> None:
    for causal in (False, True):
        sides = Sides(Case(score, (2, 3, 11, 5), causal=causal))
        assert (sides.difference() or 0) < 1e-5
        for actual, expected in zip(sides.backward(ATTENT)(), sides.backward(sides.peer)(), strict=True):
            torch.testing.assert_close(actual, expected, atol=1e-4, rtol=1e-4)


def test_what_pytorch_has_is_its_own_function_and_the_rest_the_textbook() -> None:
    peers = {name: Sides(Case(name, (1, 1, 3, 2))).peer for name in SCORES}
    fused = {name for name, peer in peers.items() if peer == "scaled_dot_product_attention"}
    assert fused == {"dot", "scaled_dot"}


def test_a_textbook_line_that_does_not_fit_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attention, "total_memory", lambda *_: 0.01)
    rows, notes = measure(Case("additive", (1, 2, 64, 4)), rounds=1, seconds=0, memory=False)
    assert len(rows) == 1
    # 4 tensors of 2 · 64² · 4 numbers
    assert notes == ["additive (1, 2, 64, 4) float32: the textbook line is left out, for its tensors would take 0 MiB."]
    assert Sides(Case("additive", (1, 2, 64, 4))).textbook_excess() == pytest.approx(0.5)
    assert Sides(Case("scaled_dot", (1, 2, 64, 4))).textbook_excess() is None


def test_memory_is_that_of_the_table() -> None:
    threads = torch.get_num_threads()
    # one textbook tensor is 1024² · 32 · 4 bytes = 128 MiB
    assert (backward_memory(Case("additive", (1, 1, 1024, 32)), "textbook", threads) or 0) > 120


def test_a_report_has_a_row_for_each_side_of_each_case() -> None:
    cases = [Case("additive", (1, 1, 7, 4)), Case("cosine", (1, 1, 3, 2), "bfloat16")]
    messages: list[str] = []
    with pytest.raises(UnknownNameError, match="additive"):
        compare([*cases, Case("aditive", (1, 1, 3, 2))], memory=False, say=messages.append)
    assert messages == []
    report = compare(cases, rounds=1, seconds=0, memory=False, say=messages.append)
    assert messages == ["additive (1, 1, 7, 4) float32", "cosine (1, 1, 3, 2) bfloat16"]
    first, second, *rest = report.tables[0].rows
    assert [row["score"] for row in rest] == ["cosine", "cosine"]
    assert [first["side"], second["side"]] == [f"attent ({Sides(cases[0]).implementation()})", "textbook"]
    for row in (first, second):
        assert 0 < row["forward"] <= row["forward, median"]
        assert 0 < row["backward"] <= row["backward, median"]
    assert first["times"] == 1.0
    assert second["times"] == second["backward"] / first["backward"]
    assert first["difference"] is None
    assert second["difference"] < 1e-5


def test_a_shape_is_four_numbers() -> None:
    for text in ("1,2,3", "1,2,3,4,5", "1,2,3,x", "1,2,0,4", ""):
        with pytest.raises(ShapeError, match="B,H,T,D"):
            parse_shape(text)
    assert parse_shape("1, 2,3,4") == (1, 2, 3, 4)
