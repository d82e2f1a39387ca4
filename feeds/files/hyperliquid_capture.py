"""Raw Hyperliquid captures: one `<local ns> <json>` a line, as hftbacktest's collector records frames.

A capture is of one product. It may be in several files: the collector begins a new one each day.
"""

from collections.abc import Sequence
from decimal import Decimal
from functools import partial

import msgspec

from orderbook.core.errors import SourceError
from orderbook.feeds.byte_stream import Lines
from orderbook.feeds.exchanges import hyperliquid
from orderbook.feeds.files.binance_capture import begun_line, local_line, local_time, take_lines
from orderbook.feeds.recording.capture_replay import LineReplay, ReplayedLines
from orderbook.feeds.storage import Place
from orderbook.feeds.text_values import decimal_places
from orderbook.market.contract_terms import PERPETUAL, SPOT
from orderbook.market.instruments import SCALE, Instrument, Instruments

# How many lines are searched for the product, and for tick and lot.
HEAD_LINES = 2_000
_MALFORMED = (msgspec.DecodeError, UnicodeDecodeError, ValueError)


class HyperliquidCaptureSource(ReplayedLines):
    """A capture's books as L2 events and its trades as TRADE events, by the decoder of the live feed.

    path: a file, or those of one capture in any order, which are one stream. Every message is a whole book,
    so that a book goes on over a file that is missing between two, and nothing tells that one is.

    A capture does not state tick and lot: they are the coarsest decimal steps of the first 2,000 lines.
    Prices and sizes off them are counted and kept.

    Raises SourceError when a file is missing, when one has no book, when files are of different products, and
    when one is truncated, after everything before the cut and all other files.
    """

    changes = "books applied"

    def __init__(self, path: Place | Sequence[Place]) -> None:
        super().__init__("hyperliquid", list(path) if isinstance(path, Sequence) else [path], local_time)
        heads = {lines.path: _head(lines.path) for lines in self._lines.files}
        (first, (coin, tick, lot)), *others = heads.items()
        for other, (name, own_tick, own_lot) in others:
            if name != coin:
                raise SourceError(f"{first} is of {coin} and {other} of {name}; name them apart")
            tick, lot = min(tick, own_tick), min(lot, own_lot)
        terms = SPOT if hyperliquid.is_spot(coin) else PERPETUAL
        self._instrument = Instrument.listed(hyperliquid.Hyperliquid.venue, coin, tick, lot, terms=terms)
        self.instruments = Instruments([self._instrument])

    def _take_all(self, replay: LineReplay, lines: Sequence[bytes]) -> None:
        take_lines(replay, lines, self._lines.current, partial(self._take, replay))

    def _take(self, replay: LineReplay, line: bytes) -> None:
        found = begun_line(replay, line, self.counts)
        if found is not None:
            time, frame = found
            replay.frame(frame, time)


def _head(path: Place) -> tuple[str, Decimal, Decimal]:
    """The product, tick and lot of a file, by its first lines."""
    coin, places = "", [0, 0]
    for number, line in enumerate(Lines(path)):
        if number == HEAD_LINES:
            break
        try:
            message = hyperliquid.decode_message(local_line(line)[1])
            if message.channel != "l2Book":
                continue
            book = hyperliquid.decode_book(message.data)
            for level in (level for side in book.levels for level in side):
                for place, text in enumerate((level.px, level.sz)):
                    places[place] = max(places[place], decimal_places(text))
        except _MALFORMED:
            continue
        coin = coin or book.coin
    if not coin:
        raise SourceError(
            f"{path}: no book of Hyperliquid in the first {HEAD_LINES} lines; "
            "a capture has lines `<local ns> <json>` with the channel l2Book"
        )
    tick, lot = (Decimal(1).scaleb(-min(count, SCALE)) for count in places)
    return coin, tick, lot
