from collections.abc import Sequence
from typing import get_args

import pytest
import torch
from torch import nn

from attent.errors import UnknownNameError
from attent.models.settings import TransformerSettings
from attent.models.transformer import Transformer
from attent.training.autotune import Precision, autocast
from attent.training.optimizer import (
    SCHEDULES,
    EarlyStopping,
    EarlyStoppingState,
    WeightAverage,
    build_optimizer,
    cosine,
    inverse_sqrt,
    linear,
    noam,
    optimizer_state,
    orthogonalize,
    restore_optimizer,
)
from attent.training.settings import ScheduleName, TrainingSettings


def settings(**values: object) -> TrainingSettings:
    return TrainingSettings.model_validate({"updates": 9, "batch_pairs": 8} | values)


def step(model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    optimizer.zero_grad()
    model(torch.ones(2, 3)).square().sum().backward()
    optimizer.step()


def test_adamw_decays_weights_and_adam_adds_to_the_gradient() -> None:
    weights = {}
    for kind in ("adamw", "adam"):
        layer = nn.Linear(1, 1, bias=False)
        nn.init.constant_(layer.weight, 2.0)
        layer.weight.grad = torch.zeros(1, 1)
        build_optimizer(layer, settings(optimizer=kind, learning_rate=0.1, weight_decay=0.25)).step()
        weights[kind] = layer.weight.item()
    # 2 − 0.1 · 0.25 · 2, and a first step of one learning rate against the gradient 0.25 · 2
    assert weights == pytest.approx({"adamw": 1.95, "adam": 1.9})


def test_a_restored_one_goes_on_in_the_same_way() -> None:
    single = nn.Linear(3, 5)
    first = build_optimizer(single, settings())
    assert optimizer_state(first, dict(single.named_parameters())) == {}
    step(single, first)
    two = nn.Linear(3, 5)
    two.load_state_dict(single.state_dict())
    second = build_optimizer(two, settings())
    state = optimizer_state(first, dict(single.named_parameters()))
    assert set(state) == {f"{name}/{key}" for name in ("weight", "bias") for key in ("step", "exp_avg", "exp_avg_sq")}
    restore_optimizer(second, dict(two.named_parameters()), state)
    for model, optimizer in ((single, first), (two, second)):
        step(model, optimizer)
    assert torch.equal(single.weight, two.weight)
    with pytest.raises(KeyError, match="elsewhere"):
        restore_optimizer(second, dict(two.named_parameters()), {"elsewhere/step": torch.zeros(())})
    # a weight that is not trained has no state
    single.bias.requires_grad_(False)
    alone = build_optimizer(single, settings())
    step(single, alone)
    assert {name.partition("/")[0] for name in optimizer_state(alone, dict(single.named_parameters()))} == {"weight"}


@pytest.mark.parametrize("shape", [(6, 20), (20, 6), (8, 8), (1, 5)])
def test_newton_schulz_steps_map_singular_values_by_their_polynomial(shape: tuple[int, int]) -> None:
    generator = torch.Generator().manual_seed(3)
    matrices = torch.randn(2, *shape, dtype=torch.float64, generator=generator)
    left, values, right = torch.linalg.svd(matrices, full_matrices=False)
    values = values / matrices.norm(dim=(1, 2))[:, None]
    for _ in range(5):
        values = 3.4445 * values - 4.7750 * values**3 + 2.0315 * values**5
    assert 0.6 < values.min() <= values.max() < 1.3
    expected = left * values[:, None] @ right
    torch.testing.assert_close(orthogonalize(matrices), expected, rtol=0, atol=1e-6)
    torch.testing.assert_close(orthogonalize(matrices.float()), expected.float(), rtol=0, atol=1e-4)
    assert orthogonalize(torch.zeros(1, *shape)).equal(torch.zeros(1, *shape))


@pytest.mark.parametrize(("scale", "precision"), [(0.2, "float32"), (0.4, "float32"), (0.4, "bfloat16")])
def test_muon_updates_like_pytorchs(scale: float, precision: Precision) -> None:
    """PyTorch's computes in bfloat16, and its `match_rms_adamw` has a scale of 0.2."""
    generator = torch.Generator().manual_seed(5)
    model = nn.ModuleDict({"first": nn.Linear(8, 24), "second": nn.Linear(24, 8), "to_logits": nn.Linear(8, 8)})
    start = {name: parameter.detach().clone() for name, parameter in model.named_parameters()}
    rate, decay = 0.02, 0.1
    optimizer = build_optimizer(
        model, settings(optimizer="muon", muon_scale=scale, learning_rate=rate, weight_decay=decay)
    )
    names = ["first.weight", "second.weight"]
    peers = {name: nn.Parameter(tensor.clone()) for name, tensor in start.items()}
    others = [peer for name, peer in peers.items() if name not in names]
    expected = [
        torch.optim.Muon([peers[name] for name in names], lr=rate, weight_decay=decay, adjust_lr_fn="match_rms_adamw"),
        torch.optim.AdamW(
            [
                {"params": [peer for peer in others if peer.dim() > 1], "weight_decay": decay},
                {"params": [peer for peer in others if peer.dim() < 2], "weight_decay": 0.0},
            ],
            lr=rate,
            betas=(0.9, 0.98),
            eps=1e-9,
        ),
    ]
    for _ in range(3):
        for name, parameter in model.named_parameters():
            parameter.grad = torch.randn(parameter.shape, generator=generator)
            peers[name].grad = parameter.grad.clone()
        with autocast(torch.device("cpu"), precision):
            optimizer.step()
        for part in expected:
            part.step()
    for name, parameter in model.named_parameters():
        mine, peer = parameter - start[name], peers[name] - start[name]
        if name in names:
            faded = start[name] * ((1 - rate * decay) ** 3 - 1)
            peer = faded + (peer - faded) * scale / 0.2
        tolerance = 0.03 * scale * rate * 3 if name in names else 1e-6
        assert (mine - peer).square().mean().sqrt() < tolerance


def test_muon_updates_the_matrix_of_each_head_and_of_each_layer_but_the_last() -> None:
    torch.manual_seed(1)
    sizes = TransformerSettings(encoder_layers=1, decoder_layers=1, width=8, feed_forward=6, heads=2, score="general")
    model = Transformer(sizes, 9, 9)
    optimizer = build_optimizer(model, settings(optimizer="muon"))
    groups = [group["params"] for group in optimizer.param_groups if "muon_scale" in group]
    names = {parameter: name for name, parameter in model.named_parameters()}
    found = {names[parameter] for group in groups for parameter in group}
    expected = {name for name, parameter in model.named_parameters() if parameter.dim() > 1}
    assert found == expected - {"to_logits.weight", *(name for name in expected if "embedding" in name)}
    assert {tuple(parameter.shape) for group in groups for parameter in group} >= {(2, 4, 4), (6, 8)}
    for parameter in model.parameters():
        parameter.grad = torch.randn_like(parameter)
    heads = next(parameter for parameter in names if parameter.shape == (2, 4, 4))
    before, gradient = heads.detach().clone(), heads.grad
    optimizer.step()
    assert heads.grad is None and gradient is not None
    rate = 1e-3 * 0.2 * 2
    torch.testing.assert_close(heads, before - rate * orthogonalize(gradient), atol=1e-6, rtol=0)


def test_a_restored_muon_goes_on_in_the_same_way() -> None:
    models = [nn.Sequential(nn.Linear(3, 5), nn.Linear(5, 5)) for _ in range(2)]
    first = build_optimizer(models[0], settings(optimizer="muon"))
    for _ in range(2):
        step(models[0], first)
    models[1].load_state_dict(models[0].state_dict())
    second = build_optimizer(models[1], settings(optimizer="muon"))
    state = optimizer_state(first, dict(models[0].named_parameters()))
    assert {"0.weight/momentum_buffer", "1.weight/momentum_buffer", "0.bias/exp_avg"} <= set(state)
    assert not {"0.weight/exp_avg", "0.bias/momentum_buffer"} & set(state)
    restore_optimizer(second, dict(models[1].named_parameters()), state)
    for model, optimizer in zip(models, (first, second), strict=True):
        step(model, optimizer)
    assert all(map(torch.equal, models[0].parameters(), models[1].parameters()))


@pytest.mark.parametrize("name", SCHEDULES)
def test_the_rate_rises_in_a_line_during_the_warm_up(name: str) -> None:
    assert name in get_args(ScheduleName)
    assert len(SCHEDULES) == len(get_args(ScheduleName))
    first, middle, last = (SCHEDULES[name](update, 0.0, 40, 128) for update in (10, 20, 40))
    assert middle == pytest.approx(2 * first)
    assert last == pytest.approx(4 * first)


@pytest.mark.parametrize("name", sorted(set(SCHEDULES) - {"noam"}))
def test_the_largest_factor_is_one(name: str) -> None:
    factors = [SCHEDULES[name](update, update / 1000, 100, 128) for update in range(1, 1001)]
    assert 0.85 < max(factors) <= 1
    assert SCHEDULES[name](1, 0.0, 0, 128) == 1


@pytest.mark.parametrize("name", sorted(set(SCHEDULES) - {"constant", "plateau"}))
def test_the_rate_falls_after_the_warm_up(name: str) -> None:
    factors = [SCHEDULES[name](update, update / 1000, 100, 128) for update in range(100, 1001)]
    assert factors == sorted(factors, reverse=True)
    assert factors[-1] < factors[0]


def test_schedules_by_hand() -> None:
    # base model, warm-up 4000: the largest rate is 512^-0.5 · 4000^-0.5
    assert noam(4000, 0.0, 4000, 512) == pytest.approx(6.9877e-4, rel=1e-4)
    assert noam(16000, 0.0, 4000, 512) == pytest.approx(noam(4000, 0.0, 4000, 512) / 2)
    assert inverse_sqrt(400, 0.0, 100, 128) == pytest.approx(0.5)
    for schedule in (cosine, linear):
        assert schedule(500, 0.5, 10, 128) == pytest.approx(0.5)
        assert schedule(1000, 1.0, 10, 128) == pytest.approx(0.0)
        assert schedule(1001, 1.1, 10, 128) == pytest.approx(0.0)


def run(average: WeightAverage, weights: list[float]) -> None:
    for update, weight in enumerate(weights, start=1):
        with torch.no_grad():
            average.parameters[0].fill_(weight)
        average.add(update)


def test_averages_worked_by_hand() -> None:
    parameter = nn.Parameter(torch.zeros(2))
    average = WeightAverage([parameter], settings(averaging="ema", ema_decay=0.2))
    run(average, [1.0, 2.0])
    # d = min(0.2, 2/11) = 2/11, then min(0.2, 3/12) = 0.2, from a start of 0
    average.apply()
    assert parameter.tolist() == pytest.approx([0.2 * (9 / 11) + 0.8 * 2.0] * 2)
    parameter = nn.Parameter(torch.zeros(2))
    average = WeightAverage([parameter], settings(averaging="last", last=2, last_every=3))
    run(average, [float(update) for update in range(1, 11)])
    average.apply()
    assert parameter.tolist() == [(6 + 9) / 2] * 2
    # without any set aside
    parameter = nn.Parameter(torch.ones(2))
    WeightAverage([parameter], settings(averaging="last")).apply()
    assert parameter.tolist() == [1.0, 1.0]


@pytest.mark.parametrize("averaging", ["none", "ema", "last"])
def test_a_block_gives_the_weights_back(averaging: str) -> None:
    parameter = nn.Parameter(torch.zeros(2))
    average = WeightAverage([parameter], settings(averaging=averaging, last_every=1))
    run(average, [1.0, 2.0, 3.0])
    with average.average_parameters():
        assert parameter.tolist() == [3.0, 3.0] if averaging == "none" else parameter[0].item() < 3
    assert parameter.tolist() == [3.0, 3.0]


def judge(name: str, scores: Sequence[float], **values: object) -> EarlyStopping:
    stopping = EarlyStopping(
        TrainingSettings.model_validate({"updates": 9, "batch_pairs": 8, "validate_every": 1} | values)
    )
    for number, score in enumerate(scores, start=1):
        stopping.step(10 * number, {name: score})
    return stopping


def test_a_loss_is_better_when_it_is_lower_and_anything_else_when_it_is_higher() -> None:
    assert judge("loss", [3.0, 2.0, 2.5], keep_best=2).state.best == [(2.0, 20), (2.5, 30)]
    assert judge("exact match", [3.0, 2.0, 2.5], keep_best=2).state.best == [(3.0, 10), (2.5, 30)]
    built = judge("exact match", [50.0, 50.0])
    assert (built.state.best, built.state.waiting) == ([(50.0, 20)], 1)
    assert not judge("loss", [3.0, 4.0, 2.0, 5.0], patience=2).should_stop
    assert judge("loss", [3.0, 4.0, 2.0, 5.0, 2.0], patience=2).should_stop
    assert not judge("loss", [3.0] * 9).should_stop


def test_the_plateau_worked_by_hand() -> None:
    # better at 1 and 2; 3, 4 are borne, 5 lets the rate fall; 6, 7 are borne, 8 lets it fall again
    scales = [
        judge(
            "loss", [3.0, 2.0, 2.1, 2.2, 2.3, 2.4, 2.5, 2.6][:last], schedule="plateau", plateau_patience=2
        ).state.scale
        for last in range(1, 9)
    ]
    assert scales == [1.0, 1.0, 1.0, 1.0, 0.5, 0.5, 0.5, 0.25]
    assert judge("loss", [1.0] * 9).state.scale == 1.0


def test_a_score_can_be_chosen_by_name() -> None:
    stopping = EarlyStopping(TrainingSettings(updates=9, batch_pairs=8, judge_by="exact match"))
    stopping.step(1, {"loss": 3.0, "exact match": 10.0})
    stopping.step(2, {"loss": 2.0, "exact match": 5.0})
    assert stopping.state.best == [(10.0, 1)]
    with pytest.raises(UnknownNameError, match=r"unknown training\.judge_by, 'exact match'.*known: loss"):
        stopping.step(3, {"loss": 1.0})
    built = judge("loss", [2.0])
    built.step(20, {})
    assert built.state == EarlyStoppingState(best=[(2.0, 10)], validated=20, best_scores={"loss": 2.0})
    verdict = judge("loss", [2.0, 1.0, 3.0]).state
    assert (verdict.scores_of(20), verdict.scores_of(30)) == ({"loss": 1.0}, {"loss": 3.0})
    # of a run that began before the best ones were remembered
    assert verdict.model_copy(update={"best_scores": {}}).scores_of(20) == {"loss": 3.0}
