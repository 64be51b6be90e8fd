"""Settings of corpora of labeled examples."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

from pydantic import BaseModel, BeforeValidator, Field, model_validator

from attent.errors import ArgumentError
from attent.setting import Help
from attent.text.settings import File, FilesSettings, Size, TokenizerKind

if TYPE_CHECKING:
    from attent.tasks.classification.pictures import Augmentation

DIGITS = "digits"
Share = Annotated[float, Field(ge=0.0, lt=1.0)]


def _sides(size: Any) -> Any:
    """Parse a height and width: a single number for both, or a text such as 24x32."""
    if isinstance(size, str) and all(part.strip().isdecimal() for part in size.split("x")):
        size = [int(part) for part in size.split("x")]
    if isinstance(size, list) and len(size) == 1:
        size = size[0]
    if isinstance(size, str):
        raise ValueError(f"must be N or HxW, such as 32 or 24x32, got {size!r}")
    return (size, size) if isinstance(size, int) else size


Pixels = Annotated[int, Field(ge=1)]
Sides = Annotated[tuple[Pixels, Pixels], BeforeValidator(_sides)]


class ImagesSettings(BaseModel, extra="forbid", frozen=True):
    """Settings of pictures or of sequences of vectors; a picture is read as a sequence of patches."""

    file_keys: ClassVar[tuple[str, ...]] = ("source",)
    # The maximum number of patches of a picture unless `patch` is set.
    max_patches: ClassVar[int] = 64

    source: Annotated[File, Help(metavar="digits|FOLDER|FILE.npz")] = Field(
        description="pictures in one folder per class, an .npz of pictures or vectors, or digits; for captions, a "
        "folder or .tsv"
    )
    size: Annotated[Sides, Help(metavar="N|HxW")] | None = Field(
        None, description="height and width in pixels to resize pictures to; required if their sizes differ"
    )
    colours: Literal["grey", "rgb"] | None = Field(None, description="grey or rgb; by default grey if all pictures are")
    patch: int | None = Field(
        None, ge=1, description="side of a patch in pixels; by default at most 64 patches per picture"
    )
    shift: float = Field(0.0, ge=0.0, description="maximum shift of a picture in pixels, drawn anew every epoch")
    turn: float = Field(0.0, ge=0.0, le=180.0, description="maximum rotation in degrees")
    scale: float = Field(0.0, ge=0.0, lt=1.0, description="maximum share by which a picture grows or shrinks")
    flip: bool = Field(False, description="whether pictures are mirrored left to right half of the time")
    validation: Share = Field(0.1, description="share of the examples to validate on, at most 1,000 of them")
    test: Share = Field(0.0, description="share of the examples to evaluate the trained model on, split off first")
    seed: int = Field(0, ge=0, description="seed of the test and validation splits and of the augmentation")

    @model_validator(mode="after")
    def _some_are_trained_on(self) -> ImagesSettings:
        if self.validation + self.test >= 1:
            raise ArgumentError(
                f"validation + test must leave examples to train on, got {self.validation:g} + {self.test:g}"
            )
        return self

    @property
    def augmentation(self) -> Augmentation:
        """The augmentation of pictures."""
        from attent.tasks.classification.pictures import Augmentation

        return Augmentation(self.shift, self.turn, self.scale, self.flip, self.seed)

    @property
    def picture_settings(self) -> list[str]:
        """The names of the given settings that apply only to pictures."""
        return sorted(self.model_fields_set & {"size", "colours", "patch", "shift", "turn", "scale", "flip"})


class LabelledSettings(FilesSettings, frozen=True):
    """Settings of labeled texts: each line has a text, a tab and a label; or a passage, a question and its answer.

    Files can be gzipped (.gz), and one of them can be standard input (-).
    """

    train: File = Field(description="labeled texts to train on, with text, tab and label per line; can be .gz, or -")
    valid: File | None = Field(
        None, description="labeled texts to validate on; by default some are split off from training"
    )
    test: File | None = Field(None, description="labeled texts to evaluate the trained model on")
    validation: Share = Field(0.05, description="share of the texts to split off for validation, at most 1,000")
    tokenizer: TokenizerKind = Field("bpe", description="what texts are cut into: char, word, bpe or unigram")
    vocabulary: Size = Field("auto", description='ids of the tokenizer, or "auto": by the size of the text')
    maximum_length: int = Field(
        256, ge=1, description="maximum tokens per text; longer texts are left out of training and validation"
    )
    seed: int = Field(0, ge=0, description="seed of the split into training and validation")

    @property
    def size(self) -> int | None:
        """The vocabulary size; None if it is chosen automatically."""
        return None if self.vocabulary == "auto" else self.vocabulary
