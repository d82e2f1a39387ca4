"""What a target has is what the view has, whatever crashes; every change comes, and a repeat can be told."""

import shutil
from collections import deque
from collections.abc import Sequence
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from samples import examples
from sink_support import KeptTarget, Run, crashed, messages, program

from orderbook.core.errors import Problems
from orderbook.engine.log.log import Log
from orderbook.engine.log.segments import Position, Record
from orderbook.engine.runtime.engine_state import program_hash
from orderbook.sinks import delivery
from orderbook.sinks.delivery import ChangeDelivery, Delivery, RowDelivery
from orderbook.sinks.outbox import Outbox, RowChange, SinkRefused
from orderbook.views.program import CompiledProgram


@pytest.fixture(autouse=True)
def _at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(delivery, "_FIRST", 0.001)
    monkeypatch.setattr(delivery, "_LONGEST", 0.005)


def changes_to(target: Any, spill: int = 10**9) -> Any:
    def made(own: CompiledProgram, folder: Path) -> list[Delivery]:
        outbox = Outbox(folder / "sinks" / "totals", program_hash(own).hex(), segment_bytes=4096)
        return [ChangeDelivery("changes", "totals", target, 0.0, outbox, spill, Problems())]

    return made


def rows_to(target: Any, limit: int = 1000) -> Any:
    return lambda own, folder: [RowDelivery("rows", "totals", target, 0.0, limit, Problems())]


def told(target: KeptTarget) -> dict[Any, tuple[Any, ...]]:
    """Every change that was given, but the first rows, once."""
    return {
        (one.version[2], one.key): (one.op, tuple(one.row.items()))
        for one in target.given
        if one.op != "snapshot"
    }


@given(
    st.integers(0, 10**6), st.lists(st.integers(0, 12), min_size=1, max_size=5), st.sampled_from([0.0, 0.4])
)
@examples(12)
def test_nothing_is_lost_by_any_sequence_of_crashes(seed: int, crashes: list[int], failing: float) -> None:
    changes, rows = KeptTarget(seed, failing), KeptTarget(seed + 1, failing)
    flow, random = list(messages(seed, sum(crashes) + 5)), Random(seed)
    with TemporaryDirectory() as made_in:
        folder, done = Path(made_in) / "0", 0
        for number, length in enumerate([*crashes, None]):
            # In memory, or on the disk, or gone: whatever the thread has done by then.
            run = Run(folder, lambda own, at: [*changes_to(changes)(own, at), *rows_to(rows)(own, at)])
            end = len(flow) if length is None else done + length
            for message in flow[done:end]:
                run.apply(message)
                if random.random() < 0.1:
                    run.durable.checkpoint()
                if random.random() < 0.3:
                    for one in run.deliveries:
                        one._wake.set()
            done = end
            if length is None:
                break
            other = Path(made_in) / f"{number + 1}"
            with crashed(run, folder, other):
                folder = other
        run.settle()
        assert changes.present == rows.present == run.rows()
        run.close()
    with TemporaryDirectory() as made_in:
        once = KeptTarget()
        run = Run(Path(made_in) / "log", changes_to(once))
        for message in flow:
            run.apply(message)
        run.settle()
        run.close()
    assert told(changes) == told(once)
    assert once.late == 0


def test_a_full_buffer_of_rows_makes_the_rows_be_written_anew(tmp_path: Path) -> None:
    target = KeptTarget(failing=1.0)
    run = Run(tmp_path, rows_to(target, limit=2))
    for message in messages(3, 60):
        run.apply(message)
    assert run.deliveries[0].report().behind
    target.failing = 0.0
    run.settle()
    assert target.present == run.rows()
    report = run.deliveries[0].report()
    assert report.conflated and report.failures and not report.waiting
    assert set(report.problems.counts) == {"sink not written", "sink too slow"}
    run.close()


def test_changes_beyond_the_spill_end_the_run_and_none_is_lost(tmp_path: Path) -> None:
    target = KeptTarget(failing=1.0)
    run = Run(tmp_path, changes_to(target, spill=20_000))
    flow = messages(4, 5_000)
    with pytest.raises(SinkRefused, match="changes wait, more than its spill"):
        deque(map(run.apply, flow), maxlen=0)
    waiting = run.deliveries[0].waiting
    run.close()
    target.failing = 0.0
    run = Run(tmp_path, changes_to(target, spill=20_000))
    run.settle()
    assert target.present == run.rows()
    assert len(target.given) == waiting
    run.close()


def test_another_program_sends_the_present_rows_again(tmp_path: Path) -> None:
    target = KeptTarget()
    run = Run(tmp_path, changes_to(target))
    for message in messages(5, 20):
        run.apply(message)
    run.settle()
    run.close()
    target.given.clear()
    note = tmp_path / "sinks" / "totals" / "delivered"
    note.write_bytes(note.read_bytes().replace(program_hash(program()).hex().encode(), b"another"))
    run = Run(tmp_path, changes_to(target))
    run.settle()
    assert {one.op for one in target.given} == {"snapshot"}
    assert {one.key: dict(one.row) for one in target.given} == run.rows()
    run.close()


def test_changes_wait_while_they_are_moved_to_the_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    box, waiting = Outbox(tmp_path, "p"), list[int]()
    append_all = Log.append_all

    def observed(self: Log, records: Sequence[Record]) -> list[Position]:
        waiting.append(box.waiting)
        return append_all(self, records)

    monkeypatch.setattr(Log, "append_all", observed)
    box.begin([])
    for number in range(3):
        box.put(RowChange((1, 0, number), "update", (number,), {"n": number}))
    changes, end = box.next(2)
    assert waiting[-1] == box.waiting == 3
    box.delivered(changes, end)
    assert box.waiting == 1
    box.close()


def test_an_outbox_that_ended_in_its_first_rows_begins_again(tmp_path: Path) -> None:
    def change(number: int) -> RowChange:
        return RowChange((1, 0, number), "update", (number,), {"n": number})

    box = Outbox(tmp_path / "a", "p")
    box.put(change(1))
    box.flush()
    shutil.copytree(tmp_path / "a", tmp_path / "b")
    box.close()
    again = Outbox(tmp_path / "b", "p")
    assert not again.begun and not again.waiting
    again.begin([change(2)])
    assert [one.key for one in again.next(10)[0]] == [(2,)]
    again.close()
