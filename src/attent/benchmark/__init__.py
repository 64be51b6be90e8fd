"""The speed of a run on this machine, and the machine's row of the table by which attention chooses."""

from __future__ import annotations

from attent.requirements import check_extra

check_extra("models")
