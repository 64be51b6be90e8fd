"""Classification of pictures, of sequences of vectors and of texts."""
