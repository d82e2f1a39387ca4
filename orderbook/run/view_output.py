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
import pyarrow as pa

from orderbook.core.errors import DataError, OrderbookError, UserError
from orderbook.core.files import ParquetFile, publish, writing
from orderbook.engine.runtime.live_view import Key, ViewRow
from orderbook.engine.runtime.subscriptions import Version, ViewEvent
from orderbook.feeds.files.view_events import VIEWS_METADATA
from orderbook.run.assembly import Assembly
from orderbook.run.pipeline import Pipeline
from orderbook.views.encoding.arrow import TIMESTAMP, arrow_type
from orderbook.views.m3 import Result
from orderbook.views.types import INT64_MAX

ROW_GROUP_SIZE = 1 << 16


class WrittenEvent(Protocol):
    """What is written of a view event: see ViewEvent."""

    @property
    def view(self) -> str: ...

    @property
    def key(self) -> Key: ...

    @property
    def new(self) -> ViewRow | None: ...

    @property
    def version(self) -> Version: ...


class ViewOutput(Protocol):
    """Takes view events; the file has its name once the output is closed."""

    def write(self, event: WrittenEvent, ts: int) -> None:
        """Append one event of the message of time `ts` (ns since 1970 UTC)."""

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


class _Keys:
    """Keys of events as mappings of column names to values."""

    def __init__(self, keys: Mapping[str, Sequence[str]]) -> None:
        self._names = keys
        self.encode = msgspec.json.Encoder(decimal_format="number").encode

    def named(self, event: WrittenEvent) -> dict[str, Any]:
        return _plain(zip(self._names[event.view], event.key, strict=True))


def _plain(values: Iterable[tuple[str, Any]]) -> dict[str, Any]:
    """Values that JSON can write: integers of more than 64 bits as decimals."""
    return {n: Decimal(v) if isinstance(v, int) and abs(v) > INT64_MAX else v for n, v in values}


class NdjsonOutput:
    """See `open_output`."""

    def __init__(self, path: Path, views: Mapping[str, Result], keys: Mapping[str, Sequence[str]]) -> None:
        self._path, self._partial = path, path.with_name(f"{path.name}.partial")
        self._keys = _Keys(keys)
        with writing(path):
            self._file: BufferedWriter | None = self._partial.open("wb")

    def write(self, event: WrittenEvent, ts: int) -> None:
        """Append one event. Raises OutputError."""
        line = {
            "view": event.view,
            "ts": ts,
            "version": event.version,
            "key": self._keys.named(event),
            "row": None if event.new is None else _plain(event.new.items()),
        }
        if event.new is not None and event.new.multiplicity != 1:
            line["multiplicity"] = event.new.multiplicity
        with self._abandoned_if_it_fails() as file:
            if file is not None:
                file.write(self._keys.encode(line) + b"\n")

    def close(self) -> None:
        """Finish the file; after an error it keeps its other name. Raises OutputError."""
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
    """See `open_output`. Raises DataError for a decimal of more than 38 digits."""

    def __init__(self, path: Path, views: Mapping[str, Result], keys: Mapping[str, Sequence[str]]) -> None:
        self._keys = _Keys(keys)
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
        self._rows: list[dict[str, Any]] = []
        self._file = ParquetFile(path, self._schema)

    def write(self, event: WrittenEvent, ts: int) -> None:
        """Append one event."""
        row = {
            "view": event.view,
            "ts": ts,
            "version": event.version,
            "key": self._keys.encode(self._keys.named(event)).decode(),
            "gone": event.new is None,
            "multiplicity": None if event.new is None else event.new.multiplicity,
        }
        row.update((self._names[event.view, name], value) for name, value in (event.new or {}).items())
        self._rows.append(row)
        if len(self._rows) >= ROW_GROUP_SIZE:
            self._flush()

    def close(self) -> None:
        """Finish the file. Raises OutputError."""
        self._flush()
        self._file.close()

    def _flush(self) -> None:
        rows, self._rows = self._rows, []
        try:
            if rows:
                self._file.write(pa.Table.from_pylist(rows, self._schema))
        except pa.ArrowException as error:
            path = self._file.path
            raise DataError(f"{path}: a value does not fit Parquet: {error}; write .ndjson") from None


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
