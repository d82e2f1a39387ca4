"""Sections of a report's page on what a strategy's account was over time."""

from collections.abc import Iterator

from orderbook.report.accounts import Account
from orderbook.report.charts import Series, chart, duration_text, legend, number_text
from orderbook.report.parts import money_head, section
from orderbook.report.ratios import SHARPE_DAYS, rolling_sharpe


def account_sections(account: Account) -> Iterator[str]:
    """Equity beside its benchmark with the drawdown, exposure, and the Sharpe ratio, all over time."""
    equity = [
        Series("equity", account.times, account.equity, "step", "one"),
        Series("buy and hold", account.times, account.benchmark, "step", "soft"),
    ]
    drawdown = Series("drawdown", account.times, account.drawdown, "area", "down")
    shown = equity if account.holdings else equity[:1]
    yield section(
        money_head("Equity and drawdown", account.currency),
        legend(shown), chart(shown, 260, zero=True), chart([drawdown], 120),
        note=f"Cash less fees, and positions at the mid{_counted(account)}; below it, what has been lost "
        f"since the highest.{_benchmark_text(account)}",
    )  # fmt: skip
    if not account.holdings:
        return
    exposure = [Series("net", account.times, account.net, "step", "two")]
    note = "The value of positions at the mid, below 0 of those that are short"
    if len(account.holdings) > 1:
        note += "; gross: without signs"
        exposure.append(Series("gross", account.times, account.gross, "step", "soft"))
    yield section(
        money_head("Exposure", account.currency), legend(exposure), chart(exposure, 160, zero=True),
        note=f"{note}.",
    )  # fmt: skip
    yield from _sharpe(account)


def _sharpe(account: Account) -> Iterator[str]:
    found = rolling_sharpe(account.times, account.equity)
    if found is None or not len(found.times):
        return
    scale = "scaled to a year of 365 days" if found.yearly else f"not annualised under {SHARPE_DAYS} days"
    line = Series("Sharpe", found.times, found.values, "line", "three")
    yield section(
        "Rolling Sharpe", chart([line], 160, zero=True),
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
