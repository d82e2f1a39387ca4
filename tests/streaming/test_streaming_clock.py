"""Views over the time in backtests and in streams: rows as an engine has in a replay."""

import json
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from backtest_support import ForgetfulExecutor, contents, job_settings, run, write_records
from streaming_support import LocalStream, arrivals, entries_of, make_logs

import orderbook
from orderbook.backtesting.tasks import READERS, JobSettings
from orderbook.core.errors import UserError
from orderbook.feeds.merge import Merger
from orderbook.feeds.source_kinds import open_source
from orderbook.jobs.job import Job, open_job
from orderbook.market.synthetic_flow import START
from orderbook.run.pipeline import Pipeline
from orderbook.strategies.gated_engine import GatedEngine
from orderbook.streaming.block_log import HEADER

SQL = """
CREATE STREAM pings (ts TIMESTAMP NOT NULL, symbol TEXT NOT NULL, n INTEGER NOT NULL)
RETAIN INTERVAL '3' MILLISECOND;
CREATE VIEW recent AS SELECT symbol, COUNT(*) AS n, SUM(volume) AS volume FROM bids
WHERE ts > NOW() - INTERVAL '2' MILLISECOND GROUP BY symbol;
CREATE VIEW all_recent AS SELECT COUNT(*) AS symbols, SUM(r.n) AS n FROM recent r;
CREATE VIEW pinged AS SELECT p.symbol, SUM(p.n) AS n, COUNT(*) AS pairs FROM pings p GROUP BY p.symbol;
CREATE VIEW now_is AS SELECT MAX(n) AS most, NOW() AS at FROM pings;
"""
VIEWS = ("recent", "all_recent", "pinged", "now_is")
STEP = 1_000_000


def clocked(folder: Path, partitions: int) -> JobSettings:
    """A job whose clock ticks every millisecond."""
    plain = job_settings(folder, partitions, sql=SQL, views=VIEWS)
    return replace(plain, forced="symbol" if partitions > 1 else None, resolution=STEP)


@pytest.fixture(scope="module")
def sources(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Three symbols on two days, and rows that expire, some of them deleted before."""
    folder = tmp_path_factory.mktemp("clock")
    write_records(folder / "flow", 300, 3, 2, 5, apart=True)
    lines = []
    for number in range(60):
        time = START + number * 300_000
        row = {"ts": time - number % 3 * 10**6, "symbol": f"s{number % 3}", "n": number}
        lines.append({"stream": "pings", "op": "+", "row": row, "time": time})
        if number % 5 == 0:
            lines.append({"stream": "pings", "op": "-", "row": row, "time": time + 200_000})
    (folder / "pings.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return [folder / "flow", folder / "pings.jsonl"]


def replayed(sources: Sequence[Path]) -> dict[str, dict[Any, list[Any]]]:
    """By view and key the rows that an engine tells of in a replay, in their order; None: it is gone."""
    files = [f for source in sources for f in ([source] if source.is_file() else sorted(source.iterdir()))]
    merger = Merger([open_source(str(path)) for path in files])
    engine = GatedEngine(orderbook.compile(SQL), "interpreter")
    # Nothing waits until books are valid.
    engine.watch_books = lambda *_: None  # type: ignore[method-assign]
    pipeline = Pipeline(engine, merger.instruments, (), STEP)
    found: dict[str, dict[Any, list[Any]]] = {view: defaultdict(list) for view in VIEWS}
    for view in VIEWS:

        def tell(event: Any, told: dict[Any, list[Any]] = found[view]) -> None:
            told[event.key].append(event.new and (*event.new.values(),)[len(event.key) :])

        engine.subscribe(view, tell)
    for item in merger:
        pipeline.apply(item, "message")
    pipeline.finish()
    return found


def histories(job: Job) -> dict[str, dict[Any, list[Any]]]:
    """The same of a job, without the first look at views of one row, of which nobody is told."""
    found = {}
    for view in VIEWS:
        dataset, rows = job.manifest.views[view], defaultdict(list)
        names = [name for name in dataset.columns if name not in dataset.keys]
        for row in job.history(view).iter_rows(named=True):
            key = tuple(row[name] for name in dataset.keys)
            own = [row[dataset.columns[name]] for name in names]
            values = [nanoseconds(v) if isinstance(v, datetime) else v for v in own]
            rows[key].append(None if row["gone"] else tuple(values))
        found[view] = rows if dataset.keys else {(): rows[()][1:]}
    return found


def nanoseconds(time: datetime) -> int:
    """A time since 1970, UTC."""
    return round((time - datetime(1970, 1, 1)) / timedelta(microseconds=1)) * 1000


@pytest.fixture(scope="module")
def expected(sources: list[Path], tmp_path_factory: pytest.TempPathFactory) -> Job:
    """A backtest in one partition."""
    return run(clocked(tmp_path_factory.mktemp("serial"), 1), sources)[0]


def test_a_backtest_has_the_rows_of_a_replay(sources: list[Path], expected: Job) -> None:
    assert histories(expected) == replayed(sources)
    assert all(len(expected.history(view)) > 20 for view in VIEWS)
    assert expected.history("recent")["gone"].any() and (expected.history("now_is")["switch"] == -1).any()


@pytest.mark.parametrize("partitions", [1, 2])
def test_pieces_of_time_have_the_rows_of_the_whole(
    sources: list[Path], expected: Job, tmp_path: Path, partitions: int
) -> None:
    settings = replace(clocked(tmp_path / "cut", partitions), cut_time=3)
    job, outcome = run(settings, sources, ForgetfulExecutor())
    assert contents(job) == contents(expected)
    statistics = outcome.manifest.statistics
    assert len([s for s in statistics if s.stage == "stage 0"]) == 3 * partitions
    assert sum(s.events for s in statistics if s.stage in READERS) == 300 + 72


@pytest.mark.sampled(2)
@pytest.mark.parametrize("partitions", [1, 3])
def test_a_stream_has_the_rows_of_a_backtest(
    sources: list[Path], expected: Job, tmp_path: Path, sample_seed: int, partitions: int
) -> None:
    program = clocked(tmp_path / "none", 1).program.compiled()
    logs = make_logs(tmp_path / "logs", sources, program, 2, 1_000_000, STEP)
    stream = LocalStream(clocked(tmp_path / "job", partitions), logs, {})
    for number, batch in enumerate(arrivals(entries_of(logs), 3, sample_seed)):
        stream.batch(number, batch)
    assert contents(open_job(tmp_path / "job")) == contents(expected)


def test_what_is_refused(sources: list[Path], tmp_path: Path) -> None:
    program = clocked(tmp_path / "none", 1).program.compiled()
    logs = make_logs(tmp_path / "logs", sources, program, 1, 1_000_000, STEP)
    (header,) = logs.glob(f"*/{HEADER}")
    plain = json.loads(header.read_text())
    header.write_text(json.dumps({**plain, "resolution": 0}))
    with pytest.raises(UserError, match="the block log has no clock; write it again"):
        LocalStream(clocked(tmp_path / "job", 2), logs, {})
    for relation in plain["relations"]:
        relation["retain"] = None
    header.write_text(json.dumps(plain))
    with pytest.raises(UserError, match="a view reads pings, which the block log declares differently"):
        LocalStream(clocked(tmp_path / "job", 2), logs, {})
