"""Ticks of the clock, what NOW() is, and rows that expire."""

import pytest
from backends import BACKENDS, new_row, old_row

import orderbook
from orderbook.core.errors import DataError, SqlError
from orderbook.engine.runtime.program_start import Backend

SECOND = 10**9
SQL = """
CREATE STREAM pings (ts TIMESTAMP NOT NULL, n INTEGER NOT NULL);
CREATE VIEW recent AS SELECT COUNT(*) AS n FROM pings WHERE ts > NOW() - INTERVAL '2 seconds';
CREATE VIEW every AS SELECT COUNT(*) AS n FROM pings;
"""
RETAINED = """
CREATE STREAM pings (ts TIMESTAMP, n INTEGER NOT NULL) RETAIN INTERVAL '2 seconds';
CREATE VIEW every AS SELECT COUNT(*) AS n, SUM(n) AS total FROM pings;
"""


def ping(seconds: float | None, n: int = 1) -> dict[str, object]:
    return {"ts": None if seconds is None else int(seconds * SECOND), "n": n}


@pytest.fixture(params=BACKENDS)
def engine(request: pytest.FixtureRequest) -> orderbook.Engine:
    return orderbook.Engine(orderbook.compile(SQL), request.param)


def test_rows_leave_a_window_at_a_tick(engine: orderbook.Engine) -> None:
    counts = []
    engine.subscribe("recent", lambda event: counts.append(new_row(event).n))
    engine.insert("pings", ping(1))
    engine.tick(2 * SECOND)
    engine.insert("pings", ping(2.5))
    engine.tick(3 * SECOND)
    engine.tick(3 * SECOND)
    engine.tick(10 * SECOND)
    assert counts == [1, 2, 1, 0]
    assert engine["every"][()].n == 2
    assert engine.version == (5, 0, 5), "a tick to the same time is no event"


def test_the_clock_does_not_go_back(engine: orderbook.Engine) -> None:
    engine.tick(5)
    with pytest.raises(DataError, match="4 is before the clock's 5"):
        engine.tick(4)
    with pytest.raises(DataError, match="'x' is not a time"):
        engine.tick("x")  # type: ignore[arg-type]
    assert engine.version == (1, 0, 1)


def test_the_clock_is_the_engines_own(engine: orderbook.Engine) -> None:
    for change in (engine.insert, engine.delete):
        with pytest.raises(DataError, match=r"the engine alone changes clock; call tick\(now\) instead"):
            change("clock", {"now": 1})
    with pytest.raises(SqlError, match="clock is the engine's own"):
        orderbook.compile("CREATE STREAM clock (now TIMESTAMP)")


def test_inserts_into_clock_are_ticks_of_a_stream(engine: orderbook.Engine) -> None:
    pl = pytest.importorskip("polars")
    frame = pl.DataFrame(
        {
            "stream": ["clock", "pings", "clock", "clock", "clock", "pings"],
            "op": ["+", "+", "-", "+", "+", "+"],
            "now": [SECOND, None, SECOND, 3 * SECOND, 2 * SECOND, None],
            "ts": [None, SECOND, None, None, None, 2 * SECOND],
            "n": [None, 1, None, None, None, 1],
        }
    )
    engine.apply(engine.program.changes(frame))
    assert engine["recent"][()].n == 1
    assert engine["every"][()].n == 2
    assert engine.problems.counts == {"tick refused": 1}


def test_a_callback_may_tick_after_its_message(engine: orderbook.Engine) -> None:
    seen = []
    engine.subscribe("every", lambda event: engine.tick(9 * SECOND))
    engine.subscribe("recent", lambda event: seen.append(new_row(event).n))
    engine.tick(SECOND)
    engine.insert("pings", ping(1))
    assert seen == [1, 0]


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_view_that_reads_the_clock_may_come_later(backend: Backend) -> None:
    first = "".join(line for line in SQL.splitlines(True) if "recent" not in line)
    late = orderbook.Engine(orderbook.compile(first), backend)
    late.insert("pings", ping(1))
    late.insert("pings", ping(3))
    late.tick(4 * SECOND)
    late.add_view(SQL.splitlines()[2])
    assert late["recent"][()].n == 1
    late.tick(5 * SECOND)
    assert late["recent"][()].n == 0


@pytest.mark.parametrize("backend", BACKENDS)
def test_retained_rows_go_when_they_are_older(backend: Backend) -> None:
    engine = orderbook.Engine(orderbook.compile(RETAINED), backend)
    for seconds, n in ((1, 1), (3, 2), (2, 4), (2, 4), (None, 8)):
        engine.insert("pings", ping(seconds, n))
    engine.delete("pings", ping(2, 4))
    engine.tick(3 * SECOND)
    assert engine["every"][()] == {"n": 4, "total": 15}, "a row as old as is retained stays"
    engine.tick(4 * SECOND)
    assert engine["every"][()].total == 14
    engine.tick(4 * SECOND + 1)
    assert engine["every"][()].total == 10
    engine.insert("pings", ping(1, 16))
    engine.tick(60 * SECOND)
    assert engine["every"][()] == {"n": 1, "total": 8}
    engine.delete("pings", ping(None, 8))
    assert not engine.problems.counts and not any(engine.map_sizes().values())
    with pytest.raises(DataError, match="not there"):
        engine.delete("pings", ping(3, 2))


def test_expiry_is_one_event_of_the_ticks_message() -> None:
    engine = orderbook.Engine(orderbook.compile(RETAINED), "interpreter")
    for seconds in (1, 1, 2):
        engine.insert("pings", ping(seconds))
    seen = []
    engine.subscribe("every", lambda event: seen.append((old_row(event).n, new_row(event).n)), on="event")
    engine.tick(30 * SECOND)
    assert seen == [(3, 0)]
