"""Streams over block logs without Spark: what becomes final is what a backtest gives, whatever happens."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from backtest_support import contents
from streaming_support import (
    SHOWN,
    Interrupted,
    LocalStream,
    Recorded,
    arrivals,
    entries_of,
    forget,
    settings,
)

from orderbook.jobs.job import Job, open_job
from orderbook.streaming import job as compaction
from orderbook.streaming.block_log import Entry, decoded
from orderbook.streaming.block_writer import LoggedSwitches
from orderbook.streaming.job import checkpoint, start_stream


def check_ended(stream: LocalStream, recorded: Recorded) -> None:
    """All epochs are committed, nothing is left of them, and the rows are those of the backtest."""
    job = open_job(stream.settings.job.folder)
    progress = job.manifest.stream
    assert progress is not None and progress.epoch == recorded.epochs
    assert contents(job) == contents(recorded.expected)
    assert not progress.tentative and not progress.waiting and not progress.ends
    sizes = stream.log_sizes()
    assert len(sizes) == len(stream.plan.nodes) and not any(sizes)
    check_folder(job)


def check_folder(job: Job) -> None:
    """Committed rows are once in the files; nothing else is there once the stream is opened again."""
    for name in job.views:
        dataset = job.manifest.views[name]
        rows = pl.concat([pl.read_parquet(str(job.folder / file.path)) for file in dataset.files])
        assert len(rows) == dataset.rows == len(rows.unique()) == len(job.history(name))


def test_three_levels_are_three(recorded: Recorded, tmp_path: Path) -> None:
    stream = LocalStream(settings(tmp_path / "job", 4), recorded.logs, {})
    assert stream.plan.levels == 3 and recorded.epochs >= 6
    assert {node.stage for node in stream.plan.shown} == {0, 1, 2}


@pytest.mark.sampled(3)
@pytest.mark.parametrize("partitions", [1, 2, 7])
def test_any_arrival_gives_the_backtest(
    recorded: Recorded, tmp_path: Path, partitions: int, sample_seed: int
) -> None:
    stream = LocalStream(settings(tmp_path / "job", partitions), recorded.logs, {})
    for number, batch in enumerate(arrivals(recorded.entries, 3, sample_seed)):
        if number % 3 == 0:
            forget()  # every node goes on from its stored state, in a process that knows no text
        stream.batch(number, batch)
    check_ended(stream, recorded)


def test_what_is_visible_is_a_prefix_of_what_is_final(recorded: Recorded, tmp_path: Path) -> None:
    stream = LocalStream(settings(tmp_path / "job", 2), recorded.logs, {})
    ends, early = set(), 0
    for number, batch in enumerate(arrivals(recorded.entries, 3, 3)):
        stream.batch(number, batch)
        job = open_job(tmp_path / "job")
        end = stream.sink.progress.end
        ends.add(end)
        for name in ("sides", "largest"):
            final = recorded.expected.history(name)
            assert job.history(name).equals(final.filter(pl.col("stamp") < end))
            both = job.history(name, tentative=True)
            early += len(both) - len(job.history(name))
            # Of each key a version has one row, of one execution.
            keys = job.manifest.views[name].keys
            assert not both.select("stamp", "switch", "sequence", *keys).is_duplicated().any()
    assert len(ends) > 3 and early > 0


def test_tentative_rows_become_final_ones(recorded: Recorded, tmp_path: Path) -> None:
    stream = LocalStream(settings(tmp_path / "job", 3), recorded.logs, {})
    rows = [entry for entry in recorded.entries if not entry.epoch]
    for number, batch in enumerate(arrivals(rows, 3, 4)):
        stream.batch(number, batch)
    job = open_job(tmp_path / "job")
    assert stream.sink.progress.epoch == 0 and not len(job.history("sides"))
    for name in SHOWN:
        found, final = job.history(name, tentative=True), recorded.expected.history(name)
        assert found.rows() == final.rows()


def interrupted(place: str, when: int) -> Callable[[str], None]:
    """Ends the driver the `when`th time it comes to a place."""
    left = when

    def interrupt(found: str) -> None:
        nonlocal left
        if found == place:
            left -= 1
            if not left:
                raise Interrupted

    return interrupt


@pytest.mark.sampled(4)
@pytest.mark.parametrize("place", ["level 1", "after sink", "level 0", "before sink"])
def test_a_batch_done_again(recorded: Recorded, tmp_path: Path, place: str) -> None:
    states: dict[Any, Any] = {}
    batches = arrivals(recorded.entries, 3, 5)
    done = 0
    for start in range(len(batches) + 1):
        interrupt = interrupted(place, 2)
        stream = LocalStream(settings(tmp_path / "job", 2), recorded.logs, states, interrupt)
        before = dict(states)
        try:
            while done < len(batches):
                before = dict(states)
                stream.batch(done, batches[done])
                done += 1
        except Interrupted:
            # Spark restores the states of before a batch that it does again.
            states.clear()
            states.update(before)
            if start % 2:
                forget()
            continue
        break
    check_ended(stream, recorded)


@pytest.mark.parametrize(
    ("first", "second"),
    [(2, 3), *(pytest.param(*pair, marks=pytest.mark.exhaustive) for pair in ((7, 1), (1, 4)))],
)
def test_other_partitions(recorded: Recorded, tmp_path: Path, first: int, second: int) -> None:
    states: dict[Any, Any] = {}
    batches = arrivals(recorded.entries, 2, 6)
    stream = LocalStream(settings(tmp_path / "job", first), recorded.logs, states)
    for number, batch in enumerate(batches[: len(batches) * 2 // 3]):
        stream.batch(number, batch)
    committed = open_job(tmp_path / "job")
    assert 0 < stream.sink.progress.epoch < recorded.epochs
    before = {name: committed.history(name).rows() for name in SHOWN}
    stream = LocalStream(settings(tmp_path / "job", second), recorded.logs, states)
    assert stream.settings.generation == 1
    for number, batch in enumerate(batches):
        stream.batch(number, batch)
        # What was committed stays there all the time.
        assert open_job(tmp_path / "job").history("sides").rows()[: len(before["sides"])] == before["sides"]
    check_ended(stream, recorded)


def test_a_lost_checkpoint(recorded: Recorded, tmp_path: Path) -> None:
    states: dict[Any, Any] = {}
    batches = arrivals(recorded.entries, 1, 7)
    stream = LocalStream(settings(tmp_path / "job", 1), recorded.logs, states)
    stream.batch(0, batches[0])
    stream.batch(1, batches[1])
    checkpoint(stream.settings).rmdir()
    stream = LocalStream(settings(tmp_path / "job", 1), recorded.logs, states)
    for number, batch in enumerate(batches):
        stream.batch(number, batch)
    check_ended(stream, recorded)


def test_rows_after_their_epoch_are_dead(recorded: Recorded, tmp_path: Path) -> None:
    stream = LocalStream(settings(tmp_path / "job", 2), recorded.logs, {})
    own = [entry for entry in recorded.entries if entry.switch == 0]
    row = next(entry for entry in own if entry.rows)
    late = Entry(0, own[-1].number + 1, 0, 0, row.rows, row.bytes)
    stream.batch(0, [*recorded.entries, late])
    stream.batch(1, [late])
    check_ended(stream, recorded)
    job = open_job(tmp_path / "job")
    assert job.manifest.stream is not None
    dead = job.table("dead_letters")
    sent = [block for block in decoded(row, stream.plan.dictionary) if block.source == "bids"]
    assert set(dead["relation"]) == {"bids"} and set(dead["sender"]) == {"switch 0"}
    versions = {tuple(map(int, (v["stamp"], v["switch"], v["sequence"]))) for b in sent for v in b.versions}
    assert set(dead.select("stamp", "switch", "sequence").rows()) == versions


@pytest.mark.sampled(2)
def test_a_full_node_gets_the_end_of_an_epoch(recorded: Recorded, tmp_path: Path) -> None:
    job = settings(tmp_path / "job", 1)
    program = job.program.compiled()
    logs = LoggedSwitches(program, tmp_path / "logs", 2, 10**18)
    stream = LocalStream(job, tmp_path / "logs", {}, log_limit=5)
    seen = 0
    for entry in sorted((e for e in recorded.entries if e.rows), key=lambda e: e.number):
        blocks = decoded(entry, program.dictionary)
        logs.send(entry.switch, blocks)
        logs.promise(max(int(b.versions["stamp"][-1]) for b in blocks))
        logs.flush()
        entries = entries_of(tmp_path / "logs")
        stream.batch(stream.sink.progress.batch + 1, entries)
        seen = max(seen, *stream.log_sizes())
    # Epochs of so great a length end by asking only.
    asked = stream.sink.progress.requested
    assert asked > 3 and stream.sink.progress.epoch >= asked - 1 and seen < 50


def test_small_files_are_joined(recorded: Recorded, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compaction, "_MOST_SMALL", 3)
    stream = LocalStream(settings(tmp_path / "job", 3), recorded.logs, {})
    for number, batch in enumerate(arrivals(recorded.entries, 1, 8)):
        stream.batch(number, batch)
    check_ended(stream, recorded)
    job = open_job(tmp_path / "job")
    assert all(len(dataset.files) <= 3 for dataset in job.manifest.views.values())
    start_stream(settings(tmp_path / "job", 3), [str(recorded.logs)])
    named = {str(tmp_path / "job" / path) for path in open_job(tmp_path / "job").manifest.listed}
    assert named <= {str(path) for path in (tmp_path / "job").glob("*/*/*.parquet")}
