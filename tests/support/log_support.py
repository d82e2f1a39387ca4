"""What the tests of the log share: records that say which they are, and small logs on a CrashFiles."""

from collections.abc import Callable
from pathlib import Path

from crash_files import CrashFiles

from orderbook.engine.log.log import Log, SyncPolicy
from orderbook.engine.log.segments import Position, Record

FOLDER = Path("/disk/log")
IDENTITY = b"program 1"
SEGMENT = 300
POLICIES = {"batch": SyncPolicy(0), "interval": SyncPolicy(50), "never": SyncPolicy(None)}


def record(number: int, size: int = 20) -> Record:
    """A record that says which one it is."""
    return Record(1 + number % 3, 10**18 + number, -number, number, bytes([number % 256]) * size)


def opened(files: CrashFiles, policy: str = "batch", clock: Callable[[], int] = lambda: 0) -> Log:
    return Log.open(
        FOLDER, IDENTITY, policy=POLICIES[policy], segment_bytes=SEGMENT, files=files, clock=clock
    )


def numbers(log: Log, start: Position | None = None) -> list[int]:
    return [found.sequence for _, found in log.read(start)]


def all_contents(files: CrashFiles) -> dict[Path, bytes]:
    return {path: files.contents(path) for path in files.files()}


def written(files: CrashFiles, policy: str = "batch", count: int = 12) -> Log:
    """A log of three segments."""
    log = opened(files, policy)
    for number in range(count):
        log.append(record(number))
    return log
