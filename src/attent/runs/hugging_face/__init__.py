"""Translators of Hugging Face's transformers as runs.

Marian, M2M100 and NLLB, from a folder of safetensors, JSON and SentencePiece. `folder` reads a folder's files, within
bounds and without running anything of it; `vocabulary` gives their ids ours; `layout` says which of their tensors is
which of ours; `families` read Marian, and M2M100 with NLLB; `importing` makes the run.
"""
