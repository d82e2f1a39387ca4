"""Streams of view events and futures: in a loop, from other threads, bounds, ends, nothing left behind."""

import asyncio
import gc
import threading
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import polars as pl
import pytest
from samples import PATIENCE

from orderbook.clients.client_engine import ClientEngine as Engine
from orderbook.clients.streams import EventStream, StreamOverflow, event_stream, next_event
from orderbook.core.errors import DataError, SqlError
from orderbook.engine.runtime.subscriptions import ViewDropped, ViewEvent
from orderbook.market.books import Books
from orderbook.market.events import EVENT, Action, BookState, Flag, Side
from orderbook.market.synthetic_flow import synthetic_instruments
from orderbook.strategies.gated_engine import GatedEngine
from orderbook.views.compilation import compile_views

VIEWS = """
CREATE STREAM t (k TEXT NOT NULL, v INTEGER NOT NULL CHECK (v BETWEEN -1000000 AND 1000000));
CREATE VIEW sums AS SELECT k, SUM(v) AS total FROM t GROUP BY k;
CREATE VIEW counts AS SELECT COUNT(*) AS n FROM t;
"""


@pytest.fixture
def engine() -> Engine:
    return Engine(compile_views(VIEWS), "interpreter")


def put(engine: Engine, key: str, value: int) -> None:
    engine.insert("t", {"k": key, "v": value})


def new(event: ViewEvent) -> Mapping[str, Any]:
    """The row that there is."""
    assert event.new is not None
    return event.new


def subscriptions(engine: Engine) -> int:
    return len(list(engine._subscribers))


async def taken(stream: EventStream, count: int) -> list[tuple[str, object]]:
    async with asyncio.timeout(PATIENCE):
        return [(e.view, e.key) for e in [await anext(stream) for _ in range(count)]]


def test_events_of_several_views_come_in_order_and_views_come_and_go(engine: Engine) -> None:
    async def main() -> None:
        stream = engine.events("sums")
        put(engine, "a", 1)
        stream.add("counts")
        put(engine, "b", 1)
        assert stream.views == ("sums", "counts")
        assert await taken(stream, 3) == [("sums", ("a",)), ("sums", ("b",)), ("counts", ())]
        put(engine, "c", 1)
        stream.remove("sums")
        put(engine, "d", 1)
        assert await taken(stream, 2) == [("counts", ()), ("counts", ())]
        with pytest.raises(DataError, match="no events of sums"):
            stream.remove("sums")
        with pytest.raises(DataError, match="already"):
            stream.add("counts")

    asyncio.run(main())


def test_conditions_are_for_all_views_or_for_each(engine: Engine) -> None:
    async def main() -> None:
        stream = engine.events("sums", "counts", when={"sums": "total > 5"})
        put(engine, "a", 6)
        put(engine, "a", 1)
        assert await taken(stream, 3) == [("sums", ("a",)), ("counts", ()), ("counts", ())]
        with pytest.raises(SqlError, match="nope"):
            engine.events("counts", "sums", when="nope > 5")
        with pytest.raises(DataError, match="no view 'x'"):
            engine.events("counts", "x")
        stream.close()
        assert subscriptions(engine) == 0

    asyncio.run(main())


def test_the_loop_wakes_a_reader_that_waits(engine: Engine) -> None:
    async def main() -> None:
        seen = []

        async def read(stream: EventStream) -> None:
            async for event in stream:
                seen.append(new(event)["n"])

        stream = engine.events("counts")
        reader = asyncio.create_task(read(stream))
        for _ in range(3):
            await asyncio.sleep(0)
            put(engine, "a", 1)
        await asyncio.sleep(0)
        stream.close()
        async with asyncio.timeout(PATIENCE):
            await reader
        assert seen == [1, 2, 3]

    asyncio.run(main())


def test_a_full_buffer_raises_or_leaves_out_or_conflates(engine: Engine) -> None:
    async def main() -> None:
        strict = engine.events("sums", buffer=2)
        oldest = engine.events("sums", buffer=2, overflow="oldest")
        last = engine.events("sums", buffer=2, overflow="conflate")
        for key, value in (("a", 1), ("b", 2), ("a", 3), ("b", 4)):
            put(engine, key, value)
        assert await taken(strict, 2) == [("sums", ("a",)), ("sums", ("b",))]
        with pytest.raises(StreamOverflow, match="more than 2 events behind"):
            await anext(strict)
        with pytest.raises(StopAsyncIteration):
            await anext(strict)
        assert oldest.dropped == last.dropped == 2
        for stream in (oldest, last):
            totals = [new(await anext(stream))["total"] for _ in range(2)]
            assert totals == [4, 6]
        put(engine, "c", 1)
        put(engine, "d", 1)
        put(engine, "e", 1)
        assert await taken(last, 2) == [("sums", ("d",)), ("sums", ("e",))]
        for wrong in ({"buffer": 0}, {"overflow": "wait"}):
            with pytest.raises(DataError, match="events: "):
                engine.events("sums", **wrong)

    asyncio.run(main())


def test_conflating_keeps_every_row_while_there_is_room_for_all(engine: Engine) -> None:
    async def main() -> None:
        stream = engine.events("sums", buffer=3, overflow="conflate")
        for i in range(20):
            put(engine, "abc"[i % 3], 1)
        found = {e.key[0]: new(e)["total"] for e in [await anext(stream) for _ in range(3)]}
        assert found == {"a": 7, "b": 7, "c": 6}

    asyncio.run(main())


def test_a_stream_ends_with_its_last_view_and_gives_out_what_it_holds(engine: Engine) -> None:
    async def main() -> None:
        stream = engine.events("sums", "counts")
        put(engine, "a", 1)
        engine.drop_view("sums")
        engine.drop_view("counts")
        assert [e.view async for e in stream] == ["sums", "counts"]
        with pytest.raises(DataError, match="closed"):
            stream.add("counts")

    asyncio.run(main())


def test_a_stream_that_nobody_holds_unsubscribes(engine: Engine) -> None:
    async def main() -> None:
        put(engine, "a", 1)
        stream = engine.events("sums")
        put(engine, "a", 1)
        async for _ in stream:
            break
        assert subscriptions(engine) == 1
        del stream
        gc.collect()
        assert subscriptions(engine) == 0

    asyncio.run(main())


def test_one_task_reads_a_stream(engine: Engine) -> None:
    async def main() -> None:
        stream = engine.events("sums")
        first = asyncio.create_task(anext(stream))
        await asyncio.sleep(0)
        with pytest.raises(DataError, match="two tasks"):
            await anext(stream)
        first.cancel()
        with pytest.raises(asyncio.CancelledError):
            await first
        put(engine, "a", 1)
        assert await taken(stream, 1) == [("sums", ("a",))]

    asyncio.run(main())


@pytest.fixture
def feeding(engine: Engine) -> Iterator[threading.Thread]:
    """Another thread that owns the engine and puts rows until the test ends."""
    ended = threading.Event()

    def feed() -> None:
        while not ended.is_set():
            put(engine, "a", 1)
            ended.wait(0.001)

    thread = threading.Thread(target=feed)
    thread.start()
    yield thread
    ended.set()
    thread.join()


def test_events_and_futures_of_an_engine_in_another_thread(engine: Engine, feeding: threading.Thread) -> None:
    async def main() -> None:
        with pytest.raises(SqlError, match="nope"):
            engine.events("sums", when="nope", other_thread=True)
        stream = engine.events("sums", other_thread=True)
        async with asyncio.timeout(PATIENCE):
            counts = [new(await anext(stream))["total"] for _ in range(30)]
        assert counts == list(range(counts[0], counts[0] + 30))
        stream.add("counts")
        async with asyncio.timeout(PATIENCE):
            while (await anext(stream)).view != "counts":
                pass
        stream.close()
        more = await engine.next("counts", timeout=PATIENCE, other_thread=True)
        assert new(more)["n"] > counts[-1]
        done = threading.Event()
        engine.post(done.set)
        assert await asyncio.to_thread(done.wait, PATIENCE)
        assert subscriptions(engine) == 0

    asyncio.run(main())


def test_a_view_that_goes_before_a_client_of_another_thread_is_there(engine: Engine) -> None:
    async def main() -> None:
        stream = engine.events("sums", "counts", other_thread=True)
        future = engine.next("sums", other_thread=True)
        engine.drop_view("sums")
        put(engine, "a", 1)
        assert await taken(stream, 1) == [("counts", ())]
        assert stream.views == ("counts",)
        with pytest.raises(ViewDropped, match="sums was dropped"):
            await future

    asyncio.run(main())


@pytest.mark.parametrize("other_thread", [False, True])
def test_what_is_removed_is_told_no_more_within_the_message(engine: Engine, other_thread: bool) -> None:
    def change(key: str, last: bool) -> None:
        row = {"stream": ["t"], "op": ["+"], "last": [last], "k": [key], "v": [1]}
        engine.apply(engine.program.changes(pl.DataFrame(row)))

    async def main() -> None:
        stream = engine.events("sums", "counts", on="event", other_thread=other_thread)
        future = engine.next("sums", on="event", other_thread=other_thread)
        change("a", False)
        stream.remove("sums")
        change("b", True)
        assert await taken(stream, 2) == [("counts", ()), ("counts", ())]
        assert (await future).key == ("a",)
        assert subscriptions(engine) == 1

    asyncio.run(main())


def test_a_future_is_the_next_event_of_which_the_condition_comes_to_hold(engine: Engine) -> None:
    async def main() -> None:
        put(engine, "a", 9)
        future = engine.next("sums", where="total > 5")
        put(engine, "a", 1)
        assert not future.done()
        put(engine, "b", 6)
        put(engine, "c", 7)
        event = await future
        assert (event.key, new(event)["total"], event.old) == (("b",), 6, None)
        assert subscriptions(engine) == 0

    asyncio.run(main())


def test_futures_compose_with_asyncio_and_leave_nothing_behind(engine: Engine) -> None:
    async def main() -> None:
        both = asyncio.gather(engine.next("sums"), engine.next("counts", where="n >= 2"))
        put(engine, "a", 1)
        put(engine, "b", 1)
        assert [e.view for e in await both] == ["sums", "counts"]
        with pytest.raises(TimeoutError, match=r"no event of sums where total > 99 within 0\.01 s"):
            await engine.next("sums", where="total > 99", timeout=0.01)
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(engine.next("sums"), 0.01)
        cancelled = engine.next("sums")
        cancelled.cancel()
        with pytest.raises(asyncio.CancelledError):
            await cancelled
        await asyncio.sleep(0)
        assert subscriptions(engine) == 0
        dropped = engine.next("sums")
        engine.drop_view("sums")
        with pytest.raises(ViewDropped, match="sums was dropped"):
            await dropped
        with pytest.raises(DataError, match="no view"):
            engine.next("sums")
        with pytest.raises(SqlError, match="nope"):
            engine.next("counts", where="nope > 1")

    asyncio.run(main())


def test_clients_of_a_gated_engine_wait_for_books_and_leave_no_trace_in_checkpoints() -> None:
    program = compile_views("CREATE VIEW n AS SELECT symbol, COUNT(*) AS n FROM bids GROUP BY symbol")
    engine = GatedEngine(program, "interpreter")
    instruments = synthetic_instruments(1)
    books = Books(instruments, engine.dictionary)
    noted: list[object] = []
    engine.observe(callback=noted.append)
    engine.watch_books(books, instruments)
    one = next(iter(instruments))
    row = {"ts": 1, "venue": one.venue, "symbol": one.symbol, "id": 1, "broker_id": 1}
    row |= {"volume": 1, "price": 1}

    async def main() -> None:
        options = {
            "on": "message",
            "fire": "edge",
            "buffer": 1024,
            "overflow": "raise",
            "other_thread": False,
        }
        stream = event_stream(engine, ("n",), None, **options)
        future = next_event(engine, "n", None, None, "message", False)
        engine.insert("bids", row)
        await asyncio.sleep(0)
        assert not future.done() and engine.save_held() == []
        state = np.zeros(1, EVENT)
        state["action"], state["side"] = Action.STATE, Side.NONE
        state["volume"], state["flags"] = BookState.VALID, Flag.LAST
        books.apply(state)
        engine.books_changed()
        assert new(await anext(stream))["n"] == new(await future)["n"] == 1
        assert noted == []

    asyncio.run(main())
