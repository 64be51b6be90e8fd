"""Exercises that check themselves: a file each in exercises/, judged by the parts of attention and by search.

`check` judges a function of a notebook; `attent learn` the files of a folder.
"""

from attent.requirements import check_extra

check_extra("models")

from attent.learning.exercise import exercise  # noqa: E402 - after the check of what they import
from attent.learning.judge import check  # noqa: E402

__all__ = ["check", "exercise"]
