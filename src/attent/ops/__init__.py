"""Tensor functions with fast versions, independent of scores, masks and models.

The compiled library is optional: it has a plain C interface over pointers, is called through ctypes and is built
without torch. Without it, plain PyTorch computes the same.
"""

import torch

from attent.requirements import check_version

# Every package that computes imports this one first.
check_version("torch", str(torch.__version__))
