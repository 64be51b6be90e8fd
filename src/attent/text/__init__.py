"""Text processing: readers, storage on disk, tokenizers and batches."""

from attent.requirements import check_extra

check_extra("models")
