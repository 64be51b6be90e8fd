"""Generated stories with questions whose supporting sentences are known."""

from attent.tasks.stories.corpus import Stories, StoriesSettings, Story, stories
from attent.tasks.stories.world import KINDS

__all__ = ["KINDS", "Stories", "StoriesSettings", "Story", "stories"]
