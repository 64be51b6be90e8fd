"""Generated English sentences with their French translations and their trees."""
