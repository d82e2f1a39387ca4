"""Writes recordings: raw frames as they were received, and beside them the normalised events.

A thread writes, so that no event loop waits for the disk. Raw lines go into one zstd stream that is flushed
at least once a second, so that a crash loses at most that, and a file that is cut reads up to the cut.

A `RawFile` is one zstd stream of raw lines that can be ended wherever it was flushed.
"""

import asyncio
import logging
import os
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import msgspec
import numpy as np
import pyarrow as pa
import zstandard

from orderbook.core.errors import OrderbookError, SourceError
from orderbook.feeds.exchanges.exchange import CONNECTIONS, EXCHANGES
from orderbook.feeds.raw_log import FORMAT, InstrumentText, Line, with_payload
from orderbook.feeds.recording.parquet_record import RecordWriter
from orderbook.market.crossed_books import CROSSED_LIMIT
from orderbook.market.events import Action, Events
from orderbook.market.instruments import Instrument, Instruments

SUFFIX = ".jsonl.zst"
_LEVEL = 3
# An empty last block, which ends a stream (without a checksum) after any flush: RFC 8878, section 3.1.1.2.
_END = b"\x01\x00\x00"


class RawFile:
    """Lines in one zstd stream; `size` is what was written, in bytes. Raises OSError where that fails."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.size = 0
        self._flushed = 0
        self._stream = zstandard.ZstdCompressor(level=_LEVEL, write_checksum=False).compressobj()
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644)

    def write(self, data: bytes) -> None:
        """Append to the stream; some of it may wait for the next `flush`."""
        self._put(self._stream.compress(data))

    def flush(self) -> None:
        """Hand everything to the operating system, as a place that the file can be read up to."""
        self._put(self._stream.flush(zstandard.COMPRESSOBJ_FLUSH_BLOCK))
        self._flushed = self.size

    def close(self) -> None:
        """End the stream and the file; where that fails, the file ends where it was flushed last."""
        try:
            self._put(self._stream.flush())
        except OSError:
            self.abandon()
            raise
        os.close(self._file)

    def abandon(self) -> None:
        """End the file where it was flushed last, after a failure; one that was not is removed."""
        try:
            if not self._flushed:
                # A folder with a file that holds no line at all would not replay.
                os.unlink(self.path)
            os.ftruncate(self._file, self._flushed)
            os.lseek(self._file, self._flushed, os.SEEK_SET)
            self.size = self._flushed
            if self._flushed:
                self._put(_END)
        finally:
            os.close(self._file)

    def _put(self, data: bytes) -> None:
        left = memoryview(data)
        while left:
            written = os.write(self._file, left)
            self.size += written
            left = left[written:]


# Bytes that may wait for the disk; with more, the feed is not read.
MOST_WAITING = 1 << 24
FLUSH_SECONDS = 1.0
# The thread looks so often for what waits; where that is more, at once.
_PAUSE_SECONDS, _MANY_BYTES = 0.05, 1 << 20
_ROOM_SECONDS = 0.01
# What a line takes beside its frame, about.
_LINE_BYTES = 100

_LOG = logging.getLogger("orderbook.feeds")
_encode = msgspec.json.Encoder().encode
_Item = Line | Events


@dataclass(frozen=True, slots=True)
class Rotation:
    """When a new file begins: above `size` bytes (of raw lines, compressed), or after `seconds`."""

    size: float = float("inf")
    seconds: float = float("inf")


@dataclass(slots=True)
class RecordingCounts:
    """What was written so far; `bytes` are those of raw files, compressed.

    lost: lines, and batches of events, that came after the disk had failed.
    """

    lines: int = 0
    frames: int = 0
    events: int = 0
    bytes: int = 0
    lost: int = 0
    files: list[Path] = field(default_factory=list)


class RawRecorder:
    """One feed's recording: `NAME-<UTC time>.jsonl.zst` files in a folder, and with `events` also `.parquet`.

    name: what the files are called after, the exchange.
    exchange, depth, crossed_limit: of the session lines; `exchange` is a name of the registry.
    instruments: those that events are of, None for no Parquet record.

    `connection` gives what a LiveFeed records to; `events` takes what it decodes. Nothing is dropped: where
    the disk is too slow the feed waits. Where it fails, the raw file is whole up to what was flushed before,
    and each call raises SourceError from then on; where the recording is not `needed`, that is a warning, the
    feed goes on without it, and `close` raises. A Parquet record has its name once its part is through; a
    crash leaves a `.partial` that cannot be read, while the raw file can.

    Rotation does not touch the feed: a new file's session lines say that it goes on, and read alone its
    books are SYNCING until the exchange sends a snapshot. All files of a folder together are one recording.

    Raises SourceError where the folder cannot be made.
    """

    def __init__(
        self,
        folder: Path,
        name: str,
        exchange: str,
        *,
        depth: int | None = None,
        crossed_limit: int = CROSSED_LIMIT,
        instruments: Instruments | None = None,
        rotation: Rotation | None = None,
        needed: bool = True,
        clock: Callable[[], int] = time.time_ns,
    ) -> None:
        self.counts = RecordingCounts()
        self._folder, self._name = folder, name
        self._exchange, self._depth, self._crossed_limit = exchange, depth, crossed_limit
        # With ticks and lots as of what is written, which a new file begins with.
        self._instruments = None if instruments is None else Instruments(instruments)
        self._rotation = rotation or Rotation()
        self._clock = clock
        self._needed = needed
        self._run = self._latest = clock()
        self._part = -1
        self._sessions: dict[str, Line] = {}
        self._raw: RawFile | None = None
        self._record: RecordWriter | None = None
        self._rotate_at = float("inf")
        self._ended_bytes = 0
        self._waiting: deque[_Item] = deque()
        self._waiting_bytes = 0
        self._changed = threading.Condition()
        self._closing = False
        self._failure: SourceError | None = None
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise _failed(folder, error) from error
        self._thread = threading.Thread(target=self._run_thread, name=f"record-{name}", daemon=True)
        self._thread.start()

    def connection(self, conn: str, instruments: Sequence[Instrument]) -> "ConnectionLog":
        """What a connection tells this recording; announce all before the first frame."""
        texts = [InstrumentText.of(one) for one in instruments]
        beside = conn.rpartition(".")[0]
        kind = beside if beside in CONNECTIONS and beside not in EXCHANGES else self._exchange
        line = Line("session", conn, exchange=kind, depth=self._depth, instruments=texts, format=FORMAT)
        line.crossed_limit = self._crossed_limit or None
        self.put(line, _LINE_BYTES * (1 + len(texts)))
        return ConnectionLog(self, conn)

    def events(self, events: Events) -> None:
        """EVENT[n], decoded from what was recorded; they are copied."""
        if self._instruments is not None:
            self.put(events.copy(), events.nbytes)

    def put(self, item: _Item, size: int) -> None:
        """Let the thread write a line or events of about `size` bytes. Raises SourceError where it failed."""
        with self._changed:
            if self._failure is not None:
                self._check()
                self.counts.lost += 1
                return
            self._waiting.append(item)
            self._waiting_bytes += size
            if self._waiting_bytes >= _MANY_BYTES:
                self._changed.notify()

    async def room(self) -> None:
        """Wait while more than MOST_WAITING bytes wait for the disk. Raises SourceError where it failed."""
        while self._waiting_bytes > MOST_WAITING and self._failure is None:
            await asyncio.sleep(_ROOM_SECONDS)
        self._check()

    def close(self) -> None:
        """Write what waits and end the files; it may take a while. Raises SourceError where it fails."""
        with self._changed:
            self._closing = True
            self._changed.notify()
        self._thread.join()
        if self._failure is not None:
            raise self._failure

    def _check(self) -> None:
        if self._failure is not None and self._needed:
            raise self._failure

    # In the thread.

    def _run_thread(self) -> None:
        failed = True
        try:
            self._write_all()
            failed = False
        except Exception as error:
            self._fail(self._folder if self._raw is None else self._raw.path, error)
        finally:
            self._end_files(failed)

    def _write_all(self) -> None:
        flush_at = time.monotonic() + FLUSH_SECONDS
        while True:
            with self._changed:
                if not self._closing and self._waiting_bytes < _MANY_BYTES:
                    self._changed.wait(_PAUSE_SECONDS)
                items, self._waiting = self._waiting, deque()
                size, closing = self._waiting_bytes, self._closing
            for item in items:
                self._write(item)
            with self._changed:
                # What is being written counts as waiting until here: memory is bounded by what is counted.
                self._waiting_bytes -= size
            if time.monotonic() >= flush_at:
                flush_at = time.monotonic() + FLUSH_SECONDS
                if self._raw is not None:
                    self._raw.flush()
                    self.counts.bytes = self._ended_bytes + self._raw.size
            if closing and not self._waiting:
                return

    def _write(self, item: _Item) -> None:
        if isinstance(item, Line) and item.t == "session":
            self._sessions[item.conn] = item
            if self._raw is not None:
                self._write_session(self._raw, item)
            return
        raw = self._raw
        if raw is not None and (raw.size >= self._rotation.size or time.monotonic() >= self._rotate_at):
            self._end_files()
            if self._failure is not None:
                raise self._failure
            raw = None
        if raw is None:
            raw = self._begin_files()
        if isinstance(item, Line):
            self._latest = item.time
            if item.t in ("connect", "disconnect"):
                self._sessions[item.conn].open = item.t == "connect"
            raw.write(_encode(item) + b"\n")
            self.counts.lines += 1
            self.counts.frames += item.t == "recv"
        elif self._record is not None and self._instruments is not None:
            self._record.write(item)
            for event in item[item["action"] == Action.INSTRUMENT]:
                self._change(self._instruments, event)
            self.counts.events += len(item)

    def _change(self, instruments: Instruments, event: np.void) -> None:
        """An instrument has another tick and lot from here on."""
        index = int(event["instrument"])
        instruments.change(index, int(event["price"]), int(event["volume"]))
        told = InstrumentText.of(instruments[index])
        for line in self._sessions.values():
            line.instruments = [told if told.names == own.names else own for own in line.instruments]

    def _write_session(self, raw: RawFile, line: Line) -> None:
        line.run, line.part, line.ts = self._run, self._part, self._latest
        raw.write(_encode(line) + b"\n")

    def _begin_files(self) -> RawFile:
        self._part += 1
        path = _free_path(self._folder, self._name, self._clock())
        self._raw = raw = RawFile(path)
        self.counts.files.append(path)
        self._rotate_at = time.monotonic() + self._rotation.seconds
        for line in self._sessions.values():
            self._write_session(raw, line)
        raw.flush()
        if self._instruments is not None:
            beside = path.with_name(path.name.removesuffix(SUFFIX) + ".parquet")
            self._record = RecordWriter(beside, self._instruments)
            self.counts.files.append(beside)
        return raw

    def _end_files(self, failed: bool = False) -> None:
        """End both files; after a failure as well as it goes."""
        raw, record = self._raw, self._record
        self._raw = self._record = None
        if raw is not None:
            try:
                (raw.abandon if failed else raw.close)()
            except OSError as error:
                self._fail(raw.path, error)
            self._ended_bytes += raw.size
            self.counts.bytes = self._ended_bytes
        if record is not None:
            try:
                record.close()
            except (OrderbookError, pa.ArrowException) as error:
                self._fail(record.path, error)

    def _fail(self, path: Path, error: Exception) -> None:
        if self._failure is not None:
            return
        # What a Parquet record says of the disk.
        cause = error.__cause__ if isinstance(error, OrderbookError) else None
        self._failure = _failed(path, cause if isinstance(cause, OSError) else error)
        if not self._needed:
            _LOG.warning("%s; the feed goes on", self._failure)


class ConnectionLog:
    """One connection's part in a recording; see orderbook.feeds.raw_log.RawLog."""

    def __init__(self, recorder: RawRecorder, conn: str) -> None:
        self._recorder = recorder
        self._conn = conn

    async def room(self) -> None:
        """See RawLog."""
        await self._recorder.room()

    def connected(self, url: str, time: int) -> None:
        """See RawLog."""
        self._recorder.put(Line("connect", self._conn, time, addr=url), _LINE_BYTES)

    def disconnected(self, reason: str, time: int, state: int) -> None:
        """See RawLog."""
        self._recorder.put(Line("disconnect", self._conn, time, reason=reason, state=state), _LINE_BYTES)

    def sent(self, text: str, time: int) -> None:
        """See RawLog."""
        self._recorder.put(Line("send", self._conn, time, text), _LINE_BYTES + len(text))

    def received(self, data: bytes, time: int) -> None:
        """See RawLog."""
        self._recorder.put(with_payload("recv", self._conn, time, data), _LINE_BYTES + len(data))

    def relisted(self, instruments: Sequence[InstrumentText], time: int) -> None:
        """See RawLog."""
        line = Line("instruments", self._conn, time, instruments=list(instruments))
        self._recorder.put(line, _LINE_BYTES * (1 + len(instruments)))

    def answered(self, url: str, data: bytes, time: int) -> None:
        """See RawLog."""
        line = with_payload("http", self._conn, time, data, url)
        self._recorder.put(line, _LINE_BYTES + len(data))


def _free_path(folder: Path, name: str, now: int) -> Path:
    """A file that is not there yet, called after the time in UTC."""
    while True:
        seconds, rest = divmod(now, 10**9)
        moment = time.strftime("%Y%m%dT%H%M%S", time.gmtime(seconds))
        path = folder / f"{name}-{moment}.{rest // 1000:06d}Z{SUFFIX}"
        if not path.exists():
            return path
        now += 1000


def _failed(path: Path, error: Exception) -> SourceError:
    number = error.errno if isinstance(error, OSError) else None
    reason = os.strerror(number) if number else str(error).partition("\n")[0]
    return SourceError(
        f"{path}: the recording ended: {reason}; what was written before is whole; "
        "make room or choose another folder"
    )
