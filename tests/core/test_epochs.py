"""Epochs end in turn, and commit when every switch is beyond them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orderbook.core.run_clock import EpochRing


def test_the_token_goes_round() -> None:
    ring = EpochRing(3, 10)
    promises = [(switch, stamp) for stamp in range(0, 100, 5) for switch in range(3)]
    ended = [epoch for switch, stamp in promises for epoch in ring.promise(switch, stamp)]
    assert [epoch.switch for epoch in ended] == [n % 3 for n in range(len(ended))]
    assert [epoch.number for epoch in ended] == list(range(1, len(ended) + 1))
    assert len(ended) >= 8


def test_a_stalled_switch_delays_the_commit_and_is_named() -> None:
    ring = EpochRing(2, 10)
    assert ring.promise(0, 25) == []
    assert ring.promise(0, 90) == []
    assert ring.stalled(50) == [1]
    (first,) = ring.promise(1, 30)
    assert (first.number, first.switch, first.end) == (1, 0, 25)
    assert ring.committed == 25
    assert ring.holder == 1


def test_a_stalled_holder_delays_the_end() -> None:
    ring = EpochRing(2, 10)
    assert ring.promise(1, 1_000) == []
    assert ring.stalled(50) == [0]
    assert [epoch.end for epoch in ring.promise(0, 12)] == [12]
    assert [epoch.end for epoch in ring.promise(0, 1_000)] == [1_000]


def test_a_promise_is_kept() -> None:
    ring = EpochRing(1, 10)
    ring.promise(0, 5)
    with pytest.raises(ValueError, match="promised 5"):
        ring.promise(0, 4)


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 40)), max_size=200), st.integers(1, 30))
def test_nothing_commits_that_a_switch_could_still_stamp(steps: list[tuple[int, int]], length: int) -> None:
    ring, promised, last, turn = EpochRing(4, length), [0] * 4, 0, 0
    for switch, step in steps:
        promised[switch] += step
        for epoch in ring.promise(switch, promised[switch]):
            assert epoch.end <= min(promised)
            assert epoch.end >= last + length
            assert epoch.switch == turn
            last, turn = epoch.end, (turn + 1) % 4
        assert ring.committed == last
