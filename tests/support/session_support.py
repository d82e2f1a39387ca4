"""A session driven by hand on a virtual clock, with a plain book behind each product; and a plain CRC32."""

import json
from collections.abc import Sequence
from decimal import Decimal
from typing import Any

from plain_book import PlainBook

from orderbook.feeds.exchanges.exchange import Exchange, ExchangeOptions
from orderbook.feeds.live.session import Command, Connect, Disconnect, Send, Session
from orderbook.market.events import BookState, Flag, Side
from orderbook.market.instruments import Instrument, Instruments

Levels = list[tuple[int, int]]


def instrument(venue: str, native: str, tick: str = "0.1", lot: str = "0.00000001") -> Instrument:
    return Instrument(venue, native.replace("/", "-"), native, Decimal(tick), Decimal(lot))


class Driven:
    """Connects at once; `frame` applies what the session makes of a frame to `books`."""

    def __init__(
        self, kind: type[Exchange], instruments: Sequence[Instrument], depth: int | None = None
    ) -> None:
        self.now = 1000.0
        self.instruments = instruments
        self.books = {one.native_symbol: PlainBook() for one in instruments}
        self.reasons: list[int] = []
        options = ExchangeOptions(depth=depth)
        self.session = Session(
            kind, Instruments(instruments), range(len(instruments)), options, lambda: self.now, seed=1
        )
        self.statistics = self.session.statistics
        self.connect()

    @property
    def time(self) -> int:
        return round(self.now * 1e9)

    @property
    def problems(self) -> dict[str, int]:
        return dict(self.statistics.problems.counts)

    def connect(self) -> None:
        self.now = max(self.now, self.session.wake_at)
        self.session.wake(self.time)
        (command,) = self.session.commands()
        assert isinstance(command, Connect)
        self.session.connected(self.time)
        self._settle()

    def frame(self, frame: str | bytes | dict[str, Any] | list[Any]) -> list[tuple[int, ...]]:
        """(instrument, action, side, price, volume, order_id) of the events of a frame."""
        if isinstance(frame, dict | list):
            frame = json.dumps(frame)
        self.session.frame(frame if isinstance(frame, bytes) else frame.encode(), self.time)
        return self._settle()

    def commands(self, seconds: float) -> list[Command]:
        """What the session wants in the next seconds."""
        end, found = self.now + seconds, self.session.commands()
        while self.session.wake_at <= end:
            self.now = max(self.now, self.session.wake_at)
            self.session.wake(self.time)
            found += self.session.commands()
            if any(isinstance(command, Disconnect) for command in found):
                break
        self._settle()
        return found

    def sent(self, seconds: float = 5.0) -> list[Any]:
        """The JSON messages that are sent in the next seconds; the connection stays."""
        found = self.commands(seconds)
        assert all(isinstance(command, Send) for command in found), found
        return [json.loads(command.text) for command in found if isinstance(command, Send)]

    def state(self, product: str) -> BookState:
        return self.books[product].state

    def levels(self, product: str) -> tuple[Levels, Levels]:
        """(price, volume) of bids and of asks in ticks and lots, best first."""
        book = self.books[product]
        return book.best(Side.BID), book.best(Side.ASK)

    def _settle(self) -> list[tuple[int, ...]]:
        events = self.session.take()
        names = list(self.books)
        for event in events:
            self.books[names[event["instrument"]]].apply(event)
        if len(events):
            assert events["flags"][-1] & Flag.LAST
        fields = ("instrument", "action", "side", "price", "volume", "order_id")
        return [tuple(int(event[name]) for name in fields) for event in events]


def plain_crc32(text: str) -> int:
    """CRC-32 (ISO 3309), bit by bit."""
    register = 0xFFFFFFFF
    for byte in text.encode():
        register ^= byte
        for _ in range(8):
            register = register >> 1 ^ (0xEDB88320 if register & 1 else 0)
    return register ^ 0xFFFFFFFF
