"""Raw Binance captures, spot and USD-M futures: one `<local ns> <json>` a line, as hftbacktest records them.

A line holds a combined-stream message (depth diffs, trades, bookTicker) or, once or more, a REST depth
snapshot. A capture is of one symbol, since a snapshot does not name its own.
"""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import NamedTuple

import msgspec
import numpy as np

from feeds.binance_messages import Frame, Levels, decode_depth, decode_frame, decode_ticker, decode_trade
from feeds.binance_sync import DepthSynchroniser, Diff, Outcome
from feeds.byte_stream import Lines, shown
from feeds.decimal_text import decimal_places
from feeds.message_writer import DEFAULT_BATCH_SIZE, MessageWriter
from orderbook.errors import DataError, SourceError
from orderbook.events import Action, BookState, Flag, Side
from orderbook.instruments import Instrument, Instruments
from orderbook.problems import Problems
from orderbook.symbols import normalise_symbol

SPOT = "binance"
FUTURES = "binance_futures"
# Tick and lot sizes known from the exchange's own `exchangeInfo`.
INCREMENTS = {
    (SPOT, "BTCUSDT"): (Decimal("0.01"), Decimal("0.00001")),
    (FUTURES, "BTCUSDT"): (Decimal("0.1"), Decimal("0.001")),
}
# How many lines are searched for the market, the symbol and the decimal places in use.
HEAD_LINES = 2_000
INT64_MAX = 2**63 - 1
_MALFORMED = (msgspec.DecodeError, DataError, ValueError)


class BookTicker(NamedTuple):
    """The exchange's own best bid and ask as of an update id; ticks and lots."""

    update_id: int
    bid_price: int
    bid_volume: int
    ask_price: int
    ask_volume: int


class BinanceCaptureSource:
    """A capture's depth diffs as L2 events and its trades as TRADE events.

    A depth diff is one message of LEVEL events with absolute volumes, `sequence` its last update id.
    The book is VALID once a snapshot and the diffs held until then are applied (these with the
    snapshot's receive time, the moment they reach the book). A gap in the update ids clears the book,
    which is SYNCING until the next snapshot, and is counted. A trade's `order_id` and `sequence` are
    its trade id. `exchange_time` is the event time of depth and the trade time of trades; the local
    clock may run behind it.

    A capture does not state tick and lot: they are the known ones of `INCREMENTS`, made finer where the
    first 2,000 lines use more decimal places; a later message that needs yet finer ones is malformed.

    Raises SourceError when the file is missing or holds no depth diff, and when it is truncated, after
    everything before the cut.
    """

    def __init__(self, path: Path, batch_size: int = DEFAULT_BATCH_SIZE):
        self.name = f"binance:{path}"
        self.problems = Problems()
        self.counts: Counter[str] = Counter()
        self._batch_size = batch_size
        self._lines = Lines(path)
        self._instrument = _scan_head(path)
        self.instruments = Instruments([self._instrument])

    @property
    def progress(self) -> float:
        """Fraction of the file's bytes read."""
        return self._lines.progress

    def __iter__(self) -> Iterator[np.ndarray]:
        self.problems.clear()
        self.counts.clear()
        writer = MessageWriter()
        capture = _Capture(self._instrument, writer, self.problems, self.counts)
        for line in self._lines:
            if not line:
                continue
            try:
                receive_time, frame = _split(line)
                capture.frame(receive_time, frame, f"{self._lines.path.name}:{self._lines.number}")
            except _MALFORMED as error:
                self._lines.malformed(self.problems, "malformed frame", f"{error}: {shown(line)}")
            if len(writer) >= self._batch_size:
                yield writer.take()
        if len(writer):
            yield writer.take()
        self._lines.raise_if_cut()

    def book_tickers(self) -> Iterator[BookTicker]:
        """Read the file once more for its bookTicker messages; malformed ones are left out."""
        instrument = self._instrument
        for line in Lines(self._lines.path):
            try:
                _, frame = _split(line)
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


class _Capture:
    """The state between a capture's frames."""

    def __init__(
        self, instrument: Instrument, writer: MessageWriter, problems: Problems, counts: Counter[str]
    ):
        self._instrument = instrument
        self._writer = writer
        self._problems = problems
        self._counts = counts
        self._synchroniser = DepthSynchroniser(instrument.venue == FUTURES)

    def frame(self, receive_time: int, frame: Frame, where: str) -> None:
        """Write the events of one frame. Raises ValueError or DataError before any when it is malformed."""
        kind = frame.stream.partition("@")[2].partition("@")[0]
        if frame.lastUpdateId is not None:
            self._snapshot(receive_time, frame, where)
        elif kind == "depth":
            self._depth(receive_time, frame.data, where)
        elif kind == "trade":
            self._trade(receive_time, frame.data)
        elif kind == "bookTicker":
            self._counts["book tickers"] += 1
        elif kind:
            self._counts[f"messages not read: {kind}"] += 1
        else:
            raise ValueError("neither a stream's message nor a depth snapshot")

    def _depth(self, receive_time: int, data: msgspec.Raw, where: str) -> None:
        depth = decode_depth(data)
        self._check_symbol(depth.s)
        if (depth.pu is not None) != (self._instrument.venue == FUTURES):
            raise ValueError(f"not a depth diff of {self._instrument.venue}")
        diff = Diff(
            depth.U, depth.u, depth.pu, depth.E * 1_000_000, self._levels(depth.b), self._levels(depth.a)
        )
        outcome = self._synchroniser.diff(diff)
        if outcome is Outcome.APPLY:
            self._apply(receive_time, diff)
            self._writer.end()
        elif outcome is Outcome.GAP:
            self._problems.add("gap in the update ids", where, f"diff {depth.U} to {depth.u} does not follow")
            self._writer.begin(diff.exchange_time, receive_time, diff.last)
            self._writer.append(Action.STATE, Side.NONE, volume=BookState.SYNCING)
            self._writer.append(Action.CLEAR, Side.NONE)
            self._writer.end()
        elif outcome is Outcome.HOLD:
            self._counts["diffs held for a snapshot"] += 1
        else:
            self._counts["diffs the book contained"] += 1

    def _snapshot(self, receive_time: int, frame: Frame, where: str) -> None:
        bids, asks = self._levels(frame.bids), self._levels(frame.asks)
        assert frame.lastUpdateId is not None
        was_valid = self._synchroniser.state is BookState.VALID
        held = self._synchroniser.snapshot(frame.lastUpdateId)
        if held is None:
            if was_valid:
                self._counts["snapshots not needed"] += 1
            else:
                self._problems.add("snapshot too old", where, f"diffs after {frame.lastUpdateId} are missing")
            return
        self._counts["snapshots applied"] += 1
        self._writer.begin(frame.E * 1_000_000, receive_time, frame.lastUpdateId)
        self._writer.append(Action.CLEAR, Side.NONE, flags=Flag.SNAPSHOT)
        self._write_levels(bids, asks, Flag.SNAPSHOT)
        for diff in held:
            self._writer.end()
            self._apply(receive_time, diff)
        self._writer.append(Action.STATE, Side.NONE, volume=BookState.VALID)
        self._writer.end()

    def _apply(self, receive_time: int, diff: Diff) -> None:
        self._counts["diffs applied"] += 1
        self._writer.begin(diff.exchange_time, receive_time, diff.last)
        self._write_levels(diff.bids, diff.asks, 0)

    def _write_levels(self, bids: list[tuple[int, int]], asks: list[tuple[int, int]], flags: int) -> None:
        for price, volume in bids:
            self._writer.append(Action.LEVEL, Side.BID, 0, price, volume, flags)
        for price, volume in asks:
            self._writer.append(Action.LEVEL, Side.ASK, 0, price, volume, flags)

    def _trade(self, receive_time: int, data: msgspec.Raw) -> None:
        trade = decode_trade(data)
        self._check_symbol(trade.s)
        if trade.X != "MARKET":
            self._counts["trades outside the book"] += 1
            return
        price, volume = self._instrument.ticks(trade.p), self._instrument.lots(trade.q)
        aggressor = Side.ASK if trade.m else Side.BID
        self._writer.begin(trade.T * 1_000_000, receive_time, trade.t)
        self._writer.append(Action.TRADE, aggressor, trade.t, price, volume)
        self._writer.end()

    def _levels(self, levels: Levels) -> list[tuple[int, int]]:
        ticks, lots = self._instrument.ticks, self._instrument.lots
        return [(ticks(price), lots(volume)) for price, volume in levels]

    def _check_symbol(self, symbol: str) -> None:
        if symbol != self._instrument.native_symbol:
            raise ValueError(f"symbol {symbol!r} in a capture of {self._instrument.native_symbol}")


@dataclass(slots=True)
class _Head:
    """What the first lines of a capture tell."""

    symbol: str = ""
    venue: str = ""
    price_places: int = 0
    volume_places: int = 0

    def take(self, frame: Frame) -> None:
        levels = frame.bids + frame.asks
        if frame.stream.partition("@")[2].startswith("depth"):
            depth = decode_depth(frame.data)
            if not self.venue:
                self.symbol = depth.s
                self.venue = SPOT if depth.pu is None else FUTURES
            levels = depth.b + depth.a
        for price, volume in levels:
            self.price_places = max(self.price_places, decimal_places(price))
            self.volume_places = max(self.volume_places, decimal_places(volume))


def _scan_head(path: Path) -> Instrument:
    head = _Head()
    for number, line in enumerate(Lines(path)):
        if number == HEAD_LINES:
            break
        try:
            head.take(_split(line)[1])
        except _MALFORMED:
            continue
    if not head.venue:
        raise SourceError(
            f"{path}: no Binance depth diff in the first {HEAD_LINES} lines; "
            "a capture has lines `<local ns> <json>` with a depth stream"
        )
    tick, lot = INCREMENTS.get((head.venue, head.symbol), (Decimal(1), Decimal(1)))
    return Instrument(
        head.venue,
        normalise_symbol(head.venue, head.symbol),
        head.symbol,
        min(tick, Decimal(1).scaleb(-head.price_places)),
        min(lot, Decimal(1).scaleb(-head.volume_places)),
    )


def _split(line: bytes) -> tuple[int, Frame]:
    """Local time (ns) and frame of a line. Raises ValueError or msgspec.DecodeError."""
    time, _, frame = line.partition(b" ")
    # More digits are past int64, and past the year 2262.
    if not time.isdigit() or len(time) > 19 or int(time) > INT64_MAX:
        raise ValueError("no local time in ns")
    return int(time), decode_frame(frame)
