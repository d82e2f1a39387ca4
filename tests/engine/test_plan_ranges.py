"""Ends of what goes into a sum, product or quotient of doubles: exact to the last bit, however it rounds."""

import math
import operator
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from samples import examples

from orderbook.engine.generate.state_layout import SCRATCH
from orderbook.engine.generate.support import (
    last_addend,
    last_at_most,
    last_below,
    last_dividend,
    last_factor,
)

DOUBLES = st.one_of(
    st.floats(allow_nan=False, allow_infinity=False),
    st.sampled_from((0.0, 1.0, -1.0, 0.1, 100.01, -65000.5, 1e-300, 5e-324, 1e300, 2.0**53)),
)
INVERSES: dict[str, tuple[Callable[..., float], Callable[[float, float], float]]] = {
    "addend": (last_addend, operator.add),
    "factor": (last_factor, operator.mul),
    "dividend": (last_dividend, operator.truediv),
}
STATE = np.zeros(SCRATCH + 1, np.int64)


@pytest.mark.parametrize("name", INVERSES)
@examples(150)
@given(bound=DOUBLES, operand=DOUBLES, strict=st.booleans())
@example(bound=100.0, operand=-1e300, strict=True)
@example(bound=0.0, operand=1e-300, strict=False)
@example(bound=-5e-324, operand=3.0, strict=False)
def test_a_double_is_the_last_within_the_bound(name: str, bound: float, operand: float, strict: bool) -> None:
    inverse, function = INVERSES[name]
    if name != "addend":
        operand = abs(operand) or 1.0

    def within(value: float) -> bool:
        found = function(value, operand)
        return found < bound if strict else found <= bound

    last = inverse(STATE.ctypes.data, bound, operand, strict)
    assert last == -math.inf or within(last)
    assert last == math.inf or not within(math.nextafter(last, math.inf))


@pytest.mark.parametrize("strict", [False, True])
@pytest.mark.parametrize("bound", [-1.0, 0.0, 1.0])
def test_a_factor_of_zero_leaves_all_or_nothing(bound: float, strict: bool) -> None:
    within = bound > 0.0 if strict else bound >= 0.0
    assert last_factor(STATE.ctypes.data, bound, 0.0, strict) == (math.inf if within else -math.inf)
    assert last_factor(STATE.ctypes.data, bound, -2.0, strict) == math.inf


@pytest.mark.parametrize("last", [last_below, last_at_most])
def test_every_integer_lies_within_infinity(last: Callable[[float, float], int]) -> None:
    assert last(math.inf, 100.0) == 2**63 - 1
    assert last(-math.inf, 100.0) == -(2**63)
