"""Replays by one thread and by several: decoding, books and SOBI, with the CPU time of every thread.

On a machine that others use the wall time says little; what the threads took does: on idle cores a replay
takes at least, batch by batch, the longest of the threads that wait for each other, the longest of those that
read, and all of them over the number of cores.
"""

import statistics
import tempfile
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from orderbook import compile as compile_views
from orderbook.engine.distribution.threads import partitions_of
from orderbook.feeds.files.itch import ItchSource
from orderbook.feeds.merge import Merger
from orderbook.feeds.recording.parquet_record import RecordSource, RecordWriter
from orderbook.feeds.source import EventSource
from orderbook.market.book_relations import filled_relations
from orderbook.run.pipeline import Pipeline
from orderbook.run.read_ahead import read_ahead
from orderbook.strategies.gated_engine import GatedEngine

from .itch_day import write_day
from .measure import CONSOLE, Options, same, table

_SOBI = Path(__file__).parent.parent / "views" / "sobi.sql"
_CORES, _FILES = 2, 4
# Names of threads that others wait for only where nothing is read yet.
_READS = "reader", "source"


class _Run(NamedTuple):
    """Seconds of CPU by thread; of those that wait for each other the longest, batch by batch; of wall. How
    many events; SOBI by symbol."""

    spent: Mapping[str, float]
    longest: float
    wall: float
    events: int
    rows: Sequence[tuple[object, ...]]

    @property
    def total(self) -> float:
        return sum(self.spent.values())

    def least(self, cores: int) -> float:
        """Seconds on so many idle cores, at least."""
        return max(self.total / cores, self.longest, *self.spent.values())


def _replay(sources: Sequence[EventSource], threads: int) -> _Run:
    program = compile_views(_SOBI, params={"k": 0.25})
    merger = Merger(sources)
    found = partitions_of(program.program, threads, filled_relations(program.program))
    assert not isinstance(found, str)
    engine = GatedEngine(program, partitions=found if threads > 1 else None)
    pipeline = Pipeline(engine, merger.instruments)
    pipeline.warm_up()
    pipeline.measures = False
    before, wall = _clocks(), time.perf_counter()
    after, longest = dict(before), 0.0
    for item in read_ahead(merger) if threads > 1 else merger:
        pipeline.apply(item)
        now = _clocks()
        longest += max(now[name] - after.get(name, 0.0) for name in now if not name.startswith(_READS))
        after.update(now)
    pipeline.finish()
    after.update(_clocks())
    wall = time.perf_counter() - wall
    spent = {name: clock - before.get(name, 0.0) for name, clock in after.items()}
    return _Run(spent, longest, wall, pipeline.events, sorted(engine.frame("sobi").rows()))


def _clocks() -> dict[str, float]:
    """CPU seconds of the threads that there are, by name."""
    clocks = {}
    for one in threading.enumerate():
        if one.ident is not None:
            clocks[f"{one.name} {one.ident}"] = time.clock_gettime(time.pthread_getcpuclockid(one.ident))
    return clocks


def _compare(name: str, opened: Callable[[], Sequence[EventSource]], options: Options) -> None:
    runs: dict[int, list[_Run]] = {1: [], _CORES: []}
    for _ in range(options.runs):
        for threads, own in runs.items():
            own.append(_replay(opened(), threads))
    for one, two in zip(*runs.values(), strict=True):
        same("symbols", [row[0] for row in one.rows] == [row[0] for row in two.rows], True)
        same("SOBI", _numbers(one.rows), _numbers(two.rows))
    events = runs[1][0].events
    lines = [_line(threads, own, events) for threads, own in runs.items()]
    table(
        f"{name}, {events:,} events, ns an event",
        ("threads", "CPU", "wall", f"at least, on {_CORES} cores", "CPU by thread"),
        lines,
    )
    pairs = list(zip(*runs.values(), strict=True))
    bound = statistics.median(one.total / two.least(_CORES) for one, two in pairs)
    extra = statistics.median(two.total / one.total - 1 for one, two in pairs)
    wall = statistics.median(one.wall / two.wall for one, two in pairs)
    CONSOLE.print(
        f"by CPU time at most {bound:.2f} x on {_CORES} idle cores, for {100 * extra:.1f} % more CPU time"
    )
    CONSOLE.print(f"by wall time {wall:.2f} x here, beside whatever else ran")


def _line(threads: int, runs: Sequence[_Run], events: int) -> tuple[str, ...]:
    def shown(values: Sequence[float]) -> str:
        return f"{1e9 * statistics.median(values) / events:.0f}"

    parts = sorted(((spent, name.split()[0]) for name, spent in runs[-1].spent.items()), reverse=True)
    by_thread = ", ".join(f"{n} {1e9 * part / events:.0f}" for part, n in parts if part > 0.01 * parts[0][0])
    least = [run.least(_CORES if threads > 1 else 1) for run in runs]
    return (
        str(threads),
        shown([run.total for run in runs]),
        shown([run.wall for run in runs]),
        shown(least),
        by_thread,
    )


def _numbers(rows: Sequence[tuple[object, ...]]) -> list[list[float]]:
    return [[float("nan") if value is None else float(str(value)) for value in row[1:]] for row in rows]


def threads(options: Options) -> None:
    """A generated day of ITCH, as it is, and recorded to a few files of Parquet by stocks."""
    with tempfile.TemporaryDirectory(dir=Path.cwd(), prefix=".threads-benchmark-") as folder:
        day, _ = write_day(Path(folder), options.stocks, options.messages, options.seed)
        with tempfile.TemporaryDirectory(dir=folder) as small:
            # Compiles what is measured, before it is.
            tiny, _ = write_day(Path(small), 3, 1000, options.seed)
            for count in (1, _CORES):
                _replay([ItchSource(tiny)], count)
        _compare(f"ITCH of {options.stocks:,} stocks", lambda: [ItchSource(day)], options)
        symbols = [instrument.symbol for instrument in ItchSource(day).instruments]
        records = []
        for part in range(_FILES):
            source = ItchSource(day, symbols[part::_FILES])
            records.append(Path(folder) / f"day-{part}.parquet")
            with RecordWriter(records[-1], source.instruments) as writer:
                for events in source:
                    writer.write(events)
        _compare(
            f"The same in {_FILES} Parquet records", lambda: [RecordSource([r]) for r in records], options
        )
