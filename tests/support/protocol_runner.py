"""Seeded schedules of simulated clusters, each compared with serial execution.

    python tests/support/protocol_runner.py --seed 0 --count 1000 [--part 0/2] [--trace]
        [--programs toys|sql|both]

Every 50th schedule is of a program of SQL on interpreters where both are asked for.
"""

import argparse
import sys
from collections import Counter
from dataclasses import dataclass, field

from protocol_programs import SQL, sql_program
from protocol_schedules import Schedule, run, schedule
from protocol_simulation import Simulation

from orderbook.engine.protocol.node import Node

SHARE = 50


@dataclass
class Report:
    """Schedules by program and mode, messages by kind, rows sent, and those that failed, by seed."""

    schedules: Counter[str] = field(default_factory=Counter)
    messages: Counter[str] = field(default_factory=Counter)
    rows: int = 0
    retracted: int = 0
    failures: dict[int, str] = field(default_factory=dict)

    def note(self, drawn: Schedule, simulation: Simulation) -> None:
        self.schedules[f"{drawn.program.name}: {drawn.mode}"] += 1
        self.messages += simulation.counts.messages
        self.rows += simulation.counts.rows
        self.retracted += simulation.counts.retracted


def drawn(seed: int, programs: str = "both") -> Schedule:
    """The schedule of a seed: of a toy, or of a program of SQL."""
    if programs == "sql" or (programs == "both" and seed % SHARE == 0):
        names = list(SQL)
        return schedule(seed, sql_program(names[seed // (SHARE if programs == "both" else 1) % len(names)]))
    return schedule(seed)


def run_many(
    seeds: range, programs: str = "both", node_kind: type[Node] = Node, stop_after: int = 5
) -> Report:
    """Runs the schedules of seeds, until so many have failed."""
    report = Report()
    for seed in seeds:
        one = drawn(seed, programs)
        try:
            report.note(one, run(one, node_kind))
        except Exception as error:
            report.failures[seed] = f"{one.program.name}, {one.mode}: {type(error).__name__}: {error}"
            if len(report.failures) >= stop_after:
                break
    return report


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--count", type=int, default=1000)
    parser.add_argument("--part", default="0/1")
    parser.add_argument("--programs", choices=["toys", "sql", "both"], default="both")
    parser.add_argument("--trace", action="store_true", help="print what happens in the schedule of --seed")
    options = parser.parse_args()
    if options.trace:
        one = drawn(options.seed, options.programs)
        simulation = Simulation(one.setting, one.program.dictionary, traced=True)
        simulation.run(one.steps)
        print(one.program.name, one.mode, one.setting.partitions, *simulation.trace, sep="\n")
        return 0
    part, parts = map(int, options.part.split("/"))
    report = run_many(range(options.seed + part, options.seed + options.count, parts), options.programs)
    for seed, failure in report.failures.items():
        print(f"seed {seed}: {failure}", file=sys.stderr)
    print(f"{report.schedules.total()} schedules equal serial execution, {len(report.failures)} do not;")
    print(f"messages {dict(report.messages)}, rows {report.rows}, of them retracted {report.retracted}")
    return bool(report.failures)


if __name__ == "__main__":
    sys.exit(main())
