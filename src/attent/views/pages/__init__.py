"""Pages: a scene as a self-contained HTML file."""
