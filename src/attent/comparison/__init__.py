"""Models compared after the same training: by source length, by score, by normalizer; and runs that exist."""

from __future__ import annotations

from attent.requirements import check_extra

check_extra("models")
