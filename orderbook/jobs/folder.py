"""The folder of a job: its manifest `job.json`, the columns of its datasets, and its files.

The manifest says which files count, and what they are the result of; it is replaced as a whole. Datasets
are histories of views, orders and fills, and what strategies saw. A task writes them into files of its own;
rows of a view's history become Arrow tables, decoded column by column.
"""

import secrets
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Literal

import msgspec
import numpy as np
import pyarrow as pa

from orderbook.core.changes import NULL_CODE, Dictionary
from orderbook.core.errors import DataError, SourceError, UserError
from orderbook.core.files import ParquetFile, refuse_url, replace_file
from orderbook.engine.distribution.stage_runner import History
from orderbook.engine.runtime.row_format import RowFormat
from orderbook.feeds.source import Finding
from orderbook.market.instruments import SCALE
from orderbook.views.calculus import Apply, Const
from orderbook.views.encoding.arrow import MOST_DIGITS, TIMESTAMP, arrow_type, column_array
from orderbook.views.m3 import Result, ResultColumn, ResultKey
from orderbook.views.types import Type

FORMAT_VERSION = 1

# How long after a sample or a fill the table `market` has the touch, too, ns.
HORIZONS = tuple(10**6 * length for length in (10, 100, 300, 1_000, 3_000, 10_000, 30_000, 60_000))
# In place of a view in the table `signals`: what every signal is measured against.
BASELINES = "(market)"

# (stamp, switch, sequence), as in the history's columns.
JobVersion = tuple[int, int, int]
Status = Literal["running", "complete", "failed"]


class Field(msgspec.Struct, frozen=True):
    """A column of a dataset; `type` as Arrow prints it."""

    name: str
    type: str


class DataFile(msgspec.Struct, frozen=True):
    """A Parquet file of a dataset, by its path in the folder; first and last are versions of its rows."""

    path: str
    rows: int
    first: JobVersion
    last: JobVersion


class Dataset(msgspec.Struct, frozen=True):
    """The files of a view's history, or of strategies' orders or fills.

    fields: all columns, in order. keys: those that tell rows apart. columns: for each column of the view its
    name among the fields. tentative: files of a job that goes on, whose rows may still be replaced.
    """

    fields: tuple[Field, ...]
    keys: tuple[str, ...]
    columns: dict[str, str]
    files: tuple[DataFile, ...] = ()
    tentative: tuple[DataFile, ...] = ()

    @property
    def rows(self) -> int:
        """Rows of the files that are committed."""
        return sum(file.rows for file in self.files)


class ProgramText(msgspec.Struct, frozen=True):
    """What was compiled: (file, SQL) of every text, parameters as text, and the program's hash, hex."""

    texts: tuple[tuple[str, str], ...]
    parameters: dict[str, str]
    hash: str


class PartitionStatistics(msgspec.Struct, frozen=True):
    """What one task did: `stage` names its part of the program; seconds are of its own clock."""

    stage: str
    partition: int
    events: int
    rows: int
    seconds: float


class WaitingFile(msgspec.Struct, frozen=True):
    """Rows of a view that a node has committed in an epoch which other nodes have not committed yet."""

    epoch: int
    view: str
    file: DataFile


class TentativeFile(msgspec.Struct, frozen=True):
    """All tentative rows of a view that a node has given."""

    node: str
    view: str
    file: DataFile


class StreamProgress(msgspec.Struct, frozen=True):
    """How far a stream has come.

    layout: tells one way of running it from others: partitions, keys, what keeps states.
    generation: counted from 0, one more whenever it begins from its logs again; batch: the last of that one
    that is in the manifest (-1: none). epoch: the last that all nodes have committed, and its end (ns).
    nodes: the last epoch that each node has committed, by name; ends: where those ended that wait. dead: rows
    that came too late. requested: the last epoch whose end a node asked for.
    """

    layout: str = ""
    generation: int = 0
    batch: int = -1
    epoch: int = 0
    end: int = 0
    nodes: dict[str, int] = {}
    ends: dict[int, int] = {}
    waiting: tuple[WaitingFile, ...] = ()
    tentative: tuple[TentativeFile, ...] = ()
    dead: tuple[DataFile, ...] = ()
    requested: int = 0


class ContractTraded(msgspec.Struct, frozen=True):
    """An instrument whose profit is not price times volume: `size`, a number as text, is what one of the
    volumes is; `inverse`: of the quote currency, while profit is in the base."""

    venue: str
    symbol: str
    size: str
    inverse: bool


class Manifest(msgspec.Struct, frozen=True):
    """See the module. `committed` is the last version that is complete (None: all there is).

    tables: what else was written, by name: `market` and `signals` that strategies saw, tables of the report.
    strategies: by name their parameters, as text; strategy_program has the views that they saw.
    swept: the parameters that a sweep has combinations of; its strategies are called NUMBER:CLASS.
    findings: what makes the result incomplete. horizons: HORIZONS of the table `market`. contracts: those
    that strategies traded.
    """

    format: int
    status: Status
    engine: str
    granularity: str
    partitions: int
    sources: tuple[str, ...]
    program: ProgramText
    views: dict[str, Dataset]
    orders: Dataset
    fills: Dataset
    statistics: tuple[PartitionStatistics, ...] = ()
    committed: JobVersion | None = None
    failure: str | None = None
    stream: StreamProgress | None = None
    tables: dict[str, Dataset] = {}
    strategies: dict[str, dict[str, str]] = {}
    swept: tuple[str, ...] = ()
    strategy_program: ProgramText | None = None
    findings: tuple[Finding, ...] = ()
    horizons: tuple[int, ...] = ()
    contracts: tuple[ContractTraded, ...] = ()

    @property
    def incomplete(self) -> tuple[Finding, ...]:
        """The findings, with rows of a stream that came too late."""
        late = 0 if self.stream is None else sum(file.rows for file in self.stream.dead)
        if not late:
            return self.findings
        todo = "give epochs more time; they are in the files of the manifest's `dead`"
        return (*self.findings, Finding("rows after the end of their epoch", ("the stream",), late, todo))

    @property
    def listed(self) -> frozenset[str]:
        """The paths of all files that count, or will when their epoch is committed."""
        datasets = (*self.views.values(), self.orders, self.fills, *self.tables.values())
        files = [file for dataset in datasets for file in (*dataset.files, *dataset.tentative)]
        if self.stream is not None:
            files += [one.file for one in self.stream.waiting]
            files += [one.file for one in self.stream.tentative]
            files += self.stream.dead
        return frozenset(file.path for file in files)


VERSION_COLUMNS = ("stamp", "switch", "sequence")
GONE, MULTIPLICITY, PLACE, PARTITION_KEY = "gone", "multiplicity", "place", "partition_key"
_RESERVED = {*VERSION_COLUMNS, GONE, MULTIPLICITY}

_DECIMAL = pa.decimal128(MOST_DIGITS, SCALE)
_PLAIN = {str(kind): kind for kind in (pa.int64(), pa.float64(), pa.bool_(), pa.string(), TIMESTAMP)}


def history_of(result: Result, keys: Sequence[str]) -> Dataset:
    """The history of a view, without files; `keys` are its keys as users see them.

    Columns: the version, the keys, the columns, `gone` (the row has ended: its columns are null) and
    `multiplicity`. A key that the view shows as a column is there once; another is called `key.NAME`, and a
    column of a name that the history has itself `VIEW.NAME`. Raises DataError as `arrow_type` does.
    """
    by_name = {key.name: key for key in result.keys}
    columns = {c.name: f"{result.name}.{c.name}" if c.name in _RESERVED else c.name for c in result.columns}
    names = {}
    for name in keys:
        column = shown_key(result, by_name[name])
        names[name] = f"key.{name}" if column is None else columns[column.name]
    fields = [Field(name, "int64") for name in VERSION_COLUMNS]
    fields += [
        Field(names[name], str(arrow_type(by_name[name].type, f"{result.name}.{name}"))) for name in keys
    ]
    fields += [
        Field(columns[c.name], str(arrow_type(c.type, f"{result.name}.{c.name}")))
        for c in result.columns
        if columns[c.name] not in names.values()
    ]
    fields += [Field(GONE, "bool"), Field(MULTIPLICITY, "int64")]
    return Dataset(tuple(fields), tuple(names[name] for name in keys), columns)


def shown_key(result: Result, key: ResultKey) -> ResultColumn | None:
    """The column that always is a key's value, if the view has one."""
    there = (Const(1), Apply("not", (Apply("is_null", (key.variable,)),)))
    for column in result.columns:
        if column.scalar == key.variable and column.valid in there and column.type.scale == key.type.scale:
            return column
    return None


def orders_dataset() -> Dataset:
    """All changes of strategies' orders: the version, the order as it then was, and which change it was.

    `sequence` is that of the last event of the message after which it changed; `place` counts the changes of
    one strategy there. `partition_key` is what of its `partition_by` the strategy saw, else null.
    """
    text = pa.string()
    own = {
        "ts": TIMESTAMP,
        "strategy": text,
        "id": pa.int64(),
        "venue": text,
        "symbol": text,
        "side": text,
        "volume": _DECIMAL,
        "price": _DECIMAL,
        "filled": _DECIMAL,
        "status": text,
        "reason": text,
    }
    return _versioned(own, ("strategy", PARTITION_KEY, "id"), placed=True)


def fills_dataset() -> Dataset:
    """All fills of strategies' orders; see `orders_dataset`."""
    text = pa.string()
    own = {
        "ts": TIMESTAMP,
        "strategy": text,
        "order_id": pa.int64(),
        "venue": text,
        "symbol": text,
        "side": text,
        "volume": _DECIMAL,
        "price": _DECIMAL,
        "fee": _DECIMAL,
        "liquidity": text,
    }
    return _versioned(own, ("strategy", PARTITION_KEY, "order_id", *VERSION_COLUMNS, PLACE), placed=True)


def market_dataset() -> Dataset:
    """The touch of books before times, `stamp`, of a grid, just after fills, and HORIZONS after both; null
    where a side was empty or the book not valid."""
    text = pa.string()
    own = {"venue": text, "symbol": text, "bid": _DECIMAL, "ask": _DECIMAL}
    return _versioned(own, ("venue", "symbol"))


def signals_dataset() -> Dataset:
    """Columns of views that strategies go by, and BASELINES, at the grid's times of `market_dataset`."""
    text = pa.string()
    own = {"venue": text, "symbol": text, "view": text, "column": text, "value": pa.float64()}
    return _versioned(own, ("venue", "symbol", "view", "column"))


def table_dataset(schema: pa.Schema) -> Dataset:
    """A table without versions. Raises KeyError for a type that jobs do not hold."""
    fields = tuple(Field(field.name, str(_type(str(field.type)))) for field in schema)
    return Dataset(fields, (), {field.name: field.name for field in fields})


def _versioned(own: dict[str, pa.DataType], keys: tuple[str, ...], placed: bool = False) -> Dataset:
    """A dataset of these columns after the version, and with `placed` after the place in it and the key."""
    types: dict[str, pa.DataType] = dict.fromkeys(VERSION_COLUMNS, pa.int64())
    if placed:
        types[PLACE], own = pa.int64(), {PARTITION_KEY: pa.string(), **own}
    fields = tuple(Field(name, str(kind)) for name, kind in (types | own).items())
    return Dataset(fields, keys, {name: name for name in own})


def schema_of(dataset: Dataset) -> pa.Schema:
    """The Arrow schema of a dataset's files."""
    return pa.schema([(field.name, _type(field.type)) for field in dataset.fields])


def _type(text: str) -> pa.DataType:
    if text in _PLAIN:
        return _PLAIN[text]
    digits, scale = text.removeprefix("decimal128(").removesuffix(")").split(",")
    return pa.decimal128(int(digits), int(scale))


MANIFEST = "job.json"
DATA = "data"


def create_folder(folder: Path) -> None:
    """Make a job's folder, or take one that is empty or holds another job, also one that could not begin.

    The files of another job count no more then.

    Raises UserError where it holds something else or is a URL, SourceError where it cannot be made.
    """
    refuse_url(folder)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if not (folder / MANIFEST).is_file() and not all(map(_is_of_a_job, folder.iterdir())):
            raise UserError(f"--out {folder}: holds something that is not a job; name another folder")
        (folder / DATA).mkdir(exist_ok=True)
    except OSError as error:
        raise SourceError(f"{folder}: cannot make the job's folder: {error.strerror or error}") from None


def _is_of_a_job(path: Path) -> bool:
    """Whether it is what a job leaves whose first manifest could not be written."""
    if path.name == DATA:
        return path.is_dir() and not any(path.iterdir())
    return path.name.startswith(f".{MANIFEST}.")


def write_manifest(folder: Path, manifest: Manifest) -> None:
    """Replace the manifest: a reader sees the one before or this one. Raises OutputError."""
    replace_file(folder / MANIFEST, msgspec.json.format(msgspec.json.encode(manifest), indent=1))


def read_manifest(folder: Path) -> Manifest:
    """Raises UserError where there is no job, or one of another format."""
    path = folder / MANIFEST
    try:
        data = path.read_bytes()
    except OSError:
        raise UserError(f"{folder}: no job there (no {MANIFEST}); name the --out of a backtest") from None
    try:
        head = msgspec.json.decode(data)
        if head.get("format") != FORMAT_VERSION:
            raise UserError(
                f"{path}: format {head.get('format')}, this program reads {FORMAT_VERSION}; read it with "
                "the version of the program that wrote it, or run the job again into another folder"
            )
        return msgspec.json.decode(data, type=Manifest)
    except (msgspec.MsgspecError, AttributeError) as error:
        raise UserError(f"{path}: not a manifest of a job: {error}") from None


def remove_unlisted(folder: Path, manifest: Manifest) -> None:
    """Delete data files that no manifest lists, of retried and failed tasks; when no task runs any more.

    What cannot be deleted stays: it counts nowhere.
    """
    listed = manifest.listed
    with suppress(OSError):
        for path in (folder / DATA).iterdir():
            if f"{DATA}/{path.name}" not in listed:
                path.unlink(missing_ok=True)


class DatasetWriter:
    """Writes rows of one dataset to one file under a unique name, in any order, row groups as given.

    Nothing is there before the first row, and what `close` does not name counts nowhere.
    """

    def __init__(self, folder: Path, name: str, dataset: Dataset) -> None:
        self._folder = folder
        self._path = f"{DATA}/{name}-{secrets.token_hex(8)}.parquet"
        self._schema = schema_of(dataset)
        self._file: ParquetFile | None = None
        self._rows = 0
        self._versions: list[tuple[int, int, int]] = []

    def write(self, table: pa.Table) -> None:
        """Append rows. Raises DataError for values that do not fit, OutputError where it cannot write."""
        if not table.num_rows:
            return
        try:
            table = table.cast(self._schema)
            if self._file is None:
                own, delta = _encodings(self._schema)
                self._file = ParquetFile(self._folder / self._path, self._schema, own, delta)
            self._file.write(table)
        except pa.ArrowException as error:
            raise DataError(f"{self._path}: a value does not fit the history: {error}") from None
        self._rows += table.num_rows
        if VERSION_COLUMNS[0] in self._schema.names:
            self._versions += _bounds(table)

    def close(self) -> Sequence[DataFile]:
        """The file, if there were rows. Raises OutputError where it cannot be finished."""
        if self._file is None:
            return ()
        self._file.close()
        versions = self._versions or [(0, 0, 0)]
        return (DataFile(self._path, self._rows, min(versions), max(versions)),)


# Integers of which a file has few.
_FEW = ("switch", PLACE, MULTIPLICITY)


def _encodings(schema: pa.Schema) -> tuple[list[str], list[str]]:
    """Columns in a dictionary, and columns as differences.

    Beside Arrow's own choice it takes two thirds of the time to write, and of the bytes: versions and counts
    move slowly, and sums repeat seldom.
    """
    few = [field.name for field in schema if pa.types.is_string(field.type) or field.name in _FEW]
    whole = (f for f in schema if pa.types.is_int64(f.type) or pa.types.is_timestamp(f.type))
    return few, [field.name for field in whole if field.name not in few]


def _bounds(table: pa.Table) -> list[tuple[int, int, int]]:
    """The first and the last version of a table's rows."""
    columns = [table[name].to_numpy() for name in VERSION_COLUMNS]
    order = np.lexsort(columns[::-1])
    first, last = (tuple(int(column[place]) for column in columns) for place in (order[0], order[-1]))
    return [first, last]  # type: ignore[list-item]


class HistoryTables:
    """Makes tables of the history of one view; `keys` are its keys as users see them.

    words: the dictionary whose codes the rows hold.
    """

    def __init__(self, result: Result, keys: Sequence[str], dictionary: Dictionary) -> None:
        self.dataset = history_of(result, keys)
        self._schema = schema_of(self.dataset)
        self._words = dictionary
        places = {key.name: place for place, key in enumerate(result.keys)}
        named = zip(keys, self.dataset.keys, strict=True)
        self._keys = [(own, places[name], result.keys[places[name]].type) for name, own in named]
        self._columns = [
            (self.dataset.columns[column.name], at, wide, column.type)
            for column, (at, wide) in zip(result.columns, RowFormat(result).columns, strict=True)
            if self.dataset.columns[column.name] not in self.dataset.keys
        ]

    def table(self, history: History) -> pa.Table:
        """The rows of a history, in its order; raises DataError for a value of more than 38 digits."""
        arrays = {name: pa.array(history.looks[name]) for name in VERSION_COLUMNS}
        for name, place, kind in self._keys:
            codes = np.ascontiguousarray(history.keys[:, place])
            arrays[name] = self._array(name, kind, codes, codes != NULL_CODE)
        counts = np.ascontiguousarray(history.rows[:, 0])
        there = counts != 0
        for name, at, wide, kind in self._columns:
            values = np.ascontiguousarray(history.rows[:, at + 1])
            high = np.ascontiguousarray(history.rows[:, at + 2]) if wide else None
            arrays[name] = self._array(name, kind, values, there & (history.rows[:, at] != 0), high)
        arrays[GONE] = pa.array(~there)
        arrays[MULTIPLICITY] = pa.array(counts, mask=~there)
        return pa.table([arrays[name] for name in self._schema.names], schema=self._schema)

    def _array(
        self, name: str, kind: Type, values: np.ndarray, there: np.ndarray, high: np.ndarray | None = None
    ) -> pa.Array:
        return column_array(name, self._schema.field(name).type, kind, self._words, values, there, high)


# Rows that are held until they are written together.
_HELD_ROWS = 1 << 16


class DatasetTables:
    """Takes rows as a DatasetWriter does; they are in no file, but held until they are taken."""

    def __init__(self, dataset: Dataset) -> None:
        self._schema = schema_of(dataset)
        self._held: list[pa.Table] = []

    def write(self, table: pa.Table) -> None:
        """Append rows. Raises DataError for values that do not fit."""
        try:
            self._held.append(table.cast(self._schema))
        except pa.ArrowException as error:
            raise DataError(f"a value does not fit the history: {error}") from None

    def taken(self) -> Sequence[pa.Table]:
        """What has been written since the last time."""
        held, self._held = self._held, []
        return held

    def close(self) -> Sequence[DataFile]:
        """No file."""
        return ()


class _Writers(ABC):
    """Files of several datasets; some rows of each are held and written together.

    folder: None: the rows are for whoever takes them.
    """

    def __init__(self, folder: Path | None, datasets: Mapping[str, Dataset]) -> None:
        self._writers: dict[str, DatasetWriter | DatasetTables] = {
            name: DatasetTables(dataset) if folder is None else DatasetWriter(folder, name, dataset)
            for name, dataset in datasets.items()
        }
        self._held: dict[str, list[Any]] = {name: [] for name in datasets}
        self._counts = dict.fromkeys(datasets, 0)

    def taken(self) -> Iterator[tuple[str, pa.Table]]:
        """The tables that are in no file, each with the name of its dataset."""
        for name, writer in self._writers.items():
            if isinstance(writer, DatasetTables):
                yield from ((name, table) for table in writer.taken())

    @abstractmethod
    def _table(self, name: str, held: list[Any]) -> pa.Table:
        """What is held of a dataset as one table."""

    def _hold(self, name: str, part: Any, rows: int) -> None:
        self._held[name].append(part)
        self._counts[name] += rows
        if self._counts[name] >= _HELD_ROWS:
            self._flush(name)

    def close(self) -> dict[str, Sequence[DataFile]]:
        """Write what is held; the files of every dataset."""
        for name in self._writers:
            self._flush(name)
        return {name: writer.close() for name, writer in self._writers.items()}

    def _flush(self, name: str) -> None:
        held, self._held[name] = self._held[name], []
        self._counts[name] = 0
        if held:
            self._writers[name].write(self._table(name, held))


class HistoryWriters(_Writers):
    """Files of the histories of views; `keys` are their keys as users see them."""

    def __init__(
        self,
        folder: Path | None,
        results: Iterable[Result],
        keys: Mapping[str, Sequence[str]],
        dictionary: Dictionary,
    ) -> None:
        self._tables = {
            result.name: HistoryTables(result, keys[result.name], dictionary) for result in results
        }
        super().__init__(folder, {name: tables.dataset for name, tables in self._tables.items()})
        self.rows = 0

    def write(self, history: Mapping[str, History]) -> None:
        """Append rows. Raises DataError and OutputError as DatasetWriter does."""
        for name, rows in history.items():
            if len(rows):
                self.rows += len(rows)
                self._hold(name, self._tables[name].table(rows), len(rows))

    def _table(self, name: str, held: list[Any]) -> pa.Table:
        return pa.concat_tables(held)


class OrderWriters(_Writers):
    """Files of strategies' orders and fills and of the market they saw, given as rows of these datasets."""

    def __init__(self, folder: Path | None) -> None:
        datasets = {
            "orders": orders_dataset(), "fills": fills_dataset(),
            "market": market_dataset(), "signals": signals_dataset(),
        }  # fmt: skip
        super().__init__(folder, datasets)
        self._schemas = {name: schema_of(dataset) for name, dataset in datasets.items()}

    def write(self, name: str, row: Mapping[str, Any]) -> None:
        """Append a row to "orders", "fills", "market" or "signals"."""
        self._hold(name, row, 1)

    def write_table(self, name: str, table: pa.Table) -> None:
        """Append the rows of a table that has the dataset's columns, in any order."""
        self._writers[name].write(table.select(self._schemas[name].names))

    def _table(self, name: str, held: list[Any]) -> pa.Table:
        return pa.Table.from_pylist(held, self._schemas[name])
