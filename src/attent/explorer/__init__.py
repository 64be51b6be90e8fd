"""`attent explore`: a server of this machine for pages of attention."""

from __future__ import annotations

from attent.requirements import check_extra

check_extra("explore")
