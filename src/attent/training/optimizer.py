"""The optimizer, learning-rate schedules, weight averaging and early stopping.

Each schedule returns a factor for the maximum learning rate, given the update u (from 1), the progress p of training
(0 to 1), the warm-up w in updates, and the model width E. All but `noam` rise linearly from 0 to 1 in the first w
updates. A warm-up given as a share of training is converted to updates at the pace of training so far.

Averages of the weights during training translate better than the last weights. Validation scores determine the best
weights, the learning rate of the schedule "plateau", and the end of training after validations without improvement.
"""

import math
from collections import defaultdict, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager

import torch
from pydantic import BaseModel
from torch import Tensor, nn
from torch.optim.swa_utils import get_ema_multi_avg_fn

from attent.attention.positions.learned import Learned
from attent.errors import check_known
from attent.layers.embeddings import TokenEmbedding
from attent.training.settings import TrainingSettings

# Number of points during training at which `peak_ratio` computes the learning rate.
SAMPLES = 100
LOWER_IS_BETTER = frozenset({"loss", "perplexity"})
# Muon's momentum, and the coefficients of its Newton–Schulz steps.
MUON_MOMENTUM, NEWTON_SCHULZ = 0.95, ((3.4445, -4.7750, 2.0315),) * 5
Schedule = Callable[[float, float, float, int], float]


class Muon(torch.optim.AdamW):
    """Muon for groups of weights of one shape with the option `muon_scale`, AdamW for all other groups.

        m ← μ m + (1 − μ) g,   W ← (1 − η λ) W − η s √max(A, B) · ortho((1 − μ) g + μ m),   μ = 0.95

    for each matrix W, of shape (A, B), of a weight (…, A, B), with the learning rate η, the weight decay λ and the
    scale s: the root mean square of an update is at most about η s. It computes in float32, or in bfloat16 under
    autocast, and all matrices of a group together. torch.optim.Muon always computes in bfloat16, which is many times
    slower on CPUs without it.

    Source: Jordan et al. (2024), https://kellerjordan.github.io/posts/muon; Liu et al. (2025), §2.2, arXiv 2502.16982.
    """

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # pyright: ignore[reportIncompatibleMethodOverride]
        """Update all parameters that have gradients, and set the gradients of Muon's groups to None."""
        for group in self.param_groups:
            parameters = [parameter for parameter in group["params"] if parameter.grad is not None]
            if "muon_scale" not in group or not parameters:
                continue
            momenta = [
                self.state[parameter]
                .setdefault("momentum_buffer", torch.zeros_like(parameter))
                .lerp_(parameter.grad, 1 - MUON_MOMENTUM)
                for parameter in parameters
            ]
            averages = [
                parameter.grad.lerp(momentum, MUON_MOMENTUM)
                for parameter, momentum in zip(parameters, momenta, strict=True)
            ]
            matrices = torch.stack(averages).flatten(0, -3)
            rate = group["lr"] * group["muon_scale"] * max(matrices.shape[1:]) ** 0.5
            for parameter, update in zip(parameters, orthogonalize(matrices).chunk(len(parameters)), strict=True):
                parameter.mul_(1 - group["lr"] * group["weight_decay"]).add_(
                    update.reshape(parameter.shape), alpha=-rate
                )
                # AdamW passes over parameters without a gradient.
                parameter.grad = None
        super().step()


def orthogonalize(matrices: Tensor) -> Tensor:
    """Return matrices, (N, A, B), with the same singular vectors, but singular values near 1.

    Those above 0.0015 times a matrix's Frobenius norm become 0.68 to 1.2; smaller ones grow at most 485-fold.

    Source: Jordan et al. (2024), https://kellerjordan.github.io/posts/muon, five Newton–Schulz steps.
    """
    is_tall = matrices.shape[1] > matrices.shape[2]
    result = matrices.mT if is_tall else matrices
    result = result / (result.norm(dim=(1, 2), keepdim=True) + 1e-7)
    for first, second, third in NEWTON_SCHULZ:
        gram = result @ result.mT
        result = torch.baddbmm(result, torch.baddbmm(gram, gram, gram, beta=second, alpha=third), result, beta=first)
    return result.mT if is_tall else result


OPTIMIZERS: dict[str, type[torch.optim.Adam]] = {"adamw": torch.optim.AdamW, "adam": torch.optim.Adam, "muon": Muon}


def build_optimizer(model: nn.Module, settings: TrainingSettings) -> torch.optim.Adam:
    """Build the optimizer of the settings; all of them decay matrices, but neither vectors nor embeddings.

    Muon updates the weight matrices of all layers but the output layer, and AdamW all else.

    Source: Kingma & Ba (2015), algorithm 1, arXiv 1412.6980; Loshchilov & Hutter (2019), algorithm 2, arXiv 1711.05101.
    """
    embeddings = {
        parameter
        for part in model.modules()
        if isinstance(part, TokenEmbedding | Learned)
        for parameter in part.parameters()
    }
    groups: defaultdict[tuple[bool, torch.Size | None], list[nn.Parameter]] = defaultdict(list)
    for name, parameter in model.named_parameters():
        if parameter.requires_grad:
            is_decayed = parameter.dim() > 1 and parameter not in embeddings
            is_hidden = "weight" in name.rpartition(".")[2] and not name.startswith("to_logits.")
            has_muon = settings.optimizer == "muon" and is_decayed and is_hidden
            groups[is_decayed, parameter.shape if has_muon else None].append(parameter)
    options = [
        {"params": parameters, "weight_decay": settings.weight_decay if is_decayed else 0.0}
        | ({"muon_scale": settings.muon_scale} if shape else {})
        for (is_decayed, shape), parameters in groups.items()
    ]
    return OPTIMIZERS[settings.optimizer](
        options, lr=settings.learning_rate, betas=settings.betas, eps=settings.epsilon, fused=True
    )


def optimizer_state(optimizer: torch.optim.Adam, parameters: Mapping[str, nn.Parameter]) -> dict[str, Tensor]:
    """Return moments and step counts by name, `parameter/moment`; empty before the first update."""
    return {
        f"{name}/{key}": value
        for name, parameter in parameters.items()
        for key, value in optimizer.state.get(parameter, {}).items()
        if isinstance(value, Tensor)
    }


def restore_optimizer(
    optimizer: torch.optim.Adam, parameters: Mapping[str, nn.Parameter], state: Mapping[str, Tensor]
) -> None:
    """Restore an optimizer from the result of `optimizer_state`.

    Raises:
        KeyError: the model lacks a parameter of the state.
    """
    for path, value in state.items():
        name, _, key = path.rpartition("/")
        # Cloned, since the alignment of tensors read from a file may change the rounding of sums.
        optimizer.state[parameters[name]][key] = value.clone().to(parameters[name].device)


def noam(update: float, progress: float, warmup: float, width: int) -> float:
    """Return E^(−1/2) · min(u^(−1/2), u · w^(−3/2)).

    Source: Vaswani et al. (2017), §5.3, equation 3, arXiv 1706.03762, where the maximum learning rate is 1.
    """
    return width**-0.5 * min(update**-0.5, update * max(warmup, 1) ** -1.5)


def inverse_sqrt(update: float, progress: float, warmup: float, width: int) -> float:
    """Return √(w / u) after the warm-up, like `noam` but with an explicit maximum.

    Source: Ott et al. (2019), fairseq's `inverse_sqrt`, arXiv 1904.01038.
    """
    return _warmup_factor(update, warmup) * math.sqrt(max(warmup, 1) / max(update, warmup, 1))


def cosine(update: float, progress: float, warmup: float, width: int) -> float:
    """Return ½ (1 + cos π p) after the warm-up, which reaches 0 at the end.

    Source: Loshchilov & Hutter (2017), SGDR, equation 5 without restarts, arXiv 1608.03983.
    """
    return _warmup_factor(update, warmup) * (1 + math.cos(math.pi * min(progress, 1.0))) / 2


def linear(update: float, progress: float, warmup: float, width: int) -> float:
    """Return 1 − p after the warm-up, which reaches 0 at the end.

    Source: Devlin et al. (2018), appendix A.2, arXiv 1810.04805.
    """
    return _warmup_factor(update, warmup) * (1 - min(progress, 1.0))


def constant(update: float, progress: float, warmup: float, width: int) -> float:
    """Return 1 after the warm-up."""
    return _warmup_factor(update, warmup)


def _warmup_factor(update: float, warmup: float) -> float:
    return min(1.0, update / warmup) if warmup else 1.0


SCHEDULES: dict[str, Schedule] = {
    "noam": noam,
    "inverse_sqrt": inverse_sqrt,
    "cosine": cosine,
    "linear": linear,
    "constant": constant,
    # `EarlyStopping` lowers the rate after validations without improvement
    "plateau": constant,
}


def fraction_done(settings: TrainingSettings, updates_done: int, seconds_spent: float) -> float:
    """Return the progress of training, 0 to 1, by updates or minutes, whichever limit is nearer."""
    by_updates = updates_done / settings.updates if settings.updates else 0.0
    by_time = seconds_spent / (60 * settings.minutes) if settings.minutes else 0.0
    return max(by_updates, by_time)


def warmup_updates(warmup: int | float, update: float, progress: float) -> float:
    """Return the number of warm-up updates; a share of training is converted at the pace of the updates so far.

    Args:
        warmup: the warm-up from the settings.
        update: the number of the update, from 1.
        progress: the progress of training after this update, 0 to 1.
    """
    return warmup * update / max(progress, 1e-9) if 0 < warmup < 1 else warmup


def peak_ratio(settings: TrainingSettings, updates: float, progress: float, width: int) -> float:
    """Return the largest learning rate in some updates at a constant pace, as a share of the rate after the warm-up.

    Args:
        settings: the training settings.
        updates: the number of updates.
        progress: the progress of training after these updates, 0 to 1.
        width: the width of the model.
    """
    schedule, warmup = SCHEDULES[settings.schedule], warmup_updates(settings.warmup, updates, progress)
    steps = range(1, SAMPLES + 1)
    largest = max(schedule(updates * step / SAMPLES, progress * step / SAMPLES, warmup, width) for step in steps)
    return largest / schedule(max(warmup, 1), 0.0, warmup, width)


class WeightAverage:
    """The average of weights with which a training run ends.

        ema:   w̄ ← d w̄ + (1 − d) w,  d = min(decay, (1 + u) / (10 + u)) at update u
        last:  the mean of the last n snapshots of the weights

    Source: Polyak & Juditsky (1992); the mean of the last checkpoints in Vaswani et al. (2017), §6.1, arXiv 1706.03762.

    Args:
        parameters: the weights that training changes in place.
        settings: the training settings: the kind of average, its decay or its snapshots.
    """

    def __init__(self, parameters: Sequence[nn.Parameter], settings: TrainingSettings) -> None:
        self.parameters, self.settings = parameters, settings
        self.ema = _clone(parameters) if settings.averaging == "ema" else []
        self.snapshots: deque[list[Tensor]] = deque(maxlen=settings.last)

    @torch.no_grad()
    def add(self, update: int) -> None:
        """Add the weights after an update to the average."""
        if self.settings.averaging == "ema":
            decay = min(self.settings.ema_decay, (1 + update) / (10 + update))
            get_ema_multi_avg_fn(decay)(self.ema, list(self.parameters), update)
        elif self.settings.averaging == "last" and update % self.settings.last_every == 0:
            self.snapshots.append(_clone(self.parameters))

    @torch.no_grad()
    def apply(self) -> None:
        """Overwrite the weights with their average."""
        if self.settings.averaging == "ema":
            _copy(self.ema, self.parameters)
        elif self.snapshots:
            _copy([torch.stack(tensors).mean(0) for tensors in zip(*self.snapshots, strict=True)], self.parameters)

    def state(self) -> dict[str, Tensor]:
        """Return the tensors of the average by name, for a checkpoint."""
        groups = (
            {"moving": self.ema} if self.ema else {f"{index}": tensors for index, tensors in enumerate(self.snapshots)}
        )
        return {
            f"{group}/{number}": tensor for group, tensors in groups.items() for number, tensor in enumerate(tensors)
        }

    def parameter_of(self, name: str) -> nn.Parameter:
        """Return the parameter that belongs to a tensor of `state`."""
        return self.parameters[int(name.rpartition("/")[2])]

    @torch.no_grad()
    def restore(self, state: Mapping[str, Tensor]) -> None:
        """Restore the average from the result of `state`.

        Raises:
            KeyError: a tensor is missing.
        """
        if self.ema:
            _copy([state[f"moving/{number}"] for number in range(len(self.ema))], self.ema)
            return
        self.snapshots.clear()
        for index in range(len(state) // max(len(self.parameters), 1)):
            snapshot = _clone(self.parameters)
            _copy([state[f"{index}/{number}"] for number in range(len(snapshot))], snapshot)
            self.snapshots.append(snapshot)

    @contextmanager
    def average_parameters(self) -> Iterator[None]:
        """Replace the weights with their average within the block."""
        if self.settings.averaging == "none":
            yield
            return
        weights = _clone(self.parameters)
        self.apply()
        try:
            yield
        finally:
            with torch.no_grad():
                _copy(weights, self.parameters)


class EarlyStoppingState(BaseModel, extra="forbid"):
    """The state of early stopping, as checkpoints store it.

    Args:
        best: the best scores with their updates, best first.
        waiting: the number of consecutive validations without improvement.
        waited: the same, but counted since the rate was last lowered.
        scale: the current learning-rate factor of the schedule "plateau", 0 to 1.
        validated: the update of the last validation; -1 before the first.
        scores: the scores of the last validation.
        best_scores: the scores of the best validation.
    """

    best: list[tuple[float, int]] = []
    waiting: int = 0
    waited: int = 0
    scale: float = 1.0
    validated: int = -1
    scores: dict[str, float] = {}
    best_scores: dict[str, float] = {}

    def scores_of(self, update: int) -> dict[str, float]:
        """Return the scores of the best validation if they belong to this update, else those of the last."""
        return self.best_scores if self.best_scores and self.best[0][1] == update else self.scores


class EarlyStopping:
    """Ranks validations and counts those without improvement.

    Args:
        settings: the training settings, which name the score to compare and the patience.
        state: the state after earlier validations, if training is resumed.
    """

    def __init__(self, settings: TrainingSettings, state: EarlyStoppingState | None = None) -> None:
        self.settings = settings
        self.state = state or EarlyStoppingState()

    @property
    def should_stop(self) -> bool:
        """True if the number of validations without improvement has reached the patience."""
        return self.settings.patience is not None and self.state.waiting >= self.settings.patience

    def step(self, update: int, scores: Mapping[str, float]) -> None:
        """Record the scores of a validation; if two scores are equal, the later one ranks first.

        Raises:
            UnknownNameError: the scores lack `judge_by`.
        """
        state = self.state
        state.validated, state.scores = update, dict(scores)
        if not scores:
            return
        name = self.settings.judge_by or next(iter(scores))
        check_known("training.judge_by,", name, scores)
        sign = -1 if name in LOWER_IS_BETTER else 1
        is_better = not state.best or sign * scores[name] > sign * state.best[0][0]
        state.best = sorted(
            [*state.best, (scores[name], update)], key=lambda entry: (sign * entry[0], entry[1]), reverse=True
        )
        del state.best[max(self.settings.keep_best, 1) :]
        if state.best[0][1] == update:
            state.best_scores = dict(scores)
        state.waiting = 0 if is_better else state.waiting + 1
        state.waited = 0 if is_better else state.waited + 1
        if self.settings.schedule == "plateau" and state.waited > self.settings.plateau_patience:
            state.scale, state.waited = state.scale * self.settings.plateau_factor, 0


def _clone(tensors: Sequence[Tensor]) -> list[Tensor]:
    return [tensor.detach().clone() for tensor in tensors]


def _copy(source: Sequence[Tensor], target: Sequence[Tensor]) -> None:
    for to, value in zip(target, source, strict=True):
        to.copy_(value)
