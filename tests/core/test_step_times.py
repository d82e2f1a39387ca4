"""Steps of a start, and how long each takes."""

from itertools import accumulate

import pytest

from orderbook.core.step_times import StepTimes


def test_a_step_takes_what_those_within_it_do_not(monkeypatch: pytest.MonkeyPatch) -> None:
    # Seconds that pass between one look at the clock and the next.
    passed = (0.0, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0)
    clock = accumulate(passed)
    monkeypatch.setattr("orderbook.core.step_times.time.perf_counter", lambda: next(clock))
    times = StepTimes()
    with times.step("whole"):
        with times.step("plan"):
            pass
        with times.step("text"), times.step("plan"):
            pass
    assert times.seconds == {"plan": 2.0 + 16.0, "text": 8.0 + 32.0, "whole": 1.0 + 4.0 + 64.0}
    assert sum(times.seconds.values()) == sum(passed)
