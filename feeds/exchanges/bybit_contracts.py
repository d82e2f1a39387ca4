"""Bybit's contracts besides books: mark and index prices, funding, open interest and liquidations.

Sources: Bybit documentation, v5, "Ticker" and "All Liquidation" of public websocket streams.

    {"topic": "tickers.BTCUSDT", "type": "snapshot", "data": {"symbol": "BTCUSDT", "markPrice": "17217.33",
     "indexPrice": "17227.36", "openInterest": "68744.761", "nextFundingTime": "1673280000000",
     "fundingRate": "-0.000212", …}, "cs": 24987956059, "ts": 1673272861686}
    {"topic": "allLiquidation.ROSEUSDT", "type": "snapshot", "ts": 1739502303204, "data": [
     {"T": 1739502302929, "s": "ROSEUSDT", "S": "Sell", "v": "20000", "p": "0.04499"}]}

A delta of a ticker has what has changed, every 100 ms; what it lacks is as before. Only what a message tells
becomes rows, with what belongs to it from before: a mark price with its index price, a rate with its time.
A liquidation's `S` is the side of the position (Buy: a long one), so that the order's is the other, and its
price is that of bankruptcy.
"""

from collections.abc import Sequence
from typing import Annotated, Literal

import msgspec

from orderbook.core.errors import DataError
from orderbook.feeds.exchanges.contract_values import ContractValues
from orderbook.feeds.exchanges.exchange import FeedBook, Link
from orderbook.market.events import Side

MILLISECOND = 1_000_000
Milliseconds = Annotated[int, msgspec.Meta(ge=0, le=(2**63 - 1) // MILLISECOND)]
# Of a contract, besides its book and trades.
TOPICS: tuple[str, ...] = ("tickers", "allLiquidation")


class Ticker(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """What a message tells; dated contracts have "" for the rate."""

    symbol: str
    markPrice: str = ""
    indexPrice: str = ""
    openInterest: str = ""
    fundingRate: str = ""
    nextFundingTime: str = ""


class Liquidation(msgspec.Struct, frozen=True, gc=False):
    T: Milliseconds
    s: str
    S: Literal["Buy", "Sell"]
    v: str
    p: str


decode_ticker = msgspec.json.Decoder(Ticker).decode
decode_liquidations = msgspec.json.Decoder(list[Liquidation]).decode


class BybitContract:
    """What is told of one contract, whose name on the wire is `name`."""

    def __init__(self, book: FeedBook, link: Link, name: str) -> None:
        self._book, self._link, self._name = book, link, name
        self._values = ContractValues(book)
        self.begin_connection()

    def begin_connection(self) -> None:
        """Forget the connection before."""
        self._known: Ticker | None = None

    def ticker(self, kind: str, milliseconds: int, told: Ticker) -> None:
        """Write what a snapshot or delta tells as one unit. Raises ValueError or DataError."""
        self._check(told.symbol)
        if kind == "snapshot":
            known = told
        elif kind != "delta":
            raise ValueError(f"a ticker of type {kind!r}")
        elif self._known is None:
            self._link.statistics.problems.add("ticker before its snapshot", self._book.product, "left out")
            return
        else:
            changed = {name: text for name in told.__struct_fields__ if (text := getattr(told, name))}
            known = msgspec.structs.replace(self._known, **changed)
        values = self._values
        values.begin(milliseconds * MILLISECOND, self._link.receive_time)
        if known.markPrice and (told.markPrice or told.indexPrice):
            values.mark(known.markPrice, known.indexPrice)
        if known.fundingRate and (told.fundingRate or told.nextFundingTime):
            values.funding(known.fundingRate, _nanoseconds(known.nextFundingTime))
        if told.openInterest:
            values.open_interest(told.openInterest)
        values.end()
        self._known = known

    def liquidations(self, found: Sequence[Liquidation]) -> None:
        """Write the liquidations of a message as one unit. Raises ValueError or DataError."""
        for one in found:
            self._check(one.s)
            self._values.begin(one.T * MILLISECOND, self._link.receive_time)
            self._values.liquidation(Side.ASK if one.S == "Buy" else Side.BID, one.p, one.v)
        self._values.end()

    def _check(self, symbol: str) -> None:
        if symbol != self._name:
            raise ValueError(f"{symbol} in a topic of {self._name}")


def _nanoseconds(text: str) -> int:
    """ns of a time in ms; 0 where there is none."""
    if not text:
        return 0
    if not (text.isascii() and text.isdecimal() and len(text) <= 13):
        raise DataError(f"{text[:40]!r} is not a time in milliseconds")
    return int(text) * MILLISECOND
