"""What the server keeps of the past is what a page that was open all the time has, in bounded memory."""

import asyncio
import json
import time
import urllib.error
import urllib.parse
import urllib.request
import zlib
from collections import deque
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from monitor_support import INSTRUMENTS, SQL, SYMBOL, VENUE, running
from samples import PATIENCE

from orderbook.configuration.options import MonitorOptions
from orderbook.market.synthetic_flow import generate
from orderbook.monitor import history as kept
from orderbook.monitor import history_recorder, view_topic
from orderbook.monitor.book_topic import BookTopics, StrategyOrders, TradeTape
from orderbook.monitor.history import BACK, COLUMN_NS, COLUMNS, SECONDS, TRADES, Blocks, History
from orderbook.monitor.history_recorder import HistoryRecorder
from orderbook.monitor.messages import (
    Command,
    HistoryBook,
    HistoryLine,
    HistoryMessage,
    HistoryTrades,
    Open,
    RunMessage,
    Topic,
    TopicFrame,
    trades_encoded,
)
from orderbook.monitor.publisher import Publisher, Share
from orderbook.monitor.view_topic import ViewTopic
from orderbook.run.event_queue import Stamped
from orderbook.run.pipeline import Pipeline
from orderbook.strategies.gated_engine import GatedEngine
from orderbook.views.compilation import compile_views

Column = tuple[str, Sequence[float], Sequence[float]]
STATES = ("syncing", "valid", "stale")


def blocks_of(answer: bytes) -> Iterator[bytes]:
    """As docs/protocol.md has them."""
    at = 0
    while at < len(answer):
        size = int.from_bytes(answer[at : at + 4], "little")
        yield zlib.decompress(answer[at + 4 : at + 4 + size])
        at += 4 + size


def columns_of(blocks: list[bytes]) -> dict[int, Column]:
    words = deque(np.frombuffer(b"".join(blocks), np.float64).tolist())
    found: dict[int, Column] = {}
    while words:
        number, state, bids, asks = (int(words.popleft()) for _ in range(4))
        first, second = ([words.popleft() for _ in range(2 * count)] for count in (bids, asks))
        found[number] = STATES[state], first, second
    return found


class Past:
    """An answer of /history/book."""

    def __init__(self, answer: bytes) -> None:
        first, *rest = blocks_of(answer)
        self.head = json.loads(first)
        coarse, fine = self.head["coarse"], self.head["coarse"] + self.head["fine"]
        self.coarse, self.fine = columns_of(rest[:coarse]), columns_of(rest[coarse:fine])
        words = np.frombuffer(b"".join(rest[fine:]), np.int64).reshape(-1, 4)
        prices = words[:, 1:3].copy().view(np.float64)
        told = zip(words[:, 0].tolist(), *prices.T.tolist(), words[:, 3].tolist(), strict=True)
        self.trades = list(told)


def book_of(number: int, seed: int, levels: int = 3) -> HistoryBook:
    """A book that looks different for each seed."""
    values = np.random.default_rng(seed).integers(1, 1000, (2, levels, 3))
    bids, asks = (side.astype(np.int64).tobytes() for side in values)
    return HistoryBook("v", "s", number, STATES[seed % 3], bids, asks, (2, 4))


def told_of(book: HistoryBook) -> Column:
    sides = [np.frombuffer(side, np.int64).reshape(-1, 3) for side in (book.bids, book.asks)]
    bids, asks = ((side[:, :2] / book.steps).ravel().tolist() for side in sides)
    return book.state, bids, asks


@given(st.lists(st.one_of(st.integers(0, 12), st.sampled_from([-3, -200, 700, 50_000])), max_size=60))
def test_columns_are_the_last_told_in_them_however_time_jumps(steps: list[int]) -> None:
    """Against dictionaries of all that was told."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(kept, "_TOGETHER", 4)
        history, number = History(1 << 30), 100_000
        told: dict[int, Column] = {}
        for seed, step in enumerate(steps):
            number += step
            book = book_of(number, seed)
            history.take(book)
            if number < max(told, default=0) - BACK:
                told.clear()
            # What comes from before is of no column any more.
            if number >= max(told, default=0):
                told[number] = told_of(book)
        answer = history.book("v", "s")
    if not steps:
        assert answer is None
        return
    assert answer is not None
    past, newest = Past(answer), max(told)
    assert past.fine.items() <= told.items()
    assert set(past.fine) >= {number for number in told if number > newest - COLUMNS}
    seconds = {number // 10: (number, column) for number, column in sorted(told.items())}
    seconds.pop(newest // 10)
    assert past.coarse.items() <= dict(seconds.values()).items()
    assert set(past.coarse) >= {n for n, _ in seconds.values() if n > newest - 10 * SECONDS}


@given(
    st.lists(
        st.lists(
            st.tuples(st.integers(0, 10**12), st.integers(-3, 3), st.integers(1, 9), st.integers(0, 2)),
            min_size=1,
            max_size=8,
        ),
        min_size=1,
        max_size=12,
    )
)
def test_trades_bars_and_volumes_are_those_of_all_trades(
    parts: list[list[tuple[int, int, int, int]]],
) -> None:
    history, traded = History(1 << 30), 0
    prices: dict[int, int] = {}
    bars: dict[int, list[int]] = {}
    for part in parts:
        words = np.array(part, np.int64)
        words[:, 1:3] = words[:, 1:3].astype(np.float64).view(np.int64)
        traded += len(part)
        history.take(HistoryTrades("v", "s", traded, words.tobytes()))
    flat = [trade for part in parts for trade in part]
    for at, ticks, lots, side in flat:
        prices[ticks] = prices.get(ticks, 0) + lots
        bar = bars.setdefault(at // 60_000_000_000, [ticks, ticks, ticks, ticks, 0, 0, 0])
        bar[1], bar[2], bar[3] = max(bar[1], ticks), min(bar[2], ticks), ticks
        bar[4 + side] += lots
    past = Past(history.book("v", "s") or b"")
    assert past.trades == flat and past.head["traded"] == len(flat)
    assert dict(map(tuple, past.head["volume"])) == prices
    assert past.head["minutes"] == [[number, *bar] for number, bar in sorted(bars.items())]
    assert sum(bar[7] for bar in past.head["seconds"]) == sum(t[2] for t in flat if t[3] == 2)


def test_memory_is_bounded_and_half_an_hour_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    """Books that change wholly each second: fine columns go first, then coarse ones become longer."""
    monkeypatch.setattr(kept, "_TOGETHER", 16)
    most, levels = 300_000, 20
    history = History(most)
    for second in range(2400):
        history.take(book_of(10 * second, second, levels))
        trades = np.random.default_rng(second).integers(0, 1 << 40, (9, 4))
        history.take(HistoryTrades("v", "s", 500 * (second + 1), trades.tobytes()))
        history.take(HistoryLine("view depth", second, b'{"at":%d}' % second))
    assert history.size <= most
    past = Past(history.book("v", "s") or b"")
    assert 1 < past.head["every"] <= 64
    assert min(past.coarse) <= 10 * (2400 - 1800)
    times = sorted(past.coarse)
    assert max(after - before for before, after in pairwise(times)) <= 20 * past.head["every"]
    assert len(past.trades) * 500 <= 9 * (TRADES + 500 * 16)
    lines = b"".join(blocks_of(history.lines("view depth", 2399 - 100))).split()
    assert [json.loads(line)["at"] for line in lines][-100:] == list(range(2300, 2400))


def test_at_most_so_many_books_and_lines_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kept, "MOST_BOOKS", 3)
    monkeypatch.setattr(kept, "MOST_LINES", 3)
    history = History(1 << 30)
    for number in range(6):
        told = book_of(number, number)
        history.take(HistoryBook("v", str(number), told.number, told.state, told.bids, told.asks, told.steps))
        history.take(HistoryLine(str(number), number, b"{}"))
    assert [s for s in map(str, range(6)) if history.book("v", s)] == ["3", "4", "5"]
    assert [s for s in map(str, range(6)) if history.lines(s, -1)] == ["3", "4", "5"]


def test_blocks_give_what_comes_after_a_number() -> None:
    blocks = Blocks()
    for number in range(150):
        blocks.add(number, b"%d " % number)
    for after in (-1, 0, 63, 64, 127, 140, 148, 149):
        given = [int(x) for x in b"".join(map(zlib.decompress, blocks.read(after))).split()]
        assert given[-(149 - after) :] == list(range(after + 1, 150))[-(149 - after) :]
        assert len(given) <= 149 - after + 64
    blocks.forget(100)
    assert [number for number, _ in blocks.items()] == list(range(64, 150))
    blocks.thin(10)
    assert [number for number, _ in blocks.items()] == [*range(69, 150, 10)]
    assert blocks.size == sum(len(str(number)) + 1 for number in range(69, 150, 10))


class Page:
    """What a page makes of the frames of a book, as plain as can be."""

    def __init__(self) -> None:
        self.columns: dict[int, Column] = {}
        self.trades: list[tuple[int, float, float, str]] = []
        self.last = 0

    def take(self, frame: dict[str, Any]) -> None:
        number = int(frame["time"]) // COLUMN_NS
        if number >= self.last:
            self.last = number
            bids, asks = ([x for level in frame[side] for x in level[:2]] for side in ("bids", "asks"))
            self.columns[number] = frame["state"], bids, asks
        self.trades += [(int(time), *rest) for time, *rest in frame["trades"]]

    def at(self, number: int) -> Column | None:
        """What it shows: the newest column that is not after a number."""
        return next((self.columns[k] for k in range(number, number - 40, -1) if k in self.columns), None)


class Line:
    """The run's end of the line: frames as a client that takes each gets them, and the server's history."""

    def __init__(self) -> None:
        self.lost, self.commands = False, deque[Command]()
        self.pages: dict[str, Page] = {}
        self.history = History(1 << 30)

    def put(self, frame: TopicFrame) -> None:
        told = json.loads(b"{" + frame.body + b"}")
        told["trades"] = [json.loads(trade) for trade in trades_encoded(frame.trades or b"")]
        self.pages.setdefault(told["symbol"], Page()).take(told)

    def post(self, message: RunMessage) -> bool:
        if isinstance(message, HistoryMessage):
            self.history.take(message)
        return True

    def receive(self) -> list[Command]:
        given = list(self.commands)
        self.commands.clear()
        return given

    def flush(self) -> None:
        pass


@pytest.mark.parametrize("jump", [0, 90 * 10**9, 3600 * 10**9])
@pytest.mark.parametrize("rate", [40.0, 400.0])
def test_the_past_is_that_of_a_page_that_was_open_all_the_time(
    monkeypatch: pytest.MonkeyPatch, jump: int, rate: float
) -> None:
    """Of all instruments, quiet and busy, through a clock that jumps."""
    now = [0.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    pipeline = Pipeline(GatedEngine(compile_views(SQL), "interpreter"), INSTRUMENTS, ())
    tape, line = TradeTape(len(INSTRUMENTS)), Line()
    books = BookTopics(pipeline, tape, StrategyOrders(list(INSTRUMENTS), lambda _: []))
    recorder = HistoryRecorder(pipeline, tape, books.orders, lambda _: False, line.post)
    # Nothing that it does takes any of this time.
    share = Share(lambda: 0.0, lambda: 0.0, lambda: 0.0)
    publisher = Publisher(line, {"book": books.open}, print, share)  # type: ignore[arg-type]
    publisher.add("history", recorder, print)
    line.commands.extend(Open(Topic("book", one.venue, one.symbol, depth=200)) for one in INSTRUMENTS)
    first: int | None = None
    # Of each second what the view is at the first turn in it.
    rows: dict[int, dict[Any, Any]] = {}
    waiting: deque[np.ndarray] = deque(generate(4000, len(INSTRUMENTS), 40, seed=3, batch=5, rate=rate))
    for step in range(2000):
        while waiting:
            first = int(waiting[0]["exchange_time"][-1]) if first is None else first
            if waiting[0]["exchange_time"][-1] > first + 50_000_000 * step:
                break
            part = waiting.popleft()
            if step > 200:
                part["exchange_time"] += jump
            part["receive_time"] = part["exchange_time"]
            pipeline.apply(part)
            tape.note([Stamped(0, 0, part)])
        now[0] += 0.05
        publisher.step()
        second = pipeline.time // 10**9
        rows.setdefault(second, {r["symbol"]: r["orders"] for r in pipeline.engine["depth"].values()})
    for one in INSTRUMENTS:
        page, past = line.pages[one.symbol], Past(line.history.book(one.venue, one.symbol) or b"")
        assert len(page.columns) > 5 and len(page.trades) > 3
        reopened = Page()
        reopened.columns = past.fine
        shown = range(max(min(page.columns), page.last - COLUMNS + 1), page.last + 1)
        assert [reopened.at(n) for n in shown] == [page.at(n) for n in shown]
        side = ("buy", "sell", "")
        assert [(t, ticks, lots, side[min(k, 2)]) for t, ticks, lots, k in past.trades] == page.trades
        assert past.head["traded"] == len(page.trades)
    seconds = [json.loads(text) for text in b"".join(blocks_of(line.history.lines("view depth", -1))).split()]
    told = {one["at"]: {symbol: orders for (symbol,), (orders, *_) in one["rows"]} for one in seconds}
    rows.pop(0, None)
    assert told == rows and len(told) > 3


def test_a_view_that_is_dropped_leaves_room_for_another(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(history_recorder, "MOST_LINES", 4)
    pipeline = Pipeline(GatedEngine(compile_views(SQL), "interpreter", keep_rows=True), INSTRUMENTS, ())
    tape, line = TradeTape(len(INSTRUMENTS)), Line()
    orders = StrategyOrders(list(INSTRUMENTS), lambda _: [])
    recorder = HistoryRecorder(pipeline, tape, orders, lambda _: False, line.post)
    for number, part in enumerate(generate(1000, len(INSTRUMENTS), 20, seed=1, batch=100)):
        part["exchange_time"] = part["receive_time"] = (1000 + 2 * number) * 10**9
        if number in (2, 5):
            pipeline.engine.add_view(f"CREATE VIEW added_{number} AS SELECT symbol, orders FROM depth")
        if number == 4:
            pipeline.engine.drop_view("added_2")
        pipeline.apply(part)
        for _ in range(3):
            recorder.frame()
    assert line.history.lines("view added_2", -1) and line.history.lines("view added_5", -1)


def test_views_of_many_rows_are_not_copied_for_the_past_and_seldom_for_pages(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now = [0.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    monkeypatch.setattr(history_recorder, "MOST_ROWS", 40)
    monkeypatch.setattr(view_topic, "_ROWS_A_SECOND", 10)
    sql = f"{SQL}CREATE VIEW told AS SELECT id, symbol, price * volume AS value FROM trades"
    pipeline = Pipeline(GatedEngine(compile_views(sql), "interpreter"), INSTRUMENTS, ())
    engine, tape, line = pipeline.engine, TradeTape(len(INSTRUMENTS)), Line()
    orders = StrategyOrders(list(INSTRUMENTS), lambda _: [])
    recorder = HistoryRecorder(pipeline, tape, orders, lambda _: False, line.post)
    topics = {name: ViewTopic(Topic("view", view=name, limit=3), engine) for name in ("told", "depth")}
    frames: dict[str, list[float]] = {name: [] for name in topics}
    for number, part in enumerate(generate(3000, len(INSTRUMENTS), 20, seed=1, batch=20)):
        part["exchange_time"] = part["receive_time"] = (1000 + number) * 10**9
        pipeline.apply(part)
        recorder.frame()
        now[0] += 0.1
        for name, topic in topics.items():
            if topic.frame() is not None:
                frames[name].append(now[0])
    assert engine.view_rows()["told"] > 100
    last = json.loads(b"".join(blocks_of(line.history.lines("view told", -1))).split()[-1])
    assert len(last["rows"]) <= 40
    assert (
        json.loads(b"".join(blocks_of(line.history.lines("view depth", -1))).split()[-1])["at"] > last["at"]
    )
    waits = [after - before for before, after in pairwise(frames["told"])]
    assert waits[0] < 1 and waits[-1] > 4 and max(np.diff(frames["depth"])) < 1.1
    assert engine.view_rows() == {name: len(engine[name].row_words()) for name in engine.views}


def test_the_past_is_served_to_who_may_read() -> None:
    async def go() -> None:
        async with running(MonitorOptions(port=0)) as run:
            await run.put(*generate(400, len(INSTRUMENTS), 20, seed=1, batch=50))
            url = f"http://127.0.0.1:{run.server.port}/history"

            def get(path: str, **headers: str) -> tuple[int, bytes]:
                try:
                    with urllib.request.urlopen(
                        urllib.request.Request(url + path, headers=headers)
                    ) as answer:
                        return answer.status, answer.read()
                except urllib.error.HTTPError as error:
                    return error.code, error.read()

            book = f"/book?{urllib.parse.urlencode({'venue': VENUE, 'symbol': SYMBOL})}"
            async with asyncio.timeout(PATIENCE):
                while (await asyncio.to_thread(get, book))[0] != 200:
                    await asyncio.sleep(0.01)
            assert Past((await asyncio.to_thread(get, book))[1]).head["traded"] >= 0
            assert (await asyncio.to_thread(get, "/book?venue=no&symbol=such"))[0] == 404
            assert await asyncio.to_thread(get, "/lines?name=no&after=x") == (200, b"")
            assert (await asyncio.to_thread(get, book, Host="other.example"))[0] == 403
        async with running(
            MonitorOptions(port=0, host="127.0.0.1", token="t" * 16, origin="https://d.example")
        ) as run:
            url = f"http://127.0.0.1:{run.server.port}/history"
            assert (await asyncio.to_thread(get, "/lines?name=profit"))[0] == 401
            assert (await asyncio.to_thread(get, "/lines?name=profit", Authorization=f"Bearer {'t' * 16}"))[
                0
            ] == 200

    asyncio.run(go())
