"""Sections of a report's page on what a strategy's account was over time."""

from collections.abc import Iterator

import polars as pl

from orderbook.report.accounts import Account
from orderbook.report.charts import (
    Series,
    amount_text,
    chart,
    duration_text,
    legend,
    moment_text,
    number_text,
)
from orderbook.report.parts import folded, money_head, section, table
from orderbook.report.ratios import SHARPE_DAYS, rolling_sharpe
from orderbook.report.statement import csv_link, months_grid, profits_by, trades_of


def account_sections(account: Account) -> Iterator[str]:
    """Equity beside its benchmark, with the drawdown; exposure and Sharpe ratio over time; the statement."""
    equity = [
        Series("equity", account.times, account.equity, "step", "one"),
        Series("buy and hold", account.times, account.benchmark, "step", "soft"),
    ]
    drawdown = Series("drawdown", account.times, account.drawdown, "area", "down")
    shown = equity if account.holdings else equity[:1]
    yield section(
        money_head("Equity and drawdown", account.currency),
        legend(shown), chart(shown, 260, zero=True), chart([drawdown], 120),
        note=f"Cash less fees, with funding, and positions at the mid{_counted(account)}; below it, what has "
        f"been lost since the highest.{_benchmark_text(account)}",
    )  # fmt: skip
    if not account.holdings:
        return
    exposure = [Series("net", account.times, account.net, "step", "two")]
    note = "The value of positions at the mid, below 0 of those that are short"
    if len(account.holdings) > 1:
        note += "; gross: without signs"
        exposure.append(Series("gross", account.times, account.gross, "step", "soft"))
    yield section(
        money_head("Exposure", account.currency), legend(exposure), chart(exposure, 180, zero=True),
        note=f"{note}.",
    )  # fmt: skip
    yield from _sharpe(account)
    yield from _profits(account)
    yield from _trades(account)


_MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
# Days that are shown without being asked for; fills that are listed, and that the CSV has.
_DAYS, _LISTED, _SAVED = 14, 100, 20_000


def _profits(account: Account) -> Iterator[str]:
    daily, monthly = profits_by(account, "1d"), profits_by(account, "1mo")
    parts = []
    if len(monthly) > 1:
        rows = [
            [str(year), *("" if one is None else number_text(one, 3) for one in own), number_text(whole)]
            for year, own, whole in months_grid(monthly)
        ]
        parts.append(table(["", *_MONTHS, "year"], rows))
    heads = ("profit", "fees", "funding", "turnover", "fills", "equity at the end")
    rows = [
        [
            f"{row['time']:%Y-%m-%d}",
            *(number_text(row[name]) for name in ("profit", "fees", "funding", "turnover")),
            f"{row['fills']:,}", number_text(row["equity"]),
        ]
        for row in daily.iter_rows(named=True)
    ]  # fmt: skip
    days = table(["day", *heads], rows)
    parts.append(days if len(rows) <= _DAYS and not parts else folded(f"{len(rows):,} days", days))
    link = csv_link(f"{account.strategy}-days", daily)
    yield section(
        money_head("Profit by day" if len(monthly) < 2 else "Profit by month and day", account.currency),
        *parts, f'<p class="note">As CSV: {link}</p>',
        note="Days are UTC; profit is after fees and with funding, at the mid.",
    )  # fmt: skip


def _trades(account: Account) -> Iterator[str]:
    found = trades_of(account)
    if found.is_empty():
        return
    heads = (
        "time", "instrument", "side", "volume", "price", "value", "fee", "liquidity", "position", "profit",
    )  # fmt: skip
    rows = [
        [
            f"{moment_text(time // 10**9 * 10**9)}.{time // 10**6 % 1_000:03d}",
            f"{row['venue']} {row['symbol']}", row["side"],
            *(number_text(row[name], 8) for name in ("volume", "price")),
            amount_text(row["value"], row["currency"]), number_text(row["fee"]), row["liquidity"],
            number_text(row["position"], 8), "" if row["profit"] is None else number_text(row["profit"]),
        ]
        for row in found.head(_LISTED).with_columns(pl.col("time").dt.epoch("ns")).iter_rows(named=True)
        for time in (row["time"],)
    ]  # fmt: skip
    shown = f"{len(found):,} fills" if len(found) > 1 else "1 fill"
    shown += f", the first {_LISTED} of them" if len(found) > _LISTED else ""
    saved = "" if len(found) <= _SAVED else f"the first {_SAVED:,}; the job's table trade_list has all"
    link = csv_link(f"{account.strategy}-fills", found.head(_SAVED))
    yield section(
        "Trades", f'<p class="note">As CSV: {link} {saved}</p>', folded(shown, table(heads, rows, 3)),
        note="Every fill, the position after it, and what it earned by what it closed, the oldest first, "
        "after its fee.",
    )  # fmt: skip


def _sharpe(account: Account) -> Iterator[str]:
    found = rolling_sharpe(account.times, account.equity)
    if found is None or not len(found.times):
        return
    scale = "scaled to a year of 365 days" if found.yearly else f"not annualised under {SHARPE_DAYS} days"
    line = Series("Sharpe", found.times, found.values, "line", "three")
    yield section(
        "Rolling Sharpe", chart([line], 180, zero=True),
        note=f"Of the last {found.changes} changes of equity, each over {duration_text(found.step)}, the "
        f"mean over the deviation, {scale}. Where nothing is earned its standard error is "
        f"{number_text(found.error, 2)}.",
    )  # fmt: skip


def _benchmark_text(account: Account) -> str:
    """What the benchmark holds."""
    if not account.holdings:
        return ""
    largest = [(float(abs(one.position).max()), symbol) for (_, symbol), one in account.holdings.items()]
    told = ", ".join(f"{number_text(most)} {symbol}" for most, symbol in largest[:3])
    more = f" and {len(largest) - 3} more" if len(largest) > 3 else ""
    return (
        f" Buy and hold is of the largest position that it had of each instrument ({told}{more}), bought at "
        "the first mid, without fees."
    )


def _counted(account: Account) -> str:
    """What an account that is in no single currency is counted in."""
    known = any(one.currency for one in account.contracts.values())
    return "" if account.currency or not known else ", of several currencies, added as they are"
