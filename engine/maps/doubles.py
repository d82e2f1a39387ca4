"""Double-double sums: a value kept as the unevaluated sum of two doubles, high and low.

Adding is TwoSum (Knuth, TAOCP 2, 4.2.2) and a renormalisation, as in Dekker (1971).
"""

from typing import Any

from llvmlite import ir
from numba import types

from .memory import _load_double, _store_double, pointer, primitive


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
