from __future__ import annotations

import ctypes
import shutil
import subprocess
from importlib.machinery import ModuleSpec
from pathlib import Path

import pytest
import torch

from attent.ops import native, sources


def test_where_it_was_not_compiled_there_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(native, "find_spec", lambda name: None)
    assert native.library.__wrapped__() is None


@pytest.mark.parametrize("content", [b"", b"no library at all"])
def test_a_damaged_one_is_a_warning(content: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "it.so").write_bytes(content)
    monkeypatch.setattr(native, "find_spec", lambda name: ModuleSpec(name, None, origin=str(tmp_path / "it.so")))
    with pytest.warns(UserWarning, match=r"^the compiled library does not load here, and plain PyTorch is .*it\.so"):
        assert native.library.__wrapped__() is None


@pytest.mark.needs_native
@pytest.mark.parametrize("change", ["sources", "function"])
def test_one_of_other_sources_is_not_called(change: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Other arguments than it expects would end the process, so its functions are not even looked up."""
    content = Path(native.library()._name).read_bytes()
    before, after = (sources.digest(), "0" * 64) if change == "sources" else ("attent_sources", "attent_sourceX")
    assert before.encode() in content
    (tmp_path / "it.so").write_bytes(content.replace(before.encode(), after.encode()))
    monkeypatch.setattr(native, "find_spec", lambda name: ModuleSpec(name, None, origin=str(tmp_path / "it.so")))
    monkeypatch.setattr(native, "SIGNATURES", {"attent_from_the_future": []})
    with pytest.warns(
        UserWarning, match=r"not used: .*from sources that differ .*compile it again: pip install --edit"
    ):
        assert native.library.__wrapped__() is None


def test_without_one_there_are_no_registers_to_ask_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(native, "library", lambda: None)
    assert native.simd_level.__wrapped__() == 0


@pytest.mark.needs_native
def test_registers_are_those_that_torch_sees() -> None:
    assert native.simd_level() == {"AVX512": 2, "AVX2": 1}.get(torch.backends.cpu.get_cpu_capability(), 0)


def test_a_torch_without_the_entry_leaves_threads_to_the_extension(monkeypatch: pytest.MonkeyPatch) -> None:
    def none(path: str) -> ctypes.CDLL:
        raise OSError(path)

    monkeypatch.setattr(ctypes, "CDLL", none)
    assert native.gomp_parallel.__wrapped__() is None


@pytest.mark.needs_native
def test_no_memory_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    class Full:
        @staticmethod
        def attent_dropout_mask(*arguments: object) -> int:
            return 1

    monkeypatch.setattr(native, "library", Full)
    with pytest.raises(MemoryError, match="no memory left"):
        native.run("attent_dropout_mask", (torch.zeros(1),), 1)


@pytest.mark.slow
def test_the_library_computes_the_same_for_arm() -> None:
    if not (shutil.which("aarch64-linux-gnu-g++") and shutil.which("qemu-aarch64-static")):
        pytest.skip("needs g++-aarch64-linux-gnu and qemu-user-static")
    script = Path(__file__).parents[2] / "scripts" / "arm"
    process = subprocess.run([script, "aarch64"], capture_output=True, text=True, check=False)
    assert process.returncode == 0, process.stdout + process.stderr
    assert process.stdout.endswith("\n0 wrong\n")
