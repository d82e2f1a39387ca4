"""Rows of `quotes` against a plain model: each book's touch after each message that leaves another one."""

from collections import Counter
from typing import Any

import numpy as np
import pytest
from book_model import BookModel
from book_samples import INSTRUMENTS, MODELLED, events_of, joined, random_events, row, tuples_of
from hypothesis import given
from hypothesis import strategies as st
from samples import examples

from orderbook.core.changes import END_OF_EVENT, END_OF_MESSAGE, NULL_CODE, ChangeBatch, Dictionary
from orderbook.core.errors import DataError, Problems
from orderbook.market.book_relations import BookRelations, filled_by_books
from orderbook.market.books import RELATIONS, Books
from orderbook.market.events import Action, Flag, Side
from orderbook.market.partitioned_books import PartitionedBooks
from orderbook.strategies.gated_engine import GatedEngine
from orderbook.views.compilation import compile_views

_QUOTES = RELATIONS.index("quotes")
_OF_BOOKS = ("bids", "asks")
_LIMIT = 10**18 - 1


class QuoteModel:
    """Rows of `quotes` that random events make, message by message."""

    def __init__(self) -> None:
        self._books = BookModel(MODELLED)
        self._told: list[Any] = [(None,) * 4] * len(MODELLED)
        self._numbers = [0] * len(MODELLED)
        self._changed: dict[int, int] = {}

    def apply(self, event: dict[str, Any]) -> list[tuple[Any, ...]]:
        changes = self._books.apply(event)
        if any(values[0] in _OF_BOOKS for _, values in changes):
            self._changed[event["instrument"]] = event["exchange_time"] or event["receive_time"]
        if not event["flags"] & Flag.LAST:
            return []
        changed, self._changed = self._changed, {}
        return [one for i, ts in changed.items() for one in self._row(i, ts)]

    def _row(self, i: int, ts: int) -> list[tuple[Any, ...]]:
        venue, symbol, tick, lot = MODELLED[i]
        touch: list[int | None] = []
        for side in (Side.BID, Side.ASK):
            best = self._books.depth(i, side)[:1]
            touch += [price * tick for price, _, _ in best] or [None]
            touch += [v * lot if v * lot <= _LIMIT else None for _, v, _ in best] or [None]
        if tuple(touch) == self._told[i]:
            return []
        self._told[i] = tuple(touch)
        self._numbers[i] += 1
        bid, ask = touch[0], touch[2]
        mid = None if bid is None or ask is None else (bid + ask) / 2e8
        return [(ts, venue, symbol, self._numbers[i], *touch, mid)]


def quotes_of(batch: ChangeBatch, dictionary: Dictionary) -> list[tuple[Any, ...]]:
    found = []
    for values in batch.values[batch.kinds == 2 * _QUOTES]:
        ts, venue, symbol, number, *rest = values.tolist()
        touch = [None if value == NULL_CODE else value for value in rest[:-1]]
        mid = None if rest[-1] == NULL_CODE else float(values[-1:].view(np.float64)[0])
        found.append((ts, dictionary.decode(venue), dictionary.decode(symbol), number, *touch, mid))
    return found


def without_quotes(batch: ChangeBatch) -> ChangeBatch:
    rows = np.flatnonzero(batch.kinds != 2 * _QUOTES)
    return ChangeBatch(batch.kinds[rows], batch.flags[rows], batch.values[rows])


few_prices = random_events.map(lambda event: event | {"price": event["price"] % 4})


@examples(150)
@given(st.lists(random_events | few_prices, max_size=60), st.lists(st.integers(0, 8), max_size=40), st.data())
def test_a_row_for_each_message_that_leaves_another_touch(
    rows: list[dict[str, Any]], sizes: list[int], data: st.DataObject
) -> None:
    dictionaries = [Dictionary() for _ in range(3)]
    books = Books(INSTRUMENTS, dictionaries[0], quotes=True)
    plain = Books(INSTRUMENTS, dictionaries[1])
    owners = np.array([0, 1, 0], np.int64)
    parts = PartitionedBooks(INSTRUMENTS, dictionaries[2], owners, 2)
    parts.tell_quotes(True)
    if rows:
        rows[-1]["flags"] |= Flag.LAST
    model, expected = QuoteModel(), []
    events, start = events_of(rows), 0
    found: list[list[ChangeBatch]] = [[], [], []]
    for size in [*sizes, len(rows)]:
        part = events[start : start + size]
        start += len(part)
        counts = np.zeros(len(part), np.int64)
        for place, one in enumerate((books, plain)):
            found[place].append(one.apply(part.copy(), counts if one is books else None))
        if len(part):
            found[2].append(parts.apply(part.copy()))
        if len(part) and part["flags"][-1] & Flag.LAST:
            expected += [one for event in rows[start - len(part) : start] for one in model.apply(event)]
            if data.draw(st.booleans()):
                state = books.save()
                books = Books(INSTRUMENTS, dictionaries[0], quotes=True)
                books.load(state)
                again = PartitionedBooks(INSTRUMENTS, dictionaries[2], owners, 2)
                again.tell_quotes(True)
                again.load(parts.save())
                parts = again
        else:
            expected += [one for event in rows[start - len(part) : start] for one in model.apply(event)]
    told = [one for batch in found[0] for one in quotes_of(batch, dictionaries[0])]
    assert told == expected
    assert sorted(one for batch in found[2] for one in quotes_of(batch, dictionaries[2])) == sorted(expected)
    # All else is as without quotes, and there is no other event.
    changes, others = joined(found[0]), joined(found[1])
    assert Counter(tuples_of(without_quotes(changes), dictionaries[0])) == Counter(
        tuples_of(others, dictionaries[1])
    )
    for flag in (END_OF_EVENT, END_OF_MESSAGE):
        ends = [np.count_nonzero(joined(one).flags & flag) for one in found]
        assert ends[0] == ends[1] == ends[2]
    last_of_event = np.flatnonzero(changes.flags & END_OF_EVENT)
    assert set(last_of_event.tolist()).issuperset(np.flatnonzero(changes.flags & END_OF_MESSAGE).tolist())


def test_counts_of_events_count_quotes() -> None:
    books = Books(INSTRUMENTS, Dictionary(), quotes=True)
    rows = [
        row(Action.LEVEL, price=5, volume=2, side=0, flags=0),
        row(Action.LEVEL, price=6, volume=2, side=1, instrument=1, flags=0),
        row(Action.LEVEL, price=6, volume=2, side=1, instrument=1),
    ]
    counts = np.zeros(3, np.int64)
    assert books.apply(events_of(rows), counts).kinds.tolist() == [0, 2, 2 * _QUOTES, 2 * _QUOTES]
    assert counts.tolist() == [1, 3, 0]


def test_quotes_come_and_go_with_who_reads_them() -> None:
    dictionary = Dictionary()
    books = Books(INSTRUMENTS, dictionary)

    def level(price: int, flags: int = Flag.LAST) -> list[tuple[Any, ...]]:
        event = row(Action.LEVEL, price=price, volume=2, side=Side.BID, flags=flags)
        return quotes_of(books.apply(events_of([event])), dictionary)

    assert level(5) == [] and level(6, 0) == []
    # Within a message, of which a change is held back.
    books.tell_quotes(True)
    assert [one[3:6] for one in level(6)] == [(1, 6 * 10**6, 2 * 10**8)]
    assert level(4) == []
    books.tell_quotes(False)
    assert level(7) == []
    books.tell_quotes(True)
    assert [one[3:5] for one in level(8)] == [(1, 8 * 10**6)]
    with pytest.raises(DataError, match="quotes are told of books with track_crossed"):
        Books(INSTRUMENTS, dictionary, track_crossed=False).tell_quotes(True)


@pytest.mark.parametrize(
    ("name", "columns", "filled"),
    [
        ("quotes", "", True),
        ("quotes", "ts TIMESTAMP, venue TEXT, symbol TEXT, mid DOUBLE", True),
        ("quotes", "ts TIMESTAMP, symbol TEXT, bid DECIMAL(12, 4), ask DECIMAL(12, 4)", False),
        ("quotes", "venue TEXT, symbol TEXT, bid_size BIGINT", False),
        ("book_events", "", True),
        ("book_events", "ts TIMESTAMP, venue TEXT, symbol TEXT, action TEXT", True),
        ("book_events", "ts TIMESTAMP, symbol TEXT, what TEXT", False),
    ],
)
def test_a_relation_of_that_name_with_other_columns_is_the_users_own(
    name: str, columns: str, filled: bool
) -> None:
    declared = f"CREATE STREAM {name} ({columns}); " if columns else ""
    program = compile_views(f"{declared}CREATE VIEW n AS SELECT COUNT(*) AS n FROM {name}").program
    assert filled_by_books(program.relation(name)) == filled


@pytest.mark.parametrize("name", ["quotes", "book_events"])
def test_a_view_may_have_that_name(name: str) -> None:
    program = compile_views(f"CREATE VIEW {name} AS SELECT symbol, MAX(price) AS m FROM bids GROUP BY symbol")
    assert [one.name for one in program.relations if one.name == name] == []


def test_mid_is_what_sql_computes_of_the_columns() -> None:
    random = np.random.default_rng(3)
    sql = "CREATE VIEW n AS SELECT COUNT(*) AS n, COUNT(*) FILTER (WHERE mid = (bid + ask) / 2) AS same"
    program = compile_views(f"{sql} FROM quotes")
    engine = GatedEngine(program, "interpreter")
    relations = BookRelations(program.program, engine.dictionary, Problems())
    books = Books(INSTRUMENTS, engine.dictionary, quotes=relations.quotes)
    for instrument in range(len(INSTRUMENTS)):
        for bid, ask in random.integers(1, 10**9, (100, 2)).tolist():
            levels = [
                row(Action.LEVEL, instrument=instrument, price=price, volume=1, side=side, flags=0)
                for side, price in ((0, bid), (1, bid + ask))
            ]
            clear = row(Action.CLEAR, instrument=instrument, side=2, flags=0)
            levels[-1]["flags"] = Flag.LAST
            engine.apply(relations.translate(books.apply(events_of([clear, *levels]))))
    assert dict(engine["n"][()]) == {"n": 300, "same": 300}
