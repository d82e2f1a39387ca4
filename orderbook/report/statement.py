"""An account's statement: profit by day and month, and every fill with what it earned; also as CSV."""

import base64
import csv
import io
import re
from collections.abc import Iterable
from typing import Literal

import numpy as np
import polars as pl

from orderbook.report.accounts import Account, closed_profits

TIME = pl.Datetime("ns", "UTC")
_TRADES: dict[str, pl.DataType | type[pl.DataType]] = {
    "time": TIME, **dict.fromkeys(("strategy", "venue", "symbol"), pl.String), "order_id": pl.Int64,
    "side": pl.String, **dict.fromkeys(("volume", "price", "value"), pl.Float64), "currency": pl.String,
    "fee": pl.Float64, "liquidity": pl.String, "position": pl.Float64, "profit": pl.Float64,
}  # fmt: skip
# Volumes have so many decimals.
_DECIMALS = 8


def trades_of(account: Account) -> pl.DataFrame:
    """Every fill, in order: its `value` and `fee` in `currency`, the `position` after it, and the `profit` of
    what it closed, the oldest first, less its fee; null where it closed nothing."""
    parts, fills = [], account.fills.with_row_index()
    for (venue, symbol), contract in account.contracts.items():
        own = fills.filter((pl.col("venue") == venue) & (pl.col("symbol") == symbol))
        parts.append(
            own.with_columns(
                currency=pl.lit(contract.currency),
                position=pl.col("change").cum_sum().round(_DECIMALS) + 0.0,
                profit=pl.Series(closed_profits(own), dtype=pl.Float64),
            )
        )
    if not parts:
        return pl.DataFrame(schema=_TRADES)
    return (
        pl.concat(parts)
        .sort("time", "index")
        .select(
            pl.col("time").cast(TIME), "strategy", "venue", "symbol", "order_id",
            pl.when(pl.col("change") > 0).then(pl.lit("buy")).otherwise(pl.lit("sell")).alias("side"),
            pl.col("change").abs().alias("volume"), "price",
            (pl.col("change").abs() * pl.col("worth").abs()).alias("value"), "currency", "fee",
            pl.when("maker").then(pl.lit("maker")).otherwise(pl.lit("taker")).alias("liquidity"),
            "position", "profit",
        )
    )  # fmt: skip


def profits_by(account: Account, period: Literal["1d", "1mo"]) -> pl.DataFrame:
    """A row for each UTC day or month with a sample or a fill: strategy, when it begins (`time`), what equity
    gained in it (`profit`, after `fees`, with `funding`), `turnover`, `fills`, and the `equity` at its end.
    Fees, funding and turnover are as they were paid, each in its instrument's currency."""
    at = pl.col("time").cast(TIME).dt.truncate(period)
    ends = (
        pl.DataFrame({"time": account.times, "equity": account.equity})
        .group_by(at, maintain_order=True)
        .agg(pl.col("equity").last())
    )
    of_fills = account.fills.group_by(at).agg(
        pl.col("fee").sum().alias("fees"),
        (pl.col("change").abs() * pl.col("worth").abs()).sum().alias("turnover"),
        pl.len().cast(pl.Int64).alias("fills"),
    )
    of_funding = account.funding.group_by(at).agg(pl.col("amount").sum().alias("funding"))
    return (
        ends.join(of_fills, "time", "left", maintain_order="left")
        .join(of_funding, "time", "left", maintain_order="left")
        .with_columns(pl.col("fees", "funding", "turnover").fill_null(0.0), pl.col("fills").fill_null(0))
        .with_columns(profit=pl.col("equity") - pl.col("equity").shift(1, fill_value=0.0))
        .select(
            pl.lit(account.strategy).alias("strategy"),
            *("time", "profit", "fees", "funding", "turnover", "fills", "equity"),
        )
    )


def csv_text(frame: pl.DataFrame) -> str:
    """A frame as CSV with a header (RFC 4180): times in ISO 8601, numbers as short as they are exact, nothing
    for null. A text that a spreadsheet would compute has an apostrophe before it."""
    times = [name for name, kind in frame.schema.items() if kind == TIME]
    shown = frame.with_columns(pl.col(times).dt.strftime("%Y-%m-%dT%H:%M:%S%.9fZ"))
    texts = io.StringIO()
    writer = csv.writer(texts)
    writer.writerow(frame.columns)
    writer.writerows([_field(value) for value in row] for row in shown.iter_rows())
    return texts.getvalue()


def csv_link(name: str, frame: pl.DataFrame) -> str:
    """A link that saves a frame as the file `name`.csv, from the page alone."""
    data = base64.b64encode(csv_text(frame).encode()).decode()
    file = re.sub(r"[^\w.-]+", "-", name)
    return f'<a download="{file}.csv" href="data:text/csv;charset=utf-8;base64,{data}">{file}.csv</a>'


def _field(value: object) -> object:
    if isinstance(value, float):
        return np.format_float_positional(value, trim="-")
    if isinstance(value, str) and re.match(r"[=+@\t\r]|-(?![\d.])", value):
        return f"'{value}"
    return value


def months_grid(monthly: pl.DataFrame) -> Iterable[tuple[int, list[float | None], float]]:
    """Of `profits_by` of months, for each year its twelve profits (None: there is none) and their sum."""
    by = {(time.year, time.month): profit for time, profit in monthly.select("time", "profit").iter_rows()}
    for year in dict.fromkeys(year for year, _ in by):
        own = [by.get((year, month)) for month in range(1, 13)]
        yield year, own, sum(one for one in own if one is not None)
