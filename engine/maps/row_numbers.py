"""Rows that may be equal, told apart by numbers in the order in which they came.

A relation with a hidden column `number` (views/binding/catalog.py) gives each row that comes without one the
next; a row that goes without one is the last that came of those equal to it. Which those are is found by an
index of its own, made when the first row goes so: streams whose rows only come have none. Its entries are
rows without regard to their number; an entry's own number is the last that came of them, and the word of its
count leads to those before it, in a list.
"""

from orderbook.core.changes import NULL_CODE
from orderbook.core.jit import exported, jit
from orderbook.engine.maps.hash_index import pool_give, pool_take
from orderbook.engine.maps.memory import calloc, load, release, store
from orderbook.engine.maps.row_index import (
    EQUALS,
    LAST_NUMBER,
    NUMBER,
    PLACES,
    ROW,
    WIDTH,
    entry_at,
    find_from,
    hash_of_row,
    insert_entry,
    remove_entry,
    rows_close,
    rows_index_bytes,
    rows_open,
    walk,
)
from orderbook.engine.maps.store_layout import ENTRY_POOL, SIZE

# Words of the list of an entry.
OWN = 0
BEFORE = 1


@jit()
def number_at(T):
    """Which word of a row its number is."""
    return load(T, NUMBER) - 1


@jit()
def arrive(T, row):
    """Numbers a row that comes; one that has a number keeps it."""
    number = load(row, number_at(T))
    if number == NULL_CODE:
        number = load(T, LAST_NUMBER) + 1
        store(row, number_at(T), number)
    store(T, LAST_NUMBER, max(load(T, LAST_NUMBER), number))


@exported
def note_number(T, row):
    """Notes the number of a row among those of equal rows."""
    E = load(T, EQUALS)
    h = hash_of_row(E, row)
    at = find_from(E, row, h, 1)
    if at == 0:
        insert_entry(E, row, h, 0)
        return 0
    entry = entry_at(at)
    own, before = ROW + number_at(E), ROW + load(E, WIDTH)
    listed = pool_take(E + 8 * ENTRY_POOL)
    store(listed, OWN, load(entry, own))
    store(listed, BEFORE, load(entry, before))
    store(entry, own, load(row, number_at(E)))
    store(entry, before, listed)
    return 0


@exported
def drop_number(T, row):
    """Forgets the number of a row among those of equal rows."""
    E = load(T, EQUALS)
    h = hash_of_row(E, row)
    at = find_from(E, row, h, 1)
    if at == 0:
        return 0
    entry = entry_at(at)
    number = load(row, number_at(E))
    own, before = entry + 8 * (ROW + number_at(E)), entry + 8 * (ROW + load(E, WIDTH))
    listed = load(before, 0)
    if load(own, 0) == number and listed == 0:
        remove_entry(E, h, at, entry)
        return 0
    if load(own, 0) == number:
        store(own, 0, load(listed, OWN))
    else:
        while listed != 0 and load(listed, OWN) != number:
            before = listed + 8 * BEFORE
            listed = load(before, 0)
        if listed == 0:
            return 0
    store(before, 0, load(listed, BEFORE))
    pool_give(E + 8 * ENTRY_POOL, listed)
    return 0


@jit()
def sink(entries, place, count, word):
    """Lets an address sink in a heap of them whose top has the highest number."""
    entry = load(entries, place)
    while 2 * place + 1 < count:
        child = 2 * place + 1
        if child + 1 < count and load(load(entries, child), word) < load(load(entries, child + 1), word):
            child += 1
        if load(entry, word) >= load(load(entries, child), word):
            break
        store(entries, place, load(entries, child))
        place = child
    store(entries, place, entry)


@jit()
def sort_by_number(entries, count, word):
    """Sorts addresses of entries by the number in a word of theirs (heapsort: nothing beside them)."""
    for start in range(count // 2):
        sink(entries, count // 2 - 1 - start, count, word)
    for done in range(count - 1):
        last = count - 1 - done
        highest = load(entries, 0)
        store(entries, 0, load(entries, last))
        store(entries, last, highest)
        sink(entries, 0, last, word)


@exported
def begin_equals(T):
    """Makes the index by which rows are found without their number."""
    width = load(T, WIDTH)
    E = calloc(PLACES + 2 * width, 8)
    store(E, WIDTH, width)
    store(E, NUMBER, load(T, NUMBER))
    word = 0
    for column in range(width):
        if column != number_at(T):
            store(E, PLACES + word, column)
            word += 1
    store(E, PLACES + word, number_at(T))
    rows_open(E, word)
    store(T, EQUALS, E)
    count = load(T, SIZE)
    entries = calloc(count + 1, 8)
    walk(T, entries, False)
    sort_by_number(entries, count, ROW + number_at(T))
    for place in range(count):
        note_number(T, load(entries, place) + 8 * ROW)
    release(entries)
    return 0


@exported
def number_of_last(T, row):
    """Gives a row that goes without a number that of the last that came of those equal to it.

    Returns 0 where there is none, which leaves the row as it was; else 1.
    """
    if load(row, number_at(T)) != NULL_CODE:
        return 1
    if load(T, EQUALS) == 0:
        begin_equals(T)
    E = load(T, EQUALS)
    at = find_from(E, row, hash_of_row(E, row), 1)
    if at == 0:
        return 0
    store(row, number_at(T), load(entry_at(at), ROW + number_at(E)))
    return 1


@exported
def close_equals(T):
    """Gives the index of equal rows back, and numbers from 1 on."""
    if load(T, EQUALS) != 0:
        rows_close(load(T, EQUALS))
        release(load(T, EQUALS))
        store(T, EQUALS, 0)
    store(T, LAST_NUMBER, 0)
    return 0


@exported
def equals_bytes(T):
    """Bytes of the index of equal rows."""
    E = load(T, EQUALS)
    return 8 * (PLACES + 2 * load(T, WIDTH)) + rows_index_bytes(E) if E != 0 else 0
