"""Generated stories with questions and known supporting sentences."""

from attent.tasks.stories.corpus import Stories, StoriesSettings, Story, stories
from attent.tasks.stories.world import KINDS

__all__ = ["KINDS", "Stories", "StoriesSettings", "Story", "stories"]
