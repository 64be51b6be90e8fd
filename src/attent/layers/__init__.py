"""What models are built of besides attention: feed-forward, embeddings, residual connections."""
