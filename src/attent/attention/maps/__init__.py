"""Maps of attention weights: values that are computed where they are looked at."""
