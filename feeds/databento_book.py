"""One instrument's DBN records of orders, levels and trades to events."""

from typing import Any

import databento_dbn as dbn

from feeds.databento_file import FINEST_TICK, UNDEFINED_PRICE
from feeds.databento_messages import LAST, InstrumentMessages
from orderbook.events import Action, Side, StateReason

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
        side = _SIDES[record.side]
        if side == _NONE:
            self.lose(record, "an order without a side")
            return
        order_id, price = _signed(record.order_id), record.price
        if flags & _TOP:
            # The venue tells its best order of a side alone: the new one stands for all.
            self.event(_CLEAR, side)
            self._orders.pop(self._tops.pop(side, 0), None)
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
        self.event(_REDUCE, _SIDES[record.side], order_id, record.price // FINEST_TICK, volume)
        if left > volume:
            self._orders[order_id] = left - volume
        else:
            del self._orders[order_id]

    def _modify(self, record: Any, flags: int) -> None:
        order_id = _signed(record.order_id)
        if order_id not in self._orders:
            self._add(record, flags)
            return
        ticks, side = self.ticks(record.price), _SIDES[record.side]
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
            self.event(_TRADE, _SIDES[record.side], 0, ticks, record.size)

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
            for ticks in old.keys() - new.keys():
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
