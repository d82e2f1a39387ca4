"""Messages in one compiled loop: the same callbacks, at the same states of books, as one by one in Python."""

from decimal import Decimal
from functools import partial
from itertools import pairwise
from typing import Any, ClassVar

import numpy as np
import pytest

from orderbook.market.events import EVENT, Action, BookState, Flag
from orderbook.market.instruments import Instrument, Instruments
from orderbook.run.pipeline import Pace, Pipeline
from orderbook.strategies.gated_engine import GatedEngine
from orderbook.strategies.strategy import Strategy, StrategyDefinition, compiled, on_timer, on_view
from orderbook.views.compilation import compile_views

INSTRUMENTS = Instruments(
    [
        Instrument("X", "AAA", "aaa", Decimal("0.01"), Decimal("0.1")),
        Instrument("X", "BBB", "bbb", Decimal("0.5"), Decimal(1)),
        Instrument("Y", "BBB", "bbb", Decimal("0.5"), Decimal(1)),
    ]
)
VIEWS = """
CREATE VIEW best AS SELECT venue, symbol, MAX(price) AS price, SUM(volume) AS volume, COUNT(*) AS n
FROM bids GROUP BY venue, symbol;
CREATE VIEW printed AS SELECT symbol, COUNT(*) AS n, SUM(volume) AS volume FROM trades GROUP BY symbol;
"""
# Columns in another order, one that books lack, and a range that some rows are outside of.
NARROW = """
CREATE STREAM bids (price DECIMAL(18, 8) NOT NULL CHECK (price BETWEEN 4000 AND 5003), note INTEGER,
  symbol TEXT NOT NULL, volume DECIMAL(18, 8) NOT NULL, venue TEXT NOT NULL, ts TIMESTAMP NOT NULL);
"""
# What neither is shipped with goes another way through the engine.
LIKE = "CREATE VIEW some AS SELECT COUNT(*) AS n FROM bids WHERE symbol LIKE 'A%';"
PROGRAMS = {"shipped": VIEWS, "narrow": NARROW + VIEWS, "patterns": VIEWS + LIKE}
ORDERS = (Action.ADD, Action.ADD, Action.ADD, Action.REDUCE, Action.MODIFY, Action.DELETE, Action.EXECUTE)


def event_of(random: np.random.Generator) -> np.ndarray:
    """One event of an L3 book or, of the second instrument, an L2 book; now and then one that is wrong."""
    event = np.zeros(1, EVENT)
    index = int(random.integers(0, 3)) if random.random() < 0.97 else int(random.integers(-1, 5))
    levels = index == 1 and random.random() < 0.95
    event["instrument"], event["side"] = index, random.integers(0, 2)
    event["action"] = random.choice([Action.LEVEL, Action.TRADE] if levels else [*ORDERS, Action.TRADE])
    event["order_id"] = 0 if levels else random.integers(1, 60)
    event["price"], event["volume"] = 10_000 + random.integers(-8, 9), random.integers(-1, 20)
    if random.random() < 0.01:
        event["action"], event["side"] = Action.CLEAR, random.integers(0, 3)
    return event


def flow(seed: int, messages: int) -> np.ndarray:
    """Messages of some events and a few of thousands; states stand alone, or between events of a message."""
    random = np.random.default_rng(seed)
    parts = []
    for number in range(messages):
        size = 3_000 if random.random() < 0.01 else int(random.integers(1, 5))
        events = np.concatenate([event_of(random) for _ in range(size)])
        events["exchange_time"] = events["receive_time"] = 10**9 + 1000 * number - random.integers(0, 3000)
        if number < 3 or random.random() < 0.1:
            place = int(random.integers(0, size))
            one = events[place : place + 1]
            one["instrument"], one["action"] = number if number < 3 else random.integers(0, 3), Action.STATE
            one["volume"] = BookState.VALID if number < 3 else random.choice([1, 1, 2, 0])
        events["flags"][-1] = Flag.LAST
        parts.append(events)
    return np.concatenate(parts)


class Told:
    """A pipeline, and everything that it tells: when, by which event, and how the books are then."""

    def __init__(self, sql: str, backend: Any, keep_rows: bool = False) -> None:
        engine = GatedEngine(compile_views(sql), backend, keep_rows=keep_rows)
        self.pipeline = Pipeline(engine, INSTRUMENTS)
        self.seen: list[Any] = []
        for view, on, when in (
            ("best", "message", None), ("best", "event", "n > 3"), ("printed", "event", None)
        ):  # fmt: skip
            engine.subscribe(view, partial(self.tell, (view, on)), when, on)  # type: ignore[arg-type]

    def tell(self, own: tuple[str, str], event: Any) -> None:
        pipeline, books = self.pipeline, self.pipeline.books
        assert books is not None
        at = pipeline.time, event.version, [books.best(index) for index in range(len(INSTRUMENTS))]
        self.seen.append((*own, event.key, dict(event.new or {}), *at))
        if own == ("printed", "event") and event.new.n % 7 == 0:
            # Strategies' own rows come between messages.
            row = {"strategy": "s", "ts": pipeline.time, "id": event.new.n, "venue": "X", "symbol": "AAA"}
            row |= {"side": "buy", "type": "limit", "volume": 1, "price": 1, "filled": 0, "status": "open"}
            row |= {"average_price": None, "reason": None, "time_in_force": "gtc", "post_only": False}
            names = {r.name: r for r in pipeline.engine.program.relations}
            if "orders" in names:
                pipeline.engine.insert("orders", {c.name: row[c.name] for c in names["orders"].columns})

    def apply(self, events: np.ndarray, bounds: list[int], pace: Pace) -> None:
        for start, end in pairwise(bounds):
            self.pipeline.apply(events[start:end], pace)
        self.pipeline.finish()

    def same(self, other: "Told", whole: bool = True) -> None:
        """whole: no message came in parts, of which books know what has come."""
        assert len(self.seen) == len(other.seen)
        for own, theirs in zip(self.seen, other.seen, strict=True):
            assert own[:-1] == theirs[:-1]
            assert own[-1] == theirs[-1] or not whole
        ours, its = self.pipeline, other.pipeline
        assert (ours.events, ours.messages, ours.time) == (its.events, its.messages, its.time)
        assert ours.problems.counts == its.problems.counts and ours.book_problems == its.book_problems
        for view in ours.engine.views:
            assert dict(ours.engine[view]) == dict(its.engine[view])


@pytest.mark.sampled(3)
@pytest.mark.parametrize("name", PROGRAMS)
def test_what_is_told_is_as_of_its_message(name: str, sample_seed: int) -> None:
    events = flow(sample_seed, 400)
    random = np.random.default_rng(sample_seed)
    ends = (np.flatnonzero(events["flags"] & Flag.LAST) + 1).tolist()
    plain = Told(PROGRAMS[name], "interpreter")
    plain.apply(events, [0, *ends], "message")
    assert len(plain.seen) > 100
    if name == "narrow":
        assert plain.pipeline.problems.counts["row outside its declared range"] > 20
    cuts = np.unique(random.integers(0, len(events), 60)).tolist()
    for bounds in ([0, *ends], [0, len(events)], sorted({0, *cuts, len(events)})):
        for pace in ("batch", "live"):
            found = Told(PROGRAMS[name], "numba")
            found.apply(events, bounds, pace)
            found.same(plain, set(bounds) <= {0, *ends})


def test_rows_of_books_are_kept_by_the_loop(sample_seed: int) -> None:
    events = flow(sample_seed, 200)
    plain, found = (Told(VIEWS, backend, keep_rows=True) for backend in ("interpreter", "numba"))
    ends = (np.flatnonzero(events["flags"] & Flag.LAST) + 1).tolist()
    plain.apply(events, [0, *ends], "message")
    found.apply(events, [0, len(events)], "batch")
    found.same(plain)
    for relation in ("bids", "trades"):
        rows = [sorted(map(tuple, np.column_stack(one.pipeline.engine.rows_of(relation)).tolist()))
                for one in (plain, found)]  # fmt: skip
        assert rows[0] == rows[1]


class Waking(Strategy):
    """Notes when it is called."""

    told: ClassVar[list[tuple[int, str]]] = []

    @on_view("best", fire="change")
    def changed(self, event: Any) -> None:
        Waking.told.append((self.now, repr(event.new)))

    @on_timer("10us")
    def due(self) -> None:
        Waking.told.append((self.now, "timer"))


@pytest.mark.parametrize("stamped", [False, True])
def test_strategies_have_the_time_of_the_run(stamped: bool, sample_seed: int) -> None:
    events = flow(sample_seed, 200)
    ends = (np.flatnonzero(events["flags"] & Flag.LAST) + 1).tolist()
    versions = np.zeros(len(events), [("stamp", "i8"), ("switch", "i8")])
    versions["stamp"] = np.maximum.accumulate(events["receive_time"]) + 500
    found = []
    for backend, bounds in (("interpreter", [0, *ends]), ("numba", [0, *ends]), ("numba", [0, len(events)])):
        Waking.told = []
        engine = GatedEngine(compile_views(VIEWS), backend)
        pipeline = Pipeline(engine, INSTRUMENTS, [StrategyDefinition(Waking)])
        pipeline.start()
        for start, end in pairwise(bounds):
            times = versions["stamp"][start:end] if stamped else None
            pipeline.apply(events[start:end], "message", times=times)
        pipeline.finish()
        found.append(Waking.told)
    assert len(found[0]) > 30 and any(what == "timer" for _, what in found[0])
    assert found[0] == found[1] == found[2]


def test_a_live_message_has_a_latency_of_its_own() -> None:
    events = np.concatenate([event_of(np.random.default_rng(seed)) for seed in range(50)])
    now = 10**18
    events["flags"], events["receive_time"] = Flag.LAST, now - 1_000_000 * np.arange(50, 0, -1)
    told = Told(VIEWS, "numba")
    told.pipeline.clock = lambda: now
    told.apply(events, [0, len(events)], "live")
    measured = told.pipeline.to_views
    assert measured.count == told.pipeline.messages == 50
    # Each has waited a millisecond longer than the next, besides what this takes.
    assert measured.maximum - measured.percentile(1) > 30e6 and measured.maximum >= 50e6


class Counting(Strategy):
    """Counts changes of one view in machine code."""

    seen: int = 0

    @on_view("best", fire="change")
    @compiled
    def changed(self, row):  # type: ignore[no-untyped-def]
        self.seen += 1


def test_compiled_methods_are_called_live_and_their_latency_counts() -> None:
    events = np.concatenate([event_of(np.random.default_rng(seed)) for seed in range(50)])
    now = 10**18
    events["flags"], events["receive_time"] = Flag.LAST, now - 1_000_000 * np.arange(50, 0, -1)
    pipeline = Pipeline(
        GatedEngine(compile_views(VIEWS), "numba"), INSTRUMENTS, [StrategyDefinition(Counting)]
    )
    pipeline.clock = lambda: now
    pipeline.start()
    valid = np.zeros(len(INSTRUMENTS), EVENT)
    valid["instrument"], valid["action"] = range(len(INSTRUMENTS)), Action.STATE
    valid["volume"], valid["flags"] = BookState.VALID, Flag.LAST
    pipeline.apply(valid)
    for start in range(0, len(events), 10):
        pipeline.apply(events[start : start + 10], "live")
    (own,) = pipeline.host.summary()
    strategy = pipeline.host._runners[0]._strategy
    # An event here is of one row.
    assert isinstance(strategy, Counting)
    assert strategy.seen == own.callbacks == pipeline.to_callbacks.count > 5
    assert pipeline.host.loop_desks(True, 1, len(events)).handlers != 0
    assert pipeline.to_callbacks.maximum >= 1e6
