"""Makes the functions of `views.scalars` callable from compiled code; generated modules import them here."""

import math

from numba.extending import overload, register_jitable

from engine.maps import wide_numbers
from views.scalars import calendar, integers, precise, reals

for _function in (*integers.FUNCTIONS, *reals.FUNCTIONS, *calendar.FUNCTIONS, precise.exact):
    register_jitable(_function)


@overload(reals.raised)
def _raised(base, exponent):  # type: ignore[no-untyped-def]
    def raised(base, exponent):  # type: ignore[no-untyped-def]
        return math.pow(base, exponent)

    return raised


__all__ = ["calendar", "integers", "precise", "reals", "wide_numbers"]
