"""Order flow for the finance workload, and the finance queries in engines that evaluate them again."""

from collections.abc import Callable
from typing import NamedTuple

import duckdb
import numpy as np
import polars as pl
from numba import njit
from numpy.typing import NDArray

from orderbook.core.changes import CHECKED, END_OF_EVENT, END_OF_MESSAGE, ChangeBatch
from orderbook.views.program import CompiledProgram

from .finance_loops import BROKERS, VOLUMES
from .programs import insert_kind

_END = CHECKED | END_OF_EVENT | END_OF_MESSAGE
_SCHEMA = ("t", "id", "broker_id", "volume", "price")


# int64[n]
Column = NDArray[np.int64]


class Market(NamedTuple):
    """Inserts and deletes of bids and asks, about one order a level: columns int64[n].

    `ask` and `delete` are 0 or 1; `number` is the order's id and time. The book is full after the first
    `start` changes; `prices` bounds the prices.
    """

    ask: Column
    delete: Column
    broker: Column
    volume: Column
    price: Column
    number: Column
    prices: int
    start: int

    def resting(self, count: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Bids and asks after `count` changes: int64[rows, 5], in the order of the schema."""
        live: tuple[dict[int, list[int]], dict[int, list[int]]] = ({}, {})
        rows = np.stack([self.number, self.number, self.broker, self.volume, self.price], axis=1)
        for row, ask, delete in zip(
            rows[:count].tolist(), self.ask[:count], self.delete[:count], strict=True
        ):
            if delete:
                del live[ask][row[1]]
            else:
                live[ask][row[1]] = row
        bids, asks = (np.array(list(side.values()), np.int64).reshape(-1, 5) for side in live)
        return bids, asks

    def changes(self, program: CompiledProgram) -> ChangeBatch:
        """As changes of a program's `bids` and `asks`, each a message."""
        bids, asks = (insert_kind(program, name) for name in ("bids", "asks"))
        kinds = (np.where(self.ask, asks, bids) + self.delete).astype(np.int16)
        values = np.stack([self.number, self.number, self.broker, self.volume, self.price], axis=1)
        return ChangeBatch(kinds, np.full(len(kinds), _END, np.uint8), np.ascontiguousarray(values))

    def until(self, count: int) -> "Market":
        """The changes up to `count` after the book is full."""
        ask, delete, broker, volume, price, number = (one[: self.start + count] for one in self[:6])
        return Market(ask, delete, broker, volume, price, number, self.prices, self.start)

    def bids_only(self) -> "Market":
        """The same changes of bids, without those of asks."""
        kept = self.ask == 0
        ask, delete, broker, volume, price, number = (one[kept] for one in self[:6])
        start = int(kept[: self.start].sum())
        return Market(ask, delete, broker, volume, price, number, self.prices, start)


def market(bids: int, asks: int, count: int, seed: int) -> Market:
    """A book that fills to these numbers of levels, then `count` changes that keep it there."""
    prices, start = max(4_096, 4 * max(bids, asks)), bids + asks
    ask, delete, broker, volume, price, number = _market(bids, asks, start + count, prices, seed)
    return Market(ask, delete, broker, volume, price, number, prices, start)


@njit(cache=True)
def _market(bids: int, asks: int, count: int, prices: int, seed: int) -> NDArray[np.int64]:
    np.random.seed(seed)
    most = np.array([bids, asks])
    live, alive = np.zeros((2, max(bids, asks) + 2, 4), np.int64), np.zeros(2, np.int64)
    columns = np.zeros((6, count), np.int64)
    for e in range(count):
        side = int(np.random.random() * 2)
        if e < bids + asks:
            side = int(e >= bids)
        columns[0, e] = side
        if alive[side] < most[side]:
            order = live[side, alive[side]]
            order[0] = np.random.randint(BROKERS)
            order[1] = min(1 + int(np.random.exponential(100.0)), VOLUMES - 1)
            order[2] = np.random.randint(prices)
            order[3] = e
            alive[side] += 1
            columns[2:, e] = order
        else:
            place = np.random.randint(alive[side])
            columns[1, e] = 1
            columns[2:, e] = live[side, place]
            alive[side] -= 1
            live[side, place] = live[side, alive[side]]
    return columns


def in_duckdb(market: Market, query: str, events: int) -> Callable[[], object]:
    """What applies the market's next changes to DuckDB's tables and selects, after each of them."""
    connection = duckdb.connect(config={"threads": 1})
    for name, rows in zip(("bids", "asks"), market.resting(market.start), strict=True):
        frame = pl.DataFrame(rows, schema=list(_SCHEMA), orient="row")  # noqa: F841
        connection.execute(f"CREATE TABLE {name} AS SELECT * FROM frame")
    at = market.start

    def run() -> None:
        nonlocal at
        for e in range(at, at + events):
            name = "asks" if market.ask[e] else "bids"
            number = int(market.number[e])
            if market.delete[e]:
                connection.execute(f"DELETE FROM {name} WHERE id = ?", [number])
            else:
                row = [number, number, *(int(c[e]) for c in (market.broker, market.volume, market.price))]
                connection.execute(f"INSERT INTO {name} VALUES (?, ?, ?, ?, ?)", row)
            connection.execute(query).fetchall()
        at += events

    return run


def in_polars(market: Market, name: str) -> Callable[[], "pl.DataFrame | int"]:
    """What evaluates the query once over frames of the full book; changing the frames is not counted.

    It returns rows of broker and value, or the one value, in a frame or bare.
    """
    bids, asks = (
        pl.DataFrame(rows, schema=list(_SCHEMA), orient="row") for rows in market.resting(market.start)
    )
    return lambda: POLARS[name](bids, asks)


def values(result: "pl.DataFrame | int") -> dict[int, float]:
    """What `in_polars` evaluated: values by broker, the only value under 0."""
    if not isinstance(result, pl.DataFrame):
        return {0: result}
    return dict(result.rows()) if result.width == 2 else {0: result.item()}


_VALUE = pl.col("volume") * pl.col("price")


def _best(side: pl.DataFrame) -> pl.DataFrame:
    """The rows above whose price lies less than a quarter of the volume."""
    levels = side.group_by("price").agg(pl.col("volume").sum().alias("at")).sort("price", descending=True)
    levels = levels.with_columns((pl.col("at").cum_sum() - pl.col("at")).alias("above"))
    return side.join(levels.filter(4 * pl.col("above") < side["volume"].sum()), on="price")


def _vwap(bids: pl.DataFrame, asks: pl.DataFrame) -> pl.DataFrame:
    return _best(bids).select(_VALUE.sum())


def _axfinder(bids: pl.DataFrame, asks: pl.DataFrame) -> pl.DataFrame:
    pairs = bids.join(asks, on="broker_id", suffix="_ask")
    pairs = pairs.filter((pl.col("price_ask") - pl.col("price")).abs() > 1000)
    return pairs.group_by("broker_id").agg((pl.col("volume_ask") - pl.col("volume")).sum())


def _brokerspread(bids: pl.DataFrame, asks: pl.DataFrame) -> pl.DataFrame:
    """By time, each row against what came before it: no pairs."""
    earlier = bids.sort("t").with_columns(_VALUE.alias("value"))
    earlier = earlier.with_columns(
        (pl.col("value").cum_count().over("broker_id") - 1).alias("rows"),
        (pl.col("value").cum_sum().over("broker_id") - pl.col("value")).alias("sum"),
    )
    return earlier.group_by("broker_id").agg((pl.col("rows") * pl.col("value") - pl.col("sum")).sum())


def _brokervariance(bids: pl.DataFrame, asks: pl.DataFrame) -> pl.DataFrame:
    return bids.group_by("broker_id").agg(_VALUE.sum() * _VALUE.sum() * 0.5)


def _pricespread(bids: pl.DataFrame, asks: pl.DataFrame) -> int:
    b, a = (side.filter(pl.col("volume") > 0.0001 * pl.col("volume").sum())["price"] for side in (bids, asks))
    return len(b) * int(a.sum()) - len(a) * int(b.sum())


def _missedtrades(bids: pl.DataFrame, asks: pl.DataFrame) -> pl.DataFrame:
    best = _best(asks)
    worth = best.select(_VALUE.sum()).item()
    return _best(bids).group_by("broker_id").agg(pl.len() * pl.lit(worth) - pl.lit(len(best)) * _VALUE.sum())


POLARS: dict[str, Callable[[pl.DataFrame, pl.DataFrame], pl.DataFrame | int]] = {
    "vwap": _vwap,
    "axfinder": _axfinder,
    "brokerspread": _brokerspread,
    "brokervariance": _brokervariance,
    "pricespread": _pricespread,
    "missedtrades": _missedtrades,
}
