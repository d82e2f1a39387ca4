"""The market at exact times after samples and fills, and baselines, against books kept message by message."""

from bisect import bisect_left
from collections.abc import Iterator
from fractions import Fraction
from itertools import pairwise
from pathlib import Path
from typing import Any, ClassVar

import pytest
from backtest_support import Follower, job_settings, run, write_records
from command_line_support import TOTALS

from orderbook.backtesting.market_samples import Signal, signals_of
from orderbook.backtesting.sources import source_specs
from orderbook.core.changes import Dictionary
from orderbook.core.errors import ConfigurationError
from orderbook.engine.runtime.subscriptions import ViewEvent
from orderbook.feeds.merge import read_slices
from orderbook.jobs.folder import HORIZONS
from orderbook.jobs.job import Job
from orderbook.market.books import Books
from orderbook.market.events import BookState, Flag, Side
from orderbook.market.instruments import Instruments
from orderbook.strategies.strategy import Strategy, StrategyDefinition, on_view
from orderbook.views.compilation import compile_views

SECOND = 10**9
# bid, bid volume, ask, ask volume, in ticks and lots; None: not that of a valid book with both sides.
Touch = tuple[int, int, int, int] | None


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Job, Path]:
    folder = tmp_path_factory.mktemp("flow")
    write_records(folder, 1_500, 2, 1, 11, apart=True, slower=1_000)
    job, _ = run(
        job_settings(tmp_path_factory.mktemp("job") / "job", 1, strategies=(Follower,), views=()), [folder]
    )
    return job, folder


def touches(folder: Path) -> Iterator[tuple[str, int, Touch]]:
    """Symbol and touch after each message, by the books' levels."""
    for spec in source_specs([str(folder)]):
        instruments = Instruments(spec.instruments)
        books = Books(instruments, Dictionary())
        for part in read_slices([(0, spec)], instruments):
            start = 0
            for place, event in enumerate(part.events.events):
                if event["flags"] & int(Flag.LAST):
                    books.apply(part.events.events[start : place + 1])
                    start, index = place + 1, int(event["instrument"])
                    sides = [books.levels(index, side, 1) for side in (Side.BID, Side.ASK)]
                    found = None
                    if books.state(index) is BookState.VALID and all(map(len, sides)):
                        (bid, ask) = (side[0] for side in sides)
                        found = (int(bid["price"]), int(bid["volume"]), int(ask["price"]), int(ask["volume"]))
                    yield instruments[index].symbol, int(part.events.versions["stamp"][place]), found


def test_every_touch_is_that_before_its_time(made: tuple[Job, Path]) -> None:
    job, folder = made
    paths: dict[str, list[tuple[int, Touch]]] = {}
    for symbol, time, touch in touches(folder):
        paths.setdefault(symbol, []).append((time, touch))
    one = {spec.symbol: spec for own in source_specs([str(folder)]) for spec in own.instruments}
    rows = job.sql("SELECT symbol, stamp, sequence, bid, ask FROM history.market").rows()
    known: dict[str, set[int]] = {symbol: set() for symbol in paths}
    for symbol, stamp, sequence, bid, ask in rows:
        path = paths[symbol]
        place = bisect_left(path, stamp, key=lambda point: point[0]) - 1
        touch = path[-1][1] if sequence else path[place][1] if place >= 0 else None
        expected = (
            (None, None) if touch is None else (one[symbol].price(touch[0]), one[symbol].price(touch[2]))
        )
        assert (bid, ask) == expected or sequence, (symbol, stamp)
        known[symbol].add(stamp)
    samples = job.sql("SELECT DISTINCT symbol, stamp FROM history.signals").rows()
    fills = job.fills().select("symbol", "ts").to_dicts()
    asked = [(symbol, stamp + h) for symbol, stamp in samples for h in HORIZONS]
    asked += [
        (fill["symbol"], int(fill["ts"].timestamp()) * SECOND + fill["ts"].microsecond * 1_000 + h)
        for fill in fills
        for h in (1, *HORIZONS)
    ]
    there = [(symbol, time) for symbol, time in asked if time <= paths[symbol][-1][0]]
    assert len(samples) > 300 and len(fills) > 20 and len(there) > 1_000
    # Polars' datetimes have no nanoseconds in Python.
    assert all(
        time in known[symbol] or any(time + ns in known[symbol] for ns in range(1_000))
        for symbol, time in there
    )


def test_baselines_are_those_of_the_touch(made: tuple[Job, Path]) -> None:
    job, folder = made
    paths: dict[str, list[tuple[int, Touch]]] = {}
    for symbol, time, touch in touches(folder):
        paths.setdefault(symbol, []).append((time, touch))
    baselines = "FROM history.signals WHERE view = '(market)' AND sequence = 0"
    rows = job.sql(f'SELECT symbol, stamp, "column", value {baselines}').rows()
    assert len(rows) > 600 and any(row[3] for row in rows if row[2] == "order_flow")
    for symbol, stamp, column, value in rows[::7]:
        path = [(time, touch) for time, touch in paths[symbol] if time < stamp]
        touch = path[-1][1]
        assert touch is not None
        if column == "touch_imbalance":
            expected = Fraction(touch[1] - touch[3], touch[1] + touch[3])
        else:
            expected = plain_flow(path, stamp - SECOND)
        assert value == pytest.approx(float(expected))


def plain_flow(path: list[tuple[int, Touch]], since: int) -> Fraction:
    """The flow of the changes from a time on, over twice their mean depth, change by change."""
    flow = depth = changes = 0
    for (_, old), (time, new) in pairwise(path):
        if time < since or old is None or new is None or old == new:
            continue
        flow += new[1] * (new[0] >= old[0]) - old[1] * (new[0] <= old[0])
        flow += old[3] * (new[2] >= old[2]) - new[3] * (new[2] <= old[2])
        depth, changes = depth + new[1] + new[3], changes + 1
    return Fraction(flow * changes, depth) if depth else Fraction(0)


def test_a_signal_is_a_column_and_a_method_of_that_name_is_not_meant() -> None:
    class Named(Strategy):
        @on_view("totals", when="orders > 5")
        def signal(self, event: ViewEvent) -> None:  # type: ignore[override]
            """Called as any other method."""

    class Stated(Strategy):
        signal: ClassVar[str | None] = "totals.volume"

    program = compile_views(TOTALS)
    found = signals_of([StrategyDefinition(Named), StrategyDefinition(Stated)], program)
    assert found == (Signal("totals", "orders"), Signal("totals", "volume"))


@pytest.mark.parametrize("stated", ["volume", "totals.symbol", 5, ("totals", "volume")])
def test_a_signal_that_is_no_column_of_numbers_is_refused(stated: Any) -> None:
    definition = StrategyDefinition(type("Wrong", (Strategy,), {"signal": stated}))
    with pytest.raises(ConfigurationError, match=r"Wrong: signal = .*; give VIEW.COLUMN"):
        signals_of([definition], compile_views(TOTALS))
