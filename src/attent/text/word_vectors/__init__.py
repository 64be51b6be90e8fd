"""Word vectors in the formats of GloVe, word2vec and fastText, read and written."""

from attent.text.word_vectors.reading import read
from attent.text.word_vectors.vectors import WordVectors
from attent.text.word_vectors.writing import write

__all__ = ["WordVectors", "read", "write"]
