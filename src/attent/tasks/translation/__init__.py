"""Translation: corpora, search with a glossary, word alignment and scores."""
