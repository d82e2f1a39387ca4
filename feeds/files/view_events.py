"""The view events that another program wrote, as changes of relations.

A file of view events (`orderbook replay --out FILE`) has for every change of a view's row the key, and the
row as it is then. The reader keeps the rows there are, so that a change becomes the deletion of the row as
it was and the insertion of the row as it is.
"""

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from decimal import Decimal
from itertools import islice
from typing import Any

import msgspec
import pyarrow as pa

from orderbook.core.errors import Problems, SourceError, first_line_of
from orderbook.feeds.byte_stream import Lines, first_line, shown
from orderbook.feeds.change_stream import DEFAULT_CHANGES, RelationChange
from orderbook.feeds.storage import Place, column_values, open_parquet, place, split_options

VIEWS_METADATA = b"orderbook.views"
# Events that are looked at for the columns of views, where the file does not say them.
HEAD_EVENTS = 10_000
_OPTIONS = ("view", "relation")

Row = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class _Event:
    """One view event; `place` is its line or row, `key` as text, `row` None where it is gone."""

    place: int
    view: str
    time: int
    version: tuple[int, ...]
    key: str
    row: Row | None
    multiplicity: int


class ViewEventSource:
    """The changes of the rows of views, each a change of the relation of the view's name.

    With `view` only that view's are read, with `relation` as changes of the relation of that name. The
    events of one version are a message. `relations` has the columns of each relation, as far as the file's
    schema or first 10,000 events tell. A change's time is that of its event.

    A malformed event is counted with its place and left out. Memory is that of the views' rows. Raises
    SourceError when the file is missing or not one of view events, or has no such view in it; when it is
    truncated, after everything before the cut.
    """

    def __init__(
        self,
        path: Place,
        view: str | None = None,
        relation: str | None = None,
        batch_size: int = DEFAULT_CHANGES,
    ):
        self.name = f"views:{path}"
        self.problems = Problems()
        self.counts: Counter[str] = Counter()
        self._view, self._relation, self._batch_size = view, relation, batch_size
        parquet = first_line(path).startswith(b"PAR1")
        self._file: _EventFile = _ParquetEvents(path) if parquet else _NdjsonEvents(path)
        columns = self._file.columns()
        if relation is not None and view is None:
            if len(columns) > 1:
                names = ", ".join(sorted(columns))
                raise SourceError(f"{self.name}: has views {names}; say which is {relation} with view=")
            self._view = next(iter(columns), None)
        elif view is not None and columns and view not in columns:
            names = ", ".join(sorted(columns))
            raise SourceError(f"{self.name}: has no events of view {view!r}, but of {names}")
        self.relations = {
            self._name(name): own for name, own in columns.items() if self._view in (None, name)
        }

    @property
    def progress(self) -> float:
        """Fraction of the file read."""
        return self._file.progress

    def __iter__(self) -> Iterator[list[RelationChange]]:
        self.problems.clear()
        self.counts.clear()
        batch: list[RelationChange] = []
        rows: dict[tuple[str, str], _Event] = {}
        version: tuple[int, ...] | None = None
        for event in self._file.events(self.problems):
            self.counts["view events"] += 1
            if self._view not in (None, event.view):
                continue
            if event.version != version:
                _end_message(batch)
                version = event.version
                if len(batch) >= self._batch_size:
                    yield batch
                    batch = []
            batch += self._changes(rows, event)
        _end_message(batch)
        if batch:
            yield batch
        self._file.raise_if_cut()

    def _changes(self, rows: dict[tuple[str, str], _Event], event: _Event) -> list[RelationChange]:
        """The changes that an event is, after which `rows` holds its row."""
        stream, key = self._name(event.view), (event.view, event.key)
        old = rows.pop(key, None)
        if old is None and event.row is None:
            where = f"{self._file.path.name}:{event.place}"
            self.problems.add("row gone that was not there", where, f"{event.view} {event.key}")
        deleted, inserted = (0 if e is None else e.multiplicity for e in (old, event))
        if event.row is not None:
            rows[key] = event
        else:
            inserted = 0
        if old is not None and old.row == event.row:
            both = min(deleted, inserted)
            deleted, inserted = deleted - both, inserted - both
        changes = []
        if old is not None and old.row is not None:
            changes += [RelationChange(event.place, stream, "-", old.row, False, event.time)] * deleted
        if event.row is not None:
            changes += [RelationChange(event.place, stream, "+", event.row, False, event.time)] * inserted
        return changes

    def _name(self, view: str) -> str:
        return view if self._relation is None else self._relation


def open_view_events(text: str) -> ViewEventSource:
    """The source of a file, with the options `view` and `relation`."""
    path, options = split_options(text, _OPTIONS)
    return ViewEventSource(place(path), options.get("view"), options.get("relation"))


def _end_message(batch: list[RelationChange]) -> None:
    if batch:
        batch[-1] = batch[-1]._replace(last=True)


class _EventFile(ABC):
    """A file of view events."""

    path: Place

    @property
    @abstractmethod
    def progress(self) -> float:
        """Fraction of the file read."""

    @abstractmethod
    def events(self, problems: Problems) -> Iterator[_Event]:
        """The events in order, malformed ones counted."""

    @abstractmethod
    def columns(self) -> dict[str, tuple[str, ...]]:
        """The columns of views, as far as they can be known."""

    @abstractmethod
    def raise_if_cut(self) -> None:
        """Raise SourceError when the file ended early."""


class _Line(msgspec.Struct, forbid_unknown_fields=True):
    view: str
    ts: int
    version: tuple[int, int, int]
    key: dict[str, Any]
    row: dict[str, Any] | None
    multiplicity: int = 1


class _NdjsonEvents(_EventFile):
    """Events as lines of JSON; numbers with a point or an exponent are Decimals."""

    def __init__(self, path: Place) -> None:
        self.path = path
        self._lines = Lines(path)

    @property
    def progress(self) -> float:
        return self._lines.progress

    def events(self, problems: Problems) -> Iterator[_Event]:
        decoder = msgspec.json.Decoder(_Line, float_hook=Decimal)
        encode = msgspec.json.Encoder(decimal_format="number").encode
        for line in self._lines:
            if not line.strip():
                continue
            try:
                found = decoder.decode(line)
            except (msgspec.DecodeError, ValueError) as error:
                self._lines.malformed(problems, "malformed view event", f"{error}: {shown(line)}")
                continue
            key = encode(found.key).decode()
            place, count = self._lines.number, found.multiplicity
            yield _Event(place, found.view, found.ts, found.version, key, found.row, count)

    def columns(self) -> dict[str, tuple[str, ...]]:
        problems = Problems()
        columns: dict[str, tuple[str, ...]] = {}
        none = True
        for event in islice(self.events(problems), HEAD_EVENTS):
            none = False
            if event.row is not None:
                columns.setdefault(event.view, tuple(event.row))
        if none and problems.counts:
            raise SourceError(
                f"{self.path}: not a file of view events, as `orderbook replay --out` writes them: "
                f"{problems.report()[0]}"
            )
        return columns

    def raise_if_cut(self) -> None:
        self._lines.raise_if_cut()


class _ParquetEvents(_EventFile):
    """Events as rows of Parquet, whose metadata say which columns are whose."""

    def __init__(self, path: Place) -> None:
        self.path = path
        self._read = self._rows = 0
        try:
            with open_parquet(path) as file:
                self._rows = file.metadata.num_rows
                metadata = (file.schema_arrow.metadata or {}).get(VIEWS_METADATA)
        except (OSError, pa.ArrowException) as error:
            raise SourceError(f"{path}: not whole: {first_line_of(error)}; write it anew") from error
        if metadata is None:
            raise SourceError(
                f"{path}: has no view events in it, as `orderbook replay --out` writes them; write it anew"
            )
        self._names: dict[str, dict[str, str]] = msgspec.json.decode(metadata)

    @property
    def progress(self) -> float:
        return self._read / self._rows if self._rows else 1.0

    def events(self, problems: Problems) -> Iterator[_Event]:
        self._read = 0
        try:
            with open_parquet(self.path) as file:
                for batch in file.iter_batches(batch_size=DEFAULT_CHANGES):
                    yield from self._batch(batch)
        except (pa.ArrowException, OSError) as error:
            raise SourceError(
                f"{self.path}: corrupt after event {self._read}: {first_line_of(error)}; "
                "everything before it was read; get the file again"
            ) from error

    def _batch(self, batch: pa.RecordBatch) -> Iterator[_Event]:
        columns = {name: column_values(batch.column(name)) for name in batch.schema.names}
        fixed = (columns[name] for name in ("view", "ts", "version", "key", "gone", "multiplicity"))
        for i, (view, ts, version, key, gone, count) in enumerate(zip(*fixed, strict=True)):
            self._read += 1
            row = None if gone else {own: columns[name][i] for own, name in self._names[view].items()}
            yield _Event(self._read, view, ts, tuple(version), key, row, 1 if count is None else count)

    def columns(self) -> dict[str, tuple[str, ...]]:
        return {view: tuple(names) for view, names in self._names.items()}

    def raise_if_cut(self) -> None:
        """A Parquet file without its end cannot be opened."""
