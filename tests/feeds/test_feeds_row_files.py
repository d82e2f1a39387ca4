"""Rows of a relation in files: CSV, JSON lines and Parquet, beside what DuckDB and the csv module read."""

import csv
import gzip
import json
import re
from datetime import datetime, timedelta
from decimal import Decimal
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import duckdb
import polars as pl
import pyarrow.parquet as pq
import pytest
from command_line_support import NO_STRATEGIES, Program, orderbook
from hypothesis import given
from hypothesis import strategies as st

from orderbook.core.errors import SourceError
from orderbook.feeds.change_stream import RelationChange
from orderbook.feeds.files.row_file import RowFileSource, open_rows
from orderbook.feeds.merge import ChangeItem, check_relations
from orderbook.feeds.source_kinds import open_source
from orderbook.market.instruments import Instruments
from orderbook.run.pipeline import Pipeline
from orderbook.strategies.gated_engine import GatedEngine
from orderbook.views.compilation import compile_views

__all__ = ["orderbook"]

VIEWS = """
CREATE STREAM quotes (
    ts TIMESTAMP, symbol TEXT, bid DECIMAL(18, 8), ask DOUBLE, size BIGINT, firm BOOLEAN, seen TIMESTAMP
);
CREATE VIEW spreads AS
SELECT symbol, firm, COUNT(*) AS n, SUM(ask - bid) AS spread, SUM(size) AS size, COUNT(bid) AS bids,
       MAX(seen) AS seen
FROM quotes GROUP BY symbol, firm;
"""
COLUMNS = ("ts", "symbol", "bid", "ask", "size", "firm", "seen")
START = datetime(2024, 1, 31, 9, 30)


def rows(count: int = 50) -> list[dict[str, Any]]:
    """Rows with NULLs, texts that need quotes, and symbols that look like numbers."""
    return [
        {
            "ts": (START + timedelta(milliseconds=137 * i)).isoformat(sep=" "),
            "symbol": ("600519", 'A "b", c', "é", "x\ny")[i % 4],
            "bid": None if i % 7 == 0 else f"{100 + i % 5}.{i:02d}",
            "ask": f"{101 + i % 3}.5",
            "size": i % 9,
            "firm": (True, False, None)[i % 3],
            "seen": (START + timedelta(days=i)).isoformat(sep="T"),
        }
        for i in range(count)
    ]


def write_file(path: Path, form: str) -> Path:
    file = path / f"quotes.{form}"
    if form == "csv":
        with file.open("w", newline="") as out:
            writer = csv.DictWriter(out, COLUMNS)
            writer.writeheader()
            writer.writerows(rows())
    elif form == "ndjson":
        file.write_text("".join(json.dumps(row) + "\n" for row in rows()))
    else:
        write_file(path, "csv")
        duckdb.connect().execute(f"COPY ({read(path)}) TO '{file}' (FORMAT parquet)")
    return file


def read(path: Path) -> str:
    types = ("TIMESTAMP", "VARCHAR", "DECIMAL(18, 8)", "DOUBLE", "BIGINT", "BOOLEAN", "TIMESTAMP")
    columns = ", ".join(f"'{name}': '{kind}'" for name, kind in zip(COLUMNS, types, strict=True))
    return f"SELECT * FROM read_csv('{path}/quotes.csv', header = true, columns = {{{columns}}})"


def changes(source: object) -> list[RelationChange]:
    assert isinstance(source, RowFileSource)
    return [change for batch in source for change in batch]


@pytest.mark.parametrize("form", ["csv", "ndjson", "parquet"])
def test_rows_of_every_form_are_what_duckdb_reads(form: str, tmp_path: Path) -> None:
    file = write_file(tmp_path, form)
    write_file(tmp_path, "csv")
    program = compile_views(VIEWS)
    source = open_source(f"rows:{file}")
    found = changes(source)
    pipeline = Pipeline(GatedEngine(program, "interpreter"), Instruments(()))
    pipeline.apply(ChangeItem(source.name, found))
    view = pipeline.engine["spreads"]
    sums = "COUNT(*), SUM(ask - bid::DOUBLE), SUM(size), COUNT(bid), epoch_ns(MAX(seen))"
    wanted = (
        duckdb.connect()
        .execute(f"SELECT symbol, firm, {sums} FROM ({read(tmp_path)}) GROUP BY ALL")
        .fetchall()
    )
    assert not source.problems.counts and not pipeline.problems.counts and source.progress == 1.0
    assert sorted((tuple(row.values()) for row in view.values()), key=str) == sorted(
        ((*row[:3], pytest.approx(row[3]), *row[4:]) for row in wanted), key=str
    )


@pytest.mark.parametrize("form", ["csv", "parquet"])
def test_rows_that_a_window_leaves_equal_are_taken_in_the_order_of_the_file(
    form: str, tmp_path: Path
) -> None:
    file = write_file(tmp_path, form)
    write_file(tmp_path, "csv")
    lagged = """SELECT symbol, SUM(size * before) AS turns FROM (
        SELECT symbol, size, LAG(size) OVER (PARTITION BY symbol ORDER BY {by}) AS before FROM {rows}) q
        GROUP BY symbol"""
    day = "DATE_TRUNC('day', COALESCE(ts, TIMESTAMP '2000-01-01'))"
    program = compile_views(VIEWS + f"CREATE VIEW turns AS {lagged.format(by=day, rows='quotes')}")
    pipeline = Pipeline(GatedEngine(program, "interpreter"), Instruments(()))
    source = open_source(f"rows:{file}")
    pipeline.apply(ChangeItem(source.name, changes(source)))
    counted = f"(SELECT *, ROW_NUMBER() OVER () AS place FROM ({read(tmp_path)}))"
    wanted = duckdb.connect().execute(lagged.format(by=f"{day}, place", rows=counted)).fetchall()
    found = [tuple(row.values()) for row in pipeline.engine["turns"].values()]
    assert sorted(found, key=str) == sorted(wanted, key=str)


@pytest.mark.parametrize("command", ["replay", "backtest"])
def test_a_user_replays_and_backtests_rows(
    command: str, tmp_path: Path, orderbook: Program, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    write_file(tmp_path, "csv")
    (tmp_path / "v.sql").write_text(VIEWS)
    (tmp_path / "c.toml").write_text(NO_STRATEGIES)
    found = orderbook(command, "--config", "c.toml", "--view", "v.sql", "rows:quotes.csv")
    # How far a backtest is, is said where compiling takes long.
    told = [line for line in found.error_lines if not line.startswith("backtesting: ")]
    assert found.status == 0 and "view spreads: " in found.out and not told


ROW = st.tuples(
    st.integers(0, 2**62),
    st.text(st.characters(codec="utf-8", exclude_characters="\r\0"), max_size=8),
    st.decimals(-1000, 1000, places=3),
)


@given(st.lists(ROW, min_size=1, max_size=20), st.sampled_from(",;\t|"))
def test_what_the_csv_module_writes_is_read(written: list[tuple[int, str, Decimal]], delimiter: str) -> None:
    with TemporaryDirectory() as folder:
        path = Path(folder) / "t.csv"
        with path.open("w", newline="", encoding="utf-8") as out:
            writer = csv.writer(out, delimiter=delimiter, quoting=csv.QUOTE_ALL)
            writer.writerows([("ts", "text", "number"), *written])
        found = [(c.time, c.row["text"], c.row["number"]) for c in changes(open_source(f"rows:{path}"))]
    assert found == [(ts, text or None, str(number)) for ts, text, number in written]


@pytest.mark.parametrize(
    ("said", "unit", "ns"),
    [
        ("1706693400", "s", 1_706_693_400 * 10**9),
        ("1706693400.25", "s", 1_706_693_400_250_000_000),
        ("1706693400250", "ms", 1_706_693_400_250_000_000),
        ("17", "ns", 17),
        ("2024-01-31T09:30:00.25Z", "ns", 1_706_693_400_250_000_000),
        ("2024-01-31", "ns", 1_706_659_200 * 10**9),
    ],
)
def test_times_are_numbers_of_a_unit_or_texts(said: str, unit: str, ns: int, tmp_path: Path) -> None:
    (tmp_path / "fills.csv").write_text(f"when,price\n{said},3\n")
    source = open_source(f"rows:{tmp_path}/fills.csv?columns=ts:when,price&unit={unit}")
    (change,) = changes(source)
    assert change == RelationChange(2, "fills", "+", {"ts": ns, "price": "3"}, True, ns)


def test_bad_rows_are_counted_and_left_out(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("ts,price\n1,2\n\n2,3,4\nsoon,5\n,6\n1e30,7\n9,10\n")
    source = open_source(f"rows:{tmp_path}/t.csv")
    assert [change.line for change in changes(source)] == [2, 8]
    assert source.problems.counts == {"malformed row": 4}
    (tmp_path / "t.ndjson").write_text('{"ts": 1}\n{"ts": 2, "x": [1]}\nnothing\n{"ts": 3}\n')
    source = open_source(f"rows:{tmp_path}/t.ndjson")
    assert [change.time for change in changes(source)] == [1, 3]
    assert source.problems.counts == {"malformed row": 2}


def test_of_a_file_that_is_cut_what_was_before_is_read(tmp_path: Path) -> None:
    whole = gzip.compress(b"ts,price\n" + b"".join(b"%d,%d\n" % (i, i * i) for i in range(20_000)))
    (tmp_path / "t.csv.gz").write_bytes(whole[: len(whole) // 2])
    found: list[RelationChange] = []
    batches = iter(open_rows(f"{tmp_path}/t.csv.gz"))
    with pytest.raises(SourceError, match="truncated after line"):
        found.extend(change for batch in batches for change in batch)
    assert found and [int(change.time or 0) for change in found] == list(range(len(found)))


def test_of_parquet_that_is_corrupt_what_was_before_is_read(tmp_path: Path) -> None:
    path = tmp_path / "t.parquet"
    times = [None if i == 10 else i for i in range(9_000)]
    pl.DataFrame({"ts": times, "price": range(9_000)}).write_parquet(path, row_group_size=1_500)
    written = bytearray(path.read_bytes())
    middle = pq.ParquetFile(path).metadata.row_group(4).column(0).data_page_offset
    written[middle : middle + 400] = b"x" * 400
    path.write_bytes(written)
    found: list[RelationChange] = []
    batches = iter(open_rows(str(path)))
    with pytest.raises(SourceError, match="corrupt after row"):
        found.extend(change for batch in batches for change in batch)
    assert [change.time for change in found] == [i for i in range(6_000) if i != 10]


@pytest.mark.parametrize(
    ("text", "options", "error"),
    [
        ("ts,price\n", "?unit=h", "no unit of time is called 'h'"),
        ("ts,price\n", "?time=at", "the file has no column 'at'; its columns are ts, price"),
        ("ts,price\n", "?columns=ts,cost:prize", "the file has no column 'prize'"),
        ("ts,price,ts\n", "", "the header has 'ts' twice"),
        ("ts,price\n", "?key=1", "no option is called 'key'"),
        ("", "", "empty; nothing to read"),
        ("{nothing\n", "", "no row could be read"),
    ],
)
def test_what_cannot_be_opened_is_refused(text: str, options: str, error: str, tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text(text)
    with pytest.raises(SourceError, match=re.escape(error)):
        open_source(f"rows:{tmp_path}/t.csv{options}")


def test_a_file_without_a_kind_says_how_to_read_it(tmp_path: Path) -> None:
    file = write_file(tmp_path, "csv")
    with pytest.raises(SourceError, match=re.escape(f"rows of a stream are rows:{file}?relation=STREAM")):
        open_source(str(file))


def test_a_declaration_that_differs_is_told_before_anything_runs(tmp_path: Path) -> None:
    (tmp_path / "quotes.csv").write_text("ts,symbol,bid,ask,size,firm,seen,more\n")
    source = open_source(f"rows:{tmp_path}/quotes.csv")
    with pytest.raises(SourceError, match="lacks 'more'; correct its declaration, or say columns="):
        check_relations([source], compile_views(VIEWS).program.relations)
