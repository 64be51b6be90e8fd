"""Experiments: comparisons of parts and benchmarks against peers, with their tables and figures."""
