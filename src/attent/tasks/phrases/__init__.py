"""Generated English sentences with their French translations and their trees."""

from attent.tasks.phrases.corpus import conllu, phrases, write_phrases
from attent.tasks.phrases.grammar import NOUNS, VERBS, ParsedSentence, is_held_out

__all__ = ["NOUNS", "VERBS", "ParsedSentence", "conllu", "is_held_out", "phrases", "write_phrases"]
