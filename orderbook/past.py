"""What a run finds of the one before it: its log and checkpoint, and the instruments that these name."""

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from engine.checkpoint.errors import CheckpointError
from engine.checkpoint.folder import Checkpoint, checkpoints
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
from orderbook.run_checkpoint import instruments_of, states_of
from orderbook.sizes import size_of
from orderbook.switch import HybridClock
from views.compiler.program import CompiledProgram

_logger = logging.getLogger("orderbook.recovery")


@dataclass(frozen=True, slots=True)
class Past:
    """A run's own instruments, and its log (None: it keeps none) with what it may be gone on from.

    candidates: checkpoints, None for the log from its beginning, the best first.
    """

    configuration: Configuration
    own: Instruments
    log: Log | None = None
    candidates: tuple[Checkpoint | None, ...] = ()

    def recovered(self, make: Callable[[Instruments], Pipeline]) -> tuple[Pipeline, DurableRun | None]:
        """A pipeline, and the run that goes on where the log ends (None without a log).

        make: makes a fresh pipeline of some instruments, those of the run's own feeds first. What cannot be
        gone on from is passed over with a warning. Raises LogError, CheckpointError where nothing is left,
        SourceError where an instrument is held in other units now.
        """
        if self.log is None:
            return make(self.own), None
        for number, candidate in enumerate(self.candidates):
            try:
                return self._recovered(self.log, candidate, self.candidates[number + 1 :], make)
            except (CheckpointError, OSError) as error:
                if number + 1 == len(self.candidates):
                    raise
                _logger.warning("%s; %s is used instead", error, _named(self.candidates[number + 1]))
        raise AssertionError("there is no candidate")

    def _recovered(
        self,
        log: Log,
        checkpoint: Checkpoint | None,
        others: Sequence[Checkpoint | None],
        make: Callable[[Instruments], Pipeline],
    ) -> tuple[Pipeline, DurableRun]:
        logged = _logged(log, checkpoint)
        try:
            instruments = Instruments(dict.fromkeys([*self.own, *logged]))
        except DataError as error:
            raise SourceError(
                f"{log.folder}: an instrument is held in other units now: {error}; "
                "give the log another folder"
            ) from error
        pipeline, options = make(instruments), self.configuration.log
        folder = checkpoints_of(log.folder)
        clock = HybridClock(limits=self.configuration.clock.limits)
        run = DurableRun(pipeline, log, folder, clock=clock, keep=options.keep, keep_log=options.keep_log)
        found = run.recover(checkpoint, _states_before(others))
        if found.items or found.checkpoint:
            how = "after a crash" if found.crashed else "after an orderly end"
            _logger.warning(
                "recovered %s in %.1f s: checkpoint %s, %d items applied again, %d of them with callbacks",
                how, found.seconds, found.checkpoint or "none", found.items, found.repeated,
            )
        return pipeline, run


def _named(candidate: Checkpoint | None) -> str:
    return "the log from its beginning" if candidate is None else str(candidate.path)


def _states_before(others: Sequence[Checkpoint | None]) -> list[Mapping[str, bytes]]:
    """What strategies had saved in other checkpoints."""
    found = []
    for other in others:
        if other is not None:
            with suppress(CheckpointError, OSError):
                found.append(states_of(other))
    return found


def checkpoints_of(folder: Path) -> Path:
    """Where the checkpoints of a log lie."""
    return folder / "checkpoints"


@contextmanager
def open_past(
    configuration: Configuration, program: CompiledProgram, own: Instruments
) -> Iterator[Past]:
    """Open the log that is configured, and close it in the end.

    Raises LogError for one that is in use, damaged, another program's, or whose beginning is gone and that
    has no checkpoint.
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
        candidates = _candidates(log, program)
        if not candidates:
            raise LogError(
                options.folder,
                "its beginning is gone, and there is no checkpoint to go on from",
                "restore the checkpoints from a copy, or give this one another folder",
            )
        yield Past(configuration, own, log, candidates)


def _candidates(log: Log, program: CompiledProgram) -> tuple[Checkpoint | None, ...]:
    """What a run of a program may be gone on from: its own checkpoints, else all of the log, else others."""
    there = [one for one in checkpoints(checkpoints_of(log.folder)) if int(one.position) >= log.start]
    digest = program_hash(program)
    own = [one for one in there if one.program == digest]
    if not log.start:
        if there and not own:
            _logger.warning("%s is of another program; the log is applied from its beginning", there[0].path)
        return (*own, None)
    return (*own, *(one for one in there if one.program != digest))


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
