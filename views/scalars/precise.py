"""Functions whose results need more than 64 bits, or whose intermediate results need more than 128."""

from . import reals

INT128_MAX = 2**127 - 1


def exact(value: float, scale: int) -> int:
    """The scaled integer nearest to a double, as DuckDB casts it; 0 where 128 bits do not hold it.

    Without a scale halves go to even. With one, the product of doubles is rounded, halves away from zero.
    """
    scaled = value * reals.POWERS_OF_TEN[scale]
    if not abs(scaled) < 2.0**127:
        return 0
    return whole(reals.half_even(scaled) if scale == 0 else reals.nearest(scaled))


def whole(value: float) -> int:
    """A double without a fraction as an integer."""
    return int(value)


def spread(count: int, total: int, squares: int) -> float:
    """count * squares - total * total, rounded once."""
    return float(count * squares - total * total)
