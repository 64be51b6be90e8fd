"""Training: settings, losses, the optimizer and its schedules, checkpoints, several processes, and the loop."""

from attent.requirements import check_extra

check_extra("models")
