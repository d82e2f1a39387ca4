"""The table of a sweep: what was chosen of the parameters, and what each strategy came to by it."""

from collections.abc import Iterator, Sequence
from dataclasses import asdict

import polars as pl
from rich.table import Table

from orderbook.report.contents import Report
from orderbook.report.scales import number_text
from orderbook.report.statistics import best_by_luck, statistics_frame

_SHOWN = 25
_RESULTS = {
    "profit": "profit", "fees": "fees", "fills": "fills", "trades": "trades", "hits": "hit rate",
    "max_drawdown": "max drawdown", "sharpe": "Sharpe", "steadiness": "t-value", "margin": "margin, bps",
}  # fmt: skip


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
    heads = ["", *(["class"] if several else []), *swept, *_RESULTS.values()]
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
