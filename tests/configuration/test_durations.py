"""Lengths of time as options and configurations write them."""

import pytest

from orderbook.backtesting.settings import parsed_granularity
from orderbook.commands.stream import parsed_length
from orderbook.configuration.configuration import load_configuration
from orderbook.core.errors import ConfigurationError, UserError
from orderbook.core.units import nanoseconds, size_of
from orderbook.engine.distribution.stage_runner import Granularity


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
        ("2.5ms", 2_500_000),
        ("0.001us", 1),
        ("1.5s", 1_500_000_000),
        ("0.1h", 360 * 10**9),
        ("1.000000001s", 1_000_000_001),
        # Not through a double, which has no such integer.
        ("9007199.254740993s", 9_007_199_254_740_993),
    ],
)
def test_lengths(text: str, expected: int) -> None:
    assert nanoseconds(text) == expected
    assert parsed_length("--epoch", text) == expected
    assert parsed_granularity(f"interval:{text}") == Granularity("interval", expected)


@pytest.mark.parametrize(
    "text", ["", "1", "s", "0s", "0.0ms", "1.s", ".5s", "1e3s", "-1s", "1 s", "1S", "1d", "1s1s", "1,5s"]
)
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


@pytest.mark.parametrize("text", ["0.5ns", "1.0000000001s", "9223372037s", "99999999999999h"])
def test_what_int64_ns_cannot_say(text: str) -> None:
    with pytest.raises(UserError, match="give a length of "):
        nanoseconds(text)


@pytest.mark.parametrize(
    "key",
    [
        "clock.resolution", "epochs.length", "log.sync", "log.checkpoint_interval", "record.rotate",
        "simulation.order_latency", "simulation.response_latency", "simulation.feed_latency",
    ],
)  # fmt: skip
def test_every_key_that_is_a_time_takes_decimals(key: str) -> None:
    section, name = key.split(".")
    found = load_configuration(None, {key: "2.5ms"})
    assert getattr(getattr(found, section), name) == "2.5ms"
    with pytest.raises(ConfigurationError, match=f"^{key}: expected .*such as .*, got the string"):
        load_configuration(None, {key: "2.5 parsecs"})


@pytest.mark.parametrize("key", ["log.segment", "record.rotate", "engine.memory_budget", "spark.memory"])
def test_every_key_that_is_a_size_takes_decimals(key: str) -> None:
    section, name = key.split(".")
    assert getattr(getattr(load_configuration(None, {key: "1.5 GB"}), section), name) == "1.5 GB"
    with pytest.raises(ConfigurationError, match=f"^{key}: expected a size"):
        load_configuration(None, {key: "1.5 pages"})


def test_sizes_are_exact() -> None:
    assert size_of("1.5 GB") == 1_500_000_000
    assert size_of("9007199.254740993 GB") == 9_007_199_254_740_993
    assert load_configuration(None, {"record.rotate": "1.5s"}).record.limits[1] == 1.5
