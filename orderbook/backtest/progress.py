"""How far tasks of other processes are: small files in the job's folder, on which no result depends."""

import secrets
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

_FOLDER = "progress"
_SECONDS_BETWEEN = 1.0


@contextmanager
def told_by(folder: str) -> Iterator[Callable[[int], None]]:
    """A function by which a task tells how many events it has read, at most once a second."""
    path = Path(folder) / _FOLDER / secrets.token_hex(8)
    latest, due = 0, 0.0

    def told(count: int) -> None:
        nonlocal latest, due
        latest = count
        if (now := time.monotonic()) >= due:
            due = now + _SECONDS_BETWEEN
            _write(path, count)

    with suppress(OSError):
        path.parent.mkdir(exist_ok=True)
    yield told
    _write(path, latest)


def _write(path: Path, count: int) -> None:
    with suppress(OSError):
        path.write_text(str(count))


def reported(folder: str) -> int:
    """Events that all tasks have read, retried ones counted again; 0 where none has told yet."""
    total = 0
    with suppress(OSError):
        for path in (Path(folder) / _FOLDER).iterdir():
            with suppress(OSError, ValueError):
                total += int(path.read_text())
    return total


def forget_progress(folder: Path) -> None:
    """Delete what tasks have told."""
    with suppress(OSError):
        for path in (folder / _FOLDER).iterdir():
            path.unlink()
        (folder / _FOLDER).rmdir()


class Progress:
    """Turns a growing number into what has come since the last time."""

    def __init__(self) -> None:
        self._known = 0

    def grown(self, count: int) -> int:
        """How much more than at most before."""
        more = max(0, count - self._known)
        self._known += more
        return more
