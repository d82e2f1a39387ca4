"""Sums of powers in compiled code: what they come to, by integers of 256 and 512 bits, rounded once.

Importing this module gives the functions of sums of `integers` in views/scalars their compiled versions, of
Int128 sums. Products of integers this wide are made of those of words, without helpers of a C compiler.
"""

from typing import Any

from llvmlite import ir
from numba import types
from numba.extending import overload

from orderbook.core.jit import primitive
from orderbook.core.native_types import SUBSTITUTES, Int128
from orderbook.engine.maps.memory import DOUBLE, WORD
from orderbook.engine.maps.wide_numbers import BIT, wide
from orderbook.views.scalars import integers

TWO_FACTORS = ir.IntType(256)
FOUR_FACTORS = ir.IntType(512)


class _Number:
    """An integer of the width of `kind` while code is generated."""

    def __init__(self, builder: ir.IRBuilder, value: ir.Value, kind: ir.IntType) -> None:
        self.builder, self.kind = builder, kind
        self.value = value if value.type == kind else builder.sext(value, kind)

    def __add__(self, other: "_Number") -> "_Number":
        return self._of(self.builder.add(self.value, other.value))

    def __sub__(self, other: "_Number") -> "_Number":
        return self._of(self.builder.sub(self.value, other.value))

    def __mul__(self, other: "_Number | int") -> "_Number":
        factor = self.kind(other) if isinstance(other, int) else other.value
        return self._of(self.builder.mul(self.value, factor))

    def __lshift__(self, bits: int) -> "_Number":
        return self._of(self.builder.shl(self.value, self.kind(bits)))

    def _of(self, value: ir.Value) -> "_Number":
        return _Number(self.builder, value, self.kind)

    def rounded(self) -> ir.Value:
        """The nearest double."""
        builder, kind, bits = self.builder, self.kind, self.kind.width
        negative = builder.icmp_signed("<", self.value, kind(0))
        size = builder.select(negative, builder.neg(self.value), self.value)
        shift = builder.ctlz(size, BIT(0))
        scaled = builder.shl(size, builder.select(builder.icmp_unsigned("==", size, kind(0)), kind(0), shift))
        high = builder.lshr(scaled, kind(bits - 64))
        sticky = builder.icmp_unsigned("!=", builder.shl(high, kind(bits - 64)), scaled)
        top = builder.or_(builder.trunc(high, WORD), builder.zext(sticky, WORD))
        exponent = builder.sub(WORD(1023 + bits - 64), builder.trunc(shift, WORD))
        power = builder.bitcast(builder.shl(exponent, WORD(52)), DOUBLE)
        result = builder.fmul(builder.uitofp(top, DOUBLE), power)
        return builder.select(negative, builder.fneg(result), result)


def _numbers(builder: Any, arguments: Any, kind: ir.IntType) -> list[_Number]:
    return [_Number(builder, a, kind) for a in arguments]


@primitive(integers.spread)
def _spread(typing_context, count, left, right, products):
    """_spread(sums) -> float64: `integers.spread` of Int128 sums."""

    def generate(context, builder, signature, arguments):
        count, left, right, products = _numbers(builder, arguments, TWO_FACTORS)
        return (count * products - left * right).rounded()

    return types.float64(*[Int128] * 4), generate


@primitive(integers.third)
def _third(typing_context, count, total, squares, cubes, high_cubes):
    """_third(sums) -> float64: `integers.third` of Int128 sums."""

    def generate(context, builder, signature, arguments):
        count, total, squares, cubes, high_cubes = _numbers(builder, arguments, FOUR_FACTORS)
        cubes += high_cubes << integers.LIMB
        return (count * (count * cubes - total * squares * 3) + total * total * total * 2).rounded()

    return types.float64(*[Int128] * 5), generate


@primitive(integers.fourth)
def _fourth(typing_context, count, total, squares, cubes, high_cubes, low, middle, high):
    """_fourth(sums) -> float64: `integers.fourth` of Int128 sums."""

    def generate(context, builder, signature, arguments):
        sums = _numbers(builder, arguments, FOUR_FACTORS)
        count, total, squares, cubes, high_cubes, low, middle, high = sums
        cubes += high_cubes << integers.LIMB
        powers = low + (middle << integers.LIMB + 1) + (high << 2 * integers.LIMB)
        rest = count * total * squares * 6 - count * count * cubes * 4 - total * total * total * 3
        return (count * count * count * powers + total * rest).rounded()

    return types.float64(*[Int128] * 8), generate


def _exact_spread(count, left, right, products):
    return _spread(wide(count), wide(left), wide(right), wide(products))


def _exact_third(count, total, squares, cubes, high_cubes):
    return _third(wide(count), wide(total), wide(squares), wide(cubes), wide(high_cubes))


def _exact_fourth(count, total, squares, cubes, high_cubes, low, middle, high):
    return _fourth(
        wide(count),
        wide(total),
        wide(squares),
        wide(cubes),
        wide(high_cubes),
        wide(low),
        wide(middle),
        wide(high),
    )


SUBSTITUTES[integers.spread] = _exact_spread
SUBSTITUTES[integers.third] = _exact_third
SUBSTITUTES[integers.fourth] = _exact_fourth
overload(integers.spread)(lambda count, left, right, products: _exact_spread)
overload(integers.third)(lambda count, total, squares, cubes, high_cubes: _exact_third)
overload(integers.fourth)(lambda count, total, squares, cubes, high_cubes, low, middle, high: _exact_fourth)
