"""Captions: pictures put into words, with attention to the regions of the picture."""
