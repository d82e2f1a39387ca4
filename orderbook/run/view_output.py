"""Files of view events: every change of the rows of chosen views, as NDJSON or Parquet.

They are written while a run or replay goes on.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from decimal import Decimal
from io import BufferedWriter
from pathlib import Path
from typing import Any, Protocol

import msgspec
import numpy as np
import pyarrow as pa

from orderbook.core.errors import DataError, OrderbookError, UserError
from orderbook.core.files import ParquetFile, publish, writing
from orderbook.engine.runtime.subscriptions import ViewEvent
from orderbook.feeds.files.view_events import VIEWS_METADATA
from orderbook.run.assembly import Assembly
from orderbook.run.pipeline import Pipeline
from orderbook.run.view_event_columns import EventColumns, columns_of
from orderbook.views.encoding.arrow import TIMESTAMP, arrow_type
from orderbook.views.m3 import Result
from orderbook.views.types import INT64_MAX

ROW_GROUP_SIZE = 1 << 16
# So many events are made lines or columns together; for how long those of lines may wait, ns of their times.
EVENTS_TOGETHER, _LONGEST_WAIT = 1 << 10, 10**9


class ViewOutput(Protocol):
    """Takes view events; the file has its name once the output is closed."""

    def write(self, event: ViewEvent, ts: int) -> None:
        """Append one event of the message of time `ts` (ns since 1970 UTC), at once or with others."""

    def close(self) -> None: ...


def open_output(path: Path, views: Mapping[str, Result], keys: Mapping[str, Sequence[str]]) -> ViewOutput:
    """An output of `views`, whose keys users see as `keys`, in the format of the name's ending.

    `.ndjson`: one object a line, `{"view", "ts", "version", "key": {…}, "row": {…} or null}`, null where
    the row is gone, and `"multiplicity"` where the row stands for more than one; decimals are exact JSON
    numbers. `.parquet`: columns view, ts, version, key (JSON), gone, multiplicity, then the columns of all
    views, null where not a view's own or where the row is gone; a column that two views have with different
    types is called `view.column`. The metadata `orderbook.views` say it: {view: {column: name in the file}}.

    Raises UserError for another ending, and where the disk refuses as `whole_files.writing`; a file that
    could not be written as a whole does not get its name.
    """
    kinds: dict[str, type[NdjsonOutput] | type[ParquetOutput]] = {
        ".ndjson": NdjsonOutput,
        ".parquet": ParquetOutput,
    }
    if path.suffix not in kinds:
        raise UserError(f"--out {path}: the name must end in {' or '.join(kinds)}")
    return kinds[path.suffix](path, views, keys)


_encoder = msgspec.json.Encoder(decimal_format="number")


def _plain(values: Iterable[tuple[str, Any]]) -> dict[str, Any]:
    """Values that JSON can write: integers of more than 64 bits as decimals."""
    return {n: Decimal(v) if isinstance(v, int) and abs(v) > INT64_MAX else v for n, v in values}


class NdjsonOutput:
    """See `open_output`."""

    def __init__(self, path: Path, views: Mapping[str, Result], keys: Mapping[str, Sequence[str]]) -> None:
        self._path, self._partial = path, path.with_name(f"{path.name}.partial")
        self._keys = keys
        self._waiting: list[tuple[ViewEvent, int]] = []
        with writing(path):
            self._file: BufferedWriter | None = self._partial.open("wb")

    def write(self, event: ViewEvent, ts: int) -> None:
        """Append one event; events wait for others for a second of their times. Raises OutputError."""
        waiting = self._waiting
        waiting.append((event, ts))
        if len(waiting) >= EVENTS_TOGETHER or ts - waiting[0][1] >= _LONGEST_WAIT:
            self._flush()

    def _flush(self) -> None:
        waiting, self._waiting = self._waiting, []
        events = [event for event, _ in waiting]
        found = columns_of(events)
        rows = _rows_of(events, self._keys) if found is None else _rows_of_columns(found, self._keys)
        lines = []
        for (event, ts), (key, row, multiplicity) in zip(waiting, rows, strict=True):
            line = {"view": event.view, "ts": ts, "version": event.version, "key": key, "row": row}
            if row is not None and multiplicity != 1:
                line["multiplicity"] = multiplicity
            lines.append(line)
        with self._abandoned_if_it_fails() as file:
            if file is not None:
                file.write(_encoder.encode_lines(lines))

    def close(self) -> None:
        """Finish the file; after an error it keeps its other name. Raises OutputError."""
        self._flush()
        with self._abandoned_if_it_fails() as file:
            if file is not None:
                file.close()
                publish(self._partial, self._path)
                self._file = None

    @contextmanager
    def _abandoned_if_it_fails(self) -> Iterator[BufferedWriter | None]:
        """A file that lacks a line is no output, also where there is room again."""
        with writing(self._path):
            try:
                yield self._file
            except OSError:
                file, self._file = self._file, None
                if file is not None:
                    with suppress(OSError):
                        file.close()
                raise


class ParquetOutput:
    """See `open_output`. Raises DataError for a decimal of more than 38 digits; there is no file then."""

    def __init__(self, path: Path, views: Mapping[str, Result], keys: Mapping[str, Sequence[str]]) -> None:
        self._keys = keys
        self._names = _column_names(views)
        fields = [
            ("view", pa.string()),
            ("ts", TIMESTAMP),
            ("version", pa.list_(pa.int64(), 3)),
            ("key", pa.string()),
            ("gone", pa.bool_()),
            ("multiplicity", pa.int64()),
        ]
        taken: dict[str, pa.DataType] = {}
        for view, result in views.items():
            for column in result.columns:
                name = self._names[view, column.name]
                taken[name] = arrow_type(column.type, f"{view}.{column.name}")
        columns = {v: {c.name: self._names[v, c.name] for c in r.columns} for v, r in views.items()}
        metadata = {VIEWS_METADATA: msgspec.json.encode(columns)}
        self._schema = pa.schema([*fields, *taken.items()], metadata)
        self._waiting: list[tuple[ViewEvent, int]] = []
        self._tables: list[pa.Table] = []
        self._file = ParquetFile(path, self._schema)

    def write(self, event: ViewEvent, ts: int) -> None:
        """Append one event."""
        self._waiting.append((event, ts))
        if len(self._waiting) >= EVENTS_TOGETHER:
            self._flush()
            if sum(map(len, self._tables)) >= ROW_GROUP_SIZE:
                self._write_group()

    def close(self) -> None:
        """Finish the file. Raises OutputError."""
        self._flush()
        self._write_group()
        self._file.close()

    def _flush(self) -> None:
        waiting, self._waiting = self._waiting, []
        if not waiting:
            return
        found = columns_of([event for event, _ in waiting])
        try:
            self._tables.append(self._by_row(waiting) if found is None else self._by_column(waiting, found))
        except (pa.ArrowException, DataError) as error:
            path = self._file.path
            self._file.abandon()
            raise DataError(f"{path}: a value does not fit Parquet: {error}; write .ndjson") from None

    def _write_group(self) -> None:
        tables, self._tables = self._tables, []
        if tables:
            self._file.write(pa.concat_tables(tables))

    def _by_row(self, waiting: Sequence[tuple[ViewEvent, int]]) -> pa.Table:
        rows = []
        for event, ts in waiting:
            row = {
                "view": event.view,
                "ts": ts,
                "version": event.version,
                "key": _key_text(event, self._keys),
                "gone": event.new is None,
                "multiplicity": None if event.new is None else event.new.multiplicity,
            }
            row.update((self._names[event.view, name], value) for name, value in (event.new or {}).items())
            rows.append(row)
        return pa.Table.from_pylist(rows, self._schema)

    def _by_column(self, waiting: Sequence[tuple[ViewEvent, int]], found: Sequence[EventColumns]) -> pa.Table:
        keys, counts = [""] * len(waiting), np.zeros(len(waiting), np.int64)
        parts: dict[str, list[tuple[Sequence[int], pa.Array]]] = {}
        for own in found:
            for place, text in zip(
                own.places, own.by_key(lambda event: _key_text(event, self._keys)), strict=True
            ):
                keys[place] = text
            counts[own.places] = own.counts
            for number, column in enumerate(own.layout.result.columns):
                name = self._names[own.layout.result.name, column.name]
                array = own.array(number, self._schema.field(name).type)
                parts.setdefault(name, []).append((own.places, array))
        gone = counts == 0
        columns = {
            "view": pa.array([event.view for event, _ in waiting]),
            "ts": pa.array([ts for _, ts in waiting], pa.int64()).cast(TIMESTAMP),
            "version": pa.array([event.version for event, _ in waiting], self._schema.field("version").type),
            "key": pa.array(keys),
            "gone": pa.array(gone),
            "multiplicity": pa.array(counts, mask=gone),
        }
        for name in self._schema.names[len(columns) :]:
            columns[name] = _spread(parts.get(name, []), len(waiting), self._schema.field(name).type)
        return pa.table(columns, self._schema)


def _spread(parts: Sequence[tuple[Sequence[int], pa.Array]], size: int, form: pa.DataType) -> pa.Array:
    """Parts of a column at their places, null elsewhere."""
    if not parts:
        return pa.nulls(size, form)
    together = pa.concat_arrays([array for _, array in parts])
    if len(together) == size == len(parts[0][0]):
        return together
    indices, there = np.zeros(size, np.int64), np.zeros(size, np.bool_)
    places = [place for own, _ in parts for place in own]
    indices[places], there[places] = np.arange(len(places)), True
    return together.take(pa.array(indices, mask=~there))


_Written = tuple[dict[str, Any], dict[str, Any] | None, int]


def _rows_of(events: Sequence[ViewEvent], keys: Mapping[str, Sequence[str]]) -> list[_Written]:
    """Key, row and multiplicity of each event, as JSON has them."""
    return [
        (
            _key_of(event, keys),
            None if event.new is None else _plain(event.new.items()),
            0 if event.new is None else event.new.multiplicity,
        )
        for event in events
    ]


def _rows_of_columns(found: Sequence[EventColumns], keys: Mapping[str, Sequence[str]]) -> list[_Written]:
    """The same, of events of which there are columns."""
    written: list[_Written] = [({}, None, 0)] * sum(len(own.events) for own in found)
    for own in found:
        names = [column.name for column in own.layout.result.columns]
        rows = zip(*(own.values(number) for number in range(len(names))), strict=True)
        parts = zip(
            own.places, own.by_key(lambda event: _key_of(event, keys)), rows, own.counts.tolist(), strict=True
        )
        for place, key, row, count in parts:
            written[place] = key, dict(zip(names, row, strict=True)) if count else None, count
    return written


def _key_of(event: ViewEvent, keys: Mapping[str, Sequence[str]]) -> dict[str, Any]:
    return _plain(zip(keys[event.view], event.key, strict=True))


def _key_text(event: ViewEvent, keys: Mapping[str, Sequence[str]]) -> str:
    return _encoder.encode(_key_of(event, keys)).decode()


def _column_names(views: Mapping[str, Result]) -> dict[tuple[str, str], str]:
    """The name in the file of every (view, column)."""
    types: dict[str, set[pa.DataType]] = {}
    for view, result in views.items():
        for column in result.columns:
            types.setdefault(column.name, set()).add(arrow_type(column.type, f"{view}.{column.name}"))
    reserved = {"view", "ts", "version", "key", "gone", "multiplicity"}
    return {
        (view, c.name): f"{view}.{c.name}" if len(types[c.name]) > 1 or c.name in reserved else c.name
        for view, result in views.items()
        for c in result.columns
    }


@contextmanager
def written_views(out: Path | None, assembly: Assembly, pipeline: Pipeline) -> Iterator[list[Exception]]:
    """Writes every change of the chosen views' rows, from the rows there are, until it ends or writing fails.

    Gives the list that what failed is put into; without a file nothing is written.
    """
    failures: list[Exception] = []
    if out is None:
        yield failures
        return
    program = assembly.program
    results = {name: program.program.result(name) for name in assembly.views}
    keys = {view.name: [key.name for key in view.keys] for view in program.views}
    output = open_output(out, results, keys)
    try:

        def write(event: ViewEvent) -> None:
            try:
                output.write(event, pipeline.time)
            except Exception as error:
                failures.append(error)
                raise

        for view in assembly.views:
            # A view has rows before the first event where it groups by nothing, or after a recovery.
            live = pipeline.engine[view]
            for key, row in live.items():
                output.write(ViewEvent.between(live.layout, key, None, row, (0, 0, 0)), 0)
            pipeline.engine.watch_rows(view, write)
        yield failures
    finally:
        try:
            output.close()
        except OrderbookError as error:
            failures.append(error)
