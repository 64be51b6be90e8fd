from pathlib import Path

import torch
from safetensors import safe_open
from safetensors.torch import save_file
from torch import nn

from attent.ops.mapped import adopt, give_back, is_mapped


def test_a_model_without_memory_adopts_tensors_wherever_they_stand() -> None:
    with torch.device("meta"):
        model = nn.Sequential(nn.Embedding(5, 3), nn.Linear(3, 5), nn.BatchNorm1d(5))
        model[1].weight = model[0].weight
        model[2].weight.requires_grad_(False)
    tensors = {
        tensor: torch.randn(tensor.shape).to(tensor.dtype) for tensor in model.state_dict(keep_vars=True).values()
    }
    adopt(model, tensors)
    assert all(tensor.device.type == "cpu" for tensor in model.state_dict().values())
    assert model[1].weight is model[0].weight
    assert is_mapped(model[0].weight)
    assert isinstance(model[0].weight, nn.Parameter)
    assert [parameter.requires_grad for parameter in model.parameters()] == [True, True, False, True]


def test_what_is_given_back_is_read_again_changed_or_not(tmp_path: Path) -> None:
    save_file({"a": torch.arange(300_000.0)}, tmp_path / "a.safetensors")
    with safe_open(tmp_path / "a.safetensors", framework="pt") as file:
        numbers = file.get_tensor("a")
    numbers[7] = -1
    give_back(numbers)
    give_back(numbers[:0])
    expected = torch.arange(300_000.0)
    expected[7] = -1
    assert torch.equal(numbers, expected)
    assert not is_mapped(numbers)
