"""Models compared after the same training: by source length, by score, by normalizer; and runs that exist."""
