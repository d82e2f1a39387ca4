"""A view that is added to a run is filled from its log, and goes on with the live order."""

import time
from collections import defaultdict
from collections.abc import Iterator
from decimal import Decimal
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from plain_book import PlainBook

from orderbook.configuration.configuration import Configuration, load_configuration
from orderbook.core.errors import DataError
from orderbook.durability.durable_run import DurableRun, open_past
from orderbook.durability.logged_rows import LoggedRows
from orderbook.market.events import Action, Events, Flag, Side
from orderbook.market.synthetic_flow import generate, synthetic_instruments
from orderbook.run.assembly import assembled, engine_of, piped, started
from orderbook.run.event_queue import Stamped

INSTRUMENTS = synthetic_instruments(2)
BARS = """
CREATE VIEW bars AS SELECT symbol, TIME_BUCKET(INTERVAL '1 millisecond', ts) AS bar, COUNT(*) AS n,
  SUM(volume) AS volume, MAX(price) AS high FROM trades GROUP BY 1, 2;
CREATE VIEW resting AS SELECT symbol, COUNT(*) AS n, SUM(volume) AS volume FROM bids GROUP BY symbol;
"""
PLAIN = (
    "[run]\nviews = ['worst.sql']\nstrategies = []\nbackend = '{}'\n[log]\nfolder = 'log'\nsync = 'never'\n"
)
WORST = "CREATE VIEW worst AS SELECT symbol, MAX(price) AS price FROM asks GROUP BY symbol;"


def configured(folder: Path, backend: str = "interpreter") -> Configuration:
    (folder / "worst.sql").write_text(WORST)
    (folder / "c.toml").write_text(PLAIN.format(backend) + "[views]\npaths = ['.']\n")
    return load_configuration(folder / "c.toml", {"run.views": [str(folder / "worst.sql")]})


def parts(count: int) -> Iterator[Events]:
    """Flow in parts of whole messages, each after the one before."""
    flow = next(generate(count, 2, 12, 3, batch=count, rate=1e6))
    ends = (np.flatnonzero(flow["flags"] & int(Flag.LAST)) + 1).tolist()
    for start, end in zip([0, *ends[4::7]], ends[4::7], strict=False):
        yield flow[start:end]


TOLD = "CREATE VIEW told AS SELECT venue, symbol, id, bid, bid_volume, ask, ask_volume FROM quotes"


class Touches:
    """Rows of `quotes` by plain books: a message that leaves another touch than the row before has one."""

    def __init__(self) -> None:
        self._books = [PlainBook() for _ in INSTRUMENTS]
        self._last: list[tuple[Any, ...]] = [(None,) * 4 for _ in INSTRUMENTS]
        self.rows: dict[tuple[str, int], tuple[Any, ...]] = {}

    def take(self, events: Events) -> None:
        for event in events:
            number = int(event["instrument"])
            book, one = self._books[number], INSTRUMENTS[number]
            book.apply(event)
            if not event["flags"] & Flag.LAST:
                continue
            touch: tuple[Any, ...] = ()
            for side in (Side.BID, Side.ASK):
                found = [(p * one.price_unit, v * one.volume_unit) for p, v in book.best(side, 1)]
                touch += found[0] if found else (None, None)
            if touch != self._last[number]:
                self._last[number] = touch
                self.rows[one.symbol, 1 + sum(symbol == one.symbol for symbol, _ in self.rows)] = touch


class Applied:
    """What was applied, counted in plain Python."""

    def __init__(self, run: DurableRun) -> None:
        self._run = run
        self.bars: dict[tuple[str, int], list[Any]] = defaultdict(lambda: [0, Decimal(0), Decimal(0)])

    def take(self, events: Events) -> None:
        stamp = self._run.clock.stamp()
        stamped = Stamped(stamp, 0, events)
        self._run.accept([stamped])
        self._run.apply(stamped)
        for event in events[events["action"] == Action.TRADE]:
            one = INSTRUMENTS[int(event["instrument"])]
            bar = self.bars[one.symbol, int(event["exchange_time"]) // 10**6 * 10**6]
            bar[0] += 1
            bar[1] += int(event["volume"]) * one.volume_unit
            bar[2] = max(bar[2], int(event["price"]) * one.price_unit)

    def check(self) -> None:
        engine, books = self._run.pipeline.engine, self._run.pipeline.books
        found = {key: [row.n, row.volume, row.high] for key, row in engine["bars"].items()}
        assert found == dict(self.bars) and len(found) > 3
        assert books is not None
        for number, one in enumerate(INSTRUMENTS):
            levels = books.levels(number, Side.BID, 1_000)
            row = engine["resting"][one.symbol]
            assert row.volume == int(levels["volume"].sum()) * one.volume_unit
            assert row.n == int(levels["orders"].sum())


@pytest.mark.sampled(2)
@pytest.mark.parametrize(("backend", "inside"), [("interpreter", True), ("numba", False)])
def test_a_view_of_rows_that_nobody_kept_begins_where_the_log_does(
    tmp_path: Path, backend: str, inside: bool
) -> None:
    """inside: a callback asks for it, in the middle of an item."""
    configuration = configured(tmp_path, backend)
    assembly, engine = started(configuration)
    with open_past(configuration, engine.program, INSTRUMENTS) as past:
        _, run = past.recovered(lambda found: piped(configuration, assembly, engine, found))
        assert run is not None
        engine.past = LoggedRows(configuration, run)
        applied, flow = Applied(run), parts(6_000)
        for events in islice(flow, 50):
            applied.take(events)
        asked: list[Any] = []

        def ask(_: object) -> None:
            if not asked:
                asked.append(engine.add_view(f"{BARS}\n", background=True))

        if inside:
            engine.subscribe("worst", ask, fire="change")
        else:
            ask(None)
        # A process starts, and reads; what is applied meanwhile is not lost, and nothing comes twice.
        while not (asked and asked[0].done):
            for events in islice(flow, 1):
                applied.take(events)
            engine.advance()
        assert asked[0].error is None
        applied.check()
        for events in flow:
            applied.take(events)
        applied.check()
    assert assembled(configuration, INSTRUMENTS)[1].engine.views == ("worst",)


@pytest.mark.sampled(2)
def test_quotes_that_no_view_has_read_begin_where_the_log_does(tmp_path: Path) -> None:
    """Numbered from there on, while books move."""
    configuration = configured(tmp_path)
    assembly, engine = started(configuration)
    with open_past(configuration, engine.program, INSTRUMENTS) as past:
        _, run = past.recovered(lambda found: piped(configuration, assembly, engine, found))
        assert run is not None
        engine.past = LoggedRows(configuration, run)
        applied, touches, flow = Applied(run), Touches(), parts(4_000)

        def take(count: int) -> None:
            for events in islice(flow, count):
                applied.take(events)
                touches.take(events)

        take(40)
        handle = engine.add_view(TOLD, background=True)
        before = len(touches.rows)
        while not handle.done:
            # From when the log is read up to where it joins.
            take(1 if engine.noted and len(touches.rows) < before + 30 else 0)
            engine.advance()
            time.sleep(0.01)
        assert handle.error is None and len(touches.rows) > before
        for _ in range(2):
            rows = [tuple(row.values()) for row in engine["told"].values()]
            found = {row[1:3]: row[3:] for row in rows}
            assert found == touches.rows
            take(1_000)
        assert len(rows) == len(found) > 100


@pytest.mark.sampled(2)
def test_after_a_restart_the_log_of_all_processes_counts(tmp_path: Path) -> None:
    configuration = configured(tmp_path)
    assembly, first = started(configuration)
    flow = list(parts(4_000))
    counted: dict[tuple[str, int], list[Any]] = {}
    for number, engine in enumerate((first, engine_of(configuration, assembly))):
        with open_past(configuration, engine.program, INSTRUMENTS) as past:
            _, run = past.recovered(
                lambda found, own=engine: piped(configuration, assembly, own, found)  # type: ignore[misc]
            )
            assert run is not None
            engine.past = LoggedRows(configuration, run)
            applied = Applied(run)
            applied.bars.update(counted)
            if not number:
                for events in flow[:40]:
                    applied.take(events)
                assert run.checkpoint()
            else:
                handle = engine.add_view(f"{BARS}\n", background=True)
                while not handle.done:
                    engine.advance()
                assert handle.error is None
                for events in flow[40:80]:
                    applied.take(events)
                applied.check()
            counted = dict(applied.bars)


def test_a_log_without_its_beginning_fills_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    configuration = configured(tmp_path)
    assembly, engine = started(configuration)
    with open_past(configuration, engine.program, INSTRUMENTS) as past:
        _, run = past.recovered(lambda found: piped(configuration, assembly, engine, found))
        assert run is not None
        engine.past = LoggedRows(configuration, run)
        for events in list(parts(600))[:5]:
            Applied(run).take(events)
        with pytest.raises(DataError, match="rows of bids are not kept; add the view with background=True"):
            engine.add_view(f"{BARS}\n")
        handle = engine.add_view("CREATE VIEW n AS SELECT COUNT(*) AS n FROM book_events", background=True)
        while not handle.done:
            engine.advance()
        with pytest.raises(DataError, match="rows of book_events are not kept, and books tell them from"):
            handle.wait()
        monkeypatch.setattr(DurableRun, "whole", False)
        handle = engine.add_view(f"{BARS}\n", background=True)
        while not handle.done:
            engine.advance()
        with pytest.raises(DataError, match=r"rows of bids are not kept.*keep_log = true"):
            handle.wait()
        assert engine.views == ("worst",)
