"""Sizes in bytes as people write and read them: `512 MB`."""

import re
from fractions import Fraction

from orderbook.errors import UserError

UNITS = {"GB": 10**9, "MB": 10**6, "KB": 10**3, "": 1}
_SIZE = re.compile(r"\s*(\d+(?:\.\d+)?)\s*(GB|MB|KB|)\s*", re.IGNORECASE | re.ASCII)


def size_of(text: str) -> int:
    """The bytes that a text such as `512 MB` says; units are powers of 1,000. Raises UserError."""
    found = _SIZE.fullmatch(text)
    if found is None:
        raise UserError(f'size {text!r}: write a number and KB, MB or GB, such as "512 MB"')
    return int(Fraction(found[1]) * UNITS[found[2].upper()])


def size_text(size: int) -> str:
    """Bytes as a text of at most four digits."""
    for unit, bytes_of_one in UNITS.items():
        if size >= bytes_of_one and unit:
            return f"{size / bytes_of_one:,.4g} {unit}"
    return f"{size:,} bytes"
