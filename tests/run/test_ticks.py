"""Ticks that the times of events drive, and views added to a replay of recorded data."""

from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from paths import VIEWS

from orderbook.configuration.configuration import load_configuration
from orderbook.core.errors import ConfigurationError, DataError
from orderbook.feeds.change_stream import RelationChange
from orderbook.feeds.merge import ChangeItem, Merger, TickItem
from orderbook.feeds.source_kinds import open_source
from orderbook.market.events import EVENT, Flag, Ticker
from orderbook.market.instruments import Instrument, Instruments
from orderbook.operations.summary import summary
from orderbook.run.pipeline import Pipeline
from orderbook.strategies.gated_engine import GatedEngine
from orderbook.views.compilation import compile_views

SECOND = 10**9
SQL = """
CREATE STREAM pings (ts TIMESTAMP NOT NULL, n INTEGER NOT NULL);
CREATE VIEW recent AS SELECT COUNT(*) AS n FROM pings WHERE ts > NOW() - INTERVAL '2 seconds';
"""


def messages(*times: int, size: int = 1) -> np.ndarray:
    events = np.zeros(len(times) * size, EVENT)
    events["receive_time"] = np.repeat(times, size)
    events["flags"][size - 1 :: size] = int(Flag.LAST)
    return events


def test_a_tick_comes_before_the_first_message_of_a_step() -> None:
    ticker = Ticker(10)
    parts = list(ticker.parts(messages(13, 17, 19, 20, 28, 55, 41, 60)))
    assert [(tick, part["receive_time"].tolist()) for tick, part in parts] == [
        (10, [13, 17, 19]),
        (20, [20, 28]),
        (50, [55, 41]),
        (60, [60]),
    ]
    assert [tick for tick, _ in ticker.parts(messages(61))] == [None]
    assert ticker.due(69) is None and ticker.due(70) == 70


@given(st.lists(st.integers(0, 60), min_size=1, max_size=12), st.integers(1, 3), st.integers(1, 7))
def test_ticks_do_not_depend_on_how_events_are_cut(times: list[int], size: int, cut: int) -> None:
    events = messages(*(t + 1 for t in times), size=size)

    def stamped(parts: list[np.ndarray]) -> list[Any]:
        found: list[Any] = []
        ticker = Ticker(10)
        for part in parts:
            for tick, own in ticker.parts(part):
                found += [tick] if tick is not None else []
                found += [("event", t) for t in own["receive_time"].tolist()]
        return found

    whole = stamped([events])
    assert whole == stamped([events[i : i + cut] for i in range(0, len(events), cut)])
    ticks = [t for t in whole if isinstance(t, int)]
    assert ticks == sorted(set(ticks)) and ticks[0] == (times[0] + 1) // 10 * 10


def pings(*seconds: float) -> ChangeItem:
    rows = [{"ts": int(s * SECOND), "n": 1} for s in seconds]
    return ChangeItem("x", [RelationChange(i, "pings", "+", row, True) for i, row in enumerate(rows)])


@pytest.mark.parametrize("pace", ["batch", "message", "live"])
def test_the_pipeline_ticks_by_the_times_of_changes(pace: Any) -> None:
    pipeline = Pipeline(GatedEngine(compile_views(SQL), "interpreter"), Instruments(()))
    counts = []
    pipeline.engine.subscribe("recent", lambda event: counts.append(event.new.n))
    pipeline.apply(pings(1.5, 1.7, 2.5), pace)
    assert counts == [1, 2, 3]
    pipeline.apply(TickItem(4 * SECOND), pace)
    pipeline.apply(TickItem(4 * SECOND + 1), pace)
    pipeline.apply(pings(3.9), pace)
    assert counts == [1, 2, 3, 1, 2]
    assert pipeline.engine.version[2] == 4 + 3 and pipeline.time == 3.9 * SECOND


def test_programs_that_do_not_read_the_clock_have_no_ticks() -> None:
    sql = SQL.replace("ts > NOW() - INTERVAL '2 seconds'", "n > 0")
    pipeline = Pipeline(GatedEngine(compile_views(sql), "interpreter"), Instruments(()))
    pipeline.apply(pings(1, 2, 3))
    pipeline.apply(TickItem(9 * SECOND))
    assert pipeline.engine.version[2] == 3


def test_the_resolution_is_configured(tmp_path: Path) -> None:
    file = tmp_path / "c.toml"
    for text, nanoseconds in (
        ("250ms", 250 * 10**6),
        ("1h", 3600 * SECOND),
        ("5ns", 5),
        ("2m", 120 * SECOND),
    ):
        file.write_text(f'[clock]\nresolution = "{text}"\n')
        assert load_configuration(file).clock.nanoseconds == nanoseconds
    assert load_configuration().clock.nanoseconds == SECOND
    file.write_text('[clock]\nresolution = "0s"\n')
    with pytest.raises(ConfigurationError, match=r"c.toml:2: clock.resolution.*a time such as"):
        load_configuration(file)


@pytest.mark.parametrize("backend", ["interpreter", "numba"])
def test_a_view_added_to_a_replay_equals_one_from_the_start(shared_data: Path, backend: Any) -> None:
    """On a LOBSTER capture: after every message that follows, whatever the runtime."""
    merger = Merger([open_source(str(shared_data / "lobster/AAPL_2012-06-21_first999_message_10.csv.zst"))])
    events = np.concatenate(list(merger))[: 999 if backend == "numba" else 260]
    depth, sobi = ((VIEWS / name).read_text() for name in ("depth.sql", "sobi.sql"))
    parameters = {"k": 0.25}
    late = GatedEngine(compile_views([depth], parameters), backend, keep_rows=True)
    early = GatedEngine(compile_views([depth, sobi], parameters), backend)
    pipelines = [Pipeline(engine, merger.instruments) for engine in (late, early)]
    ends = np.flatnonzero(events["flags"] & int(Flag.LAST)) + 1
    middle = ends[len(ends) // 2]
    for pipeline in pipelines:
        pipeline.apply(events[:middle])
    late.add_view(sobi)
    for start, end in zip([middle, *ends[ends > middle]], ends[ends > middle], strict=False):
        for pipeline in pipelines:
            pipeline.apply(events[start:end])
        for view in early.views:
            assert dict(late[view]) == dict(early[view])
    assert len(early["sobi"]) == 1


def test_rows_of_books_are_asked_for() -> None:
    """What books give out and no view reads was left out, so that nobody can know it later."""
    depth = (VIEWS / "depth.sql").read_text()
    pipeline = Pipeline(
        GatedEngine(compile_views([depth]), "interpreter"),
        Instruments([Instrument("V", "A", "A", Decimal("0.01"), Decimal("0.01"))]),
    )
    with pytest.raises(DataError, match="the rows of trades are not kept"):
        pipeline.engine.add_view("CREATE VIEW t AS SELECT COUNT(*) AS n FROM trades")


def test_times_of_a_recording_that_go_back_are_counted() -> None:
    """A recording by a clock that had jumped forward and back: NOW() stands, and the summary says so."""
    pipeline = Pipeline(GatedEngine(compile_views(SQL), "interpreter"), Instruments(()))
    pipeline.apply(pings(1.5, 2.5, 2.4, 1.2))
    assert pipeline.late == (0, 0)
    pipeline.apply(pings(3600.5, 3.5, 4.5, 3601.5))
    assert pipeline.late == (2, 3597 * SECOND)
    text = summary(pipeline, 1.0, [], [], [])
    assert "2 times of sources are before NOW(), which does not go back, by up to 60.0 min" in text
