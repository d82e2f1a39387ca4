"""Block memory for compiled books: blocks of a few sizes, cut from chunks that never move.

Growing a flat array copies it, a pause one can see at millions of orders; a new chunk copies
nothing. Compiled code addresses blocks by integer address and cannot ask for chunks itself: it runs
an event only while the chunk in use has `RESERVE` bytes left, and else returns to Python for one.
"""

import ctypes
from collections.abc import Callable
from functools import partial, reduce
from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils, config
from numba.extending import intrinsic
from numba.np.numpy_support import from_dtype
from numpy.typing import NDArray

from orderbook.core.jit import jit, primitive

# A numba record in compiled code: fields are attributes, and it is passed by reference.
Record = Any

ROW_BYTES = 40
SEGMENT_CLASSES = 7
ROWS_OF_CHUNK = 15
# A byte for each row of a chunk and one more, and what a segment begins with.
TAGS_BYTES, SEGMENT_HEAD_BYTES = 16, 16
LEVELS_OF_BLOCK = 64
# Size classes: segments of the order table of 2^k chunks, the block of a ladder's tree, then 2^k words, and a
# ladder's window of 2^k * SMALLEST_WINDOW cells with a bit for each.
LADDER_BLOCK = SEGMENT_CLASSES
WORDS = LADDER_BLOCK + 1
LARGEST_WORDS = 32
WINDOWS = WORDS + LARGEST_WORDS + 1
WINDOW_CLASSES = 9
SMALLEST_WINDOW = 64
CELL_BYTES = 16
SIZES = (
    *(SEGMENT_HEAD_BYTES + ((TAGS_BYTES + ROWS_OF_CHUNK * ROW_BYTES) << k) for k in range(SEGMENT_CLASSES)),
    16 + LEVELS_OF_BLOCK * 24,
    *(8 << k for k in range(LARGEST_WORDS + 1)),
    *((SMALLEST_WINDOW * CELL_BYTES + SMALLEST_WINDOW // 8) << k for k in range(WINDOW_CLASSES)),
)
# Blocks start at multiples of this, so the low bits of an address are free for a tag.
ALIGNMENT = 16

# Words of the pool: next free address, end of the chunk, bytes one event may need, bytes that a window waits
# for besides, bytes of all chunks, then free lists.
BUMP, END, RESERVE, WANTED, HELD, FREE = 0, 1, 2, 3, 4, 5
POOL_WORDS = FREE + len(SIZES)
_SMALLEST_RESERVE = 9 * SIZES[SEGMENT_CLASSES - 1] + 8 * SIZES[LADDER_BLOCK]
_FIRST_CHUNK = 1 << 20
# Larger arrays get huge pages, and the first touch of each clears 2 MB at once; with much memory that is less
# than what finding small pages costs.
_CHUNK, _HUGE_CHUNK, _MUCH = 7 << 19, 1 << 25, 1 << 23
_CACHED = 1 << 23


_Fields = dict[str, tuple[Any, int]]


class _PlainRecord:
    """A record for functions that are plain Python: fields are attributes."""

    __slots__ = ("_address", "_fields")

    def __init__(self, fields: _Fields, address: int) -> None:
        object.__setattr__(self, "_fields", fields)
        object.__setattr__(self, "_address", int(address))

    def __getattr__(self, name: str) -> Any:
        kind, offset = self._fields[name]
        return kind.from_address(self._address + offset).value

    def __setattr__(self, name: str, value: Any) -> None:
        kind, offset = self._fields[name]
        kind.from_address(self._address + offset).value = value if kind is ctypes.c_double else int(value)


def _plain_fields(dtype: np.dtype) -> _Fields:
    fields: Any = dtype.fields
    return {n: (np.ctypeslib.as_ctypes_type(kind), offset) for n, (kind, offset, *_) in fields.items()}


class _PlainRecords:
    """An array of records likewise."""

    def __init__(self, array: NDArray[np.void]) -> None:
        self._array, self._fields = array, _plain_fields(array.dtype)

    def __len__(self) -> int:
        return len(self._array)

    def __getitem__(self, index: Any) -> _PlainRecord:
        places = index if isinstance(index, tuple) else (index,)
        steps = zip(places, self._array.strides, strict=True)
        at = self._array.ctypes.data + sum(int(place) * step for place, step in steps)
        return _PlainRecord(self._fields, at)


def records(array: NDArray[np.void]) -> NDArray[np.void]:
    """An array as functions take it that see fields of its records as attributes."""
    plain: Any = _PlainRecords(array) if config.DISABLE_JIT else array
    return plain


def record_at(dtype: np.dtype) -> Callable[[int], Any]:
    """A compiled function that takes an address and gives the record of `dtype` stored there."""
    record = from_dtype(dtype)

    @primitive(partial(_PlainRecord, _plain_fields(dtype) if config.DISABLE_JIT else {}))
    def at(typing_context: Any, address: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            return builder.inttoptr(arguments[0], context.get_value_type(record))

        return record(types.int64), generate

    return at


@intrinsic
def address_of(typing_context: Any, record: Any) -> Any:
    """Where a record is."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.ptrtoint(arguments[0], ir.IntType(64))

    return types.int64(record), generate


def _load(address: int) -> int:
    return ctypes.c_int64.from_address(int(address)).value


def _store(address: int, value: int) -> None:
    ctypes.c_int64.from_address(address).value = int(value)


def _move(source: int, target: int, words: int) -> None:
    ctypes.memmove(target, source, 8 * words)


@primitive(_load)
def load(typing_context: Any, address: Any) -> Any:
    """The int64 stored at an address."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.load(builder.inttoptr(arguments[0], ir.IntType(64).as_pointer()))

    return types.int64(types.int64), generate


@primitive(_store)
def store(typing_context: Any, address: Any, value: Any) -> Any:
    """Stores an int64 at an address."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        builder.store(arguments[1], builder.inttoptr(arguments[0], ir.IntType(64).as_pointer()))
        return context.get_dummy_value()

    return types.none(types.int64, types.int64), generate


@intrinsic
def fetch_line(typing_context: Any, address: Any) -> Any:
    """Asks for the cache line of an address, which need not be one of this process; never waits for it."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        pointer, number = ir.IntType(8).as_pointer(), ir.IntType(32)
        prefetch = ir.FunctionType(ir.VoidType(), [pointer, number, number, number])
        function = cgutils.get_or_insert_function(builder.module, prefetch, "llvm.prefetch.p0")
        to_write, keep, data = number(1), number(3), number(1)
        builder.call(function, [builder.inttoptr(arguments[0], pointer), to_write, keep, data])
        return context.get_dummy_value()

    return types.none(types.int64), generate


@intrinsic
def steps_of(typing_context: Any, distance: Any, inverse: Any, shift: Any) -> Any:
    """A number without a sign that is below n / step, for every n up to 2^63, only if the distance is below n
    and a multiple of the step; it is then their quotient.

    inverse: of the odd part of the step, modulo 2^64; shift: the step's number of twos.
    """

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        # A product by the inverse divides exactly; what is not whole leaves low bits, which become high ones.
        distance, inverse, shift = arguments
        word = ir.IntType(64)
        product = builder.mul(distance, inverse)
        turn = cgutils.get_or_insert_function(
            builder.module, ir.FunctionType(word, [word] * 3), "llvm.fshr.i64"
        )
        return builder.call(turn, [product, product, shift])

    return types.uint64(types.int64, types.int64, types.int64), generate


@intrinsic
def highest_bit(typing_context: Any, word: Any) -> Any:
    """The number of the highest bit that is set in a word, which is not 0."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.sub(ir.IntType(64)(63), builder.ctlz(arguments[0], ir.IntType(1)(1)))

    return types.int64(types.int64), generate


@intrinsic
def equal_bytes(typing_context: Any, address: Any, byte: Any) -> Any:
    """Which of the 16 bytes at an address are equal to one: a bit for each, the first the lowest."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        lanes, place = ir.VectorType(ir.IntType(8), 16), ir.IntType(32)
        found = builder.load(builder.inttoptr(arguments[0], lanes.as_pointer()), align=1)
        byte = builder.trunc(arguments[1], ir.IntType(8))
        one = builder.insert_element(ir.Constant(lanes, ir.Undefined), byte, place(0))
        nothing = ir.Constant(ir.VectorType(place, 16), [0] * 16)
        bytes_ = builder.shuffle_vector(one, ir.Constant(lanes, ir.Undefined), nothing)
        equal = builder.bitcast(builder.icmp_unsigned("==", found, bytes_), ir.IntType(16))
        return builder.zext(equal, ir.IntType(64))

    return types.int64(types.int64, types.int64), generate


_LANES = 8


@intrinsic
def count_below(typing_context: Any, address: Any, bound: Any) -> Any:
    """How many of the LEVELS_OF_BLOCK int64 at an address are below a bound."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        word, lanes = ir.IntType(64), ir.VectorType(ir.IntType(64), _LANES)
        place = builder.inttoptr(arguments[0], lanes.as_pointer())
        one = builder.insert_element(ir.Constant(lanes, ir.Undefined), arguments[1], word(0))
        nothing = ir.Constant(ir.VectorType(ir.IntType(32), _LANES), [0] * _LANES)
        bounds = builder.shuffle_vector(one, ir.Constant(lanes, ir.Undefined), nothing)
        below = ir.Constant(lanes, [0] * _LANES)
        for part in range(LEVELS_OF_BLOCK // _LANES):
            words = builder.load(builder.gep(place, [word(part)]), align=8)
            below = builder.add(below, builder.zext(builder.icmp_signed("<", words, bounds), lanes))
        counts = [builder.extract_element(below, word(lane)) for lane in range(_LANES)]
        return reduce(builder.add, counts)

    return types.int64(types.int64, types.int64), generate


@primitive(_move)
def move(typing_context: Any, source: Any, target: Any, words: Any) -> Any:
    """Copies int64 words from one address to another; the ranges may overlap."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        word = ir.IntType(64).as_pointer()
        source, target = (builder.inttoptr(address, word) for address in arguments[:2])
        cgutils.raw_memmove(builder, target, source, arguments[2], 8, align=8)
        return context.get_dummy_value()

    return types.none(types.int64, types.int64, types.int64), generate


@jit()
def allocate(pool: int, size_class: int) -> int:
    """The address of a block of a size class; its content is undefined."""
    free = pool + 8 * (FREE + size_class)
    address = load(free)
    if address:
        store(free, load(address))
        return address
    address = load(pool + 8 * BUMP)
    store(pool + 8 * BUMP, (address + SIZES[size_class] + ALIGNMENT - 1) & -ALIGNMENT)
    if WORDS <= size_class < WINDOWS:
        # An event doubles at most the directories of four tables and of both ladders, and a queue.
        reserve = _SMALLEST_RESERVE + 16 * SIZES[size_class]
        store(pool + 8 * RESERVE, max(load(pool + 8 * RESERVE), reserve))
    return address


@jit()
def release(pool: int, address: int, size_class: int) -> None:
    """Gives a block back for later use."""
    free = pool + 8 * (FREE + size_class)
    store(address, load(free))
    store(free, address)


@jit()
def has_reserve(pool: int) -> bool:
    """Whether the chunk in use has room for any one event, and for what a window waits for."""
    return load(pool + 8 * END) - load(pool + 8 * BUMP) >= load(pool + 8 * RESERVE) + load(pool + 8 * WANTED)


@jit()
def is_cached(pool: int) -> bool:
    """Whether all chunks are few enough to stay in the cache."""
    return load(pool + 8 * HELD) <= _CACHED


@jit()
def has_room(pool: int, wanted: int) -> bool:
    """Whether the chunk in use has so many bytes besides the reserve; else the next event waits for them."""
    room = load(pool + 8 * END) - load(pool + 8 * BUMP) >= load(pool + 8 * RESERVE) + wanted
    store(pool + 8 * WANTED, 0 if room else wanted)
    return room


class Memory:
    """Owns the chunks; compiled code works on `pool`, int64[POOL_WORDS], by its address."""

    __slots__ = ("_chunks", "nbytes", "pool")

    def __init__(self) -> None:
        self._chunks: list[NDArray[np.uint8]] = []
        self.nbytes = 0
        self.pool = np.zeros(POOL_WORDS, np.int64)
        self.pool[RESERVE] = _SMALLEST_RESERVE

    def grow(self) -> None:
        """Adds a chunk that holds the reserve; what is left of the last one becomes free segments."""
        pool = self.pool
        segment = SEGMENT_CLASSES - 1
        bytes_of_segment = (SIZES[segment] + ALIGNMENT - 1) & -ALIGNMENT
        while pool[END] - pool[BUMP] >= bytes_of_segment:
            release(pool.ctypes.data, int(pool[BUMP]), segment)
            pool[BUMP] += bytes_of_segment
        usual = _HUGE_CHUNK if self.nbytes >= _MUCH else _CHUNK
        size = max(usual if self._chunks else _FIRST_CHUNK, 2 * int(pool[RESERVE] + pool[WANTED]))
        chunk = np.empty(size, np.uint8)
        self._chunks.append(chunk)
        self.nbytes += size
        pool[HELD] = self.nbytes
        pool[BUMP] = (chunk.ctypes.data + ALIGNMENT - 1) & -ALIGNMENT
        pool[END] = chunk.ctypes.data + size
