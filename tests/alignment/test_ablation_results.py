from __future__ import annotations

from pathlib import Path

import pytest

from attent.alignment.ablation import ACCURACY, LOSS, HeadCost
from attent.alignment.ablation_results import AblationFile, cost_lines, ranked
from attent.errors import ArgumentError

COSTS = [
    HeadCost("a", 0, 1.5, 0.25, 0.125, 0.5, 1.0, 2.0),
    HeadCost("a", 1, 1.0, -0.25, -0.5, 0.0, None, None),
    HeadCost("b", 0, 2.0, 0.75, 0.5, 1.0, 0.125),
]


def test_costs_are_a_table_and_a_list_from_the_costliest_on() -> None:
    assert cost_lines(LOSS, COSTS) == [
        "         0        1",
        "a  +0.2500  -0.2500",
        "b  +0.7500         ",
        "",
        "module  head     cost       95 % interval  entropy, nats  distance, tokens",
        "b          0  +0.7500  +0.5000 to +1.0000           0.12                 –",
        "a          0  +0.2500  +0.1250 to +0.5000           1.00              2.00",
        "a          1  -0.2500  -0.5000 to +0.0000              –                 –",
    ]
    assert cost_lines(ACCURACY, COSTS)[1] == "a  +0.25  -0.25"
    assert ranked(COSTS) == [COSTS[2], COSTS[0], COSTS[1]]


def test_a_file_of_heads_is_read_again(tmp_path: Path) -> None:
    path = tmp_path / "heads.jsonl"
    with AblationFile(path, {"metric": "loss"}) as results:
        for cost in COSTS:
            results.add(cost)
    with AblationFile(path, {"metric": "loss"}) as results:
        assert list(results.costs.values()) == COSTS
    with pytest.raises(
        ArgumentError, match="is of another run, of other examples or of other settings: name another file"
    ):
        AblationFile(path, {"metric": "bleu"})
    with AblationFile(None, {}) as results:
        results.add(COSTS[0])
        assert results.costs == {("a", 0): COSTS[0]}
