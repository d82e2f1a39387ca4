"""Interleaved runs, what they amount to, and how they are printed."""

import os
import statistics
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

import numpy as np
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

T = TypeVar("T")
CONSOLE = Console(width=max(128, Console().width), highlight=False)


def data_folder() -> Path:
    """Where recordings lie: the folder that ORDERBOOK_DATA names, or the one beside the project."""
    return Path(os.environ.get("ORDERBOOK_DATA", Path(__file__).parents[2] / "shared" / "data"))


@dataclass(frozen=True, slots=True)
class Options:
    """What a run of the benchmarks was asked for; `quick` takes small counts in place of the full ones."""

    quick: bool
    runs: int
    seed: int
    entries: int
    fresh: int
    stocks: int = 0
    messages: int = 0


@dataclass(slots=True)
class Stopwatch:
    """CPU seconds of this thread, summed over the calls of `time`, and apart by their label."""

    total: float = 0.0
    parts: dict[str, float] = field(default_factory=dict)

    def time(self, label: str, function: Callable[..., T], *arguments: object) -> T:
        start = time.thread_time()
        result = function(*arguments)
        spent = time.thread_time() - start
        self.total += spent
        self.parts[label] = self.parts.get(label, 0.0) + spent
        return result


@dataclass(frozen=True, slots=True)
class Case:
    """One thing to measure: `run` does `operations` operations, the watch counting what matters of it."""

    name: str
    operations: int
    run: Callable[[Stopwatch], object]


@dataclass(frozen=True, slots=True)
class Figures:
    """ns an operation, one figure a run, in the order of the runs; `parts` the medians by label."""

    runs: tuple[float, ...]
    parts: Mapping[str, float]

    @property
    def median(self) -> float:
        return statistics.median(self.runs)

    def ratio(self, reference: "Figures") -> float:
        """The median of the ratios of runs that were neighbours in time."""
        return statistics.median(a / b for a, b in zip(self.runs, reference.runs, strict=True))


def interleaved(cases: Sequence[Case], runs: int) -> dict[str, Figures]:
    """Runs every case once without counting it, then all of them in turn, `runs` times."""
    for case in cases:
        case.run(Stopwatch())
    watches: dict[str, list[Stopwatch]] = {case.name: [] for case in cases}
    for _ in range(runs):
        for case in cases:
            watch = Stopwatch()
            case.run(watch)
            watches[case.name].append(watch)
    return {case.name: _figures(case.operations, watches[case.name]) for case in cases}


def _figures(operations: int, watches: Sequence[Stopwatch]) -> Figures:
    scale = 1e9 / operations
    labels = watches[0].parts
    parts = {label: statistics.median(w.parts[label] for w in watches) * scale for label in labels}
    return Figures(tuple(w.total * scale for w in watches), parts)


def table(title: str, columns: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """Prints a table whose first column is text and whose others are numbers."""
    CONSOLE.print(title, style="bold")
    shown = Table(box=SIMPLE_HEAD, padding=(0, 1, 0, 0))
    for number, column in enumerate(columns):
        shown.add_column(column, justify="right" if number else "left", no_wrap=True)
    for row in rows:
        shown.add_row(*row)
    CONSOLE.print(shown)


def spread(figures: Figures) -> list[str]:
    """Median, minimum and maximum as text."""
    return [f"{figures.median:.1f}", f"{min(figures.runs):.1f}", f"{max(figures.runs):.1f}"]


def parts_text(figures: Figures) -> str:
    """The labelled parts of a figure, where there is more than one."""
    if len(figures.parts) < 2:
        return ""
    return ", ".join(f"{label} {value:.0f}" for label, value in figures.parts.items())


def same(what: str, found: object, expected: object) -> None:
    """Raises AssertionError unless two results are equal, doubles to 1e-9 of their size."""
    left, right = np.asarray(found), np.asarray(expected)
    if left.shape != right.shape or not np.allclose(left, right, rtol=1e-9, atol=0.0, equal_nan=True):
        raise AssertionError(f"{what}: results differ: {found} and {expected}")
