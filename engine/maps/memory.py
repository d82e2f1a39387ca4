"""Raw memory for maps, and calls of functions by address: what compiled and plain Python code share.

Words of 64 bits are addressed by int64. Offsets are in words of 8 bytes. With NUMBA_DISABLE_JIT=1 every
function here is plain Python over ctypes, so that the same generated module runs in both modes. Nothing
checks an address: only map modules and code generated for them call these.

Functions that are `exported` are called by generated code by symbol or by address, so that no caller compiles
them again.
"""

import ctypes
import sys
import weakref
from collections.abc import Callable
from types import ModuleType
from typing import Any

from llvmlite import binding, ir
from numba import types
from numba.core import cgutils, config

from orderbook.core.jit import primitive
from orderbook.core.native_code import INTEGER, python_callable

WORD = ir.IntType(64)
DOUBLE = ir.DoubleType()
MASK64 = (1 << 64) - 1
MULTIPLIER = 0x9E3779B97F4A7C15
# PROT_READ | PROT_WRITE, then MAP_PRIVATE | MAP_ANONYMOUS.
PROTECTION = 3
MAP_FLAGS = 0x1002 if sys.platform == "darwin" else 0x22


def signed(value: int) -> int:
    """`value` modulo 2^64 as a signed integer."""
    value &= MASK64
    return value - (1 << 64) if value >> 63 else value


class Block:
    """Zeroed words of raw memory, given back with the object."""

    __slots__ = ("__weakref__", "address", "words")

    def __init__(self, words: int):
        self.words = (ctypes.c_int64 * words)()
        self.address = ctypes.addressof(self.words)

    def __getitem__(self, place: int) -> int:
        return self.words[place]

    def __setitem__(self, place: int, word: int) -> None:
        self.words[place] = word


def pointer(builder: ir.IRBuilder, address: ir.Value, index: ir.Value | None = None) -> ir.Value:
    """A pointer to word `index` of `address`."""
    base = builder.inttoptr(address, WORD.as_pointer())
    return base if index is None else builder.gep(base, [index])


def _load(address: int, index: int) -> int:
    return ctypes.c_int64.from_address(address + 8 * index).value


@primitive(_load)
def load(typing_context, address, index):
    """load(address, index) -> int64: word `index`."""

    def generate(context, builder, signature, arguments):
        return builder.load(pointer(builder, *arguments), align=8)

    return types.int64(types.int64, types.int64), generate


def _load_short(address: int) -> int:
    return ctypes.c_int16.from_address(address).value


@primitive(_load_short)
def load_short(typing_context, address):
    """load_short(address) -> int64: the int16 at an address in bytes."""

    def generate(context, builder, signature, arguments):
        place = builder.inttoptr(arguments[0], ir.IntType(16).as_pointer())
        return builder.sext(builder.load(place, align=2), WORD)

    return types.int64(types.int64), generate


def _load_byte(address: int) -> int:
    return ctypes.c_uint8.from_address(address).value


@primitive(_load_byte)
def load_byte(typing_context, address):
    """load_byte(address) -> int64: the uint8 at an address in bytes."""

    def generate(context, builder, signature, arguments):
        place = builder.inttoptr(arguments[0], ir.IntType(8).as_pointer())
        return builder.zext(builder.load(place, align=1), WORD)

    return types.int64(types.int64), generate


def _fetch(address: int) -> None:
    pass


@primitive(_fetch)
def fetch(typing_context, address):
    """fetch(address): has the line of memory at an address, which need not be one, brought to the cache."""

    def generate(context, builder, signature, arguments):
        byte, number = ir.IntType(8).as_pointer(), ir.IntType(32)
        kind = ir.FunctionType(ir.VoidType(), [byte, *[number] * 3])
        prefetch = cgutils.get_or_insert_function(builder.module, kind, "llvm.prefetch.p0i8")
        # To be written, to stay in all caches, data.
        builder.call(prefetch, [builder.inttoptr(arguments[0], byte), number(1), number(3), number(1)])
        return context.get_dummy_value()

    return types.void(types.int64), generate


def _store(address: int, index: int, value: int) -> None:
    ctypes.c_int64.from_address(address + 8 * index).value = int(value)


@primitive(_store)
def store(typing_context, address, index, value):
    """store(address, index, value): set word `index`."""

    def generate(context, builder, signature, arguments):
        builder.store(arguments[2], pointer(builder, arguments[0], arguments[1]), align=8)
        return context.get_dummy_value()

    return types.void(types.int64, types.int64, types.int64), generate


def _load_double(address: int, index: int) -> float:
    return ctypes.c_double.from_address(address + 8 * index).value


@primitive(_load_double)
def load_double(typing_context, address, index):
    """load_double(address, index) -> float64: the double in word `index`."""

    def generate(context, builder, signature, arguments):
        word = builder.load(pointer(builder, *arguments), align=8)
        return builder.bitcast(word, DOUBLE)

    return types.float64(types.int64, types.int64), generate


def _store_double(address: int, index: int, value: float) -> None:
    ctypes.c_double.from_address(address + 8 * index).value = value


@primitive(_store_double)
def store_double(typing_context, address, index, value):
    """store_double(address, index, value): set word `index` to the bits of a double."""

    def generate(context, builder, signature, arguments):
        word = builder.bitcast(arguments[2], WORD)
        builder.store(word, pointer(builder, arguments[0], arguments[1]), align=8)
        return context.get_dummy_value()

    return types.void(types.int64, types.int64, types.float64), generate


def _gap(address: int, index: int) -> int:
    return signed(_load(address, index + 1) - _load(address, index))


@primitive(_gap)
def gap(typing_context, address, index):
    """gap(address, index) -> int64: word `index + 1` minus word `index`, modulo 2^64."""

    def generate(context, builder, signature, arguments):
        here = pointer(builder, *arguments)
        after = builder.load(builder.gep(here, [WORD(1)]), align=8)
        return builder.sub(after, builder.load(here, align=8))

    return types.int64(types.int64, types.int64), generate


def _mix(h: int, word: int) -> int:
    product = ((int(h) ^ int(word)) & MASK64) * MULTIPLIER
    return signed(product ^ (product >> 64))


@primitive(_mix)
def mix(typing_context, h, word):
    """mix(h, word) -> int64: fold one key word into a hash.

    Both halves of a 128-bit product, as in wyhash (Wang Yi, 2019): every input bit reaches the high
    and the low end, which the hash index uses for different things.
    """

    def generate(context, builder, signature, arguments):
        wide = ir.IntType(128)
        product = builder.mul(builder.zext(builder.xor(*arguments), wide), wide(MULTIPLIER))
        high = builder.trunc(builder.lshr(product, wide(64)), WORD)
        return builder.xor(builder.trunc(product, WORD), high)

    return types.int64(types.int64, types.int64), generate


def _trailing_zeros(word: int) -> int:
    return (int(word) & -int(word)).bit_length() - 1


@primitive(_trailing_zeros)
def trailing_zeros(typing_context, word):
    """trailing_zeros(word) -> int64: zero bits below the lowest one of a word that is not 0."""

    def generate(context, builder, signature, arguments):
        return builder.cttz(arguments[0], ir.IntType(1)(1))

    return types.int64(types.int64), generate


def _high_bits(h: int, shift: int) -> int:
    return (int(h) & MASK64) >> shift


@primitive(_high_bits)
def high_bits(typing_context, h, shift):
    """high_bits(h, shift) -> int64: unsigned `h >> shift`, 0 <= shift <= 63."""

    def generate(context, builder, signature, arguments):
        return builder.lshr(*arguments)

    return types.int64(types.int64, types.int64), generate


def external(name: str, result: types.Type, *arguments: types.Type, fallback: Callable[..., Any]) -> Any:
    """A function of the process's C library or one registered with LLVM, by symbol name."""
    if config.DISABLE_JIT:
        return fallback
    return types.ExternalFunction(name, result(*arguments))


def _library(name: str, result: Any, *arguments: Any) -> Callable[..., Any]:
    function = getattr(ctypes.CDLL(None), name)
    function.restype, function.argtypes = result, arguments
    return function


_c_calloc = _library("calloc", *[ctypes.c_int64] * 3)
free_memory = _library("free", None, ctypes.c_int64)
_c_move = _library("memmove", *[ctypes.c_int64] * 4)
_c_map = _library("mmap", *[ctypes.c_int64] * 7)
_c_unmap = _library("munmap", *[ctypes.c_int64] * 3)
_c_abort = _library("abort", None)

_long = types.int64
# As in the C library; int arguments are passed in whole registers, so int64 serves for them.
calloc = external("calloc", _long, _long, _long, fallback=_c_calloc)
release = external("free", types.void, _long, fallback=free_memory)
memory_move = external("memmove", *[_long] * 4, fallback=_c_move)
memory_map = external("mmap", *[_long] * 7, fallback=_c_map)
memory_unmap = external("munmap", *[_long] * 3, fallback=_c_unmap)
abort = external("abort", types.void, fallback=_c_abort)
# CPython's lock, which is given up meanwhile; plain Python holds it.
read_clock = external(
    "clock_gettime", *[_long] * 3, fallback=_library("clock_gettime", *[ctypes.c_int64] * 3)
)
save_thread = external("PyEval_SaveThread", _long, fallback=lambda: 0)
restore_thread = external("PyEval_RestoreThread", types.void, _long, fallback=lambda thread: None)


# With the jit disabled: functions by what stands for their addresses.
_plain: dict[int, Callable[..., int]] = {}
_ARGUMENTS = 3
_CALLBACK = ctypes.CFUNCTYPE(ctypes.c_int64, *[ctypes.c_int64] * _ARGUMENTS)


def address_of(module: ModuleType, name: str) -> int:
    """Where an exported function of three arguments is, for `call` and `callable_at`."""
    function = getattr(module, name)
    if config.DISABLE_JIT:
        _plain[id(function)] = function
        return id(function)
    return int(binding.address_of_symbol(function.symbol))


def callable_at(address: int) -> Callable[[int, int, int], int]:
    """An exported function of three arguments, for Python."""
    return _plain[address] if config.DISABLE_JIT else python_callable(address, INTEGER * _ARGUMENTS)


def _call(address: int, *arguments: int) -> int:
    return _plain[address](*arguments)


class Callback:
    """A function of Python for `call`: of three int64 it gives one, at `address` while the object lives."""

    def __init__(self, function: Callable[[int, int, int], int]) -> None:
        if config.DISABLE_JIT:
            self.address = id(function)
            _plain[self.address] = function
            weakref.finalize(self, _plain.pop, self.address)
        else:
            self._function = _CALLBACK(function)
            self.address = ctypes.cast(self._function, ctypes.c_void_p).value or 0


@primitive(_call)
def call(typing_context, address, first, second, third):
    """call(address, first, second, third) -> int64: calls the exported function at an address."""

    def generate(context, builder, signature, arguments):
        kind = ir.FunctionType(WORD, [WORD] * _ARGUMENTS)
        function = builder.inttoptr(arguments[0], kind.as_pointer())
        return builder.call(function, arguments[1:])

    return types.int64(*[types.int64] * (1 + _ARGUMENTS)), generate
