"""Stages over the books of one source have the rows, problems and findings that blocks of rows give."""

import tempfile
from collections.abc import Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import pyarrow.parquet as pq
import pytest
from backtest_support import HISTORIES, contents, job_settings, run, write_records
from hypothesis import given
from hypothesis import strategies as st

from orderbook.backtesting import book_stages, task_runner
from orderbook.backtesting.run import LocalExecutor, backtest
from orderbook.backtesting.sources import source_specs
from orderbook.feeds.recording.parquet_record import RecordWriter
from orderbook.jobs.job import open_job
from orderbook.market.events import EVENT, Action, BookState, Flag
from orderbook.market.instruments import Instrument, Instruments

INSTRUMENTS = Instruments(Instrument("V", name, name, Decimal(1), Decimal(1)) for name in ("A", "B"))
LIMIT = 5
# Of declared ranges, some of the rows lie outside; `tape` has columns in another order than books.
VIEWS = """
CREATE STREAM asks (symbol TEXT NOT NULL, price DECIMAL(9, 8) NOT NULL, volume DECIMAL(18, 8) NOT NULL);
CREATE VIEW depth AS SELECT symbol, SUM(volume) AS volume, COUNT(*) AS orders, MAX(price) AS best
FROM bids GROUP BY symbol;
CREATE VIEW offered AS SELECT symbol, SUM(price * volume) AS turnover FROM asks GROUP BY symbol;
CREATE VIEW tape AS SELECT symbol, side, COUNT(*) AS n, SUM(volume) AS volume FROM trades
GROUP BY symbol, side;
"""
SHOWN = ("depth", "offered", "tape")
GRANULARITIES = ("event", "message", "interval:7", "end")

_ACTIONS = st.sampled_from([Action.LEVEL] * 6 + [Action.TRADE, Action.CLEAR, Action.STATE])
# What an event is, of which book, side, price and volume; whether it ends its message; time since the last.
_EVENTS = st.lists(
    st.tuples(
        _ACTIONS, st.integers(0, 1), st.integers(0, 1), st.integers(1, 12), st.integers(0, 2),
        st.booleans(), st.integers(0, 4),
    ),
    max_size=40,
)  # fmt: skip
Drawn = Sequence[tuple[Any, ...]]


def stream(drawn: Drawn) -> np.ndarray:
    """EVENT[n] of two books that are VALID from the first on; the last message may have no end."""
    events = np.zeros(2 + len(drawn), EVENT)
    events["receive_time"] = 100
    for place in range(2):
        events[place]["instrument"], events[place]["action"] = place, Action.STATE
        events[place]["side"], events[place]["volume"], events[place]["flags"] = 2, BookState.VALID, Flag.LAST
    time = 100
    for row, (action, book, side, price, volume, last, passed) in zip(events[2:], drawn, strict=True):
        time += passed
        row["action"], row["instrument"], row["side"], row["receive_time"] = action, book, side, time
        row["price"], row["volume"] = price, volume
        row["flags"] = Flag.LAST if last else 0
        if action == Action.STATE:
            row["side"], row["price"] = 2, 0
    return events


def outcome(folder: Path, source: Path, granularity: str, **kinds: Any) -> tuple[Any, ...]:
    """All that a job says of a source."""
    kinds = {"views": SHOWN, "sql": VIEWS, **kinds}
    settings = job_settings(folder, 1, granularity, **kinds)
    done = backtest(settings, source_specs([str(source)], LIMIT), LocalExecutor(), "numba")
    events = [statistics.events for statistics in done.manifest.statistics]
    return contents(open_job(folder)), done.problems, done.errors, done.findings, events


def both(folder: Path, source: Path, granularity: str, **kinds: Any) -> list[tuple[Any, ...]]:
    """The same with blocks of rows, and without."""
    found = []
    for name in ("blocks", "books"):
        reader = task_runner._book_reader
        with patch.object(task_runner, "_book_reader", reader if name == "books" else lambda *_: None):
            found.append(outcome(folder / f"{name}-{granularity}", source, granularity, **kinds))
    return found


@given(_EVENTS, st.sampled_from(GRANULARITIES), st.sampled_from([1, 5, 1000]))
def test_rows_are_those_of_blocks(drawn: Drawn, granularity: str, batch: int) -> None:
    with (
        tempfile.TemporaryDirectory() as name,
        patch.multiple(book_stages, _BATCH=batch, _BATCH_OF_HISTORY=batch),
    ):
        folder = Path(name)
        with RecordWriter(folder / "events.parquet", INSTRUMENTS) as writer:
            writer.write(stream(drawn))
        expected, found = both(folder, folder / "events.parquet", granularity)
        assert found == expected


@pytest.mark.sampled(2)
@pytest.mark.parametrize("granularity", ["event", "message", "interval:1000000", "end"])
def test_compiled_stages_of_quotes_and_book_events(granularity: str, tmp_path: Path) -> None:
    write_records(tmp_path / "flow", 900, 1, 2, 5, apart=True)
    kinds: dict[str, Any] = {"views": ("touches", "happened"), "sql": HISTORIES, "backend": "numba"}
    with patch.multiple(book_stages, _BATCH=100, _BATCH_OF_HISTORY=100):
        expected, found = both(tmp_path, tmp_path / "flow", granularity, **kinds)
    assert expected[0]["touches"] and found == expected


def test_a_source_that_is_damaged_ends_there(tmp_path: Path) -> None:
    write_records(tmp_path / "flow", 60_000, 1, 1, 5, apart=True)
    (path,) = (tmp_path / "flow").iterdir()
    data = bytearray(path.read_bytes())
    start = pq.ParquetFile(path).metadata.row_group(0).column(4).data_page_offset
    data[start : start + 200] = bytes(200)
    path.write_bytes(data)
    kinds: dict[str, Any] = {"views": ("depth",), "backend": "numba"}
    expected, found = both(tmp_path, path, "message", **kinds)
    assert found[2] and found == expected


def test_symbols_in_files_of_their_own_are_read_so(tmp_path: Path) -> None:
    write_records(tmp_path / "flow", 400, 3, 2, 5, apart=True)
    kinds: dict[str, Any] = {"views": ("depth",), "sql": VIEWS}
    named = "orderbook.backtesting.task_runner.BookReader"
    with patch(named, side_effect=book_stages.BookReader) as reader:
        job, _ = run(job_settings(tmp_path / "cut", 3, **kinds), [tmp_path / "flow"])
    assert reader.call_count == 3
    alone, _ = run(job_settings(tmp_path / "one", 1, **kinds), [tmp_path / "flow"])
    assert contents(job) == contents(alone)
