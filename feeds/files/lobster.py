"""LOBSTER message and order book files of NASDAQ stocks.

Source: lobsterdata.com, "Data Structure". A message is `time,type,order id,size,price,direction`: time
in seconds after midnight in New York, price in dollars times 10,000, direction the resting order's
side (1 buy, -1 sell). Row k of the order book file is the book after message k, for each level
`ask price,ask size,bid price,bid size`, with prices of ±9999999999 where there is no level.

Ordinary lines are read by compiled code (lobster_decoder.py), others here.
"""

import re
from collections import Counter
from collections.abc import Iterator
from datetime import datetime
from decimal import Decimal
from zoneinfo import ZoneInfo

from orderbook.core.errors import Problems, SourceError
from orderbook.feeds.byte_stream import Lines, shown
from orderbook.feeds.event_writer import DEFAULT_BATCH_SIZE
from orderbook.feeds.files.lobster_book import Count
from orderbook.feeds.files.lobster_decoder import MOST, NO_LEVEL, LobsterDecoder, Stop
from orderbook.feeds.storage import Place
from orderbook.feeds.text_values import scaled, whole
from orderbook.market.contract_terms import SHARE
from orderbook.market.events import Events
from orderbook.market.instruments import Instrument, Instruments

VENUE = "nasdaq"
TICK = Decimal("0.0001")
INT64_MAX = 2**63 - 1

_NAME = re.compile(
    r"(?P<symbol>[^_]+)_(?P<date>\d{4}-\d\d-\d\d)_(.+_)?message_(?P<depth>[1-9]\d*)\.csv(\.zst|\.gz|\.zip)?"
)
_FIELDS = ("time", "type", "order id", "size", "price", "direction")
# Seconds after midnight that fit six digits, as ns.
_LATEST = 10**15
_COUNTED = {
    Count.CAME: "came into view",
    Count.LEFT: "left the view",
    Count.CORRECTED: "corrected",
    Count.RESTORED: "restored",
    Count.ROWS: "resynchronisations",
    Count.ROUNDED: "times rounded",
}
Shown = list[tuple[int, int]]


class LobsterSource:
    """One stock's day as L3 events: prices in ticks of $0.0001, volumes in shares.

    With the order book file beside it (`…_orderbook_N.csv` for `…_message_N.csv`) the book equals that
    file's row after every message; what the messages do not tell is filled in and counted, see
    lobster_book.py. Without it the messages stand alone: the book lacks what rested at the start, and
    cancels of unknown orders are left for the book to count.

    `sequence` is the message's row, from 1; both times are the exchange's, rounded to ns where they are
    written more finely ("times rounded" of `counts`). A visible execution is an EXECUTE and a TRADE, a
    hidden one and a cross are trades only. A halt makes the book STALE until trading resumes. Each message
    is one unit. A file is a day of its own: where it is not the first of its stock that is read, `anew` is
    set, and its first message empties the book.

    A line that cannot be read is counted with its field. What it did to the book is in its row of the order
    book file; without that file, or where the row cannot be read, the book is STALE (MALFORMED) until the
    next row: without the file, to its end.

    Raises SourceError when a file is missing or its name does not tell stock, date and depth; when a
    file is truncated, after everything before the cut.
    """

    def __init__(self, path: Place, batch_size: int = DEFAULT_BATCH_SIZE):
        self._messages = Lines(path)
        named = _NAME.fullmatch(path.name)
        if named is None:
            raise SourceError(
                f"{path}: not a LOBSTER message file by its name, SYMBOL_YYYY-MM-DD_…_message_LEVELS.csv; "
                "give that file (its order book file is found beside it)"
            )
        self.name = f"lobster:{path}"
        self.problems = Problems()
        self.counts: Counter[str] = Counter()
        symbol = named["symbol"]
        self.instruments = Instruments([Instrument(VENUE, symbol, symbol, TICK, Decimal(1), terms=SHARE)])
        self.begin = self._midnight = _midnight(path, named["date"])
        self.anew = False
        self._depth = int(named["depth"])
        self._batch_size = batch_size
        self._books = _book_lines(path)

    @property
    def progress(self) -> float:
        """Fraction of the message file's bytes read."""
        return self._messages.progress

    def __iter__(self) -> Iterator[Events]:
        self.problems.clear()
        self.counts.clear()
        rows = self._books is not None
        decoder = LobsterDecoder(self._midnight, self._depth, rows, self.anew, self._batch_size)
        messages = _Text(self._messages, decoder, "message")
        books = None if self._books is None else _Text(self._books, decoder, "row")
        uneven = ""
        while True:
            stop = decoder.run()
            if stop is Stop.BATCH:
                self._count(decoder)
                yield decoder.take()
            elif stop is Stop.ROOM:
                decoder.make_room()
            elif (stop is Stop.MESSAGES and messages.refill()) or (
                stop is Stop.ROWS and books is not None and books.refill()
            ):
                continue
            else:
                line = messages.next_line()
                row = b"" if books is None else books.next_line()
                if line is None or row is None:
                    if line or row:
                        shorter = self._messages if line is None else self._books
                        assert shorter is not None
                        uneven = f"{shorter.path}: ends at row {decoder.messages}"
                    break
                self._take(decoder, line, row)
        self._count(decoder)
        if decoder.written:
            yield decoder.take()
        for lines in (self._messages, self._books):
            if lines is not None:
                lines.raise_if_cut()
        if uneven:
            raise SourceError(f"{uneven}, its companion goes on; get both whole")

    def _take(self, decoder: LobsterDecoder, line: bytes, row: bytes) -> None:
        """Takes a message and its row that compiled code leaves."""
        try:
            time, exact, *numbers = _message(line)
            if not exact:
                decoder.note_rounded()
            decoder.begin(time)
            decoder.apply(*numbers)
        except ValueError as error:
            decoder.begin(None)
            self._messages.malformed(self.problems, "malformed message", f"{shown(line)}: {error}")
            # Messages of two types leave books alone; after another this one is not known.
            kind = line.split(b",")[1].strip(b' "') if line.count(b",") else b""
            if kind not in (b"5", b"6"):
                decoder.lose()
        if self._books is not None and not self._messages.cut:
            try:
                decoder.resynchronise(*_levels(row, self._depth))
            except ValueError as error:
                self._books.malformed(self.problems, "malformed book row", f"{shown(row)}: {error}")
                decoder.lose()
        decoder.end()

    def _count(self, decoder: LobsterDecoder) -> None:
        for what, number in decoder.counts.items():
            if number:
                self.counts[_COUNTED[what]] = number


class _Text:
    """The lines of a file as a decoder takes them, `what` it calls them."""

    def __init__(self, lines: Lines, decoder: LobsterDecoder, what: str) -> None:
        self.lines = lines
        self._blocks = lines.blocks()
        self._decoder, self._what = decoder, what
        self._first = True

    def refill(self) -> bool:
        """Gives the decoder, which has taken all, the next lines; False where there are no more."""
        self.note()
        block = next(self._blocks, None)
        if block is None:
            return False
        self._decoder.give(self._what, block if block.endswith(b"\n") else block + b"\n")
        return True

    def note(self) -> None:
        """The line that the decoder has taken last is the current one."""
        self.lines.number = self._decoder.lines(self._what)

    def next_line(self) -> bytes | None:
        """The next line that is neither blank nor a header, which the decoder leaves; None at the end."""
        while True:
            line = self._decoder.line(self._what)
            if line is None:
                if not self.refill():
                    return None
                continue
            self.note()
            if not line.strip():
                continue
            first = self._first and not self._decoder.messages
            self._first = False
            if not first or not line.lstrip(b' "')[:1].isalpha():
                return line.rstrip(b"\r")


def _book_lines(path: Place) -> Lines | None:
    """The order book file beside a message file, compressed or not; None when there is none."""
    name = path.name.replace("_message_", "_orderbook_")
    plain = name.removesuffix(".zst").removesuffix(".gz").removesuffix(".zip")
    for candidate in (name, plain, f"{plain}.zst", f"{plain}.gz", f"{plain}.zip"):
        if (beside := path.with_name(candidate)).exists():
            return Lines(beside)
    return None


def _message(line: bytes) -> tuple[int, ...]:
    """Time (ns after midnight), whether it is exact, type, order id, size, price and direction of a message.

    Raises ValueError, which names the field, where one is not what it must be.
    """
    fields = line.decode("ascii", "replace").split(",")
    if len(fields) != len(_FIELDS):
        raise ValueError(f"{len(fields)} columns, not {len(_FIELDS)}")
    named = dict(zip(_FIELDS, fields, strict=True))
    try:
        time, exact = scaled(named["time"], 9)
    except ValueError as error:
        raise ValueError(f"time {error}") from None
    numbers = {}
    for name in _FIELDS[1:]:
        try:
            numbers[name] = whole(named[name])
        except ValueError as error:
            raise ValueError(f"{name} {error}") from None
    fits = {
        "time": 0 <= time < _LATEST,
        "type": 1 <= numbers["type"] <= 7,
        "order id": abs(numbers["order id"]) <= INT64_MAX,
        "size": 0 <= numbers["size"] < MOST,
        "price": abs(numbers["price"]) <= INT64_MAX,
        "direction": abs(numbers["direction"]) == 1,
    }
    for name, right in fits.items():
        if not right:
            raise ValueError(f"{name} {named[name][:40]!r} is out of range")
    return time, exact, *numbers.values()


def _levels(row: bytes, depth: int) -> tuple[Shown, Shown]:
    """Bids and asks, (price, volume) each, of a book row. Raises ValueError, which says why, for another."""
    fields = row.split(b",")
    if len(fields) != 4 * depth:
        raise ValueError(f"{len(fields)} columns, not {4 * depth}")
    try:
        if b"_" in row:
            raise ValueError
        values = list(map(int, fields))
    except ValueError:
        values = [whole(field.decode("ascii", "replace")) for field in fields]
    if max(map(abs, values)) > INT64_MAX:
        raise ValueError("a number does not fit 64 bits")
    asks = dict(zip(values[0::4], values[1::4], strict=True))
    bids = dict(zip(values[2::4], values[3::4], strict=True))
    asks.pop(NO_LEVEL, None)
    bids.pop(-NO_LEVEL, None)
    volumes = (*bids.values(), *asks.values())
    if any(volume <= 0 for volume in volumes):
        raise ValueError("a level without volume")
    if any(volume >= MOST for volume in volumes):
        raise ValueError("a volume is out of range")
    return list(bids.items()), list(asks.items())


def _midnight(path: Place, date: str) -> int:
    """ns since 1970 UTC of the start of `date` in New York."""
    try:
        local = datetime.fromisoformat(date).replace(tzinfo=ZoneInfo("America/New_York"))
    except ValueError as error:
        raise SourceError(f"{path}: the name's date is not a date ({error}); correct the name") from error
    return round(local.timestamp()) * 1_000_000_000
