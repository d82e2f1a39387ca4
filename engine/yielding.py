"""Work of other threads beside one that must not wait: the interpreter is handed over sooner."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Lock

# Seconds after which a thread gives up the interpreter where another one waits for it. Python's own 5 ms are
# as much as a run needs for a hundred messages, and it waits whenever compiled code has let others go on.
_SECONDS = 2e-4

_lock = Lock()
# Those inside, and what was set before the first of them.
_inside = [0, 0.0]


@contextmanager
def yielding() -> Iterator[None]:
    """While anybody is inside, every thread of the process gives up the interpreter after 0.2 ms."""
    with _lock:
        if not _inside[0]:
            _inside[1] = sys.getswitchinterval()
            sys.setswitchinterval(_SECONDS)
        _inside[0] += 1
    try:
        yield
    finally:
        with _lock:
            _inside[0] -= 1
            if not _inside[0]:
                sys.setswitchinterval(_inside[1])
