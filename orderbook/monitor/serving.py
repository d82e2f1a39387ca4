"""The process of the monitor's server: `python -m orderbook.monitor.serving SOCKET LINE`, started by a run.

SOCKET and LINE are descriptors: of the socket that clients connect to, and of the line to the run. Standard
input has what `Access` takes: other users of the machine must not see a token among the arguments.
"""

import asyncio
import json
import logging
import socket
import sys

from orderbook.monitor.access import Access
from orderbook.monitor.letters import Logged
from orderbook.monitor.server import MonitorServer
from orderbook.processors import give_way

# Where both want a processor, the run has it.
_NICE = 5


class _RunLog(logging.Handler):
    """What is logged here goes to the run's log."""

    def __init__(self, server: MonitorServer) -> None:
        super().__init__(logging.WARNING)
        self._server = server

    def emit(self, record: logging.LogRecord) -> None:
        """See logging.Handler."""
        self._server.tell(Logged(record.levelno, self.format(record)))


def main(listening: int, line: int) -> None:
    """Serve until the run ends."""
    give_way(_NICE)
    access = Access(**json.load(sys.stdin))
    server = MonitorServer(access, socket.socket(fileno=listening), socket.socket(fileno=line))
    logging.getLogger().addHandler(_RunLog(server))
    asyncio.run(server.serve())


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
