"""Raw frames as received: the lines of a recording, which replays through the decoder that took them.

One JSON object a line. `ts` is ns since 1970 UTC by the receiver's clock, `data` the text of a frame or
answer (`raw` its bytes in base64, where they are no UTF-8), `state` a StateReason:

    {"t": "session", "conn", "exchange", "depth", "crossed_limit", "instruments", "run", "part", "ts", "open",
     "format"}
    {"t": "connect", "conn", "ts", "addr"}
    {"t": "disconnect", "conn", "ts", "reason", "state"}
    {"t": "send" | "recv", "conn", "ts", "data"}
    {"t": "http", "conn", "ts", "url", "data"}
    {"t": "instruments", "conn", "ts", "instruments"}

`crossed_limit` is that of the feed, which lost crossed books by it; none where no book was lost for that.
`instruments` are those whose tick or lot was found to be another one. Session lines begin every file, one
for each connection. `format` is FORMAT; recordings of before it was written have none, and are read as 1.
`run` tells recordings apart, `part` counts the files of one: a file whose part is above 0 goes on where the
one before ended, at `ts`, when the connection was `open` or not.

Recordings of cryptofeed 3 are read too: their `ts` is in seconds, they begin with
{"t": "header", "exchange"}, have no session lines, and `b64` for `raw`.
"""

from collections.abc import Sequence
from dataclasses import replace
from decimal import Decimal
from typing import Protocol

import msgspec

from orderbook.market.contract_terms import Terms
from orderbook.market.instruments import FINEST, ContractType, Instrument

# Of the lines; a recording of a later one is refused.
FORMAT = 1


class RawLog(Protocol):
    """What a connection tells a recording, in the order in which its session takes it; times are ns.

    Each may raise SourceError where the recording cannot go on.
    """

    async def room(self) -> None:
        """Wait until more can be taken."""

    def connected(self, url: str, time: int) -> None: ...

    def disconnected(self, reason: str, time: int, state: int) -> None: ...

    def sent(self, text: str, time: int) -> None: ...

    def received(self, data: bytes, time: int) -> None: ...

    def answered(self, url: str, data: bytes, time: int) -> None: ...

    def relisted(self, instruments: Sequence["InstrumentText"], time: int) -> None: ...


class InstrumentText(msgspec.Struct, frozen=True):
    """An instrument; numbers are decimal text. Without units these are tick and lot, and without `contract`
    its name says what it is."""

    venue: str
    symbol: str
    native_symbol: str
    tick: str
    lot: str
    price_unit: str = ""
    volume_unit: str = ""
    contract: ContractType | None = None
    terms: Terms = Terms()

    @classmethod
    def of(cls, one: Instrument) -> "InstrumentText":
        price, volume = str(one.price_unit), str(one.volume_unit)
        steps = (str(one.tick), str(one.lot), price, volume)
        return cls(one.venue, one.symbol, one.native_symbol, *steps, one.contract, one.terms)

    @property
    def names(self) -> tuple[str, str]:
        """Venue and native symbol."""
        return self.venue, self.native_symbol

    @property
    def instrument(self) -> Instrument:
        """The instrument. Raises DataError, or InvalidOperation for what is no number."""
        tick, lot = Decimal(self.tick), Decimal(self.lot)
        units = Decimal(self.price_unit or tick), Decimal(self.volume_unit or lot)
        names = self.venue, self.symbol, self.native_symbol
        return Instrument(*names, tick, lot, *units, self.contract, self.terms)

    @property
    def decoded(self) -> Instrument:
        """The instrument as raw frames are decoded for it: without units in the finest."""
        found = self.instrument
        return found if self.price_unit else replace(found, price_unit=FINEST, volume_unit=FINEST)


class Line(msgspec.Struct, omit_defaults=True):
    """Any line of a recording."""

    t: str
    conn: str = ""
    ts: int | float = 0
    data: str = ""
    raw: bytes = b""
    b64: bytes = b""
    url: str = ""
    addr: str = ""
    reason: str = ""
    state: int = 0
    exchange: str = ""
    depth: int | None = None
    crossed_limit: int | None = None
    instruments: list[InstrumentText] = []
    run: int = 0
    part: int = 0
    open: bool = False
    format: int = 0

    @property
    def time(self) -> int:
        """ns since 1970 UTC; a recording of cryptofeed rounds to some 100 ns."""
        return self.ts if isinstance(self.ts, int) else round(self.ts * 1e9)

    @property
    def payload(self) -> bytes:
        """The frame or answer as it was received."""
        return self.raw or self.b64 or self.data.encode()


def with_payload(kind: str, conn: str, time: int, payload: bytes, url: str = "") -> Line:
    """A line of a frame or answer."""
    try:
        return Line(kind, conn, time, payload.decode(), url=url)
    except UnicodeDecodeError:
        return Line(kind, conn, time, raw=payload, url=url)
