"""The best bids and asks that Binance sends beside its depth, to compare books with."""

from collections.abc import Iterator
from typing import NamedTuple

import msgspec

from orderbook.feeds.exchanges import binance
from orderbook.feeds.files.binance_capture import _MALFORMED, BinanceCaptureSource, local_line


class Ticker(msgspec.Struct, frozen=True, gc=False):
    """The best bid and ask as of update id `u`.

    {"u": 50093239212, "s": "BTCUSDT", "b": "61837.63000000", "B": "3.78826000",
     "a": "61837.64000000", "A": "1.54698000"}
    """

    u: binance.Identifier
    s: str
    b: str
    B: str
    a: str
    A: str


decode_ticker = msgspec.json.Decoder(Ticker).decode


class BookTicker(NamedTuple):
    """The exchange's own best bid and ask as of an update id; in the instrument's units."""

    update_id: int
    bid_price: int
    bid_volume: int
    ask_price: int
    ask_volume: int


def book_tickers(source: BinanceCaptureSource) -> Iterator[BookTicker]:
    """The bookTicker messages of a capture; malformed ones are left out."""
    (instrument,) = source.instruments
    for line in source._lines:
        try:
            frame = binance.decode_frame(local_line(line)[1])
            if not frame.stream.endswith("@bookTicker"):
                continue
            ticker = decode_ticker(frame.data)
            yield BookTicker(
                ticker.u,
                instrument.ticks(ticker.b),
                instrument.lots(ticker.B),
                instrument.ticks(ticker.a),
                instrument.lots(ticker.A),
            )
        except _MALFORMED:
            continue
