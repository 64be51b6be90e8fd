import io
import signal
import threading
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from attent.errors import AttentError
from attent.models.settings import TransformerSettings
from attent.models.transformer import Transformer
from attent.text.batches import Bitext
from attent.text.text import Pair
from attent.text.tokenizer import CharTokenizer
from attent.training.checkpoint import Checkpoints, list_checkpoints
from attent.training.loop import Training, TrainingResult, deferred_interrupt, train
from attent.training.loss import translation_cross_entropy
from attent.training.optimizer import build_optimizer, fraction_done, orthogonalize
from attent.training.progress import Progress
from attent.training.settings import TrainingSettings

TOKENIZER = CharTokenizer("abcde")
PAIRS = [Pair(text, text.upper().lower()) for text in ("a", "bc", "deb", "cead", "ba", "e", "dd")]
DATA = Bitext(PAIRS, TOKENIZER, TOKENIZER)


def make_model(dropout: float = 0.0) -> Transformer:
    torch.manual_seed(5)
    settings = TransformerSettings(
        encoder_layers=1, decoder_layers=1, width=16, feed_forward=17, heads=2, dropout=dropout
    )
    return Transformer(settings, TOKENIZER.size, TOKENIZER.size)


def make_settings(**values: object) -> TrainingSettings:
    return TrainingSettings.model_validate(
        {"updates": 5, "batch_pairs": 3, "warmup": 2, "precision": "float32"} | values
    )


def run(model: Transformer, settings: TrainingSettings, **others: Any) -> TrainingResult:
    return train(model, DATA, settings, progress=Progress(io.StringIO()), **others)


def weights(model: Transformer) -> torch.Tensor:
    return torch.cat([parameter.detach().flatten() for parameter in model.parameters()])


def test_matrices_except_embeddings_are_decayed_and_it_learns_to_copy() -> None:
    model = make_model()
    settings = make_settings(updates=60, batch_pairs=7, learning_rate=2e-2, label_smoothing=0.0, schedule="cosine")
    trained = run(model, settings)
    batch = DATA.batch(np.arange(len(PAIRS)))
    assert translation_cross_entropy(model, batch, 0.0, "float32").item() < 0.1
    assert trained.updates == 60
    assert not model.training
    optimizer = build_optimizer(model, make_settings(weight_decay=0.01))
    plain, decayed = optimizer.param_groups
    embeddings = [table.weight for table in model.embeddings.values()]
    assert embeddings and not any(parameter is table for parameter in decayed["params"] for table in embeddings)
    assert all(parameter.dim() > 1 for parameter in decayed["params"])
    others = [parameter for parameter in plain["params"] if not any(parameter is table for table in embeddings)]
    assert all(parameter.dim() < 2 for parameter in others)
    assert len(decayed["params"]) + len(plain["params"]) == len(list(model.parameters()))
    assert (decayed["weight_decay"], plain["weight_decay"]) == (0.01, 0.0)


def test_the_same_seed_gives_the_same_weights() -> None:
    first, second, third = make_model(0.1), make_model(0.1), make_model(0.1)
    for model, seed in ((first, 1), (second, 1), (third, 2)):
        run(model, make_settings(seed=seed))
    assert weights(first).equal(weights(second))
    assert not weights(first).equal(weights(third))
    tried, plain, log = make_model(0.1), make_model(0.1), []
    trained = run(tried, make_settings(precision="auto"), log=log.append)
    run(plain, make_settings(precision=trained.precision))
    assert log[0]["pace"] == f"{trained.precision} on 1 thread"
    assert set(log[0]["seconds"]) == {"float32 on 1 thread", "bfloat16 on 1 thread"}
    assert trained.threads == 1
    assert weights(tried).equal(weights(plain))


@pytest.mark.parametrize(("precision", "dtype"), [("float32", torch.float32), ("bfloat16", torch.bfloat16)])
def test_muon_computes_in_the_precision_of_training(
    precision: str, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = []

    def recorded(matrices: torch.Tensor) -> torch.Tensor:
        result = orthogonalize(matrices)
        assert matrices.dtype == torch.float32
        found.append(result.dtype)
        return result

    monkeypatch.setattr("attent.training.optimizer.orthogonalize", recorded)
    model = make_model()
    run(model, make_settings(optimizer="muon", precision=precision))
    assert set(found) == {dtype}
    assert {parameter.dtype for parameter in model.parameters()} == {torch.float32}


@pytest.fixture
def losses(monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[dict[str, Any]]]:
    """A function that trains, and returns the log's records of losses, one for each update."""
    monkeypatch.setattr("attent.training.progress.RECORD_INTERVAL", 0.0)

    def trained(settings: TrainingSettings, **others: Any) -> list[dict[str, Any]]:
        log: list[dict[str, Any]] = []
        run(make_model(), settings, log=log.append, **others)
        return [record for record in log if "loss" in record]

    return trained


def rates(records: list[dict[str, Any]]) -> list[float]:
    return [record["learning_rate"] for record in records]


def test_the_log_says_what_happened(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("attent.training.progress.RECORD_INTERVAL", 0.0)
    log: list[dict[str, Any]] = []
    settings = make_settings(updates=4, validate_every=2)
    run(make_model(), settings, validate=lambda: {"exact match": 50.0}, log=log.append)
    assert [record["update"] for record in log if "loss" in record] == [1, 2, 3, 4]
    assert [record["update"] for record in log if "validation" in record] == [2, 4]
    assert all({"tokens_per_second", "learning_rate", "seconds"} <= set(record) for record in log if "loss" in record)


def test_validation_sees_the_weights_that_are_kept() -> None:
    model, records = make_model(), []

    def validate() -> dict[str, float]:
        assert not model.training
        assert not torch.is_grad_enabled()
        records.append(weights(model))
        return {"score": float(len(records))}

    trained = run(model, make_settings(updates=5, validate_every=2, averaging="ema", ema_decay=0.5), validate=validate)
    assert trained.validation == {"score": 3.0}
    assert records[-1].equal(weights(model))


def test_the_rate_follows_the_schedule(losses: Callable[..., list[dict[str, Any]]]) -> None:
    linear = make_settings(updates=4, learning_rate=0.1, warmup=2, schedule="linear")
    assert rates(losses(linear)) == pytest.approx([0.05, 0.075, 0.05, 0.025])
    noam = make_settings(updates=1, learning_rate=2.0, warmup=4, schedule="noam")
    # with the width of the model
    assert rates(losses(noam)) == pytest.approx([2.0 * 16**-0.5 * 4**-1.5])
    options = {"schedule": "plateau", "plateau_patience": 0, "plateau_factor": 0.1, "learning_rate": 1e-2, "warmup": 0}
    plateau = make_settings(updates=4, validate_every=1, **options)
    assert rates(losses(plateau, validate=lambda: {"loss": 1.0})) == pytest.approx([1e-2, 1e-2, 1e-3, 1e-4])


@pytest.mark.parametrize("schedule", ["noam", "cosine"])
def test_a_share_warms_up_as_so_many_updates_do(schedule: str, losses: Callable[..., list[dict[str, Any]]]) -> None:
    updates, share = (losses(make_settings(updates=10, schedule=schedule, warmup=warmup)) for warmup in (2, 0.2))
    assert len(updates) == 10
    assert rates(share) == pytest.approx(rates(updates))


class Clock:
    """A clock by which each update takes as long as it is told to."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, seconds: float) -> None:
        self.now, learn = 0.0, Training.train_step
        monkeypatch.setattr("attent.training.progress.time.monotonic", lambda: self.now)
        monkeypatch.setattr("attent.training.progress.RECORD_INTERVAL", 0.0)

        def timed(training: Training) -> None:
            learn(training)
            self.now += seconds

        monkeypatch.setattr(Training, "train_step", timed)


def test_a_share_of_minutes_rises_and_falls_by_the_clock(
    monkeypatch: pytest.MonkeyPatch, losses: Callable[..., list[dict[str, Any]]]
) -> None:
    Clock(monkeypatch, seconds=8.0)
    settings = make_settings(updates=5000, minutes=4, learning_rate=1.0, schedule="linear", warmup=0.1)
    actual = rates(losses(settings))
    assert len(actual) == 30
    # a tenth of the 30 updates that fit; before the first one no time is spent, and it is one of 5,000
    assert actual[:5] == pytest.approx([1 / 500, *(done / 3 * (1 - done / 30) for done in range(1, 4)), 1 - 4 / 30])
    assert actual.index(max(actual)) < len(actual) / 5


def test_a_resumed_training_by_the_clock_has_the_same_rates(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    settings = make_settings(updates=None, minutes=1, warmup=0.2, schedule="cosine", save_every=3)
    rates = []
    for stops in (False, True):
        log: list[dict[str, Any]] = []
        with monkeypatch.context() as patched:
            clock = Clock(patched, seconds=4.0)
            checkpoints = partial(Checkpoints, tmp_path / str(stops), settings)
            (tmp_path / str(stops)).mkdir()
            if stops:
                training = Training(
                    make_model(), DATA, settings, dict, log.append, Progress(io.StringIO()), checkpoints()
                )
                while training.state.update < 3:
                    training.should_continue(False)
                    training.train_step()
                    training.log_progress()
                training.save()
                clock.now += 1000.0
            run(make_model(), settings, log=log.append, checkpoints=checkpoints())
        rates.append([record["learning_rate"] for record in log if "loss" in record])
    assert len(rates[0]) == 15
    assert rates[1] == pytest.approx(rates[0])


def test_how_long_it_takes_is_said_before_it_begins_and_a_rate_that_stayed_low_at_its_end() -> None:
    stream = io.StringIO()
    train(make_model(), DATA, make_settings(updates=6, warmup=60), progress=Progress(stream))
    first, *_, fault = stream.getvalue().splitlines()
    assert first.startswith("about 0:0")
    assert "and 1 validation: 6 updates of " in first
    # 7 pairs in batches of 3
    assert first.endswith(" s, 2 epochs")
    assert fault.startswith("6 updates are too few for a warm-up of 60 updates: the learning rate reaches 10% of its ")
    stream = io.StringIO()
    train(make_model(), DATA, make_settings(updates=5, warmup=0.2), progress=Progress(stream))
    assert "too few" not in stream.getvalue()


def test_what_is_left_of_minutes_is_right_from_the_first_update_on(monkeypatch: pytest.MonkeyPatch) -> None:
    Clock(monkeypatch, seconds=30.0)
    stream = io.StringIO()
    train(make_model(), DATA, make_settings(updates=None, minutes=4), progress=Progress(stream))
    lines = [line for line in stream.getvalue().splitlines() if line.startswith("update ")]
    assert lines[0].endswith("0:30 elapsed, 3:30 left")


def test_a_loss_or_score_that_is_not_finite_ends_it() -> None:
    model = make_model()
    with torch.no_grad():
        model.to_logits.weight.fill_(float("inf"))
    with pytest.raises(AttentError, match="no longer finite"):
        run(model, make_settings())
    with pytest.raises(AttentError, match="validation's loss is nan at update 2"):
        run(make_model(), make_settings(updates=5, validate_every=2), validate=lambda: {"loss": float("nan")})


def test_a_weight_that_is_not_finite_takes_no_checkpoints_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, settings = make_model(), make_settings(updates=9, save_every=2)
    learn = Training.train_step

    def spoils(training: Training) -> None:
        learn(training)
        if training.state.update == 4:
            with torch.no_grad():
                training.parameters[0].view(-1)[0] = float("nan")

    monkeypatch.setattr(Training, "train_step", spoils)
    with pytest.raises(AttentError, match="a weight is no longer finite at update 4"):
        run(model, settings, checkpoints=Checkpoints(tmp_path, settings))
    assert [path.name for path in list_checkpoints(tmp_path)] == ["00000002"]


def test_accumulated_gradients_are_those_of_one_large_batch() -> None:
    data = Bitext(PAIRS[:6], TOKENIZER, TOKENIZER)

    class InTurn:
        """Pairs in their order, so many a batch."""

        def __init__(self, pairs: int) -> None:
            self.pairs, self.place = pairs, (0, 0)

        def __next__(self) -> Any:
            batch = data.batch(np.arange(self.place[1], self.place[1] + self.pairs))
            self.place = (0, (self.place[1] + self.pairs) % 6)
            return batch

    results = []
    for pairs, accumulate in ((6, 1), (2, 3)):
        model = make_model()
        # with so large an epsilon a step is nearly in proportion to the gradient, however small
        settings = make_settings(accumulate=accumulate, clip=None, learning_rate=0.1, epsilon=1.0)
        training = Training(model, data, settings, dict, lambda record: None, Progress(io.StringIO()), None)
        training.batches = InTurn(pairs)
        training.train_step()
        assert training.meter.tokens == sum(len(pair.target) + 1 for pair in PAIRS[:6])
        results.append((weights(model), training.meter.losses))
    torch.testing.assert_close(results[0], results[1], rtol=1e-4, atol=1e-6)


def test_it_ends_when_nothing_better_is_found() -> None:
    scores = iter([3.0, 2.0, 2.5, 2.25, 1.0])
    settings = make_settings(updates=9, validate_every=1, patience=2)
    trained = run(make_model(), settings, validate=lambda: {"loss": next(scores)})
    assert trained.updates == 4
    assert trained.validation == {"loss": 2.25}


@pytest.mark.parametrize(
    ("limits", "done"),
    [({"updates": 50}, 0.2), ({"updates": None, "minutes": 1}, 0.5), ({"updates": 50, "minutes": 1}, 0.5)],
)
def test_the_nearer_limit_says_how_much_is_done(limits: dict[str, object], done: float) -> None:
    assert fraction_done(make_settings(**limits), updates_done=10, seconds_spent=30) == done


@pytest.fixture
def as_in_the_foreground() -> Iterator[None]:
    """Python's own answer to Ctrl-C, which a shell turns off for what it runs in the background."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("as_in_the_foreground")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_the_first_is_only_noted_and_the_second_acts(number: int) -> None:
    before = signal.getsignal(number)
    with deferred_interrupt() as interruption:
        assert not interruption.is_set()
        signal.raise_signal(number)
        assert interruption.is_set()
    assert signal.getsignal(number) is before
    with pytest.raises(KeyboardInterrupt), deferred_interrupt() as interruption:
        signal.raise_signal(signal.SIGINT)
        assert interruption.is_set()
        signal.raise_signal(signal.SIGINT)


@pytest.mark.usefixtures("as_in_the_foreground")
def test_ctrl_c_passes_through_without_a_place_to_save(capsys: pytest.CaptureFixture[str]) -> None:
    def validate() -> dict[str, float]:
        signal.raise_signal(signal.SIGINT)
        return {}

    with pytest.raises(KeyboardInterrupt):
        train(make_model(), DATA, make_settings(updates=9, validate_every=1), validate=validate)
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "9 updates of " in captured.err


def test_other_threads_hold_nothing_back() -> None:
    records = []

    def run() -> None:
        with deferred_interrupt() as interruption:
            records.append(interruption.is_set())

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    assert records == [False]
