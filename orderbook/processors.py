"""A processor that the engine's thread has to itself: other threads and processes of the run leave it.

Linux alone has this. What a thread starts may run where the thread may: so our own threads and processes
leave as they start, and those of libraries are looked for again and again.
"""

import asyncio
import os
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress

# Tells processes of ours which processors are left to them, as "0,2,3".
_LEFT = "ORDERBOOK_PROCESSORS"
_TASKS = "/proc/self/task"
# Between two looks for threads that have been started.
_LOOK_SECONDS = 0.25


def unavailable(core: int) -> str | None:
    """Why the engine's thread cannot have this processor to itself; None where it can."""
    if not hasattr(os, "sched_setaffinity"):
        return "this system cannot give a thread its own processor; leave it out"
    allowed = os.sched_getaffinity(0)
    known = ", ".join(map(str, sorted(allowed)))
    if core not in allowed:
        return f"this process has no processor {core}, it may use {known}"
    return None if len(allowed) > 1 else f"processor {known} is all there is, and others need one"


@contextmanager
def alone_on(core: int) -> Iterator[None]:
    """The calling thread runs on this processor, everything else that the process has or starts on others.

    `keep_clear` is to run meanwhile. The processor is one of which `unavailable` says nothing.
    """
    allowed = os.sched_getaffinity(0)
    os.environ[_LEFT] = ",".join(map(str, sorted(allowed - {core})))
    _move_others(allowed - {core}, set())
    os.sched_setaffinity(0, {core})
    try:
        yield
    finally:
        del os.environ[_LEFT]
        os.sched_setaffinity(0, allowed)
        _move_others(allowed, set())


async def keep_clear() -> None:
    """Within `alone_on`: keep threads that are started later, by whatever library, off the processor."""
    executor = ThreadPoolExecutor(thread_name_prefix="beside", initializer=step_aside)
    asyncio.get_running_loop().set_default_executor(executor)
    seen: set[int] = set()
    while True:
        _move_others(_left(), seen)
        await asyncio.sleep(_LOOK_SECONDS)


def give_way(nice: int) -> None:
    """A process beside a run: of so much lower priority, and not on the engine's processor."""
    os.nice(nice)
    step_aside()


def step_aside(pid: int = 0) -> None:
    """The calling thread, or a process that has just been started, leaves the engine's processor."""
    if left := _left():
        # It may have ended meanwhile.
        with suppress(ProcessLookupError):
            os.sched_setaffinity(pid, left)


def _left() -> set[int]:
    return {int(number) for number in os.environ.get(_LEFT, "").split(",") if number}


def _move_others(processors: set[int], seen: set[int]) -> None:
    """Let all threads but the calling one, and those seen before, run on these."""
    threads = {int(name) for name in os.listdir(_TASKS)} - {threading.get_native_id()}
    for thread in threads - seen:
        # It may have ended meanwhile.
        with suppress(ProcessLookupError):
            os.sched_setaffinity(thread, processors)
    seen.intersection_update(threads)
    seen |= threads
