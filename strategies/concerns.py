"""Which messages can matter to orders at work and to strategies' clocks, and a search for the next that does.

What lies between two of them goes through books and views in compiled loops: nothing of it can fill an order,
move it in its queue, bring anything to the exchange or back, or call a timer.
"""

from dataclasses import dataclass, field

import numpy as np

from engine.changes import ChangeBatch
from orderbook.book_state import WIDTH
from orderbook.books import ASKS_DELETE, ASKS_INSERT, BIDS_DELETE, BIDS_INSERT
from orderbook.events import EVENT, Action, Side
from orderbook.instruments import Instruments
from orderbook.jit import jit
from orderbook.memory import Record, load

# Times and prices before and beyond all others.
FIRST, LAST = -(2**63), 2**63 - 1

_DELETE, _REDUCE, _MODIFY, _EXECUTE = (
    int(action) for action in (Action.DELETE, Action.REDUCE, Action.MODIFY, Action.EXECUTE)
)
_LEVEL, _CLEAR, _TRADE = int(Action.LEVEL), int(Action.CLEAR), int(Action.TRADE)
_BID = int(Side.BID)
# The column of the price in changes of bids and asks.
_PRICE = 6

_ROW = np.dtype(
    [
        ("any", "i8"),         # whether anything matters; then as of a Concern
        ("every", "i8"),
        ("due", "i8"),
        ("arrival", "i8"),
        ("trades", "i8"),
        ("prints", "i8"),
        ("taken_bid", "i8"),
        ("taken_ask", "i8"),
        ("buy", "i8"),         # the highest of `buys`, the lowest of `sells`
        ("sell", "i8"),
        ("limits", "i8"),      # address of int64[buys + sells]
        ("buys", "i8"),        # how many there are
        ("sells", "i8"),
        ("tick_scale", "i8"),  # ticks times this are the price in changes
    ]
)


@dataclass(slots=True)
class Concern:
    """Which messages of one instrument matter.

    every: each. due: at this time of the run, ns, or later. arrival: sent by the exchange later than this.
    trades: those with a trade, since strategies are told of them. prints: where orders rest, trades fill, as
    no execution was seen yet. taken_bid, taken_ask: the lowest bid and the highest ask, in ticks, that orders
    have taken of. buys, sells: limits, in ticks, of orders that rest.
    """

    every: bool = False
    due: int = LAST
    arrival: int = LAST
    trades: bool = False
    prints: bool = False
    taken_bid: int = LAST
    taken_ask: int = FIRST
    buys: set[int] = field(default_factory=set)
    sells: set[int] = field(default_factory=set)


_NOTHING = Concern()


@dataclass(frozen=True, slots=True)
class Window:
    """Messages that went through books together.

    events: EVENT[n]. starts: int64[m + 1], where messages begin, and the end of the last. times: int64[m],
    ns, the run's at each. changes: of the books. offsets: int64[n + 1], where each event's changes begin, and
    the end of the last's.
    """

    events: np.ndarray
    starts: np.ndarray
    times: np.ndarray
    changes: ChangeBatch
    offsets: np.ndarray

    @property
    def count(self) -> int:
        """How many messages."""
        return len(self.times)

    def message(self, number: int) -> np.ndarray:
        """The events of a message."""
        return self.events[self.starts[number] : self.starts[number + 1]]


class Concerns:
    """What matters of each instrument; `due`: a message of any, at this time of the run, ns, or later."""

    def __init__(self, instruments: Instruments) -> None:
        self.due = LAST
        self._scales = [one.tick_scale for one in instruments]
        self._table = np.zeros(len(instruments), _ROW)
        self._noted = dict.fromkeys(range(len(instruments)), _NOTHING)
        # What the rows of the table point to.
        self._limits: dict[int, np.ndarray] = {}

    def note(self, instrument: int, one: Concern) -> None:
        """From now on this matters of an instrument, and nothing else."""
        if one == self._noted[instrument]:
            return
        self._noted[instrument] = one
        if one == _NOTHING:
            self._table[instrument]["any"] = 0
            return
        limits = self._limits[instrument] = np.array([*one.buys, *one.sells], np.int64)
        self._table[instrument] = (
            1, one.every, one.due, one.arrival, one.trades, one.prints, one.taken_bid, one.taken_ask,
            max(one.buys, default=FIRST), min(one.sells, default=LAST), limits.ctypes.data,
            len(one.buys), len(one.sells), self._scales[instrument],
        )  # fmt: skip

    def warm_up(self) -> None:
        """Compile the search."""
        nothing = ChangeBatch(np.empty(0, np.int16), np.empty(0, np.uint8), np.empty((0, WIDTH), np.int64))
        none = np.zeros(1, np.int64)
        self.next(Window(np.empty(0, EVENT), none, none[1:], nothing, none), 0)
        self.of_orders(np.empty(0, EVENT))

    def of_orders(self, events: np.ndarray) -> np.ndarray:
        """Those of EVENT[n] that can fill orders that rest, or move them in their queues."""
        return events[_of_orders(plain(events), self._table)]

    def next(self, window: Window, number: int) -> int:
        """The first message of a window that matters, from a number on; how many it has where none does."""
        changes = window.changes
        return int(_next(
            plain(window.events), window.starts, window.times, changes.kinds, changes.values, window.offsets,
            self._table, number, self.due,
        ))  # fmt: skip


def plain(events: np.ndarray) -> np.ndarray:
    """EVENT[n] as compiled code takes it."""
    return events if events.flags.c_contiguous and events.flags.writeable else events.copy()


@jit()
def _is_limit(row: Record, sells: bool, price: int) -> bool:
    """Whether own orders of a side rest at a price."""
    first, count = (row.buys, row.sells) if sells else (0, row.buys)
    found = False
    for place in range(first, first + count):
        found |= load(row.limits + 8 * place) == price
    return found


@jit()
def _event_matters(row: Record, event: Record, unchanged: bool) -> bool:
    """Whether an event does by what it says; `unchanged`: it has changed no book."""
    action, price, bid = event.action, event.price, event.side == _BID
    if action == _TRADE:
        return bool(row.trades) or (bool(row.prints) and (price <= row.buy or price >= row.sell))
    if row.buys + row.sells == 0:
        return False
    if action == _LEVEL:
        return _is_limit(row, not bid, price)
    if action == _EXECUTE:
        # The first one of an instrument says that prints do not fill.
        return bool(row.prints) or unchanged or (price <= row.buy if bid else price >= row.sell)
    # Of an order that the book does not know: it may be among those ahead still.
    unknown = unchanged and (action == _DELETE or action == _REDUCE or action == _MODIFY)
    return unknown or action == _CLEAR


@jit()
def _change_matters(row: Record, kind: int, price: int) -> bool:
    """Whether a change of the book, at a price in ticks, does: where it can be taken, where something was
    taken, or where orders leave those that own ones stand behind."""
    if kind == BIDS_INSERT:
        return price >= row.sell or price >= row.taken_bid
    if kind == ASKS_INSERT:
        return price <= row.buy or price <= row.taken_ask
    if kind == BIDS_DELETE:
        return price >= row.taken_bid or _is_limit(row, False, price)
    if kind == ASKS_DELETE:
        return price <= row.taken_ask or _is_limit(row, True, price)
    return False


@jit()
def _of_orders(events: np.ndarray, table: np.ndarray) -> np.ndarray:
    found = np.zeros(len(events), np.bool_)
    for place in range(len(events)):
        event = events[place]
        if 0 <= event.instrument < len(table):
            row = table[event.instrument]
            # Of an order that may be among those ahead the book says more than the event.
            found[place] = bool(row.any) and _event_matters(row, event, True)
    return found


@jit()
def _next(
    events: np.ndarray,
    starts: np.ndarray,
    times: np.ndarray,
    kinds: np.ndarray,
    values: np.ndarray,
    offsets: np.ndarray,
    table: np.ndarray,
    number: int,
    due: int,
) -> int:
    for message in range(number, len(times)):
        now = times[message]
        if now >= due:
            return message
        for place in range(starts[message], starts[message + 1]):
            event = events[place]
            if not 0 <= event.instrument < len(table):
                continue
            row = table[event.instrument]
            if not row.any:
                continue
            sent = event.exchange_time if event.exchange_time else event.receive_time
            if row.every or now >= row.due or sent > row.arrival:
                return message
            first, end = offsets[place], offsets[place + 1]
            if _event_matters(row, event, first == end):
                return message
            for change in range(first, end):
                if _change_matters(row, kinds[change], values[change, _PRICE] // row.tick_scale):
                    return message
    return len(times)
