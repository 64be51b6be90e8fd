from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest
import torch

from attent.alignment.ablation import (
    ACCURACY,
    LOSS,
    Ablation,
    HeadCost,
    HeadSummary,
    cost_lines,
    head_summaries,
    ranked,
    resampled_sums,
)
from attent.attention.capture.intervene import intervene
from attent.errors import ArgumentError, UnknownNameError
from attent.models.settings import TransformerSettings
from attent.models.transformer import Transformer
from attent.ops import packed_linear
from attent.ops.packed_linear import WeightType
from attent.tasks.translation.evaluation import BleuJudge, LossJudge, loss
from attent.tasks.translation.translator import Translator
from attent.text.tokenizer import CharTokenizer

PAIRS = [("abc", "0123"), ("bad cab", "65"), ("e", "4"), ("dead bee cab", "01234560"), ("ace", "333")]
CROSS = "decoder.layers.1.cross_attention"


@pytest.fixture
def translator() -> Translator:
    torch.manual_seed(2)
    source, target = CharTokenizer("abcde "), CharTokenizer("0123456")
    sizes = {"encoder_layers": 1, "decoder_layers": 2, "width": 12, "feed_forward": 7, "heads": 2}
    settings = TransformerSettings.model_validate(sizes | {"share_embeddings": "none"})
    return Translator(Transformer(settings, source.size, target.size), source, target)


@pytest.mark.parametrize("change", ["zero", "uniform", "mean"])
def test_a_head_costs_what_the_loss_gains_without_it(translator: Translator, change: str) -> None:
    judge = LossJudge(translator, PAIRS)
    ablation = Ablation(judge, change)
    assert ablation.score == pytest.approx(loss(translator.score(PAIRS)))
    cost = ablation.cost(CROSS, 1, HeadSummary(0.5, None))
    changes: Any = {CROSS: {1: change}}
    with intervene(translator.model, changes, means=ablation.means):
        changed = loss(translator.score(PAIRS))
    assert (cost.module, cost.head, cost.entropy, cost.distance) == (CROSS, 1, 0.5, None)
    assert (cost.score, cost.cost) == pytest.approx((changed, changed - ablation.score))
    assert cost.low < cost.cost < cost.high


@pytest.mark.needs_native
@pytest.mark.parametrize(
    ("kind", "path", "judge_kind"),
    [
        (WeightType.FLOAT32, CROSS, LossJudge),
        (WeightType.INT8, "encoder.layers.0.self_attention", LossJudge),
        (WeightType.FLOAT32, "encoder.layers.0.self_attention", BleuJudge),
        (WeightType.INT8, CROSS, BleuJudge),
    ],
)
def test_a_head_that_nobody_reads_costs_nothing(
    translator: Translator, kind: WeightType, path: str, judge_kind: type[LossJudge]
) -> None:
    translator = copy.deepcopy(translator)
    with torch.no_grad():
        translator.model.get_submodule(path).output.weight[:, :6] = 0.0
    packed_linear.set_kind(translator.model, kind)
    cost = Ablation(judge_kind(translator, PAIRS[:2])).cost(path, 0)
    assert [cost.cost, cost.low, cost.high] == pytest.approx([0, 0, 0], abs=1e-6)


def test_resamples_are_of_as_many_examples() -> None:
    statistics = np.stack((np.arange(7.0), np.ones(7)), 1)
    sums = resampled_sums(statistics)
    assert sums.shape == (1000, 2) and (sums[:, 1] == 7).all()
    # the mean of 7 numbers has a seventh of their variance
    assert (sums[:, 0] / 7).mean() == pytest.approx(3, abs=0.1)
    assert (sums[:, 0] / 7).var() == pytest.approx(4 / 7, rel=0.15)
    assert np.array_equal(sums, resampled_sums(statistics))


def test_summaries_are_means_over_queries(translator: Translator) -> None:
    summaries = head_summaries(LossJudge(translator, PAIRS[:2]))
    decoder = [f"decoder.layers.{layer}.{name}_attention" for layer in (0, 1) for name in ("self", "cross")]
    names = ["encoder.layers.0.self_attention", *decoder]
    assert list(summaries) == [(name, head) for name in names for head in (0, 1)]
    maps = [translator.map(*pair)[names[0]].weights for pair in PAIRS[:2]]
    entropies, distances = (
        torch.cat([getattr(weights, name)()[0, 1] for weights in maps]) for name in ("entropy", "distance")
    )
    assert summaries[names[0], 1] == pytest.approx((entropies.mean().item(), distances.mean().item()), rel=1e-5)
    assert summaries[CROSS, 0].distance is None


def test_what_cannot_be_judged_is_said(translator: Translator) -> None:
    with pytest.raises(UnknownNameError, match=r"^unknown change of a head 'none'"):
        Ablation(LossJudge(translator, PAIRS), "none")
    with pytest.raises(ArgumentError, match=r"^heads cannot be evaluated without examples$"):
        Ablation(LossJudge(translator, []))
    with pytest.raises(ArgumentError, match=r"^heads cannot be evaluated: the model has no attention"):
        head_summaries(LossJudge(translator, []))


def test_costs_are_a_table_and_a_list_from_the_costliest_on() -> None:
    costs = [
        HeadCost("a", 0, 1.5, 0.25, 0.125, 0.5, 1.0, 2.0),
        HeadCost("a", 1, 1.0, -0.25, -0.5, 0.0, None, None),
        HeadCost("b", 0, 2.0, 0.75, 0.5, 1.0, 0.125),
    ]
    assert cost_lines(LOSS, costs) == [
        "         0        1",
        "a  +0.2500  -0.2500",
        "b  +0.7500         ",
        "",
        "module  head     cost       95 % interval  entropy, nats  distance, tokens",
        "b          0  +0.7500  +0.5000 to +1.0000           0.12                 –",
        "a          0  +0.2500  +0.1250 to +0.5000           1.00              2.00",
        "a          1  -0.2500  -0.5000 to +0.0000              –                 –",
    ]
    assert cost_lines(ACCURACY, costs)[1] == "a  +0.25  -0.25"
    assert ranked(costs) == [costs[2], costs[0], costs[1]]
