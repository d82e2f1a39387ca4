"""Latencies that were measured: files of them, what is between their rows, and those of recordings."""

from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from command_line_support import Program, orderbook, write
from hypothesis import given
from hypothesis import strategies as st

from orderbook.core.errors import ConfigurationError
from orderbook.feeds.recording.parquet_record import RecordWriter
from orderbook.jobs.job import open_job
from orderbook.market.synthetic_flow import START, generate, synthetic_instruments
from orderbook.strategies.execution.recorded_delays import DelayTable, order_delays, read_delays
from orderbook.strategies.execution.venue_model import Delays

__all__ = ["orderbook"]

Row = tuple[int, int]
DTYPE = np.dtype([(name, "i8") for name in ("req_ts", "exch_ts", "resp_ts", "_padding")])


def interpolated(rows: Sequence[Row], time: int) -> int:
    """As hftbacktest's IntpOrderLatency looks: row after row."""
    if time < rows[0][0]:
        return rows[0][1]
    for (x1, y1), (x2, y2) in pairwise(rows):
        if x1 <= time < x2:
            return int((y2 - y1) / (x2 - x1) * (time - x1)) + y1
    return rows[-1][1]


@given(
    st.lists(st.tuples(st.integers(0, 10**13), st.integers(-(10**9), 10**10)), min_size=1, max_size=9),
    st.lists(st.integers(-5, 10**13 + 5), min_size=1),
)
def test_delays_between_rows_are_hftbacktests(rows: list[Row], times: list[int]) -> None:
    rows = sorted(dict(rows).items())
    columns = np.array(rows, np.int64).T
    delays = Delays(DelayTable(columns[0], columns[1]), 0, "S", "order")
    for time in [*times, *(time for time, _ in rows)]:
        assert delays.of(1, 1, time) == interpolated(rows, time)


def table(*rows: tuple[int, int, int]) -> np.ndarray:
    return np.array([(*row, 0) for row in rows], DTYPE)


ROWS = table((100, 130, 180), (200, 215, 290), (400, 460, 500))


def test_files_of_three_kinds_say_the_same(tmp_path: Path) -> None:
    frame = pl.DataFrame({name: ROWS[name] for name in DTYPE.names or ()})
    np.savez(tmp_path / "a.npz", data=ROWS)
    np.save(tmp_path / "a.npy", ROWS)
    frame.write_csv(tmp_path / "a.csv")
    frame.write_parquet(tmp_path / "a.parquet")
    found = {read_delays([path]) for path in tmp_path.iterdir()}
    assert len(found) == 1
    orders, responses = found.pop()
    assert orders.rows.tolist() == [[100, 30], [200, 15], [400, 60]]
    assert responses.rows.tolist() == [[130, 50], [215, 75], [460, 40]]
    np.savez(tmp_path / "first.npz", data=ROWS[1:])
    np.savez(tmp_path / "last.npz", data=ROWS[:1])
    assert read_delays([tmp_path / "first.npz", tmp_path / "last.npz"]) == (orders, responses)
    assert read_delays([tmp_path / "first.npz"]) != (orders, responses)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("req_ts,exch_ts\n1,2\n", "no column resp_ts; a file of latencies has req_ts, exch_ts, resp_ts"),
        ("req_ts,exch_ts,resp_ts\n", "no rows of latencies"),
        ("req_ts,exch_ts,resp_ts\n1,2,3\n4,0,6\n", "row 2: exch_ts is 0, which is no time in ns; leave out"),
        ("req_ts,exch_ts,resp_ts\n1,2,-3\n", "row 1: resp_ts is -3, which is no time in ns"),
        ("req_ts,exch_ts,resp_ts\n1,,3\n", "exch_ts has to be whole ns since 1970 in each row"),
        ("req_ts,exch_ts,resp_ts\n1,2.5,3\n", "exch_ts has to be whole ns since 1970 in each row"),
        ("", "no table of latencies"),
        (None, "cannot be read: No such file or directory"),
    ],
)  # fmt: skip
def test_files_that_are_none(tmp_path: Path, text: str | None, said: str) -> None:
    path = tmp_path / "latencies.csv"
    if text is not None:
        path.write_text(text)
    with pytest.raises(ConfigurationError) as raised:
        read_delays([path])
    assert str(raised.value).startswith(f"{path}: {said}")
    (tmp_path / "bad.npz").write_bytes(b"no zip")
    with pytest.raises(ConfigurationError, match="no table of latencies"):
        read_delays([tmp_path / "bad.npz"])


def test_orders_take_as_long_as_messages_did() -> None:
    received = np.array([1_020, 1_010, 2_050, 3_030])
    found = order_delays(received, np.array([1_000, 1_000, 2_000, 3_000]), 1_000, (2, 0.5), 5)
    # The last message of each step: 20, 50 and 30 ns under way.
    assert found.requests.tolist() == [1_020, 2_050, 3_030] and found.clock_behind == 0
    assert (found.takes - found.requests).tolist() == [40, 100, 60]
    assert (found.answers - found.takes).tolist() == [10, 25, 15]
    behind = order_delays(received - 500, np.array([1_000, 1_000, 2_000, 3_000]), 1_000, (2, 0.5), 5)
    # The fastest, 10 ns under way, is taken to have taken 5.
    assert behind.clock_behind == 495
    assert (behind.takes - behind.requests - 495).tolist() == [30, 90, 50]
    assert (behind.answers - behind.takes + 495).tolist() == [8, 22, 12]


TAKER = """
from orderbook import Strategy, on_timer


class TakerOfRecorded(Strategy):
    defaults = {"volume": 1}

    @on_timer("100ms")
    def takes(self):
        self.buy("AAA-USD", self.parameters["volume"])
"""
CONFIG = """
[run]
backend = "interpreter"
[simulation]
order_latency = { files = ["data/latencies.csv"] }
response_latency = { files = ["data/latencies.csv"] }
"""


def test_a_backtest_with_the_latencies_of_its_recording(
    orderbook: Program, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    flow = next(generate(600, 1, 10, 3, resting=40, batch=600, rate=300.0))
    # 2 to 30 ms under way.
    flow["exchange_time"] = flow["receive_time"]
    flow["receive_time"] += 2_000_000 + (flow["receive_time"] - START) // 7 % 28_000_000
    flow = flow[np.argsort(flow["receive_time"], kind="stable")]
    with RecordWriter(tmp_path / "flow.parquet", synthetic_instruments(1)) as writer:
        writer.write(flow)
    (tmp_path / "etc" / "data").mkdir(parents=True)
    write(tmp_path / "taker_of_recorded.py", TAKER)
    write(tmp_path / "etc" / "c.toml", CONFIG)
    backtest: tuple[Any, ...] = (
        "backtest", "flow.parquet", "--config", "etc/c.toml", "--strategy",
        "taker_of_recorded:TakerOfRecorded", "--out", "job",
    )  # fmt: skip
    without = orderbook(*backtest)
    assert without.status == 2 and "latencies.csv: cannot be read" in without.error_lines[-1]
    made = orderbook(
        "latencies", "flow.parquet", "--every", "50ms", "--order", "2", "--out", "etc/data/latencies.csv"
    )
    assert made.status == 0 and "ms behind" not in made.out
    rows = pl.read_csv("etc/data/latencies.csv")
    assert len(rows) > 20 and orderbook(*backtest).status == 0
    latencies = [(sent, taken - sent) for sent, taken in rows.select("req_ts", "exch_ts").rows()]
    changes = open_job("job").order_changes().with_columns(pl.col("ts").dt.timestamp("ns"))
    sent = dict(changes.filter(pl.col("status") == "sent").select("id", "ts").rows())
    done = dict(changes.filter(pl.col("status") == "filled").select("id", "ts").rows())
    assert len(done) > 10
    # Of what is sent together none overtakes another; here each goes alone.
    assert {order: time - sent[order] for order, time in done.items()} == {
        order: interpolated(latencies, sent[order]) for order in done
    }


def test_orders_see_no_files_of_their_feed(orderbook: Program, tmp_path: Path) -> None:
    path = write(tmp_path / "c.toml", CONFIG.replace("response_latency", "feed_latency"))
    result = orderbook("check", "--config", path)
    assert result.status == 2 and "a time, an array of times, or a distribution: no files" in result.err
    assert "c.toml:6" in result.err


def test_recordings_without_both_times(orderbook: Program, tmp_path: Path) -> None:
    flow = next(generate(40, 1, 10, 3, resting=40, batch=40))
    flow["exchange_time"] = flow["receive_time"]
    with RecordWriter(tmp_path / "flow.parquet", synthetic_instruments(1)) as writer:
        writer.write(flow)
    for name, said in (
        ("l.csv", "no times of both the exchange and the receiver"),
        ("l.txt", "a .csv or .parquet"),
    ):
        result = orderbook("latencies", tmp_path / "flow.parquet", "--out", tmp_path / name)
        assert result.status == 2 and said in result.err and not (tmp_path / name).exists()
