"""The relation `instruments`: one row a book, as its venue lists it when an event comes."""

from collections.abc import Sequence
from decimal import Decimal
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest
from backtest_support import contents, job_settings, run
from hypothesis import given
from hypothesis import strategies as st
from samples import examples

from orderbook.feeds.recording.parquet_record import RecordSource, RecordWriter, read_footer
from orderbook.market.book_relations import SavedListing, SavedState
from orderbook.market.contract_terms import Terms
from orderbook.market.events import EVENT, Action, BookState, Flag, Side, StateReason
from orderbook.market.instruments import FINEST, Instrument, Instruments
from orderbook.run.pipeline import Pipeline
from orderbook.strategies.gated_engine import GatedEngine
from orderbook.views.compilation import compile_views

SQL = """
CREATE VIEW listed AS SELECT i.symbol, i.ts, i.contract, i.tick, i.lot, i.kind, i.settlement, i.multiplier,
  i.expiry, i.strike, i.option_type, COUNT(*) AS n
FROM instruments i GROUP BY i.symbol, i.ts, i.contract, i.tick, i.lot, i.kind, i.settlement, i.multiplier,
  i.expiry, i.strike, i.option_type;
CREATE VIEW notional AS SELECT i.symbol, SUM(t.volume * t.price * i.multiplier) AS turnover, COUNT(*) AS n
FROM trades t JOIN instruments i ON i.venue = t.venue AND i.symbol = t.symbol GROUP BY i.symbol;
CREATE VIEW wide AS SELECT s.state, SUM(i.tick) AS ticks, COUNT(i.expiry) AS dated
FROM book_states s JOIN instruments i ON i.venue = s.venue AND i.symbol = s.symbol GROUP BY s.state;
"""
NAMES = ("listed", "notional", "wide")
EXPIRY = 1_782_460_800 * 10**9


def one(name: str, tick: str, **terms: Any) -> Instrument:
    told = Terms(**terms)
    return Instrument("deribit", name, name, Decimal(tick), Decimal(1), FINEST, FINEST, "inverse", told)


def instruments() -> Instruments:
    option = {"kind": "option", "strike": Decimal(60_000), "option_type": "put", "expiry": EXPIRY}
    return Instruments([
        one("A", "0.5", kind="perpetual", settlement="BTC", multiplier=Decimal("0.01")),
        one("B", "0.0005", **option, multiplier=Decimal(1)),
        one("C", "0.1"),
    ])  # fmt: skip


def event(
    action: Action, instrument: int, time: int, price: int = 0, volume: int = 0, number: int = 0
) -> Any:
    made = np.zeros(1, EVENT)
    made["action"], made["instrument"], made["receive_time"] = action, instrument, time
    made["price"], made["volume"], made["order_id"] = price, volume, number
    made["side"] = Side.BID if action is Action.TRADE else Side.NONE
    made["flags"] = Flag.LAST
    return made


def market(seed: int, count: int) -> np.ndarray:
    """States, trades, and other ticks and lots, some of which cannot be."""
    chance, events = Random(seed), []
    for time in range(1, count + 1):
        at, kind = chance.randrange(4), chance.random()
        if kind < 0.4:
            events.append(event(Action.TRADE, at, time, chance.randint(1, 99), chance.randint(1, 99), time))
        elif kind < 0.7:
            state = chance.choice((0, 1, 2, 9))
            events.append(event(Action.STATE, at, time, 0, state, chance.choice((0, 1, 4))))
        else:
            tick = chance.choice((0, -5, 10, 1_000, 50_000_000, 10**19 // 2))
            events.append(event(Action.INSTRUMENT, at, time, tick, chance.choice((1, 10**8, 2 * 10**18))))
    return np.concatenate(events)


class Model:
    """The relation by hand: the row of each book, and what views make of it."""

    def __init__(self) -> None:
        self.known = list(instruments())
        self.rows: dict[int, tuple[int, Decimal, Decimal]] = {}
        self.states: dict[int, str] = {}
        self.trades: dict[int, list[Decimal]] = {}

    def take(self, event: np.void) -> None:
        at, time = int(event["instrument"]), int(event["receive_time"])
        if at >= len(self.known):
            return
        price, volume = int(event["price"]), int(event["volume"])
        if event["action"] == Action.TRADE:
            self.trades.setdefault(at, []).append(Decimal(price * volume) / 10**16)
            return
        if event["action"] == Action.STATE:
            if volume > 2:
                return
            self.states[at] = ("syncing", "valid", "stale")[volume]
        elif not (0 < price < 10**18 and 0 < volume < 10**18):
            return
        else:
            self.known[at] = self.known[at].with_steps(price * FINEST, volume * FINEST)
        steps = self.known[at].tick, self.known[at].lot
        if self.rows.get(at, (0, 0, 0))[1:] != steps:
            self.rows[at] = (time, *steps)

    def views(self) -> dict[str, dict[tuple[Any, ...], Any]]:
        listed, notional, wide = {}, {}, {}
        for at, (time, tick, lot) in self.rows.items():
            told = self.known[at].terms
            key = (told.kind, told.settlement, told.multiplier, told.expiry, told.strike, told.option_type)
            listed[self.known[at].symbol, time, "inverse", tick, lot, *key] = 1
            if at in self.trades:
                size = told.multiplier
                turnover = None if size is None else sum(self.trades[at]) * size
                notional[self.known[at].symbol,] = (turnover, len(self.trades[at]))
        for state in {self.states[at] for at in self.states.keys() & self.rows.keys()}:
            own = [at for at in self.rows if self.states.get(at) == state]
            dated = sum(self.known[at].terms.expiry is not None for at in own)
            wide[state,] = (sum(self.rows[at][1] for at in own), dated)
        return {"listed": listed, "notional": notional, "wide": wide}


def found(pipeline: Pipeline) -> dict[str, dict[tuple[Any, ...], Any]]:
    views = {name: dict(pipeline.engine[name].items()) for name in NAMES}
    return {
        "listed": {key: row.n for key, row in views["listed"].items()},
        "notional": {key: (row.turnover, row.n) for key, row in views["notional"].items()},
        "wide": {key: (row.ticks, row.dated) for key, row in views["wide"].items()},
    }


def pipeline_of(backend: Any, known: Instruments | None = None) -> Pipeline:
    return Pipeline(GatedEngine(compile_views(SQL), backend), known or instruments())


@pytest.mark.parametrize("backend", ["interpreter", "numba"])
def test_rows_are_those_of_a_model_after_every_event(backend: str) -> None:
    pipeline, model = pipeline_of(backend), Model()
    for number in range(300):
        events = market(5, 300)[number : number + 1]
        pipeline.apply(events)
        model.take(events[0])
        assert found(pipeline) == model.views(), number
    assert pipeline.problems.counts and len(model.rows) == 3


@examples(15)
@given(st.integers(0, 10**6), st.integers(1, 60))
def test_batches_end_as_single_events(seed: int, size: int) -> None:
    pipeline, model, events = pipeline_of("interpreter"), Model(), market(seed, 120)
    for start in range(0, len(events), size):
        pipeline.apply(events[start : start + size])
        for event in events[start : start + size]:
            model.take(event)
        assert found(pipeline) == model.views()


def test_a_pipeline_goes_on_from_what_is_saved() -> None:
    events, whole = market(9, 200), pipeline_of("interpreter")
    whole.apply(events)
    first = pipeline_of("interpreter")
    first.apply(events[:90])
    # A run that begins again asks for reference data anew, and a checkpoint's are adopted.
    second = pipeline_of("interpreter", Instruments(first.instruments))
    second.engine.load(first.engine.save())
    second.load(first.save(), range(3))
    assert first.books is not None and second.books is not None
    second.books.load(first.books.save())
    second.apply(events[90:])
    assert found(second) == found(whole)


def test_what_is_listed_anew_shows_with_the_next_state() -> None:
    pipeline = pipeline_of("interpreter")
    valid = (Action.STATE, 0)
    pipeline.apply(event(*valid, 5, volume=BookState.VALID))
    listed = one("A", "2", kind="perpetual", settlement="USDC")
    pipeline.instruments.adopt([listed])
    pipeline.apply(event(*valid, 7, volume=BookState.STALE, number=StateReason.GAP))
    ((key, n),) = found(pipeline)["listed"].items()
    assert (key[1], key[3], key[5:8], n) == (7, Decimal(2), ("perpetual", "USDC", None), 1)
    row = pipeline.save().states[0]
    assert row == SavedState(7, "stale", "gap", SavedListing(7, 2 * 10**8, 10**8, listed.terms))


def test_views_that_are_joined_by_others_are_one_event() -> None:
    pipeline = pipeline_of("interpreter")
    told: list[Any] = []
    pipeline.engine.watch_rows("wide", told.append)
    pipeline.apply(event(Action.STATE, 0, 5, volume=BookState.VALID))
    assert [(row.old, row.key, row.new["ticks"], row.new["dated"]) for row in told] == [
        (None, ("valid",), Decimal("0.5"), 0)
    ]


def rows(events: np.ndarray) -> dict[str, Sequence[Any]]:
    pipeline = pipeline_of("interpreter")
    pipeline.apply(events)
    return {name: sorted(map(repr, pipeline.engine[name].items())) for name in NAMES}


def test_records_and_jobs_have_the_same(tmp_path: Path) -> None:
    events = market(3, 400)
    events = events[events["instrument"] < 3]
    with RecordWriter(tmp_path / "days.parquet", instruments()) as writer:
        writer.write(events)
    kept, _ = read_footer(tmp_path / "days.parquet")
    assert [one.terms for one in kept] == [one.terms for one in instruments()]
    assert np.concatenate(list(RecordSource([tmp_path / "days.parquet"]))).tobytes() == events.tobytes()
    histories = []
    for partitions in (1, 3):
        settings = job_settings(tmp_path / f"p{partitions}", partitions, views=NAMES, sql=SQL)
        job, _ = run(settings, [tmp_path / "days.parquet"])
        histories.append(contents(job))
        assert all(histories[-1][name] for name in NAMES)
    assert histories[0] == histories[1]
    assert all(rows(events).values())
