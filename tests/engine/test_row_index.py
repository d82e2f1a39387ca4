"""The index of rows against a dict: full groups, equal hashes, growth, memory, keys; stores of relations."""

import random
from collections import Counter
from functools import cache

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from maps_models import NO_JIT
from samples import examples

import orderbook
from orderbook.core.changes import END_OF_EVENT, ChangeBatch, Dictionary
from orderbook.core.jit import jit
from orderbook.engine.maps import row_index, row_store
from orderbook.engine.maps.memory import Block, _load, _mix, load
from orderbook.engine.maps.row_index import (
    FOUND_BY,
    FULL_LOG,
    PASSED_SHIFT,
    PLACES,
    ROW,
    SEGMENT_WORDS,
    TAGS,
    WIDTH,
    entry_at,
    find_from,
    header_words,
)
from orderbook.engine.maps.row_store import recount
from orderbook.engine.maps.store_layout import ADDRESS, ADDRESS_BITS, DIRECTORY, SEED, SIZE
from orderbook.engine.runtime.relation_store import RelationStore
from orderbook.engine.runtime.store_entries import copied
from orderbook.views.types import Relation

EXAMPLES = 20 if NO_JIT else 100
Row = tuple[int, ...]


@jit()
def add_under(T, row, h, amount):  # type: ignore[no-untyped-def]
    """Adds to the count of a row as if it had this hash."""
    recount(T, find_from(T, row, h, 0), row, h, amount)


@jit()
def count_under(T, row, h):  # type: ignore[no-untyped-def]
    """The count of a row as if it had this hash."""
    return _count(T, find_from(T, row, h, 0))


@jit()
def count_of_key(T, row, h):  # type: ignore[no-untyped-def]
    """The count of the row that agrees in the columns rows are found by."""
    return _count(T, find_from(T, row, h, 1))


@jit()
def _count(T, at):  # type: ignore[no-untyped-def]
    return load(entry_at(at), ROW + load(T, WIDTH)) if at != 0 else 0


@jit()
def hash_of(T, row):  # type: ignore[no-untyped-def]
    return row_index.hash_of_row(T, row)


@jit()
def find_by(T, columns):  # type: ignore[no-untyped-def]
    row_index.rows_find_by(T, columns)


class Index:
    """Rows in an index of their own; a row's hash is what `hashes` says, else its own."""

    def __init__(self, width: int, hashes: dict[Row, int] | None = None) -> None:
        self.words = Block(header_words(width))
        self.words[WIDTH] = width
        for place in range(width):
            self.words[PLACES + place] = place
        row_store.open_rows(self.words.address)
        self.address, self._width, self._hashes = self.words.address, width, hashes
        self._row = np.zeros(width, np.int64)

    def row(self, row: Row) -> tuple[int, int]:
        self._row[:] = row
        at = self._row.ctypes.data
        return at, hash_of(self.address, at) if self._hashes is None else self._hashes[row]

    def add(self, row: Row, amount: int) -> None:
        add_under(self.address, *self.row(row), amount)

    def count(self, row: Row) -> int:
        return int(count_under(self.address, *self.row(row)))

    def standing(self) -> dict[Row, int]:
        """What a copy of the entries says."""
        entries = copied(self.address, ROW + self._width + 1)
        entries = entries[entries[:, -1] != 0]
        found = {tuple(entry[ROW:-1]): entry[-1] for entry in entries.tolist()}
        assert len(found) == len(entries) == self.words[SIZE]
        return found

    @property
    def bytes(self) -> int:
        return int(row_store.rows_bytes(self.address))

    @property
    def tags(self) -> list[int]:
        """The words of tags of all groups of the segment of hash 0, with how many entries passed each."""
        first = (_load(_load(self.address, DIRECTORY), 0) & ADDRESS) // 8 + SEGMENT_WORDS
        return [_load(8 * (first + 8 * group), TAGS) for group in range(1 << self.groups)]

    @property
    def groups(self) -> int:
        """Of the segment of hash 0, as a power of two."""
        return _load(_load(self.address, DIRECTORY), 0) >> ADDRESS_BITS

    def close(self) -> None:
        row_store.close_rows(self.address)
        assert self.bytes == 0 and self.words[FOUND_BY] == 0


# Of 63 bits: places in a segment that meet, the last group, equal tags at other groups, other segments.
HASHES = st.sampled_from([0, 0, 0, 1, 63, 62, 1 << 15, 63 | 1 << 15, 1 << 62, 1 << 62 | 63, 2**63 - 1])
INT64 = st.integers(-(2**63), 2**63 - 1)
AMOUNTS = st.sampled_from([1, 1, 1, -1, -1, 2, -2])


@examples(EXAMPLES)
@given(
    st.lists(HASHES, min_size=40, max_size=40),
    st.lists(st.tuples(st.integers(0, 39), AMOUNTS), max_size=300),
    st.integers(1, 9).flatmap(lambda width: st.tuples(st.just(width), st.integers(0, width - 1))),
)
def test_rows_of_few_hashes_match_a_counter(
    hashes: list[int], steps: list[tuple[int, int]], place: tuple[int, int]
) -> None:
    """Rows that differ in one column, whichever."""
    width, column = place
    rows: list[Row] = [(*[7] * column, number, *[7] * (width - 1 - column)) for number in range(40)]
    index, model = Index(width, dict(zip(rows, hashes, strict=True))), Counter[Row]()
    for number, amount in steps:
        index.add(rows[number], amount)
        model[rows[number]] += amount
        assert index.standing() == {row: count for row, count in model.items() if count}
        assert [index.count(row) for row in rows] == [model[row] for row in rows]
    index.close()


@examples(EXAMPLES)
@given(st.integers(1, 11), st.data())
def test_rows_of_any_width_match_a_counter(width: int, data: st.DataObject) -> None:
    values = st.sampled_from([0, 1, -1, 2**63 - 1, -(2**63), 2**62, 1 << 52])
    rows = data.draw(st.lists(st.tuples(*[values] * width), min_size=1, max_size=12, unique=True))
    index, model = Index(width), Counter[Row]()
    for row in data.draw(st.lists(st.sampled_from(rows), max_size=60)):
        amount = data.draw(AMOUNTS)
        index.add(row, amount)
        model[row] += amount
        assert index.standing() == {row: count for row, count in model.items() if count}
        assert [index.count(row) for row in rows] == [model[row] for row in rows]
    index.close()


@pytest.mark.parametrize("order", [range(8), range(7, -1, -1), [3, 7, 0, 1, 6, 2, 5, 4]])
def test_deletes_leave_no_marks_in_the_groups_that_an_entry_passed(order: list[int]) -> None:
    rows: list[Row] = [(number,) for number in range(8)]
    index = Index(1, dict.fromkeys(rows, 0))
    for row in rows:
        index.add(row, 1)
    assert index.tags[0] >> PASSED_SHIFT == 1
    for number in order:
        index.add(rows[number], -1)
    assert index.standing() == {} and not any(index.tags)
    index.close()


@pytest.mark.parametrize("hashes", [[0], [63], [0, 1 << 62], [0, 1 << 15, 1 << 16]])
def test_more_rows_of_a_hash_than_a_group_can_count(hashes: list[int]) -> None:
    """Their segment grows instead of splitting for nothing; more than 255 pass the first group."""
    source, count = random.Random(len(hashes)), 700
    rows: list[Row] = [(number, 7) for number in range(count)]
    index = Index(2, {row: hashes[row[0] % len(hashes)] for row in rows})
    empty = index.bytes
    left: set[Row] = set()
    for turn in range(3):
        for row in source.sample(rows, count):
            if row not in left:
                index.add(row, 1)
                left.add(row)
        assert index.groups > FULL_LOG or len(hashes) > 1
        # To and fro about where counts stick; then all.
        for target in (350, 200, 330, 0 if turn < 2 else 30):
            step = 1 if target > len(left) else -1
            there = [row for row in rows if (row in left) == (step < 0)]
            for row in source.sample(there, abs(target - len(left))):
                index.add(row, step)
                left ^= {row}
            assert index.standing() == dict.fromkeys(left, 1)
            assert [index.count(row) for row in rows] == [int(row in left) for row in rows]
    for row in left:
        index.add(row, -1)
    assert index.standing() == {} and index.groups < FULL_LOG
    assert index.bytes <= empty + 2 * 65536
    index.close()


def test_growing_and_shrinking_keeps_every_row_and_gives_memory_back() -> None:
    source, count = random.Random(2), 1_500 if NO_JIT else 30_000
    index, model = Index(3), dict[Row, int]()
    empty = index.bytes
    for number in range(count):
        row: Row = (number, number % 7, 0)
        index.add(row, 1)
        model[row] = 1
    assert index.standing() == model
    full = index.bytes
    # Entries of five words, and at most a reference and its part of a group's tags for each group of ROOM.
    assert full > empty and full <= count * (40 + 64) + 4 * 65536
    order = list(model)
    source.shuffle(order)
    for step, row in enumerate(order):
        index.add(row, -1)
        del model[row]
        if step % (count // 8) == 0:
            assert index.standing() == model
            assert all(index.count(row) == 1 for row in order[step + 1 :: 97])
            assert all(index.count(row) == 0 for row in order[: step + 1 : 97])
    assert index.standing() == {} and index.bytes <= empty + 2 * 65536
    index.close()


def test_rows_that_come_and_go_leave_memory_flat() -> None:
    index, alive = Index(1), 300 if NO_JIT else 3_000
    for number in range(alive):
        index.add((number,), 1)
    early = index.bytes
    for number in range(alive, 10 * alive):
        index.add((number,), 1)
        index.add((number - alive,), -1)
    assert set(index.standing()) == {(number,) for number in range(9 * alive, 10 * alive)}
    assert index.bytes <= 1.25 * early
    index.close()


@given(st.integers(1, 11).flatmap(lambda width: st.lists(INT64, min_size=width, max_size=width)))
def test_a_hash_is_the_sum_of_products_with_odd_factors(row: list[int]) -> None:
    index = Index(len(row))
    words = [word % 2**64 for word in row]
    total = sum((word ^ word >> 32) * (_mix(SEED, column) | 1) for column, word in enumerate(words))
    assert index.row(tuple(row))[1] == _mix(SEED, total) % 2**64 >> 1
    index.close()


def test_hashes_of_rows_that_resemble_each_other_fill_segments_evenly() -> None:
    """Sequences, multiples, doubles, signs, equal columns: no group, tag or segment is preferred."""
    count = 2_000 if NO_JIT else 20_000
    numbers = np.arange(count, dtype=np.int64)
    doubles = (numbers - count // 2 + 0.5).view(np.int64)
    kinds: list[list[np.ndarray]] = [
        [numbers],
        [numbers, numbers],
        [numbers, -numbers],
        [numbers, numbers, np.zeros_like(numbers), numbers, numbers],
        [numbers % 100, numbers // 100],
        [numbers << 40, np.zeros_like(numbers)],
        [numbers * 100_000_000, 7 + np.zeros_like(numbers), numbers * 1_000],
        [doubles, doubles],
        [doubles, numbers * 0, (-numbers.astype(np.float64)).view(np.int64)],
    ]
    for columns in kinds:
        rows = np.ascontiguousarray(np.column_stack(columns))
        index = Index(rows.shape[1])
        hashes = np.array([hash_of(index.address, row.ctypes.data) for row in rows])
        assert len(np.unique(hashes)) == count and hashes.min() >= 0
        for shift, bits in ((0, 6), (15, 7), (57, 6), (51, 6)):
            held = np.bincount((hashes >> shift) & ((1 << bits) - 1), minlength=1 << bits)
            expected = count / (1 << bits)
            # Chi squared of 2^bits - 1 degrees of freedom, by far not beyond chance.
            chi = float(((held - expected) ** 2 / expected).sum())
            assert chi < (1 << bits) + 8 * (2 << bits) ** 0.5
        index.close()


@examples(EXAMPLES)
@given(st.lists(st.tuples(st.integers(0, 30), st.integers(0, 2)), max_size=60, unique=True), st.data())
def test_rows_found_by_their_key_from_now_on(rows: list[Row], data: st.DataObject) -> None:
    by_key = {key: (key, volume) for key, volume in rows}
    index = Index(2)
    for row in by_key.values():
        index.add(row, 1)
    before = index.bytes
    find_by(index.address, 1)
    assert index.words[FOUND_BY] == 1 and index.standing() == dict.fromkeys(by_key.values(), 1)
    assert index.bytes <= before + 65536
    for key in range(31):
        assert count_of_key(index.address, *index.row((key, 9))) == int(key in by_key)
        assert index.count((key, 9)) == 0
    for key, volume in data.draw(st.lists(st.sampled_from(list(by_key.values()))) if by_key else st.just([])):
        index.add((key, volume), -1 if key in by_key else 1)
        by_key = {k: row for k, row in by_key.items() if k != key} | (
            {} if key in by_key else {key: (key, volume)}
        )
        assert index.standing() == dict.fromkeys(by_key.values(), 1)
    index.close()


EVENTS = st.lists(
    st.lists(
        st.tuples(st.booleans(), st.booleans(), st.integers(0, 40), st.integers(0, 1)), min_size=1, max_size=4
    ),
    min_size=1,
    max_size=60,
)


@examples(EXAMPLES)
@given(EVENTS, st.integers(0, 60))
def test_a_store_of_relations_matches_counters_after_every_event(
    events: list[list[tuple[bool, bool, int, int]]], filled: int
) -> None:
    """Row by row, and all in one batch: the same rows and refusals."""
    single, whole = (RelationStore(relations(), Dictionary(), check=True, keep=False) for _ in range(2))
    model, refused = (Counter[Row](), Counter[Row]()), list[tuple[int, int]]()
    first = [(False, True, key, key % 3) for key in range(filled)]
    kinds, flags, values = list[int](), list[int](), list[Row]()
    for event in [*([change] for change in first), *events]:
        after, good, start = (Counter(model[0]), Counter(model[1])), True, len(kinds)
        for delete, keyed, key, volume in event:
            row, rows = (volume, key, 5 * key), after[keyed]
            taken = keyed and any(other[1] == key for other, count in rows.items() if count)
            good = good and (rows[row] > 0 if delete else not taken)
            rows[row] += -1 if delete else 1
            kinds.append(2 * keyed + delete)
            flags.append(0)
            values.append(row)
        flags[-1] = END_OF_EVENT
        model, refused = (after, refused) if good else (model, [*refused, (start, len(kinds))])
        batch = batch_of(kinds[start:], flags[start:], values[start:])
        assert len(single.admit(batch)[1]) == (not good)
        assert held(single) == [+rows for rows in model]
    found = whole.admit(batch_of(kinds, flags, values))[1]
    assert [(one.start, one.end) for one in found] == refused
    assert held(whole) == [+rows for rows in model]


def batch_of(kinds: list[int], flags: list[int], values: list[Row]) -> ChangeBatch:
    return ChangeBatch(np.array(kinds, np.int16), np.array(flags, np.uint8), np.array(values, np.int64))


def held(store: RelationStore) -> list[Counter[Row]]:
    found = []
    for relation in range(2):
        rows, counts = store.rows(relation)
        found.append(Counter(dict(zip(map(tuple, rows.tolist()), counts.tolist(), strict=True))))
        assert len(found[-1]) == len(rows)
    return found


@cache
def relations() -> tuple[Relation, ...]:
    program = orderbook.compile(
        "CREATE STREAM many (volume BIGINT, id BIGINT, more BIGINT);"
        "CREATE STREAM keyed (volume BIGINT, id BIGINT PRIMARY KEY, more BIGINT);"
        "CREATE VIEW v AS SELECT COUNT(*) AS n FROM many, keyed"
    )
    return program.relations[-2:]
