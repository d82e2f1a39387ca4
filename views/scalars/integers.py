"""Exact functions of integers of 64 or 128 bits; `//` floors, and a divisor of 0 gives 0.

After them the functions whose results need more than 64 bits, or whose intermediate results need more than
128: for those compiled code has versions of its own, in `wide_numbers` and `wide_moments` of engine/maps.
"""

from orderbook.views.scalars import reals


def sign(value: float) -> int:
    """-1, 0 or 1; of a double too."""
    return int(value > 0) - int(value < 0)


def least(left: int, right: int) -> int:
    return left if left <= right else right


def greatest(left: int, right: int) -> int:
    return left if left >= right else right


def floor_div(dividend: int, divisor: int) -> int:
    """The greatest integer that is not above the quotient."""
    if divisor == 0:
        return 0
    # The machine's division cannot take the least integer by -1.
    return -dividend if divisor == -1 else dividend // divisor


def ceil_div(dividend: int, divisor: int) -> int:
    """The least integer that is not below the quotient."""
    if divisor == 0:
        return 0
    quotient = dividend if divisor == 1 else -dividend if divisor == -1 else dividend // divisor
    return quotient if quotient * divisor == dividend else quotient + 1


def trunc_div(dividend: int, divisor: int) -> int:
    """The quotient without its fraction."""
    if divisor == 0:
        return 0
    quotient = -dividend if divisor == -1 else dividend // divisor
    return quotient + 1 if quotient < 0 and quotient * divisor != dividend else quotient


def round_div(dividend: int, divisor: int) -> int:
    """The integer nearest to the quotient, halves away from zero."""
    if divisor == 0:
        return 0
    quotient = -dividend if divisor == -1 else dividend // divisor
    rest = dividend - quotient * divisor
    # The rest has the sign of the divisor and is nearer to 0; `other` is what is left up to the divisor.
    other = divisor - rest
    if divisor < 0:
        rest, other = -rest, -other
    positive = (dividend < 0) == (divisor < 0)
    return quotient + 1 if rest > other or (rest == other and positive) else quotient


def mod(dividend: int, divisor: int) -> int:
    """What `trunc_div` leaves: it has the sign of the dividend."""
    if divisor == 0 or divisor == -1:
        return 0
    rest = dividend - dividend // divisor * divisor
    return rest - divisor if rest != 0 and (dividend < 0) != (divisor < 0) else rest


FUNCTIONS = (sign, least, greatest, floor_div, ceil_div, trunc_div, round_div, mod)


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


def rest(value: int, nearest: float) -> int:
    """What is left of a value when a double near to it is taken away."""
    return value - whole(nearest)


# Powers beyond 128 bits are summed in parts: the low ones below 2**LIMB, the high ones times that.
LIMB = 48


def spread(count: int, left: int, right: int, products: int) -> float:
    """count * products - left * right, rounded once."""
    return float(count * products - left * right)


def third(count: int, total: int, squares: int, cubes: int, high_cubes: int) -> float:
    """count**3 times the mean third power of values about their mean; from sums of powers, rounded once."""
    cubes += high_cubes << LIMB
    return float(count * (count * cubes - 3 * total * squares) + 2 * total**3)


def fourth(
    count: int, total: int, squares: int, cubes: int, high_cubes: int, low: int, middle: int, high: int
) -> float:
    """count**4 times the mean fourth power of values about their mean; from sums of powers, rounded once.

    The sum of fourth powers is low + 2 * middle * 2**LIMB + high * 4**LIMB.
    """
    cubes += high_cubes << LIMB
    powers = low + (middle << LIMB + 1) + (high << 2 * LIMB)
    rest = 6 * count * total * squares - 4 * count**2 * cubes - 3 * total**3
    return float(count**3 * powers + total * rest)
