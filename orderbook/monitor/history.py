"""What the server keeps of the past, so that a page that is opened shows it: half an hour, in bounded memory.

Of each book: a column each 100 ms, and one each second for longer, both as the book was last told in it;
trades, bars of a second and of a minute, volumes by price, fills. Of views and profits: a line each second.
Items are compressed many together, and handed to pages as they lie there.
"""

import zlib
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from orderbook.monitor.messages import (
    HistoryBook,
    HistoryFills,
    HistoryLine,
    HistoryMessage,
    HistoryTrades,
    encoded,
    read_trades,
)

# Columns of 100 ms that are kept, each of a second, and lines.
COLUMNS, SECONDS = 4096, 2048
# A column's time in ns, and columns in a second.
COLUMN_NS, COLUMNS_A_SECOND = 100_000_000, 10
# Columns by which time may go back before another past begins, as in the page.
BACK = 50
# Trades of a book, prices of which the volume is known, minutes, and fills.
TRADES, PRICES, MINUTES, FILLS = 20_000, 20_000, 1440, 200
# Books, and views, of which there is a past.
MOST_BOOKS, MOST_LINES = 64, 128
# Of the memory, what books have; the rest is for lines.
_BOOKS_SHARE = 0.75
_TOGETHER, _TOGETHER_BYTES = 64, 256 << 10
# Columns of a second are thinned down to so many seconds each.
_LONGEST = 64


@dataclass(frozen=True, slots=True)
class _Block:
    numbers: tuple[int, ...]
    lengths: tuple[int, ...]
    data: bytes


class Blocks:
    """Items by rising number, compressed as soon as there are some together. `size`: bytes held."""

    def __init__(self) -> None:
        self._sealed: deque[_Block] = deque()
        self._open: list[tuple[int, bytes]] = []
        self._open_bytes = self._sealed_bytes = 0

    @property
    def size(self) -> int:
        """Bytes held."""
        return self._sealed_bytes + self._open_bytes

    def add(self, number: int, data: bytes) -> None:
        """Append an item, whose number is above those before."""
        self._open.append((number, data))
        self._open_bytes += len(data)
        if len(self._open) >= _TOGETHER or self._open_bytes >= _TOGETHER_BYTES:
            self._seal(self._open)
            self._open, self._open_bytes = [], 0

    def forget(self, before: int) -> None:
        """Let go of blocks all of whose numbers are below `before`."""
        while self._sealed and self._sealed[0].numbers[-1] < before:
            self._sealed_bytes -= len(self._sealed.popleft().data)

    def drop_oldest(self) -> bool:
        """Let go of the oldest block; False where there is none."""
        if not self._sealed:
            return False
        self._sealed_bytes -= len(self._sealed.popleft().data)
        return True

    def thin(self, period: int) -> None:
        """Let go of all items but the last in each period of numbers."""
        items = list({number // period: (number, data) for number, data in self.items()}.values())
        self._sealed.clear()
        self._open, self._open_bytes, self._sealed_bytes = [], 0, 0
        for number, data in items:
            self.add(number, data)

    def items(self) -> Iterator[tuple[int, bytes]]:
        """All items, the oldest first."""
        for block in self._sealed:
            data, at = zlib.decompress(block.data), 0
            for number, length in zip(block.numbers, block.lengths, strict=True):
                yield number, data[at : at + length]
                at += length
        yield from self._open

    def read(self, after: int = -1) -> list[bytes]:
        """Compressed blocks with all items above `after`, and maybe some before."""
        found = [block.data for block in self._sealed if block.numbers[-1] > after]
        if self._open and self._open[-1][0] > after:
            found.append(zlib.compress(b"".join(data for number, data in self._open if number > after), 1))
        return found

    def _seal(self, items: list[tuple[int, bytes]]) -> None:
        data = zlib.compress(b"".join(data for _, data in items), 1)
        numbers, lengths = tuple(n for n, _ in items), tuple(len(d) for _, d in items)
        self._sealed.append(_Block(numbers, lengths, data))
        self._sealed_bytes += len(data)


Number = int | float


class Bars:
    """Open, high, low and close in ticks, lots bought, sold and of no side, by number of the time."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._bars: dict[int, list[Number]] = {}

    def add(self, number: int, ticks: Number, lots: Number, side: int) -> None:
        """A trade; side: 0 bought, 1 sold, else neither."""
        bar = self._bars.get(number)
        if bar is None:
            bar = self._bars[number] = [ticks, ticks, ticks, ticks, 0, 0, 0]
            if len(self._bars) > self._most:
                del self._bars[next(iter(self._bars))]
        bar[1], bar[2], bar[3] = max(bar[1], ticks), min(bar[2], ticks), ticks
        bar[4 + min(side, 2)] += lots

    def rows(self) -> list[list[Number]]:
        """The number and the values of each, by number."""
        return [[number, *bar] for number, bar in sorted(self._bars.items())]


@dataclass(slots=True)
class _BookHistory:
    """One book's past. `every`: seconds between two of the coarse columns."""

    fine: Blocks = field(default_factory=Blocks)
    coarse: Blocks = field(default_factory=Blocks)
    waiting: HistoryBook | None = None
    every: int = 1
    trades: Blocks = field(default_factory=Blocks)
    traded: int = 0
    seconds: Bars = field(default_factory=lambda: Bars(SECONDS))
    minutes: Bars = field(default_factory=lambda: Bars(MINUTES))
    volume: dict[Number, Number] = field(default_factory=dict)
    fills: deque[bytes] = field(default_factory=lambda: deque(maxlen=FILLS))

    @property
    def size(self) -> int:
        return self.fine.size + self.coarse.size + self.trades.size

    def take(self, told: HistoryBook) -> None:
        """A book as it is now, which is that of its column unless a later one of the column comes."""
        before = self.waiting
        if before is not None and told.number < before.number - BACK:
            self.fine, self.coarse, before = Blocks(), Blocks(), None
        elif before is not None and told.number < before.number:
            return
        self.waiting = told
        if before is None or told.number == before.number:
            return
        column = column_of(before)
        self.fine.add(before.number, column)
        self.fine.forget(told.number - COLUMNS)
        period = COLUMNS_A_SECOND * self.every
        if told.number // period > before.number // period:
            self.coarse.add(before.number, column)
            self.coarse.forget(told.number - SECONDS * COLUMNS_A_SECOND)

    def trade(self, told: HistoryTrades) -> None:
        """The trades up to number `told.traded`."""
        self.traded = told.traded
        self.trades.add(told.traded, told.trades)
        self.trades.forget(told.traded - TRADES)
        volume = self.volume
        for time, ticks, lots, side in read_trades(told.trades):
            self.seconds.add(time // 1_000_000_000, ticks, lots, side)
            self.minutes.add(time // 60_000_000_000, ticks, lots, side)
            # The price that was traded last is the last to be forgotten.
            volume[ticks] = volume.pop(ticks, 0) + lots
            if len(volume) > PRICES:
                del volume[next(iter(volume))]

    def shrink(self, most: int) -> None:
        """Keep to so many bytes: fewer fine columns, then coarse ones of longer times."""
        while self.size > most and self.fine.drop_oldest():
            pass
        while self.size > most and self.every < _LONGEST:
            self.every *= 2
            self.coarse.thin(COLUMNS_A_SECOND * self.every)
        while self.size > most and (self.coarse.drop_oldest() or self.trades.drop_oldest()):
            pass

    def read(self) -> bytes:
        fine = self.fine.read()
        if self.waiting is not None:
            fine.append(zlib.compress(column_of(self.waiting), 1))
        parts = {"coarse": self.coarse.read(), "fine": fine, "trades": self.trades.read()}
        head = {
            "every": self.every,
            "traded": self.traded,
            "seconds": self.seconds.rows(),
            "minutes": self.minutes.rows(),
            "volume": list(self.volume.items()),
            **{name: len(blocks) for name, blocks in parts.items()},
        }
        fills = b',"fills":[' + b",".join(self.fills) + b"]}"
        blocks = [zlib.compress(encoded(head)[:-1] + fills, 1), *(one for of in parts.values() for one in of)]
        return _framed(blocks)


class History:
    """The past of a run, in at most about `most` bytes."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._books: dict[tuple[str, str], _BookHistory] = {}
        self._lines: dict[str, Blocks] = {}

    @property
    def size(self) -> int:
        """Bytes of blocks."""
        lines = sum(one.size for one in self._lines.values())
        return lines + sum(one.size for one in self._books.values())

    @property
    def books(self) -> list[tuple[str, str]]:
        """Venues and symbols of which there is a past."""
        return list(self._books)

    def take(self, message: HistoryMessage) -> None:
        """Keep what the run has told."""
        if isinstance(message, HistoryLine):
            self._line(message)
            return
        key = message.venue, message.symbol
        book = self._books.pop(key, None) or _BookHistory()
        self._books[key] = book
        if len(self._books) > MOST_BOOKS:
            del self._books[next(iter(self._books))]
        match message:
            case HistoryBook():
                book.take(message)
            case HistoryTrades():
                book.trade(message)
            case HistoryFills():
                book.fills.extend(message.fills)
        book.shrink(int(self._most * _BOOKS_SHARE) // len(self._books))

    def book(self, venue: str, symbol: str) -> bytes | None:
        """A book's past: blocks with their lengths before them. None where there is none.

        The first is JSON: how many blocks of coarse and fine columns and of trades follow, and the rest. A
        column is doubles: its number, the state's, how many bids and asks, and ticks and lots, best first.
        """
        book = self._books.get((venue, symbol))
        return None if book is None else book.read()

    def lines(self, name: str, after: int) -> bytes:
        """Lines of `name`, at least those after a second: blocks with their lengths before them."""
        found = self._lines.get(name)
        return b"" if found is None else _framed(found.read(after))

    def _line(self, message: HistoryLine) -> None:
        lines = self._lines.pop(message.name, None) or Blocks()
        self._lines[message.name] = lines
        if len(self._lines) > MOST_LINES:
            del self._lines[next(iter(self._lines))]
        lines.add(message.second, message.line + b"\n")
        lines.forget(message.second - SECONDS)
        most = int(self._most * (1 - _BOOKS_SHARE)) // len(self._lines)
        while lines.size > most and lines.drop_oldest():
            pass


# The state of a book as a column has it.
STATES = ("syncing", "valid", "stale")


def column_of(told: HistoryBook) -> bytes:
    """A column as pages take it."""
    tick, lot = told.steps
    sides = [np.frombuffer(side, np.int64).reshape(-1, 3)[:, :2] for side in (told.bids, told.asks)]
    head = np.array([told.number, STATES.index(told.state), *map(len, sides)], np.float64)
    return head.tobytes() + b"".join((side / (tick, lot)).tobytes() for side in sides)


def _framed(blocks: list[bytes]) -> bytes:
    parts: list[Any] = []
    for block in blocks:
        parts += (len(block).to_bytes(4, "little"), block)
    return b"".join(parts)
