"""Generated stories with questions and known supporting sentences."""

from story_corpus.corpus import Stories, StoriesSettings, Story, stories
from story_corpus.world import KINDS

__all__ = ["KINDS", "Stories", "StoriesSettings", "Story", "stories"]
