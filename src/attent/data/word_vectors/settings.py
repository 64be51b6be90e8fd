"""The settings of embeddings that start from word vectors, `[vectors]` in TOML."""

from __future__ import annotations

from pydantic import BaseModel, Field, model_validator

from attent.data.settings import File
from attent.errors import ArgumentError


class VectorsSettings(BaseModel, extra="forbid", frozen=True):
    """Which embeddings start from which files, each of a format that `attent.data.word_vectors.read` knows."""

    source: File | None = Field(None, description="word vectors that the source's embedding starts from")
    target: File | None = Field(None, description="word vectors that the target's embedding starts from")
    text: File | None = Field(None, description="word vectors that the embedding of plain text starts from")
    frozen: bool = Field(False, description="whether these embeddings stay as they start, words without a vector included")

    @model_validator(mode="after")
    def _frozen_needs_vectors(self) -> VectorsSettings:
        if self.frozen and not self.files:
            raise ArgumentError("frozen needs word vectors: give source, target or text")
        return self

    @property
    def files(self) -> dict[str, str]:
        """The files that are given, by the name of the tokenizer whose words have vectors in them."""
        return {side: file for side in ("source", "target", "text") if (file := getattr(self, side)) is not None}
