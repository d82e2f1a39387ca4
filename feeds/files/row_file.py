"""A file of rows of one relation: CSV, lines of JSON or Parquet, of which each row is inserted as a message.

A source is `FILE?key=value&…`. `relation` is whose rows they are, else that which the file is named after.
`columns` are those read, each `NAME` or `RELATION_COLUMN:FILE_COLUMN`; without any, all. `time` is the column
of the file that says when a row happened, else that of the relation's `ts`; integers there are in `unit`
(`ns`, `us`, `ms`, `s`).
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from decimal import Decimal
from functools import partial
from typing import Any

import polars as pl

from orderbook.core.errors import Problems, SourceError, suggestion
from orderbook.feeds.change_stream import DEFAULT_CHANGES, RelationChange, in_lists
from orderbook.feeds.files.row_forms import MALFORMED, Columns, row_form
from orderbook.feeds.row_batch import Changes, RowBatch, RowFrame
from orderbook.feeds.storage import Place, place, split_options
from orderbook.views.encoding.frames import exact_numbers
from orderbook.views.encoding.moments import moments
from orderbook.views.scalars.texts import moment
from orderbook.views.types import Kind, Type

UNITS = {"ns": 1, "us": 1_000, "ms": 1_000_000, "s": 1_000_000_000}
_OPTIONS = ("relation", "columns", "time", "unit")


class RowFileSource:
    """The rows of a file as insertions into a relation, in the order of the file.

    `relations` has the relation's columns, as the file has them. A row that cannot be read, or says no time
    where the others do, is counted with its place and left out. Raises SourceError when the file is missing,
    of another form or without a column that is named; when it is truncated, after everything before the cut.
    """

    narrowed_by = "columns="

    def __init__(self, path: Place, options: Mapping[str, str], batch_size: int = DEFAULT_CHANGES):
        # Of a file with rows of several relations each has a source of its own.
        self.name = f"rows:{path}" + (f"?relation={options['relation']}" if "relation" in options else "")
        self.problems = Problems()
        self.counts: Counter[str] = Counter()
        self._batch_size = batch_size
        self._relation = options.get("relation", path.name.partition(".")[0])
        unit = options.get("unit", "ns")
        if unit not in UNITS:
            raise SourceError(f"{self.name}: no unit of time is called {unit!r}; {suggestion(unit, UNITS)}")
        self._unit = UNITS[unit]
        self._scaled = Type(Kind.DECIMAL, len(str(self._unit)) - 1)
        self._file = row_form(path)
        there = self._file.columns()
        pairs = (
            [entry.partition(":") for entry in options["columns"].split(",")] if "columns" in options else []
        )
        self._columns = {name: column or name for name, _, column in pairs} or {name: name for name in there}
        self._time = options.get("time", self._columns.get("ts"))
        for column in (*self._columns.values(), *([self._time] if self._time is not None else [])):
            if column not in there:
                raise SourceError(
                    f"{self.name}: the file has no column {column!r}; its columns are {', '.join(there)}"
                )
        # The relation's columns that hold it.
        self._times = [name for name, column in self._columns.items() if column == self._time]
        self.relations = {self._relation: tuple(self._columns)}

    @property
    def progress(self) -> float:
        """Fraction of the file read."""
        return self._file.progress

    def __iter__(self) -> Iterator[Changes]:
        self.problems.clear()
        self.counts.clear()
        yield from in_lists(self._changes(), self._batch_size)
        self._file.raise_if_cut()

    def _changes(self) -> Iterator[RelationChange | RowBatch]:
        wanted = dict.fromkeys([*self._columns.values(), *([] if self._time is None else [self._time])])
        for found in self._file.rows(self.problems, list(wanted)):
            if isinstance(found, Columns):
                if len(batch := self._batch(found)):
                    yield batch
            elif (change := self._change(*found)) is not None:
                yield change

    def _change(self, number: int, row: Mapping[str, Any]) -> RelationChange | None:
        self.counts["rows"] += 1
        own = {name: row.get(column) for name, column in self._columns.items()}
        if self._time is None:
            return RelationChange(number, self._relation, "+", own)
        said = row.get(self._time)
        time = self._ns(said)
        if time is None:
            self._no_time(self.problems, number, said)
            return None
        for name in self._times:
            own[name] = time
        return RelationChange(number, self._relation, "+", own, time=time)

    def _batch(self, found: Columns) -> RowBatch:
        """Rows by column."""
        lines, frame = found.lines, found.frame
        self.counts["rows"] += len(frame)
        own = frame.select(pl.col(column).alias(name) for name, column in self._columns.items())
        times, untimed = None, dict[int, Any]()
        if self._time is not None:
            said = self._times_of(frame[self._time])
            own = own.with_columns(said.alias(name) for name in self._times)
            if said.null_count():
                rows = said.is_null().arg_true()
                untimed = dict(zip(rows.to_list(), frame[self._time].gather(rows).to_list(), strict=True))
                there = said.is_not_null()
                own, said, lines = own.filter(there), said.filter(there), lines[there.to_numpy()]
            times = said.to_numpy()
        wrong: list[tuple[int, Callable[[Problems, int, Any], None], Any]]
        wrong = [(line, self._file.malformed, detail) for line, detail in found.malformed]
        wrong += [(int(found.lines[row]), self._no_time, value) for row, value in untimed.items()]
        for line, tell, detail in sorted(wrong, key=lambda one: one[0]):
            tell(self.problems, line, detail)
        return RowBatch.of(RowFrame(self.name, self._relation, own, lines, times))

    def _no_time(self, problems: Problems, line: int, said: object) -> None:
        detail = f"{self._time} is {said!r}, which is no time; write it as 2024-01-31 12:00:00, or a number"
        problems.add(MALFORMED, f"{self._file.path.name}:{line}", detail)

    def _times_of(self, said: pl.Series) -> pl.Series:
        """The ns since 1970 UTC that values say, Int64; null where they say none."""
        found = pl.repeat(None, len(said), dtype=pl.Int64, eager=True)
        if said.dtype == pl.String:
            found = moments(said)
        for read in (partial(exact_numbers, self._scaled), self._each):
            if found.null_count() > said.null_count():
                left = (found.is_null() & said.is_not_null()).arg_true()
                found = found.scatter(left, read(said.gather(left)))
        return found

    def _each(self, said: pl.Series) -> list[int | None]:
        return [self._ns(value) for value in said]

    def _ns(self, value: Any) -> int | None:
        """The ns since 1970 UTC that a value says; None where it says no time."""
        if isinstance(value, str):
            found = moment(value)
            if found is not None:
                return found
        try:
            ns = Decimal(value if isinstance(value, int | Decimal) else str(value)) * self._unit
            return int(ns) if abs(ns) < 2**63 else None
        except ArithmeticError:
            return None


def open_rows(text: str) -> RowFileSource:
    """The source of a file with its options. Raises SourceError."""
    path, options = split_options(text, _OPTIONS)
    return RowFileSource(place(path), options)
