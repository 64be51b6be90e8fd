"""Attention without a model: look-up in a database, and kernel regression."""
