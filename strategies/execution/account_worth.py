"""What an account in the loop is worth, as `max_drawdown` looks at it: exact, in whole units of 128 bits.

That is its cash less fees, and what is held at the mid, in the quote currency; of inverse contracts Python
says that. It is valued at each message at which something is held, where each such book has a mid, and after
fills.
"""

import math
from collections.abc import Mapping, Sequence
from decimal import ROUND_FLOOR, Decimal

import numpy as np

from orderbook.core.jit import jit
from orderbook.engine.maps.wide_numbers import load_wide, store_wide, wide
from orderbook.market.block_memory import Record, load, record_at, store
from orderbook.market.book_state import CONTEXT
from orderbook.market.events import Side
from orderbook.market.instruments import SCALE, Instrument
from orderbook.strategies.execution.contract_money import EXACT, ContractMoney
from orderbook.strategies.execution.exchange_state import board_at
from orderbook.strategies.execution.stop_prices import touch_of

# Numbers of two words, in units: what it is worth, the most that was, cash less fees, how far worth may fall.
# Then a fee of 10^-8 in units, the address of LINE[instruments], and of int64[instruments], those of which
# something is held, and how many they are.
_WIDE = ("worth", "peak", "cash", "most")
WORTH = np.dtype(
    [(f"{name}_{part}", "i8") for name in _WIDE for part in ("low", "high")]
    + [(name, "i8") for name in ("fee", "lines", "held", "held_count")]
)
# Of an instrument: lots held, and half of what a lot counts at a price of one tick.
LINE = np.dtype([("lots", "i8"), ("half", "i8")])
# What of 128 bits the value of any position may take, so that sums of several have room.
_ROOM = 125
_WORD = 63

_worth_at = record_at(WORTH)
_line_at = record_at(LINE)
_context_at = record_at(CONTEXT)
_LINE_BYTES = LINE.itemsize
_PLACES = {name: 2 * place for place, name in enumerate(_WIDE)}
_OWN, _PEAK, _CASH, _MOST = (_PLACES[name] for name in _WIDE)


@jit()
def mark(worth: int, boards: int, books: int) -> None:
    """Values an account (WORTH at an address) at the mids of books, CONTEXT; nothing where one has none."""
    own, total = _worth_at(worth), load_wide(worth, _CASH)
    for number in range(own.held_count):
        instrument = load(own.held + 8 * number)
        line, board = _line_at(own.lines + _LINE_BYTES * instrument), board_at(load(boards + 8 * instrument))
        has_bid, bid = touch_of(_context_at(books), board, Side.BID)
        has_ask, ask = touch_of(_context_at(books), board, Side.ASK)
        if not (has_bid and has_ask):
            return
        total = total + wide(line.lots) * wide(line.half) * wide(bid + ask)
    store_wide(worth, _OWN, total)
    if total > load_wide(worth, _PEAK):
        store_wide(worth, _PEAK, total)


@jit()
def trade(worth: int, instrument: int, lots: int, ticks: int, fee: int) -> None:
    """Books an execution of lots (below 0: sold) with its fee, 10^-8."""
    own = _worth_at(worth)
    line = _line_at(own.lines + _LINE_BYTES * instrument)
    paid = wide(lots) * wide(line.half) * wide(2 * ticks) + wide(fee) * wide(own.fee)
    store_wide(worth, _CASH, load_wide(worth, _CASH) - paid)
    before = line.lots
    line.lots = before + lots
    if before == 0 and lots != 0:
        store(own.held + 8 * own.held_count, instrument)
        own.held_count += 1
    elif before != 0 and line.lots == 0:
        _drop(own, instrument)


@jit()
def _drop(own: Record, instrument: int) -> None:
    """Nothing is held of an instrument any more."""
    place = 0
    while load(own.held + 8 * place) != instrument:
        place += 1
    own.held_count -= 1
    store(own.held + 8 * place, load(own.held + 8 * own.held_count))


@jit()
def holds(worth: int) -> bool:
    """Whether anything is held."""
    found: bool = _worth_at(worth).held_count != 0
    return found


@jit()
def is_drawn_down(worth: int) -> bool:
    """Whether the account is worth less than it was at most by more than its limit."""
    fallen = load_wide(worth, _PEAK) - load_wide(worth, _OWN)
    beyond: bool = fallen > load_wide(worth, _MOST)
    return beyond


def _unit_of(moneys: Sequence[ContractMoney]) -> int:
    """The size of contracts, 10^-8, of which all sizes are multiples."""
    return math.gcd(10**SCALE, *(int(money.size.scaleb(SCALE)) for money in moneys))


def fits(instruments: Sequence[Instrument], moneys: Sequence[ContractMoney]) -> bool:
    """Whether positions in these instruments can be valued in 128 bits."""
    unit = _unit_of(moneys)
    for one, money in zip(instruments, moneys, strict=True):
        size = int(money.size.scaleb(SCALE)) // unit
        of_lot = max(2 * one.max_ticks, one.lot_scale) * one.tick_scale * size
        if money.inverse or of_lot << _WORD >= 1 << _ROOM:
            return False
    return True


class AccountWorth:
    """The WORTH of an account that trades some of the instruments, by index."""

    def __init__(
        self, instruments: Mapping[int, Instrument], moneys: Mapping[int, ContractMoney], most: Decimal
    ) -> None:
        count = 1 + max(instruments, default=-1)
        unit = _unit_of([*moneys.values()])
        # Of the quote currency; a mid may be half a tick.
        self._unit = Decimal(unit).scaleb(-3 * SCALE, EXACT) / 2
        self._records, self._lines = np.zeros(1, WORTH), np.zeros(count, LINE)
        self._words, self._held = self._records.view(np.int64), np.zeros(count, np.int64)
        for index, one in instruments.items():
            size = int(moneys[index].size.scaleb(SCALE)) // unit
            self._lines[index]["half"] = one.tick_scale * one.lot_scale * size
        row = self._records[0]
        row["fee"], row["lines"] = 2 * 10 ** (2 * SCALE) // unit, self._lines.ctypes.data
        row["held"] = self._held.ctypes.data
        self._write("most", most)
        self.address = int(self._records.ctypes.data)

    def enter(self, worth: Decimal, peak: Decimal, cash: Decimal, held: Mapping[int, int]) -> None:
        """It is worth so much, was worth so much at most, and has so much cash less fees, and lots."""
        for name, value in (("worth", worth), ("peak", peak), ("cash", cash)):
            self._write(name, value)
        self._lines["lots"] = 0
        for index, lots in held.items():
            self._lines[index]["lots"] = lots
        places = np.flatnonzero(self._lines["lots"])
        self._held[: len(places)] = places
        self._records[0]["held_count"] = len(places)

    @property
    def worth(self) -> Decimal:
        """What the account is worth."""
        return self._read("worth")

    @property
    def peak(self) -> Decimal:
        """The most that it was worth."""
        return self._read("peak")

    def _write(self, name: str, value: Decimal) -> None:
        units = int(EXACT.divide(value, self._unit).to_integral_value(ROUND_FLOOR))
        units = max(-(2**127), min(units, 2**127 - 1))
        place = _PLACES[name]
        self._words[place] = (units & (2**64 - 1)) - ((units >> 63 & 1) << 64)
        self._words[place + 1] = units >> 64

    def _read(self, name: str) -> Decimal:
        place = _PLACES[name]
        low, high = int(self._words[place]), int(self._words[place + 1])
        return EXACT.multiply(Decimal((high << 64) + (low & (2**64 - 1))), self._unit)
