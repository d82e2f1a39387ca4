"""Sweeps: every combination trades as in a backtest of its own, in any number of tasks."""

import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from backtest_support import SEEN, job_settings, run, write_records
from paths import PROJECT
from samples import PATIENCE

import orderbook
from orderbook.backtesting.run import LocalExecutor, ProcessExecutor, backtest
from orderbook.backtesting.sources import source_specs
from orderbook.backtesting.tasks import Combination, JobProgram, JobSettings, groups
from orderbook.command_line import status_of
from orderbook.commands.backtest import parsed_sets
from orderbook.configuration.options import SparkOptions
from orderbook.core.errors import UserError
from orderbook.engine.distribution.stage_runner import Granularity
from orderbook.jobs.job import Job, open_job
from orderbook.report.page import write_report

FOLLOWER = "backtest_support:Follower"
LIMITS = (5_400, 5_500, 5_600)


@pytest.fixture(scope="module")
def flow(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("flow")
    write_records(folder, 400, 2, 1, 5, apart=True)
    return folder


def settings_of(folder: Path, workers: int) -> JobSettings:
    # A program of its own for every other one, as where views' parameters are swept.
    programs = [JobProgram.of(orderbook.compile(SEEN, params={"k": k})) for k in (1, 2)]
    combinations = tuple(
        Combination(number, {"limit": limit}, ((FOLLOWER, {"limit": Decimal(limit)}),), programs[number % 2])
        for number, limit in enumerate(LIMITS, start=1)
    )
    return JobSettings(
        programs[0], str(folder), (), Granularity("end"), (), None, 1, "interpreter", 10**9,
        combinations=combinations, workers=workers,
    )  # fmt: skip


def traded(job: Job, name: str) -> dict[str, list[tuple[Any, ...]]]:
    found = {"orders": job.order_changes(), "fills": job.fills()}
    return {what: f.filter(f["strategy"] == name).drop("strategy").rows() for what, f in found.items()}


def test_combinations_trade_as_alone_in_any_number_of_tasks(flow: Path, tmp_path: Path) -> None:
    specs = source_specs([str(flow)])
    expected = {}
    for number, limit in enumerate(LIMITS, start=1):
        settings = job_settings(tmp_path / f"alone{limit}", 1, strategies=(), views=())
        one = ((FOLLOWER, {"limit": Decimal(limit)}),)
        settings = JobSettings(
            settings.program, settings.folder, (), Granularity("end"), one,
            JobProgram.of(orderbook.compile(SEEN)), 1, "interpreter", 10**9,
        )  # fmt: skip
        expected[f"{number}:Follower"] = traded(run(settings, [flow])[0], "Follower")
    assert len({str(rows) for rows in expected.values()}) == 3
    assert all(all(rows.values()) for rows in expected.values())
    for workers in (1, 3):
        backtest(settings_of(tmp_path / f"w{workers}", workers), specs, LocalExecutor(), "numba")
        job = open_job(tmp_path / f"w{workers}")
        assert {name: traded(job, name) for name in expected} == expected
        assert len(job.manifest.statistics) == (2 if workers == 1 else 3)
        write_report(job.folder)
        rows = open_job(job.folder).sql('SELECT combination, "limit", fills FROM combinations').rows()
        fills = [len(own["fills"]) for own in expected.values()]
        assert rows == [(n, float(LIMITS[n - 1]), fills[n - 1]) for n in (1, 2, 3)]


def test_tasks_share_programs_and_workers() -> None:
    programs = [JobProgram.of(orderbook.compile(SEEN, params={"k": k})) for k in (1, 2)]
    combinations = [Combination(n, {}, (), programs[n % 2]) for n in range(10)]
    for workers in (1, 2, 4, 50):
        found = groups(combinations, workers)
        assert sorted(place for group in found for place in group) == list(range(10))
        assert all(len({combinations[place].program.hash for place in group}) == 1 for group in found)
        assert len(found) == min(10, max(2, workers))


@pytest.mark.exhaustive
def test_processes_make_the_same_job(flow: Path, tmp_path: Path) -> None:
    specs = source_specs([str(flow)])
    for name, executor in (("local", LocalExecutor()), ("processes", ProcessExecutor(2))):
        backtest(settings_of(tmp_path / name, 3), specs, executor, "numba")
    jobs = [open_job(tmp_path / name) for name in ("local", "processes")]
    assert jobs[0].order_changes().rows() == jobs[1].order_changes().rows()
    assert jobs[0].table("market").rows() == jobs[1].table("market").rows()


@pytest.mark.spark
@pytest.mark.exhaustive
def test_spark_sweeps_alike(spark: object, flow: Path, tmp_path: Path) -> None:
    from orderbook.spark.batch import SparkExecutor

    specs = source_specs([str(flow)])
    executor = SparkExecutor(SparkOptions(master="local[2]"))
    backtest(settings_of(tmp_path / "local", 3), specs, LocalExecutor(), "numba")
    backtest(settings_of(tmp_path / "spark", 3), specs, executor, "spark")
    jobs = [open_job(tmp_path / name) for name in ("local", "spark")]
    assert jobs[0].fills().rows() == jobs[1].fills().rows() != []
    for name in ("market", "signals"):
        assert jobs[0].table(name).rows() == jobs[1].table(name).rows() != []


def test_values_of_parameters() -> None:
    assert parsed_sets(["a=1.01,1.02,1.01", "b=x, y", "c=true,2"]) == {
        "a": [Decimal("1.01"), Decimal("1.02")], "b": ["x", "y"], "c": [True, 2],
    }  # fmt: skip
    for wrong in ("a", "a=", "a=1,,2", "1=2"):
        with pytest.raises(UserError, match="expected NAME=VALUE"):
            parsed_sets([wrong])
    with pytest.raises(UserError, match="twice"):
        parsed_sets(["a=1", "a=2"])


def test_the_command_sweeps_strategies_and_views(
    flow: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "wide.sql").write_text(
        "CREATE VIEW wide AS SELECT symbol, SUM(volume) * :k AS volume FROM bids GROUP BY symbol;"
    )
    (tmp_path / "swept_here.py").write_text(
        "from orderbook import Strategy, on_view\n"
        "class Buyer(Strategy):\n"
        "    defaults = {'limit': 4000, 'volume': 1}\n"
        "    @on_view('wide', when='volume > :limit')\n"
        "    def much(self, event):\n"
        "        self.buy(event.new.symbol, self.parameters['volume'])\n"
    )
    (tmp_path / "c.toml").write_text('run = { backend = "interpreter" }\nviews = { paths = ["."] }\n')
    base = ["backtest", str(flow), "--config", "c.toml", "--strategy", "swept_here:Buyer", "--out", "job"]
    assert status_of([*base, "--set", "volume=1,2", "--set", "k=0.5,1", "--set", "limit=2500"]) == 0
    out = capsys.readouterr().out
    assert "4 combinations of parameters in 2 tasks" in out and "volume" in out and "job/report.html" in out
    query = "SELECT combination, volume, k, fills, profit FROM combinations ORDER BY ALL"
    rows = open_job("job").sql(query).rows()
    assert [row[:3] for row in rows] == [(1, 1.0, 0.5), (2, 1.0, 1.0), (3, 2.0, 0.5), (4, 2.0, 1.0)]
    assert rows[2][4] == pytest.approx(2 * rows[0][4]) and rows[0][3] > 0
    assert status_of([*base, "--set", "limt=1,2"]) == 2
    assert "did you mean 'limit'" in capsys.readouterr().err
    assert status_of([*base, "--view", "wide", "--set", "k=1,2"]) == 2
    assert "--set k: wide would have a history for each value; leave --view out" in capsys.readouterr().err
    assert status_of(["backtest", str(flow), "--config", "c.toml", "--view", "wide", "--set", "k=1,2"]) == 2
    assert "--set with several values compares strategies; name a --strategy" in capsys.readouterr().err
    # Views whose parameters all combinations have in common have one history.
    assert status_of([*base[:-1], "alone", "--view", "wide", "--set", "limit=2500"]) == 0
    assert status_of([*base, "--view", "wide", "--set", "limit=2500,3000"]) == 0
    assert "2 combinations of parameters in 1 task" in capsys.readouterr().out
    assert open_job("job").history("wide").rows() == open_job("alone").history("wide").rows() != []
    assert len(open_job("job").table("combinations")) == 2


def runs(pid: int) -> bool:
    """Whether a process is there, and no zombie that nobody has asked for."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


@pytest.mark.sampled(3)
@pytest.mark.parametrize("sent", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_a_sweep_that_is_stopped_leaves_nothing(flow: Path, tmp_path: Path, sent: signal.Signals) -> None:
    (tmp_path / "waiting_here.py").write_text(
        "import os, time\n"
        "from orderbook import Strategy\n"
        "class Waits(Strategy):\n"
        "    defaults = {'n': 1}\n"
        "    def on_start(self):\n"
        # In one piece, as two processes write at once.
        "        os.write(1, f'process {os.getpid()}\\n'.encode())\n"
        "        time.sleep(600)\n"
    )
    program = (
        "from orderbook.commands import backtest\n"
        "from orderbook.backtesting.run import ProcessExecutor\n"
        "from orderbook.command_line import main\n"
        "backtest._LITTLE = 0\n"
        "backtest.ProcessExecutor = lambda: ProcessExecutor(2)\n"
        f"main(['backtest', {str(flow)!r}, '--config', 'c.toml', '--strategy', 'waiting_here:Waits', "
        "'--out', 'job', '--set', 'n=1,2'])\n"
    )
    (tmp_path / "c.toml").write_text('run = { backend = "interpreter" }\n')
    # A group of its own, which gets the signal as from a terminal; a kill is of the one process.
    process = subprocess.Popen(
        [sys.executable, "-u", "-c", program], cwd=tmp_path, text=True, start_new_session=True,
        env={**os.environ, "PYTHONPATH": str(PROJECT)},
        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip
    assert process.stdout is not None
    workers: list[int] = []
    for line in process.stdout:
        if line.startswith("process "):
            workers.append(int(line.split()[1]))
        if len(workers) == 2:
            break
    if sent is signal.SIGINT:
        os.killpg(process.pid, sent)
    else:
        process.send_signal(sent)
    _, errors = process.communicate(timeout=PATIENCE)
    assert "leaked" not in errors and "Traceback" not in errors, errors
    if sent is not signal.SIGKILL:
        assert process.returncode == 1 and "interrupted" in errors
        assert open_job(tmp_path / "job").manifest.status == "failed"
    deadline = time.monotonic() + PATIENCE
    while left := [pid for pid in workers if runs(pid)]:
        assert time.monotonic() < deadline, f"still there: {left}"
        time.sleep(0.05)


@pytest.mark.sampled(2)
def test_a_plain_script_sweeps_in_processes(flow: Path, tmp_path: Path) -> None:
    (tmp_path / "script_here.py").write_text(
        "import orderbook\n"
        "from orderbook.commands import backtest\n"
        "from orderbook.backtesting.run import ProcessExecutor\n"
        "backtest._LITTLE = 0\n"
        "backtest.ProcessExecutor = lambda: ProcessExecutor(2)\n"
        # It is nobody's module to import: what stands here happens once.
        "print('begun', flush=True)\n"
        f"found = orderbook.backtest({str(flow)!r}, {SEEN!r}, 'backtest_support:Follower', parameters={{\n"
        f"    'limit': {list(LIMITS)!r}}}, options={{'run.backend': 'interpreter'}}, out='job')\n"
        "print(len(found.combinations), len(found.fills) > 0)\n"
    )
    done = subprocess.run(
        [sys.executable, "script_here.py"], cwd=tmp_path, text=True, capture_output=True, timeout=PATIENCE,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(PROJECT), str(PROJECT / "tests" / "support")])},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("begun") == 1 and done.stdout.endswith("3 True\n")
    assert "Traceback" not in done.stderr
    stages = [one.stage for one in open_job(tmp_path / "job").manifest.statistics]
    assert stages == ["all", "strategies", "strategies"]


class Ends(LocalExecutor):
    """Ends after so many tasks, as where somebody stops it; counts them."""

    def __init__(self, most: int) -> None:
        self.left, self.done = most, list[str]()

    def run(self, settings: JobSettings, plan: Any, report: Any) -> Any:
        for task in plan.tasks:
            if not self.left:
                raise KeyboardInterrupt
            self.left -= 1
            self.done.append(f"{task.name}-{task.number}")
            yield from super().run(settings, replace(plan, tasks=(task,)), report)


def test_a_job_that_was_stopped_goes_on_with_what_is_missing(flow: Path, tmp_path: Path) -> None:
    specs, folder = source_specs([str(flow)]), tmp_path / "sweep"
    backtest(settings_of(tmp_path / "whole", 3), specs, LocalExecutor(), "numba")
    notes: list[str] = []
    with pytest.raises(KeyboardInterrupt):
        backtest(settings_of(folder, 3), specs, Ends(2), "numba", noted=notes.append)
    assert notes[-1] == "2 of 3 tasks are done; the same command goes on with the rest"
    # Another sweep into the folder would begin anew; and so would this one, were a file of a task gone.
    last = Ends(3)
    shares: list[int] = []
    outcome = backtest(
        settings_of(folder, 3), specs, last, "numba", shares.append, notes.append, shares.append
    )
    assert last.done == ["strategies-2"] and "goes on: 2 of 3 tasks" in notes[-1]
    jobs = [open_job(tmp_path / name) for name in ("whole", "sweep")]
    for name in ("market", "signals"):
        assert jobs[0].table(name).rows() == jobs[1].table(name).rows()
    assert jobs[0].order_changes().rows() == jobs[1].order_changes().rows() != []
    assert jobs[0].fills().rows() == jobs[1].fills().rows() != []
    assert {one.name for one in outcome.summaries} == {f"{n}:Follower" for n in (1, 2, 3)}
    assert not (folder / "finished").exists()
    # What is done is done again, and what others have left counts for nothing.
    with pytest.raises(KeyboardInterrupt):
        backtest(settings_of(folder, 3), specs, Ends(2), "numba")
    other = Ends(9)
    backtest(settings_of(folder, 1), specs, other, "numba")
    assert other.done == ["strategies-0", "strategies-1"]


def test_results_whose_files_are_gone_are_made_again(flow: Path, tmp_path: Path) -> None:
    specs, folder = source_specs([str(flow)]), tmp_path / "sweep"
    with pytest.raises(KeyboardInterrupt):
        backtest(settings_of(folder, 3), specs, Ends(2), "numba")
    for path in folder.glob("tables/orders/*.parquet"):
        path.unlink()
    again = Ends(9)
    backtest(settings_of(folder, 3), specs, again, "numba")
    assert len(again.done) == 3
