"""Translation: its corpora, its search with a glossary, its links and its scores."""
