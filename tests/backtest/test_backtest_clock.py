"""Views over the time in backtests of several partitions: the rows that one partition gives."""

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import pytest
from backtest_support import contents, job_settings, run, write_records

from orderbook.backtesting.run import Outcome
from orderbook.jobs.job import Job
from orderbook.market.synthetic_flow import START

# Rows that expire are of books, of one stream and of two; views are by symbol, across symbols, and nested.
TRADED = """
CREATE STREAM trades (
    ts TIMESTAMP NOT NULL, venue TEXT NOT NULL, symbol TEXT NOT NULL, price DECIMAL(18, 8) NOT NULL,
    volume DECIMAL(18, 8) NOT NULL, aggressor TEXT
) RETAIN INTERVAL '4' MILLISECOND;
CREATE VIEW traded AS SELECT symbol, SUM(volume) AS volume, COUNT(*) AS n FROM trades GROUP BY symbol;
"""
SQL = f"""{TRADED}
CREATE STREAM pings (ts TIMESTAMP NOT NULL, symbol TEXT NOT NULL, n INTEGER NOT NULL)
RETAIN INTERVAL '3' MILLISECOND;
CREATE STREAM sectors (symbol TEXT NOT NULL, sector TEXT NOT NULL);
CREATE VIEW all_traded AS SELECT COUNT(*) AS symbols, SUM(t.n) AS n FROM traded t;
CREATE VIEW pinged AS SELECT s.sector, SUM(p.n) AS n FROM pings p JOIN sectors s ON s.symbol = p.symbol
GROUP BY s.sector;
CREATE VIEW late AS SELECT p.symbol, COUNT(*) AS n FROM pings p WHERE p.ts < NOW() - INTERVAL '1' MILLISECOND
GROUP BY p.symbol;
CREATE VIEW depth AS SELECT symbol, SUM(volume) AS volume FROM bids GROUP BY symbol;
"""
RECENT = """
CREATE VIEW recent AS SELECT symbol, COUNT(*) AS n FROM bids WHERE ts > NOW() - INTERVAL '2' MILLISECOND
GROUP BY symbol;
"""
VIEWS = ("traded", "all_traded", "pinged", "late", "depth")


def line(stream: str, op: str, row: dict[str, Any], time: int) -> str:
    return json.dumps({"stream": stream, "op": op, "row": row, "time": time}) + "\n"


def write_changes(folder: Path, seed: int) -> None:
    """Rows of streams in two files: what one brings is deleted by the other, or by itself."""
    choose = Random(seed)
    texts: tuple[list[str], list[str]] = ([], [])
    for number in range(80):
        time, symbol = START + number * 250_000, choose.choice(("AAA-USD", "x", "y"))
        stream = choose.choice(("pings", "pings", "sectors"))
        row: dict[str, Any] = {"symbol": symbol, "sector": choose.choice("abc")}
        if stream == "pings":
            row = {"ts": time - choose.randrange(3) * 10**6, "symbol": symbol, "n": number}
        texts[choose.randrange(2)].append(line(stream, "+", row, time))
        if choose.random() < 0.4:
            texts[choose.randrange(2)].append(line(stream, "-", row, time + choose.randrange(1, 10**6)))
    for name, own in zip(("one", "two"), texts, strict=True):
        (folder / f"{name}.jsonl").write_text("".join(own))


def written(folder: Path, seed: int) -> Sequence[Path]:
    """Four symbols on two days, in a file for each day, and two files of changes."""
    write_records(folder / "flow", 400, 4, 2, seed, apart=False)
    write_changes(folder, seed)
    return [folder / "flow", *sorted(folder.glob("*.jsonl"))]


@pytest.fixture(scope="module")
def sources(tmp_path_factory: pytest.TempPathFactory, sample_seed: int) -> Sequence[Path]:
    return written(tmp_path_factory.mktemp("clock"), sample_seed)


def check(
    folder: Path, sources: Sequence[Path], granularity: str, partitions: Sequence[int], sql: str = SQL
) -> None:
    views = {SQL: VIEWS, TRADED: VIEWS[:1], RECENT: ("recent",)}[sql]
    # Without changes of rows only events of books move the clock.
    sources = sources if sql == SQL else sources[:1]

    def job(count: int, pieces: int = 1) -> tuple[Job, Outcome]:
        plain = job_settings(folder / f"{count} {pieces}", count, granularity, sql=sql, views=views)
        return run(replace(plain, resolution=10**6, cut_time=pieces), sources)

    expected, before = job(1)
    for found, outcome in (job(count, pieces) for count in partitions for pieces in (1, 2)):
        assert contents(found) == contents(expected)
        assert sorted(outcome.problems) == sorted(before.problems)
    rows = {view: len(expected.history(view)) for view in views}
    assert granularity == "end" or all(number > 2 for number in rows.values()), rows
    if granularity == "event" and sql == SQL:
        # Rows of books expire, too.
        assert any(row[6] for row in contents(expected)["traded"])


@pytest.mark.parametrize(
    ("granularity", "sql"), [("event", SQL), ("interval:700000", TRADED), ("message", RECENT)]
)
def test_partitions_make_no_difference(
    sources: Sequence[Path], tmp_path: Path, granularity: str, sql: str
) -> None:
    check(tmp_path, sources, granularity, [3], sql)


@pytest.mark.exhaustive
@pytest.mark.parametrize("granularity", ["event", "message", "interval:700000", "end"])
def test_many_histories(tmp_path: Path, sample_seed: int, sample_count: int, granularity: str) -> None:
    for seed in range(sample_seed, sample_seed + max(1, sample_count // 20)):
        folder = tmp_path / str(seed)
        folder.mkdir()
        check(folder / "jobs", written(folder, seed), granularity, [2, 5, 7])
