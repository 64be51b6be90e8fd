"""Text and what becomes of it: readers, stores, tokenizers, batches."""

from __future__ import annotations

from attent.requirements import check_extra

check_extra("models")
