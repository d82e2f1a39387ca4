"""Block logs of a log that grows: whatever stops who writes them, they are those of the whole log."""

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest
from durable_support import INSTRUMENTS, items
from samples import PATIENCE

import orderbook
from orderbook.command_line import status_of
from orderbook.core.errors import SourceError, UserError
from orderbook.core.files import replace_file
from orderbook.durability.journal import (
    IDENTITY,
    Completed,
    completed_record,
    instruments_record,
    stamped_record,
)
from orderbook.engine.log.log import Log, SyncPolicy
from orderbook.engine.log.segments import Record
from orderbook.feeds.change_stream import RelationChange
from orderbook.feeds.merge import ChangeItem, TickItem
from orderbook.run.event_queue import Stamped
from orderbook.streaming import block_log, log_follower
from orderbook.streaming.block_log import Entry, decoded, read_entries, request_end
from orderbook.streaming.block_writer import CutSettings
from orderbook.streaming.log_follower import LogFollower, write_logged_blocks

SQL = """
CREATE STREAM sectors (symbol TEXT NOT NULL, sector TEXT NOT NULL);
CREATE STREAM pings (ts TIMESTAMP NOT NULL, symbol TEXT NOT NULL) RETAIN INTERVAL '20' MICROSECOND;
CREATE VIEW depth AS SELECT symbol, SUM(volume) AS volume FROM bids GROUP BY symbol;
CREATE VIEW joined AS SELECT s.sector, COUNT(*) AS n FROM asks a JOIN sectors s ON s.symbol = a.symbol
GROUP BY s.sector;
CREATE VIEW states AS SELECT state, COUNT(*) AS n FROM book_states GROUP BY state;
"""
SPAN, EPOCH, STEP = 1_000, 4_000, 5_000


class Killed(Exception):
    """Where a test ends who follows, as a kill would."""


def cut_into(folder: Path, switches: int = 2) -> CutSettings:
    """Settings with a dictionary of their own, as another process has."""
    return CutSettings(orderbook.compile(SQL), folder, switches, EPOCH, SPAN, STEP)


def records(seed: int, count: int) -> list[Record]:
    """What a run logs: one instrument, later both; books, changes of rows, ticks, and what is no input."""
    choose, stamp = random.Random(seed), 10**15
    found = [instruments_record(0, tuple(INSTRUMENTS)[:1])]
    own = items(seed, count)
    for number, item in enumerate(own):
        if number == len(own) // 4:
            found.append(instruments_record(stamp, tuple(INSTRUMENTS)[::-1]))
        stamp += choose.choice((1, 1, 50, SPAN // 2, 3 * SPAN))
        if isinstance(item, np.ndarray) and number < len(own) // 4:
            item = item[item["instrument"] == 0]
        found.append(stamped_record(Stamped(stamp, choose.randrange(3), item, True)))
        if choose.random() < 0.3:
            op: Literal["+", "-"] = choose.choice(("+", "-"))
            symbol = choose.choice(("one", "two"))
            change = RelationChange(1, "sectors", op, {"symbol": symbol, "sector": "abc"[number % 3]})
            ping = RelationChange(2, "pings", "+", {"symbol": symbol, "ts": stamp - number % 10 * 1_000})
            found.append(stamped_record(Stamped(stamp + 1, 3, ChangeItem("rows", [change, ping]))))
            found.append(completed_record(Completed(stamp, {})))
            stamp += 1
    return found


def entries_of(folder: Path) -> list[Entry]:
    """All messages of all switches, in their order."""
    return [entry for log in sorted(folder.glob("switch-*")) for entry in read_entries(log)]


def shown(folder: Path) -> list[tuple[Any, ...]]:
    """Messages with their rows as text; what one event deletes has no order."""
    words, found = orderbook.compile(SQL), []
    texts = {r.name: [c.type.kind.name == "TEXT" for c in r.columns] for r in words.relations}
    decode = words.dictionary.decode
    for entry in entries_of(folder):
        rows = []
        for block in decoded(entry, words.dictionary):
            for version, deleted, values in zip(block.versions, block.deletes, block.values, strict=True):
                own = zip(texts[block.source], values.tolist(), strict=True)
                row = [decode(value) if text else value for text, value in own]
                place = tuple(map(int, (version["stamp"], version["switch"], version["sequence"])))
                rows.append((block.source, place, bool(deleted), str(row)))
        found.append((entry.switch, entry.number, entry.epoch, entry.end, sorted(rows)))
    return found


def at_once(folder: Path, log: Sequence[Record]) -> list[tuple[Any, ...]]:
    """The block logs of a log that is there as a whole."""
    with Log.open(folder / "whole", IDENTITY, policy=SyncPolicy.parse("never")) as whole:
        whole.append_all(log)
    write_logged_blocks(folder / "whole", cut_into(folder / "expected"), lambda _: None)
    return shown(folder / "expected")


class Following:
    """Follows a log while it is written, in lives that end anywhere."""

    def __init__(self, folder: Path, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder, self.choose = folder, random.Random(seed)
        self.log = Log.open(folder / "log", IDENTITY, policy=SyncPolicy.parse("never"), segment_bytes=20_000)
        self.left, self.lives, self.kills = 10**9, 0, 0
        monkeypatch.setattr(log_follower, "_TOGETHER", 4)
        replace = replace_file

        def replaced(path: Path, data: bytes) -> None:
            self.step()
            replace(path, data)

        monkeypatch.setattr(block_log, "replace_file", replaced)

    def step(self) -> None:
        """One of the places where it may be killed: a file of blocks, or some entries of the log."""
        self.left -= 1
        if self.left < 0:
            self.left = 10**9
            raise Killed

    def live(self, turns: int) -> None:
        """One life, in which the log grows so many times; a state is kept now and then."""
        self.lives += 1
        self.left = self.choose.choice((10**9, self.choose.randrange(25), self.choose.randrange(25)))
        follower = None
        try:
            follower = LogFollower(self.folder / "log", cut_into(self.folder / "blocks"))
            for _ in range(turns):
                self.grow()
                follower.read(lambda _: self.step())
                if self.choose.random() < 0.3:
                    follower.save()
                    # A run lets go of what its own checkpoints do not need.
                    self.log.truncate_before(follower._reader.position)
        except Killed:
            self.kills += 1
        finally:
            self.left = 10**9
            if follower is not None:
                follower.close()

    def grow(self) -> None:
        """Appends some of what is to come."""
        count = self.choose.randrange(8)
        self.log.append_all(self.coming[:count])
        del self.coming[:count]

    def run(self, log: Sequence[Record], asks: bool) -> None:
        """Until all of a log was written and its blocks are complete."""
        self.coming = list(log)
        while self.coming:
            if asks and self.lives:
                epoch = max((e.epoch for e in entries_of(self.folder / "blocks")), default=0)
                request_end((self.folder / "blocks").glob("switch-*"), epoch + 1)
            self.live(self.choose.randrange(1, 6))
        follower = LogFollower(self.folder / "log", cut_into(self.folder / "blocks"))
        follower.read()
        follower.finish()
        follower.close()
        self.log.close()


def check_lives(folder: Path, seed: int, asks: bool) -> int:
    """Follows one log; how many lives ended by a kill."""
    folder.mkdir()
    log = records(seed, 1_000)
    expected = at_once(folder, log)
    with pytest.MonkeyPatch.context() as monkeypatch:
        own = Following(folder, seed, monkeypatch)
        own.run(log, asks)
    found = shown(folder / "blocks")
    if not asks:
        assert found == expected
        return own.kills
    # The epochs are other ones, each of them equal in all logs; rows and their order are the same.
    ends = {}
    for switch in range(2):
        messages = [one for one in found if one[0] == switch]
        assert [number for _, number, *_ in messages] == list(range(1, len(messages) + 1))
        own_ends = [(epoch, end) for _, _, epoch, end, _ in messages if epoch]
        assert [epoch for epoch, _ in own_ends] == list(range(1, len(own_ends) + 1))
        ends[switch] = own_ends
        start = 0
        for _, _, epoch, end, rows in messages:
            start = end if epoch else start
            assert all(place[0] >= start for _, place, *_ in rows)
    rows_of = [[r for *_, rows in one for r in rows] for one in (found, expected)]
    assert ends[0] == ends[1] and rows_of[0] == rows_of[1]
    assert len(ends[0]) > len([one for one in expected if one[0] == 0 and one[2]])
    return own.kills


@pytest.mark.sampled(2)
@pytest.mark.parametrize("asks", [False, True])
def test_lives_of_any_length_write_what_one_writes(tmp_path: Path, sample_seed: int, asks: bool) -> None:
    assert check_lives(tmp_path / "one", sample_seed, asks) > 3


@pytest.mark.exhaustive
@pytest.mark.parametrize("asks", [False, True])
def test_many_lives(tmp_path: Path, sample_seed: int, sample_count: int, asks: bool) -> None:
    for seed in range(sample_seed, sample_seed + max(1, sample_count // 10)):
        check_lives(tmp_path / str(seed), seed, asks)


def test_what_cannot_be_gone_on_with(tmp_path: Path) -> None:
    log = records(1, 300)
    with Log.open(tmp_path / "log", IDENTITY, policy=SyncPolicy(None), segment_bytes=2_000) as own:
        own.append_all(log[: len(log) // 2])
        follower = LogFollower(tmp_path / "log", cut_into(tmp_path / "blocks"))
        follower.read()
        with pytest.raises(UserError, match="in use by process"):
            LogFollower(tmp_path / "log", cut_into(tmp_path / "blocks"))
        follower.close()
        with pytest.raises(UserError, match="begun with other views, --switches"):
            LogFollower(tmp_path / "log", cut_into(tmp_path / "blocks", 3))
        with pytest.raises(UserError, match="not empty, and no block logs"):
            LogFollower(tmp_path / "log", cut_into(tmp_path))
        for one in log[len(log) // 2 :]:
            own.append(one)
        assert own.segments > 2
        own.truncate_before(own.end)
    with pytest.raises(SourceError, match=r"is gone, and needed from 0 on; .*keep_log = true"):
        write_logged_blocks(tmp_path / "log", cut_into(tmp_path / "blocks"), lambda _: None)
    with pytest.raises(SourceError, match="no log there"):
        write_logged_blocks(tmp_path / "none", cut_into(tmp_path / "other"), lambda _: None)


def test_a_stop_is_heeded_wherever_ticks_are(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_follower, "_TOGETHER", 4)
    monkeypatch.setattr(log_follower, "_STATE_BYTES", 1)
    with Log.open(tmp_path / "log", IDENTITY, policy=SyncPolicy(None)) as own:
        for stamp in range(10**15, 10**15 + 20 * STEP, STEP):
            own.append(stamped_record(Stamped(stamp, 0, TickItem(stamp))))
            change = RelationChange(1, "sectors", "+", {"symbol": "one", "sector": "a"})
            own.append(stamped_record(Stamped(stamp + 1, 3, ChangeItem("rows", [change]))))
    follower = LogFollower(tmp_path / "log", cut_into(tmp_path / "blocks"))
    follower.read(stopped=lambda: True)
    assert follower.events == 2 and list((tmp_path / "blocks" / "states").glob("*"))
    follower.read()
    assert follower.events == 20
    follower.close()


def test_another_log_in_the_same_place(tmp_path: Path) -> None:
    for seed in (1, 2):
        folder = tmp_path / "log"
        for file in folder.glob("*"):
            file.unlink()
        with Log.open(folder, IDENTITY, policy=SyncPolicy(None)) as own:
            own.append_all(records(seed, 300))
        follower = LogFollower(folder, cut_into(tmp_path / "blocks"))
        if seed == 1:
            follower.read()
        else:
            with pytest.raises(SourceError, match="message 1 is another one than what the source gives now"):
                follower.read()
        follower.close()


@pytest.mark.sampled(2)
def test_a_killed_process_goes_on(project: Path, tmp_path: Path) -> None:
    view, config = tmp_path / "view.sql", tmp_path / "config.toml"
    view.write_text(SQL)
    config.write_text(f'[clock]\nresolution = "{STEP}ns"\n')
    options = ["--config", str(config), "--view", str(view), "--switches", "2"]
    options += ["--epoch", f"{EPOCH}ns", "--block", f"{SPAN}ns"]
    command = ["blocks", f"log:{tmp_path / 'log'}", *options, "--out", str(tmp_path / "blocks")]
    log = records(5, 1_500)

    def started() -> subprocess.Popen[str]:
        program = [sys.executable, "-m", "orderbook.command_line", *command, "--follow"]
        return subprocess.Popen(program, stdout=subprocess.PIPE, text=True, cwd=project)

    def grown(process: subprocess.Popen[str], part: Sequence[Record]) -> None:
        """The log grows until more of it is in block logs."""
        before, deadline = len(entries_of(tmp_path / "blocks")), time.monotonic() + PATIENCE
        own.append_all(part[: len(part) // 2])
        for one in part[len(part) // 2 :]:
            own.append(one)
        while len(entries_of(tmp_path / "blocks")) <= before:
            assert process.poll() is None and time.monotonic() < deadline
            time.sleep(0.02)

    third = len(log) // 4
    with Log.open(tmp_path / "log", IDENTITY, policy=SyncPolicy(None), segment_bytes=20_000) as own:
        own.append_all(log[:third])
        process = started()
        grown(process, log[third : 2 * third])
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
        process = started()
        grown(process, log[2 * third :])
        process.send_signal(signal.SIGTERM)
        said, _ = process.communicate(timeout=PATIENCE)
        assert process.returncode == 0 and "the same command goes on" in said and " epochs: " in said
    assert status_of(command) == 0
    assert shown(tmp_path / "blocks") == at_once(tmp_path, log)
    assert status_of(command) == 2
