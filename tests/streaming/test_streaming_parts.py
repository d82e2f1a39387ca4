"""Block logs, the sink, stored states and jobs of streams, each by itself."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pytest
from backtest_support import job_settings
from numpy.typing import NDArray
from streaming_support import (
    DEEP,
    Recorded,
    entries_of,
    settings,
)

from orderbook.backtesting.sources import run_instruments, source_specs
from orderbook.command_line import status_of
from orderbook.core.errors import UserError
from orderbook.durability.journal import IDENTITY, instruments_record, stamped_record
from orderbook.engine.log.log import Log, SyncPolicy
from orderbook.feeds.merge import read_slices
from orderbook.jobs.job import open_job
from orderbook.jobs.writers import DatasetWriter
from orderbook.run.event_queue import Stamped
from orderbook.streaming.block_log import decoded
from orderbook.streaming.block_writer import CutSettings
from orderbook.streaming.job import StreamSink, checkpoint, start_stream
from orderbook.streaming.log_follower import write_logged_blocks
from orderbook.streaming.shuffle import FINAL, SINK, ShuffleRow


def test_what_one_node_commits_waits_for_the_others(recorded: Recorded, tmp_path: Path) -> None:
    start_stream(settings(tmp_path, 2), [str(recorded.logs)])
    dataset = open_job(tmp_path).manifest.views["largest"]

    def final(node: int, epoch: int) -> ShuffleRow:
        """A node's epoch, which has one row."""
        writer = DatasetWriter(tmp_path, dataset)
        version = {"stamp": 10 * epoch - 5, "switch": node, "sequence": epoch}
        writer.write(pa.table({f.name: [version.get(f.name)] for f in dataset.fields}))
        files = msgspec.msgpack.encode({"largest": writer.close()})
        return ShuffleRow(SINK, node, FINAL, 0, node, epoch=epoch, end=10 * epoch, bytes=files)

    def rows() -> list[tuple[int, int]]:
        return open_job(tmp_path).history("largest").select("stamp", "switch").rows()

    first = [final(0, 1), final(0, 2)]
    for _ in range(2):  # the batch comes twice, to a sink that was started again
        sink = StreamSink(tmp_path, ["0.0", "0.1"])
        sink.take(0, first)
        assert rows() == [] and sink.progress.epoch == 0
    sink.take(1, [final(1, 1)])
    assert rows() == [(5, 0), (5, 1)] and sink.progress.end == 10
    StreamSink(tmp_path, ["0.0", "0.1"]).take(2, [final(1, 2), final(1, 3)])
    assert rows() == [(5, 0), (5, 1), (15, 0), (15, 1)]


def test_another_layout_is_another_generation(recorded: Recorded, tmp_path: Path) -> None:
    job, logs = settings(tmp_path / "job", 2), [str(recorded.logs)]
    first, _ = start_stream(job, logs, chain=3)
    (checkpoint(first) / "offsets").mkdir(parents=True)
    assert start_stream(job, logs, chain=3)[0] == first and (checkpoint(first) / "offsets").is_dir()
    second, _ = start_stream(job, logs, chain=2)  # three levels as tables
    assert second.generation == 1 and not checkpoint(first).exists()
    third, _ = start_stream(replace(job, compute="auto"), logs, chain=2)
    assert third.generation == 2
    (tmp_path / "log").mkdir()
    for folder in recorded.logs.iterdir():
        copy = tmp_path / "log" / folder.name
        copy.mkdir()
        (copy / "log.json").write_bytes((folder / "log.json").read_bytes())
        (copy / "000000000007.parquet").write_bytes(b"")
    with pytest.raises(UserError, match="the log's beginning is gone"):
        start_stream(settings(tmp_path / "other", 2), [str(tmp_path / "log")])


def test_streams_that_are_refused(recorded: Recorded, tmp_path: Path) -> None:
    good = settings(tmp_path / "job", 2)
    with pytest.raises(UserError, match="no block log there"):
        start_stream(good, [str(tmp_path)])
    with pytest.raises(UserError, match="switches 0, of 2"):
        start_stream(good, [str(recorded.logs / "switch-0")])
    start_stream(good, [str(recorded.logs)])
    other = job_settings(tmp_path / "job", 2, sql=DEEP, views=("sides",))
    with pytest.raises(UserError, match="a stream of other views"):
        start_stream(other, [str(recorded.logs)])
    own = "CREATE STREAM ticks (n INTEGER); CREATE VIEW t AS SELECT COUNT(*) AS n FROM ticks;"
    foreign = job_settings(tmp_path / "foreign", 2, sql=own, views=("t",))
    with pytest.raises(UserError, match="reads ticks, which the block log does not hold"):
        start_stream(foreign, [str(recorded.logs)])


def test_the_log_of_a_run_gives_what_its_sources_give(recorded: Recorded, tmp_path: Path) -> None:
    specs = source_specs([str(recorded.folder / "flow")])
    instruments = run_instruments(specs)
    with Log.open(tmp_path / "log", IDENTITY, policy=SyncPolicy.parse("never")) as log:
        log.append(instruments_record(0, instruments))
        for part in read_slices(list(enumerate(specs)), instruments):
            events, versions = part.events.events, part.events.versions
            last: NDArray[np.int64] = versions["last"]
            switches: NDArray[np.int64] = versions["switch"]
            ends = np.flatnonzero(np.diff(last) | np.diff(switches)) + 1
            for own, places in zip(np.split(events, ends), np.split(versions, ends), strict=True):
                if len(own):
                    switch = int(places["switch"][0])
                    log.append(stamped_record(Stamped(int(places["stamp"][0]), switch, own)))
    program = settings(tmp_path / "none", 1).program.compiled()
    cut = CutSettings(program, tmp_path / "logs", 2, 1_000_000, 250_000)
    write_logged_blocks(tmp_path / "log", cut, lambda _: None)
    found: dict[str, list[Any]] = {}
    expected: dict[str, list[Any]] = {}
    for rows, entries in ((found, entries_of(tmp_path / "logs")), (expected, recorded.entries)):
        for block in (b for entry in entries for b in decoded(entry, program.dictionary)):
            for version, deleted, values in zip(block.versions, block.deletes, block.values, strict=True):
                rows.setdefault(block.source, []).append((version.item(), bool(deleted), values.tolist()))
    assert {name: sorted(rows) for name, rows in found.items()} == {
        name: sorted(rows) for name, rows in expected.items()
    }
    assert {"bids", "asks", "trades"} <= found.keys()


def test_commands(recorded: Recorded, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    view, flow = tmp_path / "deep.sql", recorded.folder / "flow"
    view.write_text(DEEP)
    blocks = ["blocks", str(flow), "--view", str(view), "--switches", "2", "--epoch", "1ms"]
    assert status_of([*blocks, "--out", str(tmp_path / "logs")]) == 0
    assert f"{recorded.epochs} epochs" in capsys.readouterr().out
    found, expected = entries_of(tmp_path / "logs"), recorded.entries
    assert [(e.switch, e.number, e.epoch, e.rows) for e in found] == [
        (e.switch, e.number, e.epoch, e.rows) for e in expected
    ]
    assert status_of([*blocks, "--out", str(tmp_path / "logs")]) == 2
    assert "not empty" in capsys.readouterr().err
