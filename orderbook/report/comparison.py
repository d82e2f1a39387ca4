"""Jobs beside each other: what their strategies made of them, and in which orders and fills they differ."""

from collections.abc import Iterator, Mapping, Sequence
from decimal import Decimal
from typing import NamedTuple

import polars as pl
from rich.table import Table
from rich.text import Text

from orderbook.core.errors import visible
from orderbook.feeds.storage import Place
from orderbook.jobs.datasets import PLACE, VERSION_COLUMNS
from orderbook.jobs.job import Job
from orderbook.report.charts import number_text
from orderbook.report.results import report_of, statistics_frame

# What is compared, by the name in `statistics`.
_FIGURES: Mapping[str, str] = {
    "profit": "profit", "fees": "fees", "funding": "funding", "turnover": "turnover",
    "margin": "profit, bp of turnover",
    "max_drawdown": "drawdown", "sharpe": "Sharpe", "sortino": "Sortino", "orders": "orders",
    "refused": "refused", "fills": "fills", "maker": "filled as maker", "hits": "hit rate",
    "position": "position at the end", "max_position": "greatest position",
}  # fmt: skip
# What tells rows of one job from another's and nothing else: the places of messages among a job's sources.
_OF_THE_JOB = (*VERSION_COLUMNS, PLACE)
_SHOWN = 5


class Difference(NamedTuple):
    """Rows of `orders` or `fills` that two jobs do not both have, each as often as it is missing there."""

    equal: int
    first: pl.DataFrame
    second: pl.DataFrame


def job_names(folders: Sequence[Place]) -> list[str]:
    """What jobs are called: by their folders' names, or paths where two are the same."""
    names = [folder.resolve().name for folder in folders]
    return names if len(set(names)) == len(names) else [str(folder) for folder in folders]


def counterparts(first: Job, other: Job) -> dict[str, str]:
    """What strategies of `other` are called in `first`, where they have another class there: those of which
    each job has one that the other has not, in a sweep one of the combination's number."""
    unmatched: tuple[dict[str, list[str]], dict[str, list[str]]] = {}, {}
    for own, names, there in zip(
        unmatched, (first.manifest.strategies, other.manifest.strategies),
        (other.manifest.strategies, first.manifest.strategies), strict=True,
    ):  # fmt: skip
        for name in names:
            if name not in there:
                own.setdefault(name.rpartition(":")[0], []).append(name)
    ours, theirs = unmatched
    return {
        theirs[number][0]: names[0]
        for number, names in ours.items()
        if len(names) == len(theirs.get(number, ())) == 1
    }


def renamed(rows: pl.DataFrame, names: Mapping[str, str]) -> pl.DataFrame:
    """Rows of strategies, of which some are called otherwise."""
    return rows.with_columns(pl.col("strategy").replace(names)) if names else rows


def figures(jobs: Mapping[str, Job]) -> pl.DataFrame:
    """(strategy, figure, then a DOUBLE for each job), NULL where a job has none; strategies as the first job
    calls them.

    Raises UserError for a job without strategies.
    """
    parts, first = [], next(iter(jobs.values()))
    for name, job in jobs.items():
        report = report_of(job)
        whole = [report.statistics[strategy][0] for strategy in report.strategies]
        frame = statistics_frame(whole).select("strategy", pl.col(*_FIGURES).cast(pl.Float64))
        frame = renamed(frame, counterparts(first, job))
        parts.append(frame.unpivot(index="strategy", variable_name="figure", value_name=name))
    found = parts[0]
    for part in parts[1:]:
        found = found.join(part, ["strategy", "figure"], "full", coalesce=True, maintain_order="left_right")
    order = {figure: place for place, figure in enumerate(_FIGURES)}
    return found.sort(
        pl.col("strategy"), pl.col("figure").replace_strict(order, return_dtype=pl.Int64), maintain_order=True
    )


def difference(one: pl.DataFrame, other: pl.DataFrame) -> Difference:
    """Of two frames of orders' changes or of fills, by all that is said of an order or a fill."""
    frames = [frame.drop(_OF_THE_JOB, strict=False) for frame in (one, other)]
    columns = frames[0].columns
    counted = [
        frame.with_columns(pl.int_range(pl.len()).over(columns).alias("occurrence")) for frame in frames
    ]
    on = [*columns, "occurrence"]
    missing = [
        ours.join(theirs, on, "anti", nulls_equal=True, maintain_order="left").drop("occurrence")
        for ours, theirs in (counted, counted[::-1])
    ]
    return Difference(len(one) - len(missing[0]), *missing)


def figures_table(found: pl.DataFrame) -> Table:
    """`figures` for a terminal."""
    table = Table(box=None, pad_edge=False)
    for place, head in enumerate(found.columns):
        table.add_column(Text("" if place < 2 else visible(head)), justify="left" if place < 2 else "right")
    before = None
    for strategy, figure, *values in found.rows():
        table.add_row(
            Text("" if strategy == before else visible(strategy)), _FIGURES[figure], *map(number_text, values)
        )
        before = strategy
    return table


def difference_lines(what: str, names: tuple[str, str], found: Difference) -> Iterator[str]:
    """Lines that say how many rows are equal, and the first of those that are not."""
    if found.first.is_empty() and found.second.is_empty():
        yield f"{what}: all {found.equal:,} are equal in {' and '.join(names)}"
        return
    yield (
        f"{what}: {found.equal:,} equal, {len(found.first):,} in {names[0]} alone, "
        f"{len(found.second):,} in {names[1]} alone"
    )
    for name, rows in zip(names, (found.first, found.second), strict=True):
        for row in rows.head(_SHOWN).to_dicts():
            said = " ".join(f"{key}={_said(value)}" for key, value in row.items() if value is not None)
            yield f"  {name}: {said}"
        if len(rows) > _SHOWN:
            yield f"  {name}: and {len(rows) - _SHOWN:,} more"


def _said(value: object) -> str:
    return f"{value.normalize():f}" if isinstance(value, Decimal) else str(value)
