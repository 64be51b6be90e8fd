"""Building blocks of models besides attention: feed-forward, embeddings, recurrent layers, residual connections."""
