"""Evaluation of translations, alignments, masked language models and classifiers."""
