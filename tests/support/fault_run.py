"""One seeded run of a session against a simulated exchange with faults, until books are whole again.

python tests/support/fault_run.py orders --seed 7 [--faults drop,stall]
"""

import argparse
import random
from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass

from fault_checks import Checks
from simulated_venue import FAULTS, Dialect, Faults, Occasion
from simulated_venues import LevelVenue, OrderVenue
from virtual_network import VirtualNetwork

from orderbook.engine.runtime.program_start import Backend

# Virtual seconds: of all faults, of one alone, until every book must be whole again, and of quiet after it.
FAULTY, FAULTY_ALONE, RECOVERY, QUIET = 50.0, 20.0, 150.0, 3.0
# How long silence and numbers that began again may stay unnoticed.
UNNOTICED = 12.0
EVENTS_PER_SECOND, EVENTS_AFTER = 8.0, 2.0
# How much more often all faults strike than in their table, and how probable one is that is alone.
FACTORS = (0.5, 1.0, 2.0)
ALONE: dict[Occasion, float] = {"frame": 0.03, "second": 0.15, "connection": 0.5, "answer": 0.6}


@dataclass(frozen=True)
class Report:
    """What happened in a run; `recovered` is the seconds from the last fault until all books were valid."""

    injected: Counter[str]
    noticed: Counter[str]
    problems: Counter[str]
    compared: int
    callbacks: int
    recovered: float


def run(
    dialect: Dialect, seed: int, names: Collection[str] | None = None, backend: Backend = "interpreter"
) -> Report:
    """`names` are the faults, all of them where it is None.

    Raises AssertionError, which says how to repeat the run, where anything is wrong.
    """
    try:
        return _run(dialect, seed, names, backend)
    except Exception as error:
        some = "" if names is None else f" --faults '{','.join(sorted(names))}'"
        note = f"alone: .venv/bin/python tests/support/fault_run.py {dialect} --seed {seed}{some}"
        raise AssertionError(f"{type(error).__name__}: {error}; {note}") from error


def world(dialect: Dialect, seed: int, faults: Faults, backend: Backend) -> tuple[VirtualNetwork, Checks]:
    """A session and its exchange, at second 0, and what is checked."""
    products = random.Random(f"run {seed}").choice((1, 3, 6))
    venue = {"orders": OrderVenue, "levels": LevelVenue}[dialect](seed, products)
    network = VirtualNetwork(venue, faults, seed, EVENTS_PER_SECOND)
    network.observer = checks = Checks(network, backend)
    return network, checks


def _run(dialect: Dialect, seed: int, names: Collection[str] | None, backend: Backend) -> Report:
    if names is None:
        faults, seconds = Faults(seed, dialect, FAULTS, FACTORS[seed % len(FACTORS)]), FAULTY
    else:
        faults, seconds = Faults(seed, dialect, names, probabilities=ALONE), FAULTY_ALONE
    network, checks = world(dialect, seed, faults, backend)
    while network.now < seconds:
        network.run(network.now + 1.0)
        checks.limits.patient()
    faults.on, network.rate = False, EVENTS_AFTER
    recovered = _recover(network, checks, seconds)
    # What is lost last shows by what comes after it.
    for _ in range(3):
        for product in network.venue.products:
            network.touch(product)
        network.run(network.now + 1.0)
    network.rate = 0.0
    recovered = max(recovered, _recover(network, checks, seconds))
    network.run(network.now + QUIET)
    checks.compare_end()
    noticed, problems, callbacks = checks.noticed, checks.problems.copy(), checks.views.callbacks
    return Report(faults.counts, noticed, problems, checks.compared, callbacks, recovered)


def _recover(network: VirtualNetwork, checks: Checks, since: float) -> float:
    """Wait until all books are valid, and nothing can be unnoticed; the seconds that it took."""
    wrong = since
    while network.now < since + UNNOTICED or not checks.valid():
        network.run(network.now + 1.0)
        if not checks.valid():
            wrong = network.now
            states = {name: follower.state.name for name, follower in checks.followers.items()}
            assert network.now < since + RECOVERY, f"books are stuck: {states}"
    return wrong - since


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("dialect", choices=["orders", "levels"])
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--faults", help="names, by commas")
    arguments = parser.parse_args()
    chosen = arguments.faults.split(",") if arguments.faults else None
    print(_run(arguments.dialect, arguments.seed, chosen, "interpreter"))
