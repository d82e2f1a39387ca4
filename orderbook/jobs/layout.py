"""The columns of a job's datasets: histories of views, orders and fills."""

from collections.abc import Sequence

import pyarrow as pa

from orderbook.arrow_types import MOST_DIGITS, TIMESTAMP, arrow_type
from orderbook.instruments import SCALE
from orderbook.jobs.manifest import Dataset, Field
from views.compiler.calculus import Apply, Const
from views.compiler.m3 import Result, ResultColumn, ResultKey

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
        "ts": TIMESTAMP, "strategy": text, "id": pa.int64(), "venue": text, "symbol": text, "side": text,
        "volume": _DECIMAL, "price": _DECIMAL, "filled": _DECIMAL, "status": text, "reason": text,
    }
    return _placed(own, ("strategy", PARTITION_KEY, "id"))


def fills_dataset() -> Dataset:
    """All fills of strategies' orders; see `orders_dataset`."""
    text = pa.string()
    own = {
        "ts": TIMESTAMP, "strategy": text, "order_id": pa.int64(), "venue": text, "symbol": text,
        "side": text, "volume": _DECIMAL, "price": _DECIMAL, "fee": _DECIMAL, "liquidity": text,
    }
    return _placed(own, ("strategy", PARTITION_KEY, "order_id", *VERSION_COLUMNS, PLACE))


def market_dataset() -> Dataset:
    """The touch of books at times of a grid, `stamp`; null where a side was empty or the book not valid."""
    text = pa.string()
    own = {"venue": text, "symbol": text, "bid": _DECIMAL, "ask": _DECIMAL}
    return _versioned(own, ("venue", "symbol"))


def signals_dataset() -> Dataset:
    """Columns of views that strategies go by, at the times of `market_dataset`."""
    text = pa.string()
    own = {"venue": text, "symbol": text, "view": text, "column": text, "value": pa.float64()}
    return _versioned(own, ("venue", "symbol", "view", "column"))


def table_dataset(schema: pa.Schema) -> Dataset:
    """A table without versions. Raises KeyError for a type that jobs do not hold."""
    fields = tuple(Field(field.name, str(_type(str(field.type)))) for field in schema)
    return Dataset(fields, (), {field.name: field.name for field in fields})


def _versioned(own: dict[str, pa.DataType], keys: tuple[str, ...]) -> Dataset:
    types = {**dict.fromkeys(VERSION_COLUMNS, pa.int64()), **own}
    fields = tuple(Field(name, str(kind)) for name, kind in types.items())
    return Dataset(fields, keys, {name: name for name in own})


def _placed(own: dict[str, pa.DataType], keys: tuple[str, ...]) -> Dataset:
    types = {**dict.fromkeys((*VERSION_COLUMNS, PLACE), pa.int64()), PARTITION_KEY: pa.string(), **own}
    fields = tuple(Field(name, str(kind)) for name, kind in types.items())
    return Dataset(fields, keys, {name: name for name in (PARTITION_KEY, *own)})


def schema_of(dataset: Dataset) -> pa.Schema:
    """The Arrow schema of a dataset's files."""
    return pa.schema([(field.name, _type(field.type)) for field in dataset.fields])


def _type(text: str) -> pa.DataType:
    if text in _PLAIN:
        return _PLAIN[text]
    digits, scale = text.removeprefix("decimal128(").removesuffix(")").split(",")
    return pa.decimal128(int(digits), int(scale))
