"""Recorded sessions of an exchange, replayed through the care and the decoder that take them live.

`CaptureSessions` hands a recording's lines to its sessions, on its own clock; `CaptureSource` is a source of
their events, and `CapturePlayer` plays them as a live feed: frames come when they came, counted from now.
"""

import asyncio
import time
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import ClassVar
from urllib.parse import parse_qs, urlsplit

import numpy as np
from numpy.typing import NDArray

from orderbook.core.errors import DataError, Problems, SourceError
from orderbook.feeds.byte_stream import LineProblems, Lines, OrderedLines
from orderbook.feeds.event_writer import DEFAULT_BATCH_SIZE
from orderbook.feeds.exchanges.exchange import ExchangeOptions, exchange
from orderbook.feeds.live.session import Session
from orderbook.feeds.raw_log import InstrumentText, Line
from orderbook.feeds.recording.capture_files import CaptureHead, RecordedLines, read_head
from orderbook.feeds.source import FeedStatistics, counted
from orderbook.feeds.storage import Place, place, split_options
from orderbook.market.events import EVENT, Events, StateReason
from orderbook.market.instruments import Instrument, Instruments


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
        self._taken: list[Events] = []
        self._latest: Session | None = None
        self._now = 0.0

    @property
    def statistics(self) -> FeedStatistics:
        """What all sessions have counted."""
        return FeedStatistics.total([*self._replaced, *(one.statistics for one in self._sessions.values())])

    def never_valid(self) -> Problems:
        """A problem for each product whose book was never valid, once all lines were applied."""
        found, sessions = Problems(), [one for one in self._sessions.values() if one.tells_books]
        valid = self._valid.union(*(session.synchronised_products for session in sessions))
        for product in sorted({product for session in sessions for product in session.books} - valid):
            detail = "its book was never valid: the exchange's snapshot is not in the recording"
            found.add("no snapshot", f"{self._head.files[0].name} {product}", detail)
        return found

    @property
    def waiting_events(self) -> int:
        """How many events `take` would give."""
        return sum(map(len, self._taken)) + (0 if self._latest is None else self._latest.waiting_events)

    def take(self) -> Events:
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
        conn = self._conn(line)
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

    def apply_received(self, lines: Sequence[Line]) -> None:
        """Hand frames that came one after the other on one connection to its session, all together."""
        line = lines[0]
        conn = self._conn(line)
        session = self._sessions.get(conn)
        if session is None or conn in self._listed or self._owed:
            for line in lines:
                self.apply(line)
            return
        self._turn_to(session)
        times = [line.time for line in lines]

        def turn(place: int) -> None:
            self._now = max(self._now, times[place] / 1e9)

        session.frames_of([line.payload for line in lines], times, turn)
        session.commands()

    def _conn(self, line: Line) -> str:
        return self._head.markets.get(line.conn, "") if self._head.connections else line.conn

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
        wanted = book_address(url)
        return next((p for p in session.books if book_address(session.snapshot_url(p)) == wanted), None)

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


# Frames that are handed to a session together, and those of lines that were read together.
_FRAMES_TOGETHER, _LINES_TOGETHER = 64, 256


def _together(lines: Iterable[Line]) -> Iterator[list[Line]]:
    """Frames of one connection that follow one another, some at once; other lines one by one."""
    frames: list[Line] = []
    for line in lines:
        goes_on = line.t == "recv" and (not frames or line.conn == frames[0].conn)
        if frames and (not goes_on or len(frames) == _FRAMES_TOGETHER):
            yield frames
            frames = []
        if line.t == "recv":
            frames.append(line)
        else:
            yield [line]
    if frames:
        yield frames


def book_address(url: str) -> tuple[str, list[str] | None]:
    """What of an address says which book is meant: its path, and a symbol."""
    parts = urlsplit(url)
    return parts.path.strip("/"), parse_qs(parts.query).get("symbol")


class ReplayedLines(ABC):
    """Files of one product, given in any order, whose lines go to a session of its exchange in their order.

    changes: what `counts` calls messages that change the book. tells_books: whether there is a book at all.
    """

    changes: ClassVar[str]
    tells_books = True
    instruments: Instruments
    _instrument: Instrument

    def __init__(self, kind: str, paths: Sequence[Place], time: Callable[[bytes], int | None]) -> None:
        self._lines = OrderedLines(paths, time)
        self.name = _name(kind, [lines.path for lines in self._lines.files])
        self.problems = Problems()
        self.counts: Counter[str] = Counter()

    @property
    def progress(self) -> float:
        """Fraction of the files' bytes read."""
        return self._lines.progress

    def __iter__(self) -> Iterator[Events]:
        self.problems.clear()
        self.counts.clear()
        problems = LineProblems(self._lines, self.problems)
        replay = LineReplay(self._lines, problems, self._instrument, self.instruments)
        for lines in self._lines.groups():
            self._take_all(replay, lines)
            if replay.waiting_events >= DEFAULT_BATCH_SIZE:
                yield counted(replay.take(), self.counts, self.changes)
        events = replay.take()
        if len(events):
            yield counted(events, self.counts, self.changes)
        if self.tells_books and not self.counts["snapshots applied"]:
            detail = "its book was never valid: name the files before it, too, in which there is one"
            self.problems.add("no snapshot", self.name, detail)
        self._lines.raise_if_cut()

    def _take_all(self, replay: "LineReplay", lines: Sequence[bytes]) -> None:
        """Hand lines of the current file on, which follow one another."""
        file = self._lines.current
        for line in lines:
            file.number += 1
            self._take(replay, line)

    @abstractmethod
    def _take(self, replay: "LineReplay", line: bytes) -> None:
        """Hand a line on, or count what is wrong with it."""


class LineReplay:
    """The session of an instrument, and frames of lines that wait to be handed to it together.

    `begun` says whether there was a line with a time.
    """

    def __init__(
        self, lines: OrderedLines, problems: LineProblems, instrument: Instrument, instruments: Instruments
    ) -> None:
        self._lines, self._problems = lines, problems
        self._frames, self._times = list[bytes](), list[int]()
        self._places: list[tuple[Lines, int]] = []
        self._now = 0.0
        self.begun = False
        # No snapshot can be asked for: a book that stays crossed is told of by who reads the source.
        options, kind = ExchangeOptions(crossed_limit=0), exchange(instrument.venue)
        self._session = Session(kind, instruments, [0], options, lambda: self._now, seed=0)
        self._session.statistics.problems = problems

    @property
    def waiting_events(self) -> int:
        """How many events the session has, but for those of frames that wait."""
        return self._session.waiting_events

    def take(self) -> Events:
        """The events of all lines so far, EVENT[n]."""
        self._hand_over()
        return self._session.take()

    def begin(self, time: int) -> None:
        """There is a line of a time, ns."""
        if not self.begun:
            self.begun = True
            self._now = time / 1e9
            self._session.connected(time)

    def malformed(self, kind: str, detail: str) -> None:
        """The line at hand is counted as malformed."""
        self._hand_over()
        file, number = self._lines.place
        file.malformed(self._problems.behind, kind, detail, number)

    def at(self, time: int) -> Session:
        """The session, which has every frame before the line at hand, for what is no frame, at a time, ns."""
        self._hand_over()
        self._now = time / 1e9
        return self._session

    def frame(self, frame: bytes, time: int) -> None:
        """The line at hand is a frame that was received at a time, ns."""
        self._frames.append(frame)
        self._times.append(time)
        self._places.append(self._lines.place)
        if len(self._frames) == _FRAMES_TOGETHER:
            self._hand_over()

    def frames(self, frames: Sequence[bytes], times: Sequence[int]) -> None:
        """Lines of the current file that follow one another, up to that of its `number`, are frames, received
        at these times."""
        if not frames:
            return
        self._hand_over()
        self.begin(times[0])
        file = self._lines.current
        first = file.number - len(frames) + 1
        for start in range(0, len(frames), _LINES_TOGETHER):
            end = start + _LINES_TOGETHER
            line_of = partial(_line_of, file, first + start)
            self._give(frames[start:end], times[start:end], line_of)

    def _hand_over(self) -> None:
        if self._frames:
            self._give(self._frames, self._times, self._places.__getitem__)
            self._frames, self._times, self._places = [], [], []

    def _give(
        self, frames: Sequence[bytes], times: Sequence[int], line_of: Callable[[int], tuple[Lines, int]]
    ) -> None:
        def turn(place: int) -> None:
            self._now = times[place] / 1e9
            self._problems.line = line_of(place)

        self._session.frames_of(frames, times, turn)
        self._problems.line = None


def _line_of(file: Lines, first: int, place: int) -> tuple[Lines, int]:
    return file, first + place


def _name(kind: str, paths: Sequence[Place]) -> str:
    return f"{kind}:{paths[0]}" + (f" and {len(paths) - 1} more" if paths[1:] else "")


OPTIONS = ("exchange", "products")
_COUNTED = ("frames", "gaps", "resyncs")


class _Capture:
    """A recording and its sessions. path, kind, products: as of CaptureSource."""

    def __init__(
        self, path: Place | Path | Sequence[Place], kind: str | None, products: Sequence[str]
    ) -> None:
        self._head = read_head(path, kind, products)
        self._sessions = CaptureSessions(self._head)
        self.instruments = self._sessions.instruments
        self._lines = RecordedLines(self._head)
        self._never_valid = Problems()

    @property
    def statistics(self) -> FeedStatistics:
        """What the sessions have counted so far."""
        return self._sessions.statistics

    @property
    def problems(self) -> Problems:
        """What was wrong with the recording and its frames."""
        found = self.statistics.problems
        found.extend(self._lines.problems)
        found.extend(self._never_valid)
        return found


class CaptureSource(_Capture):
    """The events of a recorded session, whole messages, with the receive times of the recording.

    path: a recording of ours (its file, its folder, a glob of its files, or several of these), or of
        cryptofeed, of version 3 (JSON lines) or before (text); for the latter `kind` is the exchange's name
        in the registry and `products` its names for what to replay, where the recording does not tell.

    Nothing is waited for: snapshots are those of the recording. A file of ours that goes on from one that is
    missing has books that are SYNCING until the exchange sends a snapshot. Raises SourceError where the head
    names no exchange or product that is known; iterating, where a file is cut off, after all files were read.
    """

    def __init__(
        self, path: Place | Sequence[Place], kind: str | None = None, products: Sequence[str] = ()
    ) -> None:
        paths = list(path) if isinstance(path, Sequence) else [path]
        self.name = _name("capture", paths)
        self.counts: Counter[str] = Counter()
        super().__init__(paths, kind, products)

    @property
    def feeds(self) -> frozenset[str]:
        """Keys that it has in common with other recordings of the same feed."""
        return self._head.feeds

    @property
    def progress(self) -> float:
        """Fraction of the files' bytes read."""
        return self._lines.progress

    def __iter__(self) -> Iterator[Events]:
        self._sessions = sessions = CaptureSessions(self._head)
        self._never_valid.clear()
        for lines in _together(self._lines):
            if lines[0].t == "recv":
                sessions.apply_received(lines)
            else:
                sessions.apply(lines[0])
            if sessions.waiting_events >= DEFAULT_BATCH_SIZE:
                yield sessions.take()
        if sessions.waiting_events:
            yield sessions.take()
        found = self.statistics
        self.counts = Counter({name: getattr(found, name) for name in _COUNTED})
        self._never_valid = sessions.never_valid()
        self._lines.raise_if_cut()


def open_captures(*texts: str) -> CaptureSource:
    """Recordings of one feed, each written as PATH?exchange=NAME&products=A,B; the first's options count."""
    split = [split_options(text, OPTIONS) for text in texts]
    options = split[0][1]
    return CaptureSource([place(path) for path, _ in split], options.get("exchange"), products_of(options))


def products_of(options: dict[str, str]) -> tuple[str, ...]:
    """The products that an option names."""
    return tuple(options["products"].split(",")) if "products" in options else ()


# Lines and events that are handed over together, where they do not wait for their time.
_LINES_AT_ONCE, _EVENTS_AT_ONCE = 256, 4096
_HEAD = ("session", "header", "http")


class CapturePlayer(_Capture):
    """Iterates over EVENT arrays of whole messages, as LiveFeed does, until the recording is through.

    path, kind, products: as of CaptureSource.
    speed: frames come so many times as fast as they came; 0 as fast as they are taken.

    Its first connection is opened at once, so that feeds of recordings of different days begin together.
    Receive times are those of the playing, and exchange times are as far from them as in the recording: so
    latencies from the exchange are those recorded, and latencies behind the feed are those of this run.
    At the end the books are STALE. Raises SourceError as CaptureSource does.
    """

    def __init__(
        self, path: Path, kind: str | None = None, products: Sequence[str] = (), speed: float = 1.0
    ) -> None:
        super().__init__(path, kind, products)
        self._speed = speed
        # Of receive times, ns.
        self.clock: Callable[[], int] = time.time_ns

    async def __aiter__(self) -> AsyncIterator[Events]:
        sessions, pace = self._sessions, _Pace(self._speed)
        last = count = 0
        for line in self._lines:
            wait = pace.wait(line)
            count += 1
            if wait > 0 or count >= _LINES_AT_ONCE or sessions.waiting_events >= _EVENTS_AT_ONCE:
                count = 0
                if sessions.waiting_events:
                    yield _as_of(self.clock(), sessions.take())
                await asyncio.sleep(max(0.0, wait))
            sessions.apply(line)
            last = line.time
        sessions.end(last)
        self._never_valid = sessions.never_valid()
        if sessions.waiting_events:
            yield _as_of(self.clock(), sessions.take())
        self._lines.raise_if_cut()


class _Pace:
    """How long it is until a line's time, from the first line of a connection on."""

    def __init__(self, speed: float) -> None:
        self._speed = speed
        self._start = 0.0
        self._first: int | None = None

    def wait(self, line: Line) -> float:
        """Seconds from now; not above 0 where the line is due."""
        if self._first is None:
            if line.t in _HEAD:
                return 0.0
            self._first, self._start = line.time, time.monotonic()
        if not self._speed:
            return 0.0
        return self._start + (line.time - self._first) / 1e9 / self._speed - time.monotonic()


def _as_of(now: int, events: Events) -> Events:
    """The events with this receive time, and exchange times as far from it as they were."""
    sent: NDArray[np.int64] = events["exchange_time"]
    received: NDArray[np.int64] = events["receive_time"]
    shifted = events.copy()
    shifted["exchange_time"] = sent + np.where(sent != 0, now - received, 0)
    shifted["receive_time"] = now
    return shifted
