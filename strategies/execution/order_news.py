"""What became of a strategy's orders in the compiled loop, as columns; objects are made when asked for."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
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
from orderbook.strategies.execution.exchange_state import NO_REASON

# By the codes of ORDER, and of its sides and executions.
STATUSES: tuple[OrderStatus, ...] = ("sent", "resting", "filled", "cancelled", "refused", "waiting")
SIDES: tuple[OrderSide, ...] = ("buy", "sell")
LIQUIDITY = ("taker", "maker")


@dataclass(frozen=True)
class OrderNews:
    """News of one strategy's orders, in their order.

    news: NEWS[n]. fills: FILL[m], their executions, and fees: int64[m], in 1e-8. reasons: the texts of what
    `news` has as codes, by instrument and code. before: the orders that were open, by id.
    kept: bool[…], which of what the loop has told they are.
    """

    strategy: str
    instruments: Instruments
    news: NDArray[np.void]
    fills: NDArray[np.void]
    fees: NDArray[np.int64]
    reasons: Mapping[tuple[int, int], str]
    before: Mapping[int, Order]
    kept: NDArray[np.bool_]

    @cached_property
    def owners(self) -> NDArray[np.int64]:
        """int64[m]: which of the news each execution is of."""
        return np.repeat(np.arange(len(self.news)), self.news["fills"])

    def order(self, number: int) -> Order:
        """An order as it then was."""
        row = self.news[number]
        index = int(row["instrument"])
        one = self.instruments[index]
        return Order(
            int(row["time"]), self.strategy, int(row["id"]), one.venue, one.symbol, SIDES[row["side"]],
            one.volume(int(row["volume"])), None if row["market"] else one.price(int(row["limit"])),
            one.volume(int(row["filled"])), STATUSES[row["status"]],
            self.reasons.get((index, int(row["reason"]))),
        )  # fmt: skip

    def fill(self, number: int) -> Fill:
        """An execution."""
        row, owner = self.fills[number], self.news[self.owners[number]]
        one = self.instruments[int(owner["instrument"])]
        return Fill(
            int(row["time"]), self.strategy, int(owner["id"]), one.venue, one.symbol, SIDES[owner["side"]],
            one.volume(int(row["lots"])), one.price(int(row["ticks"])), fee_amount(int(self.fees[number])),
            LIQUIDITY[bool(row["maker"])],  # type: ignore[arg-type]
        )  # fmt: skip

    def updates(self) -> Iterator[OrderUpdate]:
        """The change of an order of each of the news."""
        known, place = dict(self.before), 0
        for number, count in enumerate(self.news["fills"].tolist()):
            new = self.order(number)
            fills = tuple(self.fill(place + own) for own in range(count))
            place += count
            yield OrderUpdate(known.get(new.id), new, fills)
            known[new.id] = new


def reasons_of(
    news: NDArray[np.void], instruments: Instruments, text: Callable[[int, Instrument], str | None]
) -> dict[tuple[int, int], str]:
    """The texts of reasons in NEWS[n], by instrument and code."""
    told = news[news["reason"] != NO_REASON]
    pairs = dict.fromkeys(zip(told["instrument"].tolist(), told["reason"].tolist(), strict=True))
    return {(index, code): text(code, instruments[index]) or "" for index, code in pairs}
