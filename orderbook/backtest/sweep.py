"""Sweeps: a backtest of the same strategies with several combinations of parameters.

Combinations whose views are the same see one engine and one reading of the sources, each with an account of
its own; a strategy is called NUMBER:CLASS, by its combination.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from orderbook.backtest.job_program import JobProgram
from strategies.definition import StrategyDefinition, load_strategy


@dataclass(frozen=True, slots=True)
class Combination:
    """One choice of parameters: its number, from 1, what was chosen, the strategies (MODULE:CLASS and all
    that is set of their parameters), and the program with the views that they see."""

    number: int
    values: Mapping[str, Any]
    strategies: tuple[tuple[str, Mapping[str, Any]], ...]
    program: JobProgram

    def definitions(self) -> Iterator[StrategyDefinition]:
        """The strategies under the names that they have in the sweep. Raises ConfigurationError."""
        for path, parameters in self.strategies:
            found = load_strategy(path, parameters)
            yield replace(found, label=f"{self.number}:{found.name}")


def groups(combinations: Sequence[Combination], workers: int) -> list[tuple[int, ...]]:
    """Places of combinations that run together, about as many groups as workers; of one program each."""
    by_program: dict[bytes, list[int]] = {}
    for place, one in enumerate(combinations):
        by_program.setdefault(one.program.hash, []).append(place)
    found = []
    for places in by_program.values():
        share = max(1, round(workers * len(places) / len(combinations)))
        count = min(share, len(places))
        found += [tuple(places[start::count]) for start in range(count)]
    return found
