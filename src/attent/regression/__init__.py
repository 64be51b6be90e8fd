"""Kernel regression: the mean of what was seen nearby, which is attention with the data for its keys and values."""
