"""Devices by name, on machines that have them and on machines that do not."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from attent import devices as module
from attent.devices import AUTO, check_name, described, device_of, devices
from attent.errors import DeviceError, UnknownNameError

Machine = Callable[..., None]


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Machine:
    """Makes this machine have so many GPUs, or a Mac's."""

    def have(gpus: int = 0, *, mps: bool = False, cuda: bool = True) -> None:
        monkeypatch.setattr(module, "devices", devices)
        monkeypatch.setattr(torch.cuda, "is_available", lambda: gpus > 0)
        monkeypatch.setattr(torch.cuda, "device_count", lambda: gpus)
        monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)
        monkeypatch.setattr(torch.cuda, "get_device_name", lambda number: f"Example {number}")
        monkeypatch.setattr(torch.backends.cuda, "is_built", lambda: cuda)
        monkeypatch.setattr(torch.backends.mps, "is_available", lambda: mps)

    return have


def test_auto_is_a_gpu_where_there_is_one(machine: Machine) -> None:
    machine()
    assert device_of() == device_of(AUTO) == torch.device("cpu")
    machine(2)
    assert device_of() == torch.device("cuda")
    machine(mps=True)
    assert device_of() == torch.device("cpu")


def test_a_name_is_the_device_of_that_name_and_a_device_is_taken_as_it_is(machine: Machine) -> None:
    machine()
    assert device_of(torch.device("meta")) == torch.device("meta")
    machine(2, mps=True)
    for name in ("cpu", "cuda", "cuda:0", "cuda:1", "mps"):
        assert device_of(name) == torch.device(name)
    assert devices() == ["cpu", "cuda:0", "cuda:1", "mps"]


def test_an_unknown_name_is_refused_with_those_that_are_known(machine: Machine) -> None:
    machine(1)
    for name in ("gpu", "cuda:", "cuda:one", "cpu:0", "CUDA", "", "auto:1", "mps:1", "cuda:-1", "meta"):
        for use in (device_of, check_name):
            with pytest.raises(UnknownNameError, match=r"unknown device .*known: auto, cpu, cuda, cuda:0, mps"):
                use(name)


def test_a_device_that_is_not_there_is_refused_with_those_that_are(machine: Machine) -> None:
    machine(2)
    with pytest.raises(DeviceError, match=r"^this machine has no device 'cuda:2'; available: cpu, cuda:0, cuda:1$"):
        device_of("cuda:2")
    machine()
    for name in ("cuda", "cuda:0", "mps"):
        with pytest.raises(DeviceError, match=rf"^this machine has no device '{name}'; available: cpu$"):
            device_of(name)
    machine(cuda=False)
    with pytest.raises(DeviceError, match=r"available: cpu; this PyTorch is built without CUDA$"):
        device_of("cuda")


def test_a_gpu_is_described_by_its_number_and_what_it_is_sold_as(machine: Machine) -> None:
    machine(2)
    assert described(torch.device("cpu")) == "cpu"
    assert described(torch.device("cuda")) == "cuda:0 (Example 0)"
    assert described(torch.device("cuda", 1)) == "cuda:1 (Example 1)"


@pytest.mark.skipif(not module.system.IS_LINUX, reason="reads /proc")
def test_resident_memory_counts_what_is_touched() -> None:
    before = module.resident_memory()
    content = bytearray(b"x" * (64 * 2**20))
    grown = module.resident_memory() - before
    assert len(content) <= grown * 1.1 and grown < 3 * len(content)
