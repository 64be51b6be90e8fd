"""Search, of any model: one loop for beams and samples, with constraints; and scores of what was written."""

from __future__ import annotations

from attent.requirements import check_extra

check_extra("models")
