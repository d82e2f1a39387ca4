"""A run of files of rows that is killed anywhere goes on where its log ends, beside DuckDB over the files."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from random import Random
from typing import Any

import duckdb
import polars as pl
import pytest
from command_line_support import Program, orderbook
from samples import PATIENCE

from orderbook.configuration.configuration import load_configuration
from orderbook.durability.past_states import LAST, open_past_run

__all__ = ["orderbook"]

VIEWS = """
CREATE STREAM trades (ts TIMESTAMP, symbol TEXT, price DECIMAL(18, 2), size BIGINT);
CREATE STREAM quotes (ts TIMESTAMP, symbol TEXT, bid DOUBLE);
CREATE VIEW vwap AS SELECT symbol, COUNT(*) AS n, SUM(price * size) AS value, SUM(size) AS size
FROM trades GROUP BY symbol;
CREATE VIEW turns AS SELECT symbol, SUM(size * before) AS turns FROM (
    SELECT symbol, size, LAG(size) OVER (PARTITION BY symbol ORDER BY DATE_TRUNC('day', ts)) AS before
    FROM trades) q GROUP BY symbol;
CREATE VIEW quoted AS SELECT symbol, COUNT(*) AS n, COUNT(bid) AS bids FROM quotes GROUP BY symbol;
"""
WANTED = {
    "vwap": "SELECT symbol, COUNT(*), SUM(price * size), SUM(size) FROM trades GROUP BY symbol",
    "turns": """SELECT symbol, SUM(size * before) FROM (SELECT symbol, size,
        LAG(size) OVER (PARTITION BY symbol ORDER BY DATE_TRUNC('day', ts), place) AS before
        FROM trades) GROUP BY symbol""",
    "quoted": "SELECT symbol, COUNT(*), COUNT(bid) FROM quotes GROUP BY symbol",
}
SETTINGS = """
[run]
strategies = []
views = ["v.sql"]
[log]
folder = "log"
checkpoint_interval = "{every}"
[engine]
batch_size = 16
queue_size = 64
"""
START = 1_706_693_400_000_000_000
TRADES = "{'ts': 'BIGINT', 'symbol': 'VARCHAR', 'price': 'DECIMAL(18, 2)', 'size': 'BIGINT'}"


def lines(random: Random, first: int, count: int) -> str:
    """Trades, of which many say the same."""
    found = []
    for number in range(first, first + count):
        price, size = random.randrange(9), random.randrange(5)
        found.append(f"{START + number * 1_000_000},{random.choice('ABC')},{price}.5,{size}\n")
    return "".join(found)


def write_quotes(path: Path, random: Random, count: int) -> None:
    bids = [random.choice([None, 1.5, 2.5]) for _ in range(count)]
    times = [START + 1_500_000 * i for i in range(count)]
    symbols = [random.choice("AB") for _ in range(count)]
    frame = pl.DataFrame({"ts": times, "symbol": symbols, "bid": bids})
    frame.write_parquet(path, row_group_size=1_000)


def killed(folder: Path, size: int) -> bool:
    """Runs until the log has so many bytes more; whether it was killed then, and had not ended before."""
    command = [sys.executable, "-m", "orderbook.command_line", "run", "--config", "c.toml", "--no-monitor"]
    command += ["--feed", "rows:trades.csv", "--feed", "rows:quotes.parquet"]
    # It imports what this process does, from another folder.
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    process = subprocess.Popen(command, cwd=folder, env=environment, stdout=subprocess.DEVNULL)
    wanted, deadline = log_bytes(folder) + size, time.monotonic() + PATIENCE
    while process.poll() is None and log_bytes(folder) < wanted:
        assert time.monotonic() < deadline
        time.sleep(0.001)
    process.send_signal(signal.SIGKILL)
    assert process.wait(PATIENCE) in (0, -signal.SIGKILL)
    return process.returncode != 0


def log_bytes(folder: Path) -> int:
    return sum(path.stat().st_size for path in (folder / "log").glob("*.log"))


def rows_wanted(folder: Path) -> dict[str, list[tuple[Any, ...]]]:
    read = f"read_csv('{folder}/trades.csv', header = true, columns = {TRADES})"
    database = duckdb.connect()
    database.execute(
        "CREATE TABLE trades AS "
        f"SELECT * REPLACE (make_timestamp_ns(ts) AS ts), ROW_NUMBER() OVER () AS place FROM {read}"
    )
    database.execute(f"CREATE TABLE quotes AS SELECT * FROM '{folder}/quotes.parquet'")
    return {view: sorted(database.execute(sql).fetchall()) for view, sql in WANTED.items()}


@pytest.mark.sampled(2)
@pytest.mark.parametrize("every", ["60s", "0.05s"])
def test_a_run_that_is_killed_in_the_middle_of_its_files_goes_on_there(
    every: str, tmp_path: Path, orderbook: Program, monkeypatch: pytest.MonkeyPatch, request: Any
) -> None:
    monkeypatch.chdir(tmp_path)
    random, count = Random(f"{every} {request.config.getoption('seed')}"), 6_000
    (tmp_path / "v.sql").write_text(VIEWS)
    (tmp_path / "c.toml").write_text(SETTINGS.format(every=every))
    with (tmp_path / "trades.csv").open("w") as file:
        file.write("ts,symbol,price,size\n" + lines(random, 0, count))
    write_quotes(tmp_path / "quotes.parquet", random, count)
    kills = 0
    for _ in range(2):
        kills += killed(tmp_path, random.randrange(1, 200_000))
        # It has grown since.
        with (tmp_path / "trades.csv").open("a") as file:
            file.write(lines(random, count, 500))
        count += 500
    assert kills
    arguments = ("run", "--config", "c.toml", "--feed", "rows:trades.csv", "--feed", "rows:quotes.parquet")
    for _ in range(2):
        # The second time there is nothing left to do.
        found = orderbook(*arguments, "--no-monitor")
        assert found.status == 0, found.err
        past = open_past_run(load_configuration(Path("c.toml")), None)
        past.go_to((LAST, LAST, LAST))
        for view, wanted in rows_wanted(tmp_path).items():
            rows = [tuple(row.values()) for row in past.engine[view].values()]
            assert rows and sorted(rows) == wanted


def test_a_file_that_is_shorter_than_what_the_log_has_of_it_is_refused(
    tmp_path: Path, orderbook: Program, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "v.sql").write_text(VIEWS)
    (tmp_path / "c.toml").write_text(SETTINGS.format(every="60s"))
    (tmp_path / "trades.csv").write_text("ts,symbol,price,size\n" + lines(Random(1), 0, 9))
    arguments = ("run", "--config", "c.toml", "--feed", "rows:trades.csv", "--no-monitor")
    assert orderbook(*arguments).status == 0
    (tmp_path / "trades.csv").write_text("ts,symbol,price,size\n" + lines(Random(1), 0, 8))
    found = orderbook(*arguments)
    assert found.status == 2
    assert "rows:trades.csv: the log has it up to line 10, and it ends before" in found.err
