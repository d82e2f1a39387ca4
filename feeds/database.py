"""A table of a relational database as changes of a relation: by its change log, or by polling it.

A source is `URL#TABLE?key=value&…`. By polling (the default) all rows are read, and what differs from the
read before is deleted and inserted. A log is a table with a column that numbers its rows in the order of
commits, a column that says what happened, and the columns of the row: of the new image under their names or
`new_NAME`, of the old one under `old_NAME` or, where there are none, as the new.
"""

import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any, Literal

from feeds.change_stream import DEFAULT_CHANGES, Change
from feeds.database_columns import Images, TableOptions, place_of, read_columns, table_options
from feeds.database_connection import Database, connect, quoted
from orderbook.problems import Problems

__all__ = ["TableOptions", "TableReader", "TableSource", "table_options"]

_INSERTS = {"+", "i", "c", "insert", "create", "update_new", "update_postimage"}
_DELETES = {"-", "d", "delete", "update_old", "update_preimage"}
_UPDATES = {"u", "update"}

Reading = Iterator[list[Change]]


class TableReader:
    """Reads a table again and again: each `read` goes on where the one before has ended.

    `position` is the number of the last row of a log whose message was given, None before the first.
    """

    def __init__(self, options: TableOptions, problems: Problems, counts: Counter[str]):
        self.position: Any = _number(options.after) if options.after else None
        self._options = options
        self._problems = problems
        self._counts = counts
        self._rows: Mapping[Any, Any] = {}

    def read(self, progress: Callable[[float], object] = lambda fraction: None) -> Reading:
        """Lists of whole messages, up to the present end; `progress` is told the fraction of rows read.

        Raises SourceError where the database cannot be read; what was given stays given, and the next read
        goes on after it.
        """
        with connect(self._options.url) as database:
            if self._options.mode == "log":
                yield from self._read_log(database, progress)
            else:
                yield from self._poll(database, progress)
        self._counts["reads"] += 1

    def _read_log(self, database: Database, progress: Callable[[float], object]) -> Reading:
        options = self._options
        images = Images(options, database.columns(options.table))
        condition = f"WHERE {quoted(options.sequence)} {'IS NOT NULL' if self.position is None else '> '}"
        parameters = () if self.position is None else (self.position,)
        condition += "" if self.position is None else database.mark
        total = database.count(options.table, condition, parameters)
        ordered = f"{condition} ORDER BY {quoted(options.sequence)}"
        batch: list[Change] = []
        waiting: list[Change] = []
        last: tuple[Any, Any] | None = None
        for i, row in enumerate(database.rows(options.table, images.selected, ordered, parameters)):
            number, transaction = row[0], row[2] if options.transaction else None
            if transaction is None:
                transaction = ("row", i)
            if last is not None and transaction != last[1]:
                batch += _message(waiting)
                waiting = []
                if len(batch) >= DEFAULT_CHANGES:
                    self.position = last[0]
                    progress(min(1.0, i / total))
                    yield batch
                    batch = []
            last = (number, transaction)
            waiting += self._logged(images, number if isinstance(number, int) else i + 1, row)
        self._counts["log rows"] += 0 if last is None else i + 1
        batch += _message(waiting)
        if last is not None:
            self.position = last[0]
        if batch:
            progress(1.0)
            yield batch

    def _logged(self, images: Images, number: int, row: tuple[Any, ...]) -> list[Change]:
        """The changes of a row of a log."""
        op = row[1].strip().lower() if isinstance(row[1], str) else None
        old = op in _DELETES or op in _UPDATES
        new = op in _INSERTS or op in _UPDATES
        if not old and not new:
            detail = f"{row[1]!r} is no insert, update or delete"
            self._wrong("unknown operation", f"sequence {row[0]}", detail)
        elif old and new and not images.both:
            self._wrong("update without its old row", f"sequence {row[0]}", "the log has no columns old_…")
        else:
            stream = self._options.stream
            deleted = [Change(number, stream, "-", images.old(row), False)] if old else []
            return deleted + ([Change(number, stream, "+", images.new(row), False)] if new else [])
        return []

    def _poll(self, database: Database, progress: Callable[[float], object]) -> Reading:
        options = self._options
        names = read_columns(options, database.columns(options.table))
        total = max(1, database.count(options.table))
        keys = [place_of(options, names, key) for key in options.key]
        rows: dict[Any, Any] = {}
        counts: Counter[Any] = Counter()
        for i, row in enumerate(database.rows(options.table, list(names.values()))):
            if i % DEFAULT_CHANGES == 0:
                progress(min(1.0, i / total))
            if not keys:
                counts[row] += 1
                continue
            key = tuple(row[place] for place in keys)
            if rows.setdefault(key, row) is not row:
                self._wrong("key that is not unique", f"row {i + 1}", f"{', '.join(options.key)} = {key}")
        found: Mapping[Any, Any] = rows if keys else counts
        changes = _difference(self._rows, found, partial(_change, options.stream, tuple(names)), bool(keys))
        self._rows = found
        self._counts["rows polled"] += len(rows) if keys else counts.total()
        progress(1.0)
        if changes:
            yield _message(changes)

    def _wrong(self, kind: str, place: str, detail: str) -> None:
        self._problems.add(kind, f"{self._options.name} {place}", detail)


class TableSource:
    """A table's changes up to the present end: of a log all rows, by polling the rows there are.

    The rows of a transaction, and the changes of a poll, are a message. `reader` is the reader of the latest
    iteration, which can go on. Raises SourceError when the database or table is not there, and, while
    iterating, where it goes away.
    """

    may_be_empty = True

    def __init__(self, options: TableOptions):
        self.name = options.name
        self.options = options
        self.problems = Problems()
        self.counts: Counter[str] = Counter()
        self._progress = 0.0
        with connect(options.url) as database:
            columns = database.columns(options.table)
        # A column that is not there is an error before anything runs.
        if options.mode == "log":
            Images(options, columns)
        else:
            names = read_columns(options, columns)
            for key in options.key:
                place_of(options, names, key)
        self.reader = self._new_reader()

    @property
    def progress(self) -> float:
        """Fraction of the rows read."""
        return self._progress

    def __iter__(self) -> Reading:
        self.problems.clear()
        self.counts.clear()
        self._progress = 0.0
        self.reader = self._new_reader()
        yield from self.reader.read(self._set_progress)

    def _set_progress(self, fraction: float) -> None:
        self._progress = fraction

    def _new_reader(self) -> TableReader:
        return TableReader(self.options, self.problems, self.counts)


def _number(text: str) -> int | str:
    return int(text) if re.fullmatch(r"-?\d+", text) else text


def _change(stream: str, names: tuple[str, ...], op: Literal["+", "-"], row: tuple[Any, ...]) -> Change:
    return Change(0, stream, op, dict(zip(names, row, strict=True)), False)


def _difference(
    before: Mapping[Any, Any], now: Mapping[Any, Any], change: Callable[..., Change], keyed: bool
) -> list[Change]:
    """Deletes, then inserts. Keyed: key to row; else: row to how often it stands."""
    changes = []
    for op, ones, others in (("-", before, now), ("+", now, before)):
        for key, value in ones.items():
            if not keyed:
                changes += [change(op, key)] * max(0, value - others.get(key, 0))
            elif others.get(key) != value:
                changes.append(change(op, value))
    return changes


def _message(changes: list[Change]) -> list[Change]:
    """The changes, the last of them flagged."""
    return [*changes[:-1], changes[-1]._replace(last=True)] if changes else []
