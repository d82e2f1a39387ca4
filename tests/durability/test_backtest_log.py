"""A backtest of a run's log makes the run's own orders, fills and money, row by row."""

from collections.abc import Iterator
from contextlib import contextmanager
from decimal import Decimal
from pathlib import Path
from random import Random
from typing import Any

import pytest
from durable_support import INSTRUMENTS, SQL, Trader, items
from recovery_support import feed

import orderbook
from orderbook.backtesting.run import LocalExecutor, backtest
from orderbook.backtesting.sources import source_specs
from orderbook.backtesting.tasks import JobProgram, JobSettings
from orderbook.command_line import status_of
from orderbook.configuration.configuration import load_configuration
from orderbook.core.errors import SourceError, UserError
from orderbook.durability.durable_run import DurableRun, open_past
from orderbook.engine.distribution.stage_runner import Granularity
from orderbook.feeds.merge import TickItem
from orderbook.jobs.job import Job, open_job
from orderbook.market.instruments import Instruments
from orderbook.report.results import report_of
from orderbook.run.pipeline import Pipeline
from orderbook.strategies.execution.account import row_of
from orderbook.strategies.execution.venue_model import (
    SimulationOptions,
    TradingOptions,
    VenueFees,
)
from orderbook.strategies.gated_engine import GatedEngine
from orderbook.strategies.strategy import Strategy, StrategyDefinition
from orderbook.views.compilation import compile_views

FEES = VenueFees(maker=Decimal("-0.5"), taker=Decimal(3))
TRADING = TradingOptions(SimulationOptions(order_latency="2ms", response_latency=("1ms", "4ms"), fees=FEES))
(DEPTH,) = (sql for sql in SQL.split(";") if "VIEW depth" in sql)
ORDERS, FILLS = list[dict[str, Any]], list[dict[str, Any]]


@contextmanager
def session(
    folder: Path, orders: list[Any], fills: list[Any], lot: int = 1
) -> Iterator[tuple[Pipeline, DurableRun]]:
    """A process of a run that notes what becomes of its orders, beyond what it applies again.

    lot: as the exchange lists it when the process starts.
    """
    options = {"log.folder": str(folder), "log.sync": "never", "log.keep_log": True}
    program = compile_views(SQL)

    def made(known: Any) -> Pipeline:
        engine = GatedEngine(program, "interpreter")
        return Pipeline(engine, known, [StrategyDefinition(Trader)], trading=TRADING)

    listed = Instruments(one.with_steps(one.tick, Decimal(lot)) for one in INSTRUMENTS)
    with open_past(load_configuration(None, options), program, listed) as past:
        pipeline, run = past.recovered(made)
        assert run is not None

        def noted(_: Any, update: Any) -> None:
            orders.append(row_of(update.new))
            fills.extend(map(row_of, update.fills))

        pipeline.host.observe_orders(noted)
        run.start()
        yield pipeline, run


def job_of(folder: Path, log: Path, views: tuple[str, ...] = ()) -> tuple[Job, Any]:
    settings = JobSettings(
        JobProgram.of(orderbook.compile(DEPTH)), str(folder), views, Granularity("message"),
        (("durable_support:Trader", {}),), JobProgram.of(orderbook.compile(SQL)), 1, "interpreter", 10**9,
        trading=TRADING,
    )  # fmt: skip
    outcome = backtest(settings, source_specs([f"log:{log}"]), LocalExecutor(), "numba")
    return open_job(folder), outcome.summaries


@pytest.mark.sampled(4)
@pytest.mark.parametrize("lots", [(1,), (1, 1, 30), (30, 1, 1), (10, 30, 1), (30, 30, 30)])
def test_the_figures_are_those_of_the_session(lots: tuple[int, ...], tmp_path: Path) -> None:
    orders, fills, restarts = ORDERS(), FILLS(), len(lots) - 1
    received, random = items(3, 900), Random(restarts)
    cuts = [0, *sorted(random.sample(range(1, len(received)), restarts)), len(received)]
    for number in range(restarts + 1):
        with session(tmp_path / "log", orders, fills, lots[number]) as (pipeline, run):
            feed(run, received[cuts[number] : cuts[number + 1]])
            if number % 2:
                assert run.checkpoint()
            if number == restarts:
                run.stop()
                (summary,) = pipeline.host.summary()
                shown = {key: (row.orders, row.volume) for key, row in pipeline.engine["depth"].items()}
    job, (again,) = job_of(tmp_path / "job", tmp_path / "log", ("depth",))
    assert (again.positions, again.profit, again.fills) == (summary.positions, summary.profit, summary.fills)
    plain = [row for row in orders if row["strategy"] == "Trader"]
    found = job.order_changes().select(list(plain[0])).to_dicts()
    assert len(plain) > 100 and [_plain(one) for one in found] == [_plain(one) for one in plain]
    filled = job.fills().select(list(fills[0])).to_dicts()
    assert len(fills) > 30 and [_plain(one) for one in filled] == [_plain(one) for one in fills]
    whole = report_of(job).statistics["Trader"][0]
    assert whole.fees == pytest.approx(float(sum(p.fees for p in summary.positions)))
    assert {(r["symbol"],): (r["orders"], r["volume"]) for r in job.view("depth").to_dicts()} == shown


def _plain(row: dict[str, Any]) -> dict[str, Any]:
    """Times in ns, amounts as they compare."""
    found = dict(row)
    if not isinstance(found["ts"], int):
        found["ts"] = int(found["ts"].timestamp() * 10**6)
    else:
        found["ts"] //= 1_000
    return found


def test_a_log_stands_alone_and_whole(tmp_path: Path) -> None:
    orders, fills = ORDERS(), FILLS()
    with session(tmp_path / "log", orders, fills) as (_, run):
        feed(run, [*items(1, 60), TickItem(1)])
    with pytest.raises(UserError, match="order of its run"):
        source_specs([f"log:{tmp_path / 'log'}", "other.parquet"])
    with pytest.raises(SourceError, match="no log there"):
        source_specs([f"log:{tmp_path / 'none'}"])
    arguments = ["backtest", f"log:{tmp_path / 'log'}", "--view", "depth", "--cut-time", "2"]
    assert status_of([*arguments, "--out", str(tmp_path / "job")]) == 2


def traded(folder: Path) -> tuple[list[Any], list[Any], Path, Job]:
    """A session that was killed once: what became of its orders, its configuration, and its backtest."""
    orders, fills, received = ORDERS(), FILLS(), items(3, 500)
    for number, (start, end) in enumerate(((0, 40), (40, 500))):
        with session(folder / "log", orders, fills) as (_, run):
            feed(run, received[start:end])
            if number:
                run.stop()
    (folder / "views.sql").write_text(SQL)
    config = folder / "run.toml"
    config.write_text(f"""
[run]
views = ["{folder / "views.sql"}"]
strategies = ["durable_support:Trader"]
backend = "interpreter"
[log]
folder = "log"
[simulation]
order_latency = "2ms"
response_latency = ["1ms", "4ms"]
fees = {{ maker = -0.5, taker = 3 }}
""")
    return orders, fills, config, job_of(folder / "job", folder / "log")[0]


def test_compare_says_in_what_a_backtest_differs_from_its_session(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    orders, fills, config, job = traded(tmp_path)
    given = ["compare", f"log:{tmp_path / 'log'}", str(job.folder), "--config", str(config)]
    assert status_of(given) == 0
    told = capsys.readouterr().out
    changes, count = len(job.order_changes()), len(job.fills())
    assert changes == len(orders) > 50 and count == len(fills) > 10
    assert f"changes of orders: all {changes:,} are equal" in told and f"fills: all {count:,} are" in told
    held = len({row["symbol"] for row in fills})
    assert f"money: position, fees and profit are equal in {held} of {held} instruments" in told
    # Of a run with other fees all fills are others, and so is the money.
    config.write_text(config.read_text().replace("taker = 3", "taker = 4"))
    assert status_of(given) == 1
    told = capsys.readouterr().out
    assert f"changes of orders: all {changes:,} are equal" in told and " fee=" in told
    assert f"money: Trader {fills[0]['venue']}" in told and "fees and profit are equal in 0 of" in told
    assert status_of([*given[:1], given[2], given[1]]) == 2
    assert "a log in the first place" in capsys.readouterr().err


def test_compare_names_strategies_that_forget(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(Trader, "on_save", Strategy.on_save)
    *_, config, job = traded(tmp_path)
    assert status_of(["compare", f"log:{tmp_path / 'log'}", str(job.folder), "--config", str(config)]) == 1
    assert "\nTrader has no on_save: what it knew ended with each process" in capsys.readouterr().out
