"""Reading ahead in another thread, so that decoding goes on while what was read is applied."""

import sys
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from queue import Queue

import numpy as np

from orderbook.feeds.merge import Item

# Events that are handed over together, and how many such parts wait at most.
_TOGETHER, _WAITING = 1 << 16, 4
# Seconds for which a thread that runs Python keeps others waiting, instead of 5 ms.
_SWITCH = 0.0005


def read_ahead(items: Iterable[Item]) -> Iterator[Item]:
    """The items, read by another thread; events that follow each other in larger batches.

    Raises what reading raises, after everything before it. Whoever stops early closes the iterator.
    """
    queue: Queue[Item | BaseException | None] = Queue(_WAITING)
    stopped = threading.Event()

    def read() -> None:
        try:
            for item in _larger(items):
                queue.put(item)
                if stopped.is_set():
                    return
        except BaseException as error:
            queue.put(error)
        else:
            queue.put(None)

    thread = threading.Thread(target=read, name="reader", daemon=True)
    with _often_switched():
        thread.start()
        try:
            while (item := queue.get()) is not None:
                if isinstance(item, BaseException):
                    raise item
                yield item
        finally:
            stopped.set()
            while thread.is_alive():
                # It waits for room.
                while not queue.empty():
                    queue.get()
                thread.join(0.01)


def _larger(items: Iterable[Item]) -> Iterator[Item]:
    """Events that follow each other as one batch, as far as it stays small."""
    held: list[np.ndarray] = []
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
