"""Export of models to other inference engines."""

from attent.requirements import check_extra

check_extra("models")
