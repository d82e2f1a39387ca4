"""Runs the benchmarks: `python -m benchmarks [--quick] [--section NAME] [--runs N] [--seed N]`."""

import typer

from .as_written import as_written
from .bench_maps import bench_hashed, bench_ordered
from .calls import one_event
from .doors import doors
from .feeds import feeds
from .files import files
from .finance import finance
from .first_week import first_week
from .group_by import group_by
from .growth import longest_event, memory
from .itch import itch
from .log import log
from .measure import CONSOLE, Options
from .rows import rows
from .slopes import slopes
from .start import start
from .strategies import strategies
from .surveillance import surveillance
from .threads import threads
from .tpch import tpch
from .vwap import many_symbols, one_symbol


def maps(options: Options) -> None:
    """The maps alone; more of them by `python -m benchmarks.bench_maps`."""
    bench_hashed(options.runs)
    bench_ordered(100_000 if options.quick else 1_000_000, options.runs)


SECTIONS = {
    "vwap": one_symbol,
    "symbols": many_symbols,
    "call": one_event,
    "rows": rows,
    "as_written": as_written,
    "growth": longest_event,
    "memory": memory,
    "group_by": group_by,
    "finance": finance,
    "first_week": first_week,
    "slopes": slopes,
    "start": start,
    "log": log,
    "feeds": feeds,
    "files": files,
    "itch": itch,
    "threads": threads,
    "strategies": strategies,
    "surveillance": surveillance,
    "tpch": tpch,
    "doors": doors,
    "maps": maps,
}
# Compiles more than it measures.
_NOT_QUICK = ("maps",)


def main(
    quick: bool = typer.Option(False, help="Small counts: about a minute in all."),
    section: list[str] = typer.Option([], help=f"Only these: {', '.join(SECTIONS)}."),
    runs: int = typer.Option(0, help="Interleaved runs of each loop; 5 unless given, 3 with --quick."),
    seed: int = typer.Option(7, help="Seed of all generated data."),
    entries: int = typer.Option(0, help="Entries that the growing map reaches."),
    fresh: int = typer.Option(0, help="Order ids inserted and deleted."),
    stocks: int = typer.Option(0, help="Stocks of the generated day of ITCH."),
    messages: int = typer.Option(0, help="Its messages."),
) -> None:
    """Measure the executor beside hand-written loops, in one run."""
    unknown = [name for name in section if name not in SECTIONS]
    if unknown:
        raise typer.BadParameter(f"no section {unknown[0]}; give one of {', '.join(SECTIONS)}")
    options = Options(
        quick=quick,
        runs=runs or (3 if quick else 5),
        seed=seed,
        entries=entries or (500_000 if quick else 10_000_000),
        fresh=fresh or (2_000_000 if quick else 100_000_000),
        stocks=stocks or (100 if quick else 1_000),
        messages=messages or (200_000 if quick else 2_000_000),
    )
    for name in section or [n for n in SECTIONS if not (quick and n in _NOT_QUICK)]:
        CONSOLE.rule(name)
        SECTIONS[name](options)


if __name__ == "__main__":
    typer.run(main)
