"""Masked language modeling: words are predicted from the words around them."""
