"""A file of rows of one relation: CSV, lines of JSON or Parquet, of which each row is inserted as a message.

A source is `FILE?key=value&…`. `relation` is whose rows they are, else that which the file is named after.
`columns` are those read, each `NAME` or `RELATION_COLUMN:FILE_COLUMN`; without any, all. `time` is the column
of the file that says when a row happened, else that of the relation's `ts`; integers there are in `unit`
(`ns`, `us`, `ms`, `s`).
"""

import csv
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from decimal import Decimal
from typing import Any

import msgspec
import pyarrow as pa

from orderbook.core.errors import Problems, SourceError, first_line_of, suggestion
from orderbook.feeds.byte_stream import Lines, first_line, shown
from orderbook.feeds.change_stream import DEFAULT_CHANGES, RelationChange, check_row, in_lists
from orderbook.feeds.storage import Place, column_values, open_parquet, place, split_options
from orderbook.views.scalars.texts import moment

UNITS = {"ns": 1, "us": 1_000, "ms": 1_000_000, "s": 1_000_000_000}
_OPTIONS = ("relation", "columns", "time", "unit")
_DELIMITERS = ",;\t|"
_MALFORMED = "malformed row"

Row = Mapping[str, Any]


class RowFileSource:
    """The rows of a file as insertions into a relation, in the order of the file.

    `relations` has the relation's columns, as the file has them. A row that cannot be read, or says no time
    where the others do, is counted with its place and left out. Raises SourceError when the file is missing,
    of another form or without a column that is named; when it is truncated, after everything before the cut.
    """

    narrowed_by = "columns="

    def __init__(self, path: Place, options: Mapping[str, str], batch_size: int = DEFAULT_CHANGES):
        self.name = f"rows:{path}"
        self.problems = Problems()
        self.counts: Counter[str] = Counter()
        self._batch_size = batch_size
        self._relation = options.get("relation", path.name.partition(".")[0])
        unit = options.get("unit", "ns")
        if unit not in UNITS:
            raise SourceError(f"{self.name}: no unit of time is called {unit!r}; {suggestion(unit, UNITS)}")
        self._unit = UNITS[unit]
        self._file = _opened(path)
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

    def __iter__(self) -> Iterator[list[RelationChange]]:
        self.problems.clear()
        self.counts.clear()
        found = (self._change(number, row) for number, row in self._file.rows(self.problems))
        yield from in_lists((change for change in found if change is not None), self._batch_size)
        self._file.raise_if_cut()

    def _change(self, number: int, row: Row) -> RelationChange | None:
        self.counts["rows"] += 1
        own = {name: row.get(column) for name, column in self._columns.items()}
        if self._time is None:
            return RelationChange(number, self._relation, "+", own)
        said = row.get(self._time)
        time = self._ns(said)
        if time is None:
            detail = (
                f"{self._time} is {said!r}, which is no time; write it as 2024-01-31 12:00:00, or a number"
            )
            self.problems.add(_MALFORMED, f"{self._file.path.name}:{number}", detail)
            return None
        for name in self._times:
            own[name] = time
        return RelationChange(number, self._relation, "+", own, time=time)

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


class _RowFile(ABC):
    """A file of rows, each with its number in it."""

    path: Place

    @property
    @abstractmethod
    def progress(self) -> float:
        """Fraction of the file read."""

    @abstractmethod
    def columns(self) -> Sequence[str]:
        """The names of the columns; of JSON those of the first object."""

    @abstractmethod
    def rows(self, problems: Problems) -> Iterator[tuple[int, Row]]:
        """The rows in order, malformed ones counted."""

    @abstractmethod
    def raise_if_cut(self) -> None:
        """Raise SourceError when the file ended early."""


class _TextRows(_RowFile):
    """Rows as text."""

    def __init__(self, path: Place) -> None:
        self.path, self._lines = path, Lines(path)

    @property
    def progress(self) -> float:
        return self._lines.progress

    def raise_if_cut(self) -> None:
        self._lines.raise_if_cut()


class _CsvRows(_TextRows):
    """RFC 4180, with a header; of the delimiters that there are, the one that the header has most of.

    Values are texts, which numbers and times are read from where the relation has them; nothing is NULL.
    """

    def __init__(self, path: Place) -> None:
        super().__init__(path)
        header = first_line(path).decode("utf-8-sig", "replace")
        self._delimiter = max(_DELIMITERS, key=header.count)
        self._columns = [name.strip() for name in next(csv.reader([header], delimiter=self._delimiter), [])]
        twice = [name for name, count in Counter(self._columns).items() if count > 1]
        if twice:
            raise SourceError(f"rows:{path}: the header has {twice[0]!r} twice; name columns apart")

    def columns(self) -> Sequence[str]:
        return self._columns

    def rows(self, problems: Problems) -> Iterator[tuple[int, Row]]:
        texts = (line.decode("utf-8", "surrogateescape") + "\n" for line in self._lines)
        blank = next((text for text in texts if text.strip()), None) is None
        reader = csv.reader(() if blank else texts, delimiter=self._delimiter)
        while True:
            try:
                fields = next(reader, None)
            except csv.Error as error:
                self._lines.malformed(problems, _MALFORMED, str(error))
                continue
            if fields is None:
                return
            if not fields:
                continue
            if len(fields) == len(self._columns):
                yield self._lines.number, {n: f or None for n, f in zip(self._columns, fields, strict=True)}
            else:
                detail = f"{len(fields)} fields, where the header has {len(self._columns)}"
                self._lines.malformed(problems, _MALFORMED, detail)


class _JsonRows(_TextRows):
    """An object a line; numbers with a point or an exponent are Decimals."""

    def columns(self) -> Sequence[str]:
        problems = Problems()
        for _, row in self.rows(problems):
            return list(row)
        raise SourceError(f"rows:{self.path}: no row could be read: {'; '.join(problems.report()[:1])}")

    def rows(self, problems: Problems) -> Iterator[tuple[int, Row]]:
        decoder = msgspec.json.Decoder(dict[str, Any], float_hook=Decimal)
        for line in self._lines:
            if not line.strip():
                continue
            try:
                row = decoder.decode(line)
                check_row(row)
            except (msgspec.DecodeError, ValueError) as error:
                self._lines.malformed(problems, _MALFORMED, f"{error}: {shown(line)}")
                continue
            yield self._lines.number, row


class _ParquetRows(_RowFile):
    """Rows of Parquet; times are ns."""

    def __init__(self, path: Place) -> None:
        self.path = path
        self._read = 0
        try:
            with open_parquet(path) as file:
                self._names: list[str] = file.schema_arrow.names
                self._count = file.metadata.num_rows
        except (OSError, pa.ArrowException) as error:
            raise SourceError(f"{path}: not whole: {first_line_of(error)}; write it anew") from error

    @property
    def progress(self) -> float:
        return self._read / self._count if self._count else 1.0

    def columns(self) -> Sequence[str]:
        return self._names

    def rows(self, problems: Problems) -> Iterator[tuple[int, Row]]:
        self._read = 0
        try:
            with open_parquet(self.path) as file:
                for batch in file.iter_batches(batch_size=DEFAULT_CHANGES):
                    columns = [column_values(column) for column in batch.columns]
                    for fields in zip(*columns, strict=True):
                        self._read += 1
                        yield self._read, dict(zip(self._names, fields, strict=True))
        except (pa.ArrowException, OSError) as error:
            raise SourceError(
                f"{self.path}: corrupt after row {self._read}: {first_line_of(error)}; "
                "everything before it was read; get the file again"
            ) from error

    def raise_if_cut(self) -> None:
        """A Parquet file without its end cannot be opened."""


def _opened(path: Place) -> _RowFile:
    start = first_line(path)
    if start.startswith(b"PAR1"):
        return _ParquetRows(path)
    if not start:
        raise SourceError(f"{path}: empty; nothing to read")
    return _JsonRows(path) if start.lstrip().startswith(b"{") else _CsvRows(path)
