"""Settings of corpora: their files, their tokenizers, and word vectors for their embeddings."""

from __future__ import annotations

import re
from typing import Annotated, Any, ClassVar, Literal, Self, TypeVar

from pydantic import AfterValidator, BaseModel, Field, SerializerFunctionWrapHandler, model_serializer, model_validator

from attent.errors import ArgumentError
from attent.setting import Help
from attent.text.readers import STANDARD_INPUT

TokenizerKind = Literal["char", "word", "bpe", "unigram"]
Size = Literal["auto"] | int
# An empty name would be that of the working directory.
File = Annotated[str, Field(min_length=1)]
LANGUAGE = re.compile(r"[A-Za-z]{2,3}([-_][A-Za-z0-9]{2,8})*")
FILES = ("train", "train_source", "train_target", "valid", "valid_source", "valid_target", "replay")


def check_language(language: str) -> str:
    """Return a language's code.

    Raises:
        ArgumentError: it is none, such as a language's name.
    """
    if not LANGUAGE.fullmatch(language):
        raise ArgumentError(f"a language must be a code such as en, zh or pt-BR, got {language!r}")
    return language


Language = Annotated[str, AfterValidator(check_language), Help(metavar="CODE")]


class FilesSettings(BaseModel, extra="forbid", frozen=True):
    """Settings of a corpus in files of text.

    Attributes:
        file_keys: the names of settings that name files.
    """

    file_keys: ClassVar[tuple[str, ...]] = (*FILES, "test")

    @model_validator(mode="after")
    def _standard_input_once(self) -> Self:
        if [getattr(self, name, None) for name in self.file_keys].count(STANDARD_INPUT) > 1:
            raise ArgumentError("standard input (-) can be read once only")
        return self


class LinesSettings(FilesSettings, frozen=True):
    """Settings of lines for language models, masked or not.

    A file may be gzipped (.gz), and one may be standard input (-).
    """

    train: File = Field(description="text to train on, for fill-mask or text-generation; also .gz, or -")
    valid: File | None = Field(
        None, description="lines to validate on; without any, 5 % of the lines, at most 1,000, are split off"
    )
    tokenizer: TokenizerKind = Field(
        "word", description="what lines are cut into: char, word, bpe or unigram; bpe for text generation unless given"
    )
    vocabulary: Size = Field("auto", description='ids of the tokenizer, or "auto": by the size of the text')
    blanks: float = Field(
        0.15, gt=0.0, lt=1.0, description="the share of each line that is to be guessed, at least one token"
    )
    maximum_length: int = Field(
        256, ge=1, description="tokens: longer lines are neither trained nor validated on; or of a window of text"
    )
    packing: Literal["lines", "text"] = Field(
        "lines",
        description="for text generation: each line by itself, or all lines as running text, cut into windows of "
        "maximum_length",
    )
    seed: int = Field(0, ge=0, description="of the split into training and validation")

    @model_serializer(mode="wrap")
    def _without_packing(self, serialize: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Leave packing out where lines are by themselves: the settings are then those of earlier versions."""
        return {name: value for name, value in serialize(self).items() if (name, value) != ("packing", "lines")}

    @property
    def size(self) -> int | None:
        """The number of the tokenizer's ids, unless that is automatic."""
        return None if self.vocabulary == "auto" else self.vocabulary


class TextSettings(FilesSettings, frozen=True):
    """Settings of a corpus of pairs; each file may be gzipped (.gz), and one may be standard input (-)."""

    train: File | None = Field(
        None,
        description="pairs to train on: a .tsv, or a .jsonl with source and target; also .gz, or -",
    )
    train_source: File | None = Field(None, description="instead of train: the sources, one a line")
    train_target: File | None = Field(None, description="instead of train: the targets, line by line")
    valid: File | None = Field(
        None, description="pairs to validate on; without any, 5 % of the pairs, at most 1,000, are split off"
    )
    valid_source: File | None = Field(None, description="instead of valid: the sources, one a line")
    valid_target: File | None = Field(None, description="instead of valid: the targets, line by line")
    replay: File | None = Field(None, description="pairs from the original domain, mixed in to prevent forgetting")
    replay_share: float = Field(
        0.5, gt=0.0, lt=1.0, description="the share of the replayed pairs among all; the fewer are repeated"
    )
    tokenizer: TokenizerKind = Field("bpe", description="what both sides are cut into: char, word, bpe or unigram")
    source_tokenizer: TokenizerKind | None = Field(None, description="what the source is cut into, where it differs")
    target_tokenizer: TokenizerKind | None = Field(None, description="what the target is cut into, where it differs")
    shared: bool = Field(False, description="whether both sides have one tokenizer, learnt from both")
    vocabulary: Size = Field("auto", description='ids of each tokenizer, or "auto": by the size of the text')
    source_vocabulary: Size | None = Field(None, description="ids of the source's tokenizer, where they differ")
    target_vocabulary: Size | None = Field(None, description="ids of the target's tokenizer, where they differ")
    dropout: float = Field(
        0.0, ge=0.0, le=1.0, description="of pieces, with which earlier versions trained; 0 for a new training"
    )
    maximum_length: int = Field(
        256, ge=1, description="tokens: pairs that are longer on either side are neither trained nor validated on"
    )
    source_language: Language | None = Field(None, description="the source's language, a code such as en or zh")
    target_language: Language | None = Field(None, description="the target's language")
    seed: int = Field(0, ge=0, description="of the split into training and validation")

    @model_serializer(mode="wrap")
    def _without_unnamed(self, serialize: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Leave out languages and pairs to replay that are not named.

        The settings are then those of earlier versions.
        """
        values = serialize(self)
        unnamed = {name for name in ("source_language", "target_language", "replay") if values.get(name) is None}
        if "replay" in unnamed:
            unnamed.add("replay_share")
        return {name: value for name, value in values.items() if name not in unnamed}

    @model_validator(mode="after")
    def _files_are_one_or_two(self) -> TextSettings:
        for name, pairs, source, target in (
            ("train", self.train, self.train_source, self.train_target),
            ("valid", self.valid, self.valid_source, self.valid_target),
        ):
            if (source is None) != (target is None) or (pairs is not None and source is not None):
                raise ArgumentError(
                    f"{name} takes one file of pairs ({name}), or two files ({name}_source and {name}_target)"
                )
        if self.train is None and self.train_source is None:
            raise ArgumentError("there is nothing to train on: give train, or train_source and train_target")
        return self

    @model_validator(mode="after")
    def _shared_means_one(self) -> TextSettings:
        by_side = (self.source_tokenizer, self.target_tokenizer, self.source_vocabulary, self.target_vocabulary)
        if self.shared and any(value is not None for value in by_side):
            raise ArgumentError("a shared tokenizer is set by tokenizer and vocabulary alone, not by side")
        return self

    def tokenizer_of(self, side: Literal["source", "target"]) -> tuple[TokenizerKind, int | None]:
        """Return the kind of a side's tokenizer, and the number of its ids unless that is automatic."""
        kind, size = (
            (self.source_tokenizer, self.source_vocabulary)
            if side == "source"
            else (self.target_tokenizer, self.target_vocabulary)
        )
        size = size or self.vocabulary
        return kind or self.tokenizer, None if size == "auto" else size


AnySettings = TypeVar("AnySettings", LinesSettings, TextSettings)


class VectorsSettings(BaseModel, extra="forbid", frozen=True):
    """Settings of embeddings that start from word vectors, `[vectors]` in TOML.

    A file for each, see `attent.text.word_vectors.read`.
    """

    source: File | None = Field(None, description="word vectors that initialize the source embedding")
    target: File | None = Field(None, description="word vectors that initialize the target embedding")
    text: File | None = Field(None, description="word vectors that initialize the embedding of plain text")
    frozen: bool = Field(False, description="keep these embeddings as initialized, also of words without a vector")

    @model_validator(mode="after")
    def _frozen_needs_vectors(self) -> VectorsSettings:
        if self.frozen and not self.files:
            raise ArgumentError("frozen needs word vectors: give source, target or text")
        return self

    @property
    def files(self) -> dict[str, str]:
        """The files, by the name of the tokenizer of their words."""
        return {side: file for side in ("source", "target", "text") if (file := getattr(self, side)) is not None}


def limit_length(settings: AnySettings, longest: int | None, reserved: int = 0) -> AnySettings:
    """Lower the maximum length of texts to what a model can read.

    Args:
        settings: of lines or of pairs.
        longest: the most tokens that the model can read; no limit if None.
        reserved: how many of these are not of the text, as BOS.
    """
    limit = settings.maximum_length if longest is None else min(settings.maximum_length, longest - reserved)
    return settings.model_copy(update={"maximum_length": limit})
