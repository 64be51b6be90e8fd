"""A recipe: everything that decides a run, read strictly from TOML, and followed from corpus to run folder."""
