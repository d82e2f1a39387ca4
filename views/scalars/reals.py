"""Functions of doubles: 0.0 outside their domain, infinite where the result is beyond doubles, never -0.0."""

import math

POWERS_OF_TEN = tuple(float(10**n) for n in range(309))
# A double this large has no fraction.
WHOLE = 2.0**52
LARGEST_EXPONENT = 709.782712893384
# Beyond it hyperbolic functions are greater than any double.
LARGEST_HYPERBOLIC = 710.4758600739439


def divide(dividend: float, divisor: float) -> float:
    """The quotient; 0 by 0."""
    return dividend / divisor + 0.0 if divisor != 0.0 else 0.0


def sqrt(value: float) -> float:
    return math.sqrt(value) + 0.0 if value >= 0.0 else 0.0


def ln(value: float) -> float:
    return math.log(value) if value > 0.0 else 0.0


def log10(value: float) -> float:
    return math.log10(value) if value > 0.0 else 0.0


def exp(value: float) -> float:
    # Above the logarithm of the greatest double Python would raise.
    return math.exp(value) if value <= LARGEST_EXPONENT else math.inf


def power(base: float, exponent: float) -> float:
    """`base` to `exponent`; outside its domain are 0 to a negative and a negative base to a fraction."""
    if (base == 0.0 and exponent < 0.0) or (base < 0.0 and exponent != floor(exponent)):
        return 0.0
    return raised(base, exponent) + 0.0


def raised(base: float, exponent: float) -> float:
    """`math.pow`, infinite where Python raises; compiled code calls the same function of the C library."""
    try:
        return math.pow(base, exponent)
    except OverflowError:
        return -math.inf if base < 0.0 and exponent % 2.0 == 1.0 else math.inf


def sin(value: float) -> float:
    return math.sin(value) + 0.0


def cos(value: float) -> float:
    return math.cos(value) + 0.0


def tan(value: float) -> float:
    return math.tan(value) + 0.0


def asin(value: float) -> float:
    return math.asin(value) + 0.0 if abs(value) <= 1.0 else 0.0


def acos(value: float) -> float:
    return math.acos(value) + 0.0 if abs(value) <= 1.0 else 0.0


def atan(value: float) -> float:
    return math.atan(value) + 0.0


def atan2(y: float, x: float) -> float:
    """The angle of the point (x, y), from -pi to pi."""
    return math.atan2(y, x) + 0.0


def sinh(value: float) -> float:
    if abs(value) > LARGEST_HYPERBOLIC:
        return math.inf if value > 0.0 else -math.inf
    return math.sinh(value) + 0.0


def cosh(value: float) -> float:
    return math.cosh(value) if abs(value) <= LARGEST_HYPERBOLIC else math.inf


def tanh(value: float) -> float:
    return math.tanh(value) + 0.0


def asinh(value: float) -> float:
    return math.asinh(value) + 0.0


def acosh(value: float) -> float:
    return math.acosh(value) + 0.0 if value >= 1.0 else 0.0


def atanh(value: float) -> float:
    return math.atanh(value) + 0.0 if abs(value) < 1.0 else 0.0


# Of one double each: sines and tangents, hyperbolic ones, and their inverses.
TRIGONOMETRY = {
    f.__name__: f for f in (sin, cos, tan, asin, acos, atan, sinh, cosh, tanh, asinh, acosh, atanh)
}


def trunc(value: float) -> float:
    return float(int(value)) + 0.0 if abs(value) < WHOLE else value


def floor(value: float) -> float:
    whole = trunc(value)
    return whole - 1.0 if whole > value else whole


def ceil(value: float) -> float:
    whole = trunc(value)
    return whole + 1.0 if whole < value else whole


def nearest(value: float) -> float:
    """The nearest whole number, halves away from zero."""
    whole = trunc(value)
    if abs(value - whole) < 0.5:
        return whole
    return whole + 1.0 if value > 0.0 else whole - 1.0


def half_even(value: float) -> float:
    """The nearest whole number, halves to the even one."""
    whole = trunc(value)
    rest = abs(value - whole)
    if rest < 0.5 or (rest == 0.5 and whole % 2.0 == 0.0):
        return whole
    return whole + 1.0 if value > 0.0 else whole - 1.0


def round_to(value: float, digits: int) -> float:
    """The value to `digits` decimal places, or before the point where negative; as DuckDB rounds."""
    if abs(digits) > 308:
        return value if digits > 0 else 0.0
    power_of_ten = POWERS_OF_TEN[abs(digits)]
    if digits < 0:
        rounded = nearest(value / power_of_ten) * power_of_ten
        return rounded if math.isfinite(rounded) else 0.0
    rounded = nearest(value * power_of_ten) / power_of_ten
    return rounded if math.isfinite(rounded) else value


def is_finite(value: float) -> bool:
    return math.isfinite(value)


def split(value: float) -> tuple[float, float]:
    """Two doubles of half the digits, whose sum is the value (Veltkamp's splitting)."""
    scaled = 134217729.0 * value
    high = scaled - (scaled - value)
    return high, value - high


def lost(left: float, right: float, product: float) -> float:
    """What rounding took from a product of doubles, exactly (Dekker 1971)."""
    left_high, left_low = split(left)
    right_high, right_low = split(right)
    rest = left_high * right_high - product + left_high * right_low + left_low * right_high
    return rest + left_low * right_low


def spread(count: float, left: float, right: float, products: float) -> float:
    """count * products - left * right, both products exact; never negative where left is right."""
    first, second = count * products, left * right
    exact = (first - second) + (lost(count, products, first) - lost(left, right, second))
    difference = exact if math.isfinite(exact) else first - second
    return difference if difference > 0.0 or left != right else 0.0


# The powers of doubles are summed whole: their high parts are 0.
def third(count: float, total: float, squares: float, cubes: float, high_cubes: float) -> float:
    """count**3 times the mean third power of values about their mean, from sums of powers."""
    return count * (count * cubes - 3.0 * total * squares) + 2.0 * total * total * total + 0.0


def fourth(
    count: float,
    total: float,
    squares: float,
    cubes: float,
    high_cubes: float,
    low: float,
    middle: float,
    high: float,
) -> float:
    """count**4 times the mean fourth power of values about their mean, from sums of powers."""
    rest = 6.0 * count * total * squares - 4.0 * count * count * cubes - 3.0 * total * total * total
    return count * count * count * low + total * rest + 0.0


FUNCTIONS = (
    divide,
    sqrt,
    ln,
    log10,
    exp,
    power,
    atan2,
    *TRIGONOMETRY.values(),
    trunc,
    floor,
    ceil,
    nearest,
    half_even,
    round_to,
    is_finite,
    split,
    lost,
    spread,
    third,
    fourth,
)
