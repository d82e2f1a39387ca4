"""Lengths of time as people write them: `100ms`, `2.5s`."""

import re
from fractions import Fraction

from orderbook.errors import UserError

UNITS = {"ns": 1, "us": 10**3, "ms": 10**6, "s": 10**9, "m": 60 * 10**9, "h": 3600 * 10**9}
_DURATION = re.compile(rf"(\d+(?:\.\d+)?)({'|'.join(UNITS)})", re.ASCII)
# What an int64 holds of ns.
_LONGEST = 2**63 - 1


def nanoseconds(text: str) -> int:
    """The ns that a text such as `100ms` or `2.5ms` says, above 0. Raises UserError, also where it says a
    part of a ns or more than an int64 of them."""
    length = delay(text)
    if not length:
        raise UserError(f"give a length, as in 1s, instead of {text!r}")
    return length


def delay(text: str) -> int:
    """As `nanoseconds`, of a length that may be 0."""
    found = _DURATION.fullmatch(text)
    if found is None and text != "0":
        raise UserError(f"give a length, as in 1s, instead of {text!r}")
    length = Fraction(0) if found is None else Fraction(found[1]) * UNITS[found[2]]
    if length.denominator != 1:
        raise UserError(f"give a length of whole ns, as in 1500ns, instead of {text!r}")
    if length > _LONGEST:
        raise UserError(f"give a length of at most 292 years, instead of {text!r}")
    return int(length)
