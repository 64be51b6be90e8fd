"""Results of measurements as tables."""

from __future__ import annotations

from attent.requirements import check_extra

check_extra("models")
