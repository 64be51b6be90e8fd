"""Generated stories with questions whose supporting sentences are known."""

from attent.tasks.stories.corpus import Stories, Story, stories
from attent.tasks.stories.questions import KINDS
from attent.tasks.stories.settings import StoriesSettings

__all__ = ["KINDS", "Stories", "StoriesSettings", "Story", "stories"]
