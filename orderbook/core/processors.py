"""What the threads and processes of a run may take: processors, memory, seconds.

The engine's thread can have a processor to itself, which other threads and processes of the run leave. Linux
alone has this. What a thread starts may run where the thread may: so our own threads and processes leave as
they start, and those of libraries are looked for again and again.

A process that works for clients has limits of memory and seconds, and no longer life than who asked it. Linux
counts what a process has of its own against RLIMIT_DATA (setrlimit(2), since Linux 4.7); other systems may
ignore it.
"""

import asyncio
import gc
import os
import resource
import signal
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path

# Tells processes of ours which processors are left to them, as "0,2,3".
_LEFT = "ORDERBOOK_PROCESSORS"
_TASKS = "/proc/self/task"
# Between two looks for threads that have been started.
_LOOK_SECONDS = 0.25
# More objects than an interpreter freezes as it starts: Python 3.12 some hundreds, others none.
_FROZEN = 10_000
_has_frozen = False


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


_STATUS = Path("/proc/self/status")
# Of libraries, which are read as they are needed, and are not counted.
_LIBRARIES = 48 << 20


def limit_memory(nbytes: int) -> int:
    """From now on this process has at most so many bytes; the bytes that are left.

    What is allocated beyond fails, as MemoryError or as libraries say it. Raises MemoryError where there are
    fewer than the process has already.
    """
    used = memory_of(os.getpid())
    left = nbytes - used - _LIBRARIES
    if left <= 0:
        raise MemoryError(f"{nbytes:,} bytes are fewer than {used:,}, which a process has to begin with")
    with suppress(ValueError, OSError):
        own = _status("VmData")
        limit = own + left
        _, hard = resource.getrlimit(resource.RLIMIT_DATA)
        resource.setrlimit(resource.RLIMIT_DATA, (min(limit, hard) if hard >= 0 else limit, hard))
    # Where the system itself has no memory left, this is what can be done without.
    with suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text("1000")
    return left


def limit_seconds(seconds: float) -> None:
    """From now on this process has so many seconds, of its processor and of the clock, whatever it does."""
    clock = int(seconds) + 1
    # What it has taken so far counts.
    processor = int(time.process_time()) + clock
    resource.setrlimit(resource.RLIMIT_CPU, (processor, processor + 1))
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.alarm(clock + 1)


def end_with_parent() -> None:
    """Nobody waits for the answer when the process that asked is gone."""
    parent = os.getppid()
    threading.Thread(target=_watch, args=(parent,), daemon=True).start()


def has_frozen() -> bool:
    """Whether this process has frozen what it held at some time, by gc.freeze.

    Not to be asked while something is frozen that is taken back: that there was something is remembered.
    """
    global _has_frozen
    # To count a million objects takes a tenth of a second.
    _has_frozen = _has_frozen or gc.get_freeze_count() > _FROZEN
    return _has_frozen


def memory_of(pid: int, alone: bool = False) -> int:
    """Bytes of a process that are in memory, 0 where the system does not tell; `alone`: without files."""
    with suppress(OSError, ValueError, IndexError):
        resident, shared = map(int, Path(f"/proc/{pid}/statm").read_text().split()[1:3])
        return (resident - shared * alone) * os.sysconf("SC_PAGE_SIZE")
    return 0


def _status(name: str) -> int:
    for line in _STATUS.read_text().splitlines():
        if line.startswith(f"{name}:"):
            return int(line.split()[1]) << 10
    raise OSError(f"{_STATUS} has no {name}")


def _watch(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(1)
    os._exit(1)
