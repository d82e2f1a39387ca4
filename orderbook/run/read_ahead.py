"""Reading ahead in other threads, so that decoding goes on while what was read is applied."""

import sys
import threading
from collections.abc import Generator, Iterable, Iterator
from contextlib import ExitStack, closing, contextmanager
from queue import Queue
from typing import Any

import numpy as np

from orderbook.feeds.merge import Item, Merger
from orderbook.market.events import Events

# Events that are handed over together, and how many such parts wait at most.
_TOGETHER, _WAITING = 1 << 16, 4
# Each source of so many has a thread of its own.
_SOURCES = 32
# Seconds for which a thread that runs Python keeps others waiting, instead of 5 ms.
_SWITCH = 0.0005


def read_ahead(merger: Merger) -> Iterator[Item]:
    """The items of a merger, which another thread reads, of several sources each in one of its own.

    Events that follow each other come in larger batches. Raises what reading raises, after everything before
    it. Whoever stops early closes the iterator.
    """
    with _often_switched(), ExitStack() as opened:
        if 1 < len(merger.sources) <= _SOURCES:
            merger.reading = lambda source: opened.enter_context(closing(_in_thread(source, "source")))
        # Ended first, since it reads the others.
        with closing(_in_thread(_larger(merger), "reader")) as items:
            yield from items


def _in_thread(items: Iterable[Any], name: str) -> Generator[Any, None, None]:
    """The items, read by another thread until all are or nobody wants them any more."""
    queue: Queue[tuple[Any, BaseException | None]] = Queue(_WAITING)
    stopped = threading.Event()

    def read() -> None:
        error: BaseException | None = None
        try:
            for item in items:
                queue.put((item, None))
                if stopped.is_set():
                    return
        except BaseException as raised:
            error = raised
        queue.put((None, error))

    thread = threading.Thread(target=read, name=name, daemon=True)
    thread.start()
    try:
        while True:
            item, error = queue.get()
            if error is not None:
                raise error
            if item is None:
                return
            yield item
    finally:
        stopped.set()
        while thread.is_alive():
            # It may wait for room.
            while not queue.empty():
                queue.get()
            thread.join(0.01)


def _larger(items: Iterable[Item]) -> Iterator[Item]:
    """Events that follow each other as one batch, as far as it stays small."""
    held: list[Events] = []
    count = 0
    error: Exception | None = None
    iterator = iter(items)
    while True:
        try:
            item = next(iterator, None)
        except Exception as raised:
            item, error = None, raised
        if held and (not isinstance(item, np.ndarray) or count + len(item) > _TOGETHER):
            yield held[0] if len(held) == 1 else np.concatenate(held)
            held, count = [], 0
        if isinstance(item, np.ndarray):
            held.append(item)
            count += len(item)
        elif item is not None:
            yield item
        elif error is not None:
            raise error
        else:
            return


@contextmanager
def _often_switched() -> Iterator[None]:
    before = sys.getswitchinterval()
    sys.setswitchinterval(_SWITCH)
    try:
        yield
    finally:
        sys.setswitchinterval(before)
