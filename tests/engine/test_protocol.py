"""Simulated clusters end as serial execution does, whatever the network does."""

import pickle
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

import pytest
from protocol_mutations import MUTATIONS, without
from protocol_programs import SQL, sql_program
from protocol_runner import run_many
from protocol_schedules import run, schedule
from protocol_simulation import MODES, Step
from toy_stages import TOYS

from orderbook.engine.protocol.messages import Message, OperatorFactory, Output, Route
from orderbook.engine.protocol.node import Links, Node

SAMPLE = 250


def test_a_sample_of_schedules_ends_as_serial_execution() -> None:
    report = run_many(range(SAMPLE), "toys")
    assert not report.failures
    assert {s.split(": ")[0] for s in report.schedules} == set(TOYS)
    assert {s.split(": ")[1] for s in report.schedules} == set(MODES)
    # The sample contains what it is for.
    assert report.retracted > 100
    assert {"RowsMessage", "Marker", "EpochEnd", "EndRequest", "Committed", "Resend"} == set(report.messages)


def test_what_is_executed_again_while_a_correction_waits_is_sent() -> None:
    """Rows were undone with a lost life of their sender; earlier ones came while that correction waited."""
    assert not run_many(range(65846, 65847)).failures


@pytest.mark.parametrize("name", SQL)
def test_programs_of_sql_end_as_the_undivided_program(name: str) -> None:
    program = sql_program(name)
    assert len(program.distribution.stages) >= (3 if name == "two shuffles" else 2)
    for seed in range(3):
        run(schedule(seed, program))


@pytest.mark.exhaustive
def test_stages_run_compiled() -> None:
    run(schedule(1, sql_program("by symbol, then global", "numba")))


@pytest.mark.parametrize("part", MUTATIONS)
def test_every_part_is_needed(part: str) -> None:
    with without(part):
        failures = run_many(range(25), "toys", stop_after=25).failures
    assert any("is not serial" in failure for failure in failures.values())


@pytest.mark.exhaustive
def test_many_schedules(sample_seed: int, sample_count: int) -> None:
    """A hundred schedules for each example asked for: 100,000 by default."""
    start = sample_seed * 1_000_000
    report = run_many(range(start, start + 100 * sample_count))
    assert not report.failures


class _Reloaded(Node):
    """A node that is read before every message, from what was written of it."""

    def __init__(self, links: Links, factory: OperatorFactory, route: Route, *rest: Any) -> None:
        self._made = factory, route
        super().__init__(links, factory, route, *rest)
        self._written = self.save()

    def receive(self, messages: Iterable[Message], hold: bool = False) -> list[Message | Output]:
        return self._call(lambda node: node.receive(messages, hold))

    def advance(self, clock: int) -> list[Message | Output]:
        return self._call(lambda node: node.advance(clock))

    def _call(self, call: Callable[[Node], list[Message | Output]]) -> list[Message | Output]:
        found = Node(self.links, *self._made, self.settings, pickle.loads(pickle.dumps(self._written)))
        out = call(found)
        self._written = found.save()
        self.epoch, self.execution, self.received = found.epoch, found.execution, found.received
        self.sent, self.pending = found.sent, found.pending
        return out


class _Holding(Node):
    """A node that seldom executes what it would have to execute again."""

    def receive(self, messages: Iterable[Message], hold: bool = False) -> list[Message | Output]:
        return super().receive(messages, hold=True)


def test_nodes_that_wait_for_slow_senders() -> None:
    for seed in range(100):
        run(schedule(seed), _Holding)


def test_a_node_is_all_in_what_is_written_of_it() -> None:
    for seed in range(25):
        drawn = schedule(seed)
        steps = tuple(step for step in drawn.steps if isinstance(step, Step))
        run(replace(drawn, steps=steps), _Reloaded)
