"""Binance futures besides books: mark prices, funding and liquidations, and COIN-M futures.

Sources: Binance documentation, "Mark Price Stream", "Liquidation Order Streams" of USD-M and COIN-M Futures,
"Important WebSocket Change Notice" of USD-M Futures; "Exchange Information", "Order Book", "Diff. Book Depth
Streams" and "How to manage a local order book correctly" of COIN-M Futures.

    {"stream": "btcusd_perp@markPrice@1s", "data": {"e": "markPriceUpdate", "E": 1596095725000,
     "s": "BTCUSD_PERP", "p": "10934.62615417", "P": "10962.17178236", "r": "0.00038167", "T": 1596096000000}}
    {"stream": "btcusdt@forceOrder", "data": {"e": "forceOrder", "E": 1568014460893, "o": {"s": "BTCUSDT",
     "S": "SELL", "o": "LIMIT", "f": "IOC", "q": "0.014", "p": "9910", "ap": "9910", "X": "FILLED",
     "l": "0.014", "z": "0.014", "T": 1568014460893}}}

Dated contracts have no rate, which is "" there. USD-M mark prices have the index price `i`. Of liquidations
the largest of a second is sent, and its price is the order's limit, not what it was filled at.

USD-M futures send both from another address (`/market`) than books and trades (`binance_market`). COIN-M
futures send all from one.
"""

from typing import Literal

import msgspec

from orderbook.feeds.exchanges.contract_values import ContractValues
from orderbook.feeds.exchanges.exchange import FeedBook
from orderbook.market.events import Side

MILLISECOND = 1_000_000
_LATEST = (2**63 - 1) // MILLISECOND


class MarkPrice(msgspec.Struct, frozen=True, gc=False):
    """`p` mark price, `i` index price, `r` funding rate until `T`, ms."""

    E: int
    s: str
    p: str
    i: str = ""
    r: str = ""
    T: int = 0


class LiquidationOrder(msgspec.Struct, frozen=True, gc=False):
    """`q` what the order asks for, `p` its limit."""

    s: str
    S: Literal["BUY", "SELL"]
    q: str
    p: str
    T: int


class ForceOrder(msgspec.Struct, frozen=True, gc=False):
    E: int
    o: LiquidationOrder


decode_mark = msgspec.json.Decoder(MarkPrice).decode
decode_force = msgspec.json.Decoder(ForceOrder).decode
# Streams of contracts, by the kind in their name.
STREAMS: tuple[str, ...] = ("markPrice", "forceOrder")
SUBSCRIBED: tuple[str, ...] = ("markPrice@1s", "forceOrder")


def write_contract(kind: str, data: bytes | msgspec.Raw, book: FeedBook, receive_time: int) -> None:
    """Write a message of one of STREAMS as a unit. Raises what msgspec raises, DataError and ValueError."""
    values = ContractValues(book)
    if kind == "markPrice":
        mark = decode_mark(data)
        _check(mark.s, book, mark.E, mark.T)
        values.begin(mark.E * MILLISECOND, receive_time)
        values.mark(mark.p, mark.i)
        if mark.r:
            values.funding(mark.r, mark.T * MILLISECOND)
    else:
        force = decode_force(data)
        order = force.o
        _check(order.s, book, force.E, order.T)
        values.begin(order.T * MILLISECOND, receive_time)
        values.liquidation(Side.BID if order.S == "BUY" else Side.ASK, order.p, order.q)
    values.end()


def _check(symbol: str, book: FeedBook, *times: int) -> None:
    if symbol != book.product:
        raise ValueError(f"{symbol} in a stream of {book.product}")
    if not all(0 <= time <= _LATEST for time in times):
        raise ValueError(f"a time that is none: {times}")
