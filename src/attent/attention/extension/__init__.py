"""The compiled extension: what a CPU does much sooner in C++. Without a compiler there is none, and plain PyTorch serves.

It is a plain C interface over pointers, reached through ctypes, so that it needs no torch to be built.
"""
