"""Change streams: newline-delimited JSON of rows that are inserted into and deleted from relations.

    {"stream": "bids", "op": "+", "row": {"ts": 1, "symbol": "AMZN", "price": 223.95}, "last": true}

`last` ends a message and is true when absent; `time` is when it happened, ns since 1970 UTC, where the row
does not say it as `ts`. What the rows must hold is up to the program that reads them; here they are
well-formed JSON with scalar values, and numbers are exact.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from decimal import Decimal
from typing import Any, Literal, NamedTuple, Protocol

import msgspec

from orderbook.core.errors import Problems, SourceError
from orderbook.feeds.byte_stream import Lines, shown
from orderbook.feeds.source import Source
from orderbook.feeds.storage import Place

DEFAULT_CHANGES = 4_096

Value = int | Decimal | str | bool | None


class RelationChange(NamedTuple):
    """One inserted ("+") or deleted ("-") row, from line `line` (1-based; 0 where there is none).

    `time` is when it happened, ns since 1970 UTC, where that stands outside of the row.
    """

    line: int
    stream: str
    op: Literal["+", "-"]
    row: Mapping[str, Value]
    last: bool = True
    time: int | None = None

    @property
    def stated_time(self) -> int | None:
        """`time`, else the row's `ts` where that is an integer."""
        stated = self.row.get("ts") if self.time is None else self.time
        return stated if isinstance(stated, int) else None


def in_lists(changes: Iterator[Any], size: int) -> Iterator[Any]:
    """The changes in lists of at most so many, those before a SourceError too; what is none, as it is."""
    batch: list[RelationChange] = []
    try:
        for change in changes:
            if not isinstance(change, RelationChange):
                if batch:
                    yield batch
                    batch = []
                yield change
                continue
            batch.append(change)
            if len(batch) == size:
                yield batch
                batch = []
    except SourceError:
        if batch:
            yield batch
        raise
    if batch:
        yield batch


class ChangeLine(msgspec.Struct, forbid_unknown_fields=True):
    """A change as it is written."""

    stream: str
    op: Literal["+", "-"]
    row: dict[str, Any]
    last: bool = True
    time: int | None = None


class ChangeStreamSource:
    """The changes of a file, in lists of at most `batch_size`.

    Numbers with a point or an exponent are Decimals, others ints. A malformed line is counted with its
    number and left out; blank lines are ignored. Raises SourceError when the file is missing, and when
    it is truncated, after everything before the cut.
    """

    def __init__(self, path: Place, batch_size: int = DEFAULT_CHANGES):
        self.name = f"changes:{path}"
        self.problems = Problems()
        self.counts: Counter[str] = Counter()
        self._lines = Lines(path)
        self._batch_size = batch_size

    @property
    def progress(self) -> float:
        """Fraction of the file's bytes read."""
        return self._lines.progress

    def __iter__(self) -> Iterator[list[RelationChange]]:
        self.problems.clear()
        yield from in_lists(self._changes(), self._batch_size)
        self._lines.raise_if_cut()

    def _changes(self) -> Iterator[RelationChange]:
        decoder = msgspec.json.Decoder(ChangeLine, float_hook=Decimal)
        for line in self._lines:
            if not line.strip():
                continue
            try:
                change = decoder.decode(line)
                check_row(change.row)
            except (msgspec.DecodeError, ValueError) as error:
                self._lines.malformed(self.problems, "malformed change", f"{error}: {shown(line)}")
                continue
            place = self._lines.number
            yield RelationChange(place, change.stream, change.op, change.row, change.last, change.time)


def check_row(row: dict[str, Any]) -> None:
    """Make `ts` an integer where it is one, however it is written. Raises ValueError for nested values."""
    _check_scalars(row)
    _whole_time(row)


def _whole_time(row: dict[str, Any]) -> None:
    """Make `ts` the integer that it is, where it is written as 1.7e18 or 1.0."""
    time = row.get("ts")
    if isinstance(time, Decimal) and abs(time) < 2**63 and time == int(time):
        row["ts"] = int(time)


def _check_scalars(row: Mapping[str, object]) -> None:
    for name, value in row.items():
        if isinstance(value, dict | list):
            raise ValueError(f"column {name!r} is neither a number, a string, a boolean nor null")


class ChangeSource(Source[Sequence[RelationChange]], Protocol):
    """A source of changes of a program's relations."""
