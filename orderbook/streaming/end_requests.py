"""Requests for the end of an epoch, from a stream to who writes its block logs: a file beside each log."""

from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from orderbook.errors import SourceError
from orderbook.whole_files import replace_file

_FILE = "end-requested"


def request_end(folders: Iterable[Path], epoch: int) -> None:
    """Asks the switches of logs for the end of an epoch; nobody is asked where a folder cannot be written."""
    for folder in folders:
        with suppress(SourceError):
            replace_file(folder / _FILE, str(epoch).encode())


def requested_end(folder: Path) -> int:
    """The last epoch whose end a stream asked the switch of a log for, 0 where none did."""
    try:
        return int((folder / _FILE).read_bytes())
    except (OSError, ValueError):
        return 0
