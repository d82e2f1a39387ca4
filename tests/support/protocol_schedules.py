"""Random runs: a seed decides partitions, mode, faults and steps; each must end as serial execution.

What the modes cost, the same steps over the same network in every mode, is told by

python tests/support/protocol_schedules.py [--count N]
"""

import argparse
import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from protocol_simulation import MODES, Faults, Histories, Restart, Setting, Simulation, Step, difference_of
from toy_stages import READS, TOYS

from orderbook.core.changes import Dictionary
from orderbook.engine.distribution.blocks import Block
from orderbook.engine.distribution.stages import Distribution
from orderbook.engine.protocol.messages import Address, Mode, OperatorFactory
from orderbook.engine.protocol.node import Node
from orderbook.engine.protocol.switch import Event, RowChange


class Program(Protocol):
    """What is run: a distributed program, random rows for it, and what serial execution gives."""

    @property
    def name(self) -> str: ...

    @property
    def dictionary(self) -> Dictionary: ...

    @property
    def any_order(self) -> bool:
        """Whether rows may be deleted that a later version inserts."""

    @property
    def distribution(self) -> Distribution: ...

    def factory(self, stage: int) -> OperatorFactory:
        """Makes the operators of a stage, by its place in the distribution."""

    def row(self, choose: random.Random) -> RowChange:
        """A row to insert."""

    def serial(self, blocks: Sequence[Block], end: int) -> Histories:
        """The history of all views where rows come in order; `end` is above all stamps."""


@dataclass(frozen=True, slots=True)
class Schedule:
    """A program, a setting, and what happens in it."""

    program: Program
    mode: str
    setting: Setting
    steps: tuple[Step | Restart, ...]


def schedule(seed: int, program: Program | None = None, mode: str | None = None) -> Schedule:
    """The schedule of a seed; of a toy and in a mode of its choice, where they are not given."""
    choose = random.Random(f"schedule {seed}")
    toy, name = choose.choice(list(TOYS.values())), choose.choice(list(MODES))
    chosen: Program = toy if program is None else program
    name = mode or name
    return Schedule(chosen, name, *_chosen(choose, seed, chosen, MODES[name]))


def _chosen(
    choose: random.Random, seed: int, program: Program, mode: Mode
) -> tuple[Setting, tuple[Step | Restart, ...]]:
    # Drawn in every mode, so that a seed has the same steps in all.
    tick = choose.choice((5, 20))
    if mode.tick:
        mode = replace(mode, tick=tick)
    distribution = program.distribution
    partitions = [[choose.choice((1, 2, 2, 3)) for _ in stage.axes] for stage in distribution.stages]
    switches = choose.choice((1, 2, 2, 3))
    faults = Faults(choose.choice((3, 15, 60)), choose.random() < 0.4, choose.choice((0, 0, 15)))
    limit = choose.choice((0, 0, 0, 12))
    length = choose.choice((15, 30, 60))
    resends = choose.random() < 0.8
    setting = Setting(
        distribution, program.factory, partitions, switches, mode, length, limit, resends, faults, seed
    )
    steps = _steps(choose, program, switches, length)
    if resends and choose.random() < 0.4:
        steps = _with_restarts(choose, steps, distribution, partitions)
    return setting, tuple(steps)


def _steps(choose: random.Random, program: Program, switches: int, length: int) -> list[Step | Restart]:
    skews = [choose.choice((0, 0, 3, -3, 10)) for _ in range(switches)]
    idle = choose.randrange(switches) if switches > 1 and choose.random() < 0.3 else None
    held: list[list[RowChange]] = [[]] * switches if program.any_order else [[] for _ in range(switches)]
    steps: list[Step | Restart] = []
    time = 20
    for _ in range(choose.choice((4, 8, 14))):
        time += choose.choice((0, 1, 4, 12))
        switch = choose.randrange(switches)
        busy = switch != idle and choose.random() < 0.85
        events = choose.choice((1, 1, 2)) if busy else 0
        message = [_event(choose, program, held[switch]) for _ in range(events)]
        steps.append(Step(time, switch, time + skews[switch], message))
    end = time + 2 * length + 50
    steps += [Step(time + 1 + n, n, end) for n in range(switches)]
    return steps


def _event(choose: random.Random, program: Program, rows: list[RowChange]) -> Event:
    kind = choose.random()
    if rows and kind < 0.4:
        old = rows.pop(choose.randrange(len(rows)))
        gone = RowChange(old.relation, True, old.values)
        if kind < 0.15:
            return (gone,)
        new = program.row(choose)
        rows.append(new)
        return gone, new
    new = program.row(choose)
    rows.append(new)
    return (new,)


def _with_restarts(
    choose: random.Random,
    steps: Sequence[Step | Restart],
    distribution: Distribution,
    partitions: Sequence[Sequence[int]],
) -> list[Step | Restart]:
    found = list(steps)
    for _ in range(choose.choice((1, 1, 3))):
        stage = choose.randrange(len(distribution.stages))
        count = 1
        for size in partitions[stage]:
            count *= size
        time = choose.randrange(steps[0].time, steps[-1].time + 80)
        found.append(Restart(time, Address(stage, choose.randrange(count))))
    return sorted(found, key=lambda step: step.time)


def run(schedule: Schedule, node_kind: type[Node] = Node, traced: bool = False) -> Simulation:
    """Runs a schedule and checks it.

    Raises AssertionError where an epoch is not what serial execution gives, where the tentative output does
    not come to it, or where a log is not empty at the end.
    """
    simulation = Simulation(schedule.setting, schedule.program.dictionary, node_kind, traced)
    simulation.run(schedule.steps)
    check(simulation, schedule.program)
    return simulation


def check(simulation: Simulation, program: Program) -> None:
    """See `run`."""
    sink, nodes = simulation.sink, simulation.nodes
    epochs = {node.epoch for node in nodes.values()}
    assert len(epochs) == 1, f"nodes have committed up to {sorted(epochs)}"
    ends = {n: f.end for node in sink.nodes.values() for n, f in node.finals.items()}
    end = max(ends.values(), default=0)
    assert sink.epoch(len(nodes)) == max(epochs), "the sink lacks an epoch of a node"
    assert end > max((int(b.versions["stamp"][-1]) for b in simulation.sent), default=-1), "too few epochs"
    expected = program.serial(simulation.sent, end)
    start = -(2**63)
    for epoch, bound in sorted(ends.items()):
        own = {v: rows[(rows[:, 0] >= start) & (rows[:, 0] < bound)] for v, rows in expected.items()}
        wrong = difference_of({v: rows for v, rows in own.items() if len(rows)}, sink.committed(epoch))
        assert wrong is None, f"epoch {epoch} is not serial: {wrong}"
        start = bound
    wrong = difference_of(expected, sink.tentative())
    assert wrong is None, f"tentative output did not converge: {wrong}"
    for address, node in nodes.items():
        left = {log: size for log, size in node.log_sizes().items() if size}
        assert not left and not len(node.pending), f"{address} is left with {left or 'pending writes'}"
    for switch in simulation.switches:
        assert not len(switch.sent), f"{switch.links.address} is left with {len(switch.sent)} messages"


@dataclass(frozen=True, slots=True)
class Cost:
    """Per exchange message: messages between switches and nodes, rows in them, rows taken back; and delays.

    settled: from a message to the last tentative word on what it changed; committed: to its commit; both in
    units of the network's mean delay.
    """

    messages: float
    rows: float
    retracted: float
    settled: float
    committed: float


def compare(seeds: Iterable[int], delay: int = 20) -> dict[str, Cost]:
    """The costs of every mode, for a program that reads across three stages, two switches, no restarts."""
    seeds = list(seeds)
    return {mode: _cost([_simulated(seed, mode, delay) for seed in seeds], delay) for mode in MODES}


def _simulated(seed: int, mode: str, delay: int) -> Simulation:
    drawn = schedule(seed, READS, mode)
    steps = tuple(step for step in drawn.steps if isinstance(step, Step))
    setting = replace(drawn.setting, faults=Faults(delay), log_limit=0, resends=True)
    if setting.mode.tick:
        setting = replace(setting, mode=replace(setting.mode, tick=delay))
    return run(replace(drawn, setting=setting, steps=steps))


def _cost(simulations: list[Simulation], delay: int) -> Cost:
    counts = [s.counts for s in simulations]
    said = sum(len(c.said) for c in counts)
    settled = [c.settled[s] - t for c in counts for s, t in c.said.items() if s in c.settled]
    committed = [c.committed[s] - t for c in counts for s, t in c.said.items() if s in c.committed]
    mean = (delay + 1) / 2
    return Cost(
        sum(c.messages["RowsMessage"] for c in counts) / said,
        sum(c.rows for c in counts) / said,
        sum(c.retracted for c in counts) / said,
        sum(settled) / len(settled) / mean,
        sum(committed) / len(committed) / mean,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=200)
    count = parser.parse_args().count
    print("| mode | messages | rows | rows taken back | settled after | committed after |")
    print("|---|---|---|---|---|---|")
    for mode, cost in compare(range(count)).items():
        cells = (cost.messages, cost.rows, cost.retracted, cost.settled, cost.committed)
        print(f"| {mode} | " + " | ".join(f"{cell:.1f}" for cell in cells) + " |")


if __name__ == "__main__":
    main()
