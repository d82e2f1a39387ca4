"""What can go wrong with a log: damage, another owner, a disk that refuses."""

from pathlib import Path

from orderbook.errors import OrderbookError


class LogError(OrderbookError):
    """A log that cannot be trusted or written; one line with the file, the place and what to do.

    `file` is the file or folder; `offset` the byte in it, None where it is all of it.
    """

    def __init__(self, file: Path, problem: str, remedy: str, offset: int | None = None):
        where = f"{file}: " if offset is None else f"{file}: at byte {offset}: "
        super().__init__(f"{where}{problem}; {remedy}")
        self.file, self.offset = file, offset


def refused(file: Path, action: str, error: OSError, remedy: str) -> LogError:
    """What the operating system said, as a LogError."""
    return LogError(file, f"{action}: {error.strerror or error}", remedy)
