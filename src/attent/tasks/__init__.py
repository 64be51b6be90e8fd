"""Tasks, and recipes: strictly validated TOML settings that define a run, from corpus to run folder."""

from attent.requirements import check_extra

check_extra("models")
