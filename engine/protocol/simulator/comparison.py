"""What the modes cost: the same steps over the same network in every mode.

    python -m engine.protocol.simulator.comparison [--count N]
"""

import argparse
from collections.abc import Iterable
from dataclasses import dataclass, replace

from engine.protocol.modes import MODES

from .network import Faults
from .schedules import run, schedule
from .simulation import Simulation, Step
from .toys import READS


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
        sum(c.messages["Rows"] for c in counts) / said,
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
