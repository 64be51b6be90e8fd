from __future__ import annotations

import itertools
from typing import Any

import pytest
import torch
from torch import Tensor

from attent.attention import AttentionMap, attend, mask_info, prepare, reference
from attent.attention.backends import bands
from attent.attention.maps.lazy_matrix import row_runs
from attent.attention.masks import Causal, Documents, Padding, PerHead, Table
from attent.attention.positions import RelativeBias
from attent.attention.scores import SCORES, Additive, Gaussian, General
from attent.errors import ArgumentError, ShapeError, StaleMapError, UnknownNameError

dice = torch.Generator().manual_seed(1)
QUERY, KEY, VALUE = (torch.randn(2, 3, *shape, generator=dice) for shape in ((5, 7), (11, 7), (11, 2)))


def a_map(**arguments: Any) -> AttentionMap:
    return attend(QUERY, KEY, VALUE, **arguments, return_map=True)[1]


@pytest.mark.parametrize("name", SCORES)
def test_the_weights_are_the_formulas(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bands, "TILE", 500)
    score = SCORES[name].for_widths(7, 7, 3)
    prepared = prepare(QUERY, KEY, VALUE, score=score, mask="causal", soft_cap=2.0, bias=torch.randn(5, 11))
    expected = reference.steps(*prepared)["weights"]
    weights = AttentionMap.of(prepared)
    torch.testing.assert_close(weights.dense(), expected)
    torch.testing.assert_close(weights.rows(torch.tensor([4, 0])), expected[:, :, [4, 0]])


INDICES = [0, -1, slice(None), slice(1, 3), slice(None, None, 2), slice(0, 0), slice(-2, None), [1, 0]]
INDICES += [torch.tensor([1, 1, 0]), torch.tensor(1)]


@pytest.mark.parametrize("position", range(4))
def test_one_axis_is_indexed_as_a_tensors(position: int) -> None:
    dense, weights = a_map().dense(), a_map()
    for index in INDICES:
        location = (*[slice(None)] * position, index)
        torch.testing.assert_close(weights[location], dense[location])
        torch.testing.assert_close(weights[(..., index, *[slice(None)] * (3 - position))], dense[location])


def test_several_axes_are_indexed_as_a_tensors() -> None:
    dense, weights = a_map().dense(), a_map()
    axes = [1, slice(0, 1)], [-2, slice(None)], [3, slice(1, 4), [4, 0]], [0, slice(2, None, 3)]
    for location in (*itertools.product(*axes), 1, (..., 3, slice(None)), (0, ..., 3), ...):
        torch.testing.assert_close(weights[location], dense[location])
    torch.testing.assert_close(weights[:, :, torch.tensor([True, False, False, True, False])], dense[:, :, [0, 3]])


@pytest.mark.parametrize(
    ("index", "error", "message"),
    [
        ((0, 0, 5), ArgumentError, r"^index 5 is out of range for axis 2 of a map of shape \(2, 3, 5, 11\)$"),
        (-3, ArgumentError, r"^index -3 is out of range for axis 0 of a map of shape \(2, 3, 5, 11\)$"),
        ((0, 0, 0, 0, 0), ShapeError, r"^a map of shape \(2, 3, 5, 11\) takes up to 4 indices and one ellipsis, got 5"),
        ((..., 0, ...), ShapeError, r"takes up to 4 indices and one ellipsis, got 3$"),
        (None, ArgumentError, r"^a map is indexed by numbers, slices and lists, got None$"),
        ("a", ArgumentError, r"^a map is indexed by numbers, slices and lists, got 'a'$"),
        ([[0, 1], [1, 0]], ArgumentError, r"^a map is indexed by numbers, slices and lists, got tensor"),
        *(
            (index, ArgumentError, "map")
            for index in (True, torch.tensor(True), (0, 0, [200]), (..., [1, -12]), (0.5,))
        ),
        ((0, 0, slice(None, None, -1)), ArgumentError, "map"),
    ],
)
def test_wrong_indices_are_said(index, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        a_map()[index]


def test_argmax_is_the_first_best_key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bands, "TILE", 100)
    assert torch.equal(a_map().argmax(), a_map().dense().argmax(-1))
    ties = attend(torch.zeros(2, 3), KEY[0, 0, :, :3], VALUE[0, 0], return_map=True)[1]
    assert ties.argmax().tolist() == [0, 0]
    assert attend(QUERY[:, :, :0], KEY, VALUE, return_map=True)[1].argmax().shape == (2, 3, 0)
    assert attend(QUERY[:, :, :0], KEY, VALUE, return_map=True)[1].dense().shape == (2, 3, 0, 11)


def test_dropout_is_not_shown_and_hidden_keys_have_no_weight() -> None:
    torch.testing.assert_close(a_map(dropout=0.5, seed=1).dense(), a_map().dense())
    weights = a_map(mask="causal", query_start=1)[0, 0, 0]
    assert weights[2:].count_nonzero() == 0
    assert (weights[:2] > 0).all()


def test_gradients_flow_through_as_often_as_one_looks_and_not_once_detached() -> None:
    score, query = General(7, 7), QUERY.clone().requires_grad_()
    weights = attend(query, KEY, VALUE, score=score, return_map=True)[1]
    expected = torch.autograd.grad((query @ score.weight @ KEY.mT).softmax(-1)[:, :, 1, 0].sum(), (query, score.weight))
    with torch.no_grad():
        assert not weights.dense().requires_grad
    for _ in range(2):
        gradients = torch.autograd.grad(weights[:, :, 1, 0].sum(), (query, score.weight))
        torch.testing.assert_close(gradients, expected)
    assert not weights.detach().dense().requires_grad
    torch.testing.assert_close(weights.detach().dense(), weights.dense())


def test_rows_not_asked_for_cost_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    shapes: list[tuple[int, ...]] = []

    def recording(query: Tensor, key: Tensor) -> Tensor:
        shapes.append((query.shape[-2], key.shape[-2]))
        return query @ key.transpose(-2, -1)

    sequence = torch.randn(4096, 2)
    prepared = prepare(sequence, sequence, sequence, score=recording, mask="causal")
    weights = AttentionMap.of(prepared)
    assert weights[4095, :10].shape == (10,)
    assert shapes == [(1, 4096)]
    shapes.clear()
    best = weights.argmax()
    assert best.shape == (4096,)
    assert sum(rows for rows, _ in shapes) == 4096
    assert max(rows * keys for rows, keys in shapes) <= bands.TILE < 4096**2


def test_keys_are_lowered_once_and_only_the_queries_looked_at() -> None:
    keys, queries = [], []

    class Counting(General):
        def lower_key(self, key: Tensor, center: Tensor | None = None):
            keys.append(key.shape[-2])
            return super().lower_key(key, center)

        def lower_query(self, query: Tensor, center: Tensor | None = None):
            queries.append(query.shape[-2])
            return super().lower_query(query, center)

    weights = a_map(score=Counting(7, 7)).detach()
    keys.clear()
    queries.clear()
    assert weights[0, 0, 1].shape == weights[0, 0, [2, 4]].shape[1:]
    assert (keys, queries) == ([11], [1, 2])


def test_scores_of_each_stage_are_the_formulas() -> None:
    arguments = {"soft_cap": 2.0, "bias": torch.randn(5, 11), "mask": "causal", "position": "alibi"}
    steps, weights = reference.steps(*prepare(QUERY, KEY, VALUE, **arguments)), a_map(**arguments)
    for stage, name in {"raw": "scores", "capped": "capped", "biased": "biased", "masked": "masked"}.items():
        scores = weights.scores(stage)
        assert scores.shape == (2, 3, 5, 11)
        torch.testing.assert_close(scores.dense(), steps[name])
        torch.testing.assert_close(scores[1, 2, 3:, [7, 0]], steps[name][1, 2, 3:, [7, 0]])
    torch.testing.assert_close(a_map().scores("masked").dense(), a_map().scores().dense())
    with pytest.raises(UnknownNameError, match="unknown stage of the scores 'soft'"):
        weights.scores("soft")


def test_shapes_have_the_callers_axes() -> None:
    assert attend(QUERY, KEY[:, :1], VALUE[:, :1], return_map=True)[1].dense().shape == (2, 3, 5, 11)
    for front, tensors in {
        (2, 3): (QUERY, KEY, VALUE),
        (2,): (QUERY[:, 0], KEY[:, 0], VALUE[:, 0]),
        (): (QUERY[0, 0], KEY[0, 0], VALUE[0, 0]),
    }.items():
        weights = attend(*tensors, return_map=True)[1]
        assert weights.shape == weights.dense().shape == (*front, 5, 11)
        assert weights[..., 3, :].shape == (*front, 11)
        assert torch.equal(weights[..., 2:, [0, 3]], weights.dense()[..., 2:, [0, 3]])
        assert weights.argmax().shape == weights.entropy().shape == weights.distance().shape == (*front, 5)
        assert weights.received().shape == (*front, 11)
        assert weights.top(3)[0].shape == weights.top(3)[1].shape == (*front, 5, 3)
        assert weights.pooled(2, 3).shape == (*front, 2, 3)
        assert weights.grouped([(0, 2)], [(1, 4), (4, 11), (0, 1)]).shape == (*front, 1, 3)


@pytest.mark.parametrize(
    ("wrong", "error", "message"),
    [
        (lambda m: m.top(0), ArgumentError, r"^n must be a whole number from 1 to Tk = 11, got 0$"),
        (lambda m: m.top(12), ArgumentError, r"^n must be a whole number from 1 to Tk = 11, got 12$"),
        (lambda m: m.pooled(6, 3), ShapeError, r"^height must be a whole number from 1 to 5, got 6$"),
        (lambda m: m.pooled(2, 0), ShapeError, r"^width must be a whole number from 1 to 11, got 0$"),
        (lambda m: m.pooled(2, 2, "median"), UnknownNameError, r"^unknown reduction 'median'"),
        (lambda m: m.grouped([(0, 6)], [(0, 3)]), ArgumentError, r"^query_spans must not be empty and lie from 0 to"),
        (lambda m: m.grouped([(0, 3)], [(2, 2)]), ArgumentError, r"^key_spans must not be empty and lie from 0 to 11,"),
        (lambda m: m.grouped([(0, 3)], [(5, 9), (2, 6)]), ArgumentError, r"^key_spans must not overlap, got \(2, 6\)"),
        (lambda m: m.grouped([0, 0, 1], [(2, 6)]), ArgumentError, r"^query_spans must be pairs \(begin, end\) of"),
        (lambda m: m.grouped(3, [(2, 6)]), ArgumentError, r"numbers, such as \[\(0, 2\), \(2, 5\)\], got 3$"),
        (lambda m: m.grouped(torch.tensor([0, 1]), [(2, 6)]), ArgumentError, r", got tensor\(\[0, 1\]\)$"),
        (lambda m: m.grouped([(0, 1.5)], [(2, 6)]), ArgumentError, r"^query_spans must be pairs \(begin, end\)"),
    ],
)
def test_what_cannot_be_said_is_our_error(wrong, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        wrong(a_map())


@pytest.mark.parametrize("normalizer", ["sigmoid", "identity"])
def test_what_is_no_distribution_has_neither_entropy_nor_mean_distance(normalizer: str) -> None:
    weights = a_map(normalizer=normalizer)
    with pytest.raises(ArgumentError, match=r"^the entropy requires a distribution, which (Sigmoid|Identity)"):
        weights.entropy()
    with pytest.raises(ArgumentError, match=r"^the mean distance requires a distribution"):
        weights.distance()


def test_a_map_without_keys_or_queries() -> None:
    empty = attend(QUERY, KEY[:, :, :0], VALUE[:, :, :0], return_map=True)[1]
    assert empty.entropy().tolist() == torch.zeros(2, 3, 5).tolist()
    assert empty.received().shape == (2, 3, 0)
    with pytest.raises(ArgumentError, match="a map without keys has no largest weight"):
        empty.argmax()
    nobody = attend(QUERY[:, :, :0], KEY, VALUE, return_map=True)[1]
    assert nobody.received().tolist() == torch.zeros(2, 3, 11).tolist()


@pytest.mark.parametrize(
    "entry", [lambda m: m[0], lambda m: m.dense(), lambda m: m.entropy(), lambda m: m.scores()[0], lambda m: m.keep()]
)
def test_what_was_changed_in_place_since_is_said_and_what_was_kept_stays(entry) -> None:
    query, key = QUERY.clone(), KEY.clone()
    for name, tensor in {"query": query, "key": key}.items():
        weights = attend(query, key, VALUE, return_map=True)[1]
        snapshot, before = weights.keep(), weights.dense()
        tensor[0, 0, 0] += 1.0
        for stale in (weights, weights.detach()):
            with pytest.raises(StaleMapError, match=f"^{name} was changed in place after this map was made"):
                entry(stale)
        assert torch.equal(snapshot.dense(), before)
        entry(snapshot)


def example() -> tuple[dict[str, Tensor], dict[str, Any]]:
    """The tensors that a call depends on, by what an error calls them, and the arguments that hold them."""
    score, position = Additive(7, 7, 13), RelativeBias(3)
    bias, table, start = torch.randn(5, 11), torch.ones(5, 11).bool(), torch.tensor([6, 2])
    mask = PerHead([Causal(), Table(table), Causal()]) & Padding(torch.tensor([11, 7]))
    arguments = {"score": score, "position": position, "bias": bias, "mask": mask, "query_start": start}
    held = {"score's v": score.v, "position's table": position.table, "bias": bias, "mask": table, "query_start": start}
    return held, arguments


def test_a_change_of_anything_that_counts_is_noticed_and_of_nothing_else() -> None:
    held, arguments = example()
    for name, tensor in held.items():
        weights = attend(QUERY, KEY, VALUE, **arguments, return_map=True)[1]
        weights.dense()
        with torch.no_grad():
            tensor[0] = 0
        with pytest.raises(StaleMapError, match=f"^{name} was changed in place"):
            weights.dense()
    value, query = VALUE.clone(), QUERY.clone()
    weights = attend(query[0], KEY[0], value[0], return_map=True)[1]
    value.zero_()
    expected = weights.dense()
    # through a view
    query[0, :, 2:].mul_(2)
    with pytest.raises(StaleMapError):
        weights[0]
    # tensors without versions serve as well
    with torch.inference_mode():
        dense = attend(QUERY[0].clone(), KEY[0].clone(), VALUE[0].clone(), return_map=True)[1].dense()
    torch.testing.assert_close(dense, expected)


def test_what_was_kept_shares_nothing_with_what_it_was_made_of() -> None:
    held, arguments = example()
    query, key = QUERY.clone().requires_grad_(), KEY.clone()
    weights = attend(query, key, VALUE, **arguments, return_map=True)[1]
    snapshot, before = weights.keep(), weights.dense()
    with torch.no_grad():
        for tensor in (query, key, *held.values()):
            tensor.zero_()
    assert torch.equal(snapshot.dense(), before.detach())
    assert not snapshot.dense().requires_grad
    assert torch.equal(snapshot.keep().dense(), before.detach())


def test_a_row_does_not_ask_what_all_queries_see(monkeypatch: pytest.MonkeyPatch) -> None:
    requests: list[int] = []

    def recording(call) -> Tensor | None:
        requests.append(call.keys)
        return visible(call)

    visible = mask_info.visible_keys_of
    monkeypatch.setattr(mask_info, "visible_keys_of", recording)
    mask = Documents(torch.zeros(1, 11).long())
    attend(QUERY, KEY, VALUE, mask=mask, return_map=True)[1][0, 0, 3]
    assert not requests
    spoilt = KEY.masked_fill(torch.arange(11)[:, None] == 10, torch.nan)
    attend(QUERY, spoilt, VALUE, lengths=[10, 10], return_map=True)[1][0, 0, 3]
    assert requests == [11]
    attend(QUERY, KEY, VALUE, score=Gaussian(), mask=mask, return_map=True)[1][0, 0, 3]
    assert requests == [11, 11]


def test_keys_are_lowered_anew_where_a_graph_hangs_on_them() -> None:
    score = General(7, 7)
    weights = attend(QUERY, KEY, VALUE, score=score, return_map=True)[1]
    constant = attend(QUERY, KEY, VALUE, return_map=True)[1]
    assert weights.key_side() is not weights.key_side()
    assert constant.key_side() is constant.key_side()
    with torch.no_grad():
        assert weights.key_side() is weights.key_side()


def test_forms_take_as_many_rows_as_their_scores_fill(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bands, "TILE", 2 * 3 * 11 * 2)
    for score, runs in ((General(7, 7), 3), (Additive(7, 7, 13), 3), (lambda query, key: query @ key.mT, 5)):
        assert len(row_runs(attend(QUERY, KEY, VALUE, score=score, return_map=True)[1].call)) == runs
