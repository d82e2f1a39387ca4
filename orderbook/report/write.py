"""Makes a job's report: tables beside its other data, listed in its manifest, and `report.html`."""

from pathlib import Path

import msgspec
import numpy as np
import polars as pl
import pyarrow as pa

from orderbook.jobs.folder import DatasetWriter, remove_unlisted, write_manifest
from orderbook.jobs.job import open_job
from orderbook.jobs.layout import table_dataset
from orderbook.jobs.manifest import Dataset
from orderbook.report.accounts import Account
from orderbook.report.combinations import combinations_of
from orderbook.report.contents import Report, report_of
from orderbook.report.market import Instrument
from orderbook.report.page import page
from orderbook.report.sections import body
from orderbook.report.statistics import statistics_frame
from orderbook.whole_files import replace_file

REPORT = "report.html"
_TIME = pl.Datetime("ns", "UTC")


def write_report(folder: str | Path) -> Path:
    """Write a job's report; the page's path. Raises UserError as `open_job` does, and where no strategy was
    run."""
    job = open_job(folder)
    report = report_of(job)
    made = {name: _written(job.folder, name, frame) for name, frame in tables(report).items()}
    manifest = msgspec.structs.replace(job.manifest, tables={**job.manifest.tables, **made})
    write_manifest(job.folder, manifest)
    remove_unlisted(job.folder, manifest)
    path = job.folder / REPORT
    replace_file(path, page(f"{', '.join(report.strategies[:3])} – backtest", body(report)).encode())
    return path


def tables(report: Report) -> dict[str, pl.DataFrame]:
    """The tables behind a report, by name."""
    accounts = report.accounts.values()
    positions = (_positions(a.strategy, one, a) for a in accounts for one in sorted(a.holdings))
    swept = {"combinations": combinations_of(report)} if report.job.manifest.swept else {}
    return {
        **swept,
        "statistics": statistics_frame([one for own in report.statistics.values() for one in own]),
        "equity": pl.concat([_equity(account) for account in accounts]),
        "positions": pl.concat([_no_positions(), *positions]),
        "signal_returns": report.signals,
        "signal_spreads": report.spreads,
        "markouts": report.markouts,
        "order_times": report.orders.with_columns(pl.col("sent").cast(_TIME)),
    }


def _equity(account: Account) -> pl.DataFrame:
    fills = account.fills.sort("time")
    values = (fills["change"].abs() * fills["price"].abs()).to_numpy()
    done = np.searchsorted(fills["time"].to_numpy(), account.times, side="right")
    return pl.DataFrame({
        "strategy": pl.Series([account.strategy] * len(account.times), dtype=pl.String),
        "time": pl.Series(account.times, dtype=pl.Int64).cast(_TIME),
        "equity": account.equity,
        "drawdown": account.drawdown,
        "turnover": np.concatenate([[0.0], np.cumsum(values)])[done],
    })  # fmt: skip


def _positions(strategy: str, instrument: Instrument, account: Account) -> pl.DataFrame:
    one, count = account.holdings[instrument], len(account.holdings[instrument].times)
    return _no_positions().vstack(pl.DataFrame({
        "strategy": [strategy] * count, "venue": [instrument[0]] * count, "symbol": [instrument[1]] * count,
        "time": pl.Series(one.times, dtype=pl.Int64).cast(_TIME),
        "position": one.position, "mid": one.mid, "worth": one.worth,
    }))  # fmt: skip


def _no_positions() -> pl.DataFrame:
    texts = dict.fromkeys(("strategy", "venue", "symbol"), pl.String)
    numbers = dict.fromkeys(("position", "mid", "worth"), pl.Float64)
    return pl.DataFrame(schema={**texts, "time": _TIME, **numbers})


def _written(folder: Path, name: str, frame: pl.DataFrame) -> Dataset:
    table = frame.to_arrow(compat_level=pl.CompatLevel.oldest())
    texts = {field.name for field in table.schema if str(field.type) == "large_string"}
    schema = table.schema
    for place, field in enumerate(table.schema):
        if field.name in texts:
            schema = schema.set(place, field.with_type(pa.string()))
    dataset = table_dataset(schema)
    writer = DatasetWriter(folder, name, dataset)
    writer.write(table.cast(schema))
    return msgspec.structs.replace(dataset, files=tuple(writer.close()))
