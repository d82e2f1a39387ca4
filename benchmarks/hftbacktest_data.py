"""A Binance capture as a record of ours and as hftbacktest's events: the same rows, the same times."""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np

from orderbook.feeds.files.binance_capture import BinanceCaptureSource
from orderbook.feeds.recording.parquet_record import RecordWriter
from orderbook.market.events import Action, BookState, Side
from orderbook.market.instruments import Instrument, Instruments

# "received": messages in the order in which they came, with the exchange's times, by which hftbacktest's
# exchange sorts them. "exchange": sorted by these beforehand, and received a constant time later.
Order = Literal["received", "exchange"]

FEED_LATENCY = 1_000_000
_START = 1_000_000

# hftbacktest's event, `types.event_dtype`, and the bits of `ev`.
ROW = np.dtype(
    [
        ("ev", "u8"), ("exch_ts", "i8"), ("local_ts", "i8"), ("px", "f8"), ("qty", "f8"), ("order_id", "u8"),
        ("ival", "i8"), ("fval", "f8"),
    ],
    align=True,
)  # fmt: skip
# hftbacktest's latencies of orders, `data` of its files of these.
LATENCY = np.dtype([(name, "i8") for name in ("req_ts", "exch_ts", "resp_ts", "_padding")])
_DEPTH, _TRADE = 1, 2
_EXCHANGE, _LOCAL, _BUY, _SELL = 1 << 31, 1 << 30, 1 << 29, 1 << 28


@dataclass(frozen=True)
class Market:
    """A capture's events from the moment its book is valid, EVENT[n], with both clocks made comparable.

    The book as it is then comes first, as levels. Receive times are shifted so that no message is received
    before it was sent, as hftbacktest's converters do.
    """

    name: str
    instrument: Instrument
    events: np.ndarray

    def write(self, path: Path) -> None:
        """Write it as a record."""
        with RecordWriter(path, Instruments([self.instrument])) as writer:
            writer.write(self.events)


def read_market(path: Path, order: Order) -> Market:
    """Read a capture. Raises ValueError for one whose book is lost on the way."""
    source = BinanceCaptureSource(path)
    events = np.concatenate([batch.copy() for batch in source])
    action = events["action"]
    valid = np.flatnonzero((action == Action.STATE) & (events["volume"] == BookState.VALID))
    lost = np.flatnonzero((action == Action.STATE) | (action == Action.CLEAR))
    if len(valid) != 1 or lost[-1] > valid[0]:
        raise ValueError(f"{path}: the book is lost on the way, which hftbacktest has no event for")
    cut = int(valid[0]) + 1
    head, rest = events[:cut], events[cut:]
    head = head[head["action"] != Action.TRADE]
    rest["receive_time"] += max(0, -int((rest["receive_time"] - rest["exchange_time"]).min()))
    if order == "exchange":
        # Stable, so that what one message holds stays together.
        rest = rest[np.argsort(rest["exchange_time"], kind="stable")]
        rest["receive_time"] = rest["exchange_time"] + FEED_LATENCY
    first = min(int(rest["exchange_time"].min()), int(rest["receive_time"].min())) - _START
    head["exchange_time"] = head["receive_time"] = first
    return Market(path.stem.partition("_")[0], source.instruments[0], np.concatenate([head, rest]))


def hftbacktest_rows(market: Market) -> np.ndarray:
    """The events as ROW[n]: each once for the exchange and once for the strategy's side, by their times."""
    events = market.events
    events = events[(events["action"] == Action.LEVEL) | (events["action"] == Action.TRADE)]
    rows = np.zeros(len(events), ROW)
    side = np.where(events["side"] == Side.BID, _BUY, _SELL)
    rows["ev"] = np.where(events["action"] == Action.TRADE, _TRADE, _DEPTH) | side
    rows["exch_ts"], rows["local_ts"] = events["exchange_time"], events["receive_time"]
    rows["px"] = events["price"] * float(market.instrument.price_unit)
    rows["qty"] = events["volume"] * float(market.instrument.volume_unit)
    exchange = rows[np.argsort(rows["exch_ts"], kind="stable")]
    exchange["ev"] |= _EXCHANGE
    local = rows[np.argsort(rows["local_ts"], kind="stable")]
    local["ev"] |= _LOCAL
    # Each side reads on to its own next event, so that only the order within each matters.
    return np.concatenate([exchange, local])
