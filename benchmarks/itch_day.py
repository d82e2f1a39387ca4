"""A generated day of ITCH 5.0 of any number of stocks and messages, with a real day's kinds of messages.

Source of the shares and of how many orders rest: CppTrader's README, of NASDAQ's 2019-12-30: 268.7 million
messages of 8,906 stocks, of which 118.6 add, 114.4 delete, 21.6 replace, 5.8 execute and 2.8 cancel in part;
at most 2.09 million orders rest at once. Activity over stocks follows Zipf's law; how many younger orders of
its stock an order sees when it leaves is uniform in its logarithm: most leave soon, some stay all day.
Prices keep their side of a stock's middle, so no book is ever crossed.
"""

import struct
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from orderbook.core.jit import jit
from orderbook.market.block_memory import Record, load, move, record_at, store

KINDS = "AFDUECXPI"
# Millions of a day; those with an attribution are few, and of trades with another price.
_SHARES = (117.2, 1.4, 114.4, 21.6, 5.7, 0.1, 2.8, 1.5, 4.0)
# Of executions, what takes the whole order: what is added and not deleted.
_WHOLE_PERCENT = 73
_RESTING = 235
_CENT = 100
_OPEN, _CLOSE = 34_200 * 10**9, 57_600 * 10**9
_STOCK_CHOICES, _KIND_CHOICES = 1 << 20, 1 << 12
_BLOCK, _LONGEST = 1 << 22, 64
FILE_NAME = "12302019.NASDAQ_ITCH50"

_DAY = np.dtype(
    [
        ("random", "i8"),
        ("time", "i8"),
        ("step", "i8"),  # ns from message to message, on average
        ("left", "i8"),  # messages to write
        ("reference", "i8"),  # of the order added last
        ("stocks", "i8"),  # int32[_STOCK_CHOICES]
        ("kinds", "i8"),  # uint8[_KIND_CHOICES], places in KINDS
        ("books", "i8"),  # _STOCK[n]
        ("counts", "i8"),  # int64[len(KINDS)]
        ("out", "i8"),
        ("end", "i8"),
    ]
)
_STOCK = np.dtype([("orders", "i8"), ("room", "i8"), ("resting", "i8"), ("middle", "i8"), ("name", "i8")])
_ORDER = np.dtype([("reference", "i8"), ("price", "i8"), ("shares", "i8"), ("side", "i8")])
_day_at, _stock_at, _order_at = record_at(_DAY), record_at(_STOCK), record_at(_ORDER)
_int_at, _byte_at = record_at(np.dtype([("value", "i4")])), record_at(np.dtype([("value", "u1")]))
_STOCK_BYTES, _ORDER_BYTES = _STOCK.itemsize, _ORDER.itemsize
_A, _F, _D, _U, _E, _C, _X, _P, _I = range(len(KINDS))
_LETTERS = [ord(letter) for letter in KINDS]
_BUY, _SELL, _YES = ord("B"), ord("S"), ord("Y")
_MPID = int.from_bytes(b"GSCO", "big")


@intrinsic
def _put(typing_context: Any, address: Any, size: Any, value: Any) -> Any:
    """Stores the last bytes of a number, big-endian, at an address; returns the address behind them."""
    width = ir.IntType(8 * size.literal_value) if isinstance(size, types.IntegerLiteral) else None
    if width is None:
        return None

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        number = builder.trunc(arguments[2], width) if width.width < 64 else arguments[2]
        if sys.byteorder == "little" and width.width > 8:
            number = builder.bswap(number)
        builder.store(number, builder.inttoptr(arguments[0], width.as_pointer()), align=1)
        return builder.add(arguments[0], ir.IntType(64)(width.width // 8))

    return types.int64(types.int64, size, types.int64), generate


@jit()
def _random(day: Record, below: int) -> int:
    """A number from 0 to before another, below 2^31, of Knuth's MMIX generator."""
    day.random = day.random * 6364136223846793005 + 1442695040888963407
    return ((day.random >> 33) & 0x7FFFFFFF) % below


@jit()
def _log_uniform(day: Record, below: int) -> int:
    """A number from 0 to before another, about as often between 2^k and 2^(k+1) for every k."""
    bits = 1
    while below >> bits:
        bits += 1
    scale = 1 << _random(day, bits)
    return min(scale - 1 + _random(day, scale), below - 1)


@jit()
def _head(day: Record, length: int, letter: int, locate: int) -> int:
    at = _put(day.out, 2, length)
    at = _put(at, 1, letter)
    at = _put(at, 2, locate)
    at = _put(at, 2, 0)
    at = _put(at, 2, day.time >> 32)
    day.out += 2 + length
    return _put(at, 4, day.time)


@jit()
def _set_new(day: Record, stock: Record, order: Record) -> None:
    """A new reference, price and number of shares."""
    day.reference += 1
    distance = _CENT * (1 + _log_uniform(day, 128))
    order.reference = day.reference
    order.price = stock.middle - distance if order.side == _BUY else stock.middle + distance
    order.shares = 100 * (1 + _random(day, 5)) if _random(day, 3) else 1 + _random(day, 99)


@jit()
def _take_out(stock: Record, place: int) -> None:
    """An order leaves; younger ones move up."""
    at = stock.orders + _ORDER_BYTES * place
    stock.resting -= 1
    move(at + _ORDER_BYTES, at, (stock.resting - place) * (_ORDER_BYTES // 8))


@jit()
def _write_add(day: Record, stock: Record, locate: int, attributed: bool) -> None:
    order = _order_at(stock.orders + _ORDER_BYTES * stock.resting)
    stock.resting += 1
    order.side = _BUY if _random(day, 2) else _SELL
    _set_new(day, stock, order)
    at = _head(day, 40 if attributed else 36, 70 if attributed else 65, locate)
    at = _put(at, 8, order.reference)
    at = _put(at, 1, order.side)
    at = _put(at, 4, order.shares)
    at = _put(at, 8, stock.name)
    at = _put(at, 4, order.price)
    if attributed:
        _put(at, 4, _MPID)


@jit()
def _write_replace(day: Record, stock: Record, locate: int, place: int) -> None:
    old = _order_at(stock.orders + _ORDER_BYTES * place)
    reference, side = old.reference, old.side
    _take_out(stock, place)
    order = _order_at(stock.orders + _ORDER_BYTES * stock.resting)
    stock.resting += 1
    order.side = side
    _set_new(day, stock, order)
    at = _head(day, 35, 85, locate)
    at = _put(at, 8, reference)
    at = _put(at, 8, order.reference)
    at = _put(at, 4, order.shares)
    _put(at, 4, order.price)


@jit()
def _write_execution(day: Record, stock: Record, locate: int, place: int, other_price: bool) -> None:
    order = _order_at(stock.orders + _ORDER_BYTES * place)
    whole = order.shares == 1 or _random(day, 100) < _WHOLE_PERCENT
    shares = order.shares if whole else 1 + _random(day, order.shares - 1)
    at = _head(day, 36 if other_price else 31, 67 if other_price else 69, locate)
    at = _put(at, 8, order.reference)
    at = _put(at, 4, shares)
    at = _put(at, 8, day.left)
    if other_price:
        at = _put(at, 1, _YES)
        _put(at, 4, order.price)
    order.shares -= shares
    if whole:
        _take_out(stock, place)


@jit()
def _write_other(day: Record, stock: Record, locate: int, trade: bool) -> None:
    """A trade of a hidden order, or an imbalance."""
    if trade:
        at = _head(day, 44, 80, locate)
        at = _put(at, 8, 0)
        at = _put(at, 1, _BUY)
        at = _put(at, 4, 100)
        at = _put(at, 8, stock.name)
        at = _put(at, 4, stock.middle)
        _put(at, 8, day.left)
    else:
        at = _head(day, 50, 73, locate)
        for _ in range(39):
            at = _put(at, 1, 0)


@jit()
def _write(day: Record, stock: Record, locate: int, kind: int) -> int:
    """Writes a message of a kind, or of another where it cannot be; the kind it is of."""
    target = stock.room >> 1
    if kind == _D and 4 * stock.resting < 3 * target and _random(day, 2):
        kind = _A
    if kind <= _F and (stock.resting == stock.room or (4 * stock.resting > 5 * target and _random(day, 2))):
        kind = _D
    if stock.resting == 0 and _D <= kind <= _X:
        kind = _A
    if kind <= _F:
        _write_add(day, stock, locate, kind == _F)
        return kind
    if kind >= _P:
        _write_other(day, stock, locate, kind == _P)
        return kind
    place = stock.resting - 1 - _log_uniform(day, stock.resting)
    order = _order_at(stock.orders + _ORDER_BYTES * place)
    if kind == _X and order.shares == 1:
        kind = _D
    if kind == _U:
        _write_replace(day, stock, locate, place)
    elif kind == _E or kind == _C:
        _write_execution(day, stock, locate, place, kind == _C)
    elif kind == _X:
        shares = 1 + _random(day, order.shares - 1)
        at = _head(day, 23, 88, locate)
        at = _put(at, 8, order.reference)
        _put(at, 4, shares)
        order.shares -= shares
    else:
        at = _head(day, 19, 68, locate)
        _put(at, 8, order.reference)
        _take_out(stock, place)
    return kind


@jit(nogil=True)
def _fill(address: int) -> int:
    """Writes messages from `out` on, up to `end` or the last; returns the address behind them."""
    day = _day_at(address)
    while day.left and day.out + _LONGEST < day.end:
        number = _int_at(day.stocks + 4 * _random(day, _STOCK_CHOICES)).value
        kind = _byte_at(day.kinds + _random(day, _KIND_CHOICES)).value
        day.time += _random(day, 2 * day.step)
        kind = _write(day, _stock_at(day.books + _STOCK_BYTES * number), number + 1, kind)
        store(day.counts + 8 * kind, load(day.counts + 8 * kind) + 1)
        day.left -= 1
    return day.out


def write_day(folder: Path, stocks: int, messages: int, seed: int) -> tuple[Path, dict[str, int]]:
    """Writes a day's file, plain, up to the end of system hours, so that its books stay to be looked at.

    Returns its path, and how many messages of each kind it has.
    """
    path = folder / FILE_NAME
    counts = np.zeros(len(KINDS), np.int64)
    with path.open("wb") as file:
        for block in _blocks(stocks, messages, seed, counts):
            file.write(block)
    return path, dict(zip(KINDS, counts.tolist(), strict=True))


def _blocks(stocks: int, messages: int, seed: int, counts: np.ndarray) -> Iterator[bytes]:
    names = [f"S{number:05d}".ljust(8).encode() for number in range(stocks)]
    yield _framed(_system(_OPEN - 3, b"O"))
    for number, name in enumerate(names, 1):
        fields = (name, b"Q", b"N", 100, b"N", b"C", b"Z ", b"P", b"N", b"N", b"1", b"N", 0, b"N")
        yield _framed(_message(b"R", number, _OPEN - 3, "8sccIcc2scccccIc", *fields))
        yield _framed(_message(b"H", number, _OPEN - 2, "8scc4s", name, b"T", b" ", b"    "))
    yield _framed(_system(_OPEN - 1, b"Q"))
    weights = 1.0 / np.arange(5, stocks + 5)
    weights /= weights.sum()
    rooms = (2 * np.maximum(10, _RESTING * stocks * weights**0.7 / (weights**0.7).sum())).astype(np.int64)
    orders = np.zeros(rooms.sum(), _ORDER)
    books = np.zeros(stocks, _STOCK)
    books["orders"] = orders.ctypes.data + _ORDER_BYTES * (np.cumsum(rooms) - rooms)
    books["room"] = rooms
    books["middle"] = _CENT * np.random.default_rng(seed).integers(500, 50_000, stocks)
    books["name"] = [int.from_bytes(name, "big") for name in names]
    chosen = np.searchsorted(np.cumsum(weights), (np.arange(_STOCK_CHOICES) + 0.5) / _STOCK_CHOICES)
    chosen = np.minimum(chosen, stocks - 1).astype(np.int32)
    shares = np.cumsum(_SHARES) / sum(_SHARES)
    kinds = np.searchsorted(shares, (np.arange(_KIND_CHOICES) + 0.5) / _KIND_CHOICES).astype(np.uint8)
    day, block = np.zeros(1, _DAY), np.empty(_BLOCK, np.uint8)
    day["random"], day["time"], day["left"] = seed, _OPEN, messages
    day["step"] = max((_CLOSE - _OPEN) // max(messages, 1), 1)
    arrays: dict[str, np.ndarray] = {"stocks": chosen, "kinds": kinds, "books": books, "counts": counts}
    for field, array in arrays.items():
        day[field] = array.ctypes.data
    while day["left"][0]:
        day["out"], day["end"] = block.ctypes.data, block.ctypes.data + _BLOCK
        yield block[: _fill(int(day.ctypes.data)) - block.ctypes.data].tobytes()
    yield _framed(_system(int(day["time"][0]) + 1, b"E"))


def _message(kind: bytes, locate: int, time: int, layout: str, *fields: object) -> bytes:
    head = struct.pack(">cHH", kind, locate, 0) + time.to_bytes(6, "big")
    return head + struct.pack(">" + layout, *fields)


def _system(time: int, code: bytes) -> bytes:
    return _message(b"S", 0, time, "c", code)


def _framed(message: bytes) -> bytes:
    return struct.pack(">H", len(message)) + message
