"""Events of markets in DataFrames: orders, levels and trades in the columns of the usual vendors.

Input partitions turn their rows into EVENT records, which are sent to a task for each bucket of symbols; it
merges them by order, keeps the books, and goes on as a task that reads files.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import groupby
from typing import Any, Literal

import msgspec
import numpy as np
import polars as pl
import pyarrow as pa
from numpy.typing import NDArray
from pyspark.sql import Column as SparkColumn
from pyspark.sql import DataFrame
from pyspark.sql import functions as sql
from pyspark.sql import types as spark

from orderbook.backtesting.plan import layout_of
from orderbook.backtesting.task_runner import read_task
from orderbook.backtesting.tasks import SYMBOLS, JobSettings, ReadTask
from orderbook.core.changes import NULL_CODE, Dictionary
from orderbook.core.errors import DataError, UserError, nearest
from orderbook.engine.distribution.blocks import VERSION, RowVersion, Sent
from orderbook.engine.distribution.stages import StableHash
from orderbook.feeds.merge import NOTHING, Slice, VersionedEvents
from orderbook.market.events import EVENT, Action, BookState, Flag, Side, StateReason
from orderbook.market.instruments import FINEST, Instrument, Instruments
from orderbook.spark.batch import SCHEMA, sent_batch
from orderbook.spark.table_frames import encoded, together
from orderbook.spark.workers import map_in_workers
from orderbook.views.types import BIGINT, INTEGER, TEXT, TIMESTAMP, Column, Relation, decimal

Kind = Literal["orders", "levels", "trades", "events"]
TimeUnit = Literal["ns", "us", "ms", "s"]

# What the columns of the usual vendors are called, the first that is there.
ALIASES: Mapping[str, tuple[str, ...]] = {
    "time": (
        "receive_time", "ts_recv", "local_timestamp", "ts", "time", "timestamp", "exchange_time", "ts_event",
        "event_time", "transact_time",
    ),
    "exchange_time": ("exchange_time", "ts_event", "event_time", "transact_time", "timestamp"),
    "symbol": ("symbol", "instrument", "ticker", "raw_symbol", "product_id"),
    "venue": ("venue", "exchange", "publisher", "publisher_id"),
    "side": ("side", "aggressor", "taker_side", "direction"),
    "price": ("price", "px"),
    "volume": ("volume", "size", "qty", "quantity", "amount"),
    "order_id": ("order_id", "id", "order_ref", "order_reference_number"),
    "action": ("action", "event_type", "update_type", "type"),
    "sequence": ("sequence", "seq", "sequence_number", "update_id"),
    "broker_id": ("broker_id",),
}  # fmt: skip
# What orders, levels and trades need, and may have beside.
_NEEDED: Mapping[str, tuple[str, ...]] = {
    "orders": ("time", "symbol", "action", "side", "order_id", "price", "volume"),
    "levels": ("time", "symbol", "side", "price", "volume"),
    "trades": ("time", "symbol", "price", "volume"),
}
_BESIDE: Mapping[str, tuple[str, ...]] = {
    "orders": ("exchange_time", "venue", "sequence", "broker_id"),
    "levels": ("exchange_time", "venue", "sequence"),
    "trades": ("exchange_time", "venue", "sequence", "side", "order_id"),
}
# Columns of `orderbook.events`.
EVENTS = pa.schema(
    [
        ("stamp", pa.int64()),
        ("switch", pa.int32()),
        ("sequence", pa.int64()),
        ("message", pa.int64()),
        ("time", pa.timestamp("us", "UTC")),
        ("venue", pa.string()),
        ("symbol", pa.string()),
        ("action", pa.string()),
        ("side", pa.string()),
        ("order_id", pa.int64()),
        ("price", pa.decimal128(38, 8)),
        ("volume", pa.decimal128(38, 8)),
        ("exchange_time", pa.int64()),
        ("receive_time", pa.int64()),
        ("exchange_sequence", pa.int64()),
        ("broker_id", pa.int32()),
        ("snapshot", pa.bool_()),
        ("detail", pa.int64()),
        ("detail_2", pa.int64()),
    ]
)
_ACTIONS: Mapping[str, Action | None] = {
    "add": Action.ADD, "a": Action.ADD, "new": Action.ADD, "insert": Action.ADD, "open": Action.ADD,
    "reduce": Action.REDUCE, "cancel": Action.REDUCE, "c": Action.REDUCE,
    "modify": Action.MODIFY, "m": Action.MODIFY, "change": Action.MODIFY, "update": Action.MODIFY,
    "replace": Action.MODIFY,
    "delete": Action.DELETE, "d": Action.DELETE, "remove": Action.DELETE, "done": Action.DELETE,
    "execute": Action.EXECUTE, "e": Action.EXECUTE, "fill": Action.EXECUTE,
    "clear": Action.CLEAR, "r": Action.CLEAR, "reset": Action.CLEAR,
    "trade": Action.TRADE, "t": Action.TRADE,
    # Databento's: a fill of a resting order, whose book changes by what follows, and no action.
    "f": None, "n": None, "none": None,
}  # fmt: skip
_SIDES: Mapping[str, Side] = {
    "bid": Side.BID, "b": Side.BID, "buy": Side.BID, "1": Side.BID,
    "ask": Side.ASK, "a": Side.ASK, "sell": Side.ASK, "s": Side.ASK, "-1": Side.ASK, "offer": Side.ASK,
    "none": Side.NONE, "n": Side.NONE, "": Side.NONE,
}  # fmt: skip
_PRICED = (
    Action.ADD, Action.REDUCE, Action.MODIFY, Action.DELETE, Action.EXECUTE, Action.LEVEL, Action.CLEAR,
    Action.TRADE, Action.LIQUIDATION,
)  # fmt: skip
_PER: Mapping[str, int] = {"ns": 1, "us": 10**3, "ms": 10**6, "s": 10**9}
_NUMBER = decimal(18, 8)
_TYPES = {
    "time": TIMESTAMP, "exchange_time": TIMESTAMP, "symbol": TEXT, "venue": TEXT, "side": TEXT,
    "price": _NUMBER, "volume": _NUMBER, "order_id": BIGINT, "action": TEXT, "sequence": BIGINT,
    "broker_id": INTEGER,
}  # fmt: skip
# Rows that are sorted and sent together.
_ROWS = 1 << 17
_EVENTS_STAGE, _NAMES_STAGE = -2, -3
_LAST = int(Flag.LAST)
# An event with its place in the order, and which message it is of.
_SENT = np.dtype([("version", VERSION), ("event", EVENT)])


@dataclass(frozen=True, slots=True)
class Market:
    """Events of markets out of a DataFrame.

    kind: "orders", one row for each change of an order (L3); "levels", the new volume of a price level, 0
    where it goes (L2); "trades"; "events", the columns of `orderbook.events`; None: by the columns. columns:
    the DataFrame's names for those of ALIASES. venue, symbol: of all rows, where no column says. time_unit:
    of times that are integers, since 1970 UTC.
    """

    frame: DataFrame
    kind: Kind | None = None
    columns: Mapping[str, str] = field(default_factory=dict)
    venue: str | None = None
    symbol: str | None = None
    time_unit: TimeUnit = "ns"


@dataclass(frozen=True, slots=True)
class Matched:
    """A DataFrame of a kind with the columns of that kind alone; names: those that it has."""

    frame: DataFrame
    kind: Kind
    names: tuple[str, ...]
    time_unit: str


def matched(market: Market) -> Matched:
    """The columns of a DataFrame by its kind. Raises UserError for one that is missing or no such type."""
    found = {one.name: one.dataType for one in market.frame.schema.fields}
    by_lower = {own.lower(): own for own in found}
    kind = market.kind or _kind(by_lower, market.columns)
    if kind == "events":
        absent = [name for name in EVENTS.names if name not in found and name != "time"]
        if absent:
            raise UserError(f"a DataFrame of events lacks {', '.join(absent)}; see orderbook.events")
        names = [name for name in EVENTS.names if name != "time"]
        return Matched(market.frame.select(*names), kind, tuple(names), "ns")
    if kind not in _NEEDED:
        raise UserError(f"kind {kind!r}; give one of orders, levels, trades, events")
    for name in market.columns:
        if name not in ALIASES:
            raise UserError(f"columns names {name!r}; known are {', '.join(ALIASES)}")
    if market.time_unit not in _PER:
        raise UserError(f"time_unit {market.time_unit!r}; give one of {', '.join(_PER)}")
    chosen, names = [], []
    for name in (*_NEEDED[kind], *_BESIDE[kind]):
        given = market.columns.get(name)
        aliases = ALIASES[name] if given is None else (given,)
        own = next((by_lower[one.lower()] for one in aliases if one.lower() in by_lower), None)
        constant = {"venue": market.venue, "symbol": market.symbol}.get(name)
        if constant is not None and given is None:
            chosen.append(sql.lit(constant).alias(name))
        elif own is not None:
            chosen.append(_column(name, own, found[own]))
        elif given is not None or name in _NEEDED[kind]:
            near = "" if given is None else f" (did you mean {nearest(given, found)!r}?)"
            raise UserError(
                f"a DataFrame of {kind} has no column for {name}{near}: it has {', '.join(found)}; say which "
                f"it is: columns={{{name!r}: …}}"
            )
        elif name == "venue":
            chosen.append(sql.lit("").alias(name))
        else:
            continue
        names.append(name)
    if kind == "levels" and "is_snapshot" in by_lower:
        chosen.append(sql.col(by_lower["is_snapshot"]).cast("int").alias("snapshot"))
        names.append("snapshot")
    return Matched(market.frame.select(*chosen), kind, tuple(names), market.time_unit)


def is_market(frame: DataFrame) -> bool:
    """Whether a DataFrame has the columns of a kind of market events."""
    try:
        _kind({name.lower(): name for name in frame.columns}, {})
    except UserError:
        return False
    return True


def _kind(by_lower: Mapping[str, str], given: Mapping[str, str]) -> Kind:
    def has(name: str) -> bool:
        return name in given or any(one in by_lower for one in ALIASES[name])

    if {"stamp", "switch", "message", "action"} <= set(by_lower):
        return "events"
    if has("symbol") or has("price"):
        if has("action") and has("order_id"):
            return "orders"
        if "is_snapshot" in by_lower:
            return "levels"
        if "trade_id" in by_lower or "aggressor" in by_lower:
            return "trades"
    raise UserError(
        "what are the rows of the DataFrame? give orderbook.spark.Market(frame, kind=…) with orders, levels "
        "or trades, or name the stream they are of: {'quotes': frame}; it has "
        f"{', '.join(by_lower.values())}"
    )


def _column(name: str, own: str, kind: spark.DataType) -> SparkColumn:
    taken = {
        TEXT.kind: (spark.StringType, spark.CharType, spark.VarcharType, spark.IntegralType),
        TIMESTAMP.kind: (spark.TimestampType, spark.TimestampNTZType, spark.LongType),
    }.get(_TYPES[name].kind, (spark.NumericType, spark.StringType))
    if not isinstance(kind, (*taken, spark.NullType)):
        raise UserError(f"column {own} is {kind.simpleString()}, and is taken for {name}; cast it")
    column = sql.col(f"`{own.replace('`', '``')}`")
    return (column.cast("string") if _TYPES[name].kind is TEXT.kind else column).alias(name)


def market_blocks(one: Matched, settings: JobSettings) -> DataFrame:
    """The rows of a DataFrame as records for the tasks that keep the books of their symbols."""
    made = partial(_blocks, settings.partitions, one.kind, one.names, one.time_unit)
    return map_in_workers(one.frame, made, SCHEMA)


def _blocks(
    partitions: int, kind: Kind, names: Sequence[str], unit: str, batches: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """In a worker: the rows of one input partition, some at a time in order, for each bucket of symbols."""
    words, hashes, before = Dictionary(), None, 0
    hashes = StableHash(words)
    seen: dict[int, set[tuple[str, str]]] = {}
    for table in together(batches, _ROWS):
        frame = pl.DataFrame(pl.from_arrow(table))
        if kind == "events":
            rows, own = _of_events(frame, words)
        else:
            rows, own = _of_rows(frame, kind, names, _PER[unit], words)
        parts: NDArray[np.int32] = rows["version"]["part"]
        parts[:] = np.arange(before, before + len(rows)) & 0x7FFFFFFF
        before += len(rows)
        symbols = np.array([symbol for _, symbol in own], np.int64)
        buckets = (hashes.of(symbols, TEXT) % np.uint64(partitions)).astype(np.int64)
        of_row = buckets.take(rows["event"]["instrument"])
        texts = [(words.decode(venue), words.decode(symbol)) for venue, symbol in own]
        for bucket in np.unique(of_row).tolist():
            part = _in_order(rows[of_row == bucket])
            seen.setdefault(bucket, set()).update(texts[i] for i in np.flatnonzero(buckets == bucket))
            data = msgspec.msgpack.encode((texts, part.tobytes()))
            first, last = (
                RowVersion(*(int(v[n]) for n in RowVersion._fields)) for v in part["version"][[0, -1]]
            )
            yield sent_batch(Sent(bucket, _EVENTS_STAGE, "events", first, last, len(part), data))
    nowhere = RowVersion(-(2**63), 0, 0, 0)
    for bucket, pairs in seen.items():
        data = msgspec.msgpack.encode(sorted(pairs))
        yield sent_batch(Sent(bucket, _NAMES_STAGE, "names", nowhere, nowhere, 0, data))


def _in_order(rows: NDArray[np.void]) -> NDArray[np.void]:
    versions = rows["version"]
    keys: list[NDArray[np.int64]] = [versions[n] for n in ("part", "sequence", "switch", "stamp")]
    return rows.take(np.lexsort(keys))


def _numbered(
    frame: pl.DataFrame, names: Sequence[str], codes: NDArray[np.int64]
) -> tuple[NDArray[np.int64], list[tuple[int, int]]]:
    """Of each row the number of its instrument, and (venue, symbol) of each, as codes."""
    pairs = codes[:, [names.index("venue"), names.index("symbol")]]
    found, numbers = np.unique(pairs, axis=0, return_inverse=True)
    return numbers.ravel(), [(int(venue), int(symbol)) for venue, symbol in found]


def _of_rows(
    frame: pl.DataFrame, kind: Kind, names: Sequence[str], per: int, words: Dictionary
) -> tuple[NDArray[np.void], list[tuple[int, int]]]:
    """Rows of orders, levels or trades as records, and their instruments. Raises DataError."""
    for name in ("time", "exchange_time"):
        if name in names and frame[name].dtype.is_integer() and per > 1:
            frame = frame.with_columns(pl.col(name).cast(pl.Int64) * per)
    needed = {"time", "symbol", "venue", "action"} | (set() if kind == "orders" else {"price", "volume"})
    columns = tuple(Column(name, _TYPES.get(name, INTEGER), name not in needed) for name in names)
    codes = encoded(frame, Relation(kind, columns), words)
    by_name = {name: codes[:, place] for place, name in enumerate(names)}
    rows = np.zeros(len(frame), _SENT)
    events, versions = rows["event"], rows["version"]
    numbers, own = _numbered(frame, names, codes)
    events["instrument"] = numbers
    events["receive_time"] = versions["stamp"] = by_name["time"]
    for name in ("price", "volume", "order_id", "sequence", "broker_id", "exchange_time"):
        if name in by_name:
            events[name] = np.where(by_name[name] == NULL_CODE, 0, by_name[name])
    if "exchange_time" not in by_name:
        events["exchange_time"] = by_name["time"]
    versions["sequence"] = events["sequence"]
    if "side" in by_name:
        events["side"] = _translated("side", by_name["side"], _SIDES, words, Side.NONE)
    else:
        events["side"] = Side.NONE
    if kind == "orders":
        actions = _translated("action", by_name["action"], _ACTIONS, words, None)
        rows["event"]["action"] = np.where(actions < 0, 0, actions)
        return rows[actions >= 0], own
    events["action"] = Action.LEVEL if kind == "levels" else Action.TRADE
    if kind == "levels" and (events["side"] == Side.NONE).any():
        raise DataError("levels: a row has no side; give bid or ask")
    if "snapshot" in by_name:
        events["flags"] = np.where(by_name["snapshot"] == 1, int(Flag.SNAPSHOT), 0)
    return rows, own


def _translated(
    name: str,
    codes: NDArray[np.int64],
    known: Mapping[str, int | None],
    words: Dictionary,
    absent: int | None,
) -> NDArray[np.int64]:
    """Codes of texts as what they mean, -1 for what means nothing. Raises DataError for another text."""
    found = np.full(len(codes), -1 if absent is None else int(absent), np.int64)
    for code in np.unique(codes).tolist():
        if code == NULL_CODE:
            continue
        text = words.decode(code)
        if text.strip().lower() not in known:
            raise DataError(f"{name} {text!r} of a row; known are {', '.join(k for k in known if k)}")
        meant = known[text.strip().lower()]
        found[codes == code] = -1 if meant is None else int(meant)
    return found


_EVENT_TYPES = {
    "venue": TEXT, "symbol": TEXT, "action": TEXT, "side": TEXT, "price": _NUMBER, "volume": _NUMBER,
}  # fmt: skip
_EVENT_ACTIONS = {action.name.lower(): action for action in Action}


def _of_events(frame: pl.DataFrame, words: Dictionary) -> tuple[NDArray[np.void], list[tuple[int, int]]]:
    """Rows of `orderbook.events` as records, and their instruments. Raises DataError."""
    names = frame.columns
    columns = tuple(Column(name, _EVENT_TYPES.get(name, BIGINT)) for name in names)
    frame = frame.with_columns(pl.col("snapshot").cast(pl.Int64))
    codes = encoded(frame, Relation("events", columns), words)
    by_name = {name: codes[:, place] for place, name in enumerate(names)}
    rows = np.zeros(len(frame), _SENT)
    events, versions = rows["event"], rows["version"]
    numbers, own = _numbered(frame, names, codes)
    events["instrument"] = numbers
    actions = _translated("action", by_name["action"], _EVENT_ACTIONS, words, None)
    events["action"] = actions
    events["side"] = _translated("side", by_name["side"], _SIDES, words, Side.NONE)
    for name in ("stamp", "switch", "sequence"):
        versions[name] = by_name[name]
    versions["last"] = by_name["message"]
    plain = {
        "exchange_time": "exchange_time",
        "receive_time": "receive_time",
        "sequence": "exchange_sequence",
    }
    for name, given in {**plain, "order_id": "order_id", "broker_id": "broker_id"}.items():
        events[name] = np.where(by_name[given] == NULL_CODE, 0, by_name[given])
    priced = np.isin(actions, [int(action) for action in _PRICED])
    for name, other in (("price", "detail"), ("volume", "detail_2")):
        value = np.where(priced, by_name[name], by_name[other])
        events[name] = np.where(value == NULL_CODE, 0, value)
    events["flags"] = np.where(by_name["snapshot"] == 1, int(Flag.SNAPSHOT), 0)
    return rows, own


def events_table(part: VersionedEvents, instruments: Instruments) -> pa.Table:
    """Events with their versions as rows of EVENTS."""
    events, versions = part.events, part.versions
    count = len(events)
    ones = list(instruments)
    numbers: NDArray[np.int32] = events["instrument"]
    actions: NDArray[np.uint8] = events["action"].copy()
    priced = np.isin(actions, [int(action) for action in _PRICED])
    told = priced | (actions == Action.INSTRUMENT)
    scales = [
        np.array([getattr(one, name) for one in ones], np.int64) for name in ("tick_scale", "lot_scale")
    ]
    price, volume = (
        events[name] * np.where(told, scale.take(numbers), 1)
        for name, scale in zip(("price", "volume"), scales, strict=True)
    )

    def texts(values: Sequence[str | None], places: NDArray[np.integer]) -> pa.Array:
        strings = pa.array(values, pa.string())
        return strings.take(pa.array(places.astype(np.int64)))

    sides: list[str | None] = ["bid", "ask", None]
    names = ["none", *(Action(number).name.lower() for number in range(1, max(Action) + 1))]
    columns: dict[str, Any] = {
        **{name: versions[name] for name in ("stamp", "switch", "sequence")},
        "message": versions["last"],
        "time": pa.array(versions["stamp"] // 1000, pa.int64()).cast(EVENTS.field("time").type),
        "venue": texts([one.venue for one in ones], numbers),
        "symbol": texts([one.symbol for one in ones], numbers),
        "action": texts(names, actions),
        "side": texts(sides, np.minimum(events["side"], 2)),
        "order_id": events["order_id"],
        "price": _decimals(price, priced),
        "volume": _decimals(volume, priced),
        "exchange_time": events["exchange_time"],
        "receive_time": events["receive_time"],
        "exchange_sequence": events["sequence"],
        "broker_id": events["broker_id"],
        "snapshot": (events["flags"] & int(Flag.SNAPSHOT)) != 0,
        "detail": pa.array(price, mask=priced),
        "detail_2": pa.array(volume, mask=priced),
    }
    arrays = [pa.array(v) if isinstance(v, np.ndarray) else v for v in (columns[n] for n in EVENTS.names)]
    table = pa.table(arrays, schema=EVENTS)
    assert len(table) == count
    return table


def _decimals(values: NDArray[np.int64], there: NDArray[np.bool_]) -> pa.Array:
    words = np.empty((len(values), 2), np.int64)
    words[:, 0], words[:, 1] = values, values >> 63
    bits = pa.array(there).buffers()[1]
    return pa.Array.from_buffers(EVENTS.field("price").type, len(values), [bits, pa.py_buffer(words)])


def market_task(
    settings: JobSettings,
    strategies: tuple[int, ...],
    sends: frozenset[str],
    versioned: bool,
    partition: int,
    sent: Iterable[Sent],
) -> Iterator[Sent]:
    """The task of one bucket of symbols over records that come by their order; see `read_task`.

    versioned: the records have the versions of their sources.
    """
    names = set[tuple[str, str]]()
    groups = groupby(sent, key=lambda one: one.stage)
    records: Iterable[Sent] = ()
    others: Iterable[Sent] = ()
    for stage, group in groups:
        if stage == _NAMES_STAGE:
            for one in group:
                names.update(map(tuple, msgspec.msgpack.decode(one.bytes)))
        elif stage == _EVENTS_STAGE:
            records = group
            break
        else:
            others = group
            break
    instruments = tuple(Instrument(v, s, s, FINEST, FINEST, FINEST, FINEST) for v, s in sorted(names))
    task = ReadTask(
        SYMBOLS, partition, (), instruments, layout_of(settings).local, strategies, sends,
        clock=settings.partitions == 1,
    )  # fmt: skip
    if instruments:
        yield from read_task(settings, task, read=partial(_slices, records, versioned))
    # What is for later stages comes after.
    yield from others
    for _, group in groups:
        yield from group


def _slices(blocks: Iterable[Sent], versioned: bool, instruments: Instruments) -> Iterator[Slice]:
    """The records of blocks, which come by their first version, all up to where the next begins."""
    places = {(one.venue, one.symbol): place for place, one in enumerate(instruments)}
    writer = _Versions(instruments, versioned)
    held: list[NDArray[np.void]] = []
    for sent in blocks:
        until = sent.first[0]
        ready = [one[: np.searchsorted(one["version"]["stamp"], until)] for one in held]
        if any(map(len, ready)):
            yield writer.slice(np.concatenate(ready), until)
            held = [
                one[len(taken) :] for one, taken in zip(held, ready, strict=True) if len(one) > len(taken)
            ]
        held.append(_decoded(sent, places))
    yield writer.slice(np.concatenate(held), None) if held else Slice(NOTHING, (), None)


def _decoded(sent: Sent, places: Mapping[tuple[str, str], int]) -> NDArray[np.void]:
    names, data = msgspec.msgpack.decode(sent.bytes, type=tuple[list[tuple[str, str]], bytes])
    rows = np.frombuffer(data, _SENT).copy()
    own = np.array([places.get(name, -1) for name in names], np.int32)
    numbers: NDArray[np.int32] = rows["event"]["instrument"]
    numbers[:] = own.take(numbers)
    return rows


class _Versions:
    """Makes slices of records, with versions that do not depend on how symbols are spread over tasks.

    Where records bring none, a version is the time, the symbol in place of a switch, and the number of the
    event among the symbol's own. A book of such records is valid from its first event on.
    """

    def __init__(self, instruments: Instruments, given: bool) -> None:
        self._given = given
        words = Dictionary()
        codes = words.encode_all(f"{one.venue}:{one.symbol}" for one in instruments)
        hashes = StableHash(words).of(codes, TEXT) if len(codes) else np.empty(0, np.uint64)
        self._switches = (hashes & np.uint64(0x7FFFFFFF)).astype(np.int32)
        self._counts = np.zeros(len(codes), np.int64)
        self._seen = np.zeros(len(codes), np.bool_)
        self._snapshot = np.zeros(len(codes), np.bool_)

    def slice(self, rows: NDArray[np.void], until: int | None) -> Slice:
        """Records of a range of stamps, in no order."""
        if not self._given:
            numbers: NDArray[np.int32] = rows["event"]["instrument"]
            rows["version"]["switch"] = self._switches.take(numbers)
        rows = _in_order(rows)
        events, versions = rows["event"].copy(), rows["version"].copy()
        if self._given:
            versions["part"] = 0
        else:
            events, versions = self._told(events, versions)
        last: NDArray[np.int64] = versions["last"]
        switch: NDArray[np.int32] = versions["switch"]
        ends = np.append((last[1:] != last[:-1]) | (switch[1:] != switch[:-1]), True)
        events["flags"] &= np.uint16(0xFFFF ^ _LAST)
        events["flags"] |= np.where(ends[: len(events)], _LAST, 0).astype(np.uint16)
        return Slice(VersionedEvents(events, versions), (), until)

    def _told(
        self, events: NDArray[np.void], given: NDArray[np.void]
    ) -> tuple[NDArray[np.void], NDArray[np.void]]:
        """The events with states and clears before those that begin a book, and their versions."""
        inserted: list[tuple[int, NDArray[np.void]]] = []
        for index in np.unique(events["instrument"]).tolist():
            places = np.flatnonzero(events["instrument"] == index)
            first = int(places[0])
            if not self._seen[index]:
                self._seen[index] = True
                inserted.append((first, _made(events[first], Action.STATE)))
            snapshots = (events["flags"].take(places) & int(Flag.SNAPSHOT)) != 0
            begins = snapshots & ~np.concatenate([[self._snapshot[index]], snapshots[:-1]])
            self._snapshot[index] = snapshots[-1]
            inserted += [(int(at), _made(events[at], Action.CLEAR)) for at in places[begins]]
        at = [place for place, _ in inserted]
        if at:
            events = np.insert(events, at, np.concatenate([one for _, one in inserted]))
            given = np.insert(given, at, given[at])
        versions = np.zeros(len(events), VERSION)
        for name in ("stamp", "switch"):
            versions[name] = given[name]
        state = events["action"] == Action.STATE
        keys: list[NDArray[np.int64]] = [given["stamp"], given["sequence"], events["instrument"], state]
        starts = np.ones(len(events), np.bool_)
        starts[1:] = np.logical_or.reduce([key[1:] != key[:-1] for key in keys])
        ends = np.append(np.flatnonzero(starts)[1:], len(events)) - 1
        for index in np.unique(events["instrument"]).tolist():
            places = np.flatnonzero(events["instrument"] == index)
            versions["sequence"][places] = self._counts[index] + 1 + np.arange(len(places))
            self._counts[index] += len(places)
        versions["last"] = versions["sequence"].take(ends.take(np.cumsum(starts) - 1))
        return events, versions


def _made(before: np.void, action: Action) -> NDArray[np.void]:
    """A state that is valid, or a clear, of the instrument and time of an event."""
    made = np.zeros(1, EVENT)
    for name in ("exchange_time", "receive_time", "instrument", "sequence"):
        made[name] = before[name]
    made["action"], made["side"] = action, Side.NONE
    if action is Action.STATE:
        made["volume"], made["order_id"] = BookState.VALID, StateReason.SYNCHRONISED
    return made
