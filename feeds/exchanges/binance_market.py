"""USD-M futures besides books: mark prices, funding and liquidations, on a connection of their own.

Source: Binance documentation, "Important WebSocket Change Notice" of USD-M Futures: since April 2026 streams
of books and trades (`/public`) and of other market data (`/market`) have addresses of their own.

Frames are those of `binance_contracts`. This connection has no books: what it tells stands beside those of
`binance_futures`, which follows it for the same products.
"""

from typing import ClassVar, Literal

from orderbook.feeds.exchanges.binance import BinanceFutures, decode_frame
from orderbook.feeds.exchanges.binance_contracts import STREAMS, SUBSCRIBED, write_contract
from orderbook.feeds.wire.frame_decoder import FrameDecoder


class BinanceFuturesMarket(BinanceFutures):
    """What is told of perpetuals and dated futures, every second, and liquidations."""

    url = "wss://fstream.binance.com/market/stream"
    snapshots: ClassVar[Literal["stream", "request"]] = "stream"
    tells_books = False
    beside = ""
    streams = SUBSCRIBED

    def frame(self, data: bytes) -> None:
        frame = decode_frame(data)
        if not frame.stream:
            self._answer(frame)
            return
        name, _, rest = frame.stream.partition("@")
        kind, product = rest.partition("@")[0], name.upper()
        if kind not in STREAMS:
            self.link.statistics.problems.add("unknown message", self.venue, frame.stream)
        elif (book := self.link.book(product)) is not None:
            write_contract(kind, frame.data, book, self.link.receive_time)

    def decoder(self) -> FrameDecoder | None:
        return None

    def unreadable(self, data: bytes) -> bool:
        return True
