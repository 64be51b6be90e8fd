"""Run folders of formats 1 to 3, whose names a later version changed, load on under the present ones."""

import json
import shutil
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

import attent
from attent.attention.base import Normalizer
from attent.errors import RunError
from attent.runs.config import FORMAT, read_config, write_config
from attent.runs.old_formats import present_config, present_name, present_training
from attent.tasks.recipe import resume

FROZEN = Path(__file__).parents[1] / "frozen"


class Warm(Normalizer, nn.Module):
    """A normalizer with a parameter of its own, which only a caller's may have."""

    def __init__(self) -> None:
        super().__init__()
        self.factor = nn.Parameter(torch.tensor(1.0))

    def normalize(self, scores: Tensor) -> Tensor:
        return (scores * self.factor).softmax(-1)

    __call__ = Normalizer.__call__


@pytest.fixture
def old(tmp_path: Path) -> Path:
    return Path(shutil.copytree(FROZEN / "runs" / "pairs", tmp_path / "run"))


def change(run: Path, table: str, **values: object) -> None:
    content = json.loads((run / "config.json").read_text(encoding="utf-8"))
    content[table] |= values
    (run / "config.json").write_text(json.dumps(content), encoding="utf-8")


def test_a_config_is_read_by_its_former_keys_and_written_by_the_present_ones(old: Path) -> None:
    change(old, "model", normaliser="sparsemax")
    config = read_config(old)
    assert config.model.normalizer == "sparsemax"
    write_config(config, old)
    written = json.loads((old / "config.json").read_text(encoding="utf-8"))
    assert (written["format"], written["model"]["normalizer"]) == (FORMAT, "sparsemax")
    assert "normaliser" not in written["model"]
    assert read_config(old).model == config.model
    # the present format has no former keys
    change(old, "model", normaliser="hard")
    with pytest.raises(RunError, match=r"config\.json is damaged: .*normaliser"):
        read_config(old)


def test_tensorboard_is_a_log_and_what_is_damaged_is_passed_on() -> None:
    for training, expected in (
        ({"tensorboard": True}, {"log": "tensorboard"}),
        ({"tensorboard": True, "log": "wandb"}, {"log": "wandb"}),
        ({"tensorboard": False}, {}),
        ([], []),
    ):
        content = {"format": 3, "model": 3, "training": training}
        assert present_config(content) == content | {"training": expected}
    assert present_config({"model": {"normaliser": 3}}) == {"model": {"normalizer": 3}}


def test_a_part_from_the_former_folder_of_normalizers_is_found(old: Path) -> None:
    change(old, "model", normaliser="attent.attention.normalisers.sparsemax:Sparsemax")
    run = attent.load(old, trust_code=True)
    assert type(run.model.decoder.layers[0].cross_attention.normalizer).__name__ == "Sparsemax"


def test_names_of_tensors() -> None:
    former = "decoder.attention.normaliser.inner.weight/exp_avg"
    assert present_name(former) == "decoder.attention.normalizer.inner.weight/exp_avg"
    # a score's own
    assert present_name("decoder.attention.score.normaliser.weight") == "decoder.attention.score.normaliser.weight"


def test_the_parameters_of_a_normalizer_are_loaded(old: Path) -> None:
    change(old, "model", normaliser=f"{__name__}:Warm")
    weights = load_file(old / "model.safetensors")
    stacks = {"encoder": ("self_attention",), "decoder": ("self_attention", "cross_attention")}
    weights |= {
        f"{stack}.layers.0.{name}.normaliser.factor": torch.tensor(0.5)
        for stack, names in stacks.items()
        for name in names
    }
    save_file(weights, old / "model.safetensors")
    content = json.loads((old / "config.json").read_text(encoding="utf-8"))
    # a run may do without the digest of its weights
    del content["digests"]["model.safetensors"]
    (old / "config.json").write_text(json.dumps(content), encoding="utf-8")
    model = attent.load(old, trust_code=True).model
    assert model.decoder.layers[0].cross_attention.normalizer.factor.item() == 0.5


def test_a_training_goes_on_in_the_present_format(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(FROZEN)
    run = Path(shutil.copytree(FROZEN / "runs" / "unfinished", tmp_path / "run"))
    updates = int(max(path.name for path in (run / "checkpoints").iterdir())) + 2
    resume(run, {"updates": updates})
    config = read_config(run)
    assert (config.format, config.state, config.training["updates"]) == (FORMAT, "finished", updates)
    assert "tensorboard" not in config.training


@pytest.mark.parametrize("former", [{"log": "wandb"}, {"log": "mlflow"}, {"sharded": True}, {"sharded": False}])
def test_settings_that_are_no_longer_supported_are_left_out(former: dict[str, object]) -> None:
    content = {"format": FORMAT, "training": {"log": None, "seed": 3} | former}
    assert present_training(content)["training"] == {"log": None, "seed": 3}
    assert present_training({"training": 3}) == {"training": 3}
