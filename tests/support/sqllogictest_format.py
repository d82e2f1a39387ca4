"""The files of SQLite's sqllogictest: statements and queries with the results recorded for them.

A record is a block of lines between blank ones. `skipif` and `onlyif` lines choose it for an engine;
it is read here as SQLite reads it. Results longer than the file's threshold are an MD5 of all values.
"""

import hashlib
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Union

ENGINE = "sqlite"
_HASHED = re.compile(r"(\d+) values hashing to ([0-9a-f]{32})")

Value = int | float | str | None
Row = tuple[Value, ...]


@dataclass(frozen=True, slots=True)
class Statement:
    """SQL that changes something, and whether it succeeds."""

    sql: str
    succeeds: bool
    line: int


@dataclass(frozen=True, slots=True)
class Query:
    """A SELECT, and its result as recorded.

    `types` has a letter a column: I (integer), R (real), T (text). `sort` is nosort, rowsort or
    valuesort. `result` are the values, one a line, or the one line that says their number and MD5.
    """

    sql: str
    types: str
    sort: str
    result: tuple[str, ...]
    line: int

    def holds(self, rows: Sequence[Row]) -> bool:
        """Whether rows, in order where `sort` is nosort, are the recorded result."""
        values = _sorted(self.sort, [[*map(_text, row, self.types)] for row in rows])
        hashed = _HASHED.fullmatch(self.result[0]) if len(self.result) == 1 else None
        if hashed is None:
            return tuple(values) == self.result
        digest = hashlib.md5("".join(f"{v}\n" for v in values).encode(), usedforsecurity=False)
        return (len(values), digest.hexdigest()) == (int(hashed[1]), hashed[2])


Record = Union[Statement, Query]


def parse(text: str) -> Iterator[Record]:
    """The records that SQLite takes, in order; raises ValueError for a line that is none of the format."""
    for line, block in _blocks(text):
        taken, rest = _conditions(block)
        words = rest[0].split() if rest else ["halt"]
        match words:
            case ["halt"]:
                if taken and rest:
                    return
            case ["hash-threshold", _]:
                pass
            case ["statement", "ok" | "error" as outcome]:
                if taken:
                    yield Statement("\n".join(rest[1:]), outcome == "ok", line)
            case ["query", types, sort, *_]:
                if taken:
                    yield _query(types, sort, rest[1:], line)
            case _:
                raise ValueError(f"line {line}: not a record: {rest[0]}")


def _blocks(text: str) -> Iterator[tuple[int, list[str]]]:
    """Blocks of lines with the number of their first; lines that are comments are left out."""
    block: list[str] = []
    first = 1
    for number, line in enumerate([*text.splitlines(), ""], 1):
        if line.startswith("#"):
            continue
        if line.strip():
            first = first if block else number
            block.append(line.rstrip())
        elif block:
            yield first, block
            block = []


def _conditions(block: list[str]) -> tuple[bool, list[str]]:
    """Whether the engine takes the record, and its lines without the conditions."""
    taken = True
    for index, line in enumerate(block):
        words = line.split()
        if words[0] not in ("skipif", "onlyif"):
            return taken, block[index:]
        taken &= (words[1] == ENGINE) == (words[0] == "onlyif")
    return taken, []


def _query(types: str, sort: str, lines: list[str], line: int) -> Query:
    end = lines.index("----") if "----" in lines else len(lines)
    return Query("\n".join(lines[:end]), types, sort, tuple(lines[end + 1 :]), line)


def _text(value: Value, kind: str) -> str:
    """A value as the files show it."""
    if value is None:
        return "NULL"
    if kind == "I":
        return str(int(value))
    if kind == "R":
        return f"{float(value):.3f}"
    return "".join(c if " " <= c <= "~" else "@" for c in str(value)) or "(empty)"


def _sorted(sort: str, rows: Iterable[list[str]]) -> list[str]:
    if sort == "rowsort":
        rows = sorted(rows)
    values = [value for row in rows for value in row]
    return sorted(values) if sort == "valuesort" else values
