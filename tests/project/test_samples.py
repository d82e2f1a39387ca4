"""Samples of cases: a turn has some of everything, and turns together have all."""

import pytest
from samples import is_drawn


@pytest.mark.parametrize("every", range(1, 9))
def test_turns_have_all_cases_once(every: int) -> None:
    for first in (0, 5, 100):
        drawn = [n for turn in range(first, first + every) for n in range(97) if is_drawn(n, every, turn)]
        assert sorted(drawn) == list(range(97))


@pytest.mark.parametrize("values", range(2, 7))
def test_a_turn_has_every_value_of_each_parameter(values: int) -> None:
    """Also of the one that changes fastest, of which cases are as many as of a sample."""
    for turn in range(values):
        cases = [divmod(n, values) for n in range(values * values) if is_drawn(n, values, turn)]
        assert all(sorted(places) == list(range(values)) for places in zip(*cases, strict=True))
