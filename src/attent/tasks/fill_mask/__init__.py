"""Masked language modelling: words that are guessed from those around them."""
