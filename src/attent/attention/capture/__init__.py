"""Capture of the attention that a model computes, without changing the model."""
