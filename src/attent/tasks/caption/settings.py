"""Settings of a corpus of pictures with captions."""

from __future__ import annotations

from typing import Annotated, ClassVar

from pydantic import Field

from attent.setting import Help
from attent.tasks.classification.settings import ImagesSettings
from attent.text.settings import File, TokenizerKind


class CaptionsSettings(ImagesSettings, frozen=True):
    """Settings of pictures with captions; a picture is read as a sequence of patches, its regions."""

    max_patches: ClassVar = 16

    source: Annotated[File, Help(metavar="FOLDER|FILE.tsv")] = Field(
        description="folder with train.tsv, of lines with picture, tab and caption, or with a .txt beside each "
        "picture; or such a .tsv"
    )
    tokenizer: TokenizerKind = Field("word", description="what captions are cut into: char, word, bpe or unigram")
    vocabulary: int | None = Field(None, description="ids of the tokenizer; by default by the size of the captions")
    maximum_length: int = Field(256, ge=1, description="maximum tokens of a caption; longer ones are errors")
