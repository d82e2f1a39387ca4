"""COPY … TO STDOUT of clients of PostgreSQL: what is copied, and rows in its three formats.

Source: PostgreSQL's documentation of COPY, "File Formats", and of the protocol, "COPY Operations".
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from orderbook.core.errors import SqlError
from orderbook.monitor.postgres_statements import Statement, closing, one_statement, statements
from orderbook.monitor.postgres_wire import encoders, int16, message, tuple_body

COPY_FORMATS = ("text", "csv", "binary")
# What stands before and after the rows in the format binary: no flags, no extension; no row.
_HEAD, _END = b"PGCOPY\n\xff\r\n\0" + bytes(8), b"\xff\xff"


@dataclass(frozen=True, slots=True)
class Copy:
    """COPY (…) TO STDOUT: what is copied, in the format text, csv or binary, and whether under names."""

    inner: Statement
    format: str = "text"
    header: bool = False


def copy(statement: Statement) -> Copy:
    """COPY (QUERY or SUBSCRIBE …) or COPY VIEW, TO STDOUT [WITH] (FORMAT csv, HEADER).

    Raises SqlError.
    """
    words = statement.words()
    if words[1:2] == ["("]:
        end = closing(words, 1)
        tokens = statement.tokens[2:end]
        inner = one_statement(" " * statement.start + statement.sql, list(tokens))
        place = end + 1
    else:
        place = next((at for at, word in enumerate(words) if word == "TO"), len(words))
        name = statement.tokens[1:place]
        if not name:
            raise SqlError("COPY is followed by a view or by (SELECT …)")
        start, stop = name[0].start - statement.start, name[-1].end + 1 - statement.start
        inner = statements(f"SELECT * FROM {statement.sql[start:stop]}")[0]
    if words[place : place + 2] != ["TO", "STDOUT"]:
        raise SqlError("COPY goes TO STDOUT alone; nothing can be written here")
    options = [word for word in words[place + 2 :] if word not in ("(", ")", ",", "WITH", "=")]
    form, header = "text", False
    while options:
        option = options.pop(0)
        value = options[0] if options else ""
        # DuckDB writes the name of the format in quotes, others as a text.
        if option == "FORMAT" and (named := value.strip("\"'").lower()) in COPY_FORMATS:
            form = named
            options.pop(0)
        elif option in ("CSV", "BINARY"):
            form = option.lower()
        elif option == "HEADER":
            header = True
            if value in ("TRUE", "FALSE", "ON", "OFF"):
                header = options.pop(0) in ("TRUE", "ON")
        else:
            raise SqlError(f"COPY knows FORMAT text, csv and binary, and HEADER, not {option}")
    if header and form == "binary":
        raise SqlError("COPY in the format binary has no HEADER")
    return Copy(inner, form, header)


class CopyOut:
    """The messages of a copy, in turn: of its beginning, of every row, and of its end.

    columns: each a name and a type, as messages of the monitor have them.
    """

    def __init__(self, wanted: Copy, columns: Sequence[tuple[str, str]]) -> None:
        self._format, self._header = wanted.format, wanted.header
        self._names = [name.encode(errors="replace") for name, _ in columns]
        self._binary = int(wanted.format == "binary")
        self._encode = encoders([kind for _, kind in columns], (self._binary,))
        # DuckDB looks for what stands before the rows in one message with the first of them.
        self._before = _HEAD if self._binary else b""

    def begin(self) -> bytes:
        """CopyOutResponse, and the names of the columns where they are wanted."""
        formats = int16(self._binary) * len(self._names)
        begun = message(b"H", bytes([self._binary]), int16(len(self._names)), formats)
        return begun + (message(b"d", _row(self._names, self._format)) if self._header else b"")

    def rows(self, rows: Sequence[Sequence[Any]]) -> Iterator[bytes]:
        """CopyData of each row, whose values are as messages of the monitor have them."""
        for row in rows:
            values = [
                None if value is None else own(value) for value, own in zip(row, self._encode, strict=True)
            ]
            yield message(b"d", self._before, _row(values, self._format))
            self._before = b""

    def end(self) -> bytes:
        """CopyDone."""
        return (message(b"d", self._before, _END) if self._binary else b"") + message(b"c")


def _row(values: Sequence[bytes | None], form: str) -> bytes:
    if form == "binary":
        return tuple_body(values)
    if form == "csv":
        return b",".join(map(_csv, values)) + b"\n"
    return b"\t".join(map(_copied, values)) + b"\n"


_ESCAPES = {
    b"\\": b"\\\\",
    b"\t": b"\\t",
    b"\n": b"\\n",
    b"\r": b"\\r",
    b"\b": b"\\b",
    b"\f": b"\\f",
    b"\v": b"\\v",
}


def _copied(value: bytes | None) -> bytes:
    if value is None:
        return b"\\N"
    for character, written in _ESCAPES.items():
        value = value.replace(character, written)
    return value


def _csv(value: bytes | None) -> bytes:
    if value is None:
        return b""
    if value == b"" or any(character in value for character in (b",", b'"', b"\n", b"\r")):
        return b'"' + value.replace(b'"', b'""') + b'"'
    return value
