"""The order table against a dict: ids as they come, and ids whose hashes were made to meet in one chunk."""

import random
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from samples import examples

from orderbook.core.jit import jit
from orderbook.market import order_table
from orderbook.market.block_memory import Memory, has_reserve, record_at

_TABLE = np.dtype([("directory", "i8"), ("depth", "i8")])
_table_at = record_at(_TABLE)
_WORD = 2**64


@jit()
def insert(pool: int, table: int, order_id: int, volume: int) -> int:
    if not has_reserve(pool):
        return -1
    address: int = order_table.insert(pool, _table_at(table), order_id)
    if address:
        row = order_table.row_at(address)
        row.id, row.price, row.volume, row.ts = order_id, order_id ^ volume, volume, volume
        row.broker_id, row.side = 0, volume & 1
    return address


@jit()
def volume_of(table: int, order_id: int) -> int:
    order_table.fetch_entry(_table_at(table), order_id)
    order_table.fetch(_table_at(table), order_id)
    order_table.fetch_row(_table_at(table), order_id)
    address = order_table.find(_table_at(table), order_id)
    if address == 0:
        return 0
    row = order_table.row_at(address)
    return int(row.volume) if row.price == order_id ^ row.volume else -1


@jit()
def remove(table: int, order_id: int) -> int:
    address: int = order_table.find(_table_at(table), order_id)
    if address:
        order_table.remove(_table_at(table), address)
    return address


@jit()
def copy(table: int, out: int) -> int:
    count: int = order_table.copy_rows(_table_at(table), out)
    return count


@jit()
def take_side(table: int, side: int, out: int) -> int:
    count: int = order_table.take_side(_table_at(table), side, out)
    return count


@jit()
def drop_before(table: int, ts: int) -> int:
    count: int = order_table.drop_before(_table_at(table), ts)
    return count


@jit()
def clear(pool: int, table: int) -> int:
    order_table.clear(pool, _table_at(table))
    return 0


class Table:
    """A table and its model, volumes by id."""

    def __init__(self) -> None:
        self.memory, self.model = Memory(), dict[int, int]()
        self._record = np.zeros(1, _TABLE)
        self.at, self.pool = int(self._record.ctypes.data), int(self.memory.pool.ctypes.data)

    def insert(self, order_id: int, volume: int) -> None:
        while (address := insert(self.pool, self.at, order_id, volume)) == -1:
            self.memory.grow()
        assert bool(address) == (order_id not in self.model)
        self.model.setdefault(order_id, volume)

    def remove(self, order_id: int) -> None:
        assert bool(remove(self.at, order_id)) == (self.model.pop(order_id, None) is not None)

    def read(self, action: Any, *arguments: int) -> dict[int, int]:
        out = np.zeros(len(self.model) + 1, order_table.ROW)
        count = action(self.at, *arguments, int(out.ctypes.data))
        found = {int(row["id"]): int(row["volume"]) for row in out[:count]}
        assert len(found) == count
        return found

    def check(self, absent: list[int]) -> None:
        assert self.read(copy) == self.model
        assert all(volume_of(self.at, one) == volume for one, volume in self.model.items())
        assert not any(volume_of(self.at, one) for one in absent if one not in self.model)


def meeting(number: int, low: int) -> int:
    """The id number `number` of those whose hashes share their leading bits, their chunk and their tag."""
    h = 0xABC << 52 | (number & 0xFFF) << 40 | 0x5A << 32 | (number >> 12 & 3) << 30 | 0x155 << 20 | low
    z = h * pow(0xD6E8FEB86659FD93, -1, _WORD) % _WORD
    found = (z ^ z >> 32) * pow(0x9E3779B97F4A7C15, -1, _WORD) % _WORD
    return found - _WORD if found >= _WORD // 2 else found


def ids(kind: str, count: int, seed: int) -> list[int]:
    if kind == "sequence":
        return list(range(seed, seed + count))
    if kind == "meeting":
        return [meeting(number, 0) for number in range(min(count, 700))]
    draw = random.Random(seed)
    return [draw.randrange(-(2**63), 2**63) for _ in range(count)]


@examples(30)
@given(st.sampled_from(["sequence", "meeting", "random"]), st.integers(1, 3000), st.integers(0, 2**32))
def test_orders_come_and_go_as_in_a_dict(kind: str, count: int, seed: int) -> None:
    draw, table, known = random.Random(seed), Table(), ids(kind, count, seed)
    for share in (0.9, 0.2, 0.6):
        for _ in range(count):
            one = draw.choice(known)
            if draw.random() < share:
                table.insert(one, draw.randrange(1, 1000))
            else:
                table.remove(one)
        table.check(known)
    side, model = draw.randrange(2), dict(table.model)
    table.model = {one: volume for one, volume in model.items() if volume & 1 != side}
    out = np.zeros(len(model) + 1, order_table.ROW)
    assert take_side(table.at, side, int(out.ctypes.data)) == len(model) - len(table.model)
    table.check(known)
    later = {one: volume for one, volume in table.model.items() if volume >= 500}
    assert drop_before(table.at, 500) == len(table.model) - len(later)
    table.model = later
    table.check(known)
    clear(table.pool, table.at)
    table.model = {}
    table.check(known)


@pytest.mark.parametrize("order", ["first", "last"])
def test_more_orders_than_are_counted_pass_a_full_chunk(order: str) -> None:
    table, known = Table(), ids("meeting", 700, 0)
    for one in known:
        table.insert(one, 7)
    table.check([])
    for one in known if order == "first" else reversed(known):
        table.remove(one)
    table.check(known)
    for one in reversed(known):
        table.insert(one, 9)
        table.insert(one, 8)
    table.check([])


def test_memory_is_that_of_those_that_rest() -> None:
    table = Table()
    for number in range(400_000):
        table.insert(number, 1)
        if number >= 2000:
            table.remove(number - 2000)
    assert len(table.model) == 2000
    assert table.memory.nbytes < 2 << 20
