"""A checkpoint of a run: its engine, books, strategies, and where in the log it stands."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import msgspec

from engine.checkpoint import state_sections
from engine.checkpoint.folder import Checkpoint, Sections, write_checkpoint
from engine.checkpoint.stored import Stored
from engine.log.files import Files
from engine.log.records import Position
from feeds.raw_log import InstrumentText
from orderbook import book_snapshot
from orderbook.instruments import Instrument
from orderbook.pipeline import Pipeline, SavedPipeline
from strategies.host import SavedHost
from views.compiler.program import CompiledProgram


@dataclass(frozen=True, slots=True)
class RunCheckpoint:
    """What a checkpoint says beyond what the pipeline holds.

    position: where the log goes on. stamp: of the last item applied; every strategy had completed it.
    instruments: of the entries at that place of the log. states: what `on_save` gave last, by strategy.
    started: whether the strategies had been started, and not stopped.
    """

    position: Position
    stamp: int
    instruments: tuple[Instrument, ...]
    states: Mapping[str, bytes]
    started: bool
    path: Path | None = None


class _Run(msgspec.Struct, frozen=True):
    instruments: list[InstrumentText]
    states: dict[str, bytes]
    started: bool
    pipeline: SavedPipeline
    strategies: SavedHost


def save_checkpoint(
    folder: Path,
    pipeline: Pipeline,
    program: CompiledProgram,
    run: RunCheckpoint,
    *,
    keep: int,
    files: Files | None = None,
) -> None:
    """Write a checkpoint between two items, for a run of a program; the last `keep` stay.

    Views that have been added to the running program are left out. Raises CheckpointError, and OtherProgram
    where a view of the program has been dropped.
    """
    state = pipeline.engine.save(program)
    values = _Run(
        [InstrumentText.of(one) for one in run.instruments],
        dict(run.states),
        run.started,
        pipeline.save(),
        pipeline.host.save(),
    )
    parts: dict[str, Sections] = {
        "run": {"values": msgspec.msgpack.encode(values)},
        "engine": state_sections.sections_of(state),
    }
    if pipeline.books is not None:
        parts["books"] = book_snapshot.sections_of(pipeline.books.save())
    write_checkpoint(
        folder, parts, program=state.program, position=run.position, stamp=run.stamp, keep=keep, files=files
    )


def load_checkpoint(found: Checkpoint, pipeline: Pipeline) -> RunCheckpoint:
    """Bring a fresh pipeline to a checkpoint. Raises DataError where its books are not those of this run."""
    run = _run(found)
    instruments = tuple(text.instrument for text in run.instruments)
    pipeline.engine.load(state_sections.state_of(found.part("engine")))
    if pipeline.books is not None and found.part("books"):
        pipeline.books.load(book_snapshot.state_of(found.part("books")))
    known = {one: index for index, one in enumerate(pipeline.instruments)}
    indexes = [known[one] for one in instruments]
    pipeline.load(run.pipeline, indexes)
    pipeline.host.load(run.strategies, indexes)
    position = Position(int(found.position))
    return RunCheckpoint(position, found.stamp, instruments, run.states, run.started, found.path)


def instruments_of(found: Checkpoint) -> tuple[Instrument, ...]:
    """The instruments of a checkpoint's books."""
    return tuple(text.instrument for text in _run(found).instruments)


def _run(found: Checkpoint) -> _Run:
    values: Stored = found.part("run")["values"]
    return msgspec.msgpack.decode(values.bytes(), type=_Run)
