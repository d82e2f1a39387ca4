"""128-bit integers beyond sums and products: quotients, conversions from doubles, 256-bit intermediates.

Importing this module gives Int128 the operator `//` (which floors) in compiled code, and compiled
versions of the functions of `views.scalars.precise`.
"""

import operator

from llvmlite import ir
from numba import types
from numba.extending import overload

from views.scalars import precise

from .int128 import BIT, WIDE, Int128, low_word, wide, wide_to_double
from .memory import DOUBLE, WORD, primitive

VAST = ir.IntType(256)


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


@overload(operator.floordiv)
def _floor_of_quotient(dividend, divisor):
    if Int128 not in (dividend, divisor):
        return None
    if not all(a is Int128 or isinstance(a, types.Integer) for a in (dividend, divisor)):
        return None

    def quotient(dividend, divisor):
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

    return quotient


@overload(precise.whole)
def _whole(value):
    def whole(value):
        return truncated(value)

    return whole


@primitive(precise.spread)
def _spread(typing_context, count, total, squares):
    """_spread(count, total, squares) -> float64 of count * squares - total * total, rounded once."""

    def generate(context, builder, signature, arguments):
        count, total, squares = [builder.sext(a, VAST) for a in arguments]
        value = builder.sub(builder.mul(count, squares), builder.mul(total, total))
        negative = builder.icmp_signed("<", value, VAST(0))
        size = builder.select(negative, builder.neg(value), value)
        shift = builder.ctlz(size, BIT(0))
        scaled = builder.shl(size, builder.select(builder.icmp_unsigned("==", size, VAST(0)), VAST(0), shift))
        high = builder.lshr(scaled, VAST(192))
        sticky = builder.icmp_unsigned("!=", builder.shl(high, VAST(192)), scaled)
        top = builder.or_(builder.trunc(high, WORD), builder.zext(sticky, WORD))
        exponent = builder.sub(WORD(1023 + 192), builder.trunc(shift, WORD))
        power = builder.bitcast(builder.shl(exponent, WORD(52)), DOUBLE)
        result = builder.fmul(builder.uitofp(top, DOUBLE), power)
        return builder.select(negative, builder.fneg(result), result)

    return types.float64(Int128, Int128, Int128), generate


@overload(precise.spread)
def _exact_spread(count, total, squares):
    def spread(count, total, squares):
        return _spread(wide(count), wide(total), wide(squares))

    return spread
