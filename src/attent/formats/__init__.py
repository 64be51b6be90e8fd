"""Export of models to other inference engines, and translation with those engines instead of attent's own."""

from __future__ import annotations

from attent.requirements import check_extra

check_extra("models")
