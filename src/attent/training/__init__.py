"""Training: settings, losses, the optimizer and its schedules, checkpoints, several processes, and the loop."""
