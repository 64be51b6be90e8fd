"""Decoding with trained models: translation by search, step by step or by sampling; masked words; classes.

Scores of given pairs.
"""
