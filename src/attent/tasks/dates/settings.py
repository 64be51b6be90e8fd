"""Settings of the dates corpus."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, Field, field_validator, model_validator

from attent.errors import ArgumentError, did_you_mean
from attent.tasks.dates.patterns import ALL_DATES

Share = Annotated[float, Field(ge=0.0, le=1.0)]

# fmt: off
DEMO = ("en", "de", "fr", "es", "it", "pt", "ru", "el", "ar_EG", "fa", "mr", "ja", "ko", "zh")
FULL = (
    *DEMO, "en_GB", "es_MX", "pt_PT", "fr_CA", "zh_Hant", "nl", "sv", "da", "nb", "fi", "is", "et", "lv", "lt", "pl",
    "cs", "sk",
    "hu", "ro", "hr", "sl", "sq", "ca", "eu", "gl", "tr", "az", "vi", "id", "ms", "sw", "uk", "bg", "sr", "mk", "kk",
    "he", "ur",
    "hi", "bn", "ne", "ta", "te", "th", "ka", "hy", "my", "am",
)
# fmt: on


class DatesSettings(BaseModel, extra="forbid", frozen=True):
    """Settings of the dates corpus; the defaults make the small corpus that a laptop learns in minutes."""

    locales: Literal["demo", "full"] | tuple[str, ...] = Field(
        "demo",
        description='"demo" (14 locales in 7 scripts), "full" (62 locales), or the Babel names of the locales wanted',
    )
    training_pairs: int = Field(60_000, ge=1, le=100_000_000, description="pairs to train on")
    validation_pairs: int = Field(
        1_000, ge=1, description="pairs to validate on, each with a date of its own found nowhere else"
    )
    held_out_dates: int = Field(
        2_000, ge=1, description="dates kept for the two test sets, found neither in training nor in validation"
    )
    held_out_pairs: int = Field(1_000, ge=1, description="pairs in each test set")
    held_out_combinations: int = Field(12, ge=0, description="(locale, pattern) combinations kept for testing")
    untagged: Share = Field(
        0.15, description="share of the pairs written without locale tag, where the text alone says which date it is"
    )
    native_digits: Share = Field(
        0.5, description="share of the pairs in the locale's own digits, where those are not the Latin ones"
    )
    seed: int = Field(0, ge=0, description="the same settings and seed give the same pairs")

    @field_validator("locales")
    @classmethod
    def _known_locales(cls, locales: str | tuple[str, ...]) -> str | tuple[str, ...]:
        if isinstance(locales, str):
            return locales
        if not locales or len(set(locales)) != len(locales):
            raise ArgumentError(f"locales must be distinct and at least one, got {list(locales)}")
        import babel
        from babel import localedata

        identifiers = localedata.locale_identifiers()
        for locale in locales:
            if locale not in identifiers:
                raise ArgumentError(
                    f"unknown locale {locale!r}{did_you_mean(locale, identifiers)} "
                    f"(Babel {babel.__version__} knows {len(identifiers)}, such as 'pt_BR')"
                )
        return locales

    @model_validator(mode="after")
    def _dates_left_to_train_on(self) -> DatesSettings:
        held_out = self.held_out_dates + self.validation_pairs
        if held_out >= len(ALL_DATES):
            raise ArgumentError(
                f"held_out_dates + validation_pairs must be below the {len(ALL_DATES)} dates there are, got {held_out}"
            )
        return self

    @property
    def locale_names(self) -> tuple[str, ...]:
        """The Babel names of the locales that `locales` stands for."""
        return {"demo": DEMO, "full": FULL}[self.locales] if isinstance(self.locales, str) else self.locales
