"""What is recorded: the firings of watches, one by one, as arrays."""

from functools import cache

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from samples import examples
from stage_support import OUTPUTS, VIEWS, Stream, program, streams

from orderbook.core.changes import ChangeBatch, part_of
from orderbook.core.errors import ExactnessError
from orderbook.engine.runtime.interface import Firing, Recorder, Recording, Records, Runtime, Watch
from orderbook.engine.runtime.interpreter import InterpreterRuntime
from orderbook.engine.runtime.map_entries import MapRows
from orderbook.engine.runtime.numba_runtime import NumbaRuntime
from orderbook.engine.runtime.row_format import RowFormat, one_word, recoded, unpacked

# As a StageRunner of the same program has them, so that one module serves both.
RECORDINGS = (*(Recording(v, False) for v in OUTPUTS), *(Recording(v, True) for v in VIEWS))


@cache
def compiled() -> tuple[NumbaRuntime, tuple[MapRows, ...]]:
    """A compiled runtime, and what it holds at first."""
    runtime = NumbaRuntime(program().program, program().dictionary)
    return runtime, runtime.copied()


def recorder(runtime: Runtime) -> Recorder:
    if isinstance(runtime, NumbaRuntime):
        runtime.restore(compiled()[1], None)
    return runtime.record(RECORDINGS)


def rows(records: Records) -> list[tuple[int, ...]]:
    """Records in an order that does not depend on that of rows within a look."""
    whole = np.hstack([records.changes[:, None], records.keys, records.old, records.new])
    return sorted(map(tuple, whole.tolist()))


def differences(records: Records) -> list[tuple[int, ...]]:
    """What changed, whenever."""
    return sorted(map(tuple, np.hstack([records.keys, records.old, records.new]).tolist()))


@examples(20)
@given(streams())
def test_recorded_are_the_firings_one_by_one(stream: Stream) -> None:
    interpreter = InterpreterRuntime(program().program, program().dictionary)
    interpreter.watch([Watch(r.view, None, r.per_message, False) for r in RECORDINGS])
    batch, done = stream.batch(), 0
    fired: list[list[tuple[int, Firing]]] = [[] for _ in RECORDINGS]
    while done < len(batch):
        done = interpreter.apply(batch, done)
        for firing in interpreter.firings():
            fired[firing.watch].append((done - 1, firing))
    recorded = recorder(compiled()[0]).apply(batch)
    for recording, own, records in zip(RECORDINGS, fired, recorded, strict=True):
        form = RowFormat(program().program.result(recording.view))
        before, after = (unpacked(form, records.keys, side) for side in (records.old, records.new))
        found = [
            (index, key, old if old.count else None, new if new.count else None)
            for index, (key, old), (_, new) in zip(records.changes.tolist(), before, after, strict=True)
        ]
        assert len(found) == len(own)
        for index, firing in own:
            assert (index, firing.key, firing.old, firing.new) in found
    other = InterpreterRuntime(program().program, program().dictionary)
    assert [rows(r) for r in recorder(other).apply(batch)] == [rows(r) for r in recorded]


@examples(20)
@given(streams(), st.data())
def test_what_is_pending_is_what_the_next_end_records(stream: Stream, data: st.DataObject) -> None:
    batch = stream.batch()
    cut = data.draw(st.integers(0, len(batch)))
    for runtime in (compiled()[0], InterpreterRuntime(program().program, program().dictionary)):
        held = recorder(runtime)
        held.apply(part_of(batch, 0, cut))
        pending, maps = held.pending(), runtime.copied()
        assert [differences(r) for r in held.pending()] == [differences(r) for r in pending]
        after = [rows(r) for r in held.apply(part_of(batch, cut, len(batch)))]
        runtime.restore(maps, None)
        held = runtime.record(RECORDINGS)
        held.restore(pending)
        assert [rows(r) for r in held.apply(part_of(batch, cut, len(batch)))] == after


@examples(10)
@given(streams())
def test_rows_are_those_of_the_runtime(stream: Stream) -> None:
    interpreter = InterpreterRuntime(program().program, program().dictionary)
    both = recorder(compiled()[0]), recorder(interpreter)
    for held in both:
        held.apply(stream.batch())
    for view in VIEWS:
        found = [sorted(map(tuple, np.hstack(held.rows(view)).tolist())) for held in both]
        assert found[0] == found[1]
        assert len(found[0]) == len(list(interpreter.rows(view)))


def test_watches_take_the_place_of_recordings_and_back() -> None:
    place = [r.name for r in program().relations].index("t")
    insert = np.array([[program().dictionary.encode("a"), 100, 0, 1]], np.int64)
    batch = ChangeBatch(np.array([2 * place], np.int16), np.array([3], np.uint8), insert)
    interpreter = InterpreterRuntime(program().program, program().dictionary)
    recorder(interpreter)
    interpreter.watch([Watch("most", None, False, False)])
    assert interpreter.apply(batch, 0) == 1 and len(interpreter.firings()) == 1
    for runtime in (interpreter, compiled()[0]):
        runtime.watch(())
        assert runtime.apply(batch, 0) == 1 and not runtime.firings()
        found = recorder(runtime).apply(batch)
        assert [len(r) for r, own in zip(found, RECORDINGS, strict=True) if own.view == "most"] == [1, 1]


def test_codes_follow_a_dictionary_and_wide_values_are_refused() -> None:
    result = program().program.result("sums")
    form = np.zeros((2, 11), np.int64)
    form[:, 0] = [0, 1]
    form[:, 1], form[:, 2] = [0, 1], [0, 3]
    records = Records(np.arange(2), np.array([[3], [1]]), form, form)
    moved = recoded(result, records, np.array([7, 8, 9, 6]))
    assert moved.keys.tolist() == [[6], [8]]
    assert moved.new[:, 2].tolist() == [0, 6] and records.new[:, 2].tolist() == [0, 3]
    assert one_word(np.array([[5, 0], [-5, -1]]), 0, "v").tolist() == [5, -5]
    with pytest.raises(ExactnessError, match="v: a value does not fit the 64 bits"):
        one_word(np.array([[5, 1]]), 0, "v")
