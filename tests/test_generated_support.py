"""The functions that generated modules call."""

from hypothesis import given
from hypothesis import strategies as st
from numba import njit

from engine.generate.support import floor_divide
from engine.maps.int128 import high_word, low_word, words_to_wide


@njit
def _quotient(low: int, high: int, divisor: int) -> tuple[int, int]:
    quotient = floor_divide(words_to_wide(low, high), divisor)
    return low_word(quotient), high_word(quotient)


def _signed(word: int) -> int:
    return word - 2**64 if word >= 2**63 else word


@given(
    st.integers(-(2**126), 2**126), st.one_of(st.integers(1, 2**62), st.sampled_from([1, 2, 10**8, 10**17]))
)
def test_floor_division_of_128_bits(dividend: int, divisor: int) -> None:
    low, high = _quotient(_signed(dividend & (2**64 - 1)), dividend >> 64, divisor)
    assert (high << 64) | (low & (2**64 - 1)) == max(min(dividend // divisor, 2**63), -(2**63))
