"""A generated day of ITCH: decoded, into books, and to SOBI of every stock, in one thread and in two."""

import resource
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from orderbook import compile as compile_views
from orderbook.core.changes import Dictionary
from orderbook.core.errors import Problems
from orderbook.engine.runtime.engine import Engine
from orderbook.feeds.files.itch import ItchSource
from orderbook.market.book_relations import BookRelations
from orderbook.market.books import Books

from .itch_day import write_day
from .measure import CONSOLE, Options, same, table

_SOBI = Path(__file__).parent.parent / "views" / "sobi.sql"


class _Books:
    """Books of some stocks, without views."""

    def __init__(self, path: Path, symbols: Sequence[str] | None = None) -> None:
        self.source = ItchSource(path, symbols)
        self.books = Books(self.source.instruments, Dictionary())
        self.spent = 0.0

    def run(self) -> None:
        for events in self.source:
            start = time.thread_time()
            self.books.apply(events)
            self.spent += time.thread_time() - start


class _Views(_Books):
    """Books of some stocks, and their SOBI."""

    def __init__(self, path: Path, symbols: Sequence[str] | None = None) -> None:
        super().__init__(path, symbols)
        program = compile_views(_SOBI, params={"k": 0.25})
        self.engine = Engine(program)
        self.books = Books(self.source.instruments, program.dictionary)
        self.relations = BookRelations(program.program, program.dictionary, Problems())

    def run(self) -> None:
        for events in self.source:
            self.engine.apply(self.relations.translate(self.books.apply(events)))

    def rows(self) -> list[tuple[object, ...]]:
        """SOBI by symbol."""
        return sorted(self.engine.frame("sobi").rows())


def _decode(path: Path) -> None:
    for _ in ItchSource(path):
        pass


def itch(options: Options) -> None:
    """CPU time of the process, and wall time, which is what two threads share, of the whole file."""
    with tempfile.TemporaryDirectory(dir=Path.cwd(), prefix=".itch-benchmark-") as folder:
        path, counts = write_day(Path(folder), options.stocks, options.messages, options.seed)
        total = sum(counts.values())
        shares = ", ".join(f"{kind} {100 * count / total:.1f}" for kind, count in counts.items())
        CONSOLE.print(f"{path.stat().st_size / 1e9:.2f} GB; percent of messages: {shares}")
        symbols = [instrument.symbol for instrument in ItchSource(path).instruments]
        # Compiles what is measured, before it is.
        with tempfile.TemporaryDirectory(dir=folder) as small:
            _Views(write_day(Path(small), 3, 1000, options.seed)[0]).run()
        rows = [_line("decode", total, _seconds(lambda: _decode(path)), "")]
        alone = _Books(path)
        seconds = _seconds(alone.run)
        rows.append(_line("decode + books", total, seconds, f"books {1e9 * alone.spent / total:.0f} ns"))
        memory = alone.books.memory_bytes() / 1e6
        one = _Views(path)
        rows.append(_line("decode + books + SOBI", total, _seconds(one.run), ""))
        halves = [_Views(path, symbols[half::2]) for half in range(2)]
        rows.append(_line("the same, two threads", total, _seconds(lambda: _together(halves)), ""))
        found = sorted(row for half in halves for row in half.rows())
        same("stocks", [row[0] for row in found] == [row[0] for row in one.rows()], True)
        same("SOBI", _numbers(found), _numbers(one.rows()))
    table(
        f"ITCH, {options.stocks:,} stocks",
        ("", "CPU, ns a message", "wall, ns", "M messages/s", "of which"),
        rows,
    )
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3
    CONSOLE.print(f"books {memory:,.0f} MB; most memory of the process {most:,.0f} MB")


def _numbers(rows: Sequence[tuple[object, ...]]) -> list[list[float]]:
    return [[float("nan") if value is None else float(str(value)) for value in row[1:]] for row in rows]


def _line(name: str, messages: int, spent: tuple[float, float], parts: str) -> tuple[str, ...]:
    core, wall = spent
    return (
        name,
        f"{1e9 * core / messages:.0f}",
        f"{1e9 * wall / messages:.0f}",
        f"{messages / wall / 1e6:.2f}",
        parts,
    )


def _seconds(action: Callable[[], object]) -> tuple[float, float]:
    """CPU and wall time."""
    start, wall = time.process_time(), time.perf_counter()
    action()
    return time.process_time() - start, time.perf_counter() - wall


def _together(runs: Sequence[_Views]) -> None:
    threads = [threading.Thread(target=run.run) for run in runs]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
