"""The process of the monitor's server: `python -m orderbook.monitor.serving SOCKET LINE`, started by a run.

SOCKET and LINE are descriptors: of the socket that clients connect to, and of the line to the run. Standard
input has what `Access` takes: other users of the machine must not see a token among the arguments.
"""

import asyncio
import json
import logging
import socket
import sys
import time
from collections.abc import Callable

from orderbook.monitor.access import Access
from orderbook.monitor.letters import Logged
from orderbook.monitor.server import MonitorServer
from orderbook.processors import give_way

# Where both want a processor, the run has it.
_NICE = 5
_LOG_SECONDS = 1.0


class RunLog(logging.Handler):
    """What is logged here goes to the run's log, once a second; what clients bring about must not fill it."""

    def __init__(self, tell: Callable[[Logged], object]) -> None:
        super().__init__(logging.WARNING)
        self._tell, self._told_at, self._left_out = tell, -_LOG_SECONDS, 0

    def emit(self, record: logging.LogRecord) -> None:
        """See logging.Handler."""
        if (now := time.monotonic()) - self._told_at < _LOG_SECONDS:
            self._left_out += 1
            return
        text = self.format(record)
        if self._left_out:
            text = f"{text} ({self._left_out} messages before it were left out)"
        self._tell(Logged(record.levelno, text))
        self._told_at, self._left_out = now, 0


def main(listening: int, line: int) -> None:
    """Serve until the run ends."""
    give_way(_NICE)
    access = Access(**json.load(sys.stdin))
    server = MonitorServer(access, socket.socket(fileno=listening), socket.socket(fileno=line))
    logging.getLogger().addHandler(RunLog(server.tell))
    asyncio.run(server.serve())


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
