"""Text processing: readers, storage on disk, tokenizers and batches."""

from __future__ import annotations

from attent.requirements import check_extra

check_extra("models")
