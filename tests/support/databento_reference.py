"""DBN files as events by Databento's own library, record by record: what the compiled decoder must equal."""

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

import databento_dbn as dbn
import numpy as np

from orderbook.core.errors import Problems, SourceError
from orderbook.feeds.event_writer import EventWriter
from orderbook.feeds.files.databento import DatabentoSource
from orderbook.feeds.files.databento_records import FINEST_TICK, UNDEFINED_PRICE, Mapping, RecordFile
from orderbook.market.events import Action, BookState, Flag, Side, StateReason

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
    return 0 if time >> 63 else time


_BID, _ASK, _NONE = int(Side.BID), int(Side.ASK), int(Side.NONE)
_SIDES = {dbn.Side.BID: _BID, dbn.Side.ASK: _ASK, dbn.Side.NONE: _NONE}
_ADD, _REDUCE, _MODIFY = int(Action.ADD), int(Action.REDUCE), int(Action.MODIFY)
_CLEAR, _LEVEL, _TRADE = int(Action.CLEAR), int(Action.LEVEL), int(Action.TRADE)
_BAD_BOOK, _TOP = int(dbn.F_MAYBE_BAD_BOOK), int(dbn.F_TOB)
_CODES = {
    dbn.Action.ADD: _ADD,
    dbn.Action.CANCEL: _REDUCE,
    dbn.Action.MODIFY: _MODIFY,
    dbn.Action.TRADE: _TRADE,
    dbn.Action.CLEAR: _CLEAR,
}


class DatabentoBook(InstrumentMessages):
    """The messages of an instrument, by the kind of their records. All of one kind are of one book."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._orders: dict[int, int] = {}
        self._tops: dict[int, int] = {}
        self._levels: tuple[dict[int, int], dict[int, int]] = ({}, {})

    def forget(self) -> None:
        self._orders.clear()
        self._tops.clear()
        self._levels = ({}, {})

    def order(self, record: Any) -> None:
        """A record of MBO. Fills change nothing, nor do trades: cancels follow them."""
        if not self.of_publisher(record):
            return
        flags = record.flags
        self.begin(record, record.sequence, flags)
        code = _CODES.get(record.action)
        if code == _ADD:
            self._add(record, flags)
        elif code == _REDUCE:
            self._cancel(record)
        elif code == _MODIFY:
            self._modify(record, flags)
        elif code == _TRADE:
            self._print(record)
        elif code == _CLEAR:
            self.forget()
            self.synchronised, self.doubt = True, StateReason.NONE
            self.event(_CLEAR, _NONE)
        if flags & _BAD_BOOK:
            self.doubt = StateReason.GAP
        self.end(flags & LAST != 0)

    def depth(self, record: Any) -> None:
        """A record of MBP: what happened, and the best levels after it."""
        if not self.of_publisher(record):
            return
        flags = record.flags
        self.begin(record, record.sequence, flags)
        if record.action == dbn.Action.TRADE:
            self._print(record)
        last = flags & LAST != 0
        if last or self._alone:
            self.synchronised = True
            self.doubt = StateReason.GAP if flags & _BAD_BOOK else StateReason.NONE
            self._difference(record)
        self.end(last)

    def trade(self, record: Any) -> None:
        """A record of trades, which are messages of their own."""
        self.begin(record, record.sequence, record.flags)
        self._print(record)
        self.end(True)

    def _add(self, record: Any, flags: int) -> None:
        side = _SIDES.get(record.side, _NONE)
        if side == _NONE:
            self.lose(record, "an order without a side")
            return
        order_id, price = _signed(record.order_id), record.price
        if flags & _TOP:
            # The venue tells its best order of a side alone: the new one stands for all.
            self.event(_CLEAR, side)
            top = self._tops.pop(side, None)
            if top is not None:
                self._orders.pop(top, None)
            self.synchronised = True
            if price == UNDEFINED_PRICE:
                return
            self._tops[side] = order_id
        ticks = self.ticks(price)
        if ticks is None:
            self.lose(record, f"price {price}e-9")
            return
        volume = record.size
        self._orders[order_id] = volume
        self.event(_ADD, side, order_id, ticks, volume)

    def _cancel(self, record: Any) -> None:
        order_id, volume = _signed(record.order_id), record.size
        left = self._orders.get(order_id)
        if left is None:
            self._unknown(record)
            return
        self.event(_REDUCE, _SIDES.get(record.side, _NONE), order_id, record.price // FINEST_TICK, volume)
        if left > volume:
            self._orders[order_id] = left - volume
        else:
            del self._orders[order_id]

    def _modify(self, record: Any, flags: int) -> None:
        order_id = _signed(record.order_id)
        if order_id not in self._orders:
            self._add(record, flags)
            return
        ticks, side = self.ticks(record.price), _SIDES.get(record.side, _NONE)
        if ticks is None or side == _NONE:
            self.lose(record, f"price {record.price}e-9 for order {record.order_id}")
            return
        self._orders[order_id] = record.size
        self.event(_MODIFY, side, order_id, ticks, record.size)

    def _print(self, record: Any) -> None:
        ticks = self.ticks(record.price)
        if ticks is None:
            self.problem("unusable trade", record, f"price {record.price}e-9")
        else:
            self.event(_TRADE, _SIDES.get(record.side, _NONE), 0, ticks, record.size)

    def _difference(self, record: Any) -> None:
        """The levels that are not what they were, those first that are no more."""
        levels: tuple[dict[int, int], dict[int, int]] = ({}, {})
        for pair in record.levels:
            sides = ((pair.bid_px, pair.bid_sz), (pair.ask_px, pair.ask_sz))
            for side, (price, size) in zip(levels, sides, strict=True):
                if price == UNDEFINED_PRICE or not size:
                    continue
                ticks = self.ticks(price)
                if ticks is None:
                    self.lose(record, f"price {price}e-9")
                else:
                    side[ticks] = size
        for side_number, (old, new) in enumerate(zip(self._levels, levels, strict=True)):
            for ticks in old:
                if ticks not in new:
                    self.event(_LEVEL, side_number, 0, ticks, 0)
        for side_number, (old, new) in enumerate(zip(self._levels, levels, strict=True)):
            for ticks, size in new.items():
                if old.get(ticks) != size:
                    self.event(_LEVEL, side_number, 0, ticks, size)
        self._levels = levels

    def _unknown(self, record: Any) -> None:
        if self.synchronised:
            self.problem("unknown order", record, f"order {record.order_id}")
        else:
            self._counts["records of orders from before the file"] += 1


def _signed(order_id: int) -> int:
    """An order's number of 64 bits as EVENT holds it."""
    return order_id - (1 << 64) if order_id >> 63 else order_id


_ALONE: tuple[str | None, ...] = (dbn.Schema.TRADES, dbn.Schema.TBBO)
_WITHOUT_BOOK: tuple[str | None, ...] = (dbn.Schema.TRADES, dbn.Schema.STATUS)
_APPLIERS = {
    dbn.MBOMsg: DatabentoBook.order,
    dbn.MBP1Msg: DatabentoBook.depth,
    dbn.MBP10Msg: DatabentoBook.depth,
    dbn.TradeMsg: DatabentoBook.trade,
    dbn.StatusMsg: DatabentoBook.status,
}


class ReferenceSource(DatabentoSource):
    """The same source, decoded by the library."""

    def __iter__(self) -> Iterator[np.ndarray]:
        self.problems.clear()
        self.counts.clear()
        self._current = self._files[0]
        for error in self._unread:
            self.problems.add("unreadable definitions", self._files[0].path.name, str(error))
        writer = EventWriter()
        books = self._books(writer)
        failures: list[SourceError] = []
        for number, (file, mappings) in enumerate(zip(self._files, self._mappings, strict=True)):
            self._enter(file, mappings)
            if number and (failures or self._files[number - 1].span[1] < file.span[0]):
                where = f"{self._files[number - 1].path.name}, {file.path.name}"
                self.problems.add("gap between files", where, "books are stale until they begin again")
                for book in books:
                    book.doubt = StateReason.GAP
            try:
                for record in file:
                    self._apply(record, books)
                    if len(writer) >= self._batch_size:
                        yield writer.take()
            except SourceError as error:
                failures.append(error)
        for book in books:
            book.finish()
        if len(writer):
            yield writer.take()
        for failure in failures:
            raise failure

    def _enter(self, file: RecordFile, mappings: Sequence[Mapping]) -> None:
        """Records are of this file from now on."""
        self._current = file
        self._intervals: dict[int, list[tuple[int, int, int]]] = {}
        for mapping in mappings:
            interval = (mapping.start, mapping.end, self._indexes[mapping.symbol])
            self._intervals.setdefault(mapping.instrument_id, []).append(interval)

    def _books(self, writer: EventWriter) -> list[DatabentoBook]:
        alone = self._schema in _ALONE
        sound = self._schema in _WITHOUT_BOOK
        return [
            DatabentoBook(index, tick, writer, self.problems, self.counts, alone=alone, sound=sound)
            for index, tick in enumerate(self._ticks)
        ]

    def _apply(self, record: Any, books: list[DatabentoBook]) -> None:
        apply = _APPLIERS.get(type(record))
        if apply is None:
            self._count(record)
            return
        time = record.ts_recv if record.ts_recv != dbn.UNDEF_TIMESTAMP else record.ts_event
        instrument_id = record.instrument_id
        intervals = self._intervals.get(instrument_id, ())
        index = next((index for start, end, index in intervals if start <= time < end), None)
        if index is None:
            self.problems.add("unmapped instrument", f"record {self._current.number}", f"id {instrument_id}")
            return
        book = books[index]
        if book.instrument_id != instrument_id:
            book.restart(record)
        apply(book, record)

    def _count(self, record: Any) -> None:
        if isinstance(record, dbn.ErrorMsg):
            self.problems.add("error record", f"record {self._current.number}", record.err)
        else:
            self.counts[f"records of {record.rtype}"] += 1
