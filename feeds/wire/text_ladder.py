"""Price levels of one side with the exchange's text of each, for checksums, in memory for compiled code.

A level has a key, its price in ticks (a bid's negative), so that the best has the smallest. Keys are sorted
with the best at the end, where most changes are; each has the number of a slot, which holds the text that
counts in a checksum: of the price, then of the size, in one piece. What a frame changes is noted, so that a
frame which turns out unusual can be undone: slots that were left are given back when it is done.
"""

from collections.abc import Sequence
from itertools import chain

import numpy as np
from numpy.typing import NDArray

from orderbook.core.jit import jit
from orderbook.feeds.wire.bytes_memory import PADDING, byte, put_byte, put_word, word
from orderbook.feeds.wire.decoder_state import BookMemory, book_at
from orderbook.feeds.wire.numbers import REFUSED, units
from orderbook.market.block_memory import Record, load, move, record_at, store

LADDER = np.dtype(
    [
        ("keys", "i8"),  # address of int64[capacity]
        ("numbers", "i8"),  # int64[capacity], the slot of each key
        ("slots", "i8"),  # SLOT bytes each, `capacity` of them and one that is not used
        ("free", "i8"),  # int64[capacity], numbers of free slots
        ("free_count", "i8"),
        ("count", "i8"),
        ("capacity", "i8"),
        ("checked", "i8"),  # levels that count in a checksum
        ("changed", "i8"),  # 1: one of these has changed since this was set to 0
    ]
)
SLOT = 64
# Bytes of a slot's text, and where they begin: behind the lengths of price and size, a byte each.
_TEXT, TEXT_AT = SLOT - 8, 8
# Lengths of a level whose text has no room, which is kept elsewhere.
ELSEWHERE = -1
_CAPACITY = 256
_POINT, _ZERO, _LINE, _COLON, _MINUS = (ord(c) for c in ".0\n:-")
# Words of a noted change: the ladder, what was done, the key, and the slot that it had.
NOTE_BYTES = 32
_INSERTED, _REPLACED, _REMOVED = range(3)

ladder_at = record_at(LADDER)


@jit()
def place_of(ladder: Record, key: int) -> int:
    """Where a key stands, or would stand."""
    low, high = 0, ladder.count
    while low < high:
        middle = (low + high) >> 1
        if load(ladder.keys + 8 * middle) > key:
            low = middle + 1
        else:
            high = middle
    return low


@jit()
def holds(ladder: Record, place: int, key: int) -> bool:
    """Whether a key stands at a place."""
    return place < ladder.count and load(ladder.keys + 8 * place) == key


@jit()
def _touch(ladder: Record, place: int) -> None:
    if ladder.count - place <= ladder.checked:
        ladder.changed = 1


@jit()
def _insert(ladder: Record, place: int, key: int, slot: int) -> None:
    at, behind = 8 * place, ladder.count - place
    move(ladder.keys + at, ladder.keys + at + 8, behind)
    move(ladder.numbers + at, ladder.numbers + at + 8, behind)
    store(ladder.keys + at, key)
    store(ladder.numbers + at, slot)
    ladder.count += 1
    _touch(ladder, place)


@jit()
def _remove(ladder: Record, place: int) -> None:
    _touch(ladder, place)
    at, behind = 8 * place, ladder.count - place - 1
    move(ladder.keys + at + 8, ladder.keys + at, behind)
    move(ladder.numbers + at + 8, ladder.numbers + at, behind)
    ladder.count -= 1


@jit()
def _give_back(ladder: Record, slot: int) -> None:
    store(ladder.free + 8 * ladder.free_count, slot)
    ladder.free_count += 1


@jit()
def _note(notes: int, ladder_address: int, what: int, key: int, slot: int) -> None:
    """Notes a change; the first word of `notes` says how many there are."""
    count = load(notes)
    at = notes + 8 + NOTE_BYTES * count
    store(at, ladder_address)
    store(at + 8, what)
    store(at + 16, key)
    store(at + 24, slot)
    store(notes, count + 1)


@jit()
def set_level(notes: int, ladder_address: int, key: int) -> int:
    """Has a level of this key with a new slot, which is noted; the slot's address, 0 where there is none."""
    ladder = ladder_at(ladder_address)
    if ladder.free_count == 0 or ladder.count == ladder.capacity:
        return 0
    ladder.free_count -= 1
    slot = load(ladder.free + 8 * ladder.free_count)
    place = place_of(ladder, key)
    if holds(ladder, place, key):
        number = ladder.numbers + 8 * place
        _note(notes, ladder_address, _REPLACED, key, load(number))
        store(number, slot)
        _touch(ladder, place)
    else:
        _note(notes, ladder_address, _INSERTED, key, slot)
        _insert(ladder, place, key, slot)
    return ladder.slots + SLOT * slot


@jit()
def remove_level(notes: int, ladder_address: int, key: int) -> None:
    """Removes a level where there is one, noted."""
    ladder = ladder_at(ladder_address)
    place = place_of(ladder, key)
    if holds(ladder, place, key):
        _note(notes, ladder_address, _REMOVED, key, load(ladder.numbers + 8 * place))
        _remove(ladder, place)


@jit()
def keep(notes: int) -> None:
    """What was noted stays."""
    at = notes + 8
    for _ in range(load(notes)):
        if load(at + 8) != _INSERTED:
            _give_back(ladder_at(load(at)), load(at + 24))
        at += NOTE_BYTES
    store(notes, 0)


@jit()
def undo(notes: int) -> None:
    """What was noted is undone."""
    for number in range(load(notes) - 1, -1, -1):
        at = notes + 8 + NOTE_BYTES * number
        ladder, key, slot = ladder_at(load(at)), load(at + 16), load(at + 24)
        place = place_of(ladder, key)
        if load(at + 8) == _INSERTED:
            _remove(ladder, place)
            _give_back(ladder, slot)
        elif load(at + 8) == _REMOVED:
            _insert(ladder, place, key, slot)
        else:
            _give_back(ladder, load(ladder.numbers + 8 * place))
            store(ladder.numbers + 8 * place, slot)
            _touch(ladder, place)
    store(notes, 0)


@jit()
def put_digits(slot: int, used: int, start: int, length: int) -> int:
    """Writes the digits of a number, without point and leading zeros, behind `used` bytes of a slot's text;
    how many bytes are used then, ELSEWHERE where there is no room."""
    to, seen = slot + TEXT_AT + used, False
    for at in range(start, start + length):
        letter = byte(at)
        if letter != _POINT and (seen or letter != _ZERO):
            if to == slot + SLOT:
                return ELSEWHERE
            seen = True
            put_byte(to, letter)
            to += 1
    return to - slot - TEXT_AT


@jit()
def put_text(slot: int, used: int, start: int, length: int) -> int:
    """As `put_digits`, of the text as it is."""
    if used + length > _TEXT:
        return ELSEWHERE
    for at in range(length):
        put_byte(slot + TEXT_AT + used + at, byte(start + at))
    return used + length


@jit()
def put_lengths(slot: int, price: int, both: int) -> None:
    """Says how long the texts of a slot are: of the price, and of price and size."""
    put_word(slot, ELSEWHERE if min(price, both) == ELSEWHERE else price | (both << 8))


@jit()
def text_length(lengths: int) -> int:
    """Of a slot whose first word this is, the bytes of its text."""
    return lengths >> 8


@jit()
def slot_of_rank(ladder: Record, rank: int) -> int:
    """The address of the slot of a level, 0 the best."""
    return ladder.slots + SLOT * load(ladder.numbers + 8 * (ladder.count - 1 - rank))


@jit()
def _copy(start: int, length: int, to: int) -> int:
    for at in range(0, length, 8):
        put_word(to + at, word(start + at))
    return to + length


@jit()
def copy_text(slot: int, to: int) -> int:
    """Copies a slot's text, in words of 8 bytes; the address behind it, or 0 where it is not there."""
    lengths = word(slot)
    if lengths == ELSEWHERE:
        return 0
    return _copy(slot + TEXT_AT, text_length(lengths), to)


@jit()
def _fill(
    notes: int,
    ladder_address: int,
    book_address: int,
    sign: int,
    as_digits: int,
    text: int,
    ends: int,
    count: int,
) -> bool:
    """Fills an empty ladder with levels; False where one is unusual or there is no room, and some are there.

    text: price and size by turns, `count` of both, each of which ends before a place of `ends` (int64[count])
    that the next begins at. Of a price that comes several times the last counts.
    """
    ladder, book = ladder_at(ladder_address), book_at(book_address)
    # From the last on, which is mostly the worst, so that each has its place at the end.
    for number in range(count - 2, -1, -2):
        price = text + (load(ends + 8 * (number - 1)) if number else 0)
        size, end = text + load(ends + 8 * number), text + load(ends + 8 * (number + 1))
        ticks = units(price, size - price - 1, book.price_scale, book.price_places, 1)
        lots = units(size, end - size - 1, book.size_scale, book.size_places, 1)
        if ticks == REFUSED or lots <= 0:
            return False
        key = sign * ticks
        if not holds(ladder, place_of(ladder, key), key):
            slot = set_level(notes, ladder_address, key)
            if slot == 0:
                return False
            keep(notes)
            if not put_level_text(slot, as_digits, price, size - price - 1, size, end - size - 1):
                return False
    return True


@jit()
def put_level_text(
    slot: int, as_digits: int, price: int, price_length: int, size: int, size_length: int
) -> bool:
    """Writes the text of price and size, as digits or as it is; False where there is no room."""
    if as_digits:
        own = put_digits(slot, 0, price, price_length)
        both = put_digits(slot, max(own, 0), size, size_length)
    else:
        own = put_text(slot, 0, price, price_length)
        both = put_text(slot, max(own, 0), size, size_length)
    put_lengths(slot, own, both)
    return min(own, both) != ELSEWHERE


@jit()
def copy_pair(slot: int, to: int, mark: bool) -> int:
    """Copies a slot's price, a colon, a minus where asked for, its size and a colon; the address behind, or 0
    where the text is not there."""
    lengths = word(slot)
    if lengths == ELSEWHERE:
        return 0
    price, both = lengths & 255, text_length(lengths)
    to = _copy(slot + TEXT_AT, price, to)
    put_byte(to, _COLON)
    to += 1
    if mark:
        put_byte(to, _MINUS)
        to += 1
    to = _copy(slot + TEXT_AT + price, both - price, to)
    put_byte(to, _COLON)
    return to + 1


class TextLadder:
    """The levels of one side, as Python reads and changes them.

    checked: how many of the best levels count in a checksum. as_digits: they count without points and leading
    zeros. Levels are as many as there is memory for.
    """

    def __init__(self, checked: int, *, as_digits: bool = False) -> None:
        self._as_digits = as_digits
        self._record = np.zeros(1, LADDER)
        self._record["checked"] = checked
        self.address = int(self._record.ctypes.data)
        # Texts without room in their slot, by key.
        self._elsewhere: dict[int, tuple[str, str]] = {}
        self._notes = np.zeros(1 + NOTE_BYTES // 8, np.int64)
        self._notes_at = int(self._notes.ctypes.data)
        self._keys: NDArray[np.int64] = np.zeros(0, np.int64)
        self._numbers: NDArray[np.int64] = self._keys
        self._slots: NDArray[np.uint8] = np.zeros((0, SLOT), np.uint8)
        self._reserve(_CAPACITY)

    def __len__(self) -> int:
        return int(self._record["count"][0])

    def _reserve(self, capacity: int) -> None:
        """Have room for so many levels; those that there are stay."""
        keys, numbers = np.zeros(capacity, np.int64), np.zeros(capacity, np.int64)
        slots, free = np.zeros((capacity + 1, SLOT), np.uint8), np.arange(capacity)[::-1].astype(np.int64)
        count = len(self)
        if count:
            old = self._numbers[:count]
            keys[:count], numbers[:count] = self._keys[:count], np.arange(count)
            slots[:count] = self._slots[old]
        self._keys, self._numbers, self._slots, self._free = keys, numbers, slots, free
        record = self._record[0]
        for name, memory in (("keys", keys), ("numbers", numbers), ("slots", slots), ("free", free)):
            record[name] = memory.ctypes.data
        record["capacity"], record["free_count"] = capacity, capacity - count

    def clear(self) -> None:
        """There are no levels."""
        capacity = len(self._keys)
        self._free[:] = np.arange(capacity)[::-1]
        self._record["count"], self._record["free_count"], self._record["changed"] = 0, capacity, 1
        self._elsewhere.clear()

    def put(self, key: int, price: str, size: str) -> None:
        """A level has this text, whether it was there or not."""
        if len(self) == len(self._keys) or not self._record["free_count"][0]:
            self._reserve(2 * len(self._keys))
        slot = set_level(self._notes_at, self.address, key)
        keep(self._notes_at)
        own, other = (self._written(text).encode() for text in (price, size))
        self._elsewhere.pop(key, None)
        place = slot - int(self._slots.ctypes.data)
        room = self._slots.reshape(-1)[place : place + SLOT]
        if len(own) + len(other) > _TEXT:
            room[:8] = 0xFF
            self._elsewhere[key] = price, size
        else:
            head = len(own) | (len(own) + len(other)) << 8
            data = head.to_bytes(8, "little") + own + other
            room[: len(data)] = np.frombuffer(data, np.uint8)

    def _written(self, number: str) -> str:
        return number.replace(".", "").lstrip("0") if self._as_digits else number

    def fill(self, book: BookMemory, sign: int, levels: Sequence[tuple[str, str]]) -> bool:
        """Have these levels, as (price, size), and no others; False, and none, where one is unusual.

        sign: of keys, -1 for bids.
        """
        self.clear()
        if len(levels) > len(self._keys):
            self._reserve(2 * len(levels))
        text = "\n".join([*chain.from_iterable(levels), ""])
        if not text.isascii():
            return False
        data = np.frombuffer(text.encode() + bytes(PADDING), np.uint8)
        ends = np.flatnonzero(data == _LINE) + 1
        if len(ends) != 2 * len(levels):
            return False
        filled = _fill(
            self._notes_at, self.address, book.address, sign, int(self._as_digits), data.ctypes.data,
            ends.ctypes.data, len(ends),
        )  # fmt: skip
        if not filled:
            self.clear()
        return bool(filled)

    def remove(self, key: int) -> None:
        """A level goes, where it is there."""
        remove_level(self._notes_at, self.address, key)
        keep(self._notes_at)
        self._elsewhere.pop(key, None)

    def drop_last(self) -> int:
        """The last level goes; its key. Raises IndexError where there is none."""
        if not len(self):
            raise IndexError("no levels")
        key = int(self._keys[0])
        self.remove(key)
        return key

    def best(self, count: int) -> list[tuple[str, str]]:
        """The best levels, best first, as (price, size) in the text that counts."""
        end = len(self)
        return [self._text(place) for place in range(end - 1, max(end - 1 - count, -1), -1)]

    def _text(self, place: int) -> tuple[str, str]:
        slot = self._slots[self._numbers[place]].tobytes()
        lengths = int.from_bytes(slot[:8], "little", signed=True)
        if lengths == ELSEWHERE:
            return self._elsewhere[int(self._keys[place])]
        price, both = lengths & 0xFF, lengths >> 8
        text = slot[TEXT_AT:]
        return text[:price].decode(), text[price:both].decode()
