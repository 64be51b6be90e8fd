"""Building blocks of models other than attention: feed-forward, embeddings, recurrent layers, residual connections."""
