"""The time of a run: whatever is done to the machine's clock, it neither stops nor goes back."""

import asyncio
from collections.abc import Callable
from dataclasses import replace
from itertools import count, pairwise
from random import Random
from typing import Any

import numpy as np
import pytest
from durable_support import MINUTE, SECOND, Machine, World, entries_of
from hypothesis import given
from hypothesis import strategies as st
from samples import PATIENCE

from orderbook.configuration.configuration import load_configuration
from orderbook.core import run_clock
from orderbook.core.errors import Problems
from orderbook.core.run_clock import LIMITS, RunClock
from orderbook.core.units import length_text
from orderbook.durability.journal import Completed
from orderbook.engine.log.segments import LogError
from orderbook.feeds.change_stream import RelationChange
from orderbook.feeds.merge import ChangeItem, TickItem
from orderbook.market.events import EVENT
from orderbook.market.instruments import Instruments
from orderbook.operations.summary import summary
from orderbook.run.event_queue import Stamped
from orderbook.run.feed_runs import FeedReport, FeedRun, Put
from orderbook.run.live_run import LiveRun
from orderbook.run.pipeline import Pipeline
from orderbook.strategies.gated_engine import GatedEngine
from orderbook.views.compilation import compile_views

SQL = """
CREATE STREAM pings (ts TIMESTAMP, n INT NOT NULL) RETAIN INTERVAL '1 hour';
CREATE VIEW clock_now AS SELECT NOW() AS now, COUNT(*) AS n FROM pings;
"""

lengths = st.one_of(st.integers(1, 2 * SECOND), st.integers(1, 5 * MINUTE))
jumps = st.one_of(st.just(0), st.integers(-SECOND, SECOND), st.integers(-(10**18), 10**18))


@given(st.lists(st.tuples(lengths, jumps), min_size=1, max_size=60))
def test_time_goes_on_at_its_rate_whatever_the_wall_clock_does(steps: list[tuple[int, int]]) -> None:
    machine = Machine()
    clock = machine.clock().time
    last, stepped = clock.now(), 0
    for elapsed, jump in steps:
        machine.set_by(jump)
        machine.pass_time(elapsed)
        now = clock.now()
        assert now - last >= elapsed * 9 // 10
        if clock.steps == stepped:
            assert now - last <= (elapsed + 3 * machine.look) * 11 // 10
        else:
            assert abs(clock.ahead) <= LIMITS.max_step
        last, stepped = now, clock.steps


@given(st.lists(st.tuples(lengths, jumps), max_size=20), st.integers(-3600 * SECOND, 3600 * SECOND))
def test_time_comes_back_to_a_clock_that_is_left_alone(steps: list[tuple[int, int]], wrong: int) -> None:
    machine = Machine()
    clock = machine.clock().time
    for elapsed, jump in steps:
        machine.set_by(jump % MINUTE)
        machine.pass_time(elapsed)
        clock.now()
    machine.set_by(wrong)
    machine.pass_time(SECOND)
    clock.now()
    left = LIMITS.settle + 11 * max(0, clock.ahead) + 20 * SECOND
    for _ in range(100):
        machine.pass_time(left // 100)
        clock.now()
    assert abs(clock.ahead) < 10**7


def test_a_jump_is_followed_once_it_has_stood_and_said_once(caplog: pytest.LogCaptureFixture) -> None:
    machine = Machine()
    clock = machine.clock().time
    start = clock.now()
    machine.set_by(3600 * SECOND)
    for second in range(1, 59):
        machine.pass_time(SECOND)
        assert clock.now() - start == pytest.approx(second * SECOND, abs=10**6)
    assert (clock.jumps, clock.steps) == (1, 0)
    for _ in range(4):
        machine.pass_time(SECOND)
        clock.now()
    assert (clock.jumps, clock.steps, clock.ahead) == (1, 1, 0)
    machine.set_by(-3600 * SECOND)
    for _ in range(120):
        machine.pass_time(SECOND)
        clock.now()
    assert (clock.jumps, clock.steps) == (2, 1)
    told = [record.getMessage() for record in caplog.records]
    assert len(told) == 4
    assert "jumped forward by 1.0 h" in told[0] and "stands for 60.0 s" in told[0]
    assert "stepped forward by 1.0 h" in told[1]
    assert "jumped back by 1.0 h" in told[2]
    assert "slower by 1/10 until they meet, in 10.0 h" in told[3]


def test_jumps_are_counted_and_lines_about_them_bounded(caplog: pytest.LogCaptureFixture) -> None:
    machine = Machine()
    clock = machine.clock().time
    for number in range(1_000):
        machine.set_by((1 if number % 2 else -1) * MINUTE)
        machine.pass_time(SECOND)
        clock.now()
    assert clock.jumps == 1_000
    assert 5 < len(caplog.records) < 80
    assert any("more since the last such line" in record.getMessage() for record in caplog.records)


def test_a_clock_that_is_slewed_is_followed_without_a_word(caplog: pytest.LogCaptureFixture) -> None:
    """NTP slews by at most 500 ppm, and steps by less than the threshold are slewed here."""
    machine = Machine()
    clock = machine.clock().time
    random = Random(1)
    for number in range(5_000):
        machine.pass_time(random.randrange(10**7, SECOND))
        machine.set_by(random.randrange(-500, 500) * SECOND // 10**6 if number % 100 else 300_000_000)
        clock.now()
    assert (clock.jumps, clock.steps) == (0, 0) and not caplog.records
    assert abs(clock.ahead) < LIMITS.max_step


def test_a_process_that_waits_between_two_looks_sees_no_jump() -> None:
    """Stopped after it read one clock and before the other; a machine that sleeps goes on with both."""
    machine = Machine()
    clock = machine.clock().time
    machine.pass_time(MINUTE)
    clock.now()
    machine.interrupted_for = 5 * SECOND
    machine.pass_time(MINUTE)
    clock.now()
    machine.pass_time(8 * 3600 * SECOND)
    clock.now()
    assert clock.jumps == 0 and abs(clock.ahead) < 10**7


def test_the_machines_own_clocks() -> None:
    clock = RunClock()
    times = [clock.now() for _ in range(1_000)]
    assert times == sorted(times)
    assert abs(times[-1] - run_clock._system_wall()) < SECOND


def test_lengths_are_written_for_people() -> None:
    found = [length_text(s * SECOND) for s in (1, 90, -121, 3600, 86400, 400 * 86400)]
    assert found == ["1.0 s", "90.0 s", "2.0 min", "1.0 h", "24.0 h", "400.0 days"]


# Runs.


class Pings(FeedRun):
    """A live feed of rows that state times, and of nothing else."""

    live = True
    name = "pings"
    instruments = Instruments(())
    indexes = np.empty(0, np.int32)

    def __init__(self, moment: Callable[[int], int]) -> None:
        self._moment = moment
        self.enough: Callable[[], bool]

    async def follow(self, put: Put) -> None:
        for number in count():
            if number >= 30 and self.enough():
                return
            row = {"ts": self._moment(self.clock()), "n": number}
            await put(ChangeItem("x", [RelationChange(number, "pings", "+", row, True)]))
            await asyncio.sleep(0.02)

    def report(self) -> FeedReport:
        return FeedReport(self.name, {}, Problems())


def followed(
    monkeypatch: pytest.MonkeyPatch, wrong: Callable[[int], int], moment: Callable[[int], int]
) -> tuple[LiveRun, Pipeline, list[int], list[int]]:
    """A run of half a second or more, until NOW() and epochs have moved often, on a machine whose clock is
    wrong by so much at each look at it; what NOW() showed and where epochs ended."""
    right, looks = run_clock._system_wall, count()
    monkeypatch.setattr(run_clock, "_system_wall", lambda: right() + wrong(next(looks)))
    configuration = load_configuration(None, {"clock.resolution": "10ms", "epochs.length": "20ms"})
    pipeline = Pipeline(GatedEngine(compile_views(SQL), "interpreter"), Instruments(()), (), 10**7)
    shown: list[int] = []
    pipeline.engine.subscribe("clock_now", lambda event: shown.append(event.new.now), fire="change")
    pings = Pings(moment)
    live = LiveRun(configuration, pipeline, None, [pings])
    ends: list[int] = []
    pings.enough = lambda: len(shown) > 25 and len(set(ends)) > 3 and shown[-1] - shown[0] > 4 * 10**8

    async def go() -> None:
        live.start()
        tasks = [asyncio.create_task(one) for one in (live.stamp_ticks(), live.promise(), live.follow_all())]
        consuming = asyncio.create_task(live.consume())
        while not tasks[2].done():
            ends.append(live.epochs.committed)
            await asyncio.sleep(0.03)
        tasks[0].cancel()
        tasks[1].cancel()
        await consuming

    asyncio.run(asyncio.wait_for(go(), PATIENCE))
    return live, pipeline, shown, ends


HOUR = 3600 * SECOND


@pytest.mark.parametrize(
    "wrong",
    [
        lambda look: HOUR if 20 < look < 40 else 0,
        lambda look: -HOUR if look > 20 else 0,
        lambda look: HOUR if look > 20 else 0,
        lambda look: 0 if look > 20 else HOUR,
        lambda look: look // 5 % 2 * HOUR,
    ],
    ids=["forward and back", "back", "forward", "wrong at first", "to and fro"],
)
def test_views_and_epochs_go_on_while_the_clock_jumps(
    monkeypatch: pytest.MonkeyPatch, wrong: Callable[[int], int]
) -> None:
    live, pipeline, shown, ends = followed(monkeypatch, wrong, lambda now: now)
    assert shown == sorted(shown)
    assert max(b - a for a, b in pairwise(shown)) < MINUTE
    assert max(b - a for a, b in pairwise(ends)) < MINUTE
    assert live.epoch > 3
    assert live.clock.time.jumps >= 1
    text = summary(pipeline, 1.0, [], [], [], live.report())
    assert "  clock       the machine's jumped" in text
    assert pipeline.to_views.maximum < MINUTE


def test_times_that_a_table_states_do_not_move_the_clock_of_a_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor do those of exchanges: rows of a far future or past are what they are, and NOW() is the run's."""
    random = Random(2)
    _, _, shown, _ = followed(monkeypatch, lambda _: 0, lambda now: now + random.choice([-1, 0, 1]) * 10**16)
    assert shown == sorted(shown)
    assert max(b - a for a, b in pairwise(shown)) < MINUTE and shown[-1] <= run_clock._system_wall()


def test_a_run_whose_clock_is_right_says_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    live, pipeline, _, _ = followed(monkeypatch, lambda _: 0, lambda now: now)
    assert "clock  " not in summary(pipeline, 1.0, [], [], [], live.report())


# Restarts.


def test_a_log_that_ends_in_the_future_is_gone_on_with(caplog: pytest.LogCaptureFixture) -> None:
    world = World("batch", 1)
    world.machine.set_by(2 * HOUR)
    process = world.start()
    process.run.start()
    last = process.run.clock.last
    world.files.kill()
    world.machine.set_by(-2 * HOUR)
    caplog.clear()
    process = world.start()
    told = " ".join(record.getMessage() for record in caplog.records)
    assert "the log /log ends at " in told and "2.0 h after what the machine's clock says" in told
    assert "slower by 1/10 until they meet, in 20.0 h" in told
    clock = process.run.clock
    assert clock.stamp() > last
    before = clock.time.now()
    world.machine.pass_time(100 * SECOND)
    assert clock.time.now() - before == pytest.approx(90 * SECOND, rel=0.01)
    world.machine.pass_time(20 * HOUR)
    assert abs(clock.time.now() - world.machine.wall()) < 10**7


def test_a_log_that_ends_too_far_in_the_future_is_refused_as_it_is() -> None:
    world = World("batch", 1)
    world.machine.set_by(30 * HOUR)
    process = world.start()
    process.run.start()
    before = entries_of(process)
    world.files.kill()
    world.machine.set_by(-30 * HOUR)
    with pytest.raises(LogError, match=r"30\.0 h after .*, more than clock\.max_ahead \(24\.0 h\); set"):
        world.start()
    world.files.kill()
    world.limits = replace(LIMITS, max_ahead=48 * HOUR)
    process = world.start()
    assert entries_of(process)[: len(before)] == before


def jumping_crashes(seed: int) -> int:
    """A machine whose clock jumps while processes run and between them; how often it did."""
    world, random, jumped = World("batch", seed), Random(seed), 0
    stamps: list[int] = []
    shown = -1
    for _ in range(5):
        process = world.start()
        clock, engine = process.run.clock, process.pipeline.engine
        assert not stamps or clock.last >= stamps[-1]
        process.run.start()
        for number in range(80):
            if random.random() < 0.05:
                world.machine.set_by(random.choice([-1, 1]) * random.randrange(SECOND, HOUR))
                jumped += 1
            elapsed, before, steps = random.randrange(10**6, 20 * SECOND), clock.time.now(), clock.time.steps
            world.machine.pass_time(elapsed)
            now = clock.time.now()
            assert now - before >= elapsed * 9 // 10
            assert clock.time.steps > steps or now - before <= elapsed * 11 // 10 + SECOND
            flow = np.zeros(0, EVENT)
            items: list[Any] = [TickItem(now), flow] if number % 7 == 0 else [TickItem(now)]
            stamped = [Stamped(clock.stamp(), 0, item, True) for item in items]
            process.run.accept(stamped)
            stamps += [one.stamp for one in stamped]
            for one in stamped:
                process.run.apply(one)
            (ticked,) = (row.now for _, row in engine["told"].items())
            assert ticked >= shown and 0 <= now - ticked < SECOND
            shown = ticked
            if random.random() < 0.05:
                process.run.checkpoint()
        assert any(isinstance(entry, Completed) for entry in entries_of(process)) or not jumped
        if random.random() < 0.5:
            world.files.kill()
        else:
            world.files.crash(random)
            world.machine.reboot()
        world.machine.set_by(random.choice([-1, 0, 1]) * random.randrange(1, 5 * HOUR))
    assert stamps == sorted(set(stamps))
    return jumped + world.start().run.clock.time.jumps


def test_jumps_while_processes_run_and_between_them(sample_seed: int) -> None:
    assert jumping_crashes(sample_seed) > 5
