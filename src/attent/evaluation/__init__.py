"""How good translations and alignments are."""
