"""Bybit v5 public messages as typed structs; numbers stay the wire's text.

Source: Bybit documentation, v5, "Orderbook", "Trade", "Get Instruments Info".
"""

from typing import Annotated, Literal

import msgspec

Levels = list[tuple[str, str]]
Identifier = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]
Milliseconds = Annotated[int, msgspec.Meta(ge=0, le=(2**63 - 1) // 1_000_000)]


class Message(msgspec.Struct, frozen=True, gc=False):
    """A topic's message; `cts` is the matching engine's time. Or the answer to a request, without a topic."""

    topic: str = ""
    type: str = ""
    ts: Milliseconds = 0
    cts: Milliseconds = 0
    data: msgspec.Raw = msgspec.Raw(b"")
    op: str = ""
    req_id: str = ""
    success: bool | None = None
    ret_msg: str = ""


class Depth(msgspec.Struct, frozen=True, gc=False):
    """Levels with their new sizes, "0" for none."""

    s: str
    b: Levels
    a: Levels
    u: Identifier


class Trade(msgspec.Struct, frozen=True, gc=False):
    """A trade: `S` the taker's side, `BT` whether it is a block trade."""

    T: Milliseconds
    s: str
    S: Literal["Buy", "Sell"]
    v: str
    p: str
    i: str
    BT: bool = False
    seq: Identifier = 0


class Placed(msgspec.Struct, frozen=True, gc=False):
    """Of a message that cannot be read, where it belongs."""

    topic: str


class PriceFilter(msgspec.Struct, frozen=True, gc=False):
    tickSize: str


class LotSizeFilter(msgspec.Struct, frozen=True, gc=False):
    """Spot states `basePrecision`, linear `qtyStep`."""

    basePrecision: str = ""
    qtyStep: str = ""


class Product(msgspec.Struct, frozen=True, gc=False):
    symbol: str
    priceFilter: PriceFilter
    lotSizeFilter: LotSizeFilter


class Products(msgspec.Struct, frozen=True, gc=False):
    category: str = ""
    products: list[Product] = msgspec.field(name="list", default_factory=list)


class Information(msgspec.Struct, frozen=True, gc=False):
    """{"retCode": 0, "retMsg": "OK", "result": {"category": "spot", "list": [{"symbol": "BTCUSDT",
    "lotSizeFilter": {"basePrecision": "0.000001", …}, "priceFilter": {"tickSize": "0.01"}, …}]}, …}"""

    result: Products = Products()


decode_message = msgspec.json.Decoder(Message).decode
decode_depth = msgspec.json.Decoder(Depth).decode
decode_trades = msgspec.json.Decoder(list[Trade]).decode
decode_placed = msgspec.json.Decoder(Placed).decode
decode_information = msgspec.json.Decoder(Information).decode
