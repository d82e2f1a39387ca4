"""Clients of each door, an honest one and hostile ones: `python -m benchmarks.doors_clients DOOR URL COUNT`.

Hostile ones attack, are refused or dropped, and come again, each in a thread of its own. Prints a line when
all are under way, and, when told to stop (SIGTERM), how often each kind of attack ended how.
"""

import base64
import json
import os
import select
import signal
import socket
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import suppress
from itertools import count
from typing import Any
from urllib.parse import urlsplit
from urllib.request import Request, urlopen

from pyarrow import ArrowException, flight
from websockets.exceptions import WebSocketException
from websockets.sync.client import ClientConnection, connect

from orderbook.core.processors import give_way

# What attackers compute must not slow down what is measured: they are on other machines.
_NICE, _PAUSE = 19, 0.02
_PATIENCE = 30.0
# A door ends it at the limit of time; another ends at the limit of what an answer may have.
_LONG = "SELECT SUM(a.range * b.range) FROM range(1000000) a, range(1000000) b"
_LARGE = "SELECT range, repeat('x', 100) AS text FROM range(100000000)"
_VIEW = "SELECT * FROM depth"


class Client:
    """Of a door at a URL: `honest` is answered or raises, the others are attacks and say how they ended."""

    def __init__(self, url: str) -> None:
        self.url = url
        parts = urlsplit(url)
        self._address = (parts.hostname or "", parts.port or 0)
        self._turns = count()

    def honest(self) -> None:
        """Reads a view."""
        raise NotImplementedError

    def never_reads(self) -> str:
        """Asks for much, and takes nothing."""
        raise NotImplementedError

    def largest(self) -> str:
        """Asks what takes most, again and again."""
        raise NotImplementedError

    def stalled(self) -> str:
        """Follows a view, and takes nothing."""
        raise NotImplementedError

    def half_open(self) -> str:
        """Sends the beginning of a first message."""
        with self.opened() as line:
            line.sendall(b"\0\0")
            return _closed(line)

    def garbage(self) -> str:
        """Sends what is no message."""
        with self.opened() as line:
            line.sendall(os.urandom(1 << 16))
            return _closed(line)

    def opens_and_closes(self) -> str:
        """Says nothing."""
        self.opened().close()
        return "closed"

    def opened(self) -> socket.socket:
        """A connection that has said nothing."""
        return socket.create_connection(self._address, _PATIENCE)

    def costly(self) -> str:
        """By turns one that takes long, one that gives much, and one that the run makes a copy for."""
        return (_LONG, _LARGE, _VIEW)[next(self._turns) % 3]


def _closed(line: socket.socket) -> str:
    """Waits until the other side closes."""
    while line.recv(1 << 16):
        pass
    return "closed by the door"


def _flooded(line: socket.socket, request: bytes) -> str:
    """Sends requests and takes no answers, until they are not taken any more."""
    line.settimeout(_PATIENCE)
    while True:
        line.sendall(request)


class Postgres(Client):
    """Of PostgreSQL."""

    def honest(self) -> None:
        with self._session() as line:
            self._query(line, _VIEW)

    def never_reads(self) -> str:
        with self._session() as line:
            return _flooded(line, self._message(_VIEW))

    def largest(self) -> str:
        with self._session() as line:
            while True:
                self._query(line, self.costly())

    def stalled(self) -> str:
        with self._session() as line:
            line.sendall(self._message("COPY (SUBSCRIBE depth WITH (PROGRESS)) TO STDOUT"))
            return _broken(line)

    def _session(self) -> socket.socket:
        line = self.opened()
        body = (196608).to_bytes(4, "big") + b"user\0orderbook\0database\0orderbook\0\0"
        line.sendall((len(body) + 4).to_bytes(4, "big") + body)
        self._ready(line)
        return line

    def _query(self, line: socket.socket, sql: str) -> None:
        line.sendall(self._message(sql))
        self._ready(line)

    @staticmethod
    def _message(sql: str) -> bytes:
        body = sql.encode() + b"\0"
        return b"Q" + (len(body) + 4).to_bytes(4, "big") + body

    @staticmethod
    def _ready(line: socket.socket) -> None:
        """Takes messages until the door waits for a query."""
        with line.makefile("rb") as file:
            while (kind := file.read(1)) != b"Z":
                if not kind:
                    raise ConnectionError("closed")
                file.read(int.from_bytes(file.read(4), "big") - 4)
            file.read(5)


def _broken(line: socket.socket) -> str:
    """Waits, without taking anything, until the connection is broken off."""
    # POLLHUP alone: what there is to take counts for nothing.
    poll = select.poll()
    poll.register(line, 0)
    poll.poll()
    return "broken off by the door"


class Flight(Client):
    """Of Arrow Flight."""

    def honest(self) -> None:
        with flight.connect(self.url) as client:
            client.do_get(flight.Ticket(b'{"view": "depth"}'), self._wait).read_all()

    def never_reads(self) -> str:
        with flight.connect(self.url) as client:
            sql = "SELECT range, repeat('x', 100) AS text FROM range(500000)"
            return self._untaken(client, {"sql": sql})

    def largest(self) -> str:
        with flight.connect(self.url) as client:
            while True:
                with suppress(ArrowException):
                    ticket = flight.Ticket(json.dumps({"sql": self.costly()}).encode())
                    client.do_get(ticket, self._wait).read_all()

    def stalled(self) -> str:
        with flight.connect(self.url) as client:
            return self._untaken(client, {"changes": "depth"})

    _wait = flight.FlightCallOptions(timeout=_PATIENCE)

    @staticmethod
    def _untaken(client: flight.FlightClient, wanted: Mapping[str, str]) -> str:
        readers = [client.do_get(flight.Ticket(json.dumps(wanted).encode())) for _ in range(4)]
        time.sleep(_PATIENCE)
        del readers
        return "given up"


class Mcp(Client):
    """Of the Model Context Protocol, over HTTP."""

    _HEADERS: Mapping[str, str] = {
        "Content-Type": "application/json", "Accept": "application/json, text/event-stream",
    }  # fmt: skip

    def honest(self) -> None:
        told = self._call(self._session(), _VIEW)
        if b"rows" not in told:
            raise ConnectionError(told[:200].decode(errors="replace"))

    def never_reads(self) -> str:
        body = self._body("tools/call", name="query", arguments={"sql": _VIEW})
        with self.opened() as line:
            return _flooded(line, self._raw("POST", self._session(), body))

    def largest(self) -> str:
        session = self._session()
        while True:
            self._call(session, self.costly())

    def stalled(self) -> str:
        with self.opened() as line:
            line.sendall(self._raw("GET", self._session(), b""))
            return _broken(line)

    def opens_and_closes(self) -> str:
        """Sessions, too."""
        self.opened().close()
        self._session()
        return "closed"

    def garbage(self) -> str:
        """By turns what is no HTTP, and a large request that is no message."""
        if next(self._turns) % 2:
            return super().garbage()
        with self.opened() as line:
            line.sendall(self._raw("POST", "", b"[" * (3 << 20)))
            return _closed(line)

    def _session(self) -> str:
        client = {"name": "client", "version": "1"}
        body = self._body("initialize", protocolVersion="2025-06-18", capabilities={}, clientInfo=client)
        with urlopen(Request(self.url, body, self._HEADERS), timeout=_PATIENCE) as answer:
            answer.read()
            return answer.headers.get("Mcp-Session-Id") or ""

    def _call(self, session: str, sql: str) -> bytes:
        body = self._body("tools/call", name="query", arguments={"sql": sql})
        headers = {**self._HEADERS, **self._named(session)}
        with urlopen(Request(self.url, body, headers), timeout=_PATIENCE) as answer:
            told: bytes = answer.read()
            return told

    @staticmethod
    def _named(session: str) -> dict[str, str]:
        named = {"Mcp-Protocol-Version": "2025-06-18"}
        return {**named, "Mcp-Session-Id": session} if session else named

    @staticmethod
    def _body(method: str, **parameters: Any) -> bytes:
        return json.dumps({"jsonrpc": "2.0", "id": 1, "method": method, "params": parameters}).encode()

    def _raw(self, method: str, session: str, body: bytes) -> bytes:
        host, port = self._address
        headers = {"Host": f"{host}:{port}", "Content-Length": str(len(body)), **self._HEADERS}
        lines = [f"{method} /mcp HTTP/1.1"]
        lines += [f"{name}: {value}" for name, value in {**headers, **self._named(session)}.items()]
        return "\r\n".join([*lines, "", ""]).encode() + body


class Page(Client):
    """Of the monitor's websockets."""

    def honest(self) -> None:
        with connect(self.url, open_timeout=_PATIENCE) as line:
            self._asked(line, _VIEW)

    def never_reads(self) -> str:
        with self._upgraded() as line:
            return _flooded(line, self._frame({"op": "sql", "id": 1, "sql": _VIEW}))

    def largest(self) -> str:
        with connect(self.url, open_timeout=_PATIENCE) as line:
            while True:
                self._asked(line, self.costly())

    def stalled(self) -> str:
        with self._upgraded() as line:
            for number in range(8):
                sql = f"SELECT symbol, orders + {number} AS n FROM depth"
                line.sendall(self._frame({"op": "follow", "id": number, "sql": sql}))
            return _broken(line)

    @staticmethod
    def _asked(line: ClientConnection, sql: str) -> None:
        line.send(json.dumps({"op": "sql", "id": 1, "sql": sql}))
        while json.loads(line.recv(_PATIENCE)).get("id") != 1:
            pass

    def _upgraded(self) -> socket.socket:
        """A connection on which frames are sent by hand, so that nothing is taken."""
        line = self.opened()
        host, port = self._address
        key = base64.b64encode(os.urandom(16)).decode()
        lines = ["GET /ws HTTP/1.1", f"Host: {host}:{port}", "Upgrade: websocket", "Connection: Upgrade"]
        lines += [f"Sec-WebSocket-Key: {key}", "Sec-WebSocket-Version: 13", "", ""]
        line.sendall("\r\n".join(lines).encode())
        return line

    @staticmethod
    def _frame(message: Mapping[str, Any]) -> bytes:
        """A frame of text, masked by zeros; RFC 6455."""
        body = json.dumps(message).encode()
        return b"\x81\xfe" + len(body).to_bytes(2, "big") + bytes(4) + body


DOORS: Mapping[str, type[Client]] = {"postgres": Postgres, "flight": Flight, "mcp": Mcp, "page": Page}


def main(door: str, url: str, clients: int) -> None:
    """Until told to stop."""
    give_way(_NICE)
    ended: Counter[str] = Counter()
    for number in range(clients):
        client = DOORS[door](url)
        attacks = {
            "never reads": client.never_reads,
            "half-open": client.half_open,
            "garbage": client.garbage,
            "opens and closes": client.opens_and_closes,
            "largest query": client.largest,
            "stalled subscription": client.stalled,
        }
        kind = list(attacks)[number % len(attacks)]
        threading.Thread(target=_attack, args=(kind, attacks[kind], ended), daemon=True).start()
    time.sleep(1.0)
    print("ready", flush=True)
    signal.sigwait([signal.SIGTERM])
    print(json.dumps(dict(sorted(ended.items()))), flush=True)
    # Attacks under way are not waited for.
    os._exit(0)


def _attack(kind: str, attack: Callable[[], str], ended: Counter[str]) -> None:
    while True:
        try:
            how = attack()
        except (OSError, ArrowException, WebSocketException) as error:
            how = type(error).__name__
        ended[f"{kind}: {how}"] += 1
        # As fast as a single attacker's connections go, without being a mere flood of them.
        time.sleep(_PAUSE)


if __name__ == "__main__":
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]))
