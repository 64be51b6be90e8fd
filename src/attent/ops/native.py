"""Access to the compiled library, which is optional, and calls of its functions."""

from __future__ import annotations

import ctypes
import warnings
from array import array
from functools import cache
from importlib.util import find_spec
from pathlib import Path

import torch
from torch import Tensor

from attent.ops import sources

NAME = "attent.ops._compiled"
POINTER, INTEGER, WORD, NUMBER = ctypes.c_void_p, ctypes.c_int64, ctypes.c_uint32, ctypes.c_float
# Numbers of arguments of each function before the threads: tensors, sizes, other numbers.
SIGNATURES = {
    "attent_tanh_score": [POINTER] * 4 + [INTEGER] * 5,
    "attent_tanh_score_gradients": [POINTER] * 7 + [INTEGER] * 6,
    "attent_dropout_mask": [POINTER] * 3 + [INTEGER] * 2 + [WORD],
    "attent_add_layer_norm": [POINTER] * 7 + [INTEGER] * 4 + [WORD] * 2 + [NUMBER] * 2,
    "attent_add_layer_norm_gradients": [POINTER] * 9 + [INTEGER] * 4 + [WORD] * 2 + [NUMBER],
    "attent_packed_gemm": [POINTER] * 3 + [INTEGER] * 4,
    "attent_transformer_encoder": [POINTER] * 8 + [INTEGER] * 11 + [NUMBER] * 3,
    "attent_transformer_step": [POINTER] * 12 + [INTEGER] * 17 + [NUMBER] * 3,
    "attent_beam_topk": [POINTER] * 4 + [INTEGER] * 8,
    "attent_log_softmax": [POINTER] + [INTEGER] * 2,
    "attent_log_mean_softmax": [POINTER] + [INTEGER] * 3,
    "attent_transformer_search": [POINTER] * 10 + [INTEGER] * 12,
    "attent_dropout": [POINTER] * 4 + [INTEGER] * 2 + [WORD, NUMBER],
    "attent_dense_attention_context": [POINTER] * 10 + [WORD] * 2 + [NUMBER] * 3,
    "attent_dense_attention_gradients": [POINTER] * 16 + [WORD] * 2 + [NUMBER] * 3,
    "attent_linear_cross_entropy": [POINTER] * 5 + [INTEGER] * 4 + [NUMBER],
    "attent_linear_cross_entropy_amx": [POINTER] * 8 + [INTEGER] * 4 + [NUMBER] * 2,
    "attent_linear": [POINTER] * 10 + [INTEGER] * 6,
    "attent_linear_input_gradients": [POINTER] * 8 + [INTEGER] * 5,
    "attent_linear_weight_gradients": [POINTER] * 4 + [INTEGER] * 3,
    "attent_rnn_cell": [POINTER] * 12 + [INTEGER] * 8,
    "attent_rnn_cell_gradients": [POINTER] * 11 + [INTEGER] * 10,
    "attent_rnn_attention_keys": [POINTER] * 3 + [INTEGER] * 4,
    "attent_rnn_attention_keys_gradients": [POINTER] * 8 + [INTEGER] * 5,
    "attent_rnn_attention": [POINTER] * 11 + [INTEGER] * 8,
    "attent_rnn_attention_gradients": [POINTER] * 13 + [INTEGER] * 9,
}


class StaleLibraryError(OSError):
    """The library was compiled from different C++ sources than those installed; calling it could crash the process."""


@cache
def library() -> ctypes.CDLL | None:
    """Return the library, or None if it was not compiled or cannot be loaded.

    A warning is issued, once per process, if it was compiled from different sources or does not load.
    """
    file = library_file()
    if file is None:
        return None
    try:
        return load(file)
    except StaleLibraryError as error:
        checkout = Path(__file__).parents[3]
        warnings.warn(
            f"the compiled library is not used: {error}; compile it again: pip install --editable {checkout}",
            stacklevel=2,
        )
    except OSError as error:
        # Compiled for another system or processor, or damaged.
        warnings.warn(
            f"the compiled library does not load here, and plain PyTorch is used instead, more slowly: {error}",
            stacklevel=2,
        )
    return None


def library_file() -> str | None:
    """Return the path of the library, or None if it was not compiled."""
    spec = find_spec(NAME)
    return None if spec is None else spec.origin


def load(file: str) -> ctypes.CDLL:
    """Load the library.

    Raises:
        OSError: it cannot be loaded.
        StaleLibraryError: it was compiled from different sources.
    """
    loaded = ctypes.CDLL(file)
    if _sources(loaded) != sources.digest():
        raise StaleLibraryError(f"it was compiled from sources that differ from those in {sources.FOLDER}")
    for name, arguments in SIGNATURES.items():
        getattr(loaded, name).argtypes = [*arguments, INTEGER, POINTER, ctypes.c_int]
    return loaded


def _sources(loaded: ctypes.CDLL) -> str | None:
    try:
        function = loaded.attent_sources
    except AttributeError:
        return None
    function.restype = ctypes.c_char_p
    return function().decode()


@cache
def simd_level() -> int:
    """Return the SIMD level of this processor: 2 for AVX-512, 1 for AVX2, 0 for anything else."""
    loaded = library()
    return 0 if loaded is None else loaded.attent_simd_level()


@cache
def has_amx() -> bool:
    """Return whether the processor multiplies bfloat16 tiles (AMX) and the library was compiled to use them."""
    loaded = library()
    return loaded is not None and simd_level() == 2 and bool(loaded.attent_has_amx())


@cache
def int8_kernels() -> tuple[int, ...]:
    """Return the kernels for 8-bit products that this processor supports.

    They are 0 for plain loops, 1 for AVX2, 2 for AVX-VNNI, 3 for AVX-512 VNNI and 4 for AMX.
    """
    loaded = library()
    return tuple(kernel for kernel in range(5) if loaded is not None and loaded.attent_int8_kernels() >> kernel & 1)


def int8_kernel() -> int:
    """Return the kernel used for 8-bit products, which is the fastest one; all give the same numbers."""
    return int8_kernels()[-1]


@cache
def gomp_parallel() -> int | None:
    """Return the address of GOMP_parallel, which runs a function on all threads of torch's OpenMP runtime.

    None if it is not available.
    """
    for name in ("libtorch_cpu.so", "libtorch_cpu.dylib"):
        path = Path(torch.__file__).with_name("lib") / name
        try:
            return ctypes.cast(ctypes.CDLL(str(path)).GOMP_parallel, POINTER).value
        except (OSError, AttributeError):
            continue
    return None


def _address(numbers: Tensor | array[int] | None) -> int | None:
    if isinstance(numbers, Tensor):
        return numbers.data_ptr()
    return None if numbers is None else numbers.buffer_info()[0]


def run(name: str, tensors: tuple[Tensor | array[int] | None, ...], *numbers: float) -> None:
    """Call a function of the library, which must be available, on as many threads as torch uses.

    Args:
        name: the name of the function.
        tensors: contiguous tensors on the CPU, or arrays of 64-bit integers; None for optional ones that are left out.
        numbers: the sizes, then the other numbers.

    Raises:
        MemoryError: the library ran out of memory.
    """
    pointers = [_address(tensor) for tensor in tensors]
    if getattr(library(), name)(*pointers, *numbers, torch.get_num_threads(), gomp_parallel(), simd_level()):
        raise MemoryError("no memory left for the extension's threads")
