"""Numbers of two words in compiled code: exact 128-bit integers, and double-double sums.

Int128 is a signed 128-bit integer as a numba scalar, in plain Python an int. `+`, `-`, `*`, unary `-`,
comparisons, `min` and `max` take two Int128 or an Int128 and an integer, and wrap like int64 (only
`checked_add` and `checked_multiply` report overflow). Nothing here calls a run-time helper of a C compiler
(__muloti4, __floattidf), which may not be linked.

Beyond sums and products there are the operator `//` (which floors) and conversions from doubles: importing
this module gives Int128 that operator in compiled code.

A double-double is a value kept as the unevaluated sum of two doubles, high and low. Adding is TwoSum (Knuth,
TAOCP 2, 4.2.2) and a renormalisation, as in Dekker (1971).
"""

import operator
from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.core.imputils import lower_builtin, lower_cast
from numba.core.typing.templates import AbstractTemplate, infer_global, signature
from numba.extending import box, models, overload, register_model

from orderbook.core.jit import primitive
from orderbook.core.native_types import SUBSTITUTES, WIDE, Int128, Int128Type
from orderbook.engine.maps.memory import (
    DOUBLE,
    MASK64,
    WORD,
    _load_double,
    _store_double,
    pointer,
    signed,
)
from orderbook.engine.maps.memory import _load as load_word
from orderbook.engine.maps.memory import _store as store_word
from orderbook.views.scalars import integers

BIT = ir.IntType(1)
MASK128 = (1 << 128) - 1


@register_model(Int128Type)
class _Model(models.PrimitiveModel):
    def __init__(self, manager: Any, front_end_type: Any) -> None:
        super().__init__(manager, front_end_type, WIDE)


@lower_cast(types.Integer, Int128)
def _from_integer(context, builder, source, target, value):
    return builder.sext(value, WIDE) if source.signed else builder.zext(value, WIDE)


@box(Int128Type)
def _box(numba_type, value, c):
    high = c.pyapi.long_from_longlong(c.builder.trunc(c.builder.ashr(value, WIDE(64)), WORD))
    low = c.pyapi.long_from_ulonglong(c.builder.trunc(value, WORD))
    bits = c.pyapi.long_from_longlong(WORD(64))
    shifted = c.pyapi.number_lshift(high, bits)
    result = c.pyapi.number_or(shifted, low)
    for part in (high, low, bits, shifted):
        c.pyapi.decref(part)
    return result


def _has_wide(arguments: tuple[types.Type, ...]) -> bool:
    return any(a is Int128 for a in arguments) and all(
        a is Int128 or isinstance(a, types.Integer) for a in arguments
    )


class _Arithmetic(AbstractTemplate):
    def generic(self, args, kws):
        return signature(Int128, *[Int128] * len(args)) if _has_wide(args) else None


class _Comparison(AbstractTemplate):
    def generic(self, args, kws):
        return signature(types.boolean, Int128, Int128) if _has_wide(args) else None


def _declare(function: Any, base: type, count: int, emit: Any) -> None:
    infer_global(function)(type(f"Int128_{function.__name__}", (base,), {}))
    lower_builtin(function, *[Int128] * count)(lambda context, builder, sig, args: emit(builder, *args))


for _function, _name in (
    (operator.add, "add"),
    (operator.sub, "sub"),
    (operator.mul, "mul"),
    (operator.iadd, "add"),
    (operator.isub, "sub"),
    (operator.imul, "mul"),
):
    _declare(_function, _Arithmetic, 2, lambda builder, a, b, name=_name: getattr(builder, name)(a, b))
_declare(operator.neg, _Arithmetic, 1, lambda builder, a: builder.neg(a))
for _function, _name in (
    (operator.lt, "<"),
    (operator.le, "<="),
    (operator.gt, ">"),
    (operator.ge, ">="),
    (operator.eq, "=="),
    (operator.ne, "!="),
):
    _declare(_function, _Comparison, 2, lambda builder, a, b, name=_name: builder.icmp_signed(name, a, b))
for _function, _name in ((min, "<"), (max, ">")):
    _declare(
        _function,
        _Arithmetic,
        2,
        lambda builder, a, b, name=_name: builder.select(builder.icmp_signed(name, b, a), b, a),
    )


def wrapped(value: int) -> int:
    """`value` modulo 2^128 as a signed integer."""
    value &= MASK128
    return value - (1 << 128) if value >> 127 else value


def _join(builder: ir.IRBuilder, low: ir.Value, high: ir.Value) -> ir.Value:
    return builder.or_(builder.shl(builder.zext(high, WIDE), WIDE(64)), builder.zext(low, WIDE))


def _low(builder: ir.IRBuilder, value: ir.Value) -> ir.Value:
    return builder.trunc(value, WORD)


def _high(builder: ir.IRBuilder, value: ir.Value) -> ir.Value:
    return builder.trunc(builder.lshr(value, WIDE(64)), WORD)


@primitive(int)
def wide(typing_context, value):
    """wide(value) -> Int128: an integer (or Int128, unchanged) as an Int128."""

    def generate(context, builder, signature, arguments):
        return arguments[0]

    return Int128(Int128), generate


def _words_to_wide(low: int, high: int) -> int:
    return (int(high) << 64) | (int(low) & MASK64)


@primitive(_words_to_wide)
def words_to_wide(typing_context, low, high):
    """words_to_wide(low, high) -> Int128 of two words, the low one unsigned."""

    def generate(context, builder, signature, arguments):
        return _join(builder, *arguments)

    return Int128(types.int64, types.int64), generate


@primitive(lambda value: signed(int(value)))
def low_word(typing_context, value):
    """low_word(value) -> int64: the low 64 bits of an Int128, as they are."""

    def generate(context, builder, signature, arguments):
        return _low(builder, arguments[0])

    return types.int64(Int128), generate


@primitive(lambda value: signed(int(value) >> 64))
def high_word(typing_context, value):
    """high_word(value) -> int64: the signed high 64 bits of an Int128."""

    def generate(context, builder, signature, arguments):
        return _high(builder, arguments[0])

    return types.int64(Int128), generate


@primitive(lambda a, b: int(a) * int(b))
def wide_product(typing_context, a, b):
    """wide_product(a, b) -> Int128: the exact product of two int64 (one multiply instruction)."""

    def generate(context, builder, signature, arguments):
        return builder.mul(*[builder.sext(a, WIDE) for a in arguments])

    return Int128(types.int64, types.int64), generate


@primitive(float)
def wide_to_double(typing_context, value):
    """wide_to_double(value) -> float64, rounded to nearest even as Python's float(int) does."""

    def generate(context, builder, signature, arguments):
        (value,) = arguments
        negative = builder.icmp_signed("<", value, WIDE(0))
        size = builder.select(negative, builder.neg(value), value)
        leading = builder.ctlz(size, BIT(0))
        zero = builder.icmp_unsigned("==", size, WIDE(0))
        shift = builder.select(zero, WIDE(0), leading)
        scaled = builder.shl(size, shift)
        sticky = builder.zext(builder.icmp_unsigned("!=", _low(builder, scaled), WORD(0)), WORD)
        top = builder.or_(_high(builder, scaled), sticky)
        exponent = builder.sub(WORD(1023 + 64), builder.trunc(shift, WORD))
        power = builder.bitcast(builder.shl(exponent, WORD(52)), ir.DoubleType())
        result = builder.fmul(builder.uitofp(top, ir.DoubleType()), power)
        return builder.select(negative, builder.fneg(result), result)

    return types.float64(Int128), generate


def _load_wide(address: int, index: int) -> int:
    return _words_to_wide(load_word(address, index), load_word(address, index + 1))


@primitive(_load_wide)
def load_wide(typing_context, address, index):
    """load_wide(address, index) -> Int128: words `index` (low) and `index + 1` (high)."""

    def generate(context, builder, signature, arguments):
        here = pointer(builder, *arguments)
        high = builder.load(builder.gep(here, [WORD(1)]), align=8)
        return _join(builder, builder.load(here, align=8), high)

    return Int128(types.int64, types.int64), generate


def _store_wide(address: int, index: int, value: int) -> None:
    store_word(address, index, signed(int(value)))
    store_word(address, index + 1, signed(int(value) >> 64))


@primitive(_store_wide)
def store_wide(typing_context, address, index, value):
    """store_wide(address, index, value): set words `index` (low) and `index + 1` (high)."""

    def generate(context, builder, signature, arguments):
        address, index, value = arguments
        here = pointer(builder, address, index)
        builder.store(_low(builder, value), here, align=8)
        builder.store(_high(builder, value), builder.gep(here, [WORD(1)]), align=8)
        return context.get_dummy_value()

    return types.void(types.int64, types.int64, Int128), generate


def _load_apart(address: int, index: int, distance: int) -> int:
    return _words_to_wide(load_word(address, index), load_word(address, index + distance))


@primitive(_load_apart)
def load_apart(typing_context, address, index, distance):
    """load_apart(address, index, distance) -> Int128 of the words `index` and `index + distance`."""

    def generate(context, builder, signature, arguments):
        here = pointer(builder, arguments[0], arguments[1])
        high = builder.load(builder.gep(here, [arguments[2]]), align=8)
        return _join(builder, builder.load(here, align=8), high)

    return Int128(types.int64, types.int64, types.int64), generate


def _store_apart(address: int, index: int, distance: int, value: int) -> None:
    store_word(address, index, signed(int(value)))
    store_word(address, index + distance, signed(int(value) >> 64))


@primitive(_store_apart)
def store_apart(typing_context, address, index, distance, value):
    """store_apart(address, index, distance, value): set the words `index` and `index + distance`."""

    def generate(context, builder, signature, arguments):
        address, index, distance, value = arguments
        here = pointer(builder, address, index)
        builder.store(_low(builder, value), here, align=8)
        builder.store(_high(builder, value), builder.gep(here, [distance]), align=8)
        return context.get_dummy_value()

    return types.void(types.int64, types.int64, types.int64, Int128), generate


@primitive(lambda a, b: wrapped(int(a) - int(b)))
def wide_difference(typing_context, a, b):
    """wide_difference(a, b) -> Int128: a - b modulo 2^128, also in plain Python."""

    def generate(context, builder, signature, arguments):
        return builder.sub(*arguments)

    return Int128(Int128, Int128), generate


def _report(fits: bool, error_address: int) -> None:
    if not fits:
        store_word(error_address, 0, 1)


def _checked_add(a: int, b: int, error_address: int) -> int:
    result = int(a) + int(b)
    _report(result == wrapped(result), error_address)
    return wrapped(result)


def _flag(builder: ir.IRBuilder, overflow: ir.Value, error_address: ir.Value) -> None:
    with cgutils.if_unlikely(builder, overflow):
        builder.store(WORD(1), pointer(builder, error_address), align=8)


@primitive(_checked_add)
def checked_add(typing_context, a, b, error_address):
    """checked_add(a, b, error_address) -> Int128; sets word 0 of `error_address` to 1 on overflow."""

    def generate(context, builder, signature, arguments):
        a, b, error_address = arguments
        result = builder.add(a, b)
        changed = builder.and_(builder.xor(a, result), builder.xor(b, result))
        _flag(builder, builder.icmp_signed("<", changed, WIDE(0)), error_address)
        return result

    return Int128(Int128, Int128, types.int64), generate


def _checked_subtract(a: int, b: int, error_address: int) -> int:
    return _checked_add(a, -int(b), error_address)


@primitive(_checked_subtract)
def checked_subtract(typing_context, a, b, error_address):
    """checked_subtract(a, b, error_address) -> Int128; sets word 0 of `error_address` on overflow."""

    def generate(context, builder, signature, arguments):
        a, b, error_address = arguments
        result = builder.sub(a, b)
        changed = builder.and_(builder.xor(a, b), builder.xor(a, result))
        _flag(builder, builder.icmp_signed("<", changed, WIDE(0)), error_address)
        return result

    return Int128(Int128, Int128, types.int64), generate


def _checked_multiply(a: int, b: int, error_address: int) -> int:
    result = int(a) * int(b)
    _report(result == wrapped(result), error_address)
    return wrapped(result)


@primitive(_checked_multiply)
def checked_multiply(typing_context, a, b, error_address):
    """checked_multiply(a, b, error_address) -> Int128; sets word 0 of `error_address` on overflow.

    Schoolbook in 64-bit limbs of the magnitudes; at most one cross product may be non-zero.
    """

    def generate(context, builder, signature, arguments):
        a, b, error_address = arguments
        zero, half = WIDE(0), WIDE(1 << 127)
        negative = builder.icmp_signed("<", builder.xor(a, b), zero)
        sizes = [builder.select(builder.icmp_signed("<", x, zero), builder.neg(x), x) for x in (a, b)]
        (a_low, a_high), (b_low, b_high) = (
            (builder.zext(_low(builder, x), WIDE), builder.zext(_high(builder, x), WIDE)) for x in sizes
        )
        both = builder.and_(*[builder.icmp_unsigned("!=", x, zero) for x in (a_high, b_high)])
        cross = builder.add(builder.mul(a_high, b_low), builder.mul(a_low, b_high))
        cross_high = builder.icmp_unsigned("!=", builder.lshr(cross, WIDE(64)), zero)
        low = builder.mul(a_low, b_low)
        size = builder.add(low, builder.shl(cross, WIDE(64)))
        carried = builder.icmp_unsigned("<", size, low)
        limit = builder.select(negative, half, WIDE((1 << 127) - 1))
        overflow = builder.icmp_unsigned(">", size, limit)
        for reason in (both, cross_high, carried):
            overflow = builder.or_(overflow, reason)
        _flag(builder, overflow, error_address)
        return builder.select(negative, builder.neg(size), size)

    return Int128(Int128, Int128, types.int64), generate


def _significand(builder: ir.IRBuilder, value: ir.Value) -> tuple[ir.Value, ir.Value]:
    """The size of a double as an integer of 53 bits, and the power of two it is multiplied with."""
    bits = builder.bitcast(value, WORD)
    exponent = builder.and_(builder.lshr(bits, WORD(52)), WORD(2047))
    normal = builder.icmp_unsigned("!=", exponent, WORD(0))
    hidden = builder.select(normal, WORD(1 << 52), WORD(0))
    size = builder.or_(builder.and_(bits, WORD((1 << 52) - 1)), hidden)
    return size, builder.sub(builder.select(normal, exponent, WORD(1)), WORD(1075))


@primitive(int)
def truncated(typing_context, value):
    """truncated(value) -> Int128: a double below 2^127 in size without its fraction."""

    def generate(context, builder, signature, arguments):
        (value,) = arguments
        size, power = _significand(builder, value)
        size, power = builder.zext(size, WIDE), builder.sext(power, WIDE)
        down = builder.neg(power)
        small = builder.select(builder.icmp_signed("<", down, WIDE(64)), builder.lshr(size, down), WIDE(0))
        result = builder.select(builder.icmp_signed(">=", power, WIDE(0)), builder.shl(size, power), small)
        negative = builder.fcmp_ordered("<", value, DOUBLE(0.0))
        return builder.select(negative, builder.neg(result), result)

    return Int128(types.float64), generate


def floor_of_quotient(dividend, divisor):
    """The greatest Int128 that is not above the quotient of two."""
    rest, by = wide(dividend), wide(divisor)
    if rest == wide(low_word(rest)) and by == wide(low_word(by)) and low_word(by) != -1:
        return wide(low_word(rest) // low_word(by))
    result = wide(0)
    # A double's quotient is near; what remains is divided again until nothing does.
    while True:
        step = truncated(wide_to_double(rest) / wide_to_double(by))
        if step == 0:
            break
        result += step
        rest -= step * by
    if rest != 0 and (rest < 0) != (by < 0):
        result -= 1
        rest += by
    if (by > 0 and rest >= by) or (by < 0 and rest <= by):
        result += 1
    return result


SUBSTITUTES[operator.floordiv] = floor_of_quotient
SUBSTITUTES[float] = wide_to_double


@overload(operator.floordiv)
def _floor_of_quotient(dividend, divisor):
    if Int128 not in (dividend, divisor):
        return None
    if not all(a is Int128 or isinstance(a, types.Integer) for a in (dividend, divisor)):
        return None
    return floor_of_quotient


def _whole(value):
    return truncated(value)


SUBSTITUTES[integers.whole] = _whole
overload(integers.whole)(lambda value: _whole)


def _sum(high: Any, low: Any, more_high: Any, more_low: Any, plus: Any, minus: Any) -> tuple[Any, Any]:
    total = plus(high, more_high)
    part = minus(total, high)
    lost = plus(minus(high, minus(total, part)), minus(more_high, part))
    rest = plus(lost, plus(low, more_low))
    result = plus(total, rest)
    return result, minus(rest, minus(result, total))


def _plus(a: float, b: float) -> float:
    return a + b


def _minus(a: float, b: float) -> float:
    return a - b


def _add_double(address: int, index: int, delta: float) -> None:
    high, low = _load_double(address, index), _load_double(address, index + 1)
    high, low = _sum(high, low, delta, 0.0, _plus, _minus)
    _store_double(address, index, high)
    _store_double(address, index + 1, low)


@primitive(_add_double)
def add_double(typing_context, address, index, delta):
    """add_double(address, index, delta): add to the sum in words `index` (high) and `index + 1` (low)."""

    def generate(context, builder, signature, arguments):
        address, index, delta = arguments
        double = ir.DoubleType()
        here = pointer(builder, address, index)
        high_at = builder.bitcast(here, double.as_pointer())
        low_at = builder.bitcast(builder.gep(here, [ir.IntType(64)(1)]), double.as_pointer())
        parts = builder.load(high_at, align=8), builder.load(low_at, align=8), delta, double(0.0)
        high, low = _sum(*parts, builder.fadd, builder.fsub)
        builder.store(high, high_at, align=8)
        builder.store(low, low_at, align=8)
        return context.get_dummy_value()

    return types.void(types.int64, types.int64, types.float64), generate


def _sum_doubles(high: float, low: float, more_high: float, more_low: float) -> tuple[float, float]:
    return _sum(high, low, more_high, more_low, _plus, _minus)


@primitive(_sum_doubles)
def sum_doubles(typing_context, high, low, more_high, more_low):
    """sum_doubles(high, low, more_high, more_low) -> (high, low) of the sum of two double-doubles."""

    def generate(context, builder, signature, arguments):
        high, low, more_high, more_low = arguments
        parts = _sum(high, low, more_high, more_low, builder.fadd, builder.fsub)
        return context.make_tuple(builder, signature.return_type, parts)

    return types.UniTuple(types.float64, 2)(*[types.float64] * 4), generate
