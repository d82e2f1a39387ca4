"""The page of a run that is not there yet: books and trades, by a process that compiles nothing.

`python -m orderbook.commands.preview_page LINE ARGUMENTS`, started by `orderbook.commands.preview`, in which
compiled functions are plain Python. It follows the run's exchanges on connections of its own, and reads its
files, without views, strategies or log. LINE is the descriptor of a socket: from it come lines that say how
far the run is, to it go the page's address and, when it says no more, the socket that the page is served on.
"""

import asyncio
import json
import logging
import os
import socket
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from threading import Thread
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from orderbook.commands.preview import HANDED_OVER
from orderbook.commands.run import overrides_of
from orderbook.configuration.configuration import load_configuration
from orderbook.configuration.options import (
    CaptureFeed,
    ExchangeFeed,
    Feed,
    FileFeed,
    MonitorOptions,
    SimulatedFeed,
)
from orderbook.core.errors import DataError, OrderbookError
from orderbook.core.latency import LatencyHistogram
from orderbook.core.processors import end_with_parent, give_way
from orderbook.feeds.merge import Item
from orderbook.market.book_relations import BookStates, SavedState
from orderbook.market.books import DEPTH
from orderbook.market.events import Action, BookState, Events, Flag, Side
from orderbook.market.instruments import Instruments
from orderbook.monitor.alerts import Notes, NotesTopic, noted_warnings
from orderbook.monitor.book_topic import BookTopics, StrategyOrders, TradeTape
from orderbook.monitor.history_recorder import HistoryRecorder
from orderbook.monitor.messages import (
    Answer,
    Ask,
    Command,
    FollowEnded,
    OpenFollow,
    Topic,
    body_of,
    is_followed,
)
from orderbook.monitor.publisher import Mailbox, Publisher, Share, TopicSource
from orderbook.monitor.run_monitor import ServerProcess, listening_for
from orderbook.monitor.status_topic import EngineHealth, FeedHealth, InstrumentsTopic, StatusTopic
from orderbook.run.event_queue import Stamped
from orderbook.run.feed_runs import CaptureRun, FeedRun, FileRun, Put, open_runs
from orderbook.run.live_run import LiveRun
from orderbook.run.pipeline import Pipeline
from orderbook.strategies.gated_engine import GatedEngine
from orderbook.views.compilation import compile_texts

_logger = logging.getLogger("orderbook.monitor")

_NICE = 5
# Of a simulated exchange, events a second at most: it is plain Python, too.
_RATE = 300.0
# Of a file, which would be read as fast as it is taken; together at most so many, to the end of a message.
_FILE_RATE, _TOGETHER = 2_000.0, 200
_FIELDS = ("instrument", "action", "side", "order_id", "price", "volume")
_TOLD = (int(Action.STATE), int(Action.INSTRUMENT))
_NOT_YET = "the run has not begun; ask again when it has"


class PlainBooks:
    """Books of dicts, as far as a page shows them; see `orderbook.market.books.Books`.

    What contradicts a book is left out: nothing is computed of it.
    """

    def __init__(self, count: int) -> None:
        self._states = [BookState.SYNCING] * count
        self._orders: list[dict[int, tuple[int, int, int]]] = [{} for _ in range(count)]
        # Of each side volume and orders by price.
        self._levels: list[tuple[dict[int, list[int]], ...]] = [({}, {}) for _ in range(count)]

    def apply(self, events: Events) -> None:
        """Apply EVENT[n]."""
        for number, action, *values in zip(*(events[name].tolist() for name in _FIELDS), strict=True):
            if 0 <= number < len(self._states):
                self._apply(number, action, *values)

    def levels(self, instrument: int, side: Side, depth: int) -> NDArray[np.void]:
        """See Books."""
        found = sorted(self._levels[instrument][side].items(), reverse=side is Side.BID)[:depth]
        return np.array([(price, *level) for price, level in found], DEPTH)

    def counts_orders(self, instrument: int) -> bool:
        """See Books."""
        return bool(self._orders[instrument])

    def state(self, instrument: int) -> BookState:
        """See Books."""
        return self._states[instrument]

    def _apply(self, number: int, action: int, side: int, order_id: int, price: int, volume: int) -> None:
        orders = self._orders[number]
        match action:
            case Action.ADD:
                self._put(number, order_id, side, price, volume)
            case Action.MODIFY:
                self._take(number, order_id)
                self._put(number, order_id, side, price, volume)
            case Action.REDUCE | Action.EXECUTE if order_id in orders:
                own, at, before = self._take(number, order_id)
                if before > volume:
                    self._put(number, order_id, own, at, before - volume)
            case Action.DELETE:
                self._take(number, order_id)
            case Action.LEVEL if side in (Side.BID, Side.ASK):
                if volume:
                    self._levels[number][side][price] = [volume, 1]
                else:
                    self._levels[number][side].pop(price, None)
            case Action.CLEAR:
                for gone in [one for one, (own, *_) in orders.items() if side in (own, Side.NONE)]:
                    self._take(number, gone)
                for own in (Side.BID, Side.ASK):
                    if side in (own, Side.NONE):
                        self._levels[number][own].clear()
            case Action.STATE:
                self._states[number] = BookState(volume)

    def _put(self, number: int, order_id: int, side: int, price: int, volume: int) -> None:
        if side not in (Side.BID, Side.ASK) or order_id in self._orders[number]:
            return
        self._orders[number][order_id] = side, price, volume
        level = self._levels[number][side].setdefault(price, [0, 0])
        level[0] += volume
        level[1] += 1

    def _take(self, number: int, order_id: int) -> tuple[int, int, int]:
        found = self._orders[number].pop(order_id, None)
        if found is None:
            return 0, 0, 0
        side, price, volume = found
        level = self._levels[number][side][price]
        level[0] -= volume
        level[1] -= 1
        if not level[1]:
            del self._levels[number][side][price]
        return found


class _Market:
    """What the monitor reads of a run, of which there are the books."""

    def __init__(self, instruments: Instruments) -> None:
        self.engine = GatedEngine(compile_texts([], {}), "interpreter")
        self.instruments, self.books = instruments, PlainBooks(len(instruments))
        self.time = self.events = self.messages = self.changes = 0
        self.clock: Callable[[], int] = time.time_ns
        self.to_views, self.to_callbacks = LatencyHistogram(), LatencyHistogram()
        self.host = SimpleNamespace(summary=tuple, halted=None)
        self.tape = TradeTape(len(instruments))
        self._told = BookStates(self.engine, instruments)

    def state_of(self, instrument: int) -> SavedState | None:
        """See Pipeline."""
        return self._told.of(instrument)

    async def put(self, item: Item) -> None:
        """Takes what a feed brings."""
        if not isinstance(item, np.ndarray) or not len(item):
            return
        self.time = int(item["receive_time"][-1]) or int(item["exchange_time"][-1])
        self.books.apply(item)
        if np.isin(item["action"], _TOLD).any():
            self._told.note(item)
        self.tape.note([Stamped(self.time, 0, item)])
        self.events += len(item)


class _Line:
    """The line to the run; `text` is what it has said last."""

    def __init__(self, line: socket.socket, over: Callable[[], object]) -> None:
        self._line, self._over, self.text = line, over, ""
        # What the page is served on, once it is.
        self.listening: socket.socket | None = None
        Thread(target=self._hear, name="run", daemon=True).start()

    def tell(self, address: str) -> None:
        """Says where the page is."""
        self._line.sendall(f"{address}\n".encode())

    def _hear(self) -> None:
        with self._line.makefile("r") as lines:
            for text in lines:
                self.text = text.strip()
        if self.listening is None:
            os._exit(0)
        socket.send_fds(self._line, [HANDED_OVER], [self.listening.fileno()])
        self._over()


async def serve(
    line: socket.socket, options: MonitorOptions, runs: Sequence[FeedRun], instruments: Instruments
) -> None:
    """Serves the page until the run says no more."""
    loop, over = asyncio.get_running_loop(), asyncio.Event()
    told = _Line(line, lambda: loop.call_soon_threadsafe(over.set))
    listening = listening_for(options)
    market = _Market(instruments)
    server = ServerProcess(options, listening=listening.dup())
    told.listening = listening
    told.tell(server.url)
    mailbox = Mailbox(server.start())
    notes = Notes(lambda: market.time)
    publisher = _publisher(market, runs, mailbox, notes, lambda: told.text)
    follows = (_followed(run, market) for run in runs)
    tasks = [asyncio.create_task(one) for one in (*follows, publisher.publish())]
    with noted_warnings(notes):
        await over.wait()
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    publisher.close()
    mailbox.close()
    listening.close()
    server.close()


def slowly(put: Put) -> Put:
    """What puts events at the rate of a file that is shown, in whole messages."""

    async def paced(item: Item) -> None:
        if not isinstance(item, np.ndarray):
            return
        ends = np.flatnonzero(item["flags"] & int(Flag.LAST)) + 1
        full = np.flatnonzero(np.diff(ends // _TOGETHER, prepend=0))
        for part in np.split(item, ends[full]):
            if len(part):
                await put(part)
                await asyncio.sleep(len(part) / _FILE_RATE)

    return paced


async def opened(feeds: Sequence[Feed]) -> tuple[Sequence[FeedRun], Instruments]:
    """The runs of what a process beside the run may follow as well, and their instruments.

    No files where one of them cannot be opened: what is wrong with it the run says.
    """
    live: list[Feed] = []
    for one in feeds:
        if isinstance(one, SimulatedFeed):
            live.append(one.model_copy(update={"events_per_second": min(one.events_per_second, _RATE)}))
        elif isinstance(one, ExchangeFeed):
            live.append(one)
    files = [one for one in feeds if isinstance(one, CaptureFeed | FileFeed)]
    try:
        # What finds books that stay crossed are compiled books.
        runs, instruments = await open_runs([*live, *files], 0)
    except OrderbookError:
        runs, instruments = await open_runs(live, 0)
    shown = [run for run in runs if not run.changes_relations]
    together = [run for run in shown if isinstance(run, FileRun)]
    for run in together:
        run.merge(together, instruments)
    return shown, instruments


async def _followed(run: FeedRun, market: _Market) -> None:
    put = slowly(market.put) if isinstance(run, CaptureRun | FileRun) else market.put
    try:
        await run.follow(put)
    except Exception as error:
        # The run says what is wrong; a page that shows less is worth more than none.
        _logger.warning("feed %s ended: %s", run.name, error)


def _publisher(
    market: _Market,
    runs: Sequence[FeedRun],
    mailbox: Mailbox,
    notes: Notes,
    preparing: Callable[[], str],
) -> Publisher:
    pipeline = cast(Pipeline, market)
    live = cast(LiveRun, SimpleNamespace(queue=SimpleNamespace(waiting=0), epoch=0, ended=lambda _: False))
    orders = StrategyOrders(tuple(market.instruments), lambda _: [])
    feeds, health = FeedHealth(pipeline, live, runs), EngineHealth(pipeline, live, is_followed)
    recorder = HistoryRecorder(pipeline, market.tape, orders, is_followed, mailbox.post)

    def no_view(topic: Topic) -> TopicSource:
        raise DataError(_NOT_YET)

    def refuse(command: Command) -> None:
        if isinstance(command, OpenFollow):
            mailbox.post(FollowEnded(command.follow, _NOT_YET))
        elif isinstance(command, Ask):
            body: dict[str, Any] = {"type": "error", "error": _NOT_YET}
            mailbox.post(Answer(command.client, command.request.id, body_of(body)))

    publisher = Publisher(
        mailbox,
        {
            "book": BookTopics(pipeline, market.tape, orders, recorder.look).open,
            "view": no_view,
            "status": lambda topic: StatusTopic(topic, pipeline, health, feeds, tuple, preparing=preparing),
            "notes": lambda topic: NotesTopic(topic, notes),
            "instruments": lambda topic: InstrumentsTopic(
                topic, pipeline, orders.instruments, runs, feeds.labels
            ),
        },
        refuse,
        Share(time.perf_counter),
    )
    publisher.add("feeds", feeds, lambda _: None)
    publisher.add("history", recorder, lambda _: None)
    return publisher


def main(descriptor: int, arguments: str) -> None:
    """Serve what the configuration of a run says, of what a process beside it may follow as well."""
    give_way(_NICE)
    end_with_parent()
    config, feeds, monitor = json.loads(arguments)
    chosen = {**overrides_of(None, feeds, monitor, False, False), "run.views": [], "run.strategies": []}
    configuration = load_configuration(None if config is None else Path(config), chosen)
    if not configuration.monitor.enabled or not configuration.monitor.preview:
        return

    async def followed() -> None:
        runs, instruments = await opened(configuration.feeds)
        await serve(socket.socket(fileno=descriptor), configuration.monitor, runs, instruments)

    asyncio.run(followed())


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2])
