"""Word vectors in the formats of GloVe, word2vec and fastText, read and written."""

from attent.text.word_vectors.formats import write
from attent.text.word_vectors.reading import read
from attent.text.word_vectors.vectors import WordVectors

__all__ = ["WordVectors", "read", "write"]
