"""Settings of the stories corpus."""

from __future__ import annotations

from pydantic import BaseModel, Field, field_validator, model_validator

from attent.errors import ArgumentError
from attent.tasks.stories.questions import KINDS, QuestionKind


class StoriesSettings(BaseModel, extra="forbid", frozen=True):
    """Settings of generated stories."""

    kinds: tuple[QuestionKind, ...] = Field(KINDS, description="of questions, each asked equally often")
    training_stories: int = Field(
        20_000, ge=1, le=10_000_000, description="stories to train on, each with one question"
    )
    held_out_stories: int = Field(1_000, ge=1, description="stories to validate on, and as many to test on")
    shortest: int = Field(6, ge=6, le=100, description="sentences of the shortest story")
    longest: int = Field(15, ge=6, le=100, description="sentences of the longest story")
    distracting: int = Field(3, ge=0, description="sentences at least that do not support the answer")
    seed: int = Field(0, ge=0, description="the same settings and seed give the same stories")

    @field_validator("kinds")
    @classmethod
    def _distinct(cls, kinds: tuple[QuestionKind, ...]) -> tuple[QuestionKind, ...]:
        if not kinds or len(set(kinds)) != len(kinds):
            raise ArgumentError(f"kinds must be distinct and at least one, got {list(kinds)}")
        return kinds

    @model_validator(mode="after")
    def _shortest_is_no_longer(self) -> StoriesSettings:
        if self.longest < self.shortest:
            raise ArgumentError(f"longest must be at least shortest = {self.shortest}, got {self.longest}")
        return self
