"""Training: settings, losses, the optimizer and its schedules, checkpoints, several processes, and the loop."""

from __future__ import annotations

from attent.requirements import check_extra

check_extra("models")
