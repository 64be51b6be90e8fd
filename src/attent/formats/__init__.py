"""A run's model in the form of other engines, and those engines in the place of our own."""
