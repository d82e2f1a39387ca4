"""The finance workload of the DBToaster papers: six queries over a book's bids and asks."""

import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np

from orderbook.views.program import CompiledProgram

from .finance_loops import BROKERS, LOOPS
from .finance_market import Market, in_duckdb, in_polars, market, values
from .measure import Case, Figures, Options, Stopwatch, interleaved, table
from .programs import compile_sql, part, runtime_of, samples

FINANCE = Path(__file__).resolve().parent.parent / "views" / "finance"
BIDS, ASKS = 550, 1_500
GROWTH = (100, 1_000, 10_000)
SAMPLES = 20
# First-order maintenance joins the whole book again, at some queries for milliseconds an event.
FIRST_ORDER_EVENTS = 100
# At first order this one evaluates two nested sums for every pair of orders: the book takes minutes to fill.
_NOT_AT_FIRST_ORDER = ("missedtrades",)
COLUMNS = ("executor", "first order", "by hand", "x by hand", "DuckDB", "polars", "DBToaster", "x DBToaster")
# Events a second of DBToaster's own generated C++, measured elsewhere on such a book.
DBTOASTER = {
    "vwap": 3.2e3,
    "axfinder": 0.46e6,
    "brokerspread": 0.95e6,
    "brokervariance": 100e6,
    "pricespread": 0.25e6,
    "missedtrades": 20.0,
}
# Loops that sum other than the query does: what the query's value is of theirs.
_FACTOR = {"brokervariance": 0.5}
_GROUPED = ("axfinder", "brokerspread", "brokervariance", "missedtrades")
# Queries that read no asks: their market has none, so that every event concerns the query.
_BIDS_ONLY = ("vwap", "brokerspread", "brokervariance")


def finance(options: Options) -> None:
    """Events a second of each query on one book, beside other ways to keep it, and growth with the book.

    An event is one order inserted or deleted on a side of the book that the query reads.
    """
    count = 20_000 if options.quick else 200_000
    book = market(BIDS, ASKS, count, options.seed)
    rows = [_compared(name, _read(name, book), options) for name in LOOPS]
    table(
        f"Finance queries, {BIDS} bid and {ASKS:,} ask levels, {count:,} events less those of sides not "
        "read; events/s; DBToaster as measured elsewhere",
        ("", *COLUMNS),
        rows,
    )
    books = [market(levels, levels, count, options.seed) for levels in GROWTH]
    table(
        f"Growth with the levels of a side, {count:,} events less those of sides not read; ns/event",
        ("", *(f"{levels:,}" for levels in GROWTH), "growth", "by hand"),
        [_grown(name, [_read(name, book) for book in books], options) for name in LOOPS],
    )


def _read(name: str, book: Market) -> Market:
    return book.bids_only() if name in _BIDS_ONLY else book


def _compared(name: str, book: Market, options: Options) -> tuple[str, ...]:
    """One query's line: the executor checked against the loop, then all measured in turn."""
    programs = {"executor": _program(name)}
    first = _program(name, " WITH (materialize = first)")
    if first.m3 != programs["executor"].m3 and name not in _NOT_AT_FIRST_ORDER:
        programs["first order"] = first
    again = 4 if options.quick else 20
    books = {"executor": book, "first order": book.until(FIRST_ORDER_EVENTS)}
    cases = [_executor_case(label, program, books[label]) for label, program in programs.items()]
    cases += [
        _loop_case(name, book),
        Case("DuckDB", again, partial(_timed, in_duckdb(book, _select(name), again))),
        Case("polars", 1, partial(_timed, in_polars(book, name))),
    ]
    for label, program in programs.items():
        _check(f"{name}, {label}", name, program, books[label])
    (full,) = _by_hand(name, book, np.array([book.start - 1]))
    _same(f"{name}, polars", values(in_polars(book, name)()), full)
    figures = interleaved(cases, options.runs)
    return (
        name,
        *(_rate(figures.get(label)) for label in ("executor", "first order", "by hand")),
        f"{figures['executor'].ratio(figures['by hand']):.2f}",
        *(_rate(figures[label]) for label in ("DuckDB", "polars")),
        _number(DBTOASTER[name]),
        f"{1e9 / figures['executor'].median / DBTOASTER[name]:.2f}",
    )


def _grown(name: str, books: list[Market], options: Options) -> tuple[str, ...]:
    program = _program(name)
    cases = []
    for levels, book in zip(GROWTH, books, strict=True):
        cases += [_executor_case(f"executor {levels}", program, book), _loop_case(name, book, f" {levels}")]
    figures = interleaved(cases, options.runs)
    mine, hand = ([figures[f"{who} {n}"] for n in GROWTH] for who in ("executor", "by hand"))
    return (
        name,
        *(f"{f.median:.0f}" for f in mine),
        f"{mine[-1].median / mine[0].median:.2f}",
        f"{hand[-1].median / hand[0].median:.2f}",
    )


def _program(name: str, options: str = "") -> CompiledProgram:
    sql = "".join((FINANCE / f"{part}.sql").read_text(encoding="utf-8") for part in ("schema", name))
    return compile_sql(sql.replace(f"CREATE VIEW {name} AS", f"CREATE VIEW {name}{options} AS"))


def _select(name: str) -> str:
    return (FINANCE / f"{name}.sql").read_text(encoding="utf-8").split(" AS\n", 1)[1]


def _executor_case(label: str, program: CompiledProgram, book: Market) -> Case:
    changes = book.changes(program)
    count = len(changes)
    full, rest = part(changes, 0, book.start), part(changes, book.start, count)

    def run(watch: Stopwatch) -> None:
        runtime = runtime_of(program)
        runtime.apply(full)
        watch.time("triggers", runtime.apply, rest)

    return Case(label, count - book.start, run)


def _loop_case(name: str, book: Market, suffix: str = "") -> Case:
    """The loop fills the book too, so that it counts all its changes."""
    count = len(book.ask)
    last, seen = np.array([count - 1]), np.zeros((1, BROKERS, 2), np.int64)
    arguments = (*book[:7], last, seen)
    return Case(f"by hand{suffix}", count, lambda watch: watch.time("loop", LOOPS[name], *arguments))


def _timed(run: Callable[[], object], watch: Stopwatch) -> None:
    """Wall time: these engines have threads of their own."""
    start = time.perf_counter()
    run()
    watch.total += time.perf_counter() - start


def _check(what: str, name: str, program: CompiledProgram, book: Market) -> None:
    """Raises AssertionError unless executor and loop agree at samples spread over the events."""
    changes = book.changes(program)
    places = samples(len(changes), SAMPLES)
    runtime, start = runtime_of(program), 0
    scale = 10 ** program.program.result(name).columns[-1].type.scale
    for place, expected in zip(places, _by_hand(name, book, np.array(places)), strict=True):
        runtime.apply(part(changes, start, place + 1))
        start = place + 1
        rows = [(key, row.columns[-1]) for key, row in runtime.rows(name)]
        found = {
            int(key[0]) if key and key[0] is not None else 0: value / scale
            for key, value in rows
            if value is not None
        }
        _same(f"{what}, after change {place}", found, expected)


def _by_hand(name: str, book: Market, places: np.ndarray) -> list[dict[int, float]]:
    """The loop's values by broker after these changes; the only value is under 0."""
    seen = np.zeros((len(places), BROKERS, 2), np.int64)
    LOOPS[name](*book[:7], places, seen)
    factor = _FACTOR.get(name, 1)
    return [{k: s * factor for k, (count, s) in enumerate(state) if count} for state in seen.tolist()]


def _same(what: str, found: dict[int, float], expected: dict[int, float]) -> None:
    if found.keys() != expected.keys() or not all(
        np.isclose(found[k], expected[k], rtol=1e-12, atol=0) for k in found
    ):
        raise AssertionError(f"{what}: {found} instead of {expected}")


def _rate(figures: Figures | None) -> str:
    return "-" if figures is None else _number(1e9 / figures.median)


def _number(rate: float) -> str:
    return f"{rate:,.0f}" if rate < 1e5 else f"{rate / 1e6:,.2f} M"
