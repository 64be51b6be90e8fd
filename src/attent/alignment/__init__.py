"""Alignments from attention: forced decoding, links, symmetrization, error rates; and the ablation of heads."""

from attent.requirements import check_extra

check_extra("models")
