"""OKX's swaps and futures besides books: funding, mark prices, open interest and liquidations.

Sources: OKX API guide v5, "Public data: WS / Funding rate channel", "WS / Mark price channel", "WS / Open
interest channel", "WS / Liquidation orders channel".

    {"arg": {"channel": "funding-rate", "instId": "BTC-USD-SWAP"}, "data": [{"fundingRate": "0.0001875391",
     "fundingTime": "1700726400000", "instId": "BTC-USD-SWAP", "ts": "1700724675402", …}]}
    {"arg": {"channel": "mark-price", "instId": "LTC-USD-190628"}, "data": [{"instType": "FUTURES",
     "instId": "LTC-USD-190628", "markPx": "0.1", "ts": "1597026383085"}]}
    {"arg": {"channel": "open-interest", "instId": "LTC-USD-SWAP"}, "data": [{"instType": "SWAP",
     "instId": "LTC-USD-SWAP", "oi": "5000", "oiCcy": "555.55", "ts": "1597026383085"}]}
    {"arg": {"channel": "liquidation-orders", "instType": "SWAP"}, "data": [{"details": [{"bkLoss": "0",
     "bkPx": "0.007831", "ccy": "", "posSide": "short", "side": "buy", "sz": "13", "ts": "1692266434010"}],
     "instFamily": "IOST-USDT", "instId": "IOST-USDT-SWAP", "instType": "SWAP", "uly": "IOST-USDT"}]}

`fundingTime` is when that rate is paid. `oi` counts contracts, as volumes do. Index prices have channels of
their own and are not read. Liquidations are of all instruments of a type, at most one a second of each; those
of others are left out. `side` is the order's, and `bkPx` the price of bankruptcy.
"""

from collections.abc import Mapping
from typing import Literal

import msgspec

from orderbook.core.errors import DataError
from orderbook.feeds.exchanges.contract_values import ContractValues
from orderbook.feeds.exchanges.exchange import FeedBook
from orderbook.market.events import Side

CHANNELS: dict[str, tuple[str, ...]] = {
    "SWAP": ("funding-rate", "mark-price", "open-interest"),
    "FUTURES": ("mark-price", "open-interest"),
}
LIQUIDATIONS = "liquidation-orders"
_SIDES = {"buy": Side.BID, "sell": Side.ASK}


class Value(msgspec.Struct, frozen=True, gc=False):
    """A message of one of CHANNELS."""

    product: str = msgspec.field(name="instId")
    time: str = msgspec.field(name="ts", default="")
    rate: str = msgspec.field(name="fundingRate", default="")
    paid: str = msgspec.field(name="fundingTime", default="")
    mark: str = msgspec.field(name="markPx", default="")
    interest: str = msgspec.field(name="oi", default="")


class Detail(msgspec.Struct, frozen=True, gc=False):
    side: Literal["buy", "sell"]
    price: str = msgspec.field(name="bkPx")
    size: str = msgspec.field(name="sz")
    time: str = msgspec.field(name="ts")


class Liquidated(msgspec.Struct, frozen=True, gc=False):
    product: str = msgspec.field(name="instId")
    details: list[Detail]


decode_values = msgspec.json.Decoder(list[Value]).decode
decode_liquidated = msgspec.json.Decoder(list[Liquidated]).decode


def nanoseconds(text: str) -> int:
    """ns since 1970 UTC of a time in ms. Raises DataError."""
    if not text.isdecimal() or len(text) > 13:
        raise DataError(f"{text[:40]!r} is not a time in milliseconds")
    return int(text) * 1_000_000


def write_values(channel: str, data: bytes | msgspec.Raw, book: FeedBook, receive_time: int) -> None:
    """Write a message of one of CHANNELS as a unit. Raises what msgspec raises, DataError and ValueError."""
    values = ContractValues(book)
    for one in decode_values(data):
        if one.product != book.product:
            raise ValueError(f"{one.product} in a channel of {book.product}")
        # Messages of funding had no time of their own before 2023.
        values.begin(nanoseconds(one.time) if one.time else 0, receive_time)
        if channel == "funding-rate":
            values.funding(one.rate, nanoseconds(one.paid))
        elif channel == "mark-price":
            values.mark(one.mark)
        else:
            values.open_interest(one.interest)
    values.end()


def write_liquidations(data: bytes | msgspec.Raw, books: Mapping[str, FeedBook], receive_time: int) -> None:
    """Write liquidations, each product's as a unit. Raises as `write_values` does."""
    for one in decode_liquidated(data):
        book = books.get(one.product)
        if book is None:
            continue
        values = ContractValues(book)
        for detail in one.details:
            values.begin(nanoseconds(detail.time), receive_time)
            values.liquidation(_SIDES[detail.side], detail.price, detail.size)
        values.end()
