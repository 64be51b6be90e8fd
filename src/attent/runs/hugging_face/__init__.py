"""Translators of Hugging Face's transformers as runs.

Marian, M2M100 and NLLB, from a folder of safetensors, JSON and SentencePiece. `folder` reads a folder's files, within
bounds and without running anything of it; `layout` says which of their ids and tensors is which of ours; `families`
reads Marian, and M2M100 with NLLB, and makes the run.
"""
