"""The run folder: everything that a trained model leaves behind, enough to use it without anything else."""

from __future__ import annotations

from attent.requirements import check_extra

check_extra("models")
