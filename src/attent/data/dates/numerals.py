"""The ten digits of the CLDR numbering systems that Babel's locales write by default.

Source: Unicode CLDR, common/supplemental/numberingSystems.xml (type "numeric"); in every one of these the ten digits
stand next to each other, from zero up. Babel names a locale's system (`Locale.default_numbering_system`), but prints
dates in Latin digits.
"""

from __future__ import annotations

from attent.errors import UnknownNameError

LATIN = "latn"

ZEROS = {
    "latn": 0x0030,
    "arab": 0x0660,
    "arabext": 0x06F0,
    "nkoo": 0x07C0,
    "deva": 0x0966,
    "beng": 0x09E6,
    "tibt": 0x0F20,
    "mymr": 0x1040,
    "olck": 0x1C50,
    "mtei": 0xABF0,
    "cakm": 0x11136,
    "hmnp": 0x1E140,
    "adlm": 0x1E950,
}


def digits(system: str) -> str:
    """The ten digits of a numbering system, zero first.

    Args:
        system: its CLDR name, such as "deva".

    Raises:
        UnknownNameError: no system in the table bears that name.
    """
    if system not in ZEROS:
        raise UnknownNameError("numbering system", system, ZEROS)
    return "".join(chr(ZEROS[system] + value) for value in range(10))


def in_digits(number: str, system: str) -> str:
    """A number written in Latin digits, written in the digits of a system instead."""
    return number.translate(dict(zip(map(ord, digits(LATIN)), digits(system), strict=True)))
