"""The kernels at each width of registers, and on several numbers of threads."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

import pytest
import torch
from torch import Tensor

from attent.ops import native

LEVELS = [pytest.param(level, id=f"extension-{level}", marks=pytest.mark.needs_native) for level in (0, 1, 2)]


def use_level(level: int | None, monkeypatch: pytest.MonkeyPatch) -> None:
    if level is None:
        monkeypatch.setattr(native, "library", lambda: None)
    elif level > native.simd_level():
        pytest.skip("this processor has no such registers")
    else:
        monkeypatch.setattr(native, "simd_level", lambda: level)


@pytest.fixture(params=LEVELS)
def level(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    use_level(request.param, monkeypatch)


@pytest.fixture(params=[*LEVELS, pytest.param(None, id="eager")])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """The extension at each width of registers, and plain PyTorch."""
    use_level(request.param, monkeypatch)


@pytest.fixture
def assert_same_bits() -> Iterator[Callable[..., None]]:
    """A function that computes tensors with several numbers of threads, and compares them."""
    before = torch.get_num_threads()

    def check(compute: Callable[[], Iterable[Tensor]], numbers: tuple[int, ...] = (1, 2, 5)) -> None:
        results = []
        for number in numbers:
            torch.set_num_threads(number)
            results.append([tensor.clone() for tensor in compute()])
        for result in results[1:]:
            assert len(result) == len(results[0]) and all(map(torch.equal, results[0], result))

    yield check
    torch.set_num_threads(before)
