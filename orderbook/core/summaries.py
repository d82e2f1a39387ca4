"""What a command came to, for scripts: one object of JSON, beside the text for people.

Commands call `told` with figures as they have them; where nobody asked for JSON that does nothing.
"""

import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, redirect_stdout
from typing import Any, TextIO

_collected: dict[str, Any] | None = None


def told(**figures: Any) -> None:
    """Note figures of the command under way: what JSON has, decimals, and mappings and sequences of these."""
    if _collected is not None:
        _collected.update(figures)


def is_collected() -> bool:
    """Whether a script is told, and no person."""
    return _collected is not None


@contextmanager
def collected() -> Iterator[dict[str, Any]]:
    """What is told from here on; what is printed meanwhile goes to standard error."""
    global _collected
    before, _collected = _collected, {}
    try:
        with redirect_stdout(sys.stderr):
            yield _collected
    finally:
        _collected = before


def write_json(figures: Mapping[str, Any] | list[Any], out: TextIO) -> None:
    """One line of JSON: decimals as exact numbers, what is no number of JSON as null."""
    import msgspec

    encoder = msgspec.json.Encoder(decimal_format="number", enc_hook=str)
    out.write(encoder.encode(figures).decode() + "\n")
