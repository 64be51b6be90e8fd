"""Maps of attention weights, computed only where they are read."""
