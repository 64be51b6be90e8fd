"""Alignments from attention: forced decoding, links, symmetrization, error rates; and the ablation of heads."""
