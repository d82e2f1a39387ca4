"""The order table: resting orders of one L3 book by order id, in compiled code.

Extendible hashing (Fagin et al., ACM TODS 1979): a directory of segments, chosen by the hash's
leading bits. A full segment splits alone, at most 768 rows, so no single order pays for the growth of the
whole table.

A segment is chunks of 15 rows (N. Bronson and X. Shi, "Open-sourcing F14", 2019). A byte of the hash
for each row of a chunk, its tag, lies apart from the rows, so that an order is found by one comparison of 16
bytes, and comes and goes without others being moved. The sixteenth byte counts the orders that found the
chunk full when they came; they are in one behind it.
"""

import numpy as np
from numba import uint64

from orderbook.core.jit import jit
from orderbook.market.block_memory import (
    ROW_BYTES,
    ROWS_OF_CHUNK,
    SEGMENT_CLASSES,
    SEGMENT_HEAD_BYTES,
    TAGS_BYTES,
    WORDS,
    Record,
    allocate,
    equal_bytes,
    fetch_line,
    highest_bit,
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

# What a segment begins with: how many rows it holds and how many leading hash bits they share. The tags of
# its chunks follow, then the rows.
HEADER = np.dtype([("count", "i8"), ("depth", "i8")])
assert HEADER.itemsize == SEGMENT_HEAD_BYTES

ROW_WORDS = ROW_BYTES // 8
_LAST_CLASS = SEGMENT_CLASSES - 1
_CLASS_BITS = 15
_CHUNK_BYTES = ROWS_OF_CHUNK * ROW_BYTES
# The bits of a chunk's rows, which byte counts those that found it full, and where that stops.
_ROWS, _PASSED, _MANY = (1 << ROWS_OF_CHUNK) - 1, ROWS_OF_CHUNK, 255
# So many rows of a chunk are taken on average where a segment is full.
_FULL = 12
row_at = record_at(ROW)
header_at = record_at(HEADER)
_byte_at = record_at(np.dtype([("value", "u1")]))


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
def _tag(h: np.uint64) -> np.int64:
    """The byte that stands for a hash, which is not 0."""
    return np.int64(h >> uint64(32)) & 127 | 128


@jit()
def _home(word: int, h: np.uint64) -> np.int64:
    """The number of the chunk where the search for a hash begins."""
    return np.int64(h >> uint64(20)) & _mask(word)


@jit()
def _mask(word: int) -> int:
    return (1 << (word & _CLASS_BITS)) - 1


@jit()
def _tags(word: int, chunk: int) -> int:
    """The address of the tags of a chunk."""
    return (word & ~_CLASS_BITS) + SEGMENT_HEAD_BYTES + TAGS_BYTES * chunk


@jit()
def _rows(word: int) -> int:
    """The address of a segment's first row."""
    return _tags(word, _mask(word) + 1)


@jit()
def _row(word: int, chunk: int, place: int) -> int:
    return _rows(word) + _CHUNK_BYTES * chunk + ROW_BYTES * place


@jit()
def _size(word: int) -> int:
    """How many rows a segment has room for."""
    return ROWS_OF_CHUNK << (word & _CLASS_BITS)


@jit()
def _search(word: int, order_id: int, h: np.uint64) -> int:
    """The address of an order's row in its segment, 0 where it is not there."""
    chunk, tag = _home(word, h), _tag(h)
    for _ in range(_mask(word) + 1):
        tags = _tags(word, chunk)
        found = equal_bytes(tags, tag) & _ROWS
        while found:
            place = highest_bit(found)
            address = _row(word, chunk, place)
            if row_at(address).id == order_id:
                return address
            found ^= 1 << place
        if _byte_at(tags + _PASSED).value == 0:
            break
        chunk = (chunk + 1) & _mask(word)
    return 0


@jit()
def _take(word: int, h: np.uint64) -> int:
    """The address of a free row for a hash, which is taken from now on; the segment has one."""
    chunk = _home(word, h)
    while True:
        tags = _tags(word, chunk)
        free = equal_bytes(tags, 0) & _ROWS
        if free:
            break
        passed = _byte_at(tags + _PASSED)
        if passed.value < _MANY:
            passed.value += 1
        chunk = (chunk + 1) & _mask(word)
    place = highest_bit(free)
    _byte_at(tags + place).value = _tag(h)
    header_at(word & ~_CLASS_BITS).count += 1
    return _row(word, chunk, place)


@jit()
def _free(word: int, address: int, h: np.uint64) -> None:
    """Frees the row at an address, which is an order's of a hash."""
    offset = address - _rows(word)
    chunk = offset // _CHUNK_BYTES
    _byte_at(_tags(word, chunk) + (offset - _CHUNK_BYTES * chunk) // ROW_BYTES).value = 0
    row_at(address).volume = 0
    header_at(word & ~_CLASS_BITS).count -= 1
    passed_by = _home(word, h)
    while passed_by != chunk:
        passed = _byte_at(_tags(word, passed_by) + _PASSED)
        if passed.value < _MANY:
            passed.value -= 1
        passed_by = (passed_by + 1) & _mask(word)


@jit()
def find(book: Record, order_id: int) -> int:
    """The address of an order's row, 0 where it does not rest."""
    if book.directory == 0:
        return 0
    h = _hash(order_id)
    return _search(load(_entry(book, h)), order_id, h)


@jit()
def fetch_entry(book: Record, order_id: int) -> None:
    """Fetches the word of the directory by which an order is found; `fetch` reads it."""
    if book.directory:
        fetch_line(_entry(book, _hash(order_id)))


@jit()
def fetch(book: Record, order_id: int) -> None:
    """Fetches what a search for an order reads first: header and tags, which `fetch_row` reads."""
    if book.directory:
        h = _hash(order_id)
        word = load(_entry(book, h))
        fetch_line(word)
        fetch_line(_tags(word, _home(word, h)))


@jit()
def fetch_row(book: Record, order_id: int) -> None:
    """Fetches the row that is probably the order's, or becomes it."""
    if book.directory:
        h = _hash(order_id)
        word = load(_entry(book, h))
        chunk = _home(word, h)
        tags = _tags(word, chunk)
        found = equal_bytes(tags, _tag(h)) & _ROWS
        if found == 0:
            found = equal_bytes(tags, 0) & _ROWS
        fetch_line(_row(word, chunk, highest_bit(found | 1)))


@jit()
def _new_segment(pool: int, size_class: int, depth: int) -> int:
    """The directory word of an empty segment: its address with its size class in the low bits."""
    segment = allocate(pool, size_class)
    word = segment | size_class
    for at in range(_tags(word, 0), _rows(word), 8):
        store(at, 0)
    for position in range(_size(word)):
        row_at(_rows(word) + ROW_BYTES * position).volume = 0
    header = header_at(segment)
    header.count = 0
    header.depth = depth
    return word


@jit()
def _place(word: int, source: int, h: np.uint64) -> None:
    """Copies a row into a segment that has room and does not hold its order."""
    move(source, _take(word, h), ROW_WORDS)


@jit()
def _enlarge(pool: int, entry: int) -> None:
    """Replaces the only segment of a small book by one of twice the size."""
    old = load(entry)
    new = _new_segment(pool, (old & _CLASS_BITS) + 1, 0)
    for position in range(_size(old)):
        source = _rows(old) + ROW_BYTES * position
        if row_at(source).volume:
            _place(new, source, _hash(load(source)))
    release(pool, old & ~_CLASS_BITS, old & _CLASS_BITS)
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
    for position in range(_size(old)):
        source = _rows(old) + ROW_BYTES * position
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
    if _search(word, order_id, h):
        return 0
    if header_at(word & ~_CLASS_BITS).count >= _FULL << (word & _CLASS_BITS):
        if word & _CLASS_BITS < _LAST_CLASS:
            _enlarge(pool, entry)
        else:
            _split(pool, book, h)
        word = load(_entry(book, h))
    return _take(word, h)


@jit()
def remove(book: Record, address: int) -> None:
    """Removes the order whose row is at an address that `find` gave."""
    h = _hash(load(address))
    _free(load(_entry(book, h)), address, h)


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
        entry += _span(book, entry)
        for position in range(_size(word)):
            source = _rows(word) + ROW_BYTES * position
            row = row_at(source)
            if row.volume and row.side == side:
                move(source, out + ROW_BYTES * taken, ROW_WORDS)
                taken += 1
                _free(word, source, _hash(row.id))
    return taken


@jit()
def drop_before(book: Record, ts: int) -> int:
    """Removes the rows whose ts is before a time; returns how many."""
    dropped = entry = 0
    while book.directory and entry < 1 << book.depth:
        word = load(book.directory + 8 * entry)
        entry += _span(book, entry)
        for position in range(_size(word)):
            address = _rows(word) + ROW_BYTES * position
            row = row_at(address)
            if row.volume and row.ts < ts:
                dropped += 1
                _free(word, address, _hash(row.id))
    return dropped


@jit()
def segment_of(book: Record, entry: int) -> tuple[int, int, int]:
    """Of the segment that a word of the directory names: the address of its first row, how many it has room
    for, and how many words name it."""
    word = load(book.directory + 8 * entry)
    return _rows(word), _size(word), _span(book, entry)


@jit()
def copy_rows(book: Record, out: int) -> int:
    """Copies every order to ROW[n] at address `out`, which has room, in no order; returns how many."""
    copied = entry = 0
    while book.directory and entry < 1 << book.depth:
        word = load(book.directory + 8 * entry)
        entry += _span(book, entry)
        for position in range(_size(word)):
            source = _rows(word) + ROW_BYTES * position
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
        for position in range(_size(word)):
            source = _rows(word) + ROW_BYTES * position
            row = row_at(source)
            if row.volume and row.price == price and row.side == side and copied < most:
                move(source, out + ROW_BYTES * copied, ROW_WORDS)
                copied += 1
    return copied
