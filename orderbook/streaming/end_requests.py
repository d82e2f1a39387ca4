"""Requests for the end of an epoch, from a stream to who writes its block logs: a file beside each log."""

from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from pathlib import Path

from orderbook.errors import OrderbookError
from orderbook.whole_files import replace_file

_FILE = "end-requested"


def request_end(folders: Iterable[Path], epoch: int) -> None:
    """Asks the switches of logs for the end of an epoch; nobody is asked where a folder cannot be written."""
    for folder in folders:
        with suppress(OrderbookError):
            replace_file(folder / _FILE, str(epoch).encode())


class EndRequests:
    """The requests that a stream makes of the logs in some folders, each followed at one stamp.

    followed: the epochs by those stamps; `note` is told of them before a request is followed, so that who
    writes the same logs again follows it at the same stamp.
    """

    def __init__(
        self,
        folders: Iterable[Path],
        followed: Mapping[int, int] | None = None,
        note: Callable[[Mapping[int, int]], None] = lambda _: None,
    ) -> None:
        self._folders, self._note, self._asked = tuple(folders), note, 0
        self.followed = dict(followed or {})

    def at(self, stamp: int, again: bool) -> int | None:
        """The epoch to be ended at a stamp; None: none is. again: as it was when these logs were written."""
        asked = self.followed.get(stamp, 0) if again else max(map(_requested, self._folders))
        if asked <= self._asked:
            return None
        self._asked = asked
        if not again:
            self.followed[stamp] = asked
            self._note(self.followed)
        return asked


def _requested(folder: Path) -> int:
    """The last epoch whose end a stream asked the switch of a log for, 0 where none did."""
    try:
        return int((folder / _FILE).read_bytes())
    except (OSError, ValueError):
        return 0
