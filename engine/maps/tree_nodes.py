"""Vectors over the arrays of tree nodes.

Operations over a whole array of a node are LLVM vectors without branches. `width` is a literal in the calling
source: the number of words in the array. LLVM splits such a vector into the registers the machine has.
"""

from collections.abc import Callable
from typing import Any

from llvmlite import ir
from numba import types
from numba.core.errors import TypingError

from orderbook.core.jit import primitive
from orderbook.core.native_types import WIDE, Int128
from orderbook.engine.maps.memory import WORD, _load, _store, pointer, signed
from orderbook.engine.maps.store_layout import GAP_ROOM
from orderbook.engine.maps.wide_numbers import _load_apart, wrapped


def _literal(value: types.Type, what: str) -> int:
    if not isinstance(value, types.IntegerLiteral):
        raise TypingError(f"{what} must be a literal")
    return int(value.literal_value)


def _width(value: types.Type) -> int:
    return _literal(value, "the width of a node array")


def _vector(width: int) -> ir.VectorType:
    return ir.VectorType(WORD, width)


def _splat(builder: ir.IRBuilder, value: ir.Value, width: int) -> ir.Value:
    vector = _vector(width)
    one = builder.insert_element(vector(ir.Undefined), value, ir.IntType(32)(0))
    lanes = ir.VectorType(ir.IntType(32), width)([ir.IntType(32)(0)] * width)
    return builder.shuffle_vector(one, vector(ir.Undefined), lanes)


def _array(builder: ir.IRBuilder, address: ir.Value, index: int, width: int) -> ir.Value:
    return builder.bitcast(pointer(builder, address, WORD(index)), _vector(width).as_pointer())


def _bits(builder: ir.IRBuilder, mask: ir.Value, width: int) -> ir.Value:
    return builder.bitcast(mask, ir.IntType(width))


def _count(comparison: str) -> Callable[..., Any]:
    def declare(typing_context, address, key, width):
        lanes = _width(width)

        def generate(context, builder, signature, arguments):
            keys = builder.load(_array(builder, arguments[0], 0, lanes), align=8)
            mask = builder.icmp_signed(comparison, keys, _splat(builder, arguments[1], lanes))
            count = builder.ctpop(_bits(builder, mask, lanes))
            if lanes == 64:
                return count
            return builder.zext(count, WORD) if lanes < 64 else builder.trunc(count, WORD)

        return types.int64(types.int64, types.int64, width), generate

    return declare


def _python_count(compare: Callable[[int, int], bool]) -> Callable[[int, int, int], int]:
    return lambda address, key, width: sum(compare(_load(address, i), key) for i in range(width))


# count_below(address, key, width) -> int64: how many of the words are < key (as signed integers).
count_below = primitive(_python_count(lambda a, b: a < b), prefer_literal=True)(_count("<"))
# count_at_most(address, key, width) -> int64: how many of the words are <= key.
count_at_most = primitive(_python_count(lambda a, b: a <= b), prefer_literal=True)(_count("<="))


def _count_wide(comparison: str) -> Callable[..., Any]:
    def declare(typing_context, address, key, width):
        lanes = _width(width)

        def generate(context, builder, signature, arguments):
            address, key = arguments[:2]
            low, high = (
                builder.load(_array(builder, address, at, lanes), align=8) for at in (0, lanes + GAP_ROOM)
            )
            key_low = _splat(builder, builder.trunc(key, WORD), lanes)
            key_high = _splat(builder, builder.trunc(builder.lshr(key, WIDE(64)), WORD), lanes)
            level = builder.and_(
                builder.icmp_signed("==", high, key_high), builder.icmp_unsigned(comparison, low, key_low)
            )
            mask = builder.or_(builder.icmp_signed("<", high, key_high), level)
            return builder.zext(builder.ctpop(_bits(builder, mask, lanes)), WORD)

        return types.int64(types.int64, Int128, width), generate

    return declare


def _python_count_wide(compare: Callable[[int, int], bool]) -> Callable[[int, int, int], int]:
    return lambda address, key, width: sum(
        compare(_load_apart(address, i, width + GAP_ROOM), int(key)) for i in range(width)
    )


# count_wide_below(address, key, width) -> int64: how many Int128 are < key; low words are at the address.
count_wide_below = primitive(_python_count_wide(lambda a, b: a < b), prefer_literal=True)(_count_wide("<"))
# count_wide_at_most(address, key, width) -> int64: how many of them are <= key.
count_wide_at_most = primitive(_python_count_wide(lambda a, b: a <= b), prefer_literal=True)(
    _count_wide("<=")
)


def _after(builder: ir.IRBuilder, position: ir.Value, width: int) -> ir.Value:
    lanes = _vector(width)([WORD(i) for i in range(width)])
    return builder.icmp_signed(">=", lanes, _splat(builder, position, width))


def _masked(builder: ir.IRBuilder, value: ir.Value, mask: ir.Value, width: int) -> ir.Value:
    return builder.select(mask, _splat(builder, value, width), _vector(width)(None))


def _shifted(
    builder: ir.IRBuilder, address: ir.Value, first: int, mask: ir.Value, width: int, shift: int
) -> ir.Value:
    """Words `first`.. of an array, where the mask is set those `shift` places before."""
    here = builder.load(_array(builder, address, first, width), align=8)
    if shift == 0:
        return here
    there = builder.load(_array(builder, address, first - shift, width), align=8)
    if shift < 0:
        inside = ir.VectorType(ir.IntType(1), width)([ir.IntType(1)(i + 1 < width) for i in range(width)])
        mask = builder.and_(mask, inside)
    return builder.select(mask, there, here)


def _python_shift(address: int, first: int, start: int, width: int, shift: int) -> None:
    words = [_load(address, first + i) for i in range(width)]
    for i in range(start, width):
        if (shift > 0 and i > 0) or (shift < 0 and i + 1 < width):
            _store(address, first + i, words[i - shift] if i - shift >= 0 else words[i])


def _python_shift_words(address: int, position: int, word: int, width: int, shift: int) -> None:
    _python_shift(address, 0, position, width, shift)
    _store(address, position if shift > 0 else width - 1, word)


@primitive(_python_shift_words, prefer_literal=True)
def shift_words(typing_context, address, position, word, width, shift):
    """shift_words(address, position, word, width, shift): open or close a place of an array.

    `shift` is 1 to put `word` in at `position`, or -1 to take that place out and end with `word`.
    """
    lanes, by = _width(width), _literal(shift, "shift")

    def generate(context, builder, signature, arguments):
        address, position, word = arguments[:3]
        moved = _shifted(builder, address, 0, _after(builder, position, lanes), lanes, by)
        target = position if by > 0 else WORD(lanes - 1)
        builder.store(moved, _array(builder, address, 0, lanes), align=8)
        builder.store(word, pointer(builder, address, target), align=8)
        return context.get_dummy_value()

    return types.void(types.int64, types.int64, types.int64, width, shift), generate


def _python_raise(address: int, position: int, delta: int, width: int, shift: int) -> None:
    if shift:
        _python_shift(address + 8, 0, position, width, shift)
        if shift > 0:
            _store(address, position + 1, _load(address, position))
    for i in range(position + 1, width + 1):
        _store(address, i, _load(address, i) + int(delta))


@primitive(_python_raise, prefer_literal=True)
def raise_after(typing_context, address, position, delta, width, shift):
    """raise_after(address, position, delta, width, shift): add `delta` to words position + 1 .. width.

    These are the running sums after a place. `shift` is 0, or 1 to open that place first, or -1 to
    close it (its value is then -delta).
    """
    lanes, by = _width(width), _literal(shift, "shift")

    def generate(context, builder, signature, arguments):
        address, position, delta = arguments[:3]
        mask = _after(builder, position, lanes)
        before = _shifted(builder, address, 1, mask, lanes, by)
        total = builder.add(before, _masked(builder, delta, mask, lanes))
        builder.store(total, _array(builder, address, 1, lanes), align=8)
        return context.get_dummy_value()

    return types.void(types.int64, types.int64, types.int64, width, shift), generate


def _raise_wide(
    builder: ir.IRBuilder, arguments: list[ir.Value], lanes: int, by: int
) -> tuple[ir.Value, ...]:
    address, position, delta = arguments[:3]
    mask = _after(builder, position, lanes)
    low = builder.trunc(delta, WORD)
    high = builder.trunc(builder.lshr(delta, WIDE(64)), WORD)
    high_at = 1 + lanes + GAP_ROOM
    low_added = _masked(builder, low, mask, lanes)
    low_sum = builder.add(_shifted(builder, address, 1, mask, lanes, by), low_added)
    carry = builder.zext(builder.icmp_unsigned("<", low_sum, low_added), _vector(lanes))
    high_before = _shifted(builder, address, high_at, mask, lanes, by)
    high_added = _masked(builder, high, mask, lanes)
    high_sum = builder.add(builder.add(high_before, high_added), carry)
    builder.store(low_sum, _array(builder, address, 1, lanes), align=8)
    builder.store(high_sum, _array(builder, address, high_at, lanes), align=8)
    return high_before, high_added, high_sum


def _python_raise_wide(
    address: int, position: int, delta: int, width: int, shift: int, error_address: int = 0
) -> None:
    high = address + 8 * (width + GAP_ROOM)
    _python_raise(address, position, 0, width, shift)
    _python_raise(high, position, 0, width, shift)
    for i in range(position + 1, width + 1):
        exact = _load_apart(address, i, width + GAP_ROOM) + int(delta)
        if error_address and exact != wrapped(exact):
            _store(error_address, 0, 1)
        _store(address, i, signed(exact))
        _store(high, i, signed(exact >> 64))


@primitive(_python_raise_wide, prefer_literal=True)
def raise_wide_after(typing_context, address, position, delta, width, shift):
    """raise_wide_after(address, position, delta, width, shift): `raise_after` for Int128 values.

    The low words are at `address`, the high words width + GAP_ROOM words on.
    """
    lanes, by = _width(width), _literal(shift, "shift")

    def generate(context, builder, signature, arguments):
        _raise_wide(builder, arguments, lanes, by)
        return context.get_dummy_value()

    return types.void(types.int64, types.int64, Int128, width, shift), generate


@primitive(_python_raise_wide, prefer_literal=True)
def raise_checked_after(typing_context, address, position, delta, width, shift, error_address):
    """raise_checked_after(address, position, delta, width, shift, error_address): reports overflow.

    As `raise_wide_after`; word 0 of `error_address` becomes 1 when a sum does not fit 128 bits.
    """
    lanes, by = _width(width), _literal(shift, "shift")

    def generate(context, builder, signature, arguments):
        before, added, after = _raise_wide(builder, arguments, lanes, by)
        changed = builder.and_(builder.xor(before, after), builder.xor(added, after))
        overflow = builder.icmp_signed("<", changed, _vector(lanes)(None))
        bits = _bits(builder, overflow, lanes)
        with builder.if_then(builder.icmp_unsigned("!=", bits, bits.type(0)), likely=False):
            builder.store(WORD(1), pointer(builder, arguments[5]), align=8)
        return context.get_dummy_value()

    return types.void(types.int64, types.int64, Int128, width, shift, types.int64), generate
