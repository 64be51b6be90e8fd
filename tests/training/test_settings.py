import pytest
from pydantic import ValidationError

from attent.training.settings import TrainingSettings


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"batch_pairs": 8}, "set updates or minutes"),
        ({"updates": 3}, "set either batch_pairs or batch_tokens"),
        ({"updates": 3, "batch_pairs": 8, "batch_tokens": 99}, "set either batch_pairs or batch_tokens"),
        (
            {"updates": 3, "batch_pairs": 8, "schedule": "cosin"},
            "'noam', 'inverse_sqrt', 'cosine', 'linear', 'constant' or 'plateau'",
        ),
        ({"updates": 3, "batch_pairs": 8, "learning_rate": 0}, "greater than 0"),
        ({"updates": 3, "batch_pairs": 8, "momentum": 0.9}, "momentum"),
        ({"updates": 3, "batch_pairs": 8, "accumulate": 10**30}, "less than or equal to 4096"),
        ({"updates": 3, "batch_pairs": 8, "device": "gpu"}, "unknown device 'gpu'"),
        ({"updates": 3, "batch_pairs": 8, "patience": 2}, "set validate_every"),
        ({"updates": 3, "batch_pairs": 8, "schedule": "plateau"}, "set validate_every"),
    ],
)
def test_wrong_values_are_refused(values: dict[str, object], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        TrainingSettings.model_validate(values)


def test_a_run_folder_does_not_keep_the_device() -> None:
    """It may be gone on with where there is no such device."""
    settings = TrainingSettings(updates=3, batch_pairs=8, device="cuda:1")
    assert settings.table == TrainingSettings(updates=3, batch_pairs=8).table
    assert TrainingSettings.model_validate(settings.table).device == "auto"


@pytest.mark.parametrize(("warmup", "retained"), [(0, 0), (400, 400), (40.0, 40), (1, 1), (0.1, 0.1)])
def test_a_warmup_is_updates_or_a_share(warmup: float, retained: float) -> None:
    settings = TrainingSettings.model_validate({"updates": 3, "batch_pairs": 8, "warmup": warmup})
    assert settings.warmup == settings.table["warmup"] == retained
    assert type(settings.warmup) is type(retained)


@pytest.mark.parametrize("warmup", [-1, 1.5, -0.1])
def test_other_warmups_are_refused(warmup: float) -> None:
    with pytest.raises(
        ValidationError, match="a warm-up is a whole number of updates or a share of training below 1, got "
    ):
        TrainingSettings.model_validate({"updates": 3, "batch_pairs": 8, "warmup": warmup})
