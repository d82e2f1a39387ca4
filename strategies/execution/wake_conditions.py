"""Orders at work in the compiled loop, and which messages are to be told to strategies.

What lies between two messages that are told goes through books and views in one compiled loop. There orders
arrive, rest and fill by every message; one after which somebody is to be told something, or for whose time a
timer waits, is told.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from orderbook.core.jit import jit
from orderbook.market.block_memory import Record, load, record_at
from orderbook.market.events import EVENT, Action
from orderbook.strategies.execution.exchange import arrive, meet
from orderbook.strategies.execution.exchange_state import LAST, account_at, board_at

# What Python is to be told of a message: nothing; anything; its trades alone.
NOT_TOLD, TOLD, PRINTED = range(3)
_TRADE = int(Action.TRADE)
_TRADES = 1 << _TRADE

_ROW = np.dtype(
    [
        ("any", "i8"),  # whether anything matters; then as of a WakeCondition
        ("every", "i8"),
        ("due", "i8"),
        ("trades", "i8"),
        ("boards", "i8"),  # address of int64[count], where boards are
        ("count", "i8"),
        ("message", "i8"),  # the number of the last message that they have followed
        ("accounts", "i8"),  # address of int64[accounts_count], other ACCOUNTs that are told there
        ("accounts_count", "i8"),
    ]
)
_TABLE = np.dtype(
    [
        ("rows", "i8"),  # address of _ROW[count], by instrument
        ("count", "i8"),
        ("due", "i8"),  # a message of any instrument matters at this time of the run, ns, or later
        (
            "accounts",
            "i8",
        ),  # address of int64[accounts_count], ACCOUNTs that any message tells of what is due
        ("accounts_count", "i8"),
        ("followed", "i8"),  # counts how often boards follow
    ]
)
_ROW_BYTES, _EVENT_BYTES = _ROW.itemsize, EVENT.itemsize

_table_at = record_at(_TABLE)
_row_at = record_at(_ROW)
_event_at = record_at(EVENT)


@dataclass(slots=True)
class WakeCondition:
    """Which messages of one instrument matter.

    every: each. due: at this time of the run, ns, or later. trades: those with a trade, since strategies are
    told of them. boards: where the BOARD of each account is that has sent anything there. accounts: where
    other ACCOUNTs are that its messages tell of what is due.
    """

    every: bool = False
    due: int = LAST
    trades: bool = False
    boards: list[int] = field(default_factory=list)
    accounts: list[int] = field(default_factory=list)


_NOTHING = WakeCondition()


class WakeConditions:
    """What matters of each of so many instruments, for compiled code that finds it at `address`.

    accounts: addresses of the ACCOUNTs that are told what is due after a message of any instrument.
    """

    def __init__(self, instruments: int, accounts: Iterable[int]) -> None:
        self._rows = np.zeros(instruments, _ROW)
        self._table = np.zeros(1, _TABLE)
        self._accounts = np.array([one for one in accounts if one], np.int64)
        self._table["rows"], self._table["count"] = self._rows.ctypes.data, len(self._rows)
        self._table["accounts"] = self._accounts.ctypes.data
        self._table["accounts_count"] = len(self._accounts)
        self.address = int(self._table.ctypes.data)
        self.note_due(LAST)
        self._noted = dict.fromkeys(range(instruments), _NOTHING)
        # What the rows point to.
        self._boards: dict[int, tuple[NDArray[np.int64], NDArray[np.int64]]] = {}

    def note_due(self, time: int) -> None:
        """From now on a message of any instrument matters at this time of the run, ns, or later."""
        self._table["due"] = time

    def note(self, instrument: int, one: WakeCondition) -> None:
        """From now on this matters of an instrument, and nothing else."""
        if one == self._noted[instrument]:
            return
        self._noted[instrument] = one
        row = self._rows[instrument]
        row["any"] = one != _NOTHING
        boards, accounts = (np.array(addresses, np.int64) for addresses in (one.boards, one.accounts))
        self._boards[instrument] = boards, accounts
        row["every"], row["due"], row["trades"] = one.every, one.due, one.trades
        row["boards"], row["count"] = boards.ctypes.data, len(boards)
        row["accounts"], row["accounts_count"] = accounts.ctypes.data, len(accounts)


@jit()
def arrivals(conditions: int, events: int, count: int) -> bool:
    """A message is about to change the books: what was sent to its instruments arrives, as far as it does
    before; whether funding is paid. EVENT[count] at an address are those of its events, from the first on,
    that say which these are.

    conditions: address of WakeConditions.
    """
    table, paid = _table_at(conditions), 0
    table.followed += 1
    for place in range(count):
        event = _event_at(events + _EVENT_BYTES * place)
        instrument = np.int64(event.instrument)
        if 0 <= instrument < table.count:
            row = _row_at(table.rows + _ROW_BYTES * instrument)
            if row.count != 0 and row.message != table.followed:
                row.message = table.followed
                sent = event.exchange_time if event.exchange_time else event.receive_time
                for board in range(row.count):
                    paid = max(paid, arrive(load(row.boards + 8 * board), sent))
    return paid != 0


@jit()
def _is_due(row: Record, now: int) -> bool:
    """Whether an account that has a board there is told something."""
    for board in range(row.count):
        account = account_at(board_at(load(row.boards + 8 * board)).account)
        if account.due <= now and account.told_apart == 0:
            return True
    return _any_due(row.accounts, row.accounts_count, now)


@jit()
def _any_due(accounts: int, count: int, now: int) -> bool:
    """Whether one of int64[count] ACCOUNTs, at an address, is told something."""
    for number in range(count):
        account = account_at(load(accounts + 8 * number))
        if account.due <= now and account.told_apart == 0:
            return True
    return False


@jit()
def wakes(conditions: int, now: int, events: int, count: int, told_by: int, actions: int) -> int:
    """Whether a message, EVENT[count] at an address, that the books have applied at a time of the run, ns, is
    told, and whether its trades alone are; orders follow it.

    told_by: how many of its events say of which instruments it is: 1 where all are of one. actions: see
    `follow`.
    """
    table = _table_at(conditions)
    told, printed = now >= table.due, False
    table.followed += 1
    traded = actions & _TRADES != 0
    for place in range(told_by):
        event = _event_at(events + _EVENT_BYTES * place)
        instrument = np.int64(event.instrument)
        if 0 <= instrument < table.count:
            row = _row_at(table.rows + _ROW_BYTES * instrument)
            if row.any != 0:
                told = told or row.every != 0 or now >= row.due
                own = row.trades != 0 and traded and (told_by == 1 or event.action == _TRADE)
                printed = printed or own
                if row.count != 0 and row.message != table.followed:
                    row.message = table.followed
                    sent = event.exchange_time if event.exchange_time else event.receive_time
                    for board in range(row.count):
                        address = load(row.boards + 8 * board)
                        board_at(address).message = table.followed
                        meet(address, events, count, actions, sent, now)
                told = told or _is_due(row, now)
    if told or _any_due(table.accounts, table.accounts_count, now):
        return TOLD
    return PRINTED if printed else NOT_TOLD


@jit()
def followed(conditions: int) -> int:
    """The number of the message that boards have followed last."""
    number: int = _table_at(conditions).followed
    return number
