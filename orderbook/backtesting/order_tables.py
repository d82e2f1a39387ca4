"""Tables of orders and fills out of what the compiled loop tells of them, as columns."""

from collections.abc import Callable, Sequence

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from orderbook.jobs.datasets import PARTITION_KEY, PLACE, VERSION_COLUMNS
from orderbook.market.instruments import SCALE, Instruments
from orderbook.strategies.execution.order_news import LIQUIDITY, SIDES, STATUSES, OrderNews
from orderbook.views.encoding.arrow import MOST_DIGITS, TIMESTAMP

# News that are held until they are written together.
_HELD = 1 << 16
_DECIMAL = pa.decimal128(MOST_DIGITS, SCALE)
Write = Callable[[str, pa.Table], None]


class NewsTables:
    """Rows of the datasets `orders` and `fills` that wait to be written."""

    def __init__(self, instruments: Instruments) -> None:
        self._instruments = instruments
        self._parts: list[_Part] = []
        self._count = 0

    @property
    def full(self) -> bool:
        """Whether they are to be written."""
        return self._count >= _HELD

    def add(self, key: str | None, news: OrderNews, versions: NDArray[np.int64], before: int) -> int:
        """Adds the news of an instance, by what it is partitioned by, and their versions, int64[n, 3] (stamp,
        switch, last); how many rows there are of the last version.

        before: how many rows there are of the first version already.
        """
        counts = news.news["fills"]
        # An order's row comes before those of its fills.
        starts = np.arange(len(counts)) + np.cumsum(counts) - counts
        changes = np.concatenate([[True], (versions[1:] != versions[:-1]).any(1)])
        firsts = np.maximum.accumulate(np.where(changes, starts, 0))
        places = starts - firsts + np.where(firsts == 0, before, 0)
        self._parts.append(_Part(key, news, versions, places))
        self._count += len(counts)
        return int(places[-1] + 1 + counts[-1])

    def write(self, write: Write) -> None:
        """Writes all."""
        parts, self._parts, self._count = self._parts, [], 0
        if parts:
            write("orders", self._orders(parts))
            write("fills", self._fills(parts))

    def _orders(self, parts: "Sequence[_Part]") -> pa.Table:
        rows = np.concatenate([part.news.news for part in parts])
        ticks, lots = self._units(rows["instrument"])
        counts = [len(part.news.news) for part in parts]
        reasons = {}
        texts: list[str | None] = [None]
        which = np.zeros(len(rows), np.int32)
        place = 0
        for part, count in zip(parts, counts, strict=True):
            for (index, code), text in part.news.reasons.items():
                if text not in reasons:
                    reasons[text] = len(texts)
                    texts.append(text)
                own = rows[place : place + count]
                told = (own["instrument"] == index) & (own["reason"] == code)
                which[place : place + count][told] = reasons[text]
            place += count
        return self._table(
            parts, counts, rows["instrument"],
            np.concatenate([part.versions for part in parts]),
            np.concatenate([part.places for part in parts]),
            {
                "ts": pa.array(rows["time"]).cast(TIMESTAMP),
                "id": pa.array(rows["id"]),
                "side": _texts(rows["side"], SIDES),
                "volume": _decimals(rows["volume"] * lots),
                "price": _decimals(rows["limit"] * ticks, rows["market"] == 0),
                "filled": _decimals(rows["filled"] * lots),
                "status": _texts(rows["status"], STATUSES),
                "reason": _texts(which, texts),
            },
        )  # fmt: skip

    def _fills(self, parts: "Sequence[_Part]") -> pa.Table:
        rows = np.concatenate([part.news.fills for part in parts])
        owners = np.concatenate([part.news.news.take(part.news.owners) for part in parts])
        ticks, lots = self._units(owners["instrument"])
        places = [part.places.take(part.news.owners) + _numbers(part.news) for part in parts]
        return self._table(
            parts, [len(part.news.fills) for part in parts], owners["instrument"],
            np.concatenate([part.versions.take(part.news.owners, 0) for part in parts]),
            np.concatenate(places),
            {
                "ts": pa.array(rows["time"]).cast(TIMESTAMP),
                "order_id": pa.array(owners["id"]),
                "side": _texts(owners["side"], SIDES),
                "volume": _decimals(rows["lots"] * lots),
                "price": _decimals(rows["ticks"] * ticks),
                "fee": _decimals(np.array([fee for part in parts for fee in part.news.fees], np.int64)),
                "liquidity": _texts(np.minimum(rows["maker"], 1), LIQUIDITY),
            },
        )  # fmt: skip

    def _units(self, instruments: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """A tick and a lot of the books of instruments, in 1e-8."""
        scales = [(one.tick_scale, one.lot_scale) for one in self._instruments]
        ticks, lots = (np.array(column, np.int64) for column in zip(*scales, strict=True))
        return ticks.take(instruments), lots.take(instruments)

    def _table(
        self,
        parts: "Sequence[_Part]",
        counts: Sequence[int],
        instruments: NDArray[np.int64],
        versions: NDArray[np.int64],
        places: NDArray[np.int64],
        columns: dict[str, pa.Array],
    ) -> pa.Table:
        """The columns that both have, and those of one."""
        of_parts = np.repeat(np.arange(len(parts)), counts)
        ones = list(self._instruments)
        of_versions = zip(VERSION_COLUMNS, versions.T, strict=True)
        return pa.table(
            {name: pa.array(np.ascontiguousarray(own)) for name, own in of_versions}
            | {
                PLACE: pa.array(places),
                PARTITION_KEY: _texts(of_parts, [part.key for part in parts]),
                "strategy": _texts(of_parts, [part.news.strategy for part in parts]),
                "venue": _texts(instruments, [one.venue for one in ones]),
                "symbol": _texts(instruments, [one.symbol for one in ones]),
            }
            | columns
        )


class _Part:
    """News of one instance: their versions, and places among the rows of each."""

    def __init__(
        self, key: str | None, news: OrderNews, versions: NDArray[np.int64], places: NDArray[np.int64]
    ) -> None:
        self.key, self.news, self.versions, self.places = key, news, versions, places


def _numbers(news: OrderNews) -> NDArray[np.int64]:
    """Of each fill, which of those of its order it is there, from 1."""
    counts = news.news["fills"]
    firsts: NDArray[np.int64] = np.cumsum(counts) - counts
    return np.arange(len(news.fills)) - firsts.take(news.owners) + 1


def _texts(codes: NDArray[np.integer], texts: Sequence[str | None]) -> pa.Array:
    indices = pa.array(np.ascontiguousarray(codes).astype(np.int32))
    return pa.array(texts, pa.string()).take(indices)


def _decimals(values: NDArray[np.int64], there: NDArray[np.bool_] | None = None) -> pa.Array:
    """Numbers of 1e-8 as decimals; NULL where not `there`."""
    words = np.empty((len(values), 2), np.int64)
    words[:, 0], words[:, 1] = values, values >> 63
    bits = None if there is None else pa.array(there).buffers()[1]
    return pa.Array.from_buffers(_DECIMAL, len(values), [bits, pa.py_buffer(words)])
