"""Makes a job's report: tables beside its other data, listed in its manifest, and `report.html`.

The page is one HTML file that needs nothing else, light or dark as its reader's system is, with sections from
the headline down.
"""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import polars as pl
import pyarrow as pa

from orderbook.core.errors import visible_html
from orderbook.feeds.storage import Place
from orderbook.jobs.datasets import Dataset, table_dataset
from orderbook.jobs.folder import BASELINES, put, remove_unlisted, write_manifest
from orderbook.jobs.job import open_job
from orderbook.jobs.writers import DatasetWriter
from orderbook.report.account_sections import account_sections
from orderbook.report.accounts import Account
from orderbook.report.charts import (
    Series,
    amount_text,
    chart,
    duration_text,
    heat_map,
    legend,
    moment_text,
    number_text,
    span_text,
)
from orderbook.report.market import Instrument
from orderbook.report.parts import folded, money_head, money_table, page, section, table, tiles
from orderbook.report.ratios import SHARPE_DAYS, rolling_sharpe
from orderbook.report.results import (
    REACH,
    Report,
    Statistics,
    report_of,
    statistics_frame,
)
from orderbook.report.statement import TIME, profits_by, trades_of
from orderbook.report.sweeps import (
    combinations_of,
    combinations_rows,
    forward_text,
    heat_maps,
    luck_text,
    walk_forward,
)

# Strategies and instruments that are drawn; tables have all.
_DRAWN_STRATEGIES, _DRAWN_INSTRUMENTS = 3, 6
_WAITS = {
    "answered": "until the exchange's answer", "queued": "from there in the queue, until the first fill",
    "filled": "until the first fill", "done": "until done",
}  # fmt: skip
_COLOURS = ("one", "two", "three")


def body(report: Report) -> Iterator[str]:
    """The page's parts, in order."""
    ranked = sorted(report.strategies, key=lambda name: -report.statistics[name][0].profit)
    drawn = 1 if report.job.manifest.swept else _DRAWN_STRATEGIES
    yield _header(report)
    if len(ranked) > 1:
        yield _compared(report, ranked)
    if report.job.manifest.swept:
        yield from _swept(report)
    for name in ranked[:drawn]:
        yield from _strategy(report, name)
    yield from _foretold(report)
    yield from _signals(report)
    yield from _job(report, ranked[:drawn])


def _header(report: Report) -> str:
    manifest = report.job.manifest
    times = [one.times for one in report.mids.values() if len(one.times)]
    when = "no market data"
    if times:
        first, last = min(int(t[0]) for t in times), max(int(t[-1]) for t in times)
        when = f"{span_text(first, last)}, {duration_text(last - first)}"
    names = ", ".join(dict.fromkeys(name.rpartition(":")[2] for name in report.strategies))
    if manifest.swept:
        names += f", {len(report.strategies):,} combinations of {' and '.join(manifest.swept)}"
    count = len(report.mids)
    shown = f"{count} instrument{'' if count == 1 else 's'}, {when}"
    failure = f'<p class="warning">{visible_html(manifest.failure)}</p>' if manifest.failure else ""
    incomplete = (visible_html(str(one)) for one in manifest.incomplete)
    found = "".join(f'<p class="warning">Incomplete: {one}</p>' for one in incomplete)
    return f"<header><h1>{visible_html(names)}</h1><p>{visible_html(shown)}</p>{failure}{found}</header>"


def _compared(report: Report, ranked: Sequence[str]) -> str:
    lines = [
        Series(name, report.accounts[name].times, report.accounts[name].equity, "step", colour)
        for name, colour in zip(ranked, _COLOURS, strict=False)
    ]
    if report.job.manifest.swept:
        compared = table(*combinations_rows(report))
    else:
        whole = [report.statistics[name][0] for name in ranked]
        compared = _numbers_table("strategy", [(one.strategy, one) for one in whole])
    note = f"By profit, the best first; the equity of the best three. {luck_text(len(ranked))}."
    title = money_head("All strategies", report.currency)
    return section(title, legend(lines), chart(lines), compared, note=note)


def _swept(report: Report) -> Iterator[str]:
    """Pairs of parameters, and what choosing by the past would have earned."""
    maps = heat_maps(report)
    drawn: list[str] = []
    for one in maps:
        own = heat_map(one.down, one.across, one.rows, one.columns, one.profits)
        drawn.append(folded(f"{one.down} by {one.across}", own, not drawn) if len(maps) > 1 else own)
    if drawn:
        several = max(count for one in maps for row in one.counts for count in row) > 1
        yield section(
            money_head("Profit by two parameters", report.currency), *drawn,
            note="The median of the combinations that have both values." if several else "",
        )  # fmt: skip
    forward = walk_forward(report)
    if forward.is_empty():
        return
    parameters = forward.columns[5:-4]
    rows = [
        [
            moment_text(row["from"]), f"{row['combination']}",
            *(v if isinstance(v, str) else number_text(v) for v in (row[name] for name in parameters)),
            *(number_text(row[name]) for name in ("in_sample", "out_of_sample", "mean", "best")),
        ]
        for row in forward.with_columns(pl.col("from").dt.epoch("ns")).iter_rows(named=True)
    ]  # fmt: skip
    heads = ["from", "chosen", *parameters, "earned before", "out of sample", "all, on average", "best"]
    sums = forward_text(forward, report.currency)
    yield section(
        money_head("Walk forward", report.currency), table(heads, rows),
        note=f"Out of sample, {sums}. What is chosen by the past and earns no more than the "
        "average was chosen by luck.",
    )  # fmt: skip


_HEADS = (
    "profit", "fees", "funding", "turnover", "max drawdown", "Sharpe", "t-value", "fills", "hit rate",
    "margin, bps", "invested", "position",
)  # fmt: skip


_MONEY = frozenset(
    ("profit", "fees", "funding", "turnover", "max drawdown", "spread", "adverse", "inventory")
)


def _numbers_table(first: str, rows: Sequence[tuple[str, Statistics]]) -> str:
    return money_table(first, _HEADS, _MONEY, [(name, one.currency, _row(one)) for name, one in rows])


def _row(one: Statistics) -> list[str]:
    return [
        number_text(one.profit), number_text(one.fees), number_text(one.funding), number_text(one.turnover),
        number_text(one.max_drawdown), number_text(one.sharpe, 3), number_text(one.steadiness, 3),
        f"{one.fills:,}", _hits(one), number_text(one.margin, 3),
        _percent(one.invested), number_text(one.position),
    ]  # fmt: skip


def _strategy(report: Report, name: str) -> Iterator[str]:
    account, numbers = report.accounts[name], report.statistics[name]
    whole = numbers[0]
    if len(report.strategies) > 1:
        chosen = report.job.manifest.strategies[name]
        said = _said({key: chosen[key] for key in report.job.manifest.swept})
        what = f"The best, {name}" if said else name
        yield f'<header class="part"><h1>{visible_html(what)}</h1><p>{visible_html(said)}</p></header>'
    yield tiles(_headline(whole, account))
    yield from account_sections(account)
    yield from _instruments(report, name)
    if len(numbers) > 1:
        rows = [(f"{one.venue} {one.symbol}", one) for one in numbers[1:]]
        yield section("By instrument", _numbers_table("instrument", rows))
    yield from _attribution(report, name)
    yield from _fills(report, name)
    yield from _times(report, name)


def _headline(one: Statistics, account: Account) -> Iterator[tuple[str, str, str, str]]:
    def money(name: str) -> str:
        return money_head(name, one.currency)

    steady = f"t-value {number_text(one.steadiness, 3)}, by {duration_text(one.step)}"
    beside = number_text(float(account.benchmark[-1])) if one.fills else ""
    fees = f"after fees {number_text(one.fees)}" + (f"; buy and hold {beside}" if beside else "")
    yield money("Profit"), number_text(one.profit), fees, _sign(one.profit)
    short = f"under {SHARPE_DAYS} days, not annualised; "
    if one.sharpe is not None:
        short = f"Sortino {number_text(one.sortino, 3)}; "
    yield "Sharpe", number_text(one.sharpe, 3), "too few changes" if one.step is None else short + steady, ""
    yield money("Max drawdown"), number_text(one.max_drawdown), "from the highest", ""
    yield "Hit rate", _percent(one.hits), f"of {one.trades:,} closing fills", ""
    yield money("Turnover"), number_text(one.turnover), f"margin {number_text(one.margin, 3)} bps", ""
    maker = "" if one.maker is None else f", {_percent(one.maker)} maker"
    refused = f", {one.refused:,} refused" if one.refused else ""
    orders = f"{one.orders:,} order{'' if one.orders == 1 else 's'}{refused}{maker}"
    yield "Fills", f"{one.fills:,}", orders, ""
    most = f"of {amount_text(float(account.gross.max(initial=0.0)), one.currency)} at most"
    yield "Invested", _percent(one.invested), most if one.fills else "", ""


def _instruments(report: Report, name: str) -> Iterator[str]:
    """Fills over the price, and the position, of the instruments that were traded most."""
    account = report.accounts[name]
    by_turnover = sorted(report.statistics[name][1:], key=lambda one: -one.turnover)
    parts = []
    for place, one in enumerate(by_turnover[:_DRAWN_INSTRUMENTS]):
        instrument = str(one.venue), str(one.symbol)
        held, mids = account.holdings[instrument], report.mids.get(instrument)
        fills = account.fills.filter((pl.col("venue") == one.venue) & (pl.col("symbol") == one.symbol))
        bought, sold = fills.filter(pl.col("change") > 0), fills.filter(pl.col("change") < 0)
        known = ~np.isnan(held.mid)
        times, prices = (held.times[known], held.mid[known]) if mids is None else (mids.times, mids.mids)
        lines = [
            Series("mid", times, prices, "step", "soft"),
            Series("bought", bought["time"].to_numpy(), bought["price"].to_numpy(), "up", "up"),
            Series("sold", sold["time"].to_numpy(), sold["price"].to_numpy(), "down", "down"),
        ]
        position = Series("position", held.times, held.position, "step", "two")
        drawn = legend([*lines, position]) + chart(lines, 240) + chart([position], 110, zero=True)
        count = f"{one.fills:,} fill{'' if one.fills == 1 else 's'}"
        title = f"{one.venue} {one.symbol}: {count}, profit {amount_text(one.profit, one.currency)}"
        alone = len(by_turnover) == 1
        parts.append(f"<h3>{visible_html(title)}</h3>{drawn}" if alone else folded(title, drawn, place == 0))
    if parts:
        more = len(by_turnover) - _DRAWN_INSTRUMENTS
        note = f"The {_DRAWN_INSTRUMENTS} traded most; {more} more are in the table." if more > 0 else ""
        yield section("Fills over the price, and the position", *parts, note=note)


def _attribution(report: Report, name: str) -> Iterator[str]:
    own = report.attribution.filter(pl.col("strategy") == name)
    columns = ("profit", "spread", "adverse", "inventory", "fees", "funding")
    currencies = {(one.venue, one.symbol): one.currency for one in report.statistics[name]}
    rows = [
        (
            f"{row['venue']} {row['symbol']}", currencies[row["venue"], row["symbol"]],
            [number_text(row[c]) for c in columns],
        )
        for row in own.iter_rows(named=True)
    ]  # fmt: skip
    if len(rows) > 1:
        whole = [number_text(float(own[c].sum())) for c in columns]
        rows.insert(0, ("all", currencies[None, None], whole))
    if rows:
        yield section(
            "Where the profit came from", money_table("instrument", columns, _MONEY, rows),
            note="Profit is spread (fills against the mid just after them), what the mid did within "
            f"{duration_text(REACH)} of them (adverse below 0), what it did later (inventory), less fees, "
            "with funding.",
        )  # fmt: skip


def _foretold(report: Report) -> Iterator[str]:
    """The information coefficients over horizons, of the signals and what they are beside."""
    if report.ics.is_empty():
        return
    lines, rows = [], []
    times = report.ics["horizon"].unique().sort().to_list()
    fee = _taker_fee(report)
    named = report.ics.group_by(["view", "column"], maintain_order=True)
    ranked = sorted(named, key=lambda one: one[0][0] == BASELINES)
    for place, ((view, column), own) in enumerate(ranked):
        name = str(column).replace("_", " ") if view == BASELINES else f"{view}.{column}"
        colour = _COLOURS[place] if place < len(_COLOURS) else "soft"
        x = np.array([float(times.index(h)) for h in own["horizon"]])
        lines.append(
            Series(name, x, own["ic"].to_numpy(), "line", colour, own["ic_error"].fill_null(0).to_numpy())
        )
        for row in own.iter_rows(named=True):
            net = None if row["gross"] is None else row["gross"] - row["half_spread"] - (fee or 0)
            rows.append([
                name, duration_text(row["horizon"]), *_measured(row["ic"], row["ic_error"]),
                *_measured(row["rank_ic"], row["rank_error"]), _percent(row["hit_rate"]),
                number_text(row["gross"], 3), number_text(row["half_spread"], 3), number_text(fee, 3),
                number_text(net, 3), f"{row['samples']:,}",
            ])  # fmt: skip
    heads = [
        "signal", "later", "IC", "t", "rank IC", "t", "hit rate", "gross, bps", "half spread", "fee",
        "net, bps", "samples",
    ]  # fmt: skip
    labels = [duration_text(time) for time in times]
    yield section(
        "What signals foretold", legend(lines), chart(lines, 240, times=False, zero=True, labels=labels),
        table(heads, rows, 2),
        note="IC: the correlation of a signal with the mid's return over each time after, with its standard "
        "error if it foretold nothing, beside what the touch alone says. Gross: what following its outer "
        "tenths earned at the mid; net of half the spread and of the fee that this job's takers paid, once.",
    )  # fmt: skip


def _measured(value: float | None, error: float | None) -> tuple[str, str]:
    """A figure, and how many of its standard errors it is."""
    told = None if value is None or not error else value / error
    return number_text(value, 3), number_text(told, 3)


def _taker_fee(report: Report) -> float | None:
    """Basis points of the value that takers paid; None where none took."""
    fills = report.fills.filter(~pl.col("maker"))
    value = float((fills["change"].abs() * fills["worth"].abs()).sum())
    return 10_000 * float(fills["fee"].sum()) / value if value else None


def _signals(report: Report) -> Iterator[str]:
    for (view, column), own in report.signals.group_by(["view", "column"], maintain_order=True):
        lines = []
        by_horizon = own.group_by(["horizon"], maintain_order=True)
        for colour, ((horizon,), bucket) in zip(_COLOURS, by_horizon, strict=False):
            error = bucket["error"].fill_null(0).to_numpy()
            x, y = bucket["bucket"].to_numpy() + 1.0, bucket["forward_return"].to_numpy()
            lines.append(Series(f"{duration_text(float(str(horizon)))} later", x, y, "line", colour, error))
        first = own.filter(pl.col("horizon") == own["horizon"][0])
        rows = [
            [str(r["bucket"] + 1), *map(number_text, (r["low"], r["high"], r["signal"])), f"{r['samples']:,}"]
            for r in first.iter_rows(named=True)
        ]
        ranges = folded("what the buckets are", table(["bucket", "from", "to", "mean", "samples"], rows, 0))
        spreads = report.spreads.filter((pl.col("view") == view) & (pl.col("column") == column))
        yield section(
            f"Signal {view}.{column} against what the mid did next",
            legend(lines), chart(lines, 240, times=False, zero=True), _spreads(spreads), ranges,
            note="Samples in ten equal buckets of the signal, from its lowest values to its highest: how far "
            "the mid went on average, in basis points, with its standard error if the signal tells nothing. "
            f"A signal worth trading by slopes, and by more than its costs. {_grid_text(report)}",
        )  # fmt: skip
    if not len(report.signals) and report.sampled:
        yield section(
            f"{', '.join(report.sampled)} against what the mid did next",
            note=f"No horizon can be told. {_grid_text(report)}",
        )


def _grid_text(report: Report) -> str:
    """What horizons there are."""
    spans = [one.span for one in report.mids.values() if len(one.times) > 1]
    if not spans:
        return "The market has no samples of a valid book."
    return (
        f"Returns are exact; horizons are at most a twentieth of the {duration_text(max(spans))} there are."
    )


def _spreads(spreads: pl.DataFrame) -> str:
    """The highest bucket less the lowest, over each horizon."""
    rows = []
    for row in spreads.iter_rows(named=True):
        error = row["error"]
        told = None if not error else row["spread"] / error
        rows.append([
            duration_text(row["horizon"]), number_text(row["spread"], 3), number_text(error, 3),
            number_text(told, 3), f"{row['samples']:,}",
        ])  # fmt: skip
    heads = ["later", "highest less lowest, bps", "standard error", "t-value", "samples"]
    many = f"<p>Of {len(rows)} such t-values one in 20 is beyond 2 by luck.</p>" if len(rows) > 1 else ""
    return table(heads, rows) + many


def _fills(report: Report, name: str) -> Iterator[str]:
    own = report.markouts.filter(pl.col("strategy") == name) if len(report.markouts) else report.markouts
    if not len(own):
        return
    rows = []
    for (horizon,), at in own.group_by(["horizon"], maintain_order=True):
        by = {bool(r["maker"]): r for r in at.iter_rows(named=True)}
        rows.append([duration_text(float(str(horizon))), *_markout(by.get(True)), *_markout(by.get(False))])
    heads = ["later", *(head for side in ("maker", "taker") for head in (f"{side}, bps", "error", "fills"))]
    yield section(
        "After its fills", table(heads, rows),
        note="How far the mid was beyond the fill's price, the way of the fill, so long after. Of orders "
        "that rested it falls below 0 where those who filled them knew better. Fills within a horizon of one "
        "another share what followed: the standard error counts them so, and is left out of too few.",
    )  # fmt: skip


def _markout(row: Mapping[str, Any] | None) -> tuple[str, str, str]:
    if row is None:
        return "\N{EN DASH}", "\N{EN DASH}", "0"
    return number_text(row["markout"], 3), number_text(row["error"], 3), f"{row['fills']:,}"


def _times(report: Report, name: str) -> Iterator[str]:
    own = report.orders.filter((pl.col("strategy") == name) & (pl.col("status") != "refused"))
    if not len(own):
        return
    rows = []
    for column, what in _WAITS.items():
        times = own[column].drop_nulls()
        if len(times):
            quantiles = [times.quantile(q, "nearest") for q in (0.5, 0.9, 0.99, 1.0)]
            rows.append([what, f"{len(times):,}", *map(duration_text, quantiles)])
    counts = own["status"].value_counts(sort=True).sort("count", "status", descending=[True, False])
    status = ", ".join(f"{count:,} {what}" for what, count in counts.iter_rows())
    yield section(
        "How long orders took", table(["from sending", "orders", "median", "p90", "p99", "longest"], rows),
        note=f"By the event clock, as the strategy was told. At the end: {status}; {_ratios(own)}.",
    )  # fmt: skip


def _ratios(orders: pl.DataFrame) -> str:
    """How much of orders was filled."""
    ratio = orders["ratio"]
    whole = _percent(float((ratio >= 1).mean()))  # type: ignore[arg-type]
    return f"filled of an order {_percent(float(ratio.mean()))} on average, whole {whole} of them"  # type: ignore[arg-type]


def _job(report: Report, names: Sequence[str]) -> Iterator[str]:
    manifest = report.job.manifest
    several = "" if manifest.partitions == 1 else "s"
    rows = [["engine", f"{manifest.engine}, {manifest.partitions} partition{several}"]]
    rows += [["source", source] for source in manifest.sources]
    for name in names:
        parameters = manifest.strategies[name]
        rows.append([name, _said(parameters) or "as it comes"])
    program = manifest.strategy_program
    texts = () if program is None else program.texts
    used = {} if program is None else program.parameters
    used = {name: value for name, value in used.items() if any(f":{name}" in sql for _, sql in texts)}
    if used:
        rows.append(["of the views", _said(used)])
    shown = [(Path(file).name, sql) for file, sql in texts if not file.endswith("schema.sql")]
    views = (folded(name or "SQL", f"<pre>{_program(sql)}</pre>") for name, sql in shown)
    yield section("The job", table(["", ""], rows, 2), *views)


def _said(values: Mapping[str, str]) -> str:
    return ", ".join(f"{key} = {value}" for key, value in values.items())


def _hits(one: Statistics) -> str:
    """The hit rate, and of how many."""
    return _percent(one.hits) if one.hits is None else f"{_percent(one.hits)} of {one.trades:,}"


def _percent(share: float | None) -> str:
    if share is None:
        return "\N{EN DASH}"
    return f"{100 * share:.1f} %" if 0 < share < 0.1 else f"{100 * share:.0f} %"


def _sign(value: float) -> str:
    return "up" if value > 0 else "down" if value < 0 else ""


def _program(sql: str) -> str:
    """Text of several lines."""
    return "\n".join(visible_html(line.expandtabs(4)) for line in sql.splitlines())


REPORT = "report.html"


def write_report(folder: str | Place) -> tuple[Place, Report]:
    """Write a job's report; the page's path, and what it shows. Raises UserError as `open_job` does, and
    where no strategy was run."""
    job = open_job(folder)
    report = report_of(job)
    made = {name: _written(job.folder, name, frame) for name, frame in tables(report).items()}
    manifest = msgspec.structs.replace(job.manifest, tables={**job.manifest.tables, **made})
    manifest = write_manifest(job.folder, manifest)
    remove_unlisted(job.folder, manifest)
    path = job.folder / REPORT
    text = page(f"{', '.join(report.strategies[:3])} – backtest", body(report)).encode()
    put(path, text)
    return path, report


def tables(report: Report) -> dict[str, pl.DataFrame]:
    """The tables behind a report, by name."""
    accounts = report.accounts.values()
    positions = (_positions(a.strategy, one, a) for a in accounts for one in sorted(a.holdings))
    swept = {}
    if report.job.manifest.swept:
        swept = {"combinations": combinations_of(report), "walk_forward": walk_forward(report)}
    return {
        **swept,
        "statistics": statistics_frame([one for own in report.statistics.values() for one in own]),
        "equity": pl.concat([_equity(account) for account in accounts]),
        "positions": pl.concat([_no_positions(), *positions]),
        "rolling_sharpe": pl.concat([_sharpe(account) for account in accounts]),
        "daily_profits": pl.concat([profits_by(account, "1d") for account in accounts]),
        "monthly_profits": pl.concat([profits_by(account, "1mo") for account in accounts]),
        "trade_list": pl.concat([trades_of(account) for account in accounts]),
        "signal_returns": report.signals,
        "signal_spreads": report.spreads,
        "signal_ics": report.ics,
        "markouts": report.markouts,
        "attribution": report.attribution,
        "order_times": report.orders.with_columns(pl.col("sent").cast(TIME)),
    }


def _equity(account: Account) -> pl.DataFrame:
    fills = account.fills.sort("time")
    values = (fills["change"].abs() * fills["worth"].abs()).to_numpy()
    done = np.searchsorted(fills["time"].to_numpy(), account.times, side="right")
    return pl.DataFrame({
        "strategy": pl.Series([account.strategy] * len(account.times), dtype=pl.String),
        "time": pl.Series(account.times, dtype=pl.Int64).cast(TIME),
        "equity": account.equity,
        "drawdown": account.drawdown,
        "turnover": np.concatenate([[0.0], np.cumsum(values)])[done],
        "net_exposure": account.net, "gross_exposure": account.gross, "benchmark": account.benchmark,
    })  # fmt: skip


def _sharpe(account: Account) -> pl.DataFrame:
    found = rolling_sharpe(account.times, account.equity)
    times, values = np.empty(0, np.int64), np.empty(0)
    if found is not None:
        times, values = found.times, found.values
    return pl.DataFrame({
        "strategy": pl.Series([account.strategy] * len(times), dtype=pl.String),
        "time": pl.Series(times, dtype=pl.Int64).cast(TIME),
        "sharpe": pl.Series(values, dtype=pl.Float64),
        "yearly": pl.Series([found is not None and found.yearly] * len(times), dtype=pl.Boolean),
    })  # fmt: skip


def _positions(strategy: str, instrument: Instrument, account: Account) -> pl.DataFrame:
    one, count = account.holdings[instrument], len(account.holdings[instrument].times)
    return _no_positions().vstack(pl.DataFrame({
        "strategy": [strategy] * count, "venue": [instrument[0]] * count, "symbol": [instrument[1]] * count,
        "time": pl.Series(one.times, dtype=pl.Int64).cast(TIME),
        "position": one.position, "mid": one.mid, "worth": one.worth,
    }))  # fmt: skip


def _no_positions() -> pl.DataFrame:
    texts = dict.fromkeys(("strategy", "venue", "symbol"), pl.String)
    numbers = dict.fromkeys(("position", "mid", "worth"), pl.Float64)
    return pl.DataFrame(schema={**texts, "time": TIME, **numbers})


def _written(folder: Place, name: str, frame: pl.DataFrame) -> Dataset:
    table = frame.to_arrow(compat_level=pl.CompatLevel.oldest())
    texts = {field.name for field in table.schema if str(field.type) == "large_string"}
    schema = table.schema
    for place, field in enumerate(table.schema):
        if field.name in texts:
            schema = schema.set(place, field.with_type(pa.string()))
    dataset = table_dataset(name, schema)
    writer = DatasetWriter(folder, dataset)
    writer.write(table.cast(schema))
    return msgspec.structs.replace(dataset, files=tuple(writer.close()))
