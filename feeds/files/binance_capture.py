"""Raw Binance captures, spot and USD-M futures: one `<local ns> <json>` a line, as hftbacktest records them.

A line holds a combined-stream message (depth diffs, trades, bookTicker) or, once or more, a REST depth
snapshot. A capture is of one symbol, since a snapshot does not name its own. It may be in several files: the
collector begins a new one each day, and does not ask for another snapshot.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from functools import partial

import msgspec

from orderbook.core.errors import DataError, SourceError
from orderbook.feeds.byte_stream import Lines, shown
from orderbook.feeds.exchanges import binance
from orderbook.feeds.recording.capture_replay import LineReplay, ReplayedLines
from orderbook.feeds.storage import Place
from orderbook.feeds.text_values import decimal_places, scaled
from orderbook.market.instruments import SCALE, Instrument, Instruments

SPOT = "binance"
FUTURES = "binance_futures"
# Tick and lot sizes known from the exchange's own `exchangeInfo`.
INCREMENTS = {
    (SPOT, "BTCUSDT"): (Decimal("0.01"), Decimal("0.00001")),
    (FUTURES, "BTCUSDT"): (Decimal("0.1"), Decimal("0.001")),
}
# How many lines are searched for the market, the symbol and, where they are not known, tick and lot.
HEAD_LINES = 2_000
INT64_MAX = 2**63 - 1
# Local times of 2001 to 2262, as they are written.
_DIGITS, _LATEST = 19, str(INT64_MAX).encode()
_MALFORMED = (msgspec.DecodeError, UnicodeDecodeError, DataError, ValueError)
# A snapshot begins with its id; a stream's message has its name there.
_SNAPSHOT, _SNAPSHOT_HEAD = b'"lastUpdateId"', 40


class NoDepthError(SourceError):
    """A file does not tell its market: it may still be a part of a capture."""


class BinanceCaptureSource(ReplayedLines):
    """A capture's depth diffs as L2 events and its trades as TRADE events, by the decoder of the live feed.

    path: a file, or those of one capture in any order, which are one stream (`OrderedLines`): the book goes
        on from one file to the next, and update ids show where a file between them is missing.

    Frames and snapshots go to one session in the order recorded. The book is VALID once a snapshot and the
    diffs held until then are applied (these with the snapshot's receive time, the moment they reach the
    book). A gap in the update ids clears the book, which is SYNCING until the next snapshot, and is counted;
    so is a capture without any snapshot, whose book is SYNCING all along ("no snapshot").
    `exchange_time` is the event time of depth and the trade time of trades; the local clock may run behind.

    A capture does not state tick and lot: they are the known ones of `INCREMENTS`, else the coarsest decimal
    steps of the first 2,000 lines. Prices and volumes off them are counted and kept: both are held to the
    eighth decimal place, the last that Binance has.

    Raises SourceError when a file is missing, when none holds a depth diff (NoDepthError), when files are of
    different markets, and when one is truncated, after everything before the cut and all other files.
    """

    changes = "diffs applied"

    def __init__(self, path: Place | Sequence[Place]) -> None:
        super().__init__("binance", list(path) if isinstance(path, Sequence) else [path], local_time)
        self._instrument = _scan_heads([lines.path for lines in self._lines.files])
        self.instruments = Instruments([self._instrument])

    def _take_all(self, replay: LineReplay, lines: Sequence[bytes]) -> None:
        take_lines(replay, lines, self._lines.current, partial(self._take, replay))

    def _take(self, replay: LineReplay, line: bytes) -> None:
        found = begun_line(replay, line, self.counts)
        if found is None:
            return
        time, frame = found
        if _SNAPSHOT in frame[:_SNAPSHOT_HEAD]:
            replay.at(time).answered(self._instrument.native_symbol, frame, time)
        else:
            replay.frame(frame, time)


@dataclass(slots=True)
class _Head:
    """What the first lines of a capture tell."""

    symbol: str = ""
    venue: str = ""
    price_places: int = 0
    volume_places: int = 0

    def take(self, data: bytes) -> None:
        if _SNAPSHOT in data[:_SNAPSHOT_HEAD]:
            snapshot = binance.decode_snapshot(data)
            levels = snapshot.bids + snapshot.asks
        else:
            frame = binance.decode_frame(data)
            if not frame.stream.partition("@")[2].startswith("depth"):
                return
            depth = binance.decode_depth(frame.data)
            if not self.venue:
                self.symbol = depth.s
                self.venue = SPOT if depth.pu is None else FUTURES
            levels = depth.b + depth.a
        for price, volume in levels:
            self.price_places = max(self.price_places, decimal_places(price))
            self.volume_places = max(self.volume_places, decimal_places(volume))


def _scan_heads(paths: Sequence[Place]) -> Instrument:
    """The instrument of the files of a capture; its tick and lot are the finest of them."""
    found: dict[Place, Instrument] = {}
    for path in paths:
        try:
            found[path] = _scan_head(path)
        except NoDepthError:
            if len(paths) == 1:
                raise
    if not found:
        raise NoDepthError(f"{paths[0]} and {len(paths) - 1} more: no Binance depth diff in any of them")
    (first, one), *others = found.items()
    for path, other in others:
        if (other.venue, other.native_symbol) != (one.venue, one.native_symbol):
            raise SourceError(f"{first} is of {one} and {path} of {other}; name them as sources of their own")
    return replace(one, tick=min(i.tick for i in found.values()), lot=min(i.lot for i in found.values()))


def _scan_head(path: Place) -> Instrument:
    head = _Head()
    for number, line in enumerate(Lines(path)):
        if number == HEAD_LINES:
            break
        try:
            head.take(local_line(line)[1])
        except _MALFORMED:
            continue
    if not head.venue:
        raise NoDepthError(
            f"{path}: no Binance depth diff in the first {HEAD_LINES} lines; "
            "a capture has lines `<local ns> <json>` with a depth stream, and those of others are not read"
        )
    seen = [Decimal(1).scaleb(-min(places, SCALE)) for places in (head.price_places, head.volume_places)]
    tick, lot = INCREMENTS.get((head.venue, head.symbol), seen)
    return Instrument.listed(head.venue, head.symbol, tick, lot)


def take_lines(
    replay: LineReplay, lines: Sequence[bytes], file: Lines, take: Callable[[bytes], object]
) -> None:
    """Hands on lines of a file that follow one another; those that are unusual, or may be a snapshot, one by
    one by `take`."""
    frames, times = list[bytes](), list[int]()
    before = file.number
    for number, line in enumerate(lines, before + 1):
        time, _, frame = line.partition(b" ")
        plain = len(time) == _DIGITS and time.isdigit() and time <= _LATEST
        if plain and frame.find(_SNAPSHOT, 0, _SNAPSHOT_HEAD) < 0:
            frames.append(frame)
            times.append(int(time))
            continue
        file.number = number - 1
        replay.frames(frames, times)
        frames, times = [], []
        file.number = number
        take(line)
    file.number = before + len(lines)
    replay.frames(frames, times)


def begun_line(replay: LineReplay, line: bytes, counts: Counter[str]) -> tuple[int, bytes] | None:
    """Local time (ns) and message of a line, of which the replay knows; None for a blank line, and for one
    that is counted as malformed."""
    if not line:
        return None
    try:
        time, frame, exact = local_line(line)
    except ValueError as error:
        replay.malformed("malformed line", f"{error}: {shown(line)}")
        return None
    if not exact:
        counts["times rounded"] += 1
    replay.begin(time)
    return time, frame


def local_line(line: bytes) -> tuple[int, bytes, bool]:
    """Local time (ns) and message of a line, and whether the time is exact. Raises ValueError."""
    time, _, message = line.partition(b" ")
    # More digits are past int64, and past the year 2262.
    if time.isdigit() and len(time) <= 19 and (number := int(time)) <= INT64_MAX:
        return number, message, True
    time, _, message = line.strip().partition(b" ")
    try:
        number, exact = scaled(time.decode("ascii"))
    except ValueError:
        raise ValueError("no local time in ns") from None
    if not 0 < number <= INT64_MAX:
        raise ValueError("the local time is out of range")
    return number, message, exact


def local_time(line: bytes) -> int | None:
    """The local time of a line, None where it cannot be read."""
    try:
        return local_line(line)[0]
    except ValueError:
        return None
