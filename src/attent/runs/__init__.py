"""Run folders: everything that training leaves behind, sufficient to use the model."""

from attent.requirements import check_extra

check_extra("models")
