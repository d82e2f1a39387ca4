"""The page of a run that is not there yet: books and trades, by a process beside it; the run's side.

`orderbook/commands/preview_page.py` is the process. It is started where the run does not serve its page
within two seconds, as while views are compiled, and at once where nothing was compiled before: before the run
has imported what it takes; so this module imports little.
"""

import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Event, Thread

# Seconds from the start of a command until the process is begun, where something was compiled before; between
# two words of how far the run is; in which the process gives back what it has listened on.
_AFTER, _BETWEEN, _PATIENCE = 2.0, 0.5, 3.0
# What comes with the socket, after a line with the page's address.
HANDED_OVER = b"\0"
_BYTES = 4096


class Preview:
    """Serves the monitor until `end`, from `after` seconds on."""

    def __init__(self, config: Path | None, feeds: Sequence[str], monitor: bool | None, after: float) -> None:
        self._arguments = json.dumps([None if config is None else str(config), list(feeds), monitor])
        self._after, self._start = after, time.monotonic()
        self._text, self._address = "", b""
        self._over = Event()
        self._line: socket.socket | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._thread = Thread(target=self._run, name="preview", daemon=True)
        self._thread.start()

    def tell(self, text: str) -> None:
        """How far the run is, for the page; "": nothing is known."""
        self._text = text

    def end(self) -> socket.socket | None:
        """It serves nothing any more; what it has listened on, None where that was nothing."""
        self._over.set()
        self._thread.join()
        line, self._line = self._line, None
        if line is None or self._process is None:
            return None
        with suppress(OSError):
            self._address += line.recv(_BYTES)
        if not self._address:
            # It listens on nothing yet, and is not waited for until it does.
            self._process.kill()
        with line, suppress(OSError):
            line.settimeout(_PATIENCE)
            line.shutdown(socket.SHUT_WR)
            given = b"."
            while given and given != HANDED_OVER:
                given, found, *_ = socket.recv_fds(line, 1, 1)
                if found:
                    return socket.socket(fileno=found[0])
        return None

    def close(self) -> None:
        """It is gone, and what it has listened on, too, where nobody has taken that."""
        if (left := self.end()) is not None:
            left.close()
        if self._process is None:
            return
        try:
            self._process.wait(_PATIENCE)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def _run(self) -> None:
        if self._over.wait(self._after):
            return
        own, theirs = socket.socketpair()
        with theirs:
            self._process = subprocess.Popen(
                [
                    sys.executable,
                    "-m",
                    "orderbook.commands.preview_page",
                    str(theirs.fileno()),
                    self._arguments,
                ],
                # What is compiled elsewhere is plain Python there.
                env={**os.environ, "NUMBA_DISABLE_JIT": "1", "PYTHONPATH": os.pathsep.join(sys.path)},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
                # Ctrl-C is for the run, which ends this.
                start_new_session=True,
            )
        self._line = own
        own.setblocking(False)
        with suppress(OSError):
            while not self._over.wait(_BETWEEN):
                own.sendall(f"{self._text or f'starting: {time.monotonic() - self._start:.0f} s'}\n".encode())
                if self._address.endswith(b"\n"):
                    continue
                with suppress(BlockingIOError):
                    self._address += own.recv(_BYTES)
                if self._address.endswith(b"\n"):
                    told = self._address.decode().strip()
                    print(f"monitor: {told} (books and trades; views follow)", flush=True)


def seconds_until() -> float:
    """How long a start may take without a preview: none that will compile everything, as far as is known."""
    folder = Path(os.environ.get("ORDERBOOK_CACHE") or Path.home() / ".cache" / "orderbook")
    try:
        return _AFTER if any(folder.iterdir()) else 0.0
    except OSError:
        return 0.0


@contextmanager
def previewed(config: Path | None, feeds: Sequence[str], monitor: bool | None) -> Iterator[Preview | None]:
    """What shows a page until a run does, where it is to have one as far as the command line says."""
    if monitor is False:
        yield None
        return
    preview = Preview(config, feeds, monitor, seconds_until())
    try:
        yield preview
    finally:
        preview.close()
