"""Functions in Python that the tests' views call."""

import math

import numba
import numpy as np

HALF = 0.5
WEIGHTS = np.array([0.5, 0.25, 0.125])
most = 100


@numba.njit
def halved(x, times):  # type: ignore[no-untyped-def]
    return x * HALF**times


def decay(x: float, half: float) -> float:
    """x after `half` half-lives."""
    return float(halved(2.0 * x, half) * HALF)


def inverse(x: float) -> float:
    """Raises for 0."""
    return 1.0 / x


def root(x: float) -> float:
    """NaN below 0, in Python too."""
    return math.sqrt(x) if x >= 0.0 else math.nan


def zero(x: float) -> float:
    return -0.0 * x


def larger(a: int, b: int) -> int:
    return a if a > b else b


def bucket(n: int, even: bool) -> int:
    if even:
        return n // 2
    return n


def is_large(x: float) -> bool:
    return x > 2.0


def later(ts: int, n: int) -> int:
    return ts + n * 1000


def weighed(n: int) -> float:
    total = 0.0
    for place in range(len(WEIGHTS)):
        total += WEIGHTS[place] * n
    return total


def at_least(n: int) -> int:
    if not -most <= n <= most:
        raise ValueError(f"more than {most}")
    return n


def weight_at(n: int) -> float:
    return float(WEIGHTS[n])


def doubled(n: int) -> int:
    return 2 * n


def text(x: float) -> str:
    return "x"


def unknown(x: float) -> float:
    return foo(x)  # type: ignore[name-defined, no-any-return]  # noqa: F821


def perhaps(x: float) -> float | None:
    return x if x > 0.0 else None


def named(x: float, *, scale: float = 1.0) -> float:
    return x * scale


def scaled(x: float, scale: float = 2.0) -> float:
    return x * scale


class NoFunction:
    """What is declared as a function by mistake."""
