"""Capture of the attention that a model computes, the model unchanged."""
