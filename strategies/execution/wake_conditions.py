"""Which messages are to be told to orders at work and to strategies' clocks, and a loop to the next one.

What lies between two of them goes through books and views in compiled loops. There orders that rest follow
every message in their queues; one that fills an order, may let it meet displayed volume, brings anything to
the exchange or back, or calls a timer, is told.
"""

from dataclasses import dataclass, field

import numpy as np

from orderbook.core.changes import ChangeBatch
from orderbook.core.jit import jit
from orderbook.market.block_memory import Record, load
from orderbook.market.book_state import TOUCH, WIDTH
from orderbook.market.books import ASKS_INSERT, BIDS_INSERT
from orderbook.market.events import EVENT, Action, Events, Side, plain
from orderbook.market.instruments import Instruments
from orderbook.strategies.execution.account_orders import AccountOrders, ConsumedLiquidity
from orderbook.strategies.execution.queue_position import board_at, copied_board, follow, refresh, taken_at

# Times and prices before and beyond all others.
FIRST, LAST = -(2**63), 2**63 - 1

_CLEAR, _TRADE = int(Action.CLEAR), int(Action.TRADE)
# The column of the price in changes of bids and asks.
_PRICE = 6

_ROW = np.dtype(
    [
        ("any", "i8"),  # whether anything matters; then as of a WakeCondition
        ("every", "i8"),
        ("due", "i8"),
        ("arrival", "i8"),
        ("trades", "i8"),
        ("buy", "i8"),  # prices as changes have them
        ("sell", "i8"),
        ("boards", "i8"),  # address of int64[count], where boards are
        ("count", "i8"),
        ("message", "i8"),  # the number of the last message that they have followed
    ]
)


@dataclass(slots=True)
class WakeCondition:
    """Which messages of one instrument matter.

    every: each. due: at this time of the run, ns, or later. arrival: sent by the exchange later than this.
    trades: those with a trade, since strategies are told of them. buy, sell: the highest and the lowest
    limit, in ticks, of orders that rest. boards: where the BOARD of each account is that has orders there, or
    has taken displayed volume.
    """

    every: bool = False
    due: int = LAST
    arrival: int = LAST
    trades: bool = False
    buy: int = FIRST
    sell: int = LAST
    boards: list[int] = field(default_factory=list)


_NOTHING = WakeCondition()


@dataclass(frozen=True, slots=True)
class Window:
    """Messages that went through books together.

    events: EVENT[n]. starts: int64[m + 1], where messages begin, and the end of the last. times: int64[m],
    ns, the run's at each. changes: of the books. offsets: int64[n + 1], where each event's changes begin, and
    the end of the last's. touches: TOUCH[k], of the books that messages have changed, in their order.
    """

    events: np.ndarray
    starts: np.ndarray
    times: np.ndarray
    changes: ChangeBatch
    offsets: np.ndarray
    touches: np.ndarray

    @property
    def count(self) -> int:
        """How many messages."""
        return len(self.times)

    def message(self, number: int) -> np.ndarray:
        """The events of a message."""
        return self.events[self.starts[number] : self.starts[number + 1]]


class WakeConditions:
    """What matters of each instrument; `due`: a message of any, at this time of the run, ns, or later."""

    def __init__(self, instruments: Instruments) -> None:
        self.due = LAST
        self._scales = [one.tick_scale for one in instruments]
        self._table = np.zeros(len(instruments), _ROW)
        self._noted = dict.fromkeys(range(len(instruments)), _NOTHING)
        # What the rows of the table point to.
        self._boards: dict[int, np.ndarray] = {}
        # How many messages were followed.
        self._followed = np.zeros(1, np.int64)
        # Boards as they were before a message of a window, and before which one they are now.
        self._copy = np.empty(64, np.int64)
        self._copied = self._reached = 0

    def note(self, instrument: int, one: WakeCondition) -> None:
        """From now on this matters of an instrument, and nothing else."""
        if one == self._noted[instrument]:
            return
        self._noted[instrument] = one
        row = self._table[instrument]
        row["any"] = one != _NOTHING
        boards = self._boards[instrument] = np.array(one.boards, np.int64)
        scale = self._scales[instrument]
        row["every"], row["due"], row["arrival"], row["trades"] = one.every, one.due, one.arrival, one.trades
        row["buy"] = FIRST if one.buy == FIRST else one.buy * scale
        row["sell"] = LAST if one.sell == LAST else one.sell * scale
        row["boards"], row["count"] = boards.ctypes.data, len(boards)

    def warm_up(self) -> None:
        """Compile the loop."""
        nothing = ChangeBatch(np.empty(0, np.int16), np.empty(0, np.uint8), np.empty((0, WIDTH), np.int64))
        none = np.zeros(1, np.int64)
        self.next(Window(np.empty(0, EVENT), none, none[1:], nothing, none, np.empty(0, TOUCH)), 0)
        AccountOrders(0, 0).follow(np.empty(0, EVENT), 0)
        ConsumedLiquidity().keep(Side.BID, None, 0)

    def next(self, window: Window, number: int) -> tuple[int, bool]:
        """The first message of a window that matters, from a number on, and whether boards have followed it;
        how many it has where none does. Boards have followed those before."""
        needed = int(_copy(self._table, self._copy, False))
        if needed > len(self._copy):
            self._copy = np.empty(2 * needed, np.int64)
            _copy(self._table, self._copy, False)
        self._copied = number
        found = self._follow(window, number, window.count)
        followed = found < 0
        found = ~found if followed else found
        self._reached = found + followed
        return found, followed

    def rewind(self, window: Window, number: int) -> None:
        """Lets boards be as they are before a message, between the one of the last `next` and the one that it
        has found; nothing may have been done to them since."""
        if number != self._reached:
            _copy(self._table, self._copy, True)
            self._follow(window, self._copied, number)
            self._reached = number

    def _follow(self, window: Window, number: int, until: int) -> int:
        changes = window.changes
        return int(_next(
            plain(window.events), window.starts, window.times[:until], changes.kinds, changes.values,
            window.offsets, window.touches, self._table, self._followed, number, self.due,
        ))  # fmt: skip


@jit()
def _copy(table: np.ndarray, words: np.ndarray, back: bool) -> int:
    """Copies boards to words, or back from them; how many there are, and nothing is copied if too many."""
    needed = 0
    for number in range(len(table)):
        for board in range(table[number].count):
            needed = copied_board(load(table[number].boards + 8 * board), needed, False)
    if needed >= -8 * len(words):
        buffer = words.ctypes.data
        for number in range(len(table)):
            for board in range(table[number].count):
                buffer = copied_board(load(table[number].boards + 8 * board), buffer, back)
    return -needed // 8


@jit()
def _is_first_told(row: Record, event: Record) -> bool:
    """Whether a message is told by an event of it, before boards follow: orders may arrive before it."""
    sent = event.exchange_time if event.exchange_time else event.receive_time
    # What a CLEAR leaves of a book, compiled code does not know.
    return row.every or sent > row.arrival or (row.count and event.action == _CLEAR)


@jit()
def _meets(row: Record, kind: int, price: int) -> bool:
    """Whether a change of the book brings displayed volume to an order that rests."""
    return (kind == BIDS_INSERT and price >= row.sell) or (kind == ASKS_INSERT and price <= row.buy)


@jit()
def _first_touch(touches: np.ndarray, event: int) -> int:
    """The number of the first touch after a message that ended before an event."""
    low, high = 0, len(touches)
    while low < high:
        middle = (low + high) >> 1
        if touches[middle].event < event:
            low = middle + 1
        else:
            high = middle
    return low


@jit()
def _next(
    events: Events,
    starts: np.ndarray,
    times: np.ndarray,
    kinds: np.ndarray,
    values: np.ndarray,
    offsets: np.ndarray,
    touches: np.ndarray,
    table: np.ndarray,
    followed: np.ndarray,
    number: int,
    due: int,
) -> int:
    """The number of a message that is told; its complement where boards have followed it."""
    touch = _first_touch(touches, starts[number])
    for message in range(number, len(times)):
        now, first, end = times[message], starts[message], starts[message + 1]
        concerned, told = False, now >= due
        for place in range(first, end):
            event = events[place]
            if 0 <= event.instrument < len(table) and table[event.instrument].any:
                concerned, row = True, table[event.instrument]
                if _is_first_told(row, event):
                    return message
                told |= now >= row.due or (row.trades and event.action == _TRADE)
        if not concerned:
            if told:
                return ~message
            continue
        followed[0] += 1
        for place in range(first, end):
            instrument = np.int64(events[place].instrument)
            if not 0 <= instrument < len(table) or table[instrument].count == 0:
                continue
            row = table[instrument]
            if row.message != followed[0]:
                row.message = followed[0]
                for board in range(row.count):
                    told |= follow(board_at(load(row.boards + 8 * board)), events, place, end, instrument)
            for change in range(offsets[place], offsets[place + 1]):
                told |= _meets(row, kinds[change], values[change, _PRICE])
        while touch < len(touches) and touches[touch].event < end:
            one = touches[touch]
            touch += 1
            if one.event >= first and table[one.instrument].message == followed[0]:
                row = table[one.instrument]
                for board in range(row.count):
                    taken = taken_at(board_at(load(row.boards + 8 * board)).taken)
                    refresh(taken, one.bid, one.bid_volume, one.ask, one.ask_volume)
        if told:
            return ~message
    return len(times)
