"""The order of doubles as words of trees, and where it lies among exact keys."""

from engine.changes import NULL_CODE
from orderbook.jit import jit

HIGHEST = 2**63 - 1
# How far, relative to a bound, rounding can carry the key that meets it.
NEAR = 2.0**-48


@jit()
def ordered_word(word):  # type: ignore[no-untyped-def]
    """The 64 bits of a double as an integer in the order of doubles, or back; NULL stays below all."""
    if word >= 0 or word == NULL_CODE:
        return word
    return word ^ HIGHEST


@jit()
def last_below(bound, divisor):  # type: ignore[no-untyped-def]
    """The greatest int64 n with n / divisor < bound, in doubles; -2^63 where there is none."""
    low, high = _bracket(bound, divisor)
    if not float(low) / divisor < bound:
        low = NULL_CODE
    if float(high) / divisor < bound:
        high = HIGHEST
    while low < high:
        middle = (low | high) - ((low ^ high) >> 1)
        if float(middle) / divisor < bound:
            low = middle
        else:
            high = middle - 1
    return low


@jit()
def last_at_most(bound, divisor):  # type: ignore[no-untyped-def]
    """The greatest int64 n with n / divisor <= bound, in doubles; -2^63 where there is none."""
    low, high = _bracket(bound, divisor)
    if not float(low) / divisor <= bound:
        low = NULL_CODE
    if float(high) / divisor <= bound:
        high = HIGHEST
    while low < high:
        middle = (low | high) - ((low ^ high) >> 1)
        if float(middle) / divisor <= bound:
            low = middle
        else:
            high = middle - 1
    return low


@jit()
def _bracket(bound, divisor):  # type: ignore[no-untyped-def]
    """Two integers that a bound is very likely between."""
    middle = bound * divisor
    width = abs(middle) * NEAR + 2.0
    low, high = middle - width, middle + width
    if not (low > -9.2e18 and high < 9.2e18):
        return NULL_CODE, HIGHEST
    return int(low), int(high)
