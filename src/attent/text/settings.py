"""Settings of corpora: files, tokenizers, and word vectors that initialize embeddings."""

from __future__ import annotations

import re
from typing import Annotated, Any, ClassVar, Literal, Self, TypeVar

from pydantic import AfterValidator, BaseModel, Field, SerializerFunctionWrapHandler, model_serializer, model_validator

from attent.errors import ArgumentError
from attent.setting import Help
from attent.text.readers import STANDARD_INPUT

TokenizerKind = Literal["char", "word", "bpe", "unigram"]
Size = Literal["auto"] | int
# An empty name would mean the working directory.
File = Annotated[str, Field(min_length=1)]
LANGUAGE = re.compile(r"[A-Za-z]{2,3}([-_][A-Za-z0-9]{2,8})*")
FILES = ("train", "train_source", "train_target", "valid", "valid_source", "valid_target", "replay")


def check_language(language: str) -> str:
    """Return a language code if it is valid.

    Raises:
        ArgumentError: it is not a code but, for example, the name of a language.
    """
    if not LANGUAGE.fullmatch(language):
        raise ArgumentError(f"a language must be a code such as en, zh or pt-BR, got {language!r}")
    return language


Language = Annotated[str, AfterValidator(check_language), Help(metavar="CODE")]


class FilesSettings(BaseModel, extra="forbid", frozen=True):
    """Settings of a corpus in text files.

    Attributes:
        file_keys: the settings that name files.
    """

    file_keys: ClassVar[tuple[str, ...]] = (*FILES, "test")

    @model_validator(mode="after")
    def _standard_input_once(self) -> Self:
        if [getattr(self, name, None) for name in self.file_keys].count(STANDARD_INPUT) > 1:
            raise ArgumentError("standard input (-) can be read only once")
        return self


class LinesSettings(FilesSettings, frozen=True):
    """Settings of a corpus of lines for masked or causal language models.

    A file may be gzipped (.gz), and one may be standard input (-).
    """

    train: File = Field(description="training text for fill-mask or text-generation; may be .gz, or - for stdin")
    valid: File | None = Field(
        None, description="validation lines; by default 5 % of the training lines, at most 1,000, are split off"
    )
    tokenizer: TokenizerKind = Field(
        "word", description="tokenizer: char, word, bpe or unigram; the default for text generation is bpe"
    )
    vocabulary: Size = Field("auto", description='vocabulary size, or "auto" to choose it by the size of the text')
    blanks: float = Field(0.15, gt=0.0, lt=1.0, description="share of each line to mask, at least one token")
    maximum_length: int = Field(
        256, ge=1, description="maximum tokens of a line, longer lines are skipped; or tokens of a text window"
    )
    packing: Literal["lines", "text"] = Field(
        "lines",
        description="for text generation: treat each line separately, or all lines as running text, split into windows "
        "of maximum_length",
    )
    seed: int = Field(0, ge=0, description="seed of the split into training and validation")

    @model_serializer(mode="wrap")
    def _without_packing(self, serialize: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Omit packing if lines are separate, so that the settings equal those of earlier versions."""
        return {name: value for name, value in serialize(self).items() if (name, value) != ("packing", "lines")}

    @property
    def size(self) -> int | None:
        """The vocabulary size, or None if it is automatic."""
        return None if self.vocabulary == "auto" else self.vocabulary


class TextSettings(FilesSettings, frozen=True):
    """Settings of a corpus of pairs; each file may be gzipped (.gz), and one may be standard input (-)."""

    train: File | None = Field(
        None,
        description="training pairs: a .tsv, or a .jsonl with source and target; may be .gz, or - for stdin",
    )
    train_source: File | None = Field(None, description="instead of train: the sources, one per line")
    train_target: File | None = Field(None, description="instead of train: the targets, one per line")
    valid: File | None = Field(
        None, description="validation pairs; by default 5 % of the training pairs, at most 1,000, are split off"
    )
    valid_source: File | None = Field(None, description="instead of valid: the sources, one per line")
    valid_target: File | None = Field(None, description="instead of valid: the targets, one per line")
    replay: File | None = Field(None, description="pairs from the original domain, mixed in to prevent forgetting")
    replay_share: float = Field(
        0.5, gt=0.0, lt=1.0, description="share of replayed pairs among all; the smaller set is repeated"
    )
    tokenizer: TokenizerKind = Field("bpe", description="tokenizer of both sides: char, word, bpe or unigram")
    source_tokenizer: TokenizerKind | None = Field(None, description="tokenizer of the source, if different")
    target_tokenizer: TokenizerKind | None = Field(None, description="tokenizer of the target, if different")
    shared: bool = Field(False, description="use one tokenizer for both sides, learned from both")
    vocabulary: Size = Field("auto", description='vocabulary size, or "auto" to choose it by the size of the text')
    source_vocabulary: Size | None = Field(None, description="vocabulary size of the source, if different")
    target_vocabulary: Size | None = Field(None, description="vocabulary size of the target, if different")
    dropout: float = Field(
        0.0, ge=0.0, le=1.0, description="dropout of pieces, supported only by earlier versions; must be 0 for training"
    )
    maximum_length: int = Field(
        256, ge=1, description="maximum tokens on either side; longer pairs are skipped in training and validation"
    )
    source_language: Language | None = Field(None, description="language code of the source, such as en or zh")
    target_language: Language | None = Field(None, description="language code of the target")
    seed: int = Field(0, ge=0, description="seed of the split into training and validation")

    @model_serializer(mode="wrap")
    def _without_unnamed(self, serialize: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Omit languages and replay settings that are not set, so that the settings equal those of earlier versions."""
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
            raise ArgumentError("a shared tokenizer is set by tokenizer and vocabulary, not by source_… or target_…")
        return self

    def tokenizer_of(self, side: Literal["source", "target"]) -> tuple[TokenizerKind, int | None]:
        """Return the kind of a side's tokenizer and its vocabulary size, None if that is automatic."""
        kind, size = (
            (self.source_tokenizer, self.source_vocabulary)
            if side == "source"
            else (self.target_tokenizer, self.target_vocabulary)
        )
        size = size or self.vocabulary
        return kind or self.tokenizer, None if size == "auto" else size


AnySettings = TypeVar("AnySettings", LinesSettings, TextSettings)


class VectorsSettings(BaseModel, extra="forbid", frozen=True):
    """Settings of embeddings initialized with word vectors, `[vectors]` in TOML.

    Each names a file, see `attent.text.word_vectors.read`.
    """

    source: File | None = Field(None, description="word vectors that initialize the source embedding")
    target: File | None = Field(None, description="word vectors that initialize the target embedding")
    text: File | None = Field(None, description="word vectors that initialize the embedding of plain text")
    frozen: bool = Field(False, description="do not train these embeddings, even those of words without a vector")

    @model_validator(mode="after")
    def _frozen_needs_vectors(self) -> VectorsSettings:
        if self.frozen and not self.files:
            raise ArgumentError("frozen needs word vectors: give source, target or text")
        return self

    @property
    def files(self) -> dict[str, str]:
        """The files, by the name of the tokenizer that they belong to: source, target or text."""
        return {side: file for side in ("source", "target", "text") if (file := getattr(self, side)) is not None}


class SkipGramSettings(BaseModel, extra="forbid", frozen=True):
    """Settings of word vectors trained on a text; see `attent.text.skip_gram.train_vectors`."""

    width: int = Field(100, ge=1, le=2**16, description="with --from-text: numbers per word")
    window: int = Field(5, ge=1, le=1000, description="with --from-text: maximum distance between two words of a pair")
    epochs: int = Field(5, ge=1, description="with --from-text: passes over the text")
    minimum_count: int = Field(5, ge=1, description="with --from-text: minimum number of occurrences of a word")
    seed: int = Field(0, ge=0, lt=2**32, description="with --from-text: seed of initialization and sampling")


def limit_length(settings: AnySettings, longest: int | None, reserved: int = 0) -> AnySettings:
    """Reduce the maximum length of texts to the length that a model can read.

    Args:
        settings: the settings of lines or pairs.
        longest: the maximum number of tokens that the model can read; no limit if None.
        reserved: the number of these tokens that do not belong to the text, such as BOS.
    """
    limit = settings.maximum_length if longest is None else min(settings.maximum_length, longest - reserved)
    return settings.model_copy(update={"maximum_length": limit})
