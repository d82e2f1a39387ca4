"""Binance market data messages, spot and USD-M futures, as typed structs; numbers stay the wire's text.

Source: Binance documentation, "WebSocket Streams" and "Order Book" of Spot and of USD-M Futures.
"""

from typing import Annotated

import msgspec

Levels = list[tuple[str, str]]
Identifier = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]
Milliseconds = Annotated[int, msgspec.Meta(ge=0, le=(2**63 - 1) // 1_000_000)]


class Frame(msgspec.Struct):
    """One line of a capture: a stream's message in `data`, or a REST depth snapshot.

    {"stream": "btcusdt@trade", "data": {...}}
    {"lastUpdateId": 50093239218, "bids": [["61837.63000000", "3.78826000"], ...], "asks": [...]}
    """

    stream: str = ""
    data: msgspec.Raw = msgspec.Raw(b"")
    lastUpdateId: Identifier | None = None
    E: Milliseconds = 0
    bids: Levels = []
    asks: Levels = []


class Depth(msgspec.Struct):
    """A depth diff: absolute volumes of the levels that changed, update ids U to u; times in ms.

    {"e": "depthUpdate", "E": 1723161255308, "s": "BTCUSDT", "U": 50093239203, "u": 50093239207,
     "b": [["55653.87000000", "0.00000000"]], "a": [["61838.04000000", "0.32332000"]]}
    """

    E: Milliseconds
    s: str
    U: Identifier
    u: Identifier
    b: Levels
    a: Levels
    pu: Identifier | None = None


class Trade(msgspec.Struct):
    """A trade; `m`: the buyer is the maker. Futures' X names trades outside the book (insurance, ADL).

    {"e": "trade", "E": 1723161255343, "s": "BTCUSDT", "t": 3735683259, "p": "61837.63000000",
     "q": "0.02000000", "T": 1723161255342, "m": true, "M": true}
    """

    s: str
    t: Identifier
    p: str
    q: str
    T: Milliseconds
    m: bool
    X: str = "MARKET"


class Ticker(msgspec.Struct):
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


decode_frame = msgspec.json.Decoder(Frame).decode
decode_depth = msgspec.json.Decoder(Depth).decode
decode_trade = msgspec.json.Decoder(Trade).decode
decode_ticker = msgspec.json.Decoder(Ticker).decode
