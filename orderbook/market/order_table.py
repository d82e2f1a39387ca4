"""The order table: resting orders of one L3 book by order id, in compiled code.

Extendible hashing (Fagin et al., ACM TODS 1979): a directory of segments, chosen by the hash's
leading bits, with linear probing and backward-shift deletion inside a segment. A full segment
splits alone, at most 1,024 rows, so no single order pays for the growth of the whole table.
"""

import numpy as np
from numba import uint64

from orderbook.core.jit import jit
from orderbook.market.block_memory import (
    LARGEST_SEGMENT,
    ROW_BYTES,
    SEGMENT_CLASSES,
    SMALLEST_SEGMENT,
    WORDS,
    Record,
    allocate,
    fetch_line,
    load,
    move,
    record_at,
    release,
    store,
)

ROW = np.dtype(
    [
        ("id", "i8"),
        ("price", "i8"),  # ticks
        ("volume", "i8"),  # lots; 0 marks a free row
        ("ts", "i8"),  # the row's own last change, ns
        ("broker_id", "i4"),
        ("side", "i4"),
    ]
)
assert ROW.itemsize == ROW_BYTES

# The row before a segment's first: how many rows it holds and how many leading hash bits they share.
HEADER = np.dtype([("count", "i8"), ("depth", "i8")])

ROW_WORDS = ROW_BYTES // 8
_LAST_CLASS = SEGMENT_CLASSES - 1
_CLASS_BITS = 15
row_at = record_at(ROW)
header_at = record_at(HEADER)


@jit()
def _hash(order_id: int) -> np.uint64:
    z = uint64(order_id) * uint64(0x9E3779B97F4A7C15)
    z ^= z >> uint64(32)
    return z * uint64(0xD6E8FEB86659FD93)


@jit()
def _entry(book: Record, h: np.uint64) -> int:
    """The address of the directory's word for a hash."""
    return book.directory + 8 * np.int64((h >> uint64(1)) >> uint64(63 - book.depth))


@jit()
def _home(h: np.uint64, mask: int) -> np.int64:
    return np.int64(h >> uint64(20)) & mask


@jit()
def _row(segment: int, position: int) -> int:
    return segment + ROW_BYTES * (position + 1)


@jit()
def _mask(word: int) -> int:
    return (SMALLEST_SEGMENT << (word & _CLASS_BITS)) - 1


@jit()
def _probe(segment: int, mask: int, order_id: int, h: np.uint64) -> int:
    """The address of the order's row, or of the free row where its search ends."""
    position = _home(h, mask)
    while True:
        address = _row(segment, position)
        row = row_at(address)
        if row.volume == 0 or row.id == order_id:
            return address
        position = (position + 1) & mask


@jit()
def find(book: Record, order_id: int) -> int:
    """The address of an order's row, 0 where it does not rest."""
    if book.directory == 0:
        return 0
    h = _hash(order_id)
    word = load(_entry(book, h))
    address = _probe(word & ~_CLASS_BITS, _mask(word), order_id, h)
    return address if row_at(address).volume else 0


@jit()
def fetch_entry(book: Record, order_id: int) -> None:
    """Fetches the word of the directory by which an order is found; `fetch` reads it."""
    if book.directory:
        fetch_line(_entry(book, _hash(order_id)))


@jit()
def fetch(book: Record, order_id: int) -> None:
    """Fetches what a search for an order reads first: the segment's header, and its rows in two lines."""
    if book.directory:
        h = _hash(order_id)
        word = load(_entry(book, h))
        segment = word & ~_CLASS_BITS
        home = _row(segment, _home(h, _mask(word)))
        fetch_line(segment)
        fetch_line(home)
        fetch_line(home + ROW_BYTES)


@jit()
def _new_segment(pool: int, size_class: int, depth: int) -> int:
    """The directory word of an empty segment: its address with its size class in the low bits."""
    segment = allocate(pool, size_class)
    for position in range(SMALLEST_SEGMENT << size_class):
        row_at(_row(segment, position)).volume = 0
    header = header_at(segment)
    header.count = 0
    header.depth = depth
    return segment | size_class


@jit()
def _place(word: int, source: int, h: np.uint64) -> None:
    """Copies a row into a segment that has room and does not hold its order."""
    segment = word & ~_CLASS_BITS
    move(source, _probe(segment, _mask(word), load(source), h), ROW_WORDS)
    header_at(segment).count += 1


@jit()
def _enlarge(pool: int, entry: int) -> None:
    """Replaces the only segment of a small book by one of twice the size."""
    old = load(entry)
    new = _new_segment(pool, (old & _CLASS_BITS) + 1, 0)
    segment = old & ~_CLASS_BITS
    for position in range(_mask(old) + 1):
        source = _row(segment, position)
        if row_at(source).volume:
            _place(new, source, _hash(load(source)))
    release(pool, segment, old & _CLASS_BITS)
    store(entry, new)


@jit()
def _double(pool: int, book: Record) -> None:
    directory = allocate(pool, WORDS + book.depth + 1)
    for k in range(1 << book.depth):
        word = load(book.directory + 8 * k)
        store(directory + 16 * k, word)
        store(directory + 16 * k + 8, word)
    release(pool, book.directory, WORDS + book.depth)
    book.directory = directory
    book.depth += 1


@jit()
def _split(pool: int, book: Record, h: np.uint64) -> None:
    """Splits the full segment of a hash in two, by the next bit."""
    old = load(_entry(book, h))
    segment = old & ~_CLASS_BITS
    depth = header_at(segment).depth
    if depth == book.depth:
        _double(pool, book)
    low = _new_segment(pool, _LAST_CLASS, depth + 1)
    high = _new_segment(pool, _LAST_CLASS, depth + 1)
    for position in range(LARGEST_SEGMENT):
        source = _row(segment, position)
        if row_at(source).volume:
            moved = _hash(load(source))
            _place(high if (moved >> uint64(63 - depth)) & uint64(1) else low, source, moved)
    release(pool, segment, _LAST_CLASS)
    span = 1 << (book.depth - depth)
    first = ((_entry(book, h) - book.directory) >> 3) & -span
    for k in range(span):
        store(book.directory + 8 * (first + k), low if k < span >> 1 else high)


@jit()
def insert(pool: int, book: Record, order_id: int) -> int:
    """The address of a row for a new order, which the caller fills; 0 where the order rests already."""
    if book.directory == 0:
        book.directory = allocate(pool, WORDS)
        book.depth = 0
        store(book.directory, _new_segment(pool, 0, 0))
    h = _hash(order_id)
    entry = _entry(book, h)
    word = load(entry)
    # Above five eighths the searches of fresh ids grow long.
    if 8 * header_at(word & ~_CLASS_BITS).count > 5 * _mask(word):
        if word & _CLASS_BITS < _LAST_CLASS:
            _enlarge(pool, entry)
        else:
            _split(pool, book, h)
        word = load(_entry(book, h))
    segment = word & ~_CLASS_BITS
    address = _probe(segment, _mask(word), order_id, h)
    if row_at(address).volume:
        return 0
    header_at(segment).count += 1
    return address


@jit()
def _close(segment: int, mask: int, hole: int) -> None:
    """Frees a row; the rows behind it move up."""
    position = hole
    while True:
        position = (position + 1) & mask
        row = row_at(_row(segment, position))
        if row.volume == 0:
            break
        home = _home(_hash(row.id), mask)
        if (position - home) & mask >= (position - hole) & mask:
            move(_row(segment, position), _row(segment, hole), ROW_WORDS)
            hole = position
    row_at(_row(segment, hole)).volume = 0
    header_at(segment).count -= 1


@jit()
def remove(book: Record, address: int) -> None:
    """Removes the order whose row is at an address that `find` gave."""
    word = load(_entry(book, _hash(load(address))))
    segment = word & ~_CLASS_BITS
    _close(segment, _mask(word), (address - segment) // ROW_BYTES - 1)


@jit()
def _span(book: Record, entry: int) -> int:
    """How many words of the directory name the segment of this one."""
    return 1 << (book.depth - header_at(load(book.directory + 8 * entry) & ~_CLASS_BITS).depth)


@jit()
def clear(pool: int, book: Record) -> None:
    """Removes every order and gives all memory back to the pool."""
    entry = 0
    while book.directory and entry < 1 << book.depth:
        word = load(book.directory + 8 * entry)
        entry += _span(book, entry)
        release(pool, word & ~_CLASS_BITS, word & _CLASS_BITS)
    if book.directory:
        release(pool, book.directory, WORDS + book.depth)
    book.directory = 0
    book.depth = 0


@jit()
def take_side(book: Record, side: int, out: int) -> int:
    """Moves the orders of one side to ROW[n] at address `out`, which has room; returns how many."""
    taken = entry = 0
    while book.directory and entry < 1 << book.depth:
        word = load(book.directory + 8 * entry)
        segment = word & ~_CLASS_BITS
        mask = _mask(word)
        entry += _span(book, entry)
        position = 0
        while position <= mask:
            row = row_at(_row(segment, position))
            if row.volume and row.side == side:
                move(_row(segment, position), out + ROW_BYTES * taken, ROW_WORDS)
                taken += 1
                _close(segment, mask, position)
            else:
                position += 1
    return taken


@jit()
def drop_before(book: Record, ts: int) -> int:
    """Removes the rows whose ts is before a time; returns how many."""
    dropped = entry = 0
    while book.directory and entry < 1 << book.depth:
        word = load(book.directory + 8 * entry)
        segment = word & ~_CLASS_BITS
        mask = _mask(word)
        entry += _span(book, entry)
        position = 0
        while position <= mask:
            row = row_at(_row(segment, position))
            if row.volume and row.ts < ts:
                dropped += 1
                _close(segment, mask, position)
            else:
                position += 1
    return dropped


@jit()
def segment_of(book: Record, entry: int) -> tuple[int, int, int]:
    """Of the segment that a word of the directory names: the address of its first row, how many it has room
    for, and how many words name it."""
    word = load(book.directory + 8 * entry)
    return _row(word & ~_CLASS_BITS, 0), _mask(word) + 1, _span(book, entry)


@jit()
def copy_rows(book: Record, out: int) -> int:
    """Copies every order to ROW[n] at address `out`, which has room, in no order; returns how many."""
    copied = entry = 0
    while book.directory and entry < 1 << book.depth:
        word = load(book.directory + 8 * entry)
        entry += _span(book, entry)
        for position in range(_mask(word) + 1):
            source = _row(word & ~_CLASS_BITS, position)
            if row_at(source).volume:
                move(source, out + ROW_BYTES * copied, ROW_WORDS)
                copied += 1
    return copied


@jit()
def copy_at(book: Record, side: int, price: int, out: int, most: int) -> int:
    """Copies the orders of a side at a price, at most so many, to ROW[most] at address `out`, in no order;
    returns how many."""
    copied = entry = 0
    while book.directory and entry < 1 << book.depth and copied < most:
        word = load(book.directory + 8 * entry)
        entry += _span(book, entry)
        for position in range(_mask(word) + 1):
            source = _row(word & ~_CLASS_BITS, position)
            row = row_at(source)
            if row.volume and row.price == price and row.side == side and copied < most:
                move(source, out + ROW_BYTES * copied, ROW_WORDS)
                copied += 1
    return copied
