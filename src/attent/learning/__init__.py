"""Exercises that check themselves: a file each in exercises/, judged by the parts of attention and by search.

`check` judges a function of a notebook; `attent learn` the files of a folder.
"""

from __future__ import annotations

from attent.requirements import check_extra

check_extra("models")

from attent.learning.judge import check  # noqa: E402 - it imports what an extra installs

__all__ = ["check"]
