"""Beam search and sampling with constraints, for any model, and scoring of given translations."""

from attent.requirements import check_extra

check_extra("models")
