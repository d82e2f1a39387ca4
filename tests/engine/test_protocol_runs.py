"""Rows in pieces are the same rows as in one list."""

from collections import Counter

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from orderbook.engine.protocol.messages import Moment
from orderbook.engine.protocol.versioned_rows import FIXED, VERSION_COLUMNS, CountedRuns, Runs, difference

Row = tuple[int, ...]
# stamp, switch, last, sequence, part, delete, value
ROW = st.tuples(*(st.integers(0, top) for top in (4, 1, 2, 1, 1, 1, 2)))
BOUND = st.tuples(st.integers(0, 5), st.integers(-1, 1), st.integers(-1, 2))


def rows_of(rows: list[Row]) -> np.ndarray:
    return np.array(sorted(rows), np.int64).reshape(-1, FIXED + 1)


def inside(row: Row, first: Moment, end: Moment) -> bool:
    return first <= row[:3] < end


@given(st.lists(st.tuples(st.lists(ROW, min_size=1, max_size=5), st.sampled_from([1, 1, -1]))), BOUND, BOUND)
def test_counted_rows(adds: list[tuple[list[Row], int]], first: Moment, end: Moment) -> None:
    runs, model = CountedRuns(), Counter[Row]()
    for rows, count in adds:
        runs.add(rows_of(rows), count)
        for row in rows:
            model[row] += count
    found = [tuple(row) for row in runs.between(first, end).tolist()]
    assert Counter(found) == Counter({r: n for r, n in model.items() if n > 0 and inside(r, first, end)})
    versions = [row[:VERSION_COLUMNS] for row in found]
    assert versions == sorted(versions)
    runs.keep_from(first)
    kept = [row for row, count in model.items() if count and row[:3] >= first]
    assert runs.first(first) == min((row[:3] for row in kept), default=None)


@given(st.lists(ROW), st.lists(st.integers(0, 20), max_size=4), BOUND, BOUND)
def test_rows_in_pieces(rows: list[Row], cuts: list[int], first: Moment, end: Moment) -> None:
    whole = rows_of(rows)
    for cut in (Runs.keep_before, Runs.keep_from):
        runs = Runs()
        for piece in np.split(whole, sorted(c for c in cuts if c < len(whole))):
            runs.extend(piece)
        expected = [row for row in sorted(rows) if inside(row, first, end)]
        assert [tuple(row) for row in runs.between(first, end).tolist()] == expected
        cut(runs, end)
        kept = [r for r in sorted(rows) if (r[:3] < end) == (cut is Runs.keep_before)]
        assert [tuple(row) for row in runs.between().tolist()] == kept
        assert len(runs) == len(kept)


@given(st.lists(ROW), st.lists(ROW))
def test_a_difference_turns_one_into_the_other(old: list[Row], new: list[Row]) -> None:
    added, taken = ([tuple(row) for row in m.tolist()] for m in difference(rows_of(old), rows_of(new)))
    assert Counter(old) + Counter(added) == Counter(new) + Counter(taken)
    assert not Counter(added) & Counter(taken) or not old or not new
