"""A run whose input is logged before it is applied, and which goes on where it was after a crash.

What was received is appended under the log's policy, then applied; what strategies ask for is appended before
it takes effect; when an item and its callbacks are done, that is appended too. After a crash the newest
checkpoint is loaded and the log after it applied again: silently as far as the strategies had completed, with
their callbacks beyond. A run finds of the one before it the log, the checkpoint, and the instruments that
these name.
"""

import logging
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from orderbook.configuration.configuration import Configuration
from orderbook.core.errors import DataError, SourceError
from orderbook.core.files import Files
from orderbook.core.units import length_text, size_of
from orderbook.durability import journal
from orderbook.durability.journal import Asked, Completed, EpochEnd, Kind, Known, Lifecycle
from orderbook.durability.run_checkpoint import (
    RunCheckpoint,
    instruments_of,
    load_checkpoint,
    save_checkpoint,
    states_of,
)
from orderbook.engine.checkpoint import Checkpoint, CheckpointError, checkpoints
from orderbook.engine.log.log import Log, SyncPolicy
from orderbook.engine.log.segments import LogError, Position, Record
from orderbook.engine.runtime.engine_state import layout_of, program_hash
from orderbook.engine.runtime.state_transfer import OtherProgram
from orderbook.market.instruments import Instrument, Instruments
from orderbook.run.event_queue import HybridClock, Stamped
from orderbook.run.pipeline import Pipeline
from orderbook.strategies.execution.client import LoggedRequest
from orderbook.views.program import CompiledProgram

_logger = logging.getLogger("orderbook.durability.durable_run")


@dataclass(frozen=True, slots=True)
class Recovery:
    """What was found: the checkpoint, and how much of the log was applied again.

    `items` counts what had been stamped, `repeated` those of them for which strategies were called.
    `crashed`: the strategies had not been stopped.
    """

    checkpoint: Path | None
    items: int
    repeated: int
    crashed: bool
    seconds: float


@dataclass(slots=True)
class _Past:
    """What the log says of the items, read before they are applied again."""

    completed: int
    states: dict[str, bytes]
    requests: dict[int, list[LoggedRequest]] = field(default_factory=dict)
    # The highest stamp.
    last: int = 0

    def read(self, records: Iterator[tuple[Position, Record]]) -> None:
        self.last = max(self.last, self.completed)
        for _, record in records:
            self.last = max(self.last, record.stamp)
            entry = journal.entry_of(record)
            if isinstance(entry, Asked):
                self.requests.setdefault(entry.stamp, []).append(entry.request)
            elif isinstance(entry, Completed):
                self.completed = max(self.completed, entry.stamp)
                self.states.update(entry.states)


class DurableRun:
    """Applies what switches stamp to a pipeline, with a log. One thread owns it.

    folder: of the checkpoints, of which the last `keep` stay. The log before the oldest goes, unless
    `keep_log`. They are for a run of the pipeline's program as it is now, whatever views are added later.

    Raises LogError and CheckpointError where the disk refuses; what was accepted before stays.
    """

    def __init__(
        self,
        pipeline: Pipeline,
        log: Log,
        folder: Path,
        *,
        clock: HybridClock | None = None,
        keep: int = 2,
        keep_log: bool = False,
        files: Files | None = None,
    ) -> None:
        self.log, self.pipeline = log, pipeline
        self.clock = clock or HybridClock()
        self.epoch = 0
        # What is to survive a crash by itself, as the log that it was made of may go.
        self.before_checkpoint: Callable[[], object] = lambda: None
        self._folder, self.program = folder, pipeline.engine.program
        self._layout = layout_of(self.program)
        # As their exchanges list them now; the log may have them with other ticks and lots.
        self._listed = tuple(pipeline.instruments)
        self._lacking: CompiledProgram | None = None
        self._keep, self._keep_log, self._files = keep, keep_log, files
        self._states: dict[str, bytes] = {}
        self._stamp = 0
        # The stamp of the last item that is applied; whether one is being applied.
        self.applied, self.applying = -1, False
        self._started = False
        self._kept: list[Position] = []
        self._earlier: Sequence[Mapping[str, bytes]] = ()
        pipeline.host.log_to(self)

    def recover(self, checkpoint: Checkpoint | None, before: Iterable[Mapping[str, bytes]] = ()) -> Recovery:
        """Bring the pipeline to where the log ends; the first thing to call.

        before: what strategies saved earlier, for those that do not take up what they saved last. Raises
        CheckpointError for one that cannot be gone on from; the log is then as it was, the pipeline is not.
        Raises LogError where the log ends later than the clock's limits allow, before anything is done.
        """
        start = time.monotonic()
        saved = None if checkpoint is None else load_checkpoint(checkpoint, self.pipeline)
        first = self.log.start if saved is None else saved.position
        past = _Past(-1, {}) if saved is None else _Past(saved.stamp, dict(saved.states))
        past.read(self.log.read(first))
        self._earlier = [*([] if saved is None else [saved.states]), *before]
        self._resume_time(past.last)
        self._started = saved is not None and saved.started
        self.applied = -1 if saved is None else saved.stamp
        self.pipeline.measures = False
        items, repeated = self._repeat(first, () if saved is None else saved.instruments, past)
        self.pipeline.measures = True
        crashed = self._started
        self.pipeline.instruments.adopt(self._listed)
        self._append_instruments()
        path = None if saved is None else saved.path
        return Recovery(path, items, repeated, crashed, time.monotonic() - start)

    @property
    def whole(self) -> bool:
        """Whether the log has its beginning."""
        return self.log.start == 0

    def start(self) -> None:
        """Tell the strategies that events will come that were not told before a crash."""
        names = self.pipeline.host.unstarted
        if names or not self._started:
            self._live(Lifecycle(self.clock.stamp(), True, names))

    def stop(self) -> None:
        """Tell the strategies that no more will come: the run ends in order."""
        self._live(Lifecycle(self.clock.stamp(), False))

    def accept(self, items: Sequence[Stamped]) -> None:
        """Log what has been received; durable on return under the policy "batch"."""
        self.log.append_all([journal.stamped_record(item) for item in items])

    def apply(self, item: Stamped) -> None:
        """Apply what was accepted, in its order."""
        self._apply(item, ())

    def request(self, request: LoggedRequest) -> None:
        """See RequestLog."""
        self.log.append(journal.request_record(self._stamp, request))

    def end_epoch(self, number: int, stamp: int) -> None:
        """Log that everything below a stamp is committed."""
        self.epoch = number
        self.log.append_all([journal.epoch_record(EpochEnd(stamp, number))], durable=False)

    def checkpoint(self) -> bool:
        """Write a checkpoint, between two items, and let go of the log before the oldest that is kept.

        While a view of the program is dropped none is written, and the log stays from the last one on.
        Returns whether one was written.
        """
        self.before_checkpoint()
        self.log.sync()
        position, own = self.log.end, tuple(self.pipeline.instruments)
        run = RunCheckpoint(position, self._stamp, own, self._states, self._started)
        keep, files = self._keep, self._files
        try:
            save_checkpoint(
                self._folder, self.pipeline, self.program, run, keep=keep, layout=self._layout, files=files
            )
        except OtherProgram:
            self._warn_of_dropped()
            return False
        # Whoever reads on from here finds out of what the events are.
        self._append_instruments()
        self._kept = [*self._kept, position][-self._keep :]
        if not self._keep_log and len(self._kept) == self._keep:
            self.log.truncate_before(self._kept[0])
        return True

    def _warn_of_dropped(self) -> None:
        """Once for every program that lacks a view."""
        if self._lacking is not self.pipeline.engine.program:
            self._lacking = self.pipeline.engine.program
            _logger.warning(
                "views of the configuration have been dropped: no checkpoint is written and the log grows "
                "until they are added again"
            )

    def _resume_time(self, last: int) -> None:
        """Goes on after the last stamp, also where that is still to come by the machine's clock."""
        time, folder = self.clock.time, self.log.folder
        ahead, limits = last - time.now(), time.limits
        if ahead <= limits.max_step:
            self.clock.resume(last)
            return
        at = datetime.fromtimestamp(last / 1e9, UTC)
        ends = f"ends at {at:%Y-%m-%dT%H:%M:%SZ}, {length_text(ahead)} after what the machine's clock says"
        if ahead > limits.max_ahead:
            raise LogError(
                folder,
                f"it {ends}, more than clock.max_ahead ({length_text(limits.max_ahead)})",
                "set the machine's clock right where it is wrong; else give the run another log folder, or a "
                "clock.max_ahead of more, with which NOW() goes on from where the log ends",
            )
        _logger.warning(
            "the log %s %s: NOW() goes on from there; with another log folder it goes by the clock at once",
            folder,
            ends,
        )
        self.clock.resume(last)

    def _append_instruments(self) -> None:
        self.log.append(journal.instruments_record(self.clock.stamp(), self.pipeline.instruments))

    def _repeat(self, first: Position, own: Sequence[Instrument], past: _Past) -> tuple[int, int]:
        """Apply the log again; how many items there were, and how many with callbacks."""
        host = self.pipeline.host
        known = {one: index for index, one in enumerate(self.pipeline.instruments)}
        numbering = journal.Renumbering(known, own)
        items = repeated = 0
        self._states = past.states
        self._stamp = max(past.completed, 0)
        host.silent = True
        for _, record in self.log.read(first):
            entry = numbering.take(journal.entry_of(record), self.pipeline.instruments)
            if isinstance(entry, EpochEnd):
                self.epoch = entry.number
            elif isinstance(entry, Stamped | Lifecycle):
                if host.silent and entry.stamp > past.completed:
                    self._wake(past)
                items += 1
                repeated += not host.silent
                self._apply(entry, past.requests.get(entry.stamp, ()))
        if host.silent:
            self._wake(past)
        return items, repeated

    def _wake(self, past: _Past) -> None:
        """From here on strategies are called; they know what they knew when they had completed."""
        self.pipeline.host.silent = False
        self.pipeline.host.restore_states(past.states, self._earlier)

    def _live(self, entry: Lifecycle) -> None:
        self.log.append(journal.lifecycle_record(entry))
        self._apply(entry, ())

    def _apply(self, entry: Stamped | Lifecycle, replayed: Sequence[LoggedRequest]) -> None:
        pipeline, host = self.pipeline, self.pipeline.host
        self._stamp, self.applying = entry.stamp, True
        calls = host.calls
        host.begin_item(replayed)
        if isinstance(entry, Stamped):
            pipeline.apply_stamped(entry)
        elif entry.starts:
            pipeline.start(entry.names)
        else:
            pipeline.finish()
        host.end_item()
        if isinstance(entry, Lifecycle):
            self._started = entry.starts
        if not host.silent and host.calls != calls:
            states = host.take_states()
            self._states.update(states)
            self.log.append_all([journal.completed_record(Completed(entry.stamp, states))], durable=False)
        self.applied, self.applying = entry.stamp, False
        pipeline.engine.advance()


_recovery_logger = logging.getLogger("orderbook.recovery")


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
                _recovery_logger.warning("%s; %s is used instead", error, _named(self.candidates[number + 1]))
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
            _recovery_logger.warning(
                "recovered %s in %.1f s: checkpoint %s, %d items applied again, %d of them with callbacks",
                how,
                found.seconds,
                found.checkpoint or "none",
                found.items,
                found.repeated,
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
def open_past(configuration: Configuration, program: CompiledProgram, own: Instruments) -> Iterator[Past]:
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
            _recovery_logger.warning(
                "%s is of another program; the log is applied from its beginning", there[0].path
            )
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
