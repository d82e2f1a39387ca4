"""Binance market data messages, spot and USD-M futures, as typed structs; numbers stay the wire's text.

Source: Binance documentation, "WebSocket Streams", "Order Book" and "Exchange Information" of Spot and of
USD-M Futures.
"""

from typing import Annotated

import msgspec

Levels = list[tuple[str, str]]
Identifier = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]
Milliseconds = Annotated[int, msgspec.Meta(ge=0, le=(2**63 - 1) // 1_000_000)]


class Problem(msgspec.Struct, frozen=True, gc=False):
    """Why a request was refused."""

    code: int = 0
    msg: str = ""


class Frame(msgspec.Struct, frozen=True, gc=False):
    """A stream's message, the answer to a request, or `e` "serverShutdown" before the server goes.

    {"stream": "btcusdt@trade", "data": {...}}
    {"result": null, "id": 1}
    {"error": {"code": 2, "msg": "Invalid request: …"}, "id": 1}
    {"e": "serverShutdown", "E": 1770123456789}
    """

    stream: str = ""
    data: msgspec.Raw = msgspec.Raw(b"")
    id: int | None = None
    error: Problem | None = None
    code: int | None = None
    msg: str = ""
    e: str = ""


class Snapshot(msgspec.Struct, frozen=True, gc=False):
    """The answer to a depth request; `E` (ms) from futures alone.

    {"lastUpdateId": 50093239218, "bids": [["61837.63000000", "3.78826000"], ...], "asks": [...]}
    """

    lastUpdateId: Identifier
    bids: Levels
    asks: Levels
    E: Milliseconds = 0


class Depth(msgspec.Struct, frozen=True, gc=False):
    """A depth diff: absolute volumes of the levels that changed, update ids U to u; times in ms.

    {"e": "depthUpdate", "E": 1723161255308, "s": "BTCUSDT", "U": 50093239203, "u": 50093239207,
     "b": [["55653.87000000", "0.00000000"]], "a": [["61838.04000000", "0.32332000"]]}

    Futures add "pu", the last id of the diff before.
    """

    E: Milliseconds
    s: str
    U: Identifier
    u: Identifier
    b: Levels
    a: Levels
    pu: Identifier | None = None


class Trade(msgspec.Struct, frozen=True, gc=False):
    """A trade; `m`: the buyer is the maker. Futures' X names trades outside the book (insurance, ADL).

    {"e": "trade", "E": 1723161255343, "s": "BTCUSDT", "t": 3735683259, "p": "61837.63000000",
     "q": "0.02000000", "T": 1723161255342, "m": true, "M": true}
    """

    s: str
    id: Identifier = msgspec.field(name="t")
    p: str
    q: str
    T: Milliseconds
    m: bool
    X: str = "MARKET"


class AggregateTrade(msgspec.Struct, frozen=True, gc=False):
    """The trades of one taker's order at one price.

    {"e": "aggTrade", "E": 1626992741575, "a": 16599292, "s": "CTKUSDT", "p": "1.01100", "q": "10",
     "f": 23961322, "l": 23961322, "T": 1626992741421, "m": false}
    """

    s: str
    id: Identifier = msgspec.field(name="a")
    p: str
    q: str
    T: Milliseconds
    m: bool
    X: str = "MARKET"


class Ticker(msgspec.Struct, frozen=True, gc=False):
    """The best bid and ask as of update id `u`.

    {"u": 50093239212, "s": "BTCUSDT", "b": "61837.63000000", "B": "3.78826000",
     "a": "61837.64000000", "A": "1.54698000"}
    """

    u: Identifier
    s: str
    b: str
    B: str
    a: str
    A: str


class PlacedDepth(msgspec.Struct, frozen=True, gc=False):
    """Of a depth diff that cannot be read, where it belongs."""

    e: str
    s: str
    u: Identifier


class Placed(msgspec.Struct, frozen=True, gc=False):
    data: PlacedDepth


class Filter(msgspec.Struct, frozen=True, gc=False):
    filterType: str
    tickSize: str = ""
    stepSize: str = ""


class Product(msgspec.Struct, frozen=True, gc=False):
    """A product; futures state `pricePrecision` and `quantityPrecision`, decimal places of their messages,
    and COIN-M futures `contractSize`, USD of a contract.

    {"symbol": "ETHBTC", "baseAssetPrecision": 8, "quotePrecision": 8,
     "filters": [{"filterType": "PRICE_FILTER", "tickSize": "0.00000100", ...}, ...]}
    """

    symbol: str
    filters: list[Filter]
    baseAssetPrecision: int = 0
    quotePrecision: int = 0
    pricePrecision: int | None = None
    quantityPrecision: int | None = None
    contractSize: float | None = None

    @property
    def price_places(self) -> int:
        """Decimal places of prices in messages."""
        return self.quotePrecision if self.pricePrecision is None else self.pricePrecision

    @property
    def size_places(self) -> int:
        """Decimal places of volumes in messages."""
        return self.baseAssetPrecision if self.quantityPrecision is None else self.quantityPrecision


class ExchangeInformation(msgspec.Struct, frozen=True, gc=False):
    symbols: list[Product] = []


decode_frame = msgspec.json.Decoder(Frame).decode
decode_snapshot = msgspec.json.Decoder(Snapshot).decode
decode_depth = msgspec.json.Decoder(Depth).decode
decode_trade = msgspec.json.Decoder(Trade).decode
decode_aggregate = msgspec.json.Decoder(AggregateTrade).decode
decode_ticker = msgspec.json.Decoder(Ticker).decode
decode_placed = msgspec.json.Decoder(Placed).decode
decode_information = msgspec.json.Decoder(ExchangeInformation).decode
