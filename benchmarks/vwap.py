"""SOBI's bid VWAP, fresh at every event: one symbol at three sizes, and a thousand symbols."""

from collections.abc import Callable, Sequence
from decimal import Decimal
from functools import partial

import numpy as np

from orderbook.core.changes import ChangeBatch
from orderbook.engine.plan.statistics import Statistics
from orderbook.engine.runtime.interface import Row
from orderbook.market.instruments import Instrument, Instruments
from orderbook.views.program import CompiledProgram

from . import hand_written as hand
from .flow import Flow, bid_flow, signed_tuples
from .measure import Case, Figures, Options, Stopwatch, interleaved, parts_text, same, spread, table
from .programs import (
    Chain,
    book_changes,
    compile_sql,
    insert_kind,
    part,
    runtime_of,
    samples,
    statistics_after,
    watched_runtime,
)

LEVELS = (256, 4_096, 65_536)
RESTING = 2_000
SYMBOLS = 1_000
SYMBOL_LEVELS = (256, 4_096)
SYMBOL_RESTING = 100
SAMPLES = 200

# Narrow columns, so that every sum is proved to fit 64 bits.
TUPLES = """\
CREATE STREAM b (
    {symbol}volume INTEGER NOT NULL CHECK (volume BETWEEN 0 AND 100000),
    price INTEGER NOT NULL CHECK (price BETWEEN 0 AND 100000)
) WITH (max_rows = 1000000);
"""
NARROW_BIDS = """\
CREATE STREAM bids (
    ts TIMESTAMP NOT NULL, venue TEXT NOT NULL, symbol TEXT NOT NULL, id BIGINT NOT NULL,
    broker_id INTEGER NOT NULL,
    volume DECIMAL(18, 8) NOT NULL CHECK (volume BETWEEN 0 AND 0.001),
    price DECIMAL(18, 8) NOT NULL CHECK (price BETWEEN 0 AND 0.001)
) WITH (max_rows = 1000000);
"""
ONE = """\
CREATE VIEW v AS SELECT SUM(b.price * b.volume) / SUM(b.volume) AS vwap FROM {0} b
WHERE 0.25 * (SELECT SUM(t.volume) FROM {0} t)
    > (SELECT COALESCE(SUM(x.volume), 0) FROM {0} x WHERE x.price > b.price);
"""
GROUPED = """\
CREATE VIEW v AS SELECT b.symbol, SUM(b.price * b.volume) / SUM(b.volume) AS vwap FROM {0} b
WHERE 0.25 * (SELECT SUM(t.volume) FROM {0} t WHERE t.symbol = b.symbol)
    > (SELECT COALESCE(SUM(x.volume), 0) FROM {0} x WHERE x.symbol = b.symbol AND x.price > b.price)
GROUP BY b.symbol;
"""
SYMBOL = "symbol INTEGER NOT NULL CHECK (symbol BETWEEN 0 AND 100000), "
NEVER = "vwap < 0"

DENSE, TUPLE, EVENT = "dense slots", "tuples", "EVENT, ids"
# (name, what it reads)
Named = tuple[str, str]
FENWICK: dict[str, Named] = {kind: ("hand-written Fenwick", kind) for kind in (DENSE, TUPLE, EVENT)}


def instruments(symbols: int, step: str) -> Instruments:
    """Symbols whose tick and lot are `step`."""
    return Instruments(
        Instrument("SIM", f"S{i}", f"S{i}", Decimal(step), Decimal(step)) for i in range(symbols)
    )


def one_symbol(options: Options) -> None:
    """One book at 256, 4,096 and 65,536 levels, and the growth between them."""
    count = 200_000 if options.quick else 1_000_000
    found = {}
    for levels in LEVELS:
        flow = bid_flow(count, 1, levels, RESTING, options.seed)
        figures = _measure(flow, 1, _single_loops(flow), ONE, options)
        title = f"Bid VWAP, k = 0.25, {levels:,} levels, {count:,} events"
        _show(title, figures)
        found[levels] = figures
    small, large = found[LEVELS[0]], found[LEVELS[-1]]
    table(
        f"Growth from {LEVELS[0]:,} to {LEVELS[-1]:,} levels",
        ("", "input", "growth", "x Fenwick's"),
        [
            (*name, f"{_growth(large, small, name):.2f}", f"{_relative_growth(large, small, name):.2f}")
            for name in small
        ],
    )


def many_symbols(options: Options) -> None:
    """A thousand books, events spread over them by Zipf's law."""
    count = 200_000 if options.quick else 1_000_000
    for levels in SYMBOL_LEVELS:
        flow = bid_flow(count, SYMBOLS, levels, SYMBOL_RESTING, options.seed)
        figures = _measure(flow, SYMBOLS, _symbol_loops(flow), GROUPED, options)
        _show(f"Bid VWAP by symbol, {SYMBOLS:,} symbols of {levels:,} levels, {count:,} events", figures)


def _growth(large: dict[Named, Figures], small: dict[Named, Figures], name: Named) -> float:
    return large[name].median / small[name].median


def _relative_growth(large: dict[Named, Figures], small: dict[Named, Figures], name: Named) -> float:
    return _growth(large, small, name) / _growth(large, small, FENWICK[name[1]])


def _show(title: str, figures: dict[Named, Figures]) -> None:
    table(
        title,
        ("", "input", "ns/event", "min", "max", "x Fenwick", "x dense", "of which, ns"),
        [
            (
                *name,
                *spread(figure),
                f"{figure.ratio(figures[FENWICK[name[1]]]):.2f}",
                f"{figure.ratio(figures[FENWICK[DENSE]]):.2f}",
                parts_text(figure),
            )
            for name, figure in figures.items()
        ],
    )


# A hand-written loop with what comes before `out`, made anew for every run; whether it keeps the view.
Loop = tuple[Named, Callable[..., None], Callable[[], tuple[object, ...]], bool]


def _columns(flow: Flow) -> tuple[np.ndarray, ...]:
    action, volume = (flow.events[name].astype(np.int64) for name in ("action", "volume"))
    return action, flow.slots, flow.at_level, volume


def _single_loops(flow: Flow) -> list[Loop]:
    dense = (*_columns(flow), flow.levels, flow.slot_count)
    changes, _ = signed_tuples(flow, 0, with_symbol=False)
    tuples = (changes.kinds, changes.flags, changes.values, flow.levels)

    def by_id() -> tuple[object, ...]:
        return (flow.events, flow.levels, *hand.order_table(flow.slot_count))

    return [
        (FENWICK[DENSE], hand.fenwick_dense, lambda: dense, True),
        (("hand-written cursor", DENSE), hand.cursor_dense, lambda: dense, True),
        (("book without a view", DENSE), hand.floor_dense, lambda: dense, False),
        (FENWICK[TUPLE], hand.fenwick_tuples, lambda: tuples, True),
        (FENWICK[EVENT], hand.fenwick_events, by_id, True),
        (("hand-written cursor", EVENT), hand.cursor_events, by_id, True),
        (("book without a view", EVENT), hand.floor_events, by_id, False),
    ]


def _symbol_loops(flow: Flow) -> list[Loop]:
    columns = _columns(flow)
    changes, _ = signed_tuples(flow, 0, with_symbol=True)

    def dense() -> tuple[object, ...]:
        return (flow.symbols, *columns, flow.slot_count, *hand.symbol_books(SYMBOLS, flow.levels))

    def tuples() -> tuple[object, ...]:
        return (changes.kinds, changes.flags, changes.values, *hand.symbol_books(SYMBOLS, flow.levels))

    def by_id() -> tuple[object, ...]:
        orders = hand.order_table(flow.slot_count)
        return (flow.events, *orders, *hand.symbol_books(SYMBOLS, flow.levels))

    return [
        (FENWICK[DENSE], hand.symbols_dense, dense, True),
        (FENWICK[TUPLE], hand.symbols_tuples, tuples, True),
        (FENWICK[EVENT], hand.symbols_events, by_id, True),
    ]


def _measure(
    flow: Flow, symbols: int, loops: Sequence[Loop], view: str, options: Options
) -> dict[Named, Figures]:
    """Checks that all agree, then measures the hand-written loops and the executor in turn."""
    count = len(flow.events)
    expected = _agreed(loops, count)
    cases, names = [], {}
    out = np.empty(count)

    def case(name: Named, run: Callable[[Stopwatch], object]) -> None:
        names[": ".join(name)] = name
        cases.append(Case(": ".join(name), count, run))

    for name, loop, arguments, _ in loops:
        case(name, partial(_run_loop, loop, arguments, out))

    grouped = symbols > 1
    narrow = compile_sql(TUPLES.format(symbol=SYMBOL if grouped else "") + view.format("b"))
    ready, ends = signed_tuples(flow, insert_kind(narrow, "b"), with_symbol=grouped)
    same(f"executor, {TUPLE}", *_sampled(narrow, ready, ends, flow, expected, grouped))
    case(("triggers, 64-bit sums", TUPLE), partial(_run_triggers, narrow, ready))

    def watched(w: Stopwatch) -> None:
        w.time("triggers", watched_runtime(narrow, "v", NEVER).apply, ready)

    case(("the same, a condition watched", TUPLE), watched)
    if grouped:
        planned = ("the same, planned by measurement", TUPLE)
        case(planned, partial(_run_triggers, narrow, ready, statistics=statistics_after(narrow, ready)))
    # Ticks and lots of 1e-8 make a row's scaled value the tick itself; of 1, a real price.
    for bits, sql, step in (("64", NARROW_BIDS, "0.00000001"), ("128", "", "1")):
        program = compile_sql(sql + view.format("bids"))
        listed = instruments(symbols, step)
        if bits == "128":
            changes = book_changes(program, listed, flow.events)
            case(("triggers, 128-bit sums", TUPLE), partial(_run_triggers, program, changes))
        same(f"executor, {EVENT}, {bits}", *_final(program, listed, flow, expected, float(step)))
        case((f"books + triggers, {bits}-bit sums", EVENT), partial(_run_chain, program, listed, flow.events))
    figures = interleaved(cases, options.runs)
    return {names[name]: figure for name, figure in figures.items()}


def _run_loop(
    loop: Callable[..., None], arguments: Callable[[], tuple[object, ...]], out: np.ndarray, watch: Stopwatch
) -> None:
    given = arguments()
    watch.time("loop", loop, *given, out)


def _run_triggers(
    program: CompiledProgram, changes: ChangeBatch, watch: Stopwatch, statistics: Statistics | None = None
) -> None:
    watch.time("triggers", runtime_of(program, statistics).apply, changes)


def _run_chain(program: CompiledProgram, listed: Instruments, events: np.ndarray, watch: Stopwatch) -> None:
    Chain.of(program, listed).apply(events, watch)


def _agreed(loops: Sequence[Loop], count: int) -> np.ndarray:
    """The VWAP after every event, on which all hand-written loops agree exactly."""
    outs = []
    for _, loop, arguments, keeps_view in loops:
        out = np.empty(count)
        loop(*arguments(), out)
        if keeps_view:
            outs.append(out)
    for out in outs[1:]:
        if not np.array_equal(out, outs[0], equal_nan=True):
            raise AssertionError("hand-written loops differ")
    return outs[0]


def _value(row: Row | None) -> float:
    value = None if row is None else row.columns[-1]
    return np.nan if value is None else float(value)


def _sampled(
    program: CompiledProgram,
    changes: ChangeBatch,
    ends: np.ndarray,
    flow: Flow,
    expected: np.ndarray,
    grouped: bool,
) -> tuple[list[float], np.ndarray]:
    """The executor's VWAP of the event's symbol after a sample of events, and what is expected."""
    runtime = runtime_of(program)
    places = samples(len(ends), SAMPLES)
    found, start = [], 0
    for e in places:
        end = int(ends[e])
        runtime.apply(part(changes, start, end))
        start = end
        found.append(_value(runtime.row("v", (int(flow.symbols[e]),) if grouped else ())))
    return found, expected[places]


def _final(
    program: CompiledProgram, listed: Instruments, flow: Flow, expected: np.ndarray, step: float
) -> tuple[list[float], list[float]]:
    """The VWAP of every symbol after the whole flow through books, and what is expected."""
    chain = Chain.of(program, listed)
    chain.apply(flow.events, Stopwatch())
    if chain.books.problems():
        raise AssertionError(f"books report problems: {chain.books.problems()}")
    rows = {key: _value(row) for key, row in chain.runtime.rows("v")}
    last = {int(symbol): e for e, symbol in enumerate(flow.symbols.tolist())}
    codes = [program.dictionary.encode(i.symbol) for i in listed]
    single = len(listed) == 1
    found = [rows.get(() if single else (codes[symbol],), np.nan) for symbol in last]
    return found, [float(expected[e]) * step for e in last.values()]
