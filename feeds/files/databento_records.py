"""DBN files: their records in order, whose instrument each is, what definitions state, and messages.

Source: Databento, "Databento Binary Encoding". The records are decoded by Databento's own library. One
instrument's records are gathered to messages, with what its book's state is by them.
"""

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime
from math import gcd
from typing import Any

import databento_dbn as dbn

from orderbook.core.errors import Problems, SourceError
from orderbook.feeds.byte_stream import Blocks
from orderbook.feeds.event_writer import EventWriter
from orderbook.feeds.storage import Place
from orderbook.market.events import Action, BookState, Flag, Side, StateReason
from orderbook.market.instruments import ContractType

UNDEFINED_PRICE = dbn.UNDEF_PRICE
UNDEFINED_TIME = dbn.UNDEF_TIMESTAMP
# Prices and quantities are in units of 1e-9, and the finest tick is 1e-8.
_ONE = 10**9
FINEST_TICK = 10
_ALL_TIME = (0, 2**63)
# A fragment has no metadata to tell its version; definitions grew with each, other market data did not.
_DEFINITION = 19
_VERSIONS = {360: 1, 400: 2, 520: 3}
_LATEST = 3


class RecordFile:
    """The records of a DBN file, plain, gzip or zstd; those of older versions as version 3 has them.

    `metadata` is None for a fragment. Iteration raises SourceError where the file is truncated or corrupt,
    after the records before that. Raises SourceError when the file is missing or does not begin as DBN.
    """

    def __init__(self, path: Place):
        self.path = path
        self.number = 0
        self._blocks = Blocks(path)
        first = next(self._decoded(), None)
        self.metadata = first if isinstance(first, dbn.Metadata) else None

    @property
    def progress(self) -> float:
        """Fraction of the file's bytes read."""
        return self._blocks.progress

    @property
    def span(self) -> tuple[int, int]:
        """The time that was asked for, ns since 1970 UTC: from, and before; all time where it is not told."""
        if self.metadata is None:
            return _ALL_TIME
        return self.metadata.start, self.metadata.end or _ALL_TIME[1]

    @property
    def begin(self) -> int:
        """When the first record is of, ns since 1970 UTC; 0 where there is none that can be read."""
        try:
            return next((int(record.ts_event) for record in self), 0)
        except SourceError:
            return 0

    @property
    def venue(self) -> str:
        """The dataset's first part."""
        return self.metadata.dataset.partition(".")[0].lower() if self.metadata is not None else "databento"

    @property
    def schema(self) -> str | None:
        """The kind of all records, None where it is not told."""
        return self.metadata.schema if self.metadata is not None else None

    def __iter__(self) -> Iterator[Any]:
        self.number = 0
        for record in self._decoded():
            if not isinstance(record, dbn.Metadata):
                self.number += 1
                yield record

    def _decoded(self) -> Iterator[Any]:
        decoder = None
        try:
            for block in self._blocks:
                if decoder is None and block:
                    decoder = _decoder(self.path, block)
                if decoder is not None:
                    yield from decoder.write_and_decode(block)
        except dbn.DBNError as error:
            self._end(f"not readable as DBN: {error}")
        if decoder is None or decoder.buffer() or self._blocks.cut:
            self._end(self._blocks.cut or "truncated within a record")

    def _end(self, reason: str) -> None:
        raise SourceError(
            f"{self.path}: {reason}, after record {self.number}; everything before it was read; "
            "get the whole file again"
        )


def _decoder(path: Place, start: bytes) -> dbn.DBNDecoder:
    whole = start.startswith(b"DBN")
    version = None
    if not whole and ".frag" not in path.name:
        raise SourceError(f"{path}: does not begin as DBN; check the path")
    if not whole and len(start) > 1:
        version = _VERSIONS.get(4 * start[0], _LATEST) if start[1] == _DEFINITION else _LATEST
    return dbn.DBNDecoder(has_metadata=whole, input_version=version)


@dataclass(frozen=True, slots=True)
class Mapping:
    """A symbol's numeric id, from `start` to before `end`, ns since 1970 UTC."""

    symbol: str
    instrument_id: int
    start: int
    end: int


def mappings_of(file: RecordFile) -> list[Mapping]:
    """Whose records are whose: by the metadata, else by the file's own mapping and definition records.

    Ids that none of them explains are their own symbols. Raises SourceError as iterating the file does.
    """
    metadata = file.metadata
    if metadata is not None and metadata.mappings:
        by_id = str(metadata.stype_in) == "instrument_id"
        return [
            _mapping(name, interval, by_id)
            for name, intervals in metadata.mappings.items()
            for interval in intervals
            if interval["symbol"]
        ]
    symbols: dict[int, str] = {}
    unexplained: set[int] = set()
    for record in file:
        if isinstance(record, dbn.SymbolMappingMsg):
            symbols[record.instrument_id] = record.stype_out_symbol or record.stype_in_symbol
        elif isinstance(record, dbn.InstrumentDefMsg):
            symbols[record.instrument_id] = record.raw_symbol
        elif not isinstance(record, dbn.SystemMsg | dbn.ErrorMsg):
            unexplained.add(record.instrument_id)
    for instrument_id in unexplained - symbols.keys():
        symbols[instrument_id] = str(instrument_id)
    return [Mapping(symbol, instrument_id, *_ALL_TIME) for instrument_id, symbol in sorted(symbols.items())]


def _mapping(name: str, interval: Any, by_id: bool) -> Mapping:
    symbol, number = (interval["symbol"], name) if by_id else (name, interval["symbol"])
    return Mapping(symbol, int(number), _start_of(interval["start_date"]), _start_of(interval["end_date"]))


def _start_of(day: date) -> int:
    return round(datetime(day.year, day.month, day.day, tzinfo=UTC).timestamp()) * 1_000_000_000


@dataclass(slots=True)
class Definition:
    """What definition records state of a symbol: its tick in 1e-9, 0 where none is, and its contract."""

    tick: int = 0
    contract: ContractType | None = None


def definitions_of(
    paths: list[Place], symbols: set[str], report: Callable[[SourceError], None]
) -> dict[str, Definition]:
    """Definitions of `symbols` from the records of files; the tick is one that fits all where they differ.

    An increment that is not stated, or is no multiple of 1e-8, is passed over. A file that cannot be read
    gives what it can, and its error to `report`.
    """
    found: dict[str, Definition] = {}
    for path in paths:
        try:
            for record in RecordFile(path):
                if not isinstance(record, dbn.InstrumentDefMsg) or record.raw_symbol not in symbols:
                    continue
                definition = found.setdefault(record.raw_symbol, Definition())
                definition.contract = _contract_of(record)
                tick = record.min_price_increment
                if 0 < tick < UNDEFINED_PRICE and tick % FINEST_TICK == 0:
                    definition.tick = gcd(definition.tick, tick)
        except SourceError as error:
            report(error)
    return found


def _contract_of(record: Any) -> ContractType:
    """Shares and currencies are traded as they are; derivatives by contracts of so many units."""
    if str(record.instrument_class) in ("K", "X"):
        return "linear"
    one_unit = str(record.instrument_class) == "F" and record.unit_of_measure_qty == _ONE
    return "linear" if one_unit else "multiplier"


# Events that may wait for the last record of their message.
MAXIMUM_WAITING = 1 << 20
LAST = int(dbn.F_LAST)
SNAPSHOT = int(dbn.F_SNAPSHOT)

_HALTED, _AUCTION, _CLOSED = StateReason.HALTED, StateReason.AUCTION, StateReason.CLOSED
# Why a market that does not trade does not, by what happened to it; without an entry nothing has.
_REASONS = {
    dbn.StatusAction.PRE_OPEN: _AUCTION,
    dbn.StatusAction.PRE_CROSS: _AUCTION,
    dbn.StatusAction.QUOTING: _AUCTION,
    dbn.StatusAction.CROSS: _AUCTION,
    dbn.StatusAction.ROTATION: _AUCTION,
    dbn.StatusAction.NEW_PRICE_INDICATION: _AUCTION,
    dbn.StatusAction.PRE_CLOSE: _AUCTION,
    dbn.StatusAction.HALT: _HALTED,
    dbn.StatusAction.PAUSE: _HALTED,
    dbn.StatusAction.SUSPEND: _HALTED,
    dbn.StatusAction.CLOSE: _CLOSED,
    dbn.StatusAction.POST_CLOSE: _CLOSED,
    dbn.StatusAction.NOT_AVAILABLE_FOR_TRADING: _CLOSED,
    dbn.StatusAction.TRADING: StateReason.NONE,
}
_State = tuple[BookState, StateReason]
_VALID: _State = (BookState.VALID, StateReason.SYNCHRONISED)
_SYNCING: _State = (BookState.SYNCING, StateReason.NONE)


class InstrumentMessages:
    """Collects the events of an instrument's open message, and hands them to `writer` at its last record.

    `instrument_id` is the id whose records are applied. With `alone` every record is a message, as in
    files of trades; `sound` says that books are not these records' concern, as there and in files of status.
    """

    def __init__(
        self,
        index: int,
        tick: int,
        writer: EventWriter,
        problems: Problems,
        counts: Counter[str],
        *,
        alone: bool,
        sound: bool,
    ) -> None:
        self.instrument_id: int | None = None
        self.synchronised = sound
        self.doubt = StateReason.NONE
        self._index, self._tick = index, tick
        self._writer, self._problems, self._counts = writer, problems, counts
        self._alone, self._sound = alone, sound
        self._waiting: list[tuple[int, ...]] = []
        self._publisher: int | None = None
        self._stated: _State = _SYNCING
        self._closed = StateReason.NONE
        self._record: Any = None
        self._exchange_time = self._receive_time = self._sequence = self._flags = 0

    def forget(self) -> None:
        """Nothing is known of the book's content any more."""

    def restart(self, record: Any) -> None:
        """The symbol is another instrument from this record on: the book begins again."""
        if self.instrument_id is not None:
            self.finish()
            self.forget()
            self._publisher, self.synchronised, self.doubt = None, self._sound, StateReason.NONE
            self._stated = (BookState.SYNCING, StateReason.RESET)
            self.begin(record, 0, 0)
            self.event(Action.STATE, Side.NONE, StateReason.RESET, 0, BookState.SYNCING)
            self.event(Action.CLEAR, Side.NONE)
            self._flush()
        self.instrument_id = record.instrument_id

    def status(self, record: Any) -> None:
        """A record of status: whether the instrument trades."""
        reason = _REASONS.get(record.action)
        if record.is_trading is not None:
            # Trading goes on before some changes of phase, and stops without one.
            reason = StateReason.NONE if record.is_trading else reason or _HALTED
        if reason is not None:
            self._closed = reason
        if not self._waiting:
            self.begin(record, 0, 0)
            self.end(True)

    def finish(self) -> None:
        """No more records of this instrument come."""
        if self._waiting:
            self._waiting.clear()
            self._problems.add("message without end", f"instrument {self.instrument_id}", "left out")

    def of_publisher(self, record: Any) -> bool:
        """Whether a record is of the book's own venue: another's orders make another book."""
        publisher = record.publisher_id
        if self._publisher is None:
            self._publisher = publisher
        if publisher == self._publisher:
            return True
        self.problem("second publisher", record, f"{publisher} beside {self._publisher}")
        return False

    def begin(self, record: Any, sequence: int, flags: int) -> None:
        """Events are of this record from now on."""
        self._record = record
        self._exchange_time, self._receive_time = _time(record.ts_event), _time(record.ts_recv)
        self._sequence = sequence
        self._flags = int(Flag.SNAPSHOT) if flags & SNAPSHOT else 0

    def event(self, action: int, side: int, order_id: int = 0, price: int = 0, volume: int = 0) -> None:
        """Add an event to the open message; price in 1e-8."""
        times = (self._exchange_time, self._receive_time, self._sequence)
        self._waiting.append((action, side, *times, order_id, price, volume, self._flags))

    def end(self, last: bool) -> None:
        """The record is through; `last` says that the message is, too."""
        if len(self._waiting) > MAXIMUM_WAITING and not last:
            self.lose(self._record, "a message of too many records")
            last = True
        if last or self._alone:
            self._state()
            self._flush()

    def ticks(self, price: int) -> int | None:
        """A price of 1e-9 in 1e-8, None where it is unset or finer; one between ticks is counted."""
        if price == UNDEFINED_PRICE or price % FINEST_TICK:
            return None
        if price % self._tick:
            self.problem("off the tick", self._record, f"price {price}e-9, tick {self._tick}e-9")
        return price // FINEST_TICK

    def lose(self, record: Any, detail: str) -> None:
        """A record of the book cannot be used: what the book shows is not the exchange's."""
        self.doubt = StateReason.MALFORMED
        self.problem("unusable record", record, detail)

    def problem(self, kind: str, record: Any, detail: str) -> None:
        """Count what is wrong with a record."""
        self._problems.add(kind, f"instrument {self.instrument_id} at {record.ts_event}", detail)

    def _state(self) -> None:
        """Says what the book's state has become, if it is another."""
        state = _VALID
        if not self.synchronised:
            state = self._stated if self._stated[0] is BookState.SYNCING else _SYNCING
        elif self.doubt:
            state = (BookState.STALE, self.doubt)
        elif self._closed:
            state = (BookState.STALE, self._closed)
        if state != self._stated:
            self._stated = state
            self.event(Action.STATE, Side.NONE, state[1], 0, state[0])

    def _flush(self) -> None:
        for place, event in enumerate(self._waiting, 1):
            action, side, exchange_time, receive_time, sequence, order_id, price, volume, flags = event
            self._writer.append(
                self._index,
                action,
                side,
                exchange_time=exchange_time,
                receive_time=receive_time,
                sequence=sequence,
                order_id=order_id,
                price=price,
                volume=volume,
                flags=flags | Flag.LAST if place == len(self._waiting) else flags,
            )
        self._waiting.clear()


def _time(time: int) -> int:
    return 0 if time == UNDEFINED_TIME else time
