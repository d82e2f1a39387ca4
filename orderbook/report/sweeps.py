"""Sweeps: a table of the combinations, maps of two parameters, and what choosing by the past would earn.

The walk forward cuts the time of the sweep into periods, its days where it has three or more. Before each of
them the strategy is chosen that had earned most until then, and what it earns in the period is out of sample.
Every combination has traded all the time, so that none begins a period without what it knew.
"""

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from itertools import combinations, pairwise
from math import e
from statistics import NormalDist, median

import numpy as np
import polars as pl
from rich.table import Table

from orderbook.report.charts import amount_text, number_text
from orderbook.report.parts import money_head
from orderbook.report.results import Report, statistics_frame

_EULER = 0.5772156649


def best_by_luck(tried: int) -> float:
    """The t-value that the best of so many is expected to have where none of them earns anything.

    As of independent ones; combinations that trade alike make less of it. Source: Bailey, Lopez de Prado,
    "The deflated Sharpe ratio", Journal of Portfolio Management 40 (2014), expected maximum.
    """
    if tried < 2:
        return 0.0
    normal = NormalDist().inv_cdf
    return (1 - _EULER) * normal(1 - 1 / tried) + _EULER * normal(1 - 1 / (tried * e))


_SHOWN = 25
_RESULTS = {
    "profit": "profit", "fees": "fees", "fills": "fills", "trades": "trades", "hits": "hit rate",
    "max_drawdown": "max drawdown", "sharpe": "Sharpe", "steadiness": "t-value", "margin": "margin, bps",
}  # fmt: skip
_MONEY = frozenset(("profit", "fees", "max_drawdown"))


def combinations_of(report: Report) -> pl.DataFrame:
    """A row for each combination and strategy, by number: `combination`, `class`, a column for each parameter
    (a double where all values are numbers, else text) and the columns of `statistics`, of the whole
    account."""
    manifest = report.job.manifest
    swept = manifest.swept
    whole = [report.statistics[name][0] for name in report.strategies]
    texts = {name: [manifest.strategies[s][name] for s in report.strategies] for name in swept}
    numbers = [int(name.partition(":")[0]) for name in report.strategies]
    classes = [name.partition(":")[2] for name in report.strategies]
    results = statistics_frame(whole).drop("venue", "symbol")
    chosen = [pl.Series("combination", numbers), pl.Series("class", classes)]
    taken = results.columns
    chosen += [_typed(f"set_{name}" if name in taken else name, own) for name, own in texts.items()]
    return pl.DataFrame(chosen).hstack(results).sort("combination", "class")


def combinations_table(report: Report) -> Table:
    """The combinations as a table for a terminal, the most profitable first."""
    heads, rows = combinations_rows(report)
    table = Table(box=None, pad_edge=False)
    for head in heads:
        table.add_column(head, justify="right")
    for row in rows[:_SHOWN]:
        table.add_row(*row)
    more = f"and {len(rows) - _SHOWN} more; " if len(rows) > _SHOWN else ""
    table.caption = more + luck_text(len(rows)) if len(rows) > 1 else None
    return table


def luck_text(tried: int) -> str:
    """What the best of so many combinations says of itself."""
    return (
        f"{tried:,} tried: the best of so many has a t-value of about {best_by_luck(tried):.1f} by luck alone"
    )


def combinations_rows(report: Report) -> tuple[Sequence[str], list[list[str]]]:
    """The heads and cells of a table of the combinations, as texts, the most profitable first."""
    several = len({name.partition(":")[2] for name in report.strategies}) > 1
    swept = report.job.manifest.swept
    results = [money_head(head, report.currency) if key in _MONEY else head for key, head in _RESULTS.items()]
    heads = ["", *(["class"] if several else []), *swept, *results]
    return heads, list(_rows(report, several))


def _rows(report: Report, several: bool) -> Iterator[list[str]]:
    manifest = report.job.manifest
    for name in sorted(report.strategies, key=lambda name: -report.statistics[name][0].profit):
        number, _, kind = name.partition(":")
        numbers = asdict(report.statistics[name][0])
        chosen = [manifest.strategies[name][parameter] for parameter in manifest.swept]
        results = [number_text(numbers[result]) for result in _RESULTS]
        yield [number, *([kind] if several else []), *chosen, *results]


def _typed(name: str, texts: Sequence[str]) -> pl.Series:
    try:
        return pl.Series(name, [float(text) for text in texts])
    except ValueError:
        return pl.Series(name, texts)


# Bounds of two periods.
_LEAST = 3
_TIME = pl.Datetime("ns", "UTC")
_TIMES = ("from", "until", "trained_from")
_FORWARD: dict[str, pl.DataType | type[pl.DataType]] = {
    **dict.fromkeys(_TIMES, _TIME), "combination": pl.Int64, "class": pl.String,
    "in_sample": pl.Float64, "out_of_sample": pl.Float64, "mean": pl.Float64, "best": pl.Float64,
}  # fmt: skip


def walk_forward(report: Report, train: int | None = None) -> pl.DataFrame:
    """A row for each period from the second on: `from`, `until`, `trained_from`, the `combination` and
    `class` that earned most since then, a column for each parameter, what it had earned (`in_sample`) and
    earned (`out_of_sample`), and what all did in the period on average (`mean`) and the `best` of them.

    train: periods that are looked back at, None: all. Of those that earned the same the first is chosen.
    Times are UTC; profits are at the mid, after fees, in the quote currency.
    """
    bounds, table = report.bounds, combinations_of(report)
    names = [f"{number}:{kind}" for number, kind in table.select("combination", "class").iter_rows()]
    told = {
        name: f"set_{name}" if name in _FORWARD else name
        for name in table.columns[2 : 2 + len(report.job.manifest.swept)]
    }
    kinds = {own: pl.String if table[name].dtype == pl.String else pl.Float64 for name, own in told.items()}
    first, last = list(_FORWARD.items())[:5], list(_FORWARD.items())[5:]
    schema = {**dict(first), **kinds, **dict(last)}
    if len(bounds) < _LEAST:
        return pl.DataFrame(schema=schema)
    worth = np.array([report.worth[name] for name in names])
    rows = []
    for place, (start, end) in enumerate(pairwise(bounds.tolist())):
        if place == 0:
            continue
        since = 0 if train is None else max(0, place - train)
        before, earned = worth[:, place] - worth[:, since], worth[:, place + 1] - worth[:, place]
        chosen = int(before.argmax())
        one = table.row(chosen, named=True)
        rows.append({
            "from": start, "until": end, "trained_from": int(bounds[since]),
            "combination": one["combination"], "class": one["class"],
            "in_sample": float(before[chosen]), "out_of_sample": float(earned[chosen]),
            "mean": float(earned.mean()), "best": float(earned.max()),
            **{own: one[name] for name, own in told.items()},
        })  # fmt: skip
    found = pl.DataFrame(rows, schema={**schema, **dict.fromkeys(_TIMES, pl.Int64)})
    return found.with_columns(pl.col(_TIMES).cast(_TIME))


def forward_text(found: pl.DataFrame, currency: str) -> str:
    """The sums of a walk forward as a line."""
    sums = (float(found[name].sum()) for name in ("out_of_sample", "mean"))
    chosen, mean = (amount_text(one, currency) for one in sums)
    return (
        f"of {len(found)} periods, each by the combination that had earned most before it: {chosen} in all; "
        f"all combinations on average {mean}"
    )


@dataclass(frozen=True, slots=True)
class HeatMap:
    """Two parameters of a sweep, their values in order, and for each pair (one value of `down` a row) the
    median profit of the strategies that have it, None where there is none, and of how many."""

    down: str
    across: str
    rows: Sequence[str]
    columns: Sequence[str]
    profits: Sequence[Sequence[float | None]]
    counts: Sequence[Sequence[int]]


def heat_maps(report: Report) -> list[HeatMap]:
    """One for every two parameters."""
    manifest = report.job.manifest
    found = []
    for down, across in combinations(manifest.swept, 2):
        profits: dict[tuple[str, str], list[float]] = {}
        for name in report.strategies:
            chosen = manifest.strategies[name]
            own = profits.setdefault((chosen[down], chosen[across]), [])
            own.append(report.statistics[name][0].profit)
        rows, columns = (_in_order({pair[place] for pair in profits}) for place in (0, 1))
        cells = [[profits.get((row, column), []) for column in columns] for row in rows]
        found.append(
            HeatMap(
                down, across, rows, columns,
                [[median(cell) if cell else None for cell in row] for row in cells],
                [[len(cell) for cell in row] for row in cells],
            )
        )  # fmt: skip
    return found


def _in_order(values: set[str]) -> list[str]:
    """Numbers by size, where all are, else texts."""
    try:
        return sorted(values, key=float)
    except ValueError:
        return sorted(values)
