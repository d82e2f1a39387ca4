"""LOBSTER's files to events in plain Python: what the compiled decoder has to make of them."""

import re
from collections import Counter
from collections.abc import Iterator
from itertools import zip_longest
from pathlib import Path

import numpy as np

from orderbook.feeds.byte_stream import Lines
from orderbook.feeds.event_writer import EventWriter
from orderbook.feeds.files import lobster
from orderbook.feeds.files.lobster_book import REMEMBERED_LEVELS
from orderbook.market.events import Action, BookState, Flag, Side, StateReason

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
        while self._last_synthetic in orders:
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


_MESSAGE = re.compile(
    rb"(?P<second>\d{1,6})(?:\.(?P<fraction>\d{1,9}))?,(?P<type>[1-7])"
    rb",(?P<order>-?\d{1,18}),(?P<size>\d{1,15}),(?P<price>-?\d{1,18}),(?P<direction>-?1)"
)
_ADD, _CANCEL, _DELETE, _EXECUTE, _HIDDEN, _CROSS = range(1, 7)
_TRADES = (_EXECUTE, _HIDDEN, _CROSS)
_TAKING = {_CANCEL: Action.REDUCE, _DELETE: Action.DELETE, _EXECUTE: Action.EXECUTE}
_TRADING_RESUMES = 1


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
                time, exact, *numbers = lobster._message(line)
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


def _data_lines(lines: Lines) -> Iterator[bytes]:
    """Lines without a header and without blank lines."""
    first = True
    for line in lines:
        if line.strip():
            if not first or not line.lstrip(b' "')[:1].isalpha():
                yield line
            first = False


def lobster_events(path: Path, anew: bool = False) -> tuple[np.ndarray, Counter[str]]:
    """The events of a message file, with the rows beside it if there are any, and what is counted."""
    source = lobster.LobsterSource(path)
    counts, depth = Counter[str](), source._depth
    events = MessageWriter()
    messages, books = source._messages, source._books
    replay = _Replay(events, source._midnight, counts, books is not None, anew)
    rows = iter([b""] * 10**6) if books is None else _data_lines(books)
    lines: Iterator[tuple[bytes | None, bytes | None]] = zip_longest(_data_lines(messages), rows)
    for line, row in lines:
        if line is None or row is None:
            break
        try:
            replay.message(line)
        except ValueError:
            messages.malformed(source.problems, "malformed message", "")
            replay.lose(line)
        if books is not None and not messages.cut:
            try:
                bids, asks = map(dict, lobster._levels(row, depth))
                replay.resynchronise(bids, asks, depth)
            except ValueError:
                replay.lost = True
        replay.end()
    return events.take(), counts
