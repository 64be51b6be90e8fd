"""Text and its way into tensors: pairs and corpora, tokenizers, batches."""
