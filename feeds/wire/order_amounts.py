"""What is left of each order that rests, in memory for compiled code: a hash table of ids and volumes.

Two of them hold what else is known of the same orders. Places that follow one another are looked at; one that
is free ends the look, so that the orders behind one that goes are moved up.
"""

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from orderbook.core.jit import jit
from orderbook.market.block_memory import Record, load, record_at, store
from orderbook.market.events import Side

AMOUNTS = np.dtype(
    [
        ("slots", "i8"),  # address of int64[mask + 1, 2]: id and volume, FREE where there is no order
        ("mask", "i8"),
        ("count", "i8"),
        ("room", "i8"),  # orders that there may be
    ]
)
# No volume.
FREE = -(2**63)
_SLOT, _SMALLEST = 16, 1024
# 2^64 divided by the golden ratio, as an int64; its upper bits are mixed best.
_MULTIPLIER, _SHIFT = -7046029254386353131, 24

amounts_at = record_at(AMOUNTS)


@jit()
def _home(table: Record, order_id: int) -> int:
    return ((order_id * _MULTIPLIER) >> _SHIFT) & int(table.mask)


@jit()
def _slot_of(table: Record, order_id: int) -> int:
    """The address of an order's slot, or of the free one where it would be."""
    place = _home(table, order_id)
    slot = table.slots + _SLOT * place
    while load(slot + 8) != FREE and load(slot) != order_id:
        place = (place + 1) & table.mask
        slot = table.slots + _SLOT * place
    return slot


@jit()
def amount_of(address: int, order_id: int) -> int:
    """What is left of an order; FREE for one that is not there."""
    return load(_slot_of(amounts_at(address), order_id) + 8)


@jit()
def has_room(address: int) -> bool:
    """Whether one more order can be put in."""
    table = amounts_at(address)
    return table.count < table.room


@jit()
def put_amount(address: int, order_id: int, volume: int) -> None:
    """Sets what is left of an order, for which there is room."""
    table = amounts_at(address)
    slot = _slot_of(table, order_id)
    if load(slot + 8) == FREE:
        table.count += 1
        store(slot, order_id)
    store(slot + 8, volume)


@jit()
def take_amount(address: int, order_id: int) -> int:
    """Removes an order; what was left of it, FREE for one that is not there."""
    table = amounts_at(address)
    slot = _slot_of(table, order_id)
    found = load(slot + 8)
    if found == FREE:
        return FREE
    table.count -= 1
    hole = (slot - table.slots) // _SLOT
    place = hole
    while True:
        place = (place + 1) & table.mask
        other = table.slots + _SLOT * place
        if load(other + 8) == FREE:
            break
        # It may move where its home is not between the hole and it.
        if ((place - _home(table, load(other))) & table.mask) >= ((place - hole) & table.mask):
            free = table.slots + _SLOT * hole
            store(free, load(other))
            store(free + 8, load(other + 8))
            hole = place
    store(table.slots + _SLOT * hole + 8, FREE)
    return found


@jit()
def put_all(address: int, orders: int, count: int) -> None:
    """Puts in orders of int64[count, 2], for which there is room."""
    for number in range(count):
        put_amount(address, load(orders + _SLOT * number), load(orders + _SLOT * number + 8))


class OrderAmounts:
    """The table as Python reads and changes it: what is left, by order id."""

    def __init__(self) -> None:
        self._record = np.zeros(1, AMOUNTS)
        self.address = int(self._record.ctypes.data)
        self._slots: NDArray[np.int64] = np.zeros((0, 2), np.int64)
        self._reserve(_SMALLEST)

    def __len__(self) -> int:
        return int(self._record["count"][0])

    def __contains__(self, order_id: int) -> bool:
        return bool(amount_of(self.address, order_id) != FREE)

    def _reserve(self, places: int) -> None:
        """Have so many places, a power of two; orders that there are stay."""
        orders = self._slots[self._slots[:, 1] != FREE]
        self._slots = np.full((places, 2), FREE, np.int64)
        self._record["slots"], self._record["mask"] = self._slots.ctypes.data, places - 1
        self._record["count"], self._record["room"] = 0, places // 2
        put_all(self.address, int(orders.ctypes.data), len(orders))

    def get(self, order_id: int) -> int | None:
        """What is left of an order, None for one that is not there."""
        found = amount_of(self.address, order_id)
        return None if found == FREE else int(found)

    def __setitem__(self, order_id: int, volume: int) -> None:
        if not has_room(self.address):
            self._reserve(2 * len(self._slots))
        put_amount(self.address, order_id, volume)

    def pop(self, order_id: int, otherwise: int = 0) -> int:
        """Removes an order; what was left of it, or what is given instead."""
        found = take_amount(self.address, order_id)
        return otherwise if found == FREE else int(found)

    def clear(self) -> None:
        """There are no orders."""
        self._slots[:] = FREE
        self._record["count"] = 0

    def update(self, orders: Mapping[int, int]) -> None:
        """Put in many."""
        places = len(self._slots)
        while places // 2 < len(self) + len(orders):
            places *= 2
        if places > len(self._slots):
            self._reserve(places)
        both = np.array([*orders.items()], np.int64).reshape(-1, 2)
        put_all(self.address, int(both.ctypes.data), len(both))


class RestingOrders:
    """Orders by id, as a dict of (side, price, volume) in units: a table of volumes, and one of places."""

    def __init__(self) -> None:
        self.amounts, self.places = OrderAmounts(), OrderAmounts()

    def get(self, order_id: int) -> tuple[Side, int, int] | None:
        """An order, None for one that is not there."""
        volume, place = self.amounts.get(order_id), self.places.get(order_id)
        return None if volume is None or place is None else (Side(place & 1), place >> 1, volume)

    def __setitem__(self, order_id: int, order: tuple[Side, int, int]) -> None:
        side, price, volume = order
        self.amounts[order_id], self.places[order_id] = volume, 2 * price + side

    def pop(self, order_id: int, otherwise: None = None) -> tuple[Side, int, int] | None:
        """Removes an order and gives it, None for one that is not there."""
        order = self.get(order_id)
        if order is not None:
            self.amounts.pop(order_id)
            self.places.pop(order_id)
        return order or otherwise

    def clear(self) -> None:
        """There are no orders."""
        self.amounts.clear()
        self.places.clear()
