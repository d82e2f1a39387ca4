"""One book of a feed: its messages as units of events, and its state."""

from collections.abc import Iterable
from decimal import Decimal

import numpy as np

from orderbook.core.errors import DataError
from orderbook.feeds.event_writer import EventWriter
from orderbook.feeds.source import FeedStatistics
from orderbook.feeds.text_values import WireNumbers
from orderbook.market.events import Action, BookState, Flag, Side, StateReason
from orderbook.market.instruments import Instruments

_SNAPSHOT = int(Flag.SNAPSHOT)
_LARGEST = 2**63 - 1
# With fewer levels the numbers that are remembered are faster than what converts many at once.
_MANY = 6
# (price, size) as the exchange writes them.
WireLevels = Iterable[tuple[str, str]]


class FeedBook:
    """What an exchange's protocol says about one book, written as events.

    `begin` opens a unit, the methods after it add events, `end` closes it; `undo` takes back what was added
    since `begin`, for a message that turns out unusable. `ticks` and `lots` convert wire text to the
    instrument's units and raise DataError; what is off its tick or lot is the exchange's truth: it is
    counted, and kept. `state` is what the events said last.
    """

    def __init__(
        self, instruments: Instruments, instrument: int, events: EventWriter, statistics: FeedStatistics
    ) -> None:
        self._one = one = instruments[instrument]
        self.product = one.native_symbol
        self.ticks = WireNumbers(one.ticks, one.tick_scale, one.tick_units)
        self.lots = WireNumbers(one.lots, one.lot_scale, one.lot_units)
        self._scales = np.array([one.tick_scale, one.lot_scale, one.tick_units, one.lot_units])
        self.state = BookState.SYNCING
        self.sequence = 0
        self._instrument = instrument
        self._events = events
        self._statistics = statistics
        self._latest = self._exchange_time = self._receive_time = self._flags = 0

    def begin(
        self,
        exchange_time: int,
        receive_time: int,
        sequence: int = 0,
        *,
        snapshot: bool = False,
        apart: bool = False,
    ) -> None:
        """Open a unit: times in ns, the exchange's sequence number.

        `apart`: of a stream (trades) whose times the exchange does not order with the book's.
        Raises DataError for numbers that events cannot hold.
        """
        if not (-_LARGEST <= exchange_time <= _LARGEST and -_LARGEST <= sequence <= _LARGEST):
            raise DataError("a time or sequence number does not fit 64 bits")
        if exchange_time and not snapshot and not apart:
            if exchange_time < self._latest:
                behind = f"{self._latest - exchange_time} ns"
                self._statistics.problems.add("exchange clock backwards", self.product, behind)
            self._latest = exchange_time
        self._exchange_time, self._receive_time, self.sequence = exchange_time, receive_time, sequence
        self._flags = _SNAPSHOT if snapshot else 0

    def end(self) -> None:
        """Close the unit."""
        self._events.end_unit()

    def undo(self) -> None:
        """Take back the unit's events."""
        self._events.undo()

    def add(self, action: Action, side: Side, *, order_id: int = 0, price: int = 0, volume: int = 0) -> None:
        """Add an event; price and volume in the instrument's units."""
        if (self.ticks.off or self.lots.off) and action != Action.STATE:
            self._count_off(price, volume)
        self._events.append(
            self._instrument,
            action,
            side,
            exchange_time=self._exchange_time,
            receive_time=self._receive_time,
            sequence=self.sequence,
            order_id=order_id,
            price=price,
            volume=volume,
            flags=self._flags,
        )

    def levels(self, side: Side, levels: WireLevels) -> None:
        """Set levels to their new volumes, wire text; "0" removes one. Raises DataError."""
        levels = levels if isinstance(levels, list) else list(levels)
        common = (
            self._instrument,
            side,
            self._flags,
            self._exchange_time,
            self._receive_time,
            self.sequence,
        )
        ticks, lots = self.ticks, self.lots
        off = self._events.extend_texts(levels, self._scales, *common) if len(levels) >= _MANY else -1
        if off < 0:
            self._events.extend_levels([(ticks[price], lots[size]) for price, size in levels], *common)
        if off > 0 or (off < 0 and (ticks.off or lots.off)):
            for price, size in levels:
                self._count_off(ticks[price], lots[size])

    def trade(self, trade_id: int, aggressor: Side, price: str, size: str) -> None:
        """Add a trade; price and size in wire text. Raises DataError."""
        self.add(Action.TRADE, aggressor, order_id=trade_id, price=self.ticks[price], volume=self.lots[size])

    def _count_off(self, price: int, volume: int) -> None:
        """Count a price or volume that is no multiple of the tick or lot."""
        one, problems = self._one, self._statistics.problems
        if price % one.tick_units:
            problems.add("off the tick", self.product, f"price {one.price(price):f}, tick {one.tick:f}")
        if volume % one.lot_units:
            problems.add("off the lot", self.product, f"volume {one.volume(volume):f}, lot {one.lot:f}")

    def clear(self) -> None:
        """Empty both sides."""
        self.add(Action.CLEAR, Side.NONE)

    def enter(self, state: BookState, reason: StateReason) -> None:
        """Add the state that the book has from now on."""
        self.state = state
        self.add(Action.STATE, Side.NONE, order_id=reason, volume=state)

    def change_steps(self, tick: Decimal, lot: Decimal, receive_time: int) -> bool:
        """The instrument has this tick and lot from now on, told by a unit of its own; False where it had.

        Raises DataError for what its units cannot tell.
        """
        one = self._one.with_steps(tick, lot)
        if (one.tick_units, one.lot_units) == (self._one.tick_units, self._one.lot_units):
            return False
        self._one = one
        self.ticks.change_step(one.tick_units)
        self.lots.change_step(one.lot_units)
        self._scales[2:] = one.tick_units, one.lot_units
        self.begin(0, receive_time, self.sequence)
        self.add(Action.INSTRUMENT, Side.NONE, price=one.tick_units, volume=one.lot_units)
        self.end()
        return True

    def become(self, state: BookState, reason: StateReason, receive_time: int) -> None:
        """Enter a state, as a unit of its own; syncing, the book is emptied."""
        self.begin(0, receive_time, self.sequence)
        self.enter(state, reason)
        if state is BookState.SYNCING:
            self.clear()
        self.end()
