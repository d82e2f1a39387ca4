"""What became of a strategy's orders in the compiled loop, as columns; objects are made when asked for."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from orderbook.market.instruments import Instrument, Instruments
from orderbook.strategies.execution.account import (
    Fill,
    Order,
    OrderSide,
    OrderStatus,
    OrderUpdate,
    fee_amount,
)
from orderbook.strategies.execution.desk_messages import NEWS
from orderbook.strategies.execution.exchange_state import NO_REASON

# By the codes of ORDER, and of its sides and executions.
STATUSES: tuple[OrderStatus, ...] = ("sent", "resting", "filled", "cancelled", "refused", "waiting")
SIDES: tuple[OrderSide, ...] = ("buy", "sell")
LIQUIDITY = ("taker", "maker")
_TIME, _ID, _INSTRUMENT, _SIDE, _VOLUME, _MARKET, _LIMIT, _FILLED, _STATUS, _REASON = (
    (NEWS.names or ()).index(name)
    for name in (
        "time", "id", "instrument", "side", "volume", "market", "limit", "filled", "status", "reason",
    )
)  # fmt: skip


# Columns of NEWS[n], by name.
NewsColumns = Mapping[str, Sequence[int]]
_COLUMNS = ("id", "instrument", "side", "status", "modified", "reason", "fills", "group", "reduces")
_PLACES = tuple((NEWS.names or ()).index(name) for name in _COLUMNS)
# So many are less work row by row.
_FEW = 32


def columns_of(news: NDArray[np.void]) -> NewsColumns:
    """What a client goes by in NEWS[n]."""
    if len(news) > _FEW:
        return {name: news[name].tolist() for name in _COLUMNS}
    columns = [*zip(*news.tolist(), strict=True)] or [()] * len(NEWS.names or ())
    return {name: columns[place] for name, place in zip(_COLUMNS, _PLACES, strict=True)}


@dataclass(eq=False)
class OrderNews:
    """News of one strategy's orders, in their order.

    news: NEWS[n]. fills: FILL[m], their executions, and fees: m, in 1e-8. reasons: the texts of what
    `news` has as codes, by instrument and code. before: the orders that were open, by id.
    kept: bool[…], which of what the loop has told they are; None: all.
    """

    strategy: str
    instruments: Instruments
    news: NDArray[np.void]
    fills: NDArray[np.void]
    fees: list[int]
    reasons: Mapping[tuple[int, int], str]
    before: Mapping[int, Order]
    kept: NDArray[np.bool_] | None
    _orders: dict[int, Order] = field(default_factory=dict)

    @cached_property
    def owners(self) -> NDArray[np.int64]:
        """int64[m]: which of the news each execution is of."""
        return np.repeat(np.arange(len(self.news)), self.news["fills"])

    def order(self, number: int) -> Order:
        """An order as it then was."""
        found = self._orders.get(number)
        if found is None:
            found = self._orders[number] = self._order(number)
        return found

    def _order(self, number: int) -> Order:
        row = self.news[number].item()
        index, reason = row[_INSTRUMENT], row[_REASON]
        one = self.instruments[index]
        return Order(
            row[_TIME], self.strategy, row[_ID], one.venue, one.symbol, SIDES[row[_SIDE]],
            one.volume(row[_VOLUME]), None if row[_MARKET] else one.price(row[_LIMIT]),
            one.volume(row[_FILLED]), STATUSES[row[_STATUS]],
            None if reason == NO_REASON else self.reasons.get((index, reason)),
        )  # fmt: skip

    def updates(self) -> Iterator[OrderUpdate]:
        """The change of an order of each of the news."""
        known, place = dict(self.before), 0
        for number, count in enumerate(self.news["fills"].tolist()):
            new = self.order(number)
            yield OrderUpdate(known.get(new.id), new, self._fills_of(number, place, count))
            place += count
            known[new.id] = new

    def told(self, first: int, filled: bool) -> Iterator[tuple[int, Order, tuple[Fill, ...]]]:
        """What each of the news from one on tells, with its number; filled: those alone that have fills."""
        counts = self.news["fills"].tolist()
        place = sum(counts[:first])
        for number, count in enumerate(counts[first:], start=first):
            if count or not filled:
                yield number, self.order(number), self._fills_of(number, place, count)
            place += count

    def _fills_of(self, number: int, place: int, count: int) -> tuple[Fill, ...]:
        """The executions of one of the news, so many from a place on."""
        if not count:
            return ()
        owner = self.news[number].item()
        one = self.instruments[owner[_INSTRUMENT]]
        return tuple(
            Fill(
                time, self.strategy, owner[_ID], one.venue, one.symbol, SIDES[owner[_SIDE]], one.volume(lots),
                one.price(ticks), fee_amount(fee), LIQUIDITY[bool(maker)],  # type: ignore[arg-type]
            )
            for (time, lots, ticks, maker), fee in zip(
                self.fills[place : place + count].tolist(), self.fees[place : place + count], strict=True
            )
        )  # fmt: skip

    def after(self, before: Sequence["OrderNews"]) -> "OrderNews":
        """With news of the same strategy before it."""
        if not before:
            return self
        parts = [*before, self]
        reasons, known, seen = dict[tuple[int, int], str](), dict[int, Order](), set[int]()
        for part in parts:
            reasons.update(part.reasons)
            known.update((one, order) for one, order in part.before.items() if one not in seen)
            seen.update(part.news["id"].tolist())
        return OrderNews(
            self.strategy, self.instruments, np.concatenate([part.news for part in parts]),
            np.concatenate([part.fills for part in parts]), [fee for part in parts for fee in part.fees],
            reasons, known, None,
        )  # fmt: skip


def reasons_of(
    columns: NewsColumns, instruments: Instruments, text: Callable[[int, Instrument], str | None]
) -> dict[tuple[int, int], str]:
    """The texts of reasons in news, by instrument and code."""
    pairs = dict.fromkeys(zip(columns["instrument"], columns["reason"], strict=True))
    return {(index, code): text(code, instruments[index]) or "" for index, code in pairs if code != NO_REASON}
