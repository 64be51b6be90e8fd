"""Training: settings, schedules of the learning rate, the loss, and the loop."""
