"""CSV by column: blocks of text in which every record is as RFC 4180 has it.

Where a quote stands within a field that is not quoted, or a text is not UTF-8, nothing is read here: what
that means is up to who reads records one by one.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl
from numpy.typing import NDArray

_NEWLINE, _QUOTE = ord("\n"), ord('"')
# Records, in bytes, that are left to Python's csv module: longer fields it refuses.
_LONGEST = 1 << 17


@dataclass(frozen=True, slots=True)
class CsvBlock:
    """The whole records that a text begins with, but for blank lines.

    end: how many bytes they are. last: the line in which they end. lines: int64[n], in which each record of
    the right number of fields ends; frame: their fields, String, null where empty. others: the lines of
    records with another number of fields, and how many they have.
    """

    end: int
    last: int
    lines: NDArray[np.int64]
    frame: pl.DataFrame
    others: Sequence[tuple[int, int]]


def read_csv_block(
    text: bytes, names: Sequence[str], wanted: Sequence[str], delimiter: str, before: int, ended: bool
) -> CsvBlock | None:
    """Reads a text of whole lines, LF at their ends, after so many lines; None where it cannot be read here.

    names: the columns, of which those `wanted` are read. ended: nothing comes after the text, which need not
    have a line end then.
    """
    size = len(text)
    text = text if text.endswith(b"\n") else text + b"\n"
    if b"\r" in text or b"\0" in text or not _is_utf8(text):
        return None
    found = _records(np.frombuffer(text, np.uint8), ord(delimiter), quoted=b'"' in text)
    if found is None:
        return None
    ends, fields, lines = found
    end = int(ends[-1]) if len(ends) else 0
    lengths = np.diff(ends, prepend=0)
    left = len(text) - end
    if (ended and left) or left > _LONGEST or lengths.max(initial=0) > _LONGEST:
        return None
    lines = lines + before
    there = lengths > 1
    good = there & (fields == len(names))
    frame = _frame(_body(text, ends, good), names, wanted, delimiter)
    if len(frame) != np.count_nonzero(good):
        return None
    wrong = np.flatnonzero(there & ~good)
    others = list(zip(lines[wrong].tolist(), fields[wrong].tolist(), strict=True))
    return CsvBlock(min(end, size), int(lines[-1]) if end else before, lines[good], frame, others)


def _is_utf8(text: bytes) -> bool:
    try:
        return text.isascii() or bool(text.decode())
    except UnicodeDecodeError:
        return False


def _records(
    data: NDArray[np.uint8], delimiter: int, quoted: bool
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]] | None:
    """Behind which bytes records end, how many fields they have, and in which line of the text they end, from
    1; None where quotes stand otherwise."""
    marks = np.flatnonzero((data == _NEWLINE) | (data == delimiter))
    newlines = data[marks] == _NEWLINE
    if quoted:
        lines = np.cumsum(newlines)
        quotes = np.flatnonzero(data == _QUOTE)
        if not _quotes_fields(data, quotes, delimiter):
            return None
        outside = np.searchsorted(quotes, marks) % 2 == 0
        marks, newlines, lines = marks[outside], newlines[outside], lines[outside]
    ends = np.flatnonzero(newlines)
    in_lines = lines[ends] if quoted else np.arange(1, len(ends) + 1)
    return marks[ends] + 1, np.diff(ends, prepend=-1), in_lines


def _quotes_fields(data: NDArray[np.uint8], quotes: NDArray[np.int64], delimiter: int) -> bool:
    """Whether every quote begins or ends a field, or is one of two within a field that is quoted."""
    beside = np.array([_NEWLINE, delimiter, _QUOTE], np.uint8)
    opening, closing = quotes[::2], quotes[1::2]
    opening = opening[opening > 0]
    return bool(np.isin(data[opening - 1], beside).all() and np.isin(data[closing + 1], beside).all())


def _body(text: bytes, ends: NDArray[np.int64], good: NDArray[np.bool_]) -> bytes:
    """The text of some records."""
    if good.all():
        return text[: int(ends[-1])] if len(ends) else b""
    starts = np.append(0, ends)
    edges = np.flatnonzero(np.diff(good.astype(np.int8), prepend=0, append=0))
    return b"".join(text[starts[first] : starts[end]] for first, end in edges.reshape(-1, 2).tolist())


def _frame(body: bytes, names: Sequence[str], wanted: Sequence[str], delimiter: str) -> pl.DataFrame:
    if not body:
        return pl.DataFrame(schema=dict.fromkeys(wanted, pl.String))
    quoted = b'"' in body
    frame = pl.read_csv(
        body,
        has_header=False,
        columns=[names.index(name) for name in wanted],
        schema=dict.fromkeys(names, pl.String),
        separator=delimiter,
        quote_char='"' if quoted else None,
    )
    # What is quoted may be empty.
    return frame.with_columns(pl.when(pl.all() != "").then(pl.all())) if quoted else frame
