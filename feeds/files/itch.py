"""NASDAQ TotalView-ITCH 5.0: a day of every order of the exchange, from its binary files."""

from collections import Counter
from collections.abc import Collection, Iterator
from decimal import Decimal

import numpy as np
from numpy.typing import NDArray

from orderbook.core.errors import DataError, Problems, SourceError
from orderbook.feeds.byte_stream import Blocks, larger
from orderbook.feeds.event_writer import DEFAULT_BATCH_SIZE
from orderbook.feeds.files import itch_format
from orderbook.feeds.files.itch_decoder import (
    CONTEXT,
    COUNTS,
    EVENTS_OF_MESSAGE,
    EXAMPLES,
    INSTRUMENT,
    NO_DIRECTORY,
    NOT_CHOSEN,
    PROBLEMS,
    Count,
    Stop,
    decode,
)
from orderbook.feeds.files.itch_format import midnight_of, stock_directory
from orderbook.feeds.storage import Place
from orderbook.market import order_table
from orderbook.market.block_memory import Memory
from orderbook.market.contract_terms import SHARE
from orderbook.market.events import EVENT, Action, BookState, Events, Flag, Side, StateReason
from orderbook.market.instruments import Instrument, Instruments

VENUE = "nasdaq"
TICK = Decimal("0.0001")

_PROBLEMS = {
    Count.UNKNOWN_TYPE: ("unknown message type", "skipped"),
    Count.NO_DIRECTORY: ("locate without directory", "no directory message before the first order"),
    Count.UNKNOWN_ORDER: ("unknown order", "it is in no book"),
    Count.MALFORMED: ("malformed message", "a side that is neither B nor S"),
}
_COUNTS = {
    Count.BROKEN_TRADE: "broken trades",
    Count.NOT_PRINTABLE: "executions not printed",
    Count.EMPTY_CROSS: "crosses without volume",
}


class ItchSource:
    """One day of ITCH as L3 events: prices in ticks of $0.0001, volumes in shares, plain, gzip or zstd.

    Instruments are the stocks of the directory at the file's head, or `symbols` of them; what
    concerns a stock that is not in it is skipped and counted. `sequence` is the message's number, from 1;
    both times are the exchange's, on the day of the file's name or of `date` (ISO). An order's
    `broker_id` is its attribution, see `mpid_number`.

    An execution is an EXECUTE, and a TRADE unless the exchange does not print it; trades of hidden orders
    and crosses are TRADEs alone, with Side.NONE as their aggressor is not told. A replaced order leaves, and
    its successor joins. A book is VALID while its stock trades, STALE while it is halted, paused or only
    quoted, and after system hours; it is cleared when messages start and end. Each message is one unit.

    Raises SourceError when the file is missing, is not ITCH from the day's start, or lacks one of `symbols`,
    or its day is unknown; when it is truncated or corrupt, after everything before that.
    """

    def __init__(
        self,
        path: Place,
        symbols: Collection[str] | None = None,
        date: str | None = None,
        batch_size: int = DEFAULT_BATCH_SIZE,
    ):
        self.name = f"itch:{path}"
        self.problems = Problems()
        self.counts: Counter[str] = Counter()
        self._blocks = Blocks(path)
        self._batch_size = max(batch_size, EVENTS_OF_MESSAGE)
        self._midnight = midnight_of(path, date)
        directory = stock_directory(path)
        if symbols is not None and (missing := sorted(set(symbols) - set(directory.values()))):
            raise SourceError(f"{path}: no stock {', '.join(missing)} in the directory; correct the symbols")
        self._indexes = np.full(itch_format.SYMBOLS, NO_DIRECTORY, np.int32)
        instruments: list[Instrument] = []
        for locate, symbol in sorted(directory.items()):
            chosen = symbols is None or symbol in symbols
            self._indexes[locate] = len(instruments) if chosen else NOT_CHOSEN
            if chosen:
                instruments.append(Instrument(VENUE, symbol, symbol, TICK, Decimal(1), terms=SHARE))
        try:
            self.instruments = Instruments(instruments)
        except DataError as error:
            raise SourceError(f"{path}: the stock directory contradicts itself: {error}") from error

    @property
    def progress(self) -> float:
        """Fraction of the file's bytes read."""
        return self._blocks.progress

    def __iter__(self) -> Iterator[Events]:
        self.problems.clear()
        self.counts.clear()
        decoder = _Decoder(self._indexes, len(self.instruments), self._midnight, self._batch_size)
        try:
            for block in larger(self._blocks):
                yield from decoder.block(block)
                decoder.report(self.problems, self.counts)
                if decoder.damage:
                    break
            yield from decoder.rest()
        finally:
            decoder.report(self.problems, self.counts)
        if damage := self._blocks.cut or decoder.damage or decoder.incomplete:
            raise SourceError(
                f"{self._blocks.path}: {damage}, after message {decoder.messages}; "
                "everything before it was read; get the whole file again"
            )


class _Decoder:
    """Blocks of bytes in, EVENT batches out; `damage` says what ended it before the bytes did."""

    def __init__(self, indexes: NDArray[np.int32], instruments: int, midnight: int, batch_size: int) -> None:
        self.damage: str | None = None
        self._batch_size = batch_size
        self._memory = Memory()
        self._counts = np.zeros(COUNTS, np.int64)
        self._examples = np.zeros((PROBLEMS, EXAMPLES), np.int64)
        self._instruments = np.zeros(instruments, INSTRUMENT)
        self._indexes = indexes
        self._contexts = np.zeros(1, CONTEXT)
        self._context = self._contexts[0]
        self._context["midnight"] = midnight
        for name, array in (
            ("pool", self._memory.pool),
            ("indexes", self._indexes),
            ("instruments", self._instruments),
            ("counts", self._counts),
            ("examples", self._examples),
        ):
            self._context[name] = array.ctypes.data
        self._rest = b""
        self._ended = False
        self._position = 0
        self._out, self._written = np.empty(batch_size, EVENT), 0

    @property
    def messages(self) -> int:
        """How many messages were decoded."""
        return int(self._context["message"])

    @property
    def incomplete(self) -> str | None:
        """What is wrong with the end of the bytes so far, None where they end with a message."""
        if self._rest:
            return f"truncated within a message at byte {self._position} of its content"
        return None

    def block(self, block: bytes) -> Iterator[Events]:
        """Decode the messages that the next bytes complete."""
        if self._ended:
            if block.strip(b"\0"):
                self.damage = f"bytes follow the end of the session at byte {self._position} of its content"
            return
        data = np.frombuffer(self._rest + block, np.uint8)
        start = 0
        while True:
            out = self._out[self._written :]
            position, written = decode(data, start, len(data), out, self._contexts)
            self._position += position - start
            self._written += written
            start = position
            stop = Stop(int(self._context["stop"]))
            if stop is Stop.OUTPUT_FULL:
                yield self._take()
            elif stop is Stop.NEEDS_MEMORY:
                self._memory.grow()
            elif stop is Stop.SYSTEM_EVENT:
                end = start + itch_format.FRAME + int(itch_format.LENGTHS[ord("S")])
                yield from self._system_event(data[start + itch_format.FRAME : end].tobytes())
                self._position += end - start
                start = end
            else:
                break
        self._rest = data[start:].tobytes()
        self._stopped(stop)

    def rest(self) -> Iterator[Events]:
        """The events that are left at the end."""
        if self._written:
            yield self._take()

    def report(self, problems: Problems, counts: Counter[str]) -> None:
        """State what was counted since the start, or the last report."""
        for count, (kind, detail) in _PROBLEMS.items():
            number, known = int(self._counts[count]), problems.counts[kind]
            for message in self._examples[count, min(known, EXAMPLES) : min(number, EXAMPLES)].tolist():
                problems.add(kind, f"message {message}", detail)
            problems.counts[kind] = number
            if not number:
                del problems.counts[kind]
        for count, kind in _COUNTS.items():
            if number := int(self._counts[count]):
                counts[kind] = number

    def _take(self) -> Events:
        batch = self._out[: self._written]
        self._out, self._written = np.empty(self._batch_size, EVENT), 0
        return batch

    def _stopped(self, stop: Stop) -> None:
        if stop is Stop.SESSION_END:
            self._ended = True
            rest, self._rest = self._rest, b""
            list(self.block(rest))
        elif stop is Stop.WRONG_LENGTH:
            kind = chr(self._rest[itch_format.FRAME])
            length = int.from_bytes(self._rest[: itch_format.FRAME], "big")
            self.damage = (
                f"corrupt at byte {self._position} of its content: a message of type {kind} has "
                f"{itch_format.LENGTHS_BY_TYPE[kind]} bytes, not {length}"
            )

    def _system_event(self, message: bytes) -> Iterator[Events]:
        """Apply what concerns all books: messages start or end, or trading ends for the day."""
        self._context["message"] += 1
        code = message[itch_format.EVENT_CODE]
        if code in (itch_format.START_OF_MESSAGES, itch_format.END_OF_MESSAGES):
            chosen = np.arange(len(self._instruments))
            reason = StateReason.RESET if code == itch_format.START_OF_MESSAGES else StateReason.CLOSED
            actions = [(Action.STATE, BookState.SYNCING, reason), (Action.CLEAR, 0, 0)]
            self._instruments["status"] = 0
            order_table.clear(self._memory.pool.ctypes.data, self._context)
        elif code == itch_format.END_OF_SYSTEM_HOURS:
            chosen = np.flatnonzero(self._instruments["reason"] == StateReason.SYNCHRONISED)
            actions = [(Action.STATE, BookState.STALE, StateReason.CLOSED)]
        else:
            return
        if not len(chosen):
            return
        yield from self.rest()
        events = np.zeros(len(chosen) * len(actions), EVENT)
        time = int(self._context["midnight"]) + int.from_bytes(
            message[itch_format.TIME : itch_format.EVENT_CODE], "big"
        )
        events["exchange_time"] = events["receive_time"] = time
        events["sequence"] = self.messages
        events["instrument"] = np.repeat(chosen, len(actions))
        events["side"] = Side.NONE
        for place, (action, state, number) in enumerate(actions):
            part = events[place :: len(actions)]
            part["action"], part["volume"], part["order_id"] = action, state, number
        events["flags"][-1] = Flag.LAST
        self._instruments["reason"][chosen] = StateReason.CLOSED
        yield events
