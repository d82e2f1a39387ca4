"""What a callback is given is the same however it came: at once, held, conflated, throttled, recovered."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from samples import examples

from orderbook.engine.runtime.subscriptions import ViewEvent
from orderbook.market.synthetic_flow import synthetic_instruments
from orderbook.strategies.clock import SavedThrottle, Throttle
from orderbook.strategies.gated_engine import GatedEngine, HeldEvent
from orderbook.views import compilation
from orderbook.views.compilation import compile_views

INSTRUMENTS = synthetic_instruments(2)
SYMBOLS = [one.symbol for one in INSTRUMENTS]
SQL = """
CREATE STREAM r (symbol TEXT NOT NULL, name TEXT, v DECIMAL(9, 2), big BIGINT, x DOUBLE, at TIMESTAMP);
CREATE VIEW w AS SELECT symbol, SUM(v) AS total, SUM(big * 1000000) AS wide,
    AVG(x) AS mean, MAX(at) AS latest, COUNT(*) AS n, MAX(big) > 3 AS much FROM r GROUP BY symbol;
CREATE VIEW plain AS SELECT symbol, name, v, big, x, at FROM r;
"""
PROGRAM = compile_views(SQL)
rows = st.fixed_dictionaries(
    {
        "symbol": st.sampled_from(SYMBOLS),
        "name": st.none() | st.sampled_from(["a", "ä", "\u2028", ""]),
        "v": st.none() | st.integers(-(10**6), 10**6),
        "big": st.none() | st.sampled_from([0, 4, 2**62, -(2**62)]),
        "x": st.none() | st.floats(-1e9, 1e9),
        "at": st.none() | st.integers(0, 2**60),
    }
)


@dataclass
class Books:
    """Books of one state, as a gate looks at them."""

    valid: bool = True

    all_valid = False

    def is_valid(self, _: int) -> bool:
        return self.valid


@dataclass
class Run:
    """An engine with a subscription to each view, and what that was told."""

    when: str | None = None
    books: Books = field(default_factory=Books)
    told: list[Any] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.engine = GatedEngine(PROGRAM, "interpreter")
        self.engine.watch_books(self.books, INSTRUMENTS)  # type: ignore[arg-type]
        for view, when in (("w", self.when), ("plain", None)):
            self.engine.subscribe(view, self.told.append, when, owner="one", fire="change")

    def resumed(self) -> "Run":
        """Another that goes on from a checkpoint of this one."""
        other = Run(self.when)
        other.engine.load(self.engine.save())
        data = msgspec.msgpack.encode(self.engine.save_held())
        assert not other.engine.load_held(msgspec.msgpack.decode(data, type=list[HeldEvent]))
        return other


def form(event: Any) -> list[Any]:
    """Everything of an event that has a type."""
    found: list[Any] = [type(event), type(event.view), *map(type, event.key), event.status]
    found.append(type(event.version))
    for row in (event.old, event.new):
        found.append(type(row))
        found += [] if row is None else [(name, type(row[name])) for name in row]
        found += [] if row is None else [type(row.multiplicity), type(getattr(row, next(iter(row))))]
    return found


def values(event: Any) -> tuple[Any, ...]:
    return event.view, event.key, event.old and dict(event.old), event.new and dict(event.new)


def held(changes: list[Any], recovered: bool) -> list[ViewEvent]:
    run = Run()
    for row in changes[:-1]:
        run.engine.insert("r", row)
    run.told.clear()
    run.books.valid = False
    run.engine.insert("r", changes[-1])
    assert not run.told
    if recovered:
        run = run.resumed()
    run.books.valid = True
    run.engine.books_changed()
    return run.told


def conflated(changes: list[Any]) -> list[ViewEvent]:
    run = Run()
    for row in changes[:-1]:
        run.engine.insert("r", row)
    run.told.clear()
    run.engine.conflating = True
    run.engine.insert("r", changes[-1])
    run.engine.conflating = False
    run.engine.books_changed()
    return run.told


def throttled(changes: list[Any], recovered: bool) -> list[ViewEvent]:
    run, told = Run(), list[Any]()
    limits = {view: Throttle(run.engine, view, None, 10, told.append) for view in ("w", "plain")}
    for row in changes[:-1]:
        run.engine.insert("r", row)
    for limit in limits.values():
        # A row's first event passes; here it did at 0.
        limit.load([SavedThrottle(msgspec.msgpack.encode([]), 0, False, None)])
        limit._told.clear()
    run.told.clear()
    run.engine.insert("r", changes[-1])
    for event in run.told:
        limits[event.view]._told[event.key] = 0
        limits[event.view].offer(event, 5)
    if recovered:
        saved = {view: limit.save() for view, limit in limits.items()}
        run = run.resumed()
        limits = {view: Throttle(run.engine, view, None, 10, told.append) for view in limits}
        for view, limit in limits.items():
            limit.load(saved[view])
    for limit in limits.values():
        limit.look(20)
    return told


WAYS: dict[str, Callable[[list[Any]], list[ViewEvent]]] = {
    "held": lambda changes: held(changes, False),
    "held and recovered": lambda changes: held(changes, True),
    "conflated": conflated,
    "throttled": lambda changes: throttled(changes, False),
    "throttled and recovered": lambda changes: throttled(changes, True),
}


@pytest.mark.parametrize("way", WAYS)
def test_an_event_is_of_one_class_and_its_parts_of_the_same_types_whichever_way_it_came(way: str) -> None:
    @examples(15)
    @given(st.lists(rows, min_size=1, max_size=5))
    def run(changes: list[Any]) -> None:
        direct = Run()
        for row in changes[:-1]:
            direct.engine.insert("r", row)
        direct.told.clear()
        direct.engine.insert("r", changes[-1])
        # A row of sums that comes to the same is told at once, and not where it waited.
        expected = [e for e in direct.told if e.old != e.new]
        found = WAYS[way](changes)
        assert list(map(form, found)) == list(map(form, expected))
        assert list(map(values, found)) == list(map(values, expected))
        assert all(type(event) is ViewEvent for event in found)

    run()


def test_a_condition_is_parsed_once_for_a_subscription_however_many_rows_wait(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    parsed: list[str] = []
    parse = compilation._expression

    def counted(source: Any) -> Any:
        parsed.append(str(source))
        return parse(source)

    monkeypatch.setattr(compilation, "_expression", counted)
    run, told = Run("n >= 2"), list[Any]()
    limit = Throttle(run.engine, "w", "n >= 2", 10, told.append)
    before = len(parsed)
    for number in range(20):
        run.engine.conflating = True
        for symbol in SYMBOLS:
            run.engine.insert("r", {"symbol": symbol, "v": number})
        run.engine.conflating = False
        run.engine.books_changed()
        for event in [e for e in run.told if e.view == "w"]:
            limit.offer(event, 10 * number)
            limit.offer(event, 10 * number + 1)
        run.told.clear()
        limit.look(10 * number + 15)
    assert len(told) >= 40
    # The throttle's own.
    assert len(parsed) == before + 1


def test_what_is_held_goes_with_its_subscription_not_with_its_place() -> None:
    """Checkpoints outlive changes of strategies: what a subscription held is another's under no condition."""
    run = Run()
    run.books.valid = False
    run.engine.insert("r", {"symbol": SYMBOLS[0], "v": 1})
    saved = run.engine.save_held()
    assert len(saved) == 2
    other, told = GatedEngine(PROGRAM, "interpreter"), list[Any]()
    other.watch_books(Books(), INSTRUMENTS)  # type: ignore[arg-type]
    other.subscribe("plain", told.append, fire="change", owner="new")
    other.subscribe("w", told.append, fire="change", owner="one", when="n > 0")
    other.subscribe("plain", told.append, fire="change", owner="one")
    other.load(run.engine.save())
    assert other.load_held(saved) == 1
    other.books_changed()
    assert [(e.view, e.new.v) for e in told] == [("plain", 1)]


def test_a_view_that_is_dropped_while_its_rows_wait_stops_nothing() -> None:
    run = Run()
    run.books.valid = False
    run.engine.insert("r", {"symbol": SYMBOLS[0], "v": 1})
    run.engine.drop_view("w")
    run.books.valid = True
    run.engine.books_changed()
    assert [event.view for event in run.told] == ["plain"]
