from pathlib import Path

import pytest
import torch
from torch import nn

from attent.errors import RunError
from attent.runs.weights import fill, read_tensors, tensors_of, write_tensors


def tied() -> nn.Module:
    made = nn.Sequential(nn.Embedding(5, 3), nn.Linear(3, 5))
    made[1].weight = made[0].weight
    return made


def test_what_is_written_is_read(tmp_path: Path) -> None:
    one, two = tied(), tied()
    write_tensors(tensors_of(one), tmp_path / "a.safetensors")
    assert set(read_tensors(tmp_path / "a.safetensors")) == {"0.weight", "1.bias"}
    fill(tensors_of(two), tmp_path / "a.safetensors")
    assert all(torch.equal(value, two.state_dict()[name]) for name, value in one.state_dict().items())
    assert two[1].weight is two[0].weight


@pytest.mark.parametrize(
    ("tensors", "says"),
    [
        ({"0.weight": (5, 3)}, r"1\.bias is missing"),
        ({"0.weight": (5, 3), "1.bias": (5,), "2.bias": (2,)}, r"2\.bias has no place in the model"),
        ({"0.weight": (5, 2), "1.bias": (5,)}, r"0\.weight must be \(5, 3\), got \(5, 2\)"),
    ],
)
def test_nothing_is_filled_unless_all_of_it_fits(tmp_path: Path, tensors: dict[str, tuple[int, ...]], says: str) -> None:
    write_tensors({name: torch.zeros(shape) for name, shape in tensors.items()}, tmp_path / "a.safetensors")
    made = tied()
    before = {name: value.clone() for name, value in made.state_dict().items()}
    with pytest.raises(RunError, match=rf"a\.safetensors is damaged: {says}$"):
        fill(tensors_of(made), tmp_path / "a.safetensors")
    assert all(torch.equal(value, before[name]) for name, value in made.state_dict().items())


def test_no_tensors_are_a_file_too(tmp_path: Path) -> None:
    write_tensors({}, tmp_path / "a.safetensors")
    assert read_tensors(tmp_path / "a.safetensors") == {}


def test_a_file_that_is_none(tmp_path: Path) -> None:
    (tmp_path / "a.safetensors").write_bytes(b"nothing")
    for name in ("a.safetensors", "b.safetensors"):
        with pytest.raises(RunError, match=f"{name} is missing or damaged"):
            read_tensors(tmp_path / name)
