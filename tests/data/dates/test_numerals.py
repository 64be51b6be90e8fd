import unicodedata

import pytest
from babel import Locale, localedata

from attent.data.dates.numerals import ZEROS, digits, in_digits
from attent.errors import UnknownNameError


def test_every_default_system_of_babel_is_known() -> None:
    used = {Locale.parse(locale).default_numbering_system for locale in localedata.locale_identifiers()}
    assert used == set(ZEROS)


@pytest.mark.parametrize("system", ZEROS)
def test_the_digits_have_the_values_0_to_9(system: str) -> None:
    assert [unicodedata.decimal(digit) for digit in digits(system)] == list(range(10))


def test_by_hand() -> None:
    assert in_digits("2026", "deva") == "२०२६"
    assert in_digits("07", "arabext") == "۰۷"
    assert in_digits("1984", "latn") == "1984"


def test_an_unknown_system_is_an_error_with_the_nearest() -> None:
    with pytest.raises(UnknownNameError, match="did you mean 'deva'"):
        digits("devi")
