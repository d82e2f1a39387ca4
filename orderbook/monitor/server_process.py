"""The monitor's server as a run has it: a process, so that no client can keep the run's interpreter busy."""

import json
import socket
import subprocess
import sys
from contextlib import suppress

from orderbook.errors import OrderbookError
from orderbook.monitor_options import MonitorOptions
from orderbook.processors import step_aside

# Ports that are tried from the configured one on.
_PORTS = 20
# Connections that wait to be accepted.
_BACKLOG = 128
_SEND_BUFFER = 128 << 10
# Bytes on the line to the server; more waits in the run.
_LINE_BUFFER = 1 << 20
# Seconds in which clients are told that the run has ended.
_ENDING_SECONDS = 3.0


class ServerProcess:
    """Listens at once; serves after `start`. Raises OrderbookError where no port can be had."""

    def __init__(self, options: MonitorOptions) -> None:
        self._options = options
        self._socket = _listening(options.host, options.port)
        self.host, self.port = options.host, int(self._socket.getsockname()[1])
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        """The page's address."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"http://{host}:{self.port}/"

    @property
    def pid(self) -> int:
        """The process, once it is started."""
        assert self._process is not None
        return self._process.pid

    def start(self) -> socket.socket:
        """Serve from now on; gives the run's end of the line, at whose close the process ends."""
        own, theirs = socket.socketpair()
        own.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _LINE_BUFFER)
        with self._socket, theirs:
            ends = self._socket.fileno(), theirs.fileno()
            self._process = subprocess.Popen(
                [sys.executable, "-m", "orderbook.monitor.serving", *map(str, ends)],
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                pass_fds=ends,
                # Ctrl-C is for the run, which ends this.
                start_new_session=True,
            )
        step_aside(self._process.pid)
        assert self._process.stdin is not None
        # A process that ends at once is noticed at the line.
        with suppress(BrokenPipeError), self._process.stdin as pipe:
            options = self._options
            access = {"host": options.host, "token": options.token, "origin": options.origin}
            pipe.write(json.dumps(access).encode())
        return own

    def close(self) -> None:
        """Wait until clients know that the run has ended."""
        if self._process is None:
            self._socket.close()
            return
        try:
            self._process.wait(_ENDING_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


def _listening(host: str, port: int) -> socket.socket:
    problem: Exception | None = None
    for tried in range(port, min(port + _PORTS, 65536)) if port else [0]:
        try:
            family, *_, address = socket.getaddrinfo(host, tried, type=socket.SOCK_STREAM)[0]
            server = socket.create_server(address[:2], family=family, backlog=_BACKLOG)
        except (OSError, UnicodeError) as error:
            problem = error
            continue
        # What the system holds for a client that is slow is old when it gets there.
        server.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _SEND_BUFFER)
        return server
    raise OrderbookError(
        f"the monitor cannot be served at {host}:{port}: {problem}; choose another monitor.port or "
        "monitor.host, or --no-monitor"
    ) from problem
