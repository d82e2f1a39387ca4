"""Lengths of time as options and configurations write them."""

import pytest

from engine.distribution.history import Granularity
from orderbook.commands.backtest import parsed_granularity
from orderbook.commands.stream import parsed_length
from orderbook.durations import nanoseconds
from orderbook.errors import UserError


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("1ns", 1),
        ("007us", 7_000),
        ("100ms", 10**8),
        ("2s", 2 * 10**9),
        ("3m", 180 * 10**9),
        ("1h", 3600 * 10**9),
        ("12345678901ns", 12_345_678_901),
    ],
)
def test_lengths(text: str, expected: int) -> None:
    assert nanoseconds(text) == expected
    assert parsed_length("--epoch", text) == expected
    assert parsed_granularity(f"interval:{text}") == Granularity("interval", expected)


@pytest.mark.parametrize("text", ["", "1", "s", "0s", "00ms", "1.5s", "-1s", "1 s", "1S", "1d", "1s1s"])
def test_what_is_no_length(text: str) -> None:
    with pytest.raises(UserError, match=r"give a length, as in 1s, instead of '"):
        nanoseconds(text)
    with pytest.raises(UserError) as error:
        parsed_length("--epoch", text)
    assert str(error.value) == f"--epoch {text}: give a length, as in 1s"
    with pytest.raises(UserError, match="give event, message, end, or a length as in interval:1s"):
        parsed_granularity(f"interval:{text}")
    with pytest.raises(UserError, match="give event, message, end"):
        parsed_granularity(f"events:{text or '1s'}")
