"""Memory that is given back: how the C library keeps what training frees."""

from __future__ import annotations

import ctypes

# As <malloc.h> names them, and bytes.
M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3
LARGE, SPARE = 4 * 2**20, 64 * 2**20


def limit_heap() -> bool:
    """Have glibc map each large tensor by itself, so that batches of many shapes do not break the heap into pieces.

    Left alone it raises the size from which it does so to that of the largest tensor freed: measured on a model of 31 million
    parameters, 12 updates then hold 2.0 GiB in the place of 1.1.

    Returns:
        Whether the C library took it; others than glibc are left as they are.
    """
    try:
        library = ctypes.CDLL(None)
        # what reading and encoding the corpus has left behind
        library.malloc_trim(0)
        return bool(library.mallopt(M_MMAP_THRESHOLD, LARGE) and library.mallopt(M_TRIM_THRESHOLD, SPARE))
    except (AttributeError, OSError, TypeError):
        return False
