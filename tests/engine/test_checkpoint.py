"""Checkpoints: engines that go on from a file as if they had never stopped, or refuse it."""

import itertools
import os
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from typing import Any

import numpy as np
import pytest
from backends import BACKENDS
from checkpoint_runner import contents, same, through_file
from hypothesis import given
from hypothesis import strategies as st
from samples import examples
from uncompiled import run_uncompiled

import orderbook
from orderbook.core.changes import END_OF_EVENT, END_OF_MESSAGE, ChangeBatch
from orderbook.core.errors import DataError
from orderbook.engine.maps.shapes import hashed
from orderbook.engine.runtime import store_entries
from orderbook.engine.runtime.engine_state import program_hash
from orderbook.engine.runtime.program_start import Backend
from orderbook.engine.runtime.state_transfer import OtherProgram

PAIRS = list(itertools.product(BACKENDS, BACKENDS))
STREAMS = """
CREATE STREAM quotes (
    symbol TEXT NOT NULL,
    venue  TEXT,
    volume BIGINT NOT NULL CHECK (volume >= 0),
    weight DOUBLE
) WITH (max_rows = 6);
CREATE STREAM seen (at TIMESTAMP, name TEXT) RETAIN INTERVAL '10' SECOND ON at;
"""
VIEWS = """
CREATE VIEW totals AS SELECT symbol, SUM(volume) AS volume, COUNT(*) AS n FROM quotes GROUP BY symbol;
CREATE VIEW weights AS SELECT venue, SUM(weight) AS weight FROM quotes GROUP BY venue;
CREATE VIEW squares AS SELECT SUM(volume * volume * volume) AS cubes FROM quotes;
CREATE VIEW alike AS SELECT symbol, COUNT(*) AS n FROM quotes WHERE symbol LIKE 'a%' GROUP BY symbol;
CREATE VIEW starts AS SELECT symbol, CASE WHEN symbol LIKE 'a%' THEN 1 ELSE 0 END AS a, COUNT(*) AS n
    FROM quotes GROUP BY symbol;
CREATE VIEW least AS SELECT q.symbol FROM quotes q
    WHERE 2 * (SELECT SUM(x.volume) FROM quotes x WHERE x.volume <= q.volume)
        < (SELECT SUM(x.volume) FROM quotes x);
CREATE VIEW recent AS SELECT name, COUNT(*) AS n FROM seen
    WHERE at > NOW() - INTERVAL '5' SECOND GROUP BY name;
CREATE VIEW all_seen AS SELECT at, name FROM seen;
"""
SECOND = 10**9


def program(extra: str = "") -> orderbook.CompiledProgram:
    """A program with a dictionary of its own."""
    return orderbook.compile(STREAMS + VIEWS + extra)


@cache
def shared() -> orderbook.CompiledProgram:
    return program()


# (what is done, the row, or the second or which of the rows that are there).
Step = tuple[str, Any]
# (method of an engine, its arguments).
Call = tuple[str, tuple[Any, ...]]

quotes = st.fixed_dictionaries(
    {
        "symbol": st.sampled_from(["ab", "ac", "b", "\ud800"]),
        "venue": st.sampled_from(["X", "ab", None]),
        "volume": st.sampled_from([0, 1, 7, 2**41]),
        "weight": st.sampled_from([None, 0.1, -0.0, 1e16, 1e-300]),
    }
)
sightings = st.fixed_dictionaries(
    {"at": st.none() | st.integers(0, 30).map(SECOND.__mul__), "name": st.sampled_from(["ab", "X", None])}
)
steps = st.lists(
    st.one_of(
        st.tuples(st.just("quotes"), quotes),
        st.tuples(st.just("quotes"), quotes),
        st.tuples(st.just("seen"), sightings),
        st.tuples(st.just("delete"), st.integers(0, 9)),
        st.tuples(st.just("refused"), quotes),
        st.tuples(st.just("tick"), st.integers(0, 8)),
    ),
    min_size=4,
    max_size=24,
)


def events_from(stream: list[Step]) -> Iterator[Call]:
    """(method, arguments) for each step, by what rows are there."""
    live: list[tuple[str, dict[str, Any]]] = []
    now = 0
    for what, detail in stream:
        if what == "tick":
            now += detail * SECOND
            oldest = now - 10 * SECOND
            live = [e for e in live if e[0] != "seen" or e[1]["at"] is None or e[1]["at"] >= oldest]
            yield "tick", (now,)
        elif what == "delete":
            if live:
                yield "delete", live.pop(detail % len(live))
        elif what == "refused":
            yield "delete", ("quotes", {**detail, "volume": 999})
        else:
            live.append((what, detail))
            yield "insert", (what, detail)


def play(engine: orderbook.Engine, event: Call) -> str | None:
    """Applies an event; what it was refused with."""
    method, arguments = event
    try:
        getattr(engine, method)(*arguments)
    except DataError as error:
        return str(error)
    return None


@pytest.mark.sampled(2)
@pytest.mark.parametrize(("before", "after"), PAIRS)
def test_an_engine_goes_on_as_if_it_had_never_stopped(before: Backend, after: Backend) -> None:
    other = program()
    other.dictionary.encode("ac")

    @examples(8)
    @given(steps, st.integers(0, 24))
    def run(stream: list[Step], at: int) -> None:
        events = list(events_from(stream))
        whole = orderbook.Engine(shared(), before, keep_rows=True)
        for event in events[:at]:
            play(whole, event)
        resumed = orderbook.Engine(other, after, keep_rows=True)
        through_file(whole, resumed)
        assert resumed.version == whole.version and resumed.problems.counts == whole.problems.counts
        assert same(contents(resumed), contents(whole))
        for event in events[at:]:
            assert play(resumed, event) == play(whole, event)
            assert same(contents(resumed), contents(whole)), event
        rows = [sorted(map(str, e.frame("all_seen").rows())) for e in (whole, resumed)]
        assert rows[0] == rows[1]
        assert same_rows(whole, resumed)

    run()


@pytest.mark.parametrize(("before", "after"), PAIRS)
def test_strings_that_are_new_are_known_to_patterns_and_to_what_expires(
    before: Backend, after: Backend
) -> None:
    whole, other = orderbook.Engine(program(), before), program()
    other.dictionary.encode_all(["of its own", "c"])
    for second, name in ((1, "a"), (1, "a"), (2, "b"), (4, "c"), (5, "d")):
        whole.insert("seen", {"at": second * SECOND, "name": name})
        whole.insert("quotes", {"symbol": name + "b", "volume": second})
        if second == 4:
            whole.tick(4 * SECOND)
    whole.at(17, 3)
    whole.delete("seen", {"at": SECOND, "name": "a"})
    resumed = orderbook.Engine(other, after)
    through_file(whole, resumed)
    assert resumed.version == whole.version and resumed.version[:2] == (17, 3)
    assert {key: row.a for key, row in resumed["starts"].items()}[("ab",)] == 1
    for now in (12, 13, 15, 16):
        for engine in (whole, resumed):
            engine.tick(now * SECOND)
        assert same(contents(resumed), contents(whole)) and not resumed.problems.counts
    assert not whole["all_seen"]
    for _ in range(2):
        refused = [play(e, ("insert", ("quotes", {"symbol": "x", "volume": 0}))) for e in (whole, resumed)]
        assert refused[0] == refused[1]
    assert refused[0] is not None and "max_rows" in refused[0]


def same_rows(whole: orderbook.Engine, resumed: orderbook.Engine) -> bool:
    """Whether both keep the same rows, strings decoded."""
    found = []
    for engine in (whole, resumed):
        rows, counts = engine.rows_of("quotes")
        rows = rows.copy()
        for column in (0, 1):
            there = rows[:, column] >= 0
            texts = engine.dictionary.decode_all(rows[there, column])
            rows[there, column] = shared().dictionary.encode_all(texts)
        found.append(sorted(zip(rows.tolist(), counts.tolist(), strict=True)))
    return found[0] == found[1]


def test_a_hashed_store_of_many_blocks_is_copied_without_those_given_back() -> None:
    shape = hashed(1, "i", ((0,),))
    handle, generator = shape.create(), np.random.default_rng(1)
    held: dict[int, int] = {}
    for _ in range(3):
        for key in generator.integers(0, 20_000, 12_000).tolist():
            shape.add(handle, key, 1)
            held[key] = held.get(key, 0) + 1
        for key in generator.choice(list(held), len(held) * 2 // 3, replace=False).tolist():
            shape.add(handle, key, -held.pop(key))
        rows = store_entries.copied(handle, 2)
        assert len(rows) == len(held) and dict(rows.tolist()) == held
    shape.destroy(handle)


def test_views_of_the_catalogue_go_on_from_either_backend() -> None:
    assert " 0 failed, " in run_uncompiled("checkpoint_runner.py", "--every", "40", "--length", "10")


@pytest.mark.exhaustive
@pytest.mark.parametrize("offset", range(4))
def test_all_views_of_the_catalogue_go_on_from_either_backend(sample_seed: int, offset: int) -> None:
    assert " 0 failed, " in run_uncompiled("checkpoint_runner.py", "--seed", str(10 * sample_seed + offset))


@pytest.mark.sampled(2)
@pytest.mark.parametrize(("backends", "count"), [("interpreter,interpreter", 10), ("interpreter,numba", 3)])
def test_other_views_of_the_catalogue_go_on_as_if_they_had_always_run(
    backends: str, count: int, sample_seed: int
) -> None:
    seed = str(100 * sample_seed)
    assert " 0 failed, " in run_uncompiled(
        "program_change_runner.py", "--seed", seed, "--count", str(count), "--backends", backends
    )


@pytest.mark.exhaustive
@pytest.mark.parametrize("backends", ["interpreter,interpreter", "numba,numba", "numba,interpreter"])
def test_many_other_views_of_the_catalogue_go_on(backends: str, sample_seed: int, sample_count: int) -> None:
    seed = str(1000 * sample_seed)
    run_uncompiled(
        "program_change_runner.py", "--seed", seed, "--count", str(sample_count), "--backends", backends
    )


@pytest.mark.parametrize("backend", BACKENDS)
def test_subscriptions_take_loaded_rows_as_their_first_look(backend: Backend) -> None:
    def subscribed() -> tuple[orderbook.Engine, list[object]]:
        engine, told = orderbook.Engine(shared(), backend), list[object]()

        def keep(e: orderbook.ViewEvent) -> None:
            told.append((e.view, e.key, e.old and dict(e.old), e.new and dict(e.new), e.version))

        engine.subscribe("totals", keep, fire="change")
        engine.subscribe("totals", keep, when="n >= 2")
        engine.subscribe("squares", keep, on="event")
        return engine, told

    quote = {"symbol": "ab", "venue": None, "volume": 3, "weight": None}
    whole, told = subscribed()
    whole.insert("quotes", quote)
    whole.insert("quotes", quote)
    assert told
    resumed, later = subscribed()
    resumed.insert("quotes", {**quote, "symbol": "of before"})
    later.clear()
    resumed.load(whole.save())
    assert not later
    told.clear()
    for engine in (whole, resumed):
        engine.insert("quotes", {**quote, "symbol": "b"})
        engine.insert("quotes", quote)
        engine.delete("quotes", quote)
        engine.delete("quotes", quote)
        engine.insert("quotes", quote)
    assert later == told and len(told) > 5


def test_a_loaded_engine_takes_the_place_of_what_was_there_with_subscriptions_that_ended() -> None:
    engine = orderbook.Engine(shared(), "interpreter")
    subscription = engine.subscribe("totals", lambda event: None)
    engine.insert("quotes", {"symbol": "ab", "volume": 3})
    empty = orderbook.Engine(shared(), "numba").save()
    subscription.cancel()
    engine.load(empty)
    assert not engine["totals"] and engine.version == (0, 0, 0)
    engine.insert("quotes", {"symbol": "ab", "volume": 3})
    assert len(engine["totals"]) == 1


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_view_can_be_added_after_a_load(backend: Backend) -> None:
    whole, resumed = (orderbook.Engine(shared(), backend, keep_rows=True) for _ in range(2))
    whole.insert("quotes", {"symbol": "ab", "volume": 3})
    whole.insert("quotes", {"symbol": "ab", "volume": 3})
    resumed.load(whole.save())
    resumed.add_view("CREATE VIEW more AS SELECT symbol, COUNT(*) AS n FROM quotes GROUP BY symbol;")
    assert [row.n for row in resumed["more"].values()] == [2]


FEWER, ADDED = VIEWS.split("CREATE VIEW alike")
ADDED = "CREATE VIEW alike" + ADDED


@pytest.mark.parametrize(("before", "after"), [("interpreter", "numba"), ("numba", "interpreter")])
def test_a_state_is_also_one_of_the_program_before_views_were_added(before: Backend, after: Backend) -> None:
    few, other = (orderbook.compile(STREAMS + FEWER) for _ in range(2))
    other.dictionary.encode("ac")

    @examples(6)
    @given(steps, st.integers(0, 6), st.integers(0, 24))
    def run(stream: list[Step], added: int, at: int) -> None:
        events = list(events_from(stream))
        whole, never = (orderbook.Engine(few, backend, keep_rows=True) for backend in (before, "interpreter"))
        for place, event in enumerate(events[:at]):
            if place == added:
                whole.add_view(ADDED)
            assert play(whole, event) == play(never, event)
        resumed = orderbook.Engine(other, after, keep_rows=True)
        resumed.load(whole.save(few))
        assert resumed.version == never.version and resumed.problems.counts == never.problems.counts
        assert same(contents(resumed), contents(never))
        for event in events[at:]:
            assert play(resumed, event) == play(never, event)
            assert same(contents(resumed), contents(never)), event
        assert same_rows(never, resumed)

    run()


def test_a_state_that_lacks_a_view_is_none_of_a_program_that_has_it() -> None:
    engine = orderbook.Engine(shared(), "interpreter", keep_rows=True)
    engine.insert("quotes", {"symbol": "ab", "volume": 3})
    assert engine.save(shared()).program == engine.save().program
    engine.drop_view("weights")
    with pytest.raises(OtherProgram, match="have been dropped"):
        engine.save(shared())
    engine.add_view("CREATE VIEW weights AS SELECT venue, SUM(weight) AS weight FROM quotes GROUP BY venue")
    resumed = orderbook.Engine(shared(), "interpreter", keep_rows=True)
    resumed.load(engine.save(shared()))
    assert same(contents(resumed), contents(engine))


def test_states_that_do_not_fit_are_refused() -> None:
    state = orderbook.Engine(shared(), "interpreter", check_rows=False).save()
    with pytest.raises(DataError, match="without check_rows"):
        orderbook.Engine(shared(), "interpreter").load(state)
    with pytest.raises(DataError, match="without keep_rows"):
        orderbook.Engine(shared(), "interpreter", check_rows=False, keep_rows=True).load(state)
    other = program("CREATE VIEW one AS SELECT COUNT(*) AS n FROM seen;")
    with pytest.raises(DataError, match="another program"):
        orderbook.Engine(other, "interpreter", check_rows=False).load(state)


def test_there_is_no_checkpoint_inside_a_message() -> None:
    engine = orderbook.Engine(shared(), "interpreter")
    engine.dictionary.encode("code 0")
    one = engine.save()
    batch = ChangeBatch(
        np.zeros(2, np.int16) + 2 * [r.name for r in shared().relations].index("quotes"),
        np.array([END_OF_EVENT, END_OF_EVENT | END_OF_MESSAGE], np.uint8),
        np.zeros((2, 4), np.int64),
    )
    raised = []

    def callback(event: orderbook.ViewEvent) -> None:
        for action in (engine.save, lambda: engine.load(one)):
            with pytest.raises(DataError, match="inside a message"):
                action()
            raised.append(action)

    engine.subscribe("totals", callback, on="event")
    engine.apply(ChangeBatch(batch.kinds[:1], batch.flags[:1], batch.values[:1]))
    with pytest.raises(DataError, match="inside a message"):
        engine.save()
    engine.apply(ChangeBatch(batch.kinds[1:], batch.flags[1:], batch.values[1:]))
    assert len(raised) == 4
    assert engine.save().sequence == 2


# Program hashes.

SMALL = """CREATE STREAM q (a INTEGER NOT NULL, s TEXT);
CREATE VIEW v AS SELECT SUM(a) AS a FROM q WHERE a > :low;"""


def small_hash(sql: str | dict[str, str] = SMALL, low: int = 1) -> bytes:
    return program_hash(orderbook.compile(sql, params={"low": low}))


def test_the_hash_is_of_what_matters() -> None:
    same_programs = [
        small_hash(),
        small_hash({"renamed.sql": "-- a comment\n" + SMALL.replace(" AS ", "\n  as ")}),
        small_hash(SMALL.replace("TEXT);", "TEXT) SOURCE 'changes:elsewhere.jsonl';")),
    ]
    others = [
        small_hash(low=2),
        small_hash(SMALL.replace("TEXT", "TEXT NOT NULL")),
        small_hash(SMALL.replace("TEXT)", "TEXT) WITH (max_rows = 5)")),
        small_hash(SMALL.replace("SUM", "MAX")),
        small_hash(SMALL.replace("AS a", "AS b")),
        small_hash(SMALL.replace("INTEGER NOT NULL", "INTEGER NOT NULL CHECK (a > 3)")),
        small_hash(SMALL.replace("CREATE VIEW", "CREATE STREAM r (b BIGINT); CREATE VIEW")),
        small_hash(SMALL + "CREATE VIEW w AS SELECT COUNT(*) AS n FROM q;"),
    ]
    assert len(set(same_programs)) == 1 and 16 <= len(same_programs[0]) <= 32
    assert len({*same_programs, *others}) == 1 + len(others)


def test_the_hash_is_the_same_in_every_process() -> None:
    code = "import orderbook, sys; from orderbook.engine.runtime.engine_state import program_hash as h; "
    code += "print(h(orderbook.compile(sys.argv[1], params={'low': 1})).hex())"
    environment = {**os.environ, "PYTHONHASHSEED": "123"}
    command = [sys.executable, "-c", code, STREAMS + VIEWS + SMALL]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    assert (
        done.stdout.strip()
        == program_hash(orderbook.compile(STREAMS + VIEWS + SMALL, params={"low": 1})).hex()
    )
