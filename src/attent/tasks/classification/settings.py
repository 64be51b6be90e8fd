"""Settings of corpora of labelled examples."""

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
    """Parse a height and width: a number, which is both, or a text such as 24x32."""
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
    """Settings of pictures or of sequences of vectors; a picture is the sequence of its patches."""

    file_keys: ClassVar[tuple[str, ...]] = ("source",)

    source: Annotated[File, Help(metavar="digits|FOLDER|FILE.npz")] = Field(
        description="pictures to classify, one folder per class, or an .npz of pictures or vectors; or digits"
    )
    size: Annotated[Sides, Help(metavar="N|HxW")] | None = Field(
        None, description="height and width in pixels that pictures are resized to; needed if they differ"
    )
    colours: Literal["grey", "rgb"] | None = Field(
        None, description="grey or rgb; unless given, grey where all pictures are"
    )
    patch: int | None = Field(
        None, ge=1, description="pixels of a patch along each side; unless given, 64 patches a picture at most"
    )
    shift: float = Field(0.0, ge=0.0, description="pixels by which a picture is shifted at most, anew every epoch")
    turn: float = Field(0.0, ge=0.0, le=180.0, description="degrees by which it is turned at most")
    scale: float = Field(0.0, ge=0.0, lt=1.0, description="share by which it grows or shrinks at most")
    flip: bool = Field(False, description="whether left and right are exchanged half of the time")
    validation: Share = Field(0.1, description="share of the examples to validate on, at most 1,000 of them")
    test: Share = Field(0.0, description="share of the examples that the trained model is judged on, kept apart first")
    seed: int = Field(0, ge=0, description="of the test and of the validation, and of shifts, turns and scales")

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
        """The names of the settings given that apply to pictures only."""
        return sorted(self.model_fields_set & {"size", "colours", "patch", "shift", "turn", "scale", "flip"})


class LabelledSettings(FilesSettings, frozen=True):
    """Settings of labelled texts, text, tab and label in a line.

    A file may be gzipped (.gz), one standard input (-).
    """

    train: File = Field(description="labelled texts to train on: text, tab and label in a line; also .gz, or -")
    valid: File | None = Field(
        None, description="labelled texts to validate on; without any, some of those to train on are split off"
    )
    test: File | None = Field(None, description="texts that the trained model is judged on")
    validation: Share = Field(0.05, description="share of the texts that is split off to validate on, at most 1,000")
    tokenizer: TokenizerKind = Field("bpe", description="what texts are cut into: char, word, bpe or unigram")
    vocabulary: Size = Field("auto", description='ids of the tokenizer, or "auto": by the size of the text')
    maximum_length: int = Field(
        256, ge=1, description="tokens: texts that are longer are neither trained nor validated on"
    )
    seed: int = Field(0, ge=0, description="of the split into training and validation")

    @property
    def size(self) -> int | None:
        """The number of the tokenizer's ids, unless that is automatic."""
        return None if self.vocabulary == "auto" else self.vocabulary
