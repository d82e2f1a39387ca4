"""Lengths of time as people write them: `100ms`."""

import re

from orderbook.errors import UserError

_UNITS = {"ns": 1, "us": 10**3, "ms": 10**6, "s": 10**9, "m": 60 * 10**9, "h": 3600 * 10**9}
DURATION = rf"0*([1-9]\d*)({'|'.join(_UNITS)})"


def nanoseconds(text: str) -> int:
    """The ns that a text such as `100ms` says. Raises UserError."""
    found = re.fullmatch(DURATION, text)
    if found is None:
        raise UserError(f"give a length, as in 1s, instead of {text!r}")
    return int(found[1]) * _UNITS[found[2]]
