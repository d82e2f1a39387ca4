"""The columns of a job's datasets: histories of views, orders and fills, and what strategies saw.

Files have them as every reader of Parquet and Delta takes them. Those have no times finer than a microsecond:
beside a time, its microseconds, stands the same in nanoseconds since 1970, `NAME_ns`.
"""

import re
from collections.abc import Sequence

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from orderbook.market.instruments import SCALE
from orderbook.views.calculus import Apply, Const
from orderbook.views.encoding.arrow import MOST_DIGITS, TIMESTAMP, arrow_type
from orderbook.views.m3 import Result, ResultColumn, ResultKey

# (stamp, switch, sequence), as in the history's columns.
JobVersion = tuple[int, int, int]


class Field(msgspec.Struct, frozen=True):
    """A column of a dataset; `type` as Arrow prints it."""

    name: str
    type: str


class DataFile(msgspec.Struct, frozen=True):
    """A Parquet file of a dataset, by its path in the job's folder.

    size: in bytes; statistics: what Delta's log says of its columns, JSON; both of files that are in no table
    yet.
    """

    path: str
    rows: int
    size: int = 0
    statistics: str = ""


class Dataset(msgspec.Struct, frozen=True):
    """A table of a job: a view's history, strategies' orders or fills, or another.

    fields: all columns, in order. keys: those that tell rows apart. columns: for each column of the view its
    name among the fields. path: the folder of the Delta table in the job's. files: those of `version` of that
    table, -1 where it has none yet. tentative: likewise, of the table in `tentative_path`, of a job that goes
    on, whose rows may still be replaced.
    """

    fields: tuple[Field, ...]
    keys: tuple[str, ...]
    columns: dict[str, str]
    path: str
    version: int = -1
    tentative_version: int = -1
    files: tuple[DataFile, ...] = ()
    tentative: tuple[DataFile, ...] = ()

    @property
    def tentative_path(self) -> str:
        """The folder of the table of rows that may still be replaced."""
        return f"tentative/{self.path.rpartition('/')[2]}"

    @property
    def rows(self) -> int:
        """Rows of the files that are committed."""
        return sum(file.rows for file in self.files)


VERSION_COLUMNS = ("stamp", "switch", "sequence")
GONE, MULTIPLICITY, PLACE, PARTITION_KEY = "gone", "multiplicity", "place", "partition_key"
_RESERVED = {*VERSION_COLUMNS, GONE, MULTIPLICITY}

_FILE_TIME = pa.timestamp("us", "UTC")
# Texts of which each different one is there once.
ENCODED = pa.dictionary(pa.int32(), pa.string())
_DECIMAL = pa.decimal128(MOST_DIGITS, SCALE)
_RATE_SCALE = 12
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
    return Dataset(
        tuple(fields), tuple(names[name] for name in keys), columns, f"views/{_folder_name(result.name)}"
    )


def _folder_name(name: str) -> str:
    """A view's name as a folder's: other characters than letters, digits, _ and - as ~ and their code."""
    return re.sub(r"[^\w-]", lambda found: f"~{ord(found[0]):x}", name, flags=re.ASCII)


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
    return _versioned("orders", own, ("strategy", PARTITION_KEY, "id"), placed=True)


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
    keys = ("strategy", PARTITION_KEY, "order_id", *VERSION_COLUMNS, PLACE)
    return _versioned("fills", own, keys, placed=True)


def payments_dataset() -> Dataset:
    """Funding of strategies' positions, in the currency of the settlement; `amount` is what was received. Its
    version's `stamp` is when it was due."""
    text, rate = pa.string(), pa.decimal128(MOST_DIGITS, _RATE_SCALE)
    own = {
        "ts": TIMESTAMP,
        "strategy": text,
        "venue": text,
        "symbol": text,
        "volume": _DECIMAL,
        "price": _DECIMAL,
        "rate": rate,
        "amount": _DECIMAL,
    }
    return _versioned("payments", own, ("strategy", PARTITION_KEY, "venue", "symbol", "stamp"), placed=True)


def market_dataset() -> Dataset:
    """The touch of books before times, `stamp`, of a grid, just after fills, and HORIZONS after both; null
    where a side was empty or the book not valid."""
    text = pa.string()
    own = {"venue": text, "symbol": text, "bid": _DECIMAL, "ask": _DECIMAL}
    return _versioned("market", own, ("venue", "symbol"))


def signals_dataset() -> Dataset:
    """Columns of views that strategies go by, and BASELINES, at the grid's times of `market_dataset`."""
    text = pa.string()
    own = {"venue": text, "symbol": text, "view": text, "column": text, "value": pa.float64()}
    return _versioned("signals", own, ("venue", "symbol", "view", "column"))


def strategy_tables() -> dict[str, Dataset]:
    """What a backtest's strategies leave beside orders and fills, by name."""
    return {"payments": payments_dataset(), "market": market_dataset(), "signals": signals_dataset()}


def table_dataset(name: str, schema: pa.Schema) -> Dataset:
    """A table without versions. Raises KeyError for a type that jobs do not hold."""
    fields = tuple(Field(field.name, str(_type(str(field.type)))) for field in schema)
    return Dataset(fields, (), {field.name: field.name for field in fields}, f"tables/{name}")


def _versioned(
    table: str, own: dict[str, pa.DataType], keys: tuple[str, ...], placed: bool = False
) -> Dataset:
    """A dataset of these columns after the version, and with `placed` after the place in it and the key."""
    types: dict[str, pa.DataType] = dict.fromkeys(VERSION_COLUMNS, pa.int64())
    if placed:
        types[PLACE], own = pa.int64(), {PARTITION_KEY: pa.string(), **own}
    fields = tuple(Field(name, str(kind)) for name, kind in (types | own).items())
    return Dataset(fields, keys, {name: name for name in own}, f"tables/{table}")


def schema_of(dataset: Dataset) -> pa.Schema:
    """The Arrow schema of a dataset's rows."""
    return pa.schema([(field.name, _type(field.type)) for field in dataset.fields])


def nanosecond_columns(dataset: Dataset) -> dict[str, str]:
    """For each time the column of files that has its nanoseconds."""
    names, found = {field.name for field in dataset.fields}, {}
    for field in dataset.fields:
        if field.type == str(TIMESTAMP):
            name = f"{field.name}_ns"
            while name in names:
                name += "_"
            names.add(name)
            found[field.name] = name
    return found


def file_schema(dataset: Dataset) -> pa.Schema:
    """The Arrow schema of a dataset's files."""
    nanoseconds, fields = nanosecond_columns(dataset), []
    for field in schema_of(dataset):
        if field.name in nanoseconds:
            fields += [field.with_type(_FILE_TIME), pa.field(nanoseconds[field.name], pa.int64())]
        else:
            fields.append(field)
    return pa.schema(fields)


def rows_of(dataset: Dataset, table: pa.Table) -> pa.Table:
    """The rows of a table as files have them, with whole times."""
    for name, own in nanosecond_columns(dataset).items():
        table = table.set_column(table.column_names.index(name), name, table[own].cast(TIMESTAMP))
    return table.select([field.name for field in dataset.fields])


def encoded(schema: pa.Schema) -> pa.Schema:
    """The schema with texts in a dictionary, as files have them on their way to Parquet, which keeps none."""
    return pa.schema([f.with_type(ENCODED) if pa.types.is_string(f.type) else f for f in schema])


def file_table(dataset: Dataset, table: pa.Table) -> pa.Table:
    """Rows as files have them, texts `encoded`. Raises what Arrow raises for values that do not fit."""
    table, columns = table.cast(encoded(schema_of(dataset))), []
    nanoseconds = nanosecond_columns(dataset)
    for name, column in zip(table.column_names, table.columns, strict=True):
        if name in nanoseconds:
            columns += [
                pc.floor_temporal(column, unit="microsecond").cast(_FILE_TIME),
                column.cast(pa.int64()),
            ]
        else:
            columns.append(column)
    return pa.table(columns, schema=encoded(file_schema(dataset))).unify_dictionaries()


def _type(text: str) -> pa.DataType:
    if text in _PLAIN:
        return _PLAIN[text]
    digits, scale = text.removeprefix("decimal128(").removesuffix(")").split(",")
    return pa.decimal128(int(digits), int(scale))
