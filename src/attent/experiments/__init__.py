"""Experiments on this machine.

Models compared after the same training, and benchmarks beside plain PyTorch, with tables and figures.
"""
