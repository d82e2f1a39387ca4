"""A run's way from feeds to the engine: order, back-pressure, conflation, epochs, and slices of messages."""

import asyncio
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from live_run_support import INSTRUMENTS, Given, flow

from orderbook.configuration.configuration import Configuration, load_configuration
from orderbook.market.events import EVENT, BookState, Flag
from orderbook.run.feed_runs import Put
from orderbook.run.live_run import LiveRun, _slices
from orderbook.run.pipeline import Pipeline
from orderbook.strategies.gated_engine import GatedEngine
from orderbook.views.compilation import compile_views

SQL = """
CREATE VIEW depth AS SELECT symbol, COUNT(*) AS orders, SUM(volume) AS volume FROM bids GROUP BY symbol
"""


def test_books_that_no_feed_brings_any_more_are_stale(caplog: pytest.LogCaptureFixture) -> None:
    """A run that goes on from a log of more feeds has their books, which nobody changes."""
    configuration, pipeline = made()
    for item in flow(200, 2):
        pipeline.apply(item)
    feed = Given([])
    feed.live, feed.indexes = False, np.arange(1, dtype=np.int32)
    stale = LiveRun(configuration, pipeline, None, [feed])._stale()
    assert stale["instrument"].tolist() == [1] and stale["volume"].tolist() == [BookState.STALE]
    (said,) = caplog.messages
    assert f"no feed brings {INSTRUMENTS[1]} any more" in said


def made(**engine: Any) -> tuple[Configuration, Pipeline]:
    overrides = {f"engine.{name}": value for name, value in engine.items()}
    configuration = load_configuration(None, overrides)
    return configuration, Pipeline(GatedEngine(compile_views(SQL), "interpreter"), INSTRUMENTS)


def rows(pipeline: Pipeline) -> dict[Any, Any]:
    return {key: (row.orders, row.volume) for key, row in pipeline.engine["depth"].items()}


def run(items: list[np.ndarray], **engine: Any) -> tuple[Pipeline, LiveRun, list[Any]]:
    """Put everything first, as far as the queue takes it, then consume; what a callback was told."""
    configuration, pipeline = made(**engine)
    told: list[Any] = []
    pipeline.engine.subscribe("depth", lambda e: told.append((e.key, e.new and e.new.volume, e.version)))
    live = LiveRun(configuration, pipeline, None, [Given(items)])

    async def go() -> None:
        live.start()
        following = asyncio.create_task(live.follow_all())
        await asyncio.sleep(0)
        await live.consume()
        await following

    asyncio.run(go())
    return pipeline, live, told


def test_conflated_strategies_see_the_last_change_of_a_row() -> None:
    items = flow(2_000, 80)
    every, _, told = run(items)
    conflated, live, fewer = run(items, when_behind="conflate", queue_size=400)
    assert rows(conflated) == rows(every)
    assert conflated.events == every.events
    assert live.conflated > 0
    assert len(fewer) < len(told)
    last = {key: volume for key, volume, _ in fewer}
    assert last == {key: volume for key, (_, volume) in rows(every).items()}
    assert all(one[2] <= other[2] for one, other in pairwise(fewer))


def test_a_full_queue_holds_the_feed_back_and_the_epochs() -> None:
    configuration, pipeline = made(queue_size=50)
    feed = Given(flow(2_000, 40))
    live = LiveRun(configuration, pipeline, None, [feed])

    async def go() -> None:
        following = asyncio.create_task(live.follow_all())
        await asyncio.sleep(0.01)
        assert feed.put < len(feed._items)
        assert live.queue.waiting <= 100
        held = live.epochs.committed
        promising = asyncio.create_task(live.promise())
        await asyncio.sleep(0.12)
        # Its switch waits for room, and so promises nothing.
        assert live.epochs.committed == held
        consuming = asyncio.create_task(live.consume())
        await consuming
        await following
        promising.cancel()

    asyncio.run(go())
    assert feed.put == len(feed._items)
    assert pipeline.events == sum(map(len, feed._items))


@given(st.lists(st.integers(1, 9), min_size=1, max_size=30), st.integers(1, 12), st.booleans())
def test_slices_end_at_ends_of_messages(lengths: list[int], size: int, whole: bool) -> None:
    events = np.zeros(sum(lengths), EVENT)
    events["flags"][np.cumsum(lengths) - 1] = int(Flag.LAST)
    if not whole:
        events["flags"][-1] = 0
    parts: list[Any] = list(_slices(events, size))
    assert all(isinstance(part, np.ndarray) for part in parts)
    assert sum(map(len, parts)) == len(events)
    assert all(part["flags"][-1] & int(Flag.LAST) for part in parts[:-1])
    for part in parts:
        ends = int(np.count_nonzero(part["flags"][:-1] & int(Flag.LAST)))
        assert len(part) <= size or ends == 0


def test_a_feed_that_fails_ends_alone() -> None:
    class Failing(Given):
        async def follow(self, put: Put) -> None:
            await put(self._items[0])
            raise OSError("the cable is cut")

    configuration, pipeline = made()
    items = flow(200, 5)
    live = LiveRun(configuration, pipeline, None, [Given(items), Failing(items)])

    async def go() -> None:
        live.start()
        following = asyncio.create_task(live.follow_all())
        await live.consume()
        await following

    asyncio.run(go())
    assert [str(error) for error in live.errors] == ["the cable is cut"]
    assert pipeline.events == sum(map(len, items)) + len(items[0])


@pytest.mark.parametrize("policy", ["block", "conflate"])
def test_every_event_reaches_the_books(policy: str) -> None:
    items = flow(1_500, 30, seed=4)
    pipeline, _, _ = run(items, when_behind=policy, queue_size=100, batch_size=7)
    assert pipeline.events == sum(map(len, items))
    assert pipeline.books is not None
    assert not {"duplicate_order", "unknown_order"} & set(pipeline.book_problems)
