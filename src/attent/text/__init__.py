"""Text and what becomes of it: readers, stores, tokenizers, batches."""
