"""Programs, strategies and data by which Spark's backtests are held against one node's."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any, ClassVar

import duckdb
from paths import VIEWS

import orderbook
from benchmarks.spark_data import DAY
from orderbook.backtesting.tasks import JobProgram, JobSettings
from orderbook.engine.distribution.stage_runner import Granularity
from orderbook.feeds.merge import Merger
from orderbook.feeds.source_kinds import open_source
from orderbook.jobs.datasets import nanosecond_columns
from orderbook.jobs.job import Job
from orderbook.market.synthetic_flow import START, synthetic_instruments
from orderbook.run.pipeline import Pipeline
from orderbook.strategies.gated_engine import GatedEngine
from orderbook.strategies.strategy import Strategy, load_strategy, on_view

# By broker across symbols, of everything, and nested across symbols, which is computed anew at each event.
CROSS = """
CREATE VIEW brokers AS SELECT broker_id, SUM(volume) AS volume, SUM(price * volume) AS turnover
FROM asks GROUP BY broker_id;
CREATE VIEW everything AS SELECT SUM(volume) AS volume, COUNT(*) AS orders, MAX(price) AS best FROM bids;
CREATE VIEW heavy AS SELECT b.broker_id, SUM(b.volume) AS volume FROM bids b
WHERE 10 * (SELECT SUM(x.volume) FROM bids x WHERE x.broker_id = b.broker_id)
    > (SELECT SUM(y.volume) FROM bids y) GROUP BY b.broker_id;
CREATE VIEW states AS SELECT state, COUNT(*) AS n FROM book_states GROUP BY state;
"""
# The best price by symbol, its sum by sector, and the largest of those: a shuffle between each two.
CHAIN = """
CREATE STREAM sectors (symbol TEXT NOT NULL, sector TEXT NOT NULL);
CREATE VIEW tops AS SELECT symbol, MAX(price) AS best FROM bids GROUP BY symbol;
CREATE VIEW sums AS SELECT s.sector, SUM(t.best) AS total, COUNT(*) AS n
FROM tops t JOIN sectors s ON s.symbol = t.symbol GROUP BY s.sector;
CREATE VIEW leader AS SELECT MAX(u.total) AS most, SUM(u.total) AS total FROM sums u;
"""
LEVELS = """
CREATE VIEW levels AS SELECT symbol, SUM(volume) AS volume, MAX(price) AS best FROM bids GROUP BY symbol;
"""


class Contrarian(Strategy):
    """Buys a symbol of which little is bid, and rests orders for it; sells where much is."""

    partition_by = "symbol"
    defaults: ClassVar = {"little": Decimal(1), "much": Decimal(2)}

    @on_view("levels", when="volume < :little")
    def few(self, event: orderbook.ViewEvent) -> None:
        """Buys at the market, and rests one at the touch."""
        symbol = str(event.key[0])
        assert event.new is not None
        if self.position(symbol) < 20:
            self.buy(symbol, 1)
            self.buy(symbol, 2, event.new["best"])

    @on_view("levels", when="volume > :much")
    def many(self, event: orderbook.ViewEvent) -> None:
        """Sells all there is."""
        symbol = str(event.key[0])
        if self.position(symbol) > 0:
            self.sell(symbol, self.position(symbol))


@dataclass(frozen=True)
class Case:
    """Views and strategies of one job: texts, what is shown, and by which columns it is cut."""

    name: str
    texts: tuple[str, ...]
    views: tuple[str, ...]
    key: str | None = None
    strategies: tuple[tuple[str, Any], ...] = ()


def _shipped(*names: str) -> tuple[str, ...]:
    return tuple((VIEWS / f"{name}.sql").read_text() for name in names)


SYMBOLS = Case("symbols", _shipped("sobi", "depth"), ("sobi", "bid_vwap", "depth"))
WIDE = Case("wide", (CROSS, *_shipped("depth")), ("brokers", "everything", "heavy", "states", "depth"))
CHAINED = Case("chained", (CHAIN,), ("tops", "sums", "leader"), "symbol,sector")


TRADING = (
    Case("sobi", _shipped("sobi"), (), None, (("strategies.sobi:Sobi", {"threshold": Decimal("2.4")}),)),
    Case(
        "own",
        (LEVELS,),
        (),
        None,
        (("backtest_acceptance:Contrarian", {"little": Decimal(60_000), "much": Decimal(220_000)}),),
    ),
)


def settings_for(case: Case, folder: Path, partitions: int, granularity: str) -> JobSettings:
    """Settings of a case's job, with the numba engine."""
    unit, _, length = granularity.partition(":")
    program = JobProgram.of(compiled(case))
    return JobSettings(
        program,
        str(folder),
        case.views,
        Granularity(unit, int(length or 0)),  # type: ignore[arg-type]
        case.strategies,
        program if case.strategies else None,
        partitions,
        "numba",
        10**9,
        case.key if partitions > 1 else None,
    )


def compiled(case: Case) -> orderbook.CompiledProgram:
    """The program of a case."""
    text = "\n".join(case.texts)
    return orderbook.compile(text, {"k": Decimal("0.25")} if ":k" in text else {})


def write_sectors(path: Path, symbols: int) -> None:
    """A change stream that puts symbols into three sectors, and moves each to the next while events go on."""
    names = [one.symbol for one in synthetic_instruments(symbols)]
    lines = [_sector("+", name, i) for i, name in enumerate(names)]
    for i, name in enumerate(names):
        time = START + i * DAY // 4 + 10**9
        lines += [_sector("-", name, i, time, last=False), _sector("+", name, i + 1, time)]
    path.write_text("\n".join(lines) + "\n")


def _sector(op: str, symbol: str, number: int, time: int | None = None, *, last: bool = True) -> str:
    row = {"symbol": symbol, "sector": "abc"[number % 3]}
    return json.dumps({"stream": "sectors", "op": op, "row": row, "last": last, "time": time})


def replayed(
    case: Case, sources: Sequence[str], parameters: Any = None
) -> tuple[dict[str, Any], list[tuple[Any, ...]]]:
    """What the engine has at the end of a replay: the rows of views, and every change of an order."""
    merger = Merger([open_source(source) for source in sources])
    definitions = [load_strategy(name, values) for name, values in case.strategies]
    pipeline = Pipeline(GatedEngine(compiled(case), "numba"), merger.instruments, definitions)
    pipeline.measures = False
    changes: list[tuple[Any, ...]] = []
    pipeline.host.observe_orders(lambda runner, update: changes.append((runner.key, update.new)))
    pipeline.start()
    for item in merger:
        pipeline.apply(item, "message" if definitions else "batch")
    pipeline.finish()
    return {name: pipeline.engine.frame(name) for name in case.views}, changes


def differences(job: Job, other: Job) -> Iterator[tuple[str, int, int]]:
    """Of each dataset its name, the rows of it, and how many rows are in one job and not in the other."""
    for name, dataset in _datasets(job).items():
        rows, others = _rows(job, dataset), _rows(other, _datasets(other)[name])
        here, there = f"({rows}) EXCEPT ALL ({others})", f"({others}) EXCEPT ALL ({rows})"
        (found,) = duckdb.execute(f"SELECT count(*) FROM (({here}) UNION ALL ({there}))").fetchall()
        yield name, dataset.rows, int(found[0])


def _datasets(job: Job) -> dict[str, Any]:
    return {**job.manifest.views, "orders": job.manifest.orders, "fills": job.manifest.fills}


def _rows(job: Job, dataset: Any) -> str:
    exact = nanosecond_columns(dataset)
    names = ", ".join(f'"{exact.get(field.name, field.name)}"' for field in dataset.fields)
    if not dataset.files:
        return f"SELECT {', '.join('NULL' for _ in dataset.fields)} WHERE false"
    paths = ", ".join(f"'{job.folder / file.path}'" for file in dataset.files)
    return f"SELECT {names} FROM read_parquet([{paths}])"
