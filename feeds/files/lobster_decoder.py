"""LOBSTER's messages and rows, compiled: two texts in, EVENT records out.

Ordinary lines are read here. Where one is unusual the loop comes back, and `LobsterDecoder` is told what it
says, or that it says nothing, by who reads it otherwise.
"""

from collections.abc import Sequence
from enum import IntEnum

import numpy as np
from numpy.typing import NDArray

from orderbook.core.jit import called_with, jit
from orderbook.feeds.files.lobster_book import (
    BOOK,
    ENTRY,
    HIDDEN,
    LEVEL,
    ORDER,
    SHOWN,
    SIDE,
    Count,
    add_order,
    emit,
    enter_again,
    key_of,
    resynchronise,
    side_of,
    take_order,
)
from orderbook.feeds.wire.bytes_memory import PADDING, byte
from orderbook.market.block_memory import Record, load, record_at, store
from orderbook.market.events import EVENT, Action, BookState, Events, Flag, Side, StateReason

NO_LEVEL = 9_999_999_999


class Stop(IntEnum):
    """Why the loop comes back."""

    MESSAGES = 0  # there are no more lines of messages
    ROWS = 1  # nor of rows
    UNUSUAL = 2  # the line at hand, or its row
    BATCH = 3  # so many events were asked for
    ROOM = 4  # for orders, levels or events


# book, what messages made of it and the texts at hand. trading, told: BookState of trading, and given last.
DECODER = np.dtype(
    [
        *((name, BOOK[name]) for name in BOOK.names or ()),
        *(
            (name, "i8")
            for name in (
                "rows_beside",  # whether there is a file of rows
                "batch",
                "midnight",  # ns since 1970 UTC
                "anew",
                "lost",
                "trading",
                "told",
                "message",  # address of the line at hand, and of the end of the text
                "message_end",
                "message_lines",  # read, in all
                "row",
                "row_end",
                "row_lines",
                "unit",  # the first event of the message at hand
                # Fields of the message at hand.
                "second",
                "kind",
                "order_id",
                "size",
                "price",
                "direction",
                "rounded",  # 1: its time is written more finely than in ns
            )
        ),
    ]
)
_FIELDS = {name: place for place, name in enumerate(DECODER.names or ())}

_decoder_at, _event_at, _shown_at = record_at(DECODER), record_at(EVENT), record_at(SHOWN)
_EVENT_BYTES = EVENT.itemsize
_MESSAGES, _ROWS, _UNUSUAL, _BATCH, _ROOM = map(int, Stop)
_ROUNDED = int(Count.ROUNDED)
_COMMA, _POINT, _MINUS, _ZERO, _NEWLINE, _RETURN = (ord(c) for c in ",.-0\n\r")
_SECOND = 10**9
# Digits of a number that is read here, of which no sum overflows.
_DIGITS, _SIZE_DIGITS, _SECOND_DIGITS, _FRACTION_DIGITS = 18, 15, 6, 9
# Every volume is below this.
MOST = 10**_SIZE_DIGITS
_ADD, _CANCEL, _DELETE, _EXECUTE, _HIDDEN, _CROSS, _HALT = range(1, 8)
_TRADING_RESUMES = 1
_A_ADD, _A_REDUCE, _A_DELETE, _A_EXECUTE = (
    int(one) for one in (Action.ADD, Action.REDUCE, Action.DELETE, Action.EXECUTE)
)
_A_TRADE, _A_STATE, _A_CLEAR = int(Action.TRADE), int(Action.STATE), int(Action.CLEAR)
_BID, _ASK, _NO_SIDE = int(Side.BID), int(Side.ASK), int(Side.NONE)
_VALID, _STALE, _SYNCING = int(BookState.VALID), int(BookState.STALE), int(BookState.SYNCING)
_MALFORMED, _NO_REASON = int(StateReason.MALFORMED), int(StateReason.NONE)
_LAST, _SNAPSHOT = int(Flag.LAST), int(Flag.SNAPSHOT)
# Events of a message beside those of orders: the first of a day, two states, a trade.
_OTHER_EVENTS = 4


@jit()
def _tell(decoder: Record, state: int) -> None:
    """Writes the book's state."""
    emit(decoder, _A_STATE, _NO_SIDE, _MALFORMED if decoder.lost else _NO_REASON, 0, state, 0)
    decoder.told = state


@jit()
def _begin(decoder: Record) -> None:
    """The message after the last is at hand, of the decoder's time."""
    decoder.sequence += 1
    decoder.unit = decoder.written
    if decoder.anew:
        decoder.anew = 0
        emit(decoder, _A_CLEAR, _NO_SIDE, 0, 0, 0, _SNAPSHOT)


@jit()
def _take(decoder: Record, action: int, side: int, order_id: int, price: int, size: int) -> None:
    if not decoder.rows_beside:
        emit(decoder, action, side, order_id, price, size, 0)
    elif action == _A_ADD:
        add_order(decoder, side, order_id, price, size)
    else:
        take_order(decoder, action, side, order_id, price, size)


@jit()
def _apply(decoder: Record, kind: int, order_id: int, size: int, price: int, direction: int) -> None:
    """Applies the message at hand."""
    side = _BID if direction == 1 else _ASK
    if kind == _ADD:
        _take(decoder, _A_ADD, side, order_id, price, size)
    elif kind == _CANCEL:
        _take(decoder, _A_REDUCE, side, order_id, price, size)
    elif kind == _DELETE:
        _take(decoder, _A_DELETE, side, order_id, price, size)
    elif kind == _HALT:
        decoder.trading = _VALID if price == _TRADING_RESUMES else _STALE
        _tell(decoder, _STALE if decoder.lost else decoder.trading)
    else:
        if kind == _EXECUTE:
            _take(decoder, _A_EXECUTE, side, order_id, price, size)
        aggressor = _ASK if side == _BID else _BID
        emit(decoder, _A_TRADE, _NO_SIDE if kind == _CROSS else aggressor, 0, price, size, 0)


@jit()
def _resynchronise(decoder: Record) -> None:
    """The book becomes what the row at hand shows."""
    resynchronise(decoder)
    decoder.lost = 0


@jit()
def _end(decoder: Record) -> None:
    """Ends the message at hand; one without events leaves no trace."""
    state = _STALE if decoder.lost else decoder.trading
    if state != decoder.told:
        _tell(decoder, state)
    if decoder.written > decoder.unit:
        event = _event_at(decoder.out + _EVENT_BYTES * (decoder.written - 1))
        event.flags = event.flags | _LAST


@jit()
def _has_room(decoder: Record) -> bool:
    """Whether there is room for whatever a message and a row bring."""
    bids, asks, depth = side_of(decoder, _BID), side_of(decoder, _ASK), decoder.depth
    found: bool = (
        decoder.order_count + 2 * depth + 1 <= decoder.order_capacity
        and max(bids.count, asks.count) + depth + 1 <= decoder.capacity
        and bids.hidden_count + asks.hidden_count + bids.count + asks.count + 2 <= decoder.hidden_capacity
        and decoder.written + decoder.order_count + 4 * depth + _OTHER_EVENTS <= decoder.room
    )
    return found


@jit()
def _digits(at: int, most: int) -> int:
    """How many digits stand at an address; 0 for more than `most`."""
    count = 0
    while count <= most and 0 <= byte(at + count) - _ZERO <= 9:
        count += 1
    return 0 if count > most else count


@jit()
def _value(at: int, count: int) -> int:
    """The number of so many digits."""
    value = 0
    for place in range(at, at + count):
        value = 10 * value + byte(place) - _ZERO
    return value


@jit()
def _line_end(at: int) -> int:
    """The address after a line feed that stands at an address, perhaps behind a carriage return; 0 else."""
    if byte(at) == _RETURN:
        at += 1
    return at + 1 if byte(at) == _NEWLINE else 0


@jit()
def _read_message(decoder: Record) -> int:
    """Reads the fields of the line at hand; the address of the next line, 0 where this one is unusual."""
    at = decoder.message
    count = _digits(at, _SECOND_DIGITS)
    if count == 0:
        return 0
    time = _SECOND * _value(at, count)
    at += count
    rounded = 0
    if byte(at) == _POINT:
        count = _digits(at + 1, _DIGITS)
        if count == 0:
            return 0
        fraction = _value(at + 1, min(count, _FRACTION_DIGITS))
        for _ in range(_FRACTION_DIGITS - count):
            fraction *= 10
        if count > _FRACTION_DIGITS:
            rest, half = _value(at + 1 + _FRACTION_DIGITS, count - _FRACTION_DIGITS), 5
            for _ in range(count - _FRACTION_DIGITS - 1):
                half *= 10
            if rest == half:
                return 0
            fraction += 1 if rest > half else 0
            rounded = 1 if rest else 0
        time += fraction
        at += 1 + count
    decoder.time = decoder.midnight + time
    for field in range(5):
        if byte(at) != _COMMA:
            return 0
        at += 1
        negative = byte(at) == _MINUS
        if negative:
            at += 1
        count = _digits(at, _SIZE_DIGITS if field == 2 else _DIGITS)
        if count == 0:
            return 0
        value = _value(at, count)
        at += count
        if field == 0:
            if negative or count != 1 or value < 1 or value > 7:
                return 0
            decoder.kind = value
        elif field == 1:
            decoder.order_id = -value if negative else value
        elif field == 2:
            if negative:
                return 0
            decoder.size = value
        elif field == 3:
            decoder.price = -value if negative else value
        else:
            if count != 1 or value != 1:
                return 0
            decoder.direction = -1 if negative else 1
    decoder.rounded = rounded
    following: int = _line_end(at)
    return following


@jit()
def _read_row(decoder: Record) -> int:
    """Reads the levels of the row at hand; the address of the next row, 0 where this one is unusual."""
    at = decoder.row
    asks, bids = side_of(decoder, _ASK), side_of(decoder, _BID)
    asks.row_count, bids.row_count = 0, 0
    asks.row_sorted, bids.row_sorted = 1, 1
    for level in range(2 * decoder.depth):
        side, own = (_BID, bids) if level & 1 else (_ASK, asks)
        if level:
            if byte(at) != _COMMA:
                return 0
            at += 1
        negative = byte(at) == _MINUS
        if negative:
            at += 1
        count = _digits(at, _DIGITS)
        if count == 0 or byte(at + count) != _COMMA:
            return 0
        price = _value(at, count)
        key = key_of(side, -price if negative else price)
        at += count + 1
        count = _digits(at, _SIZE_DIGITS)
        if count == 0:
            return 0
        volume = _value(at, count)
        at += count
        if key == NO_LEVEL:
            continue
        shown = _shown_at(own.row + 16 * own.row_count)
        # Of levels that stand twice the last counts.
        if volume == 0 or (own.row_count and load(own.row + 16 * (own.row_count - 1)) >= key):
            return 0
        shown.key, shown.volume = key, volume
        own.row_count += 1
    following: int = _line_end(at)
    return following


@called_with("i", nogil=True)
def _run(decoder_at: int) -> int:
    """Takes messages with their rows; why it comes back."""
    decoder = _decoder_at(decoder_at)
    while True:
        if decoder.written >= decoder.batch:
            return _BATCH
        if decoder.message >= decoder.message_end:
            return _MESSAGES
        if decoder.rows_beside and decoder.row >= decoder.row_end:
            return _ROWS
        if not _has_room(decoder):
            return _ROOM
        before = decoder.time
        next_message = _read_message(decoder)
        next_row = _read_row(decoder) if decoder.rows_beside and next_message else 1
        if next_message == 0 or next_row == 0:
            decoder.time = before
            return _UNUSUAL
        decoder.message = next_message
        decoder.message_lines += 1
        store(decoder.counts + 8 * _ROUNDED, load(decoder.counts + 8 * _ROUNDED) + decoder.rounded)
        _begin(decoder)
        _apply(decoder, decoder.kind, decoder.order_id, decoder.size, decoder.price, decoder.direction)
        if decoder.rows_beside:
            decoder.row = next_row
            decoder.row_lines += 1
            _resynchronise(decoder)
        _end(decoder)


@called_with("ii")
def _begin_apart(decoder_at: int, time: int) -> int:
    decoder = _decoder_at(decoder_at)
    decoder.time = time
    _begin(decoder)
    return 0


@called_with("iiiiii")
def _apply_apart(decoder_at: int, kind: int, order_id: int, size: int, price: int, direction: int) -> int:
    _apply(_decoder_at(decoder_at), kind, order_id, size, price, direction)
    return 0


@called_with("i")
def _resynchronise_apart(decoder_at: int) -> int:
    _resynchronise(_decoder_at(decoder_at))
    return 0


@called_with("i")
def _end_apart(decoder_at: int) -> int:
    _end(_decoder_at(decoder_at))
    return 0


@called_with("iiii")
def _enter_again(table: int, mask: int, into: int, into_mask: int) -> int:
    enter_again(table, mask, into, into_mask)
    return 0


_FIRST_ORDERS, _FIRST_LEVELS, _FIRST_HIDDEN = 1024, 64, 64


class LobsterDecoder:
    """The book of one file, its memory, and the loop over lines.

    midnight: ns since 1970 UTC of 0 seconds. depth: levels of a row's side; rows: whether there are rows.
    anew: the first message empties the book. batch: events after which the loop comes back.
    """

    def __init__(self, midnight: int, depth: int, rows: bool, anew: bool, batch: int) -> None:
        self._record = np.zeros(1, DECODER)
        self._address = int(self._record.ctypes.data)
        self.words = memoryview(self._record.view(np.uint8)).cast("q")  # type: ignore[arg-type]
        self._batch, self._texts = batch, dict[str, tuple[bytes, int]]()
        self._counts = np.zeros(len(Count), np.int64)
        self._sides = np.zeros(2, SIDE)
        self._shown = np.zeros((4, depth), SHOWN)
        self._levels = np.zeros((2, _FIRST_LEVELS + depth), LEVEL)
        self._orders, self._hidden = np.zeros(0, ORDER), np.zeros(0, HIDDEN)
        self._order_table, self._hidden_table = np.zeros(1, ENTRY), np.zeros(1, ENTRY)
        for name, value in (
            ("sides", self._sides.ctypes.data), ("depth", depth), ("counts", self._counts.ctypes.data),
            ("midnight", midnight), ("time", midnight), ("rows_beside", int(rows)), ("anew", int(anew)),
            ("batch", batch), ("trading", _VALID), ("told", _SYNCING),
        ):  # fmt: skip
            self._set(name, value)
        for side in range(2):
            self._sides["row"][side] = self._shown[2 * side].ctypes.data
            self._sides["before"][side] = self._shown[2 * side + 1].ctypes.data
        self._place_levels()
        self._grow_orders(_FIRST_ORDERS + 4 * depth)
        self._grow_hidden(_FIRST_HIDDEN + 4 * depth)
        self._fit_out()

    def _set(self, name: str, value: int) -> None:
        self.words[_FIELDS[name]] = value

    def _get(self, name: str) -> int:
        found: int = self.words[_FIELDS[name]]
        return found

    @property
    def messages(self) -> int:
        """How many messages there were."""
        return self._get("sequence")

    @property
    def written(self) -> int:
        """Events that wait to be taken."""
        return self._get("written")

    @property
    def counts(self) -> dict[Count, int]:
        """What was counted so far."""
        return dict(zip(Count, self._counts.tolist(), strict=True))

    def run(self) -> Stop:
        """Goes on with the lines that there are."""
        return Stop(_run(self._address))

    def take(self) -> Events:
        """EVENT[n], the events since the last call."""
        events = self._out[: self.written]
        self._set("written", 0)
        self._fit_out()
        return events

    def make_room(self) -> None:
        """More room for orders, levels and events; events wait or have been taken."""
        words = self._get
        depth, levels = words("depth"), max(self._sides["count"].tolist())
        if words("order_count") + 2 * depth + 1 > words("order_capacity"):
            self._grow_orders(2 * words("order_capacity"))
        if levels + depth + 1 > self._levels.shape[1]:
            wider = np.zeros((2, 2 * self._levels.shape[1]), LEVEL)
            wider[:, : self._levels.shape[1]] = self._levels
            self._levels = wider
            self._place_levels()
        most = sum(self._sides["hidden_count"].tolist()) + sum(self._sides["count"].tolist()) + 2
        if most > words("hidden_capacity"):
            self._grow_hidden(2 * words("hidden_capacity"))
        if self._needed() > words("room"):
            written = self._out[: self.written]
            self._fit_out()
            self._out[: len(written)] = written

    def _needed(self) -> int:
        return self.written + self._get("order_count") + 4 * self._get("depth") + _OTHER_EVENTS

    def _fit_out(self) -> None:
        self._out = np.empty(self._batch + 2 * self._needed(), EVENT)
        self._set("out", self._out.ctypes.data)
        self._set("room", len(self._out))

    def _place_levels(self) -> None:
        self._sides["levels"] = [levels.ctypes.data for levels in self._levels]
        self._set("capacity", self._levels.shape[1])

    def _grow_orders(self, capacity: int) -> None:
        self._orders = _longer(self._orders, 1 + capacity)
        self._order_table = self._entered_again("order", self._order_table, capacity)
        self._set("orders", self._orders.ctypes.data)
        self._set("order_capacity", capacity)

    def _grow_hidden(self, capacity: int) -> None:
        self._hidden = _longer(self._hidden, 1 + capacity)
        self._hidden_table = self._entered_again("hidden", self._hidden_table, capacity)
        self._set("hidden", self._hidden.ctypes.data)
        self._set("hidden_capacity", capacity)

    def _entered_again(self, name: str, table: NDArray[np.void], capacity: int) -> NDArray[np.void]:
        """A table for so many, at most half full, with what the one that there is has."""
        wider = np.zeros(1 << (2 * capacity).bit_length(), ENTRY)
        _enter_again(table.ctypes.data, len(table) - 1, wider.ctypes.data, len(wider) - 1)
        self._set(f"{name}_table", wider.ctypes.data)
        self._set(f"{name}_mask", len(wider) - 1)
        return wider

    def give(self, what: str, text: bytes) -> None:
        """Lines of "message" or "row" follow those that were read; each ends with a line feed."""
        padded = text + bytes(PADDING)
        start = int(np.frombuffer(padded, np.uint8).ctypes.data)
        self._texts[what] = padded, start
        self._set(what, start)
        self._set(f"{what}_end", start + len(text))

    def line(self, what: str) -> bytes | None:
        """The line at hand, which is read otherwise, without its line feed; None where there is no more."""
        text, start = self._texts.get(what, (b"", 0))
        place = self._get(what) - start
        if place >= self._get(f"{what}_end") - start:
            return None
        end = text.index(b"\n", place)
        self._set(what, start + end + 1)
        self._set(f"{what}_lines", self._get(f"{what}_lines") + 1)
        return text[place:end]

    def lines(self, what: str) -> int:
        """How many lines of messages or rows were read."""
        return self._get(f"{what}_lines")

    def begin(self, time: int | None) -> None:
        """A message of a time is at hand, ns since midnight; None: that of the one before."""
        self.make_room()
        _begin_apart(self._address, self._get("time") if time is None else self._get("midnight") + time)

    def apply(self, kind: int, order_id: int, size: int, price: int, direction: int) -> None:
        """Applies the message at hand; see LOBSTER's fields."""
        _apply_apart(self._address, kind, order_id, size, price, direction)

    def note_rounded(self) -> None:
        """The time of the message at hand is written more finely than in ns."""
        self._counts[Count.ROUNDED] += 1

    def lose(self) -> None:
        """The book is not known until the next row."""
        self._set("lost", 1)

    def resynchronise(self, bids: Sequence[tuple[int, int]], asks: Sequence[tuple[int, int]]) -> None:
        """The row at hand shows these levels, (price in ticks, volume) each, none twice."""
        for side, levels in ((_BID, bids), (_ASK, asks)):
            place = (int(self._sides["row"][side]) - self._shown.ctypes.data) // self._shown[0].nbytes
            keys = [-price if side == _BID else price for price, _ in levels]
            self._shown[place]["key"][: len(keys)] = keys
            self._shown[place]["volume"][: len(keys)] = [volume for _, volume in levels]
            self._sides["row_count"][side] = len(keys)
            self._sides["row_sorted"][side] = int(sorted(keys) == keys)
        _resynchronise_apart(self._address)

    def end(self) -> None:
        """Ends the message at hand."""
        _end_apart(self._address)


def _longer(records: NDArray[np.void], count: int) -> NDArray[np.void]:
    longer = np.zeros(count, records.dtype)
    longer[: len(records)] = records
    return longer
