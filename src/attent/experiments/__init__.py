"""Experiments on this machine: models compared after the same training, and benchmarks beside plain PyTorch, with tables and figures."""
