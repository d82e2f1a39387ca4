"""The text at the end of a run: what went through, what views hold, what strategies did, what went wrong."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from decimal import Decimal
from typing import Any

from orderbook.core.code_cache import cache_told
from orderbook.core.errors import Problems, visible_lines
from orderbook.core.latency import LatencyHistogram, latency_text
from orderbook.core.units import length_text, moment_text, size_text, value_text
from orderbook.engine.runtime.engine import Engine
from orderbook.engine.runtime.live_view import ViewRow, column_types, in_order
from orderbook.engine.runtime.subscriptions import ViewEvent
from orderbook.feeds.source import Finding, books_lost, ends_in_order
from orderbook.market.events import StateReason
from orderbook.market.instruments import SCALE
from orderbook.run.feed_runs import FeedReport
from orderbook.run.findings import distinct, engine_findings, strategy_findings
from orderbook.run.live_run import RunReport
from orderbook.run.pipeline import Pipeline
from orderbook.strategies.execution.account import StrategySummary
from orderbook.strategies.execution.contract_money import EXACT
from orderbook.views.types import Kind

# Rows of a view that are shown.
MOST_ROWS = 5
_PERCENTILES = (50, 90, 99)
# The last place of money that is shown: what inverse contracts earn has many more.
_SHOWN = Decimal(1).scaleb(-SCALE)
# What sessions call a loss by a wrong checksum.
CHECKSUM = StateReason.CHECKSUM.name.lower()


def summary(
    pipeline: Pipeline,
    seconds: float,
    views: Sequence[str],
    strategies: Sequence[StrategySummary],
    feeds: Sequence[FeedReport],
    run: RunReport | None = None,
) -> str:
    """The whole summary; `seconds` is how long events were applied, `run` is of one with switches."""
    lines = [
        "",
        f"summary of {seconds:.1f} s",
        f"  events      {pipeline.events:,}, {pipeline.events / max(seconds, 1e-9):,.0f} a second",
        f"  messages    {pipeline.messages:,}",
    ]
    if pipeline.changes:
        lines.append(
            f"  changes     {pipeline.changes:,}, {pipeline.changes / max(seconds, 1e-9):,.0f} a second"
        )
    if counts := pipeline.thread_events:
        shares = ", ".join(f"{100 * count / max(1, sum(counts)):.0f} %" for count in counts)
        lines.append(f"  threads     {len(counts)}, with {shares} of what changed books")
    lines += _latency_lines(pipeline)
    lines += [] if run is None else _run_lines(run)
    lines += _clock_lines(pipeline, run)
    for view in views:
        lines += _view_lines(pipeline.engine, view)
    for strategy in strategies:
        lines += strategy_lines(strategy)
    for feed in feeds:
        lines += feed_lines(feed)
    lines += _book_lines(pipeline)
    lines += [f"  compiled cache: {told}" for told in cache_told()]
    return visible_lines(lines)


def summary_figures(
    pipeline: Pipeline,
    seconds: float,
    views: Sequence[str],
    strategies: Sequence[StrategySummary],
    feeds: Sequence[FeedReport],
    run: RunReport | None = None,
) -> dict[str, Any]:
    """The same for scripts: latencies in ns, money and prices exact, rows of views counted."""
    latencies = (("to_views", pipeline.to_views), ("to_callbacks", pipeline.to_callbacks))
    found: dict[str, Any] = {
        "seconds": round(seconds, 6),
        "events": pipeline.events,
        "messages": pipeline.messages,
        "changes": pipeline.changes,
        "latency": {name: _latency_figures(own) for name, own in latencies if own.count},
        "views": {view: {"rows": len(pipeline.engine[view])} for view in views},
        "strategies": {strategy.name: strategy_figures(strategy) for strategy in strategies},
        "feeds": [feed_figures(feed) for feed in feeds],
        "problems": {
            "books": dict(pipeline.book_problems),
            "rows": dict(pipeline.problems.counts),
            "engine": dict(pipeline.engine.problems.counts),
        },
    }
    return found if run is None else {**found, "run": asdict(run)}


def strategy_figures(strategy: StrategySummary) -> dict[str, Any]:
    """What became of a strategy, for scripts."""
    return {
        "callbacks": strategy.callbacks,
        "orders": strategy.orders,
        "refused": strategy.refused,
        "fills": strategy.fills,
        "profit": strategy.profit,
        "currency": strategy.currency,
        "failure": strategy.failure,
        "liquidations": strategy.liquidations,
        "positions": [
            {
                "venue": one.venue, "symbol": one.symbol, "position": one.position, "mark": one.mark,
                "profit": one.profit, "fees": one.fees, "funding": one.funding, "currency": one.currency,
            }
            for one in strategy.positions
        ],
    }  # fmt: skip


def _latency_figures(histogram: LatencyHistogram) -> dict[str, int]:
    percentiles = {f"p{percent}": histogram.percentile(percent) for percent in _PERCENTILES}
    return {**percentiles, "max": histogram.maximum, "count": histogram.count}


def feed_figures(feed: FeedReport) -> dict[str, Any]:
    """What a feed counted, for scripts."""
    return {"feed": feed.name, **feed.counts, "problems": dict(feed.problems.counts)}


def findings_of(
    pipeline: Pipeline, strategies: Sequence[StrategySummary], feeds: Sequence[FeedReport]
) -> tuple[Finding, ...]:
    """What makes the result of a run incomplete."""
    found = [finding for feed in feeds for finding in feed.findings]
    for index, instrument in enumerate(pipeline.instruments):
        row = pipeline.state_of(index)
        if row is not None and row.state != "valid" and not ends_in_order(row.reason):
            found.append(books_lost(row.reason, [str(instrument)]))
    bad = sum(count for name, count in pipeline.book_problems.items() if name != "crossed")
    if 2 * bad > pipeline.events:
        names = tuple(name.replace("_", " ") for name in pipeline.book_problems)
        todo = "give a source with a snapshot"
        found.append(Finding("most events contradict their books", names, bad, todo))
    found += engine_findings(pipeline.problems, pipeline.engine.problems, pipeline.changes)
    return distinct([*found, *strategy_findings(strategies)])


def feed_lines(feed: FeedReport) -> Iterator[str]:
    """What a feed counted, and what went wrong in it; of a live feed nothing that is zero."""
    statistics = feed.statistics
    parts = [f"{name} {count:,}" for name, count in feed.counts.items() if count or statistics is None]
    if statistics is not None:
        if failures := statistics.problems.counts[CHECKSUM]:
            parts.append(f"checksum failures {failures:,}")
        if statistics.stale_seconds:
            parts.append(f"stale {statistics.stale_seconds:.1f} s")
    if statistics is not None and not parts:
        parts = ["nothing received"]
    yield f"  feed {feed.name}" + (f": {', '.join(parts)}" if parts else "")
    if feed.delay is not None and feed.delay.count:
        percentiles = (f"p{percent} {latency_text(feed.delay.percentile(percent))}" for percent in (50, 99))
        yield f"    exchange to receipt: {', '.join(percentiles)} (by both clocks, of {feed.delay.count:,})"
    yield from _problem_lines(feed.problems)


def label_text(row: Mapping[str, object]) -> str:
    """The texts in a row, which tell it from others as people see it."""
    return " ".join(value for value in row.values() if isinstance(value, str))


def values_text(row: ViewRow) -> str:
    """The columns of a row that are not texts, and their values."""
    parts = []
    for (name, value), kind in zip(row.items(), (t.kind for t in column_types(row)), strict=True):
        if isinstance(value, int) and kind is Kind.TIMESTAMP:
            parts.append(f"{name}={moment_text(value)}")
        elif not isinstance(value, str):
            parts.append(f"{name}={value_text(value)}")
    return " ".join(parts)


def callback_text(event: ViewEvent) -> str:
    """A line about a view event that a strategy is called with."""
    if event.new is None:
        return f"{event.view} {key_text(event.key)}: the row is gone"
    return f"{event.view} {label_text(event.new)} {values_text(event.new)}"


def order_text(row: Mapping[str, Any]) -> str:
    """A line about a row of `orders`."""
    price = "market" if row["price"] is None else value_text(row["price"])
    filled = f" {value_text(row['filled'])}" if row["filled"] else ""
    reason = f": {row['reason']}" if row["reason"] else ""
    return (
        f"{row['strategy']} {row['id']}: {row['side']} {value_text(row['volume'])} {row['symbol']} "
        f"at {price}, {row['status']}{filled}{reason}"
    )


def fill_text(row: Mapping[str, Any]) -> str:
    """A line about a row of `fills`."""
    return (
        f"{row['strategy']} {row['order_id']}: {row['side']} {value_text(row['volume'])} {row['symbol']} "
        f"at {value_text(row['price'])}"
    )


def key_text(key: Iterable[object]) -> str:
    """A key, its equal parts once."""
    return " ".join(value_text(part) for part in dict.fromkeys(key))


def some_rows(engine: Engine, view: str, most: int = MOST_ROWS) -> Iterator[tuple[str, str]]:
    """(label, values) of the first rows of a view, by its ORDER BY, else by its columns in a row."""
    items = sorted(engine[view].items(), key=lambda item: [(v is not None, v) for v in item[1].values()])
    for _, row in in_order(items, engine.program.order(view))[:most]:
        yield label_text(row), values_text(row)


def _latency_lines(pipeline: Pipeline) -> Iterator[str]:
    """Latencies from the receipt of a frame, of live feeds only."""
    for name, histogram in (("to views", pipeline.to_views), ("to callback", pipeline.to_callbacks)):
        if histogram.count:
            yield f"  latency     frame {name}: {_latency_text(histogram)}"
    if pipeline.to_views.count and not pipeline.to_callbacks.count:
        yield "  latency     frame to callback: no callback"


def _run_lines(run: RunReport) -> Iterator[str]:
    conflated = f", {run.conflated:,} items conflated" if run.conflated else ""
    if run.most_waiting:
        yield f"  queue       at most {run.most_waiting:,} of {run.queue_size:,} events{conflated}"
    if run.log_bytes is not None:
        segments = f"{run.log_segments} segment{'' if run.log_segments == 1 else 's'}"
        checkpoints = f"{run.checkpoints} checkpoint{'' if run.checkpoints == 1 else 's'}"
        failed = f", {run.checkpoints_failed:,} could not be written" if run.checkpoints_failed else ""
        sizes = f"{size_text(run.log_bytes)} in {segments}, epochs {run.epochs:,}"
        yield f"  log         {sizes}, {checkpoints}{failed}"


def _clock_lines(pipeline: Pipeline, run: RunReport | None) -> Iterator[str]:
    """What the machine's clock did, and times of sources; nothing of one that nobody has set."""
    late, most = pipeline.late
    if late:
        times = f"{late:,} time{'' if late == 1 else 's'} of sources {'is' if late == 1 else 'are'}"
        yield f"  clock       {times} before NOW(), which does not go back, by up to {length_text(most)}"
    if run is None:
        return
    parts = []
    if run.clock_jumps:
        times = f"{run.clock_jumps:,} time{'' if run.clock_jumps == 1 else 's'}"
        parts.append(f"the machine's jumped {times}, of which the run has followed {run.clock_steps:,}")
    if abs(run.clock_ahead) >= 10**9:
        way = "ahead of" if run.clock_ahead > 0 else "behind"
        parts.append(f"the run's time is {length_text(run.clock_ahead)} {way} the machine's")
    if parts:
        yield f"  clock       {', '.join(parts)}"


def _latency_text(histogram: LatencyHistogram) -> str:
    parts = [f"p{percent} {latency_text(histogram.percentile(percent))}" for percent in _PERCENTILES]
    return f"{', '.join(parts)}, max {latency_text(histogram.maximum)} (of {histogram.count:,})"


def _view_lines(engine: Engine, view: str) -> Iterator[str]:
    count = len(engine[view])
    yield f"  view {view}: {count:,} row{'' if count == 1 else 's'}"
    for label, values in some_rows(engine, view):
        yield f"    {label} {values}".rstrip()
    if count > MOST_ROWS:
        yield f"    … and {count - MOST_ROWS:,} more"


def strategy_lines(strategy: StrategySummary) -> Iterator[str]:
    """What became of a strategy."""
    refused = f" ({strategy.refused:,} refused)" if strategy.refused else ""
    profit = _profit_text(strategy.profit, strategy.currency)
    yield (
        f"  strategy {strategy.name}: callbacks {strategy.callbacks:,}, orders {strategy.orders:,}{refused}, "
        f"fills {strategy.fills:,}, PnL {profit}"
    )
    if strategy.refusal is not None:
        yield f"    refused first: {strategy.refusal[2]}"
    if strategy.liquidations:
        times = "once" if strategy.liquidations == 1 else f"{strategy.liquidations:,} times"
        yield f"    positions closed for want of margin {times}"
    if strategy.too_small and not strategy.orders:
        yield f"    its rows ask for less than a lot, and so for nothing ({strategy.too_small:,} times)"
    for one in strategy.positions:
        mark = "no mark" if one.mark is None else f"mark {value_text(one.mark)}"
        profit = _profit_text(one.profit, one.currency)
        profit += f", funding {value_text(one.funding)}" if one.funding else ""
        yield f"    {one.venue}:{one.symbol} position {value_text(one.position)}, {mark}, PnL {profit}"
    if strategy.failure:
        yield f"    disabled: {strategy.failure}"


def _profit_text(profit: Decimal | None, currency: str) -> str:
    if profit is None:
        return "unknown"
    return f"{value_text(EXACT.quantize(profit, _SHOWN) + 0)} {currency}".rstrip()


def _problem_lines(problems: Problems) -> Iterator[str]:
    for line in problems.report():
        yield f"    {line}"


def _book_lines(pipeline: Pipeline) -> Iterator[str]:
    if pipeline.book_problems:
        counts = ", ".join(
            f"{name.replace('_', ' ')} {count:,}" for name, count in pipeline.book_problems.items()
        )
        yield f"  problems of books: {counts}"
    for name, problems in (("rows", pipeline.problems), ("the engine", pipeline.engine.problems)):
        if problems.counts:
            yield f"  problems of {name}:"
            yield from _problem_lines(problems)
