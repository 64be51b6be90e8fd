"""Tensor functions that have a fast version; they know no score, mask or model.

The compiled library is optional: a plain C interface over pointers, called through ctypes, built without torch. Without it plain
PyTorch computes the same.
"""
