from __future__ import annotations

import itertools
import math
from typing import Any

import pytest
import torch
from torch import Tensor

from attent.attention import AttentionMap, attend, prepare, reference
from attent.attention.backends import bands
from attent.attention.base import Mask, Normalizer
from attent.attention.maps import tiles
from attent.attention.maps.statistics import HEAD_STATISTICS, HeadStatistics, even_spans
from attent.attention.masks import Causal, Documents, Padding, PerHead, Prefix, Table, Window
from attent.attention.normalizers import NORMALIZERS, TopK
from attent.attention.scores import SCORES, Additive

BATCH, HEADS, QUERIES, KEYS, WIDTH = 2, 3, 23, 29, 6
dice = torch.Generator().manual_seed(1)
QUERY, KEY, VALUE = (
    torch.randn(BATCH, HEADS, *shape, generator=dice) for shape in ((QUERIES, WIDTH), (KEYS, WIDTH), (KEYS, 2))
)
QUERY_SPANS, KEY_SPANS = [(17, 23), (0, 3), (3, 4), (6, 13)], [(2, 9), (9, 10), (0, 1), (13, 29)]
HALF = torch.rand(BATCH, 1, QUERIES, KEYS, generator=dice) < 0.4
CALLS: dict[str, dict[str, Any]] = {
    "plain": {},
    "causal": {"mask": "causal"},
    "early": {"mask": "causal", "query_start": torch.tensor([-5, 3])},
    "window": {"mask": Causal() & Window(3, 0) & Padding(torch.tensor([29, 11])), "query_start": 0},
    "prefix": {"mask": Causal() | Prefix(4)},
    "documents": {"mask": Documents(torch.arange(KEYS)[None] // 7)},
    "heads": {"mask": PerHead([Causal(), Window(2, 5), Prefix(13)])},
    "table": {"mask": Table(HALF), "soft_cap": 1.5},
    "nothing": {"mask": Table(torch.zeros(QUERIES, 1, dtype=torch.bool))},
    "bias": {
        "bias": torch.randn(BATCH, 1, QUERIES, KEYS, generator=dice).masked_fill(HALF, -torch.inf),
        "lengths": torch.tensor([29, 0]),
    },
    "row": {"bias": torch.randn(1, HEADS, 1, KEYS, generator=dice), "mask": "causal"},
    "alibi": {"position": "alibi", "mask": "causal"},
}


def expected(weights: Tensor, positions: Tensor) -> dict[str, Tensor]:
    """Every statistic of dense weights (B, H, Tq, Tk), as its definition says."""
    gap = (positions[:, None, :, None] - torch.arange(weights.shape[-1])).abs()

    def mean(spans: list[tuple[int, int]], of: Tensor) -> Tensor:
        return torch.stack([of[:, :, first:last].mean(2) for first, last in spans], 2)

    def largest(spans: list[tuple[int, int]], of: Tensor) -> Tensor:
        return torch.stack([of[:, :, first:last].amax(2) for first, last in spans], 2)

    rows, columns = even_spans(weights.shape[2], 5, "height"), even_spans(weights.shape[3], 7, "width")
    return {
        "entropy": -torch.special.xlogy(weights, weights).sum(-1),
        "received": weights.sum(-2),
        "distance": (weights * gap).sum(-1),
        "mean": mean(columns, mean(rows, weights).mT).mT,
        "max": largest(columns, largest(rows, weights).mT).mT,
        "grouped": torch.stack([mean(QUERY_SPANS, weights)[..., first:last].sum(-1) for first, last in KEY_SPANS], -1),
        "top": weights.topk(5).values,
        "best": weights.amax(-1),
    }


def statistics_of(weights: AttentionMap) -> dict[str, Tensor]:
    dense, (keys, largest), best = weights.dense(), weights.top(5), weights.argmax()
    # the keys are those that have these weights, each once
    torch.testing.assert_close(dense.gather(-1, keys), largest, rtol=0, atol=1e-6)
    assert (keys.sort(-1).values.diff(dim=-1) > 0).all()
    return {
        "received": weights.received(),
        "mean": weights.pooled(5, 7),
        "max": weights.pooled(5, 7, "max"),
        "grouped": weights.grouped(QUERY_SPANS, KEY_SPANS),
        "top": largest,
        "best": dense.gather(-1, best[..., None])[..., 0],
        **({"entropy": weights.entropy(), "distance": weights.distance()} if weights.is_distribution else {}),
    }


def check(tensors: tuple[Tensor, Tensor, Tensor], **arguments: Any) -> None:
    """Each statistic within 2e-6 of the formula's in float64, relative to the largest there is."""
    weights = attend(*tensors, **arguments, return_map=True)[1]
    wide = {
        name: value.double() if isinstance(value, Tensor) and value.is_floating_point() else value
        for name, value in arguments.items()
    }
    prepared = prepare(*(tensor.double() for tensor in tensors), **wide)
    right = expected(reference.steps(*prepared)["weights"].detach(), prepared.call.pairs().query_position)
    for name, number in statistics_of(weights).items():
        assert number.dtype == torch.float32
        scale = max(float(right[name].abs().max()), 1e-3)
        torch.testing.assert_close(
            number.double(), right[name], rtol=0, atol=2e-6 * scale, msg=lambda text, name=name: f"{name}: {text}"
        )


@pytest.mark.parametrize("name", CALLS)
def test_they_are_those_of_the_dense_map(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tiles, "MIN_ROWS", 2)
    # tiles of single heads, of some heads, of some sequences, and one of all: each call with two of them
    number = [*CALLS].index(name)
    for size in ((70, 1200), (400, 2**19))[number % 2]:
        monkeypatch.setattr(tiles, "CPU_TILE", size)
        monkeypatch.setattr(bands, "TILE", 4 * size)
        check((QUERY, KEY, VALUE), **CALLS[name])


@pytest.mark.parametrize("name", SCORES)
@pytest.mark.parametrize("call", ["plain", "window"])
def test_of_every_score(name: str, call: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tiles, "CPU_TILE", 400)
    score = SCORES[name].for_widths(WIDTH, WIDTH, HEADS)
    calculated = statistics_of(attend(QUERY, KEY, VALUE, score=score, **CALLS[call], return_map=True)[1])
    prepared = prepare(QUERY.double(), KEY.double(), VALUE.double(), score=score.double(), **CALLS[call])
    right = expected(reference.steps(*prepared)["weights"].detach(), prepared.call.pairs().query_position)
    for key, number in calculated.items():
        torch.testing.assert_close(number.double(), right[key], rtol=0, atol=2e-6 * float(right[key].abs().max()))


@pytest.mark.parametrize("name", NORMALIZERS)
def test_of_every_normalizer(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tiles, "CPU_TILE", 400)
    normalizer: Normalizer = {"top_k": TopK(4)}.get(name) or NORMALIZERS[name]()
    for call in ("early", "heads"):
        check((QUERY, KEY, VALUE), normalizer=normalizer, **CALLS[call])


def test_shared_keys_and_16_bits_without_a_graph() -> None:
    check((QUERY, KEY[:, :1], VALUE[:, :1]), mask="causal")
    sixteen = tuple(tensor.bfloat16() for tensor in (QUERY, KEY[:, :1], VALUE[:, :1]))
    weights = attend(sixteen[0].requires_grad_(), *sixteen[1:], return_map=True)[1]
    exact = attend(*(tensor.float() for tensor in sixteen), return_map=True)[1]
    torch.testing.assert_close(weights.entropy(), exact.entropy())
    assert not any(number.requires_grad for number in (weights.entropy(), weights.received(), weights.pooled(2, 2)))
    assert weights[0].requires_grad


def test_uniform_weights_by_hand() -> None:
    weights = attend(torch.zeros(3, 2), torch.zeros(4, 2), torch.zeros(4, 1), query_start=0, return_map=True)[1]
    torch.testing.assert_close(weights.entropy(), torch.tensor(4.0).log().expand(3))
    torch.testing.assert_close(weights.received(), torch.full((4,), 0.75))
    # |0 − j|, |1 − j| and |2 − j| for j = 0 … 3
    torch.testing.assert_close(weights.distance(), torch.tensor([6.0, 4.0, 4.0]) / 4)
    torch.testing.assert_close(weights.grouped([(0, 3)], [(0, 1), (1, 4)]), torch.tensor([[0.25, 0.75]]))


def test_the_largest_of_long_rows_are_found_by_chunks() -> None:
    query, key = torch.randn(2, 3, generator=dice), torch.randn(1003, 3, generator=dice)
    for length, count in itertools.product((1003, 1024), (1, 5)):
        keys = torch.cat((key, key))[:length]
        weights = attend(query, keys, keys, return_map=True)[1]
        dense = weights.dense()
        torch.testing.assert_close(weights.top(count)[1], dense.topk(count).values)
        assert torch.equal(weights.argmax(), dense.argmax(-1))
    ties = attend(torch.zeros(2, 3), torch.zeros(1024, 3), torch.zeros(1024, 1), return_map=True)[1]
    assert ties.argmax().tolist() == [0, 0]


def test_hidden_nan_reaches_no_statistic() -> None:
    query, key, value = QUERY, KEY.clone(), VALUE.clone()
    lengths = torch.tensor([29, 11])
    key[1, :, 11:], value[1, :, 11:] = torch.nan, torch.inf
    clean, dirty = (attend(query, k, v, lengths=lengths, return_map=True)[1] for k, v in ((KEY, VALUE), (key, value)))
    for name, number in statistics_of(dirty).items():
        torch.testing.assert_close(number, statistics_of(clean)[name])


def named(statistics: HeadStatistics, head: int = 0) -> dict[str, float]:
    return dict(zip(HEAD_STATISTICS, statistics.means()[head].tolist(), strict=True))


def test_statistics_by_hand() -> None:
    statistics = HeadStatistics(1, is_distribution=True, is_self_attention=True)
    dense = torch.tensor([[1.0, 0.0, 0.0], [0.5, 0.5, 0.0], [0.0, 0.25, 0.75]])[None]
    for row in range(3):
        statistics.add(dense[:, row : row + 1], torch.tensor([row]))
    means = named(statistics)
    assert means["first"] == pytest.approx(1.5 / 3)
    assert means["previous"] == pytest.approx((0.5 + 0.25) / 3)
    assert means["same"] == pytest.approx((1 + 0.5 + 0.75) / 3)
    assert means["distance"] == pytest.approx((0.5 + 0.25) / 3)
    assert means["entropy"] == pytest.approx((math.log(2) - 0.25 * math.log(0.25) - 0.75 * math.log(0.75)) / 3)


def test_a_row_that_sees_nothing_counts_in_no_mean() -> None:
    statistics = HeadStatistics(1, is_distribution=True, is_self_attention=True)
    statistics.add(torch.tensor([[[0.0, 0.0], [0.5, 0.5]]]), torch.arange(2))
    torch.testing.assert_close(
        statistics.means()[0], torch.tensor([math.log(2), 0.5, 0.5, 0.5, 0.5], dtype=torch.float64)
    )


@pytest.mark.parametrize(
    ("is_distribution", "meaningless"), [(True, ["distance", "previous", "same"]), (False, [*HEAD_STATISTICS])]
)
def test_numbers_without_a_meaning_are_nan(is_distribution: bool, meaningless: list[str]) -> None:
    statistics = HeadStatistics(1, is_distribution=is_distribution, is_self_attention=False)
    statistics.add(torch.full((1, 4, 6), 1 / 6), torch.arange(2, 6))
    assert [name for name, value in named(statistics).items() if math.isnan(value)] == meaningless


@pytest.mark.parametrize("score", ["scaled_dot", "gaussian", Additive(3, 3, 7), lambda query, key: query @ key.mT])
@pytest.mark.parametrize("tile", [50, 300, 900, 2**19])
@pytest.mark.parametrize("mask", [None, Causal() & Padding(torch.tensor([13, 0, 5, 11, 2]))])
@torch.no_grad()
def test_tiles_lie_side_by_side_and_make_the_whole(score, tile: int, mask, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tiles, "CPU_TILE", tile)
    monkeypatch.setattr(tiles, "MIN_ROWS", 2)
    query, key = torch.randn(5, 2, 11, 3), torch.randn(5, 2, 13, 3)
    weights = attend(query, key, key, score=score, mask=mask, return_map=True)[1]
    whole, times = torch.zeros(weights.shape), torch.zeros(weights.shape)
    for result in tiles.tiles(weights):
        whole[(*result.index, result.columns)] = result.weights
        times[(*result.index, result.columns)] += 1
    torch.testing.assert_close(whole, weights.dense())
    assert times.max() == 1
    assert not whole[times == 0].any()


def test_tiles_do_not_grow_with_the_square_of_the_length_and_keys_out_of_reach_cost_nothing() -> None:
    def sizes(length: int, mask: Mask | None = None) -> list[int]:
        sequence = torch.randn(length, 2)
        weights = attend(sequence, sequence, sequence, mask=mask, return_map=True)[1]
        return [tile.weights.numel() for tile in tiles.tiles(weights)]

    for length in (1024, 4096):
        assert max(sizes(length)) <= max(tiles.CPU_TILE, tiles.MIN_ROWS * length)
    assert sum(sizes(4096, Causal() & Window(100, 0))) < 4096 * 300


@pytest.mark.parametrize("score", ["scaled_dot", Additive(3, 3, 7), lambda query, key: query @ key.mT])
@pytest.mark.parametrize("tile", [50, 2**19])
@torch.no_grad()
def test_of_some_rows_heads_and_sequences_only_these_are_computed(
    score, tile: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tiles, "CPU_TILE", tile)
    monkeypatch.setattr(tiles, "MIN_ROWS", 2)
    query, key = torch.randn(3, 5, 17, 3), torch.randn(3, 5, 13, 3)
    weights = attend(query, key, key, score=score, mask=Causal(), bias=torch.randn(3, 5, 17, 13), return_map=True)[1]
    actual, cells = torch.zeros(weights.shape), 0
    with weights.tiles(range(2, 16, 3), range(1, 4), range(1, 2)) as parts:
        for part in parts:
            actual[(*part.index, part.columns)] = part.weights
            cells += part.weights.numel()
    expected = torch.zeros(weights.shape)
    expected[1, 1:4, 2:16:3] = weights.dense()[1, 1:4, 2:16:3]
    torch.testing.assert_close(actual, expected)
    assert 0 < cells <= 3 * 5 * 13
    with weights.tiles(range(0)) as parts:
        assert not list(parts)
