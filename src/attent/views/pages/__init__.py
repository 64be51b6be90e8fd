"""Pages: a scene as one HTML file that needs nothing else."""
