"""What a run finds of the one before it: its log and checkpoint, and the instruments that these name."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from engine.checkpoint.folder import Checkpoint, newest_checkpoint
from engine.checkpoint.program_hash import program_hash
from engine.log.errors import LogError
from engine.log.log import Log
from engine.log.policy import SyncPolicy
from engine.log.records import Position
from orderbook import journal
from orderbook.configuration import Configuration
from orderbook.durable import DurableRun
from orderbook.errors import DataError, SourceError
from orderbook.instruments import Instrument, Instruments
from orderbook.journal import Kind, Known
from orderbook.pipeline import Pipeline
from orderbook.run_checkpoint import instruments_of
from orderbook.sizes import size_of
from views.compiler.program import CompiledProgram

_logger = logging.getLogger("orderbook.recovery")


@dataclass(frozen=True, slots=True)
class Past:
    """The instruments of a run, those of its own feeds first, and its log (None: it keeps none)."""

    configuration: Configuration
    instruments: Instruments
    log: Log | None = None
    checkpoint: Checkpoint | None = None

    def recovered(self, pipeline: Pipeline) -> DurableRun | None:
        """The run that goes on where the log ends; None without a log. Raises LogError, CheckpointError."""
        if self.log is None:
            return None
        options = self.configuration.log
        folder = checkpoints_of(self.log.folder)
        run = DurableRun(pipeline, self.log, folder, keep=options.keep, keep_log=options.keep_log)
        found = run.recover(self.checkpoint)
        if found.items or found.checkpoint:
            how = "after a crash" if found.crashed else "after an orderly end"
            _logger.warning(
                "recovered %s in %.1f s: checkpoint %s, %d items applied again, %d of them with callbacks",
                how, found.seconds, found.checkpoint or "none", found.items, found.repeated,
            )
        return run


def checkpoints_of(folder: Path) -> Path:
    """Where the checkpoints of a log lie."""
    return folder / "checkpoints"


@contextmanager
def open_past(
    configuration: Configuration, program: CompiledProgram, own: Instruments
) -> Iterator[Past]:
    """Open the log that is configured, and close it in the end.

    Raises LogError for one that is in use, damaged, another program's, or whose beginning is gone and that
    has no checkpoint of this program; SourceError where an instrument has another tick or lot now.
    """
    options = configuration.log
    if options.folder is None:
        yield Past(configuration, own)
        return
    with Log.open(
        options.folder,
        journal.IDENTITY,
        policy=SyncPolicy.parse(options.sync),
        segment_bytes=size_of(options.segment),
    ) as log:
        checkpoint = newest_checkpoint(checkpoints_of(options.folder), program_hash(program))
        if checkpoint is None and log.start:
            raise LogError(
                options.folder,
                "its beginning is gone, and there is no checkpoint of this program to go on from",
                "run the program that wrote it, or give this one another folder",
            )
        logged = _logged(log, checkpoint)
        try:
            instruments = Instruments(dict.fromkeys([*own, *logged]))
        except DataError as error:
            raise SourceError(
                f"{options.folder}: an instrument has another tick or lot now: {error}; "
                "give the log another folder"
            ) from error
        yield Past(configuration, instruments, log, checkpoint)


def _logged(log: Log, checkpoint: Checkpoint | None) -> list[Instrument]:
    """The instruments of what will be applied again."""
    found = [] if checkpoint is None else list(instruments_of(checkpoint))
    start = log.start if checkpoint is None else Position(int(checkpoint.position))
    for _, record in log.read(start):
        if record.kind == Kind.INSTRUMENTS:
            entry = journal.entry_of(record)
            assert isinstance(entry, Known)
            found += entry.instruments
    return found
