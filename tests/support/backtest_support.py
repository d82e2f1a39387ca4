"""Small backtests: generated records in files by symbol or by time, views of several shapes, local tasks."""

from collections.abc import Callable, Iterator, Sequence
from decimal import Decimal
from itertools import pairwise
from pathlib import Path
from typing import Any, ClassVar
from unittest.mock import patch

import numpy as np
from numpy.typing import NDArray

import orderbook
from orderbook.backtesting import run as execute
from orderbook.backtesting import tasks
from orderbook.backtesting.plan import Plan
from orderbook.backtesting.run import LocalExecutor, Outcome, Report, backtest
from orderbook.backtesting.sources import source_specs
from orderbook.backtesting.tasks import JobProgram, JobSettings, TaskResult
from orderbook.engine.distribution.blocks import Sent
from orderbook.engine.distribution.stage_runner import Granularity
from orderbook.feeds.recording.parquet_record import RecordWriter
from orderbook.jobs.job import Job, open_job
from orderbook.market.events import EVENT, Flag
from orderbook.market.instruments import Instruments
from orderbook.market.synthetic_flow import generate, synthetic_instruments
from orderbook.strategies.strategy import Strategy, on_view

# By symbol, by broker across symbols, of everything, and nested across symbols.
VIEWS = """
CREATE VIEW depth AS SELECT symbol, SUM(volume) AS volume, COUNT(*) AS orders, MAX(price) AS best
FROM bids GROUP BY symbol;
CREATE VIEW brokers AS SELECT broker_id, SUM(volume) AS volume, SUM(price * volume) AS turnover
FROM asks GROUP BY broker_id;
CREATE VIEW everything AS SELECT SUM(volume) AS volume, COUNT(*) AS orders FROM bids;
CREATE VIEW large AS SELECT b.symbol, COUNT(*) AS n FROM bids b
WHERE 4 * b.volume > (SELECT MAX(x.volume) FROM bids x WHERE x.broker_id = b.broker_id) GROUP BY b.symbol;
CREATE VIEW states AS SELECT state, COUNT(*) AS n FROM book_states GROUP BY state;
"""
SHOWN = ("depth", "brokers", "everything", "large", "states")
SEEN = """
CREATE VIEW seen AS SELECT symbol, SUM(volume) AS volume, MAX(price) AS best FROM bids GROUP BY symbol;
"""
# Of relations whose rows books number.
HISTORIES = """
CREATE VIEW touches AS SELECT symbol, COUNT(*) AS n, MAX(id) AS last, SUM(mid) AS mids FROM quotes
GROUP BY symbol;
CREATE VIEW happened AS
SELECT symbol, action, COUNT(*) AS n, MAX(number) AS last, SUM(level_volume_ahead) AS ahead,
       MIN(placed_at) AS placed
FROM book_events GROUP BY symbol, action;
"""


class Follower(Strategy):
    """Buys where much volume rests and sells what it has where little does; every symbol for itself."""

    partition_by = "symbol"
    defaults: ClassVar = {"limit": Decimal(5_500)}

    @on_view("seen", when="volume > :limit")
    def much(self, event: orderbook.ViewEvent) -> None:
        """Buys at the touch, and one order that rests."""
        assert event.new is not None
        symbol = str(event.key[0])
        self.buy(symbol, 1)
        self.buy(symbol, 2, event.new["best"])
        self.sell("AAA-USD", 1)

    @on_view("seen", when="volume < :limit")
    def little(self, event: orderbook.ViewEvent) -> None:
        """Sells all."""
        symbol = str(event.key[0])
        held: Any = self.view("seen")[symbol]  # type: ignore[index]
        assert list(self.view("seen")) == [(symbol,)] and held["volume"] < self.parameters["limit"]
        if self.position(symbol) > 0:
            self.sell(symbol, self.position(symbol))

    def on_stop(self) -> None:
        """Leaves nothing behind."""
        self.sell(str(self.partition), 1)


class Renamed(Follower):
    """The same under another name."""


class Watcher(Follower):
    """The same without partitions: ids are counted over all symbols."""

    partition_by = None  # type: ignore[assignment]

    @on_view("seen", when="volume < :limit")
    def little(self, event: orderbook.ViewEvent) -> None:
        """Sells all."""

    def on_stop(self) -> None:
        """Does nothing."""


def write_records(
    folder: Path, events: int, symbols: int, days: int, seed: int, *, apart: bool, slower: int = 1
) -> None:
    """Generated events as record files: `apart` one for each symbol and day, else one for each day."""
    folder.mkdir(exist_ok=True)
    flow = np.concatenate(list(generate(events, symbols, 50, seed, resting=60, brokers=4)))
    for name in ("exchange_time", "receive_time"):
        times: NDArray[np.int64] = flow[name]
        flow[name] = np.where(times, times[0] + slower * (times - times[0]), 0)
    instruments = synthetic_instruments(symbols)
    ends = np.flatnonzero(flow["flags"] & int(Flag.LAST)) + 1
    cuts = [0, *(int(ends[len(ends) * day // days]) for day in range(1, days)), len(flow)]
    for day, (start, end) in enumerate(pairwise(cuts)):
        if not apart:
            _write(folder / f"day{day}.parquet", flow[start:end], instruments)
            continue
        for index in range(symbols):
            own = flow[start:end][flow["instrument"][start:end] == index].copy()
            own["instrument"] = 0
            one = instruments[index]
            _write(folder / f"{one.symbol}-{day}.parquet", own, Instruments([one]))


def _write(path: Path, events: np.ndarray, instruments: Instruments) -> None:
    assert events.dtype == EVENT
    with RecordWriter(path, instruments) as writer:
        writer.write(events)


def job_settings(
    folder: Path,
    partitions: int,
    granularity: str = "message",
    strategies: Sequence[type[Strategy]] = (),
    views: Sequence[str] = SHOWN,
    sql: str = VIEWS,
    backend: str = "interpreter",
) -> JobSettings:
    """Settings of a job over `sql`."""
    unit, _, length = granularity.partition(":")
    watched = JobProgram.of(orderbook.compile(SEEN)) if strategies else None
    return JobSettings(
        JobProgram.of(orderbook.compile(sql)),
        str(folder),
        tuple(views),
        Granularity(unit, int(length or 0)),  # type: ignore[arg-type]
        tuple((f"backtest_support:{kind.__name__}", {}) for kind in strategies),
        watched,
        partitions,
        backend,
        10**9,
    )


class ForgetfulExecutor(LocalExecutor):
    """Does every task as a process of its own would: with a dictionary that knows nothing."""

    def run(self, settings: JobSettings, plan: Plan, report: Report) -> Iterator[TaskResult]:
        """See Executor."""
        names = ("read_task", "stage_task")
        replaced: dict[str, Any] = {name: _forgetful(getattr(execute, name)) for name in names}
        with patch.multiple(execute, **replaced):
            yield from super().run(settings, plan, report)


def _forgetful(task: Callable[..., Iterator[Sent]]) -> Callable[..., Iterator[Sent]]:
    def made(*arguments: Any) -> Iterator[Sent]:
        tasks.forget()
        yield from task(*arguments)

    return made


def run(
    settings: JobSettings, sources: Sequence[str | Path], executor: LocalExecutor | None = None
) -> tuple[Job, Outcome]:
    """The job that a backtest in this process makes."""
    specs = source_specs([str(source) for source in sources])
    outcome = backtest(settings, specs, executor or LocalExecutor(), "numba")
    return open_job(settings.folder), outcome


def contents(job: Job) -> dict[str, list[tuple[Any, ...]]]:
    """All rows of a job's datasets, in the order in which a reader gives them."""
    found = {name: job.history(name).rows() for name in job.views}
    return {**found, "orders": job.order_changes().rows(), "fills": job.fills().rows()}
