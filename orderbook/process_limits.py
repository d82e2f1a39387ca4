"""What a process that works for clients may take: memory, seconds, and no longer life than who asked it.

Linux counts what a process has of its own against RLIMIT_DATA (setrlimit(2), since Linux 4.7); other systems
may ignore it.
"""

import os
import resource
import signal
import threading
import time
from contextlib import suppress
from pathlib import Path

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
    processor = int(seconds) + 1
    resource.setrlimit(resource.RLIMIT_CPU, (processor, processor + 1))
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.alarm(processor + 1)


def end_with_parent() -> None:
    """Nobody waits for the answer when the process that asked is gone."""
    parent = os.getppid()
    threading.Thread(target=_watch, args=(parent,), daemon=True).start()


def memory_of(pid: int) -> int:
    """Bytes of a process that are in memory, 0 where the system does not tell."""
    with suppress(OSError, ValueError, IndexError):
        pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE")
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
