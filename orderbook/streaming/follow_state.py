"""From where the block logs of a run's log are gone on with, as a checkpoint of its own kind."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec
import numpy as np

from engine.checkpoint import state_sections
from engine.checkpoint.folder import Checkpoint, Sections, write_checkpoint
from engine.checkpoint.state import EngineState, codes_of
from engine.distribution.block import Block
from engine.distribution.ipc import decode_blocks
from feeds.raw_log import InstrumentText
from orderbook import book_snapshot
from orderbook.backtest.clock_blocks import SavedClock
from orderbook.backtest.relation_rows import SavedRows
from orderbook.block_log import encoded
from orderbook.book_states import SavedState
from orderbook.instruments import Instrument
from orderbook.problems import Problems
from orderbook.streaming.logged_switches import SwitchesState
from views.compiler.program import CompiledProgram

# One more than is needed, so that a damaged one costs time only.
_KEEP = 2


@dataclass(frozen=True, slots=True)
class FollowState:
    """What was made of a log up to a place in it.

    instruments: all that it has named; own: those that its events index there. counts: events of each switch
    of the run. held: rows not sent yet, the stamp of the last that were being `last`. rows: what relations
    hold, whose codes of strings are `codes` (None: those of the program).
    """

    instruments: tuple[Instrument, ...]
    own: tuple[Instrument, ...]
    counts: Mapping[int, int]
    switches: SwitchesState
    rows: SavedRows
    problems: Problems
    held: Sequence[Block]
    last: int
    codes: np.ndarray | None = None


class _Values(msgspec.Struct, frozen=True):
    instruments: list[InstrumentText]
    own: list[InstrumentText]
    counts: dict[int, int]
    switches: SwitchesState
    states: dict[int, SavedState]
    ticks: int
    last: int


def save_state(
    folder: Path, program: CompiledProgram, settings: bytes, position: int, state: FollowState
) -> None:
    """Writes a state as the newest of a folder, for the log's `position`. Raises CheckpointError."""
    clock = state.rows.clock
    values = _Values(
        [InstrumentText.of(one) for one in state.instruments],
        [InstrumentText.of(one) for one in state.own],
        dict(state.counts),
        state.switches,
        dict(state.rows.states),
        0 if clock is None else clock.events,
        state.last,
    )
    # An engine's state without maps: rows of relations, strings and problems are kept in the same way.
    rows = EngineState(
        program=settings, sequence=0, stamp=None, switch=0, now=None if clock is None else clock.now, maps=(),
        checked=state.rows.admitted, kept=None, expiring=() if clock is None else clock.expiring,
        strings=program.dictionary.strings(),
        problems=dict(state.problems.counts), examples=state.problems.examples,
    )  # fmt: skip
    held = encoded(state.held, program.relations, program.dictionary)
    parts: dict[str, Sections] = {
        "follow": {"values": msgspec.msgpack.encode(values), "held": held},
        "rows": state_sections.sections_of(rows),
    }
    if state.rows.books is not None:
        parts["books"] = book_snapshot.sections_of(state.rows.books)
    write_checkpoint(folder, parts, program=settings, position=position, stamp=state.last, keep=_KEEP)


def load_state(found: Checkpoint, program: CompiledProgram) -> FollowState:
    """The state that was written; arrays are read from its file when they are used."""
    follow, books = found.part("follow"), found.part("books")
    values = msgspec.msgpack.decode(follow["values"].bytes(), type=_Values)
    rows = state_sections.state_of(found.part("rows"))
    problems = Problems()
    problems.counts.update(rows.problems)
    problems.examples.update({kind: list(examples) for kind, examples in rows.examples.items()})
    return FollowState(
        tuple(text.instrument for text in values.instruments),
        tuple(text.instrument for text in values.own),
        values.counts,
        values.switches,
        SavedRows(
            book_snapshot.state_of(books) if books else None,
            values.states,
            rows.checked or (),
            SavedClock(rows.now, values.ticks, tuple(rows.expiring)),
        ),
        problems,
        decode_blocks(follow["held"].bytes(), program.dictionary),
        values.last,
        codes_of(program.dictionary, rows.strings),
    )
