"""Recordings: what is written while a live feed is followed replays to the same, whatever happens to it."""

import asyncio
import errno
import itertools
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterable
from pathlib import Path

import numpy as np
import pytest
from capture_support import joined, kraken_recording, served, up_to_the_cut, without_receive_times
from command_line_support import (  # noqa: F401
    NO_STRATEGIES,
    TOTALS,
    EndsOnce,
    Program,
    books_valid,
    ends_once,
    orderbook,
    write,
)
from hypothesis import given
from hypothesis import strategies as st
from recording_support import lines_of, recorder
from samples import PATIENCE

from orderbook.core.errors import SourceError
from orderbook.feeds.exchanges.exchange import ExchangeOptions
from orderbook.feeds.live.live_feed import LiveFeed
from orderbook.feeds.live.simulated_exchange import Simulated, SimulatedExchange, simulated_instruments
from orderbook.feeds.raw_log import Line
from orderbook.feeds.recording import raw_recorder
from orderbook.feeds.recording.capture_files import RecordedLines, read_head
from orderbook.feeds.recording.capture_replay import CaptureSource
from orderbook.feeds.recording.parquet_record import RecordSource
from orderbook.feeds.recording.raw_recorder import RawFile, RawRecorder, Rotation
from orderbook.market.events import EVENT, Action, BookState, StateReason

PRODUCTS = ["BTC-USD", "ETH-USD"]
SYNCING, VALID, STALE = BookState.SYNCING, BookState.VALID, BookState.STALE


class Parted(Simulated):
    """A connection for each product."""

    products_per_connection = 1


def follow(folder: Path, rotation: Rotation, kind: type[Simulated] = Simulated) -> np.ndarray:
    """Record two simulated products, with lost messages and a broken connection; the live feed's events."""

    async def run() -> np.ndarray:
        exchange = SimulatedExchange.generated(PRODUCTS, events_per_second=3000.0)
        async with exchange:
            instruments = simulated_instruments(PRODUCTS)
            recorder = RawRecorder(
                folder, "simulated", "coinbase_full", instruments=instruments, rotation=rotation
            )
            addresses = ExchangeOptions(exchange.url, exchange.rest_url)
            feed = LiveFeed(kind, instruments, range(2), addresses, recorder.connection)
            batches: list[np.ndarray] = []

            async def take() -> None:
                async with feed:
                    async for events in feed:
                        recorder.events(events)
                        batches.append(events)

            async def valid(count: int) -> None:
                """Wait until books have become valid so often."""
                while True:
                    events = joined(batches) if batches else np.empty(0, EVENT)
                    if ((events["action"] == Action.STATE) & (events["volume"] == VALID)).sum() >= count:
                        return
                    await asyncio.sleep(0.05)

            async def synchronised() -> None:
                """Wait until no book waits for a snapshot, which a server could give at another moment."""
                books = [book for shard in feed.shards for book in shard.session.books.values()]
                while not all(book.state is VALID for book in books):
                    await asyncio.sleep(0.05)

            async with asyncio.timeout(PATIENCE):
                taking = asyncio.create_task(take())
                await valid(2)
                exchange.lose_messages(5)
                await valid(3)
                await synchronised()
                exchange.disconnect_clients()
                await valid(5)
                await feed.close()
                await taking
            recorder.close()
            return joined(batches)

    return asyncio.run(run())


@pytest.mark.parametrize("rotation", [Rotation(), Rotation(size=20_000), Rotation(seconds=0.2)])
def test_raw_frames_and_the_record_replay_to_what_was_seen_live(tmp_path: Path, rotation: Rotation) -> None:
    live = follow(tmp_path, rotation)
    source = CaptureSource(tmp_path)
    raw, normalised = joined(source), joined(RecordSource(sorted(tmp_path.glob("*.parquet"))))
    assert raw.tobytes() == live.tobytes()
    assert normalised.tobytes() == live.tobytes()
    files = sorted(tmp_path.glob("*.jsonl.zst"))
    assert (len(files) > 2) == (rotation != Rotation())
    assert source.statistics.gaps >= 1 and source.statistics.reconnects == 1
    # On a busy machine a snapshot may come too late for what was received meanwhile; another is asked for.
    assert source.problems.counts.keys() - {"old snapshot"} == {"gap", "disconnected"}
    names = {file.name.partition(".jsonl")[0] for file in files}
    assert names == {file.stem for file in tmp_path.glob("*.parquet")}
    assert all(name.startswith("simulated-2") and name.endswith("Z") for name in names)


def test_a_recording_of_several_connections_is_served_as_it_was(tmp_path: Path) -> None:
    live = follow(tmp_path, Rotation(size=100_000), Parted)
    assert joined(CaptureSource(tmp_path)).tobytes() == live.tobytes()
    again, statistics = served(tmp_path, Parted)
    assert statistics.reconnects == 2 and statistics.gaps >= 1
    for index in range(2):
        own, other = (events[events["instrument"] == index] for events in (live, again))
        assert without_receive_times(own) == without_receive_times(other)


payload = st.one_of(st.binary(max_size=60), st.text(max_size=60).map(str.encode))
kinds = st.sampled_from(["recv", "send", "http", "connect", "disconnect"])
told = st.lists(st.tuples(kinds, payload), max_size=30)
_numbers = itertools.count()


def rerecorded(lines: Iterable[Line], folder: Path) -> list[Path]:
    """The lines, recorded with a file for each; the raw files in their order."""
    made, log = recorder(folder, rotation=Rotation(seconds=0))
    for line in lines:
        if line.t == "recv":
            log.received(line.payload, line.time)
        elif line.t == "connect":
            log.connected("", line.time)
        elif line.t == "disconnect":
            log.disconnected("", line.time, StateReason.DISCONNECTED)
    made.close()
    files = sorted(folder.iterdir())
    assert len(files) == made.counts.lines > 10
    return files


def states_of(path: Path) -> list[int]:
    events = joined(CaptureSource(path))
    states: list[int] = events[events["action"] == Action.STATE]["volume"].tolist()
    return states


def test_a_file_is_followed_by_the_next_and_alone_not_valid_before_a_snapshot(tmp_path: Path) -> None:
    whole = kraken_recording(tmp_path / "whole.jsonl", "kraken", 10**18, 1000, 1, messages=6)
    end = 10**18 + 10**9
    lines = [*lines_of(whole), Line("disconnect", ts=end)]
    lines += [Line(line.t, ts=line.time + end, data=line.data) for line in lines_of(whole)]
    files = rerecorded(lines, tmp_path / "all")
    expected = [SYNCING, VALID, STALE, SYNCING, VALID]
    assert states_of(tmp_path / "all") == expected
    first = joined(CaptureSource(whole))
    assert joined(CaptureSource(tmp_path / "all"))[: len(first)].tobytes() == first.tobytes()
    # From the third update on: the book is unknown until the connection after it.
    later = tmp_path / "later"
    later.mkdir()
    for file in files[5:]:
        file.rename(later / file.name)
    source = CaptureSource(later)
    changed = joined(source)
    assert changed[changed["action"] == Action.STATE]["volume"].tolist() == [SYNCING, STALE, SYNCING, VALID]
    assert (changed["action"][:4] == [Action.STATE, Action.CLEAR, Action.STATE, Action.STATE]).all()
    assert source.problems.counts["recording begins in between"] == 1
    assert states_of(later / files[7].name) == [SYNCING]


def test_books_are_unknown_after_a_missing_file(tmp_path: Path) -> None:
    whole = kraken_recording(tmp_path / "whole.jsonl", "kraken", 10**18, 1000, 1, messages=20)
    files = rerecorded(lines_of(whole), tmp_path / "all")
    files[12].unlink()
    source = CaptureSource(tmp_path / "all")
    events = joined(source)
    states = events[events["action"] == Action.STATE]
    assert states["volume"].tolist() == [SYNCING, VALID, STALE, SYNCING]
    # Nothing is made of the frames after it.
    assert events["receive_time"][-1] == states["receive_time"][-1] < 10**18 + 14 * 10**7
    assert source.problems.counts["recording begins in between"] == 1


def test_a_recording_after_another_begins_books_anew(tmp_path: Path) -> None:
    for number in range(2):
        path = tmp_path / f"{number}.jsonl"
        whole = kraken_recording(path, "kraken", 10**18 + number * 10**9, 1000 + number, 1, messages=12)
        rerecorded(lines_of(whole), tmp_path / f"all-{number}")
    for file in sorted((tmp_path / "all-1").iterdir()):
        file.rename(tmp_path / "all-0" / file.name)
    assert states_of(tmp_path / "all-0") == [SYNCING, VALID, STALE, SYNCING, VALID]


@given(told, st.sampled_from([0.0, 60.0]))
def test_what_was_told_is_what_is_read(
    tmp_path_factory: pytest.TempPathFactory, items: list[tuple[str, bytes]], seconds: float
) -> None:
    folder = tmp_path_factory.getbasetemp() / f"told-{next(_numbers)}"
    made, log = recorder(folder, rotation=Rotation(seconds=seconds))
    expected = []
    for time_, (kind, data) in enumerate(items, 1):
        text = data.decode(errors="replace")
        if kind == "recv":
            log.received(data, time_)
        elif kind == "send":
            log.sent(text, time_)
        elif kind == "http":
            log.answered("https://x/" + text[:5], data, time_)
        elif kind == "connect":
            log.connected(text, time_)
        else:
            log.disconnected(text, time_, 3)
        shown = data if kind in ("recv", "http") else text
        expected.append((kind, time_, shown))
    made.close()
    if not items:
        assert not list(folder.iterdir())
        return
    found = []
    for line in lines_of(folder):
        shown = {"send": line.data, "connect": line.addr, "disconnect": line.reason}.get(line.t, line.payload)
        found.append((line.t, line.ts, shown))
    assert found == expected
    assert made.counts.lines == len(items)
    assert made.counts.bytes == sum(file.stat().st_size for file in folder.iterdir())


def test_a_cut_file_reads_up_to_the_cut(tmp_path: Path) -> None:
    made, log = recorder(tmp_path)
    noise = np.random.default_rng(1)
    for number in range(400):
        log.received(noise.integers(32, 126, 2000, np.uint8).tobytes(), number)
    made.close()
    (path,) = tmp_path.iterdir()
    whole = path.read_bytes()
    for size in (len(whole) - 1, len(whole) // 2):
        path.write_bytes(whole[:size])
        lines = RecordedLines(read_head(path, None, ()))
        times = [line.ts for line in lines if line.t == "recv"]
        assert times == list(range(len(times)))
        assert len(times) > 400 * size / len(whole) - 150
        with pytest.raises(SourceError, match=r"truncated after line \d+"):
            lines.raise_if_cut()


def test_a_slow_disk_slows_the_feed_and_loses_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    free, write_ = threading.Event(), RawFile.write
    monkeypatch.setattr(raw_recorder, "MOST_WAITING", 10_000)
    monkeypatch.setattr(RawFile, "write", lambda self, data: (free.wait(PATIENCE), write_(self, data))[1])
    made, log = recorder(tmp_path)

    async def feed() -> int:
        """Frames told before the disk was there."""
        told = 0
        while told < 20:
            log.received(b"x" * 1000, told + 1)
            told += 1
            waiting = asyncio.create_task(log.room())
            done, _ = await asyncio.wait([waiting], timeout=0.5)
            if not done:
                before = told
                free.set()
                await waiting
                return before
        free.set()
        return told

    told = asyncio.run(feed())
    made.close()
    assert len(lines_of(tmp_path)) == told == 9


@pytest.fixture
def full_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    """A disk that is full after 200 kB; what is flushed is so often."""
    written, os_write = 0, os.write

    def write_(file: int, data: bytes) -> int:
        nonlocal written
        if written > 200_000 and len(data) > 10:
            # Half of it still fits.
            os_write(file, bytes(data)[: len(data) // 2])
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        written += len(data)
        return os_write(file, data)

    monkeypatch.setattr("orderbook.feeds.recording.raw_recorder.os.write", write_)
    monkeypatch.setattr(raw_recorder, "FLUSH_SECONDS", 0.05)


def test_a_full_disk_ends_the_recording_with_whole_files(tmp_path: Path, full_disk: None) -> None:
    made, log = recorder(tmp_path)
    noise, told = np.random.default_rng(1), 0
    deadline, failure = time.monotonic() + PATIENCE, ""
    while not failure:
        assert time.monotonic() < deadline
        try:
            log.received(noise.integers(32, 126, 2000, np.uint8).tobytes(), told)
        except SourceError as error:
            failure = str(error)
        told += 1
        time.sleep(0.001)
    assert "the recording ended: No space left on device; what was written before is whole" in failure
    with pytest.raises(SourceError, match="No space left"):
        made.close()
    with pytest.raises(SourceError, match="No space left"):
        asyncio.run(log.room())
    lines = RecordedLines(read_head(tmp_path, None, ()))
    times = [line.ts for line in lines if line.t == "recv"]
    lines.raise_if_cut()
    assert times == list(range(len(times)))
    assert 10 < len(times) < told


def test_a_folder_that_cannot_be_made_is_one_error(tmp_path: Path) -> None:
    write(tmp_path / "file", "")
    with pytest.raises(SourceError, match="file/x: the recording ended: Not a directory"):
        RawRecorder(tmp_path / "file" / "x", "kraken", "kraken")


CALL = [sys.executable, "-m", "orderbook.command_line", "record"]


@pytest.fixture
def environment(project: Path) -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(project)}


def wait_for(folder: Path, size: int, process: subprocess.Popen[str]) -> None:
    """Until the raw files have so many bytes."""
    deadline = time.monotonic() + PATIENCE
    while sum(file.stat().st_size for file in folder.rglob("*.zst")) < size:
        assert time.monotonic() < deadline and process.poll() is None
        time.sleep(0.05)


def test_a_killed_recorder_leaves_a_file_that_reads(tmp_path: Path, environment: dict[str, str]) -> None:
    call = [*CALL, "--out", str(tmp_path)]
    with subprocess.Popen(call, env=environment, stdout=subprocess.PIPE, text=True) as one:
        wait_for(tmp_path, 150_000, one)
        one.kill()
    events = up_to_the_cut(CaptureSource(tmp_path / "simulated"), "truncated after line")
    assert len(events) > 100


def test_a_signal_ends_a_recording_in_order(tmp_path: Path, environment: dict[str, str]) -> None:
    # It ends before the exchange has synchronised every book.
    call = [*CALL, "--out", str(tmp_path), "--rotate", "10KB", "--allow-incomplete"]
    with subprocess.Popen(call, env=environment, stdout=subprocess.PIPE, text=True) as one:
        wait_for(tmp_path, 20_000, one)
        one.send_signal(signal.SIGTERM)
        out, _ = one.communicate(timeout=PATIENCE)
    assert one.returncode == 0
    assert f"recording {tmp_path}/simulated: " in out
    assert "feed simulated:BTC-USD,ETH-USD,SOL-USD: frames" in out
    raw = joined(CaptureSource(tmp_path / "simulated"))
    assert not list(tmp_path.rglob("*.partial"))
    assert raw.tobytes() == joined(RecordSource(sorted(tmp_path.rglob("*.parquet")))).tobytes()


def test_a_disk_without_room_is_one_line_and_status_2(
    orderbook: Program,  # noqa: F811
    tmp_path: Path,
    full_disk: None,
) -> None:
    result = orderbook("record", "--out", tmp_path, "--duration", 60)
    assert result.status == 2
    (line,) = result.error_lines
    assert "jsonl.zst: the recording ended: No space left on device" in line
    assert f"recording {tmp_path}/simulated: " in result.out
    assert len(joined(CaptureSource(tmp_path / "simulated"))) > 100


FEED = '[[feeds]]\nkind = "simulated"\nproducts = ["BTC-USD"]\nevents_per_second = 1000\n'


def test_replays_of_both_recordings_have_the_view_events_of_the_run(
    orderbook: Program,  # noqa: F811
    ends_once: EndsOnce,  # noqa: F811
    tmp_path: Path,
) -> None:
    ends_once(lambda pipeline, messages: books_valid(pipeline) and messages > 1_000)
    view = write(tmp_path / "totals.sql", TOTALS)
    recording = '[record]\nfolder = "recordings"\nrotate = "1h"\n'
    config = write(tmp_path / "c.toml", NO_STRATEGIES + FEED + recording)
    out = tmp_path / "run.ndjson"
    result = orderbook("run", "--config", config, "--view", view, "--duration", PATIENCE, "--out", out)
    assert result.status == 0, result.err
    folder = tmp_path / "recordings" / "simulated"
    assert f"recording {folder}: " in result.out
    outs = [out]
    for kind in ("capture", "record"):
        outs.append(tmp_path / f"{kind}.ndjson")
        config = write(tmp_path / "r.toml", '[run]\nbackend = "interpreter"\nstrategies = []\n')
        options = ("--config", config, "--view", view, "--out", outs[-1])
        replayed = orderbook("replay", f"{kind}:{folder}", *options)
        assert replayed.status == 0, replayed.err
    assert outs[1].read_bytes() == outs[2].read_bytes()
    seen, again = ([told_in(line) for line in one.read_text().splitlines()] for one in outs[:2])
    assert len(seen) > 100
    # What was received in the last moment is recorded, and the run may have ended before it came to that.
    assert again[: len(seen)] == seen


def told_in(line: str) -> tuple[object, ...]:
    """What a line of a view's output says, but for the stamps that differ between a run and a replay."""
    told = json.loads(line)
    return told["view"], told["ts"], told["version"][2], told["key"], told["row"]


def test_record_refuses_what_is_not_live(orderbook: Program, tmp_path: Path) -> None:  # noqa: F811
    recording = write(tmp_path / "x.ndjson", '{"stream": "bids", "op": "+", "row": {}}\n')
    for arguments, message in (
        (("--feed", f"changes:{recording}"), "is no live feed, so there are no frames to record"),
        (("--rotate", "soon"), 'record.rotate: expected a size or time such as "1 GB" or "1h"'),
        (("--feed", f"capture:{recording}?speed=fast"), "the speed must be a number, such as 1 or 0.5"),
        (("--feed", f"capture:{tmp_path}/none.jsonl"), "none.jsonl: cannot read: No such file or directory"),
    ):
        result = orderbook("record", "--out", tmp_path / "out", *arguments)
        assert result.status == 2
        (line,) = result.error_lines
        assert message in line
