"""Views: attention for the eye, from maps and labels alone."""
