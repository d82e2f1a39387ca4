"""LOBSTER message and order book files of NASDAQ stocks.

Source: lobsterdata.com, "Data Structure". A message is `time,type,order id,size,price,direction`: time
in seconds after midnight in New York, price in dollars times 10,000, direction the resting order's
side (1 buy, -1 sell). Row k of the order book file is the book after message k, for each level
`ask price,ask size,bid price,bid size`, with prices of ±9999999999 where there is no level.

A level-N file tells only what happens within the N best levels of a side, and nothing of what rested at its
start. So a level can come into view holding orders that no message named, and one that leaves the view can
change unseen. `VisibleBook` applies the messages, is resynchronised with the rows of the order book file, and
holds exactly the levels a row shows.
"""

import re
from collections import Counter
from collections.abc import Iterator
from datetime import datetime
from decimal import Decimal
from itertools import zip_longest
from zoneinfo import ZoneInfo

from orderbook.core.errors import Problems, SourceError
from orderbook.feeds.byte_stream import Lines, shown
from orderbook.feeds.event_writer import DEFAULT_BATCH_SIZE, EventWriter
from orderbook.feeds.storage import Place
from orderbook.feeds.text_values import scaled, whole
from orderbook.market.contract_terms import SHARE
from orderbook.market.events import Action, BookState, Events, Flag, Side, StateReason
from orderbook.market.instruments import Instrument, Instruments

# Levels out of view whose orders are remembered, a side; the longest unseen is forgotten first.
REMEMBERED_LEVELS = 1 << 14

Levels = dict[int, int]
Orders = dict[int, int]


class MessageWriter(EventWriter):
    """Packs the events of one instrument; `begin` gives a message's time (ns) and sequence."""

    __slots__ = ("_sequence", "_time")

    def begin(self, time: int, sequence: int) -> None:
        """A message begins."""
        self._time, self._sequence = time, sequence

    def add(
        self, action: Action, side: Side, order_id: int = 0, price: int = 0, volume: int = 0, flags: int = 0
    ) -> None:
        """Add one event of the message; price in ticks, volume in lots."""
        self.append(
            0, action, side, exchange_time=self._time, receive_time=self._time, sequence=self._sequence,
            order_id=order_id, price=price, volume=volume, flags=flags,
        )  # fmt: skip


class VisibleBook:
    """Order ids, volumes (lots) and prices (ticks) of the levels in view; writes its changes as events.

    Volume that no message explains rests in synthetic orders, one a level, with negative ids that no
    other level gets. Messages that name an unknown order take from its level's synthetic order.

    `counts`: levels that "came into view", "left the view", were "corrected" (an order that was
    brought back had been replaced unseen), and how many came back order by order ("restored").
    """

    def __init__(self, writer: MessageWriter, counts: Counter[str]):
        self.counts = counts
        self._writer = writer
        self._sides = {Side.BID: _SideInView(), Side.ASK: _SideInView()}
        self._last_synthetic = 0

    def add(self, side: Side, order_id: int, price: int, volume: int) -> None:
        """A new order; one whose id its level knows already is left to the row."""
        orders = self._sides[side].orders.setdefault(price, {})
        if order_id not in orders:
            self._place(side, orders, order_id, price, volume, 0)

    def take(self, action: Action, side: Side, order_id: int, price: int, volume: int) -> None:
        """Cancel (REDUCE), delete (DELETE) or execute (EXECUTE) `volume` of an order.

        Takes first from the order, then from its level's synthetic order; the rest is left to the row.
        """
        view = self._sides[side]
        orders = view.orders.get(price)
        if orders is None:
            return
        for taken_id in (order_id, view.synthetic.get(price)):
            if volume <= 0 or taken_id is None or taken_id not in orders:
                continue
            resting = orders[taken_id]
            part = min(volume, resting)
            leaves = part == resting or (action is Action.DELETE and taken_id == order_id)
            gone = resting if leaves else part
            cancelled = Action.DELETE if leaves else Action.REDUCE
            written = action if action is Action.EXECUTE else cancelled
            self._writer.add(written, side, taken_id, price, gone)
            volume -= part
            view.totals[price] -= gone
            if leaves:
                del orders[taken_id]
            else:
                orders[taken_id] = resting - gone
        view.drop_empty(price)

    def resynchronise(self, bids: Levels, asks: Levels, depth: int) -> bool:
        """Make the book equal to a row: price to volume of at most `depth` levels a side.

        Returns whether anything had to change; the changes carry Flag.SNAPSHOT.
        """
        changed = False
        for side, row in ((Side.BID, bids), (Side.ASK, asks)):
            view = self._sides[side]
            if view.totals != row:
                self._resynchronise_side(side, row, depth)
                changed = True
            view.row = row
        return changed

    def _resynchronise_side(self, side: Side, row: Levels, depth: int) -> None:
        view = self._sides[side]
        full = len(row) == depth
        worst = (min(row) if side is Side.BID else max(row)) if full else 0
        for price in [price for price in view.totals if price not in row]:
            hidden = full and (price < worst if side is Side.BID else price > worst)
            self.counts["left the view" if hidden else "corrected"] += 1
            orders = self._remove_level(side, price)
            if hidden:
                view.remember(price, orders)
        for price, volume in row.items():
            held = view.totals.get(price, 0)
            if held == volume:
                continue
            self.counts["corrected" if price in view.row else "came into view"] += 1
            if held > volume:
                # Which of its orders are gone is not known.
                self._remove_level(side, price)
                held = 0
            self._fill(side, price, volume - held)

    def _fill(self, side: Side, price: int, missing: int) -> None:
        """Bring a level's remembered orders back where they fit; the rest is synthetic."""
        view = self._sides[side]
        orders = view.orders.setdefault(price, {})
        remembered = view.hidden.pop(price, {})
        fits = sum(remembered.values()) <= missing and not remembered.keys() & orders.keys()
        if remembered and fits:
            for order_id, volume in remembered.items():
                self._place(side, orders, order_id, price, volume, Flag.SNAPSHOT)
                missing -= volume
            self.counts["restored"] += not missing
            if (synthetic := next((known for known in remembered if known < 0), None)) is not None:
                view.synthetic.setdefault(price, synthetic)
        if not missing:
            return
        existing = view.synthetic.get(price)
        if existing is not None and existing in orders:
            orders[existing] += missing
            view.totals[price] += missing
            self._writer.add(Action.MODIFY, side, existing, price, orders[existing], Flag.SNAPSHOT)
            return
        self._last_synthetic -= 1
        view.synthetic[price] = self._last_synthetic
        self._place(side, orders, self._last_synthetic, price, missing, Flag.SNAPSHOT)

    def _place(self, side: Side, orders: Orders, order_id: int, price: int, volume: int, flags: int) -> None:
        orders[order_id] = volume
        totals = self._sides[side].totals
        totals[price] = totals.get(price, 0) + volume
        self._writer.add(Action.ADD, side, order_id, price, volume, flags)

    def _remove_level(self, side: Side, price: int) -> Orders:
        view = self._sides[side]
        orders = view.orders[price]
        for order_id, volume in orders.items():
            self._writer.add(Action.DELETE, side, order_id, price, volume, Flag.SNAPSHOT)
        view.totals[price] = 0
        view.orders[price] = {}
        view.drop_empty(price)
        return orders


class _SideInView:
    """One side: the last row; by price its volume, orders and synthetic id, and orders out of view."""

    def __init__(self) -> None:
        self.row: Levels = {}
        self.totals: Levels = {}
        self.orders: dict[int, Orders] = {}
        self.synthetic: dict[int, int] = {}
        self.hidden: dict[int, Orders] = {}

    def drop_empty(self, price: int) -> None:
        if not self.totals.get(price):
            self.totals.pop(price, None)
            self.orders.pop(price, None)
            self.synthetic.pop(price, None)

    def remember(self, price: int, orders: Orders) -> None:
        self.hidden[price] = orders
        if len(self.hidden) > REMEMBERED_LEVELS:
            del self.hidden[next(iter(self.hidden))]


VENUE = "nasdaq"
TICK = Decimal("0.0001")
NO_LEVEL = 9_999_999_999
INT64_MAX = 2**63 - 1

_NAME = re.compile(
    r"(?P<symbol>[^_]+)_(?P<date>\d{4}-\d\d-\d\d)_(.+_)?message_(?P<depth>[1-9]\d*)\.csv(\.zst|\.gz|\.zip)?"
)
_MESSAGE = re.compile(
    rb"(?P<second>\d{1,6})(?:\.(?P<fraction>\d{1,9}))?,(?P<type>[1-7])"
    rb",(?P<order>-?\d{1,18}),(?P<size>\d{1,18}),(?P<price>-?\d{1,18}),(?P<direction>-?1)"
)
_FIELDS = ("time", "type", "order id", "size", "price", "direction")
# Seconds after midnight that fit six digits, as ns.
_LATEST = 10**15
_ADD, _CANCEL, _DELETE, _EXECUTE, _HIDDEN, _CROSS = range(1, 7)
_TRADES = (_EXECUTE, _HIDDEN, _CROSS)
_TAKING = {_CANCEL: Action.REDUCE, _DELETE: Action.DELETE, _EXECUTE: Action.EXECUTE}
_TRADING_RESUMES = 1


class LobsterSource:
    """One stock's day as L3 events: prices in ticks of $0.0001, volumes in shares.

    With the order book file beside it (`…_orderbook_N.csv` for `…_message_N.csv`) the book equals that
    file's row after every message; what the messages do not tell is filled in and counted, see
    `VisibleBook`. Without it the messages stand alone: the book lacks what rested at the start, and
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
        self._uneven = ""

    @property
    def progress(self) -> float:
        """Fraction of the message file's bytes read."""
        return self._messages.progress

    def __iter__(self) -> Iterator[Events]:
        self.problems.clear()
        self.counts.clear()
        writer = MessageWriter()
        replay = _Replay(writer, self._midnight, self.counts, self._books is not None, self.anew)
        for line, row in self._lines():
            try:
                replay.message(line)
            except ValueError as error:
                self._messages.malformed(self.problems, "malformed message", f"{shown(line)}: {error}")
                replay.lose(line)
            if self._books is not None and not self._messages.cut:
                try:
                    replay.resynchronise(*_levels(row, self._depth), self._depth)
                except ValueError as error:
                    self._books.malformed(self.problems, "malformed book row", f"{shown(row)}: {error}")
                    replay.lost = True
            replay.end()
            if len(writer) >= self._batch_size:
                yield writer.take()
        if len(writer):
            yield writer.take()
        for lines in (self._messages, self._books):
            if lines is not None:
                lines.raise_if_cut()
        if self._uneven:
            raise SourceError(self._uneven)

    def _lines(self) -> Iterator[tuple[bytes, bytes]]:
        """Message lines, each with its book row (b"" without the file)."""
        self._uneven = ""
        messages = _data_lines(self._messages)
        if self._books is None:
            yield from ((line, b"") for line in messages)
            return
        rows = _data_lines(self._books)
        for count, (line, row) in enumerate(zip_longest(messages, rows)):
            if line is None or row is None:
                shorter = self._messages if line is None else self._books
                self._uneven = f"{shorter.path}: ends at row {count}, its companion goes on; get both whole"
                return
            yield line, row


class _Replay:
    """Turns message lines into events, one message each; `lost` where the book is not what they say."""

    def __init__(
        self, writer: MessageWriter, midnight: int, counts: Counter[str], books: bool, anew: bool
    ) -> None:
        self.lost = False
        self._anew = anew
        self._writer = writer
        self._midnight = midnight
        self._book = VisibleBook(writer, counts) if books else None
        self._counts = counts
        self._time = midnight
        self._row = 0
        self._trading = BookState.VALID
        self._told = BookState.SYNCING

    def message(self, line: bytes) -> None:
        """Write the events of one message. Raises ValueError, which says why, where the line is malformed."""
        self._row += 1
        found = _MESSAGE.fullmatch(line)
        try:
            if found is not None:
                second, fraction, kind, order_id, size, price, direction = found.groups()
                time = int(second) * 1_000_000_000 + int((fraction or b"").ljust(9, b"0"))
                numbers = [int(kind), int(order_id), int(size), int(price), int(direction)]
            else:
                time, exact, *numbers = _unusual(line)
                if not exact:
                    self._counts["times rounded"] += 1
            self._time = self._midnight + time
        finally:
            self._writer.begin(self._time, self._row)
            if self._anew:
                self._anew = False
                self._writer.add(Action.CLEAR, Side.NONE, flags=Flag.SNAPSHOT)
        self._apply(*numbers)

    def lose(self, line: bytes) -> None:
        """A message could not be read: unless it is one that leaves books alone, this one is not known."""
        kind = line.split(b",")[1].strip(b' "') if line.count(b",") else b""
        self.lost |= kind not in (b"5", b"6")

    def resynchronise(self, bids: Levels, asks: Levels, depth: int) -> None:
        assert self._book is not None
        if self._book.resynchronise(bids, asks, depth):
            self._counts["resynchronisations"] += 1
        self.lost = False

    def end(self) -> None:
        state = BookState.STALE if self.lost else self._trading
        if state is not self._told:
            self._tell(state)
        self._writer.end_unit()

    def _tell(self, state: BookState) -> None:
        reason = StateReason.MALFORMED if self.lost else StateReason.NONE
        self._writer.add(Action.STATE, Side.NONE, order_id=reason, volume=state)
        self._told = state

    def _apply(self, kind: int, order_id: int, size: int, price: int, direction: int) -> None:
        side = Side.BID if direction == 1 else Side.ASK
        aggressor = Side.ASK if side is Side.BID else Side.BID
        if kind == _ADD:
            if self._book is None:
                self._writer.add(Action.ADD, side, order_id, price, size)
            else:
                self._book.add(side, order_id, price, size)
        elif kind in _TAKING:
            action = _TAKING[kind]
            if self._book is None:
                self._writer.add(action, side, order_id, price, size)
            else:
                self._book.take(action, side, order_id, price, size)
        elif kind not in _TRADES:
            self._trading = BookState.VALID if price == _TRADING_RESUMES else BookState.STALE
            self._tell(BookState.STALE if self.lost else self._trading)
        if kind in _TRADES:
            self._writer.add(Action.TRADE, Side.NONE if kind == _CROSS else aggressor, 0, price, size)


def _book_lines(path: Place) -> Lines | None:
    """The order book file beside a message file, compressed or not; None when there is none."""
    name = path.name.replace("_message_", "_orderbook_")
    plain = name.removesuffix(".zst").removesuffix(".gz").removesuffix(".zip")
    for candidate in (name, plain, f"{plain}.zst", f"{plain}.gz", f"{plain}.zip"):
        if (beside := path.with_name(candidate)).exists():
            return Lines(beside)
    return None


def _data_lines(lines: Lines) -> Iterator[bytes]:
    """Lines without a header and without blank lines."""
    first = True
    for line in lines:
        if line.strip():
            if not first or not line.lstrip(b' "')[:1].isalpha():
                yield line
            first = False


def _unusual(line: bytes) -> tuple[int, ...]:
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
        "size": 0 <= numbers["size"] <= INT64_MAX,
        "price": abs(numbers["price"]) <= INT64_MAX,
        "direction": abs(numbers["direction"]) == 1,
    }
    for name, right in fits.items():
        if not right:
            raise ValueError(f"{name} {named[name][:40]!r} is out of range")
    return time, exact, *numbers.values()


def _levels(row: bytes, depth: int) -> tuple[Levels, Levels]:
    """Bids and asks, price to volume, of a book row. Raises ValueError, which says why, for another."""
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
    if any(volume <= 0 for volume in (*bids.values(), *asks.values())):
        raise ValueError("a level without volume")
    return bids, asks


def _midnight(path: Place, date: str) -> int:
    """ns since 1970 UTC of the start of `date` in New York."""
    try:
        local = datetime.fromisoformat(date).replace(tzinfo=ZoneInfo("America/New_York"))
    except ValueError as error:
        raise SourceError(f"{path}: the name's date is not a date ({error}); correct the name") from error
    return round(local.timestamp()) * 1_000_000_000
