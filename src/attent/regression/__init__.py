"""Kernel regression: the weighted mean of nearby values, which is attention whose keys and values are the data."""
