"""The sessions of a recording: its lines through the care and decoder that took them, on its own clock."""

from collections.abc import Sequence
from urllib.parse import parse_qs, urlsplit

import numpy as np

from feeds.capture_head import CaptureHead
from feeds.exchange import ExchangeOptions
from feeds.exchanges.registry import exchange
from feeds.raw_log import InstrumentText, Line
from feeds.session import Session
from feeds.statistics import FeedStatistics
from orderbook.errors import DataError, SourceError
from orderbook.events import EVENT, StateReason
from orderbook.instruments import Instrument, Instruments
from orderbook.problems import Problems


class CaptureSessions:
    """Takes lines one by one with `apply`, and gives what they make of them with `take`.

    asks: answers are given to books when their session asks for them, which is not before the exchange has
        acknowledged or sent something of the product; else where they stand in the recording.

    Raises SourceError where files state different ticks or lots of one instrument.
    """

    def __init__(self, head: CaptureHead, *, asks: bool = False) -> None:
        self._head = head
        self._asks = asks
        try:
            self.instruments = Instruments(head.instruments)
        except DataError as error:
            raise SourceError(f"{head.files[0]}: {error} in its files; read them apart") from error
        self._sessions: dict[str, Session] = {}
        self._places: dict[str, tuple[int, int]] = {}
        self._owed: dict[tuple[str, str], Line] = {}
        # As a file that has begun lists them, to be told with its first line.
        self._listed: dict[str, list[InstrumentText]] = {}
        self._replaced: list[FeedStatistics] = []
        self._valid: set[str] = set()
        self._taken: list[np.ndarray] = []
        self._latest: Session | None = None
        self._now = 0.0

    @property
    def statistics(self) -> FeedStatistics:
        """What all sessions have counted."""
        return FeedStatistics.total([*self._replaced, *(one.statistics for one in self._sessions.values())])

    def never_valid(self) -> Problems:
        """A problem for each product whose book was never valid, once all lines were applied."""
        found, sessions = Problems(), self._sessions.values()
        valid = self._valid.union(*(session.synchronised_products for session in sessions))
        for product in sorted({product for session in sessions for product in session.books} - valid):
            detail = "its book was never valid: the exchange's snapshot is not in the recording"
            found.add("no snapshot", f"{self._head.files[0].name} {product}", detail)
        return found

    @property
    def waiting_events(self) -> int:
        """How many events `take` would give."""
        return sum(map(len, self._taken)) + (0 if self._latest is None else self._latest.waiting_events)

    def take(self) -> np.ndarray:
        """EVENT[n]: the events since the last call, in order."""
        self._put_aside()
        parts, self._taken = self._taken, []
        if len(parts) == 1:
            return parts[0]
        return np.concatenate(parts) if parts else np.empty(0, EVENT)

    def apply(self, line: Line) -> list[Line]:
        """Hand a line to the session of its connection; the answers that were given to books by that."""
        time = line.time
        self._now = max(self._now, time / 1e9)
        if line.t == "session":
            self._begin(line)
            return []
        conn = self._head.markets.get(line.conn, "") if self._head.connections else line.conn
        session = self._sessions.get(conn)
        if session is None:
            kind = exchange(self._head.kind)
            instruments = [i for i in self._head.instruments if kind.market_of(i.native_symbol) == conn]
            if not self._head.connections or not instruments:
                return []
            options = ExchangeOptions(crossed_limit=0)
            session = self._sessions[conn] = self._session(self._head.kind, options, instruments)
        self._turn_to(session)
        if conn in self._listed:
            session.relisted(self._listed.pop(conn), time)
        match line.t:
            case "connect" if not session.open:
                session.connected(time)
            case "disconnect":
                session.ended(StateReason(line.state), line.reason, time)
            case "recv":
                session.frame(line.payload, time)
            case "instruments":
                session.relisted(line.instruments, time)
            case "http":
                product = self.product(session, line.url)
                if product is not None:
                    self._owed[conn, product] = line
        given = self._answer(conn, session, time) if self._owed else []
        session.commands()
        return given

    def end(self, time: int) -> None:
        """The recording is through: books that were followed are STALE."""
        for session in self._sessions.values():
            if session.open:
                self._turn_to(session)
                session.ended(StateReason.DISCONNECTED, "the recording has ended", time)

    def product(self, session: Session, url: str) -> str | None:
        """The product whose snapshot a request asks for."""
        if not session.by_request:
            return None
        wanted = place(url)
        return next((p for p in session.books if place(session.snapshot_url(p)) == wanted), None)

    def product_of(self, url: str) -> str | None:
        """The same, of any session."""
        found = (self.product(session, url) for session in self._sessions.values())
        return next((product for product in found if product is not None), None)

    def _begin(self, line: Line) -> None:
        """A file begins: the connection goes on, or another recording of it begins."""
        before = self._places.get(line.conn)
        self._places[line.conn] = line.run, line.part
        if line.part and before == (line.run, line.part - 1):
            return
        old = self._sessions.get(line.conn)
        if old is not None:
            self._turn_to(old)
            if old.open:
                old.ended(StateReason.DISCONNECTED, "the recording has ended", line.time)
            self._put_aside()
            self._replaced.append(old.statistics)
            self._valid |= old.synchronised_products
        instruments = [one.decoded for one in line.instruments]
        options = ExchangeOptions(depth=line.depth, crossed_limit=line.crossed_limit or 0)
        session = self._sessions[line.conn] = self._session(line.exchange, options, instruments)
        self._turn_to(session)
        self._listed[line.conn] = line.instruments
        if line.part and line.open:
            session.statistics.problems.add(
                "recording begins in between", line.conn, "books are unknown until the exchange sends them"
            )
            session.connected(line.time)
            session.commands()

    def _session(self, kind: str, options: ExchangeOptions, instruments: Sequence[Instrument]) -> Session:
        known = list(self.instruments)
        indexes = [known.index(one) for one in instruments]
        return Session(exchange(kind), self.instruments, indexes, options, lambda: self._now, seed=0)

    def _answer(self, conn: str, session: Session, time: int) -> list[Line]:
        given = []
        for (owner, product), line in list(self._owed.items()):
            if owner == conn and (session.wants_snapshot(product) or not self._asks):
                del self._owed[owner, product]
                session.answered(product, line.payload, time)
                given.append(line)
        return given

    def _turn_to(self, session: Session) -> None:
        if session is not self._latest:
            self._put_aside()
            self._latest = session

    def _put_aside(self) -> None:
        if self._latest is not None and self._latest.waiting_events:
            self._taken.append(self._latest.take())


def place(url: str) -> tuple[str, list[str] | None]:
    """What of an address says which book is meant: its path, and a symbol."""
    parts = urlsplit(url)
    return parts.path.strip("/"), parse_qs(parts.query).get("symbol")
