"""Rows of a user's own DataFrames as rows of the streams that a program declares.

A column of the DataFrame is matched with the declared one by its name, or as `columns` says. Each row is an
insert, or what its `op` says; `order` says when it happened. Rows of equal order are one change, of all
streams together.

What an input partition holds becomes blocks, which are sent to the partitions of the stages that read them
and merged there by order. So of rows that come in order little is held at a time, and of others all.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial, reduce
from itertools import groupby

import numpy as np
import polars as pl
import pyarrow as pa
from numpy.typing import NDArray
from pyspark.sql import Column as SparkColumn
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sql
from pyspark.sql import types as spark

from orderbook.backtesting.plan import layout_of
from orderbook.backtesting.relation_rows import RowAdmission, timed_relations
from orderbook.backtesting.shuffle import Sender, taken_in
from orderbook.backtesting.tasks import JobSettings
from orderbook.core.changes import NULL_CODE, Dictionary
from orderbook.core.errors import DataError, Problems, UserError, nearest, suggestion
from orderbook.engine.distribution.blocks import (
    VERSION,
    Block,
    Sent,
    encode_blocks,
    row_version,
    taken,
    text_columns,
)
from orderbook.engine.distribution.stages import StableHash
from orderbook.spark.batch import SCHEMA, map_blocks, reduce_blocks, sent_batch
from orderbook.spark.workers import map_in_workers
from orderbook.views.binding.catalog import bind
from orderbook.views.encoding.frames import encode_frame
from orderbook.views.program import CompiledProgram
from orderbook.views.types import BIGINT, TIMESTAMP, Column, Kind, Relation

# The stamp of rows without an order: before all others.
FIRST = -(2**62)
# Rows that are sorted together and sent as blocks.
_SORTED = 1 << 18
# The stage of rows that are on their way to be checked.
_CHECKED = -4
_ORDER, _OP = "#order", "#op"
_TAKEN = {
    Kind.TEXT: (spark.StringType, spark.CharType, spark.VarcharType),
    Kind.BOOLEAN: (spark.BooleanType,),
    Kind.TIMESTAMP: (spark.TimestampType, spark.TimestampNTZType, spark.LongType),
    Kind.DOUBLE: (spark.NumericType,),
    Kind.INTEGER: (spark.IntegralType, spark.DecimalType, spark.StringType),
    Kind.DECIMAL: (spark.NumericType, spark.StringType),
}
_INSERTS, _DELETES = ("+", "insert", "i", "1"), ("-", "delete", "d", "-1")


@dataclass(frozen=True, slots=True)
class Rows:
    """The rows of a stream or table, out of a DataFrame.

    order: one or two columns, a timestamp or integer and an integer, that say when each row happened; rows of
    tables that never change need none, and come first. None: a column `ts`, where there is one. op: the
    column that says what a row does, "+" or "-" ("insert", "delete"); None: a column `op`, where there is one
    that the stream does not declare; without one all rows are inserts. columns: for declared columns that the
    DataFrame calls otherwise, its name.
    """

    frame: DataFrame
    order: str | Sequence[str] | None = None
    op: str | None = None
    columns: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Table:
    """Rows that are matched with their relation: the columns are `relation`'s, then orders, then the op."""

    frame: DataFrame
    relation: Relation
    orders: int
    deletes: bool


@dataclass(frozen=True, slots=True)
class _Read:
    """What a worker knows of a Table."""

    relation: Relation
    orders: int
    deletes: bool


def tables_of(rows: Mapping[str, Rows], program: CompiledProgram) -> list[Table]:
    """DataFrames matched with the streams that a program declares.

    Raises UserError where a stream that views read has none, one is of no stream, or columns do not fit.
    """
    relations = {relation.name: relation for relation in program.streams}
    for name in rows:
        if name not in relations:
            raise UserError(f"the views declare no stream {name!r}; {suggestion(name, relations)}")
    known = {relation.name for relation in bind(()).relations}
    read = {trigger.relation for trigger in program.program.triggers}
    absent = [name for name in relations if name in read and name not in rows and name not in known]
    if absent:
        raise UserError(f"views read {', '.join(absent)}: give a DataFrame for each, by name")
    timed = timed_relations(program)
    if timed:
        raise UserError(
            f"views need a clock ({', '.join(sorted(timed))}: NOW() or RETAIN), which rows of DataFrames do "
            "not have; compare with a column, or give paths"
        )
    return [_table(name, one, relations[name]) for name, one in rows.items() if name in read]


def _table(name: str, rows: Rows, relation: Relation) -> Table:
    found = {column.name: column for column in rows.frame.schema.fields}
    by_lower = {own.lower(): own for own in found}
    declared = [column.name for column in relation.columns]
    for given in rows.columns:
        if given not in declared:
            raise UserError(f"stream {name}: columns names {given!r}; {suggestion(given, declared)}")

    def place(wanted: str, what: str) -> str:
        own = rows.columns.get(wanted, wanted)
        if own not in found and own.lower() not in by_lower:
            raise UserError(
                f"stream {name}: the DataFrame has no {what} {own!r}{_meant(own, list(found))}; say which "
                f"one it is: columns={{{wanted!r}: …}}"
            )
        return own if own in found else by_lower[own.lower()]

    chosen = []
    for column in relation.columns:
        if column.hidden and column.name not in rows.columns and column.name not in by_lower:
            raise UserError(
                f"stream {name}: views tell its rows apart, and nothing says which of equal ones came "
                f"first; declare a PRIMARY KEY, or give a column {column.name!r} that counts them"
            )
        own = place(column.name, "column")
        _check_type(name, column, own, found[own].dataType)
        chosen.append(_quoted(own).alias(column.name))
    orders = [rows.order] if isinstance(rows.order, str) else list(rows.order or ())
    if not orders and "ts" in by_lower:
        orders = [by_lower["ts"]]
    if not orders and not relation.static:
        raise UserError(
            f"stream {name}: which column says the order of its rows? give order='…', a timestamp or "
            f"integers (one or two); it has {', '.join(found)}"
        )
    if len(orders) > 2:
        raise UserError(f"stream {name}: order has {len(orders)} columns; two are the most")
    for number, own in enumerate(orders):
        own = place(own, "order column")
        types = (spark.IntegralType,) if number else (
            spark.IntegralType, spark.TimestampType, spark.TimestampNTZType
        )  # fmt: skip
        if not isinstance(found[own].dataType, types):
            kinds = "an integer" if number else "a timestamp or an integer"
            raise UserError(
                f"stream {name}: order column {own} is {found[own].dataType.simpleString()}; "
                f"it must be {kinds}"
            )
        chosen.append(_quoted(own).alias(f"{_ORDER}{number}"))
    op = rows.op
    if op is None and "op" not in declared and "op" in by_lower:
        op = by_lower["op"]
    if op is not None:
        chosen.append(_quoted(place(op, "op column")).cast("string").alias(_OP))
    return Table(rows.frame.select(*chosen), relation, len(orders), op is not None)


def _check_type(stream: str, column: Column, own: str, kind: spark.DataType) -> None:
    if not isinstance(kind, (*_TAKEN[column.type.kind], spark.NullType)):
        raise UserError(
            f"stream {stream}: column {own} is {kind.simpleString()}, and {column.name} is declared "
            f"{column.type}; cast it, or declare it otherwise"
        )


def _quoted(name: str) -> SparkColumn:
    return sql.col(f"`{name.replace('`', '``')}`")


def _meant(name: str, known: Sequence[str]) -> str:
    near = nearest(name, known)
    return f" (did you mean {near!r}?)" if near else f"; it has {', '.join(known)}"


def table_frame(
    session: SparkSession, tables: Sequence[Table], settings: JobSettings, allow_incomplete: bool
) -> DataFrame:
    """The rows of all streams as blocks for the stages that read them.

    Rows that may contradict others, those of streams with deletes or a primary key, are sent to where all of
    that key, or of equal columns, meet, and checked there, in order.
    """
    # Stages over everything have rows where no row comes.
    frames = [map_blocks(session, [b""], partial(_starts, settings))]
    checked = frozenset(one.relation.name for one in tables if one.deletes or one.relation.primary_key)
    for one in tables:
        made = partial(
            _blocks, settings, _Read(one.relation, one.orders, one.deletes), one.relation.name in checked
        )
        frames.append(map_in_workers(one.frame, made, SCHEMA))
    frame = reduce(DataFrame.union, frames)
    if checked:
        task = partial(_checked, settings, checked, allow_incomplete)
        frame = reduce_blocks(frame, task, settings.partitions)
    return frame


def _starts(settings: JobSettings, description: bytes) -> Iterator[Sent]:
    layout = layout_of(settings)
    yield from Sender(layout, -1, layout.program.dictionary).starts()


def _blocks(
    settings: JobSettings, table: _Read, checked: bool, batches: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """In a worker: the rows of one input partition, some at a time in order, as blocks."""
    layout = layout_of(settings)
    words = layout.program.dictionary
    sender, hashes = Sender(layout, -1, words), StableHash(words)
    texts = text_columns([table.relation])
    for batch in together(batches, _SORTED):
        block = block_of(
            pl.DataFrame(pl.from_arrow(batch)), table.relation, table.orders, table.deletes, words
        )
        if not checked:
            for sent in (*sender.add([block]), *sender.close()):
                yield sent_batch(sent)
            continue
        numbers = _meeting(block, table.relation, hashes) % np.uint64(settings.partitions)
        for number in np.unique(numbers).tolist():
            own = taken(block, np.flatnonzero(numbers == number))
            data = encode_blocks([own], texts, words)
            first, last = row_version(own.versions[0]), row_version(own.versions[-1])
            yield sent_batch(Sent(number, _CHECKED, table.relation.name, first, last, len(own), data))


def _meeting(block: Block, relation: Relation, hashes: StableHash) -> NDArray[np.uint64]:
    """Hashes of rows, equal for equal keys, or equal rows of a stream without a key."""
    found = np.zeros(len(block), np.uint64)
    for place, column in enumerate(relation.columns):
        if not relation.primary_key or column.name in relation.primary_key:
            values = np.ascontiguousarray(block.values[:, place])
            found = found * np.uint64(31) + hashes.of(values, column.type)
    return found


def _checked(
    settings: JobSettings, names: frozenset[str], allow_incomplete: bool, partition: int, sent: Iterable[Sent]
) -> Iterator[Sent]:
    """In a worker: rows of some keys that do not contradict each other, for the stages; others as they are.

    Raises DataError for the first that does.
    """
    layout, problems = layout_of(settings), Problems()
    words, relations = layout.program.dictionary, layout.program.relations
    others = {relation.name for relation in relations} - names
    rows = RowAdmission([replace(one, retain=None) for one in relations], words, problems, others)
    sender = Sender(layout, -1, words)
    for stage, group in groupby(sent, key=lambda one: one.stage):
        if stage != _CHECKED:
            yield from group
            continue
        for blocks, _ in taken_in(group, words):
            admitted = rows.admit(blocks)
            for line in () if allow_incomplete else problems.report():
                raise DataError(line)
            # What is sent together is in order, and so are later blocks.
            yield from sender.add(admitted)
            yield from sender.close()


def together(batches: Iterable[pa.RecordBatch], rows: int) -> Iterator[pa.Table]:
    """Batches joined until they have so many rows; none is empty."""
    held: list[pa.RecordBatch] = []
    for batch in batches:
        if batch.num_rows:
            held.append(batch)
        if sum(one.num_rows for one in held) >= rows:
            yield pa.Table.from_batches(held)
            held = []
    if held:
        yield pa.Table.from_batches(held)


def block_of(frame: pl.DataFrame, relation: Relation, orders: int, deletes: bool, words: Dictionary) -> Block:
    """Rows, as `Table` has them, sorted by their order. Raises DataError that names one that does not fit."""
    versions = np.zeros(len(frame), VERSION)
    versions["stamp"] = FIRST
    for number, name in zip(range(orders), ("stamp", "sequence"), strict=False):
        column = f"{_ORDER}{number}"
        codes = encoded(frame.select(column), _order_column(column, frame[column]), words)[:, 0]
        if (codes == NULL_CODE).any():
            raise DataError(f"stream {relation.name}: a row has no value in its order column")
        versions[name] = codes
    versions["last"] = versions["sequence"]
    signs = np.zeros(len(frame), np.bool_)
    if deletes:
        ops = frame[_OP].str.to_lowercase().str.strip_chars()
        signs = ops.is_in(_DELETES).fill_null(value=False).to_numpy()
        wrong = frame[_OP].filter(~(pl.Series(signs) | ops.is_in(_INSERTS)).fill_null(value=False))
        if len(wrong):
            raise DataError(f"stream {relation.name}: op {wrong[0]!r} of a row; give + or -")
    rows = frame.select(column.name for column in relation.columns)
    try:
        values = encoded(rows, relation, words)
    except DataError as error:
        raise DataError(f"stream {_with_version(str(error), versions)}") from None
    order = np.lexsort([~signs, versions["sequence"], versions["stamp"]])
    return Block(relation.name, versions.take(order), signs.take(order), values.take(order, 0))


def _with_version(text: str, versions: NDArray[np.void]) -> str:
    """The text of an error, with the order of its row in place of a number in the batch."""
    found = re.match(r"row (\d+), (.*)", text, re.DOTALL)
    if found is None:
        return text
    row = versions[int(found[1])]
    return f"{found[2]} (in the row of order {int(row['stamp'])}, {int(row['sequence'])})"


def _order_column(name: str, series: pl.Series) -> Relation:
    kind = BIGINT if series.dtype.is_integer() else TIMESTAMP
    return Relation(name, (Column(name, kind),))


def encoded(frame: pl.DataFrame, relation: Relation, words: Dictionary) -> NDArray[np.int64]:
    """The columns of a relation, int64[n, width]. Raises DataError that begins with the row and column."""
    own = Relation(relation.name, relation.columns)
    names = [f"c{place}" for place in range(len(own.columns))]
    plain = Relation(
        own.name, tuple(Column(n, c.type, c.nullable) for n, c in zip(names, own.columns, strict=True))
    )
    changes = frame.rename(dict(zip(frame.columns, names, strict=True))).with_columns(
        stream=pl.lit(own.name), op=pl.lit("+")
    )
    try:
        return encode_frame(changes, [plain], words).values
    except DataError as error:
        # Columns may be called as those of control are.
        text = re.sub(
            rf"{re.escape(own.name)}\.c(\d+):",
            lambda m: f"{own.name}.{own.columns[int(m[1])].name}:",
            str(error),
        )
        raise DataError(text) from None
