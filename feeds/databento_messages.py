"""One instrument's DBN records gathered to messages, and what its book's state is by them."""

from collections import Counter
from typing import Any

import databento_dbn as dbn

from feeds.databento_file import FINEST_TICK, UNDEFINED_PRICE, UNDEFINED_TIME
from feeds.event_writer import EventWriter
from orderbook.events import Action, BookState, Flag, Side, StateReason
from orderbook.problems import Problems

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

    def event(
        self, action: int, side: int, order_id: int = 0, price: int = 0, volume: int = 0
    ) -> None:
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
