from datetime import UTC, date, datetime

import pytest

from attent.errors import ArgumentError
from attent.nonparametric import lookup as lookup_module
from attent.nonparametric.lookup import lookup

STUDENTS = {"ann": "physics", "bob": "maths", "cid": "physics", "dot": "history"}


def test_it_prints_a_line_a_query() -> None:
    assert str(lookup(["ann", "zoe"], STUDENTS)) == "ann → physics 1.00\nzoe → missing: no such key"
    assert str(lookup("physics", STUDENTS, inverse=True)) == "physics → ann 0.50, cid 0.50"
    assert str(lookup([3, 9], [3, 3], [1, 2])) == "3 → 1.5  (keys: 3 0.50, 3 0.50)\n9 → missing: no such key"
    assert str(lookup(1, [1, 1], [[1, 2], [2, 2]])) == "1 → [1.5, 2]  (keys: 1 0.50, 1 0.50)"
    assert str(lookup("a", {})) == "a → missing: there are no keys"
    assert str(lookup([], STUDENTS)) == "(no queries)"
    assert str(lookup(1, [1] * 6, list("abcdef"))) == "1 → a 0.17, b 0.17, c 0.17, d 0.17 and 2 more"
    assert str(lookup(list(range(25)), [1], ["a"])).splitlines()[-1] == "… and 5 more"


def test_a_date_that_differs_by_its_time_zone_alone_says_so() -> None:
    noon = datetime(2026, 3, 3, 12)
    aware = noon.replace(tzinfo=UTC)
    assert str(lookup(noon, {aware: "a"})).endswith("→ missing: no such key (keys have a time zone, and this has none)")
    assert str(lookup(date(2026, 3, 3), {aware: "a"})).endswith("(keys have a time zone, and this has none)")
    assert str(lookup(aware, {noon: "a"})).endswith("→ missing: no such key (keys have no time zone, and this has one)")
    assert str(lookup(noon, {noon.replace(hour=1): "a"})).endswith("→ missing: no such key")
    assert str(lookup(aware, {aware.replace(hour=1): "a"})).endswith("→ missing: no such key")
    assert str(lookup(aware, {aware: "a"})).endswith("→ a 1.00")


def test_votes_and_values(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lookup_module, "TILE", 5)
    answer = lookup([3.5, 3.0, 9.0], [3.0, 3.4, 3.6], ["a", "b", "a"], method="soft", bandwidth=0.2)
    first, second, third = answer.votes(0)
    assert (first.key, first.value, second.key, third.key) == (3.4, "b", 3.6, 3.0)
    assert first.weight + second.weight + third.weight == pytest.approx(1.0)
    assert [vote.key for vote in answer.votes(0, 1)] == [3.4]
    assert list(answer) == answer.values == ["a", "a", "a"]
    assert answer.distribution(1)["a"] == pytest.approx(1 - answer.weights[1, 1].item())
    assert answer.panel().columns == ("3.0", "3.4", "3.6")
    assert list(lookup([1], [1], [2.0])) == [2.0]


def test_wrong_queries_are_refused() -> None:
    answer = lookup(["ann", "bob"], STUDENTS)
    with pytest.raises(ArgumentError, match=r"^value is the answer to a single query, got 2 queries: use values$"):
        _ = answer.value
    with pytest.raises(ArgumentError, match=r"^query must be the index of one of 2 queries, from 0, got 2$"):
        answer.distribution(2)
    with pytest.raises(ArgumentError, match=r"^n must be a whole number ≥ 1, got 0$"):
        answer.votes(0, 0)
