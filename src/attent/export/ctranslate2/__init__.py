"""CTranslate2: its own kernels and its own search, for the Transformers that it can express."""
