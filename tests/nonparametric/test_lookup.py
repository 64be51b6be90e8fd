import math
from datetime import UTC, date, datetime, timedelta, timezone
from typing import Any

import numpy as np
import pytest
import torch

from attent.errors import ArgumentError, AttentError, ShapeError, UnknownNameError
from attent.nonparametric import lookup as lookup_module
from attent.nonparametric.lookup import lookup

STUDENTS = {"ann": "physics", "bob": "maths", "cid": "physics", "dot": "history"}


def test_exact_weights_are_one_hot_and_equal_keys_share() -> None:
    answer = lookup(["bob", "zoe", "ann"], STUDENTS)
    assert answer.weights.dense().tolist() == [[0, 1, 0, 0], [0, 0, 0, 0], [1, 0, 0, 0]]
    assert (answer.values, answer.missing) == (["maths", None, "physics"], ["zoe"])
    twice = lookup([3, 4, 7], [3, 4, 3, 5], [1.0, 2.0, 4.0, 9.0])
    assert twice.weights.dense().tolist() == [[0.5, 0, 0.5, 0], [0, 1, 0, 0], [0, 0, 0, 0]]
    assert (twice.values[:2].tolist(), twice.values.isnan().tolist(), twice.missing) == (
        [2.5, 2],
        [False, False, True],
        [7],
    )
    answer = lookup(["physics", "maths", "law"], STUDENTS, inverse=True)
    assert (answer.distribution(0), answer.distribution(1)) == ({"ann": 0.5, "cid": 0.5}, {"bob": 1.0})
    assert answer.missing == ["law"]


def test_values_that_only_equal_themselves_or_nothing() -> None:
    answer = lookup([float("nan"), 1.0], [1, float("nan")], ["a", "b"])
    assert np.isnan(answer.missing[0])
    assert answer.values == [None, "a"]
    assert lookup([True, ("a", 1)], [("a", 1), True], ["x", "y"]).values == ["y", "x"]
    with pytest.raises(ArgumentError, match=r"^only numbers, dates, vectors and strings can be similar; other"):
        lookup(True, [True, False], ["a", "b"], method="soft")
    # nothing is rounded
    moments = np.array([1, 2], dtype="datetime64[ns]")
    assert lookup(moments[1], moments, ["a", "b"]).value == "b"
    assert lookup("ann", {"ann": 1234567890123456789}).value == 1234567890123456789


@pytest.mark.parametrize("query", [date(2020, 1, 2), np.datetime64("2020-01-02"), frozenset])
def test_a_single_thing_is_looked_up_as_in_a_list(query: Any) -> None:
    single, listed = (lookup(tensor, [query, date(2021, 3, 4)], ["a", "b"]) for tensor in (query, [query]))
    assert single.values == listed.values == ["a"]
    assert lookup(date(1999, 1, 1), query, ["a"]).values == [None]


@pytest.mark.parametrize("unit", ["D", "ns"])
def test_a_date_is_midnight_of_its_day(unit: str) -> None:
    days = np.array(["2020-01-01", "2020-01-02", "2020-01-03"], f"datetime64[{unit}]")
    for query in (date(2020, 1, 2), datetime(2020, 1, 2), days[1]):
        assert lookup(query, days, ["a", "b", "c"]).value == "b"
    assert lookup(datetime(2020, 1, 2, 7), days, ["a", "b", "c"]).missing == [datetime(2020, 1, 2, 7)]
    assert lookup(datetime(2020, 1, 2, tzinfo=UTC), [date(2020, 1, 2)], ["a"]).values == [None]


def test_pandas() -> None:
    pandas = pytest.importorskip("pandas", reason="pandas is not installed")
    days = pandas.Series(pandas.to_datetime(["2020-01-01", "2020-01-02"]))
    prices = pandas.Series([3.0, 5.0])
    for query in (date(2020, 1, 2), pandas.Timestamp("2020-01-02"), np.datetime64("2020-01-02", "ns")):
        assert lookup(query, days, prices).value == lookup(query, prices.set_axis(days)).value == 5.0
    assert lookup(pandas.NaT, days, prices).values.isnan().all()
    query, keys, values = (pandas.Series(items) for items in ([0.4, 0.9], [0.0, 1.0], ["a", "b"]))
    assert lookup(query, keys, values, method="nearest").values == ["a", "b"]
    # rows of a table are vectors
    table = pandas.DataFrame({"x": [0.0, 1.0], "y": [0.0, 9.0]})
    assert lookup(table[::-1], table, ["a", "b"]).values == ["b", "a"]
    with pytest.raises(ArgumentError, match=r"^queries must be finite numbers to have a distance, got NaT"):
        lookup(pandas.NaT, days, prices, method="nearest")
    with pytest.raises(ArgumentError, match=r"^values are missing: give a dict or a pandas Series, or keys and"):
        lookup("x", table)


@pytest.mark.parametrize("keys", [np.array([2, 3.5, 10]), torch.tensor([2, 3.5, 10]), (2, 3.5, 10)])
def test_keys_may_come_as_what_holds_numbers(keys: Any) -> None:
    assert lookup(3.5, keys, ["a", "b", "c"]).value == "b"
    assert lookup([4, 9], keys, ["a", "b", "c"], method="nearest").values == ["b", "c"]


def test_dates_are_near_by_their_days() -> None:
    days, profits = [date(2020, 1, 1), date(2020, 1, 2), date(2020, 1, 5)], [10.0, 30.0, 60.0]
    softly = lookup(date(2020, 1, 3), days, profits, method="soft", bandwidth=2.0)
    assert softly.value == lookup(3, [1, 2, 5], profits, method="soft", bandwidth=2.0).value
    assert lookup(date(2020, 1, 4), days, profits, method="nearest").value == 60.0
    noon = datetime(2020, 1, 2, 12)
    assert lookup(noon, [datetime(2020, 1, 1), datetime(2020, 1, 3, 6)], ["a", "b"], method="nearest").value == "b"
    east = timezone(timedelta(hours=12))
    moments = [datetime(2020, 1, 3, tzinfo=east), noon.replace(tzinfo=east)]
    assert lookup(noon.replace(tzinfo=UTC), moments, [1, 2], method="nearest").value == 1
    # beside other things they only compare by equality
    assert lookup([date(2020, 1, 2), True], [True, date(2020, 1, 2)], ["x", "y"]).values == ["y", "x"]
    with pytest.raises(ArgumentError, match="needs a bandwidth, in days,"):
        lookup(date(2020, 1, 3), days, profits, method="soft")


def test_the_nearest_takes_all_and_a_tie_goes_to_the_first() -> None:
    answer = lookup([3.5, 0.1 + 0.2, -9], [3, 4, 0.3], [30.0, 40.0, 3.0], method="nearest")
    assert answer.values.tolist() == [30.0, 3.0, 3.0]
    assert answer.weights.dense().sum(-1).tolist() == [1, 1, 1]
    vectors = lookup([(0.9, 0)], [(0, 0), (1, 0)], ["a", "b"], method="nearest")
    assert vectors.value == "b"
    # of strings that are alike the equal one
    assert lookup(["Ann", "ann", "ANN"], {"ann": 1, "Ann": 2}, method="nearest").values.tolist() == [2, 1, 1]
    # a wide bandwidth makes a feature count little
    assert lookup([(0.9, 0.0)], [(0, 0), (1, 9)], ["a", "b"], method="nearest", bandwidth=[0.1, 10.0]).value == "b"


def test_far_numbers_are_told_apart_softly() -> None:
    answer = lookup(1e8 + 0.3, [0.0, 1e8, 1e8 + 1], [0.0, 1.0, 2.0], method="soft", bandwidth=0.5)
    near, far = math.exp(-0.5 * (0.3 / 0.5) ** 2), math.exp(-0.5 * (0.7 / 0.5) ** 2)
    assert answer.value == pytest.approx((near + 2 * far) / (near + far), rel=1e-6)


def test_soft_is_nadaraya_and_watsons_regression() -> None:
    keys, values, query = torch.randn(11, dtype=torch.float64), torch.randn(11, 2, dtype=torch.float64), [0.3, -1.0]
    answer = lookup(query, keys, values, method="soft", bandwidth=0.4)
    weights = torch.exp(-0.5 * ((torch.tensor(query, dtype=torch.float64)[:, None] - keys) / 0.4).square())
    torch.testing.assert_close(answer.values, weights @ values / weights.sum(1, keepdim=True))

    def score(q: torch.Tensor, k: torch.Tensor) -> torch.Tensor:
        return -0.5 * ((q - k.transpose(-2, -1)) / 0.4).square()

    torch.testing.assert_close(lookup(query, keys, values, method="soft", score=score).values, answer.values)


def test_soft_strings() -> None:
    answer = lookup(["Anne", "bobby"], STUDENTS, method="soft")
    assert answer.values == ["physics", "maths"]
    assert answer.votes(1)[0].key == "bob"
    colder = lookup("Anne", STUDENTS, method="soft", temperature=0.01)
    assert colder.distribution()["physics"] > answer.distribution(0)["physics"]


def test_numbers_have_a_mean_and_other_values_a_distribution() -> None:
    for values in ([True, False], [1.0, "x"], ["a", "b"]):
        assert lookup(1, [1, 1], values).distribution() == dict.fromkeys(values, 0.5)
    assert lookup(1, [1, 1], [[1, 2], [3, 6]]).value == [2.0, 4.0]
    assert lookup(1, [1, 1], [[1, 2], ["a"]]).values == [(1, 2)]


def test_nothing_asked_and_nothing_held() -> None:
    assert len(lookup([], STUDENTS)) == 0
    for method in ("exact", "nearest", "soft"):
        assert lookup(["a"], {}, method=method).missing == ["a"]
    assert lookup([1.0], [], [], method="nearest").missing == [1.0]
    assert lookup([], [1.0], [2.0], method="nearest").values.shape == (0,)


def test_many_keys_in_linear_memory() -> None:
    keys = list(range(20_000))
    answer = lookup(keys[::-5], keys, [2.0 * key for key in keys])
    assert answer.values.tolist() == [2.0 * key for key in keys[::-5]]


@pytest.mark.parametrize(
    ("arguments", "named", "error", "message"),
    [
        (
            (1, STUDENTS),
            {"method": "nearest"},
            ArgumentError,
            "^queries and keys must be of one kind, got numbers such",
        ),
        (
            (["a", 1], STUDENTS),
            {"method": "nearest"},
            ArgumentError,
            "got things such as 'a' and strings such as 'ann'",
        ),
        (([1.0], [1, float("nan")], [1, 2]), {"method": "soft", "bandwidth": 1}, ArgumentError, r"nan as keys\[1\]$"),
        (([1], [1, 2], [1, float("inf")]), {}, ArgumentError, r"got inf as values\[1\]$"),
        *(((1, keys, [1]), {}, ArgumentError, "^keys must be numbers, vectors") for keys in ([None], [{}], [([],)])),
        (([(1, 2)], [(1, 2), (1, 2, 3)], [1, 2]), {"method": "nearest"}, ShapeError, "^keys .* one width, got 2 and 3"),
        (([1], [1, 2], [1]), {}, ShapeError, "^there must be a value for each of 2 keys, got 1$"),
        (("a", STUDENTS, [1]), {}, ArgumentError, "^a dict already has values"),
        (("a", STUDENTS), {"method": "fuzzy"}, UnknownNameError, "^unknown lookup method 'fuzzy'"),
        (("a", STUDENTS), {"bandwidth": 1}, ArgumentError, "an exact lookup compares by equality$"),
        (("a", STUDENTS), {"method": "soft", "bandwidth": 1}, ArgumentError, "^bandwidth is for numbers and dates;"),
        (("a", STUDENTS), {"method": "soft", "temperature": 0}, ArgumentError, "^temperature must be a number > 0,"),
        (("a", STUDENTS), {"method": "soft", "score": "dot"}, ArgumentError, "^score is for numbers and dates;"),
        (([1], [1], [1]), {"method": "soft"}, ArgumentError, '^method="soft" needs a bandwidth'),
        (([1], [1], [1]), {"method": "soft", "bandwidth": -1}, ArgumentError, "^bandwidth must be a number > 0, or 1"),
        (([1], [1], [1]), {"method": "soft", "bandwidth": 1, "score": "dot"}, ArgumentError, "only one of them$"),
        (([1], [1], [1]), {"method": "nearest", "temperature": 1}, ArgumentError, "^temperature is for strings with"),
        (({"a": 1}, STUDENTS), {}, ArgumentError, "^queries must be a number, a string or a sequence of them, got"),
        (("a", {"a": {}}), {}, ArgumentError, "^values must be .* or other hashable things, got {}$"),
    ],
)
def test_what_is_refused(
    arguments: tuple[Any, ...], named: dict[str, Any], error: type[AttentError], message: str
) -> None:
    with pytest.raises(error, match=message):
        lookup(*arguments, **named)


@pytest.mark.parametrize("kind", [tuple, np.array, torch.tensor])
def test_one_vector_is_one_query(kind: Any) -> None:
    keys, values = [[1.0, 2.0], [3.0, 4.0]], [5.0, 6.0]
    assert lookup(kind([3.0, 4.0]), keys, values).values.tolist() == [6]
    assert lookup(kind([1.0, 2.1]), keys, values, method="nearest").values.tolist() == [5]
    with pytest.raises(ShapeError, match="must be vectors of one width, got 3 and 2 numbers"):
        lookup(kind([1.0, 2.0, 3.0]), keys, values, method="nearest")
    with pytest.raises(ArgumentError, match=r"must be of one kind, got numbers such as 1\.0 and vectors"):
        lookup(torch.tensor(1.0), keys, values, method="nearest")


def test_numbers_that_are_too_large_are_said() -> None:
    with pytest.raises(ArgumentError, match=r"^values must be finite numbers of double precision to have a mean,"):
        lookup(1, [1], [10**400])
    with pytest.raises(ArgumentError, match=r"^keys must be finite numbers to have a distance, got 1000"):
        lookup(1, [10**400], [1], method="nearest")
    assert lookup(10**400, [10**400], ["a"]).values == ["a"]


def test_it_prints_a_line_a_query() -> None:
    assert str(lookup(["ann", "zoe"], STUDENTS)) == "ann → physics 1.00\nzoe → missing: no such key"
    assert str(lookup("physics", STUDENTS, inverse=True)) == "physics → ann 0.50, cid 0.50"
    assert str(lookup([3, 9], [3, 3], [1, 2])) == "3 → 1.5  (keys: 3 0.50, 3 0.50)\n9 → missing: no such key"
    assert str(lookup(1, [1, 1], [[1, 2], [2, 2]])) == "1 → [1.5, 2]  (keys: 1 0.50, 1 0.50)"
    assert str(lookup("a", {})) == "a → missing: there are no keys"
    assert str(lookup([], STUDENTS)) == "(no queries)"
    assert str(lookup(1, [1] * 6, list("abcdef"))) == "1 → a 0.17, b 0.17, c 0.17, d 0.17 and 2 more"
    assert str(lookup(list(range(25)), [1], ["a"])).splitlines()[-1] == "… and 5 more"


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


def test_whole_numbers_are_printed_in_full() -> None:
    assert str(lookup("Acme", {"Acme": 1234567.0})) == "Acme → 1234567  (keys: Acme 1.00)"
    assert str(lookup("Acme", {"Acme": 1234567.25})).startswith("Acme → 1.23457e+06 ")
