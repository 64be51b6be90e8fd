"""Generated stories with questions whose supporting sentences are known."""

from attent.data.stories.corpus import Stories, Story, stories
from attent.data.stories.questions import KINDS
from attent.data.stories.settings import StoriesSettings

__all__ = ["KINDS", "Stories", "StoriesSettings", "Story", "stories"]
