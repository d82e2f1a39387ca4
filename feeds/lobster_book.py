"""The book a LOBSTER level-N file shows: its messages, resynchronised with its book rows.

A level-N file tells only what happens within the N best levels of a side, and nothing of what
rested at its start. So a level can come into view holding orders that no message named, and one
that leaves the view can change unseen. This book holds exactly the levels a row shows.
"""

from collections import Counter

from feeds.message_writer import MessageWriter
from orderbook.events import Action, Flag, Side

# Levels out of view whose orders are remembered, a side; the longest unseen is forgotten first.
REMEMBERED_LEVELS = 1 << 14

Levels = dict[int, int]
Orders = dict[int, int]


class VisibleBook:
    """Order ids, volumes (lots) and prices (ticks) of the levels in view; writes its changes as events.

    Volume that no message explains rests in synthetic orders, one a level, with negative ids that no
    other level gets. Messages that name an unknown order take from its level's synthetic order.

    `counts`: levels that "came into view", "left the view", were "corrected" (an order that was
    brought back had been replaced unseen), and how many came back order by order ("restored").
    """

    def __init__(self, writer: MessageWriter, counts: Counter[str]):
        self.counts = counts
        self._writer = writer
        self._sides = {Side.BID: _SideInView(), Side.ASK: _SideInView()}
        self._last_synthetic = 0

    def add(self, side: Side, order_id: int, price: int, volume: int) -> None:
        """A new order; one whose id its level knows already is left to the row."""
        orders = self._sides[side].orders.setdefault(price, {})
        if order_id not in orders:
            self._place(side, orders, order_id, price, volume, 0)

    def take(self, action: Action, side: Side, order_id: int, price: int, volume: int) -> None:
        """Cancel (REDUCE), delete (DELETE) or execute (EXECUTE) `volume` of an order.

        Takes first from the order, then from its level's synthetic order; the rest is left to the row.
        """
        view = self._sides[side]
        orders = view.orders.get(price)
        if orders is None:
            return
        for taken_id in (order_id, view.synthetic.get(price)):
            if volume <= 0 or taken_id is None or taken_id not in orders:
                continue
            resting = orders[taken_id]
            part = min(volume, resting)
            leaves = part == resting or (action is Action.DELETE and taken_id == order_id)
            gone = resting if leaves else part
            cancelled = Action.DELETE if leaves else Action.REDUCE
            written = action if action is Action.EXECUTE else cancelled
            self._writer.append(written, side, taken_id, price, gone)
            volume -= part
            view.totals[price] -= gone
            if leaves:
                del orders[taken_id]
            else:
                orders[taken_id] = resting - gone
        view.drop_empty(price)

    def resynchronise(self, bids: Levels, asks: Levels, depth: int) -> bool:
        """Make the book equal to a row: price to volume of at most `depth` levels a side.

        Returns whether anything had to change; the changes carry Flag.SNAPSHOT.
        """
        changed = False
        for side, row in ((Side.BID, bids), (Side.ASK, asks)):
            view = self._sides[side]
            if view.totals != row:
                self._resynchronise_side(side, row, depth)
                changed = True
            view.row = row
        return changed

    def _resynchronise_side(self, side: Side, row: Levels, depth: int) -> None:
        view = self._sides[side]
        full = len(row) == depth
        worst = (min(row) if side is Side.BID else max(row)) if full else 0
        for price in [price for price in view.totals if price not in row]:
            hidden = full and (price < worst if side is Side.BID else price > worst)
            self.counts["left the view" if hidden else "corrected"] += 1
            orders = self._remove_level(side, price)
            if hidden:
                view.remember(price, orders)
        for price, volume in row.items():
            held = view.totals.get(price, 0)
            if held == volume:
                continue
            self.counts["corrected" if price in view.row else "came into view"] += 1
            if held > volume:
                # Which of its orders are gone is not known.
                self._remove_level(side, price)
                held = 0
            self._fill(side, price, volume - held)

    def _fill(self, side: Side, price: int, missing: int) -> None:
        """Bring a level's remembered orders back where they fit; the rest is synthetic."""
        view = self._sides[side]
        orders = view.orders.setdefault(price, {})
        remembered = view.hidden.pop(price, {})
        fits = sum(remembered.values()) <= missing and not remembered.keys() & orders.keys()
        if remembered and fits:
            for order_id, volume in remembered.items():
                self._place(side, orders, order_id, price, volume, Flag.SNAPSHOT)
                missing -= volume
            self.counts["restored"] += not missing
            if (synthetic := next((known for known in remembered if known < 0), None)) is not None:
                view.synthetic.setdefault(price, synthetic)
        if not missing:
            return
        existing = view.synthetic.get(price)
        if existing is not None and existing in orders:
            orders[existing] += missing
            view.totals[price] += missing
            self._writer.append(Action.MODIFY, side, existing, price, orders[existing], Flag.SNAPSHOT)
            return
        self._last_synthetic -= 1
        view.synthetic[price] = self._last_synthetic
        self._place(side, orders, self._last_synthetic, price, missing, Flag.SNAPSHOT)

    def _place(self, side: Side, orders: Orders, order_id: int, price: int, volume: int, flags: int) -> None:
        orders[order_id] = volume
        totals = self._sides[side].totals
        totals[price] = totals.get(price, 0) + volume
        self._writer.append(Action.ADD, side, order_id, price, volume, flags)

    def _remove_level(self, side: Side, price: int) -> Orders:
        view = self._sides[side]
        orders = view.orders[price]
        for order_id, volume in orders.items():
            self._writer.append(Action.DELETE, side, order_id, price, volume, Flag.SNAPSHOT)
        view.totals[price] = 0
        view.orders[price] = {}
        view.drop_empty(price)
        return orders


class _SideInView:
    """One side: the last row; by price its volume, orders and synthetic id, and orders out of view."""

    def __init__(self) -> None:
        self.row: Levels = {}
        self.totals: Levels = {}
        self.orders: dict[int, Orders] = {}
        self.synthetic: dict[int, int] = {}
        self.hidden: dict[int, Orders] = {}

    def drop_empty(self, price: int) -> None:
        if not self.totals.get(price):
            self.totals.pop(price, None)
            self.orders.pop(price, None)
            self.synthetic.pop(price, None)

    def remember(self, price: int, orders: Orders) -> None:
        self.hidden[price] = orders
        if len(self.hidden) > REMEMBERED_LEVELS:
            del self.hidden[next(iter(self.hidden))]
