"""Deletes of rows that are not there, rows beyond max_rows, and relations fed by books."""

from collections import Counter
from functools import cache

import numpy as np
import polars as pl
import pytest
from backends import BACKENDS, new_row, quote, quotes
from hypothesis import given
from hypothesis import strategies as st

import orderbook
from orderbook.core.changes import CHECKED, END_OF_EVENT, END_OF_MESSAGE, ChangeBatch, Dictionary
from orderbook.core.errors import DataError
from orderbook.engine.runtime.program_start import Backend
from orderbook.engine.runtime.relation_store import RelationStore
from orderbook.views.types import Relation

SMALL = """
CREATE STREAM quotes (symbol TEXT NOT NULL, volume INTEGER NOT NULL) WITH (max_rows = 2);
CREATE STREAM fills (volume INTEGER NOT NULL);
CREATE VIEW totals AS SELECT symbol, SUM(volume) AS volume FROM quotes GROUP BY symbol;
CREATE VIEW filled AS SELECT COUNT(*) AS n FROM fills;
"""


@cache
def small_program() -> orderbook.CompiledProgram:
    return orderbook.compile(SMALL)


@pytest.fixture(params=BACKENDS)
def engine(request: pytest.FixtureRequest) -> orderbook.Engine:
    return orderbook.Engine(quotes(), request.param)


@pytest.fixture
def small() -> orderbook.Engine:
    return orderbook.Engine(small_program(), "interpreter")


def fills(
    program: orderbook.CompiledProgram, *ops: str, flags: int = END_OF_EVENT | END_OF_MESSAGE
) -> ChangeBatch:
    frame = pl.DataFrame({"stream": ["fills"] * len(ops), "op": ops, "volume": [1] * len(ops)})
    batch = program.changes(frame)
    return ChangeBatch(batch.kinds, np.full(len(ops), flags, np.uint8), batch.values)


def test_a_delete_of_a_row_that_is_not_there_raises_and_applies_nothing(engine: orderbook.Engine) -> None:
    engine.insert("quotes", quote("A", 5, "2.5"))
    with pytest.raises(DataError, match=r"quotes: deleted row is not there: \(symbol='A', .*volume=6.00"):
        engine.delete("quotes", quote("A", 6, "2.5"))
    with pytest.raises(DataError, match="not there"):
        engine.update("quotes", quote("B", 1), quote("B", 2))
    engine.delete("quotes", quote("A", "5.0", "2.50"))
    with pytest.raises(DataError, match="not there"):
        engine.delete("quotes", quote("A", 5, "2.5"))
    assert len(engine["totals"]) == 0 and not engine.problems.counts


def test_a_refused_update_leaves_the_rows_as_they_were(small: orderbook.Engine) -> None:
    small.insert("quotes", {"symbol": "A", "volume": 1})
    small.insert("quotes", {"symbol": "B", "volume": 1})
    with pytest.raises(DataError):
        small.update("quotes", {"symbol": "C", "volume": 1}, {"symbol": "D", "volume": 1})
    small.update("quotes", {"symbol": "B", "volume": 1}, {"symbol": "C", "volume": 4})
    small.delete("quotes", {"symbol": "A", "volume": 1})
    small.delete("quotes", {"symbol": "C", "volume": 4})
    assert len(small["totals"]) == 0


def test_apply_skips_bad_events_whole_and_counts_them(engine: orderbook.Engine) -> None:
    frame = pl.DataFrame(
        {
            "stream": ["quotes"] * 5,
            "op": ["+", "-", "+", "-", "+"],
            "symbol": ["A", "X", "X", "A", "B"],
            "volume": [1, 2, 3, 1, 4],
        }
    )
    batch = quotes().changes(frame)
    flags = batch.flags.copy()
    flags[1] = 0
    engine.apply(ChangeBatch(batch.kinds, flags, batch.values))
    assert {row.symbol: row.volume for row in engine["totals"].values()} == {"B": 4}
    assert engine.problems.counts == {"row not there": 1}
    assert "volume=2.00" in engine.problems.examples["row not there"][0]
    assert engine.version == (4, 0, 4)


def test_a_refused_last_event_still_ends_its_message(engine: orderbook.Engine) -> None:
    fired = []
    engine.subscribe("overall", lambda e: fired.append(new_row(e).orders))
    frame = pl.DataFrame(
        {
            "stream": ["quotes"] * 3,
            "op": ["+", "-", "+"],
            "symbol": ["A", "X", "B"],
            "volume": [1, 2, 3],
            "last": [False, True, True],
        }
    )
    engine.apply(quotes().changes(frame))
    assert fired == [1, 2]


def test_no_more_rows_than_max_rows(small: orderbook.Engine) -> None:
    for symbol in "AB":
        small.insert("quotes", {"symbol": symbol, "volume": 1})
    with pytest.raises(DataError, match="quotes already holds max_rows = 2 rows"):
        small.insert("quotes", {"symbol": "C", "volume": 1})
    small.delete("quotes", {"symbol": "A", "volume": 1})
    small.insert("quotes", {"symbol": "C", "volume": 1})
    assert set(small["totals"]) == {("B",), ("C",)}


def test_checked_changes_pass_and_their_relation_takes_no_others(small: orderbook.Engine) -> None:
    program = small.program
    checked = END_OF_EVENT | END_OF_MESSAGE | CHECKED
    small.apply(fills(program, "+", flags=checked))
    small.apply(fills(program, *"+" * 40, flags=checked))
    assert small["filled"][()].n == 41
    small.apply(fills(program, "+", "+"))
    with pytest.raises(DataError, match="fills is fed by books; it cannot be fed row by row as well"):
        small.insert("fills", {"volume": 1})
    assert small["filled"][()].n == 41
    assert small.problems.counts == {"mixed feeding": 2}


@pytest.mark.parametrize("count", [1, 2, 40])
def test_a_relation_fed_by_rows_takes_no_checked_changes(small: orderbook.Engine, count: int) -> None:
    small.insert("fills", {"volume": 1})
    small.apply(fills(small.program, *"+" * count, flags=END_OF_EVENT | END_OF_MESSAGE | CHECKED))
    assert small["filled"][()].n == 1
    assert small.problems.counts == {"mixed feeding": count}


def test_a_refused_delete_does_not_settle_how_a_relation_is_fed(small: orderbook.Engine) -> None:
    with pytest.raises(DataError, match="not there"):
        small.delete("fills", {"volume": 1})
    small.apply(fills(small.program, "+", flags=END_OF_EVENT | END_OF_MESSAGE | CHECKED))
    assert small["filled"][()].n == 1


def test_without_check_rows_everything_passes() -> None:
    program = small_program()
    engine = orderbook.Engine(program, "interpreter", check_rows=False)
    for symbol in "ABC":
        engine.insert("quotes", {"symbol": symbol, "volume": 1})
    engine.apply(fills(program, "+", flags=END_OF_EVENT | END_OF_MESSAGE | CHECKED))
    engine.apply(fills(program, "+"))
    assert len(engine["totals"]) == 3 and engine["filled"][()].n == 2


def test_an_unfinished_event_is_refused(small: orderbook.Engine) -> None:
    batch = fills(small.program, "+", "+")
    small.apply(ChangeBatch(batch.kinds, np.array([3, 0], np.uint8), batch.values))
    assert small["filled"][()].n == 1
    assert small.problems.counts == {"unfinished event": 1}


def test_a_kind_of_no_relation_is_refused(small: orderbook.Engine) -> None:
    batch = fills(small.program, "+")
    for flags in (batch.flags, batch.flags | np.uint8(CHECKED)):
        small.apply(ChangeBatch(np.array([99], np.int16), flags, batch.values))
    assert small.problems.counts == {"unknown relation": 2}


def test_kinds_of_another_order_are_translated(small: orderbook.Engine) -> None:
    table = small.program.kinds_of(("fills", "nothing", "quotes"))
    place = {r.name: 2 * i for i, r in enumerate(small.program.relations)}
    fill, quoted = place["fills"], place["quotes"]
    assert table[np.array([0, 1, 2, 3, 4, 5, -1])].tolist() == [
        fill,
        fill + 1,
        -1,
        -1,
        quoted,
        quoted + 1,
        -1,
    ]


EVENTS = st.lists(st.tuples(st.sampled_from("+-"), st.integers(1, 3)), min_size=1, max_size=3)


@given(st.lists(EVENTS, max_size=15), st.booleans())
def test_events_apply_whole_or_not_at_all(events: list[list[tuple[str, int]]], watched: bool) -> None:
    program = small_program()
    engine = orderbook.Engine(program, "interpreter")
    if watched:
        engine.subscribe("totals", lambda e: None)
    held, refused = Counter[int](), 0
    for event in events:
        after, good = Counter(held), True
        for op, volume in event:
            after[volume] += 1 if op == "+" else -1
            good = good and after[volume] >= 0 and after.total() <= 2
        held, refused = (after, refused) if good else (held, refused + 1)
    rows = [(op, volume, i == len(event) - 1) for event in events for i, (op, volume) in enumerate(event)]
    if rows:
        frame = pl.DataFrame(
            {
                "stream": ["quotes"] * len(rows),
                "op": [op for op, *_ in rows],
                "symbol": [str(volume) for _, volume, _ in rows],
                "volume": [volume for _, volume, _ in rows],
            }
        )
        batch = program.changes(frame)
        flags = np.array([END_OF_EVENT if last else 0 for *_, last in rows], np.uint8)
        engine.apply(ChangeBatch(batch.kinds, flags, batch.values))
    assert {row.symbol: row.volume for row in engine["totals"].values()} == {
        str(volume): volume * count for volume, count in held.items() if count
    }
    assert engine.problems.counts.total() == refused


KEYED = """
CREATE STREAM one (id BIGINT PRIMARY KEY, volume INTEGER);
CREATE STREAM two (volume INTEGER, name TEXT, id BIGINT, PRIMARY KEY (id, name));
CREATE VIEW ones AS SELECT COUNT(*) AS n, SUM(volume) AS volume FROM one;
CREATE VIEW twos AS SELECT COUNT(*) AS n, SUM(volume) AS volume FROM two;
"""


@cache
def keyed_program() -> orderbook.CompiledProgram:
    return orderbook.compile(KEYED)


def two(name: str, number: int, volume: int) -> dict[str, object]:
    return {"name": name, "id": number, "volume": volume}


def test_a_second_row_with_a_primary_key_is_refused() -> None:
    engine = orderbook.Engine(keyed_program(), "interpreter")
    engine.insert("one", {"id": 1, "volume": 5})
    with pytest.raises(DataError, match=r"one: a row with this PRIMARY KEY is there already: \(id=1\)"):
        engine.insert("one", {"id": 1, "volume": 6})
    engine.insert("two", two("a", 1, 5))
    engine.insert("two", two("b", 1, 5))
    with pytest.raises(DataError, match=r"two: .* PRIMARY KEY is there already: \(id=1, name='a'\); delete"):
        engine.insert("two", two("a", 1, 5))
    with pytest.raises(DataError, match="PRIMARY KEY"):
        engine.update("two", two("a", 1, 5), two("b", 1, 7))
    for row in ({"id": None, "volume": 1}, {"volume": 1}):
        with pytest.raises(DataError, match="id"):
            engine.insert("one", row)
    engine.update("two", two("a", 1, 5), two("a", 1, 6))
    engine.delete("one", {"id": 1, "volume": 5})
    engine.insert("one", {"id": 1, "volume": 6})
    assert (engine["ones"][()].volume, engine["twos"][()].volume) == (6, 11)


@pytest.mark.parametrize("backend", BACKENDS)
def test_frames_leave_out_events_that_repeat_a_key(backend: Backend) -> None:
    frame = pl.DataFrame(
        {
            "stream": ["one"] * 6,
            "op": ["+", "+", "-", "+", "+", "+"],
            "id": [1, 1, 1, 1, 2, 1],
            "volume": [5, 5, 5, 6, 7, 8],
        }
    )
    batch = keyed_program().changes(frame)
    flags = batch.flags.copy()
    # A row that changes, and then an event whose second row repeats a key.
    flags[2] = flags[4] = 0
    engine = orderbook.Engine(keyed_program(), backend)
    engine.apply(ChangeBatch(batch.kinds, flags, batch.values))
    assert (engine["ones"][()].n, engine["ones"][()].volume) == (1, 6)
    assert engine.problems.counts == {"duplicate key": 2}
    assert "one: a row with this PRIMARY KEY is" in engine.problems.examples["duplicate key"][0]
    # What a refused event had changed stands as it was.
    engine.insert("one", {"id": 2, "volume": 1})
    with pytest.raises(DataError, match="PRIMARY KEY"):
        engine.insert("one", {"id": 1, "volume": 1})


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 2), st.integers(0, 1), st.integers(1, 3))))
def test_a_key_stands_once_whatever_comes(changes: list[tuple[bool, int, int, int]]) -> None:
    """Against a dictionary; events of one to three changes, each undone as a whole where one is refused."""
    engine, model = orderbook.Engine(keyed_program(), "interpreter"), dict[int, int]()
    rows = [("-" if delete else "+", number, volume, size) for delete, number, volume, size in changes]
    while rows:
        event, rows = rows[: rows[0][3]], rows[rows[0][3] :]
        after, refused = dict(model), False
        for op, number, volume, _ in event:
            refused |= (after.get(number) != volume) if op == "-" else number in after
            if op == "-":
                after.pop(number, None)
            else:
                after[number] = volume
        model = model if refused else after
        frame = pl.DataFrame(
            {
                "stream": ["one"] * len(event),
                "op": [row[0] for row in event],
                "id": [row[1] for row in event],
                "volume": [row[2] for row in event],
            }
        )
        batch = keyed_program().changes(frame)
        flags = np.zeros(len(event), np.uint8)
        flags[-1] = END_OF_EVENT | END_OF_MESSAGE
        engine.apply(ChangeBatch(batch.kinds, flags, batch.values))
        assert engine["ones"][()].n == len(model)
        assert (engine["ones"][()].volume or 0) == sum(model.values())


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_callback_sees_the_rows_of_the_events_so_far(backend: Backend) -> None:
    """Also where later events of the batch were looked at before the first was applied."""
    engine, seen = orderbook.Engine(keyed_program(), backend), list[list[int]]()

    def called(event: orderbook.ViewEvent) -> None:
        seen.append(sorted(row[0] for row in engine.rows_of("one")[0].tolist()))
        if new_row(event).n == 40:
            # Comes between two events of the batch.
            engine.insert("one", {"id": 80, "volume": 1})

    engine.subscribe("ones", called, when="n % 20 = 0")
    frame = pl.DataFrame({"stream": "one", "op": "+", "id": range(100), "volume": 1})
    engine.apply(keyed_program().changes(frame))
    assert seen == [list(range(20)), list(range(40)), [*range(59), 80], [*range(79), 80], list(range(100))]
    assert engine.problems.counts == {"duplicate key": 1}
    assert sorted(engine.rows_of("one")[0][:, 0].tolist()) == list(range(100))


# Of three relations: the relation, its key, what else is in its row, and how long the change's event is.
MANY = st.lists(
    st.tuples(st.booleans(), st.integers(0, 2), st.integers(0, 4), st.integers(0, 1), st.integers(1, 3)),
    max_size=200,
)


@given(MANY, st.integers(1, 200))
def test_batches_are_checked_as_their_events_are(
    changes: list[tuple[bool, int, int, int, int]], size: int
) -> None:
    """Against dictionaries: relations with a key and without, rows that are believed among them."""
    store = RelationStore(many_relations(), Dictionary(), check=True, keep=False)
    keyed, rows = dict[int, int](), Counter[tuple[int, int]]()
    refused, found = list[tuple[int, int]](), list[tuple[int, int]]()
    kinds, flags, values = [], [], []
    for delete, relation, key, volume, length in changes:
        kinds.append(2 * relation + delete)
        flags.append((CHECKED if relation == 2 else 0) | (END_OF_EVENT if length < 3 else 0))
        values.append((key, volume))
    begun, after, many, good = 0, dict(keyed), Counter(rows), True
    for at, (kind, flag, (key, volume)) in enumerate(zip(kinds, flags, values, strict=True)):
        if kind >> 1 == 0:
            good = good and (after.get(key) == volume if kind & 1 else key not in after)
            after = {k: v for k, v in after.items() if k != key} | ({} if kind & 1 else {key: volume})
        elif kind >> 1 == 1:
            many[key, volume] += -1 if kind & 1 else 1
            good = good and many[key, volume] >= 0 and many.total() <= 3
        if flag & END_OF_EVENT:
            keyed, rows = (after, many) if good else (keyed, rows)
            refused += [] if good else [(begun, at + 1)]
            begun, after, many, good = at + 1, dict(keyed), Counter(rows), True
    ends = [i + 1 for i, flag in enumerate(flags) if flag & END_OF_EVENT]
    start = 0
    while start < begun:
        # Whole events: of what has no end yet nothing is known.
        stop = max(min(end for end in ends if end > start), *(end for end in ends if end <= start + size), 0)
        part = slice(start, stop)
        batch = ChangeBatch(
            np.array(kinds[part], np.int16), np.array(flags[part], np.uint8), np.array(values[part], np.int64)
        )
        found += [(start + one.start, start + one.end) for one in store.admit(batch)[1]]
        start = stop
    assert found == refused
    for number, expected in enumerate((Counter(dict.fromkeys(keyed.items(), 1)), +rows)):
        held, counts = store.rows(number)
        assert dict(zip(map(tuple, held.tolist()), counts.tolist(), strict=True)) == expected


@cache
def many_relations() -> tuple[Relation, ...]:
    program = orderbook.compile(
        "CREATE STREAM keyed (id BIGINT PRIMARY KEY, volume BIGINT);"
        "CREATE STREAM rows (id BIGINT, volume BIGINT) WITH (max_rows = 3);"
        "CREATE STREAM believed (id BIGINT, volume BIGINT);"
        "CREATE VIEW v AS SELECT COUNT(*) AS n FROM keyed, rows, believed"
    )
    return program.relations[-3:]


def test_keys_survive_a_checkpoint() -> None:
    engine = orderbook.Engine(keyed_program(), "interpreter")
    engine.insert("two", two("a", 1, 5))
    again = orderbook.Engine(keyed_program(), "interpreter")
    again.load(engine.save())
    with pytest.raises(DataError, match="PRIMARY KEY"):
        again.insert("two", two("a", 1, 6))
    again.delete("two", two("a", 1, 5))
    again.insert("two", two("a", 1, 6))


def test_bids_and_asks_have_a_key_and_trades_have_none() -> None:
    program = orderbook.compile(
        "CREATE VIEW b AS SELECT SUM(volume) AS v FROM bids;"
        "CREATE VIEW a AS SELECT SUM(volume) AS v FROM asks;"
        "CREATE VIEW t AS SELECT SUM(volume) AS v FROM trades"
    )
    engine = orderbook.Engine(program, "interpreter")
    row = {"ts": 1, "venue": "X", "symbol": "A", "id": 7, "broker_id": 0, "volume": 100, "price": "1.5"}
    for relation, view in (("bids", "b"), ("asks", "a")):
        engine.insert(relation, row)
        with pytest.raises(DataError, match=f"{relation}: .*KEY.*venue='X', symbol='A', id=7, price=1.5"):
            engine.insert(relation, row)
        # Levels of a book that tells no orders have the id 0.
        engine.insert(relation, {**row, "price": "1.6"})
        assert engine[view][()].v == 200
    trade = {"ts": 1, "venue": "X", "symbol": "A", "id": 7, "volume": 1, "price": 1, "side": "buy"}
    engine.insert("trades", trade)
    engine.insert("trades", trade)
    assert engine["t"][()].v == 2
