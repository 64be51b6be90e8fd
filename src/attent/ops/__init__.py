"""Tensor functions that have a fast version; they know no score, mask or model.

The compiled library is optional: a plain C interface over pointers, called through ctypes, built without torch. Without
it plain PyTorch computes the same.
"""

from __future__ import annotations

import torch

from attent.requirements import check_version

# All that computes imports this folder first.
check_version("torch", str(torch.__version__))
