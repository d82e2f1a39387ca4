"""The block logs of a run's log: as far as it goes now, as it grows, and taken up again after a stop.

The log of a run becomes slices, which are cut into block logs as those of files are. From where the block
logs are gone on with is a checkpoint of its own kind.
"""

import hashlib
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec
import numpy as np
from numpy.typing import NDArray

from orderbook.backtesting.relation_rows import RelationRows, SavedClock, SavedRows
from orderbook.core.errors import DataError, Problems, SourceError, UserError
from orderbook.core.files import LOCK_NAME, OsFiles, refuse_url, replace_file
from orderbook.durability import journal
from orderbook.durability.journal import Known, Renumbering
from orderbook.engine.checkpoint import Checkpoint, Sections, newest_checkpoint, write_checkpoint
from orderbook.engine.distribution.blocks import VERSION, Block, Versions, decode_blocks
from orderbook.engine.log.log import LogReader
from orderbook.engine.log.segments import LogError, Position, bases
from orderbook.engine.runtime import engine_state
from orderbook.engine.runtime.engine_state import EngineState, codes_of
from orderbook.feeds.merge import ChangeItem, Slice, TickItem, VersionedChanges, VersionedEvents, versions_of
from orderbook.feeds.raw_log import InstrumentText
from orderbook.feeds.row_batch import message_ends
from orderbook.market import books as book_snapshot
from orderbook.market.book_relations import SavedState
from orderbook.market.events import EVENT, Events, Flag
from orderbook.market.instruments import Instrument, Instruments
from orderbook.run.event_queue import Stamped
from orderbook.streaming.block_log import encoded
from orderbook.streaming.block_writer import BlockCutter, CutSettings, LoggedSwitches, Report, SwitchesState
from orderbook.views.program import CompiledProgram

_LAST = int(Flag.LAST)


def slice_of(entries: Sequence[Stamped], counts: Counter[int]) -> Slice:
    """What some entries of a log brought, in the log's order, under the stamps and switches of then.

    A switch's events are numbered from 1, after those that `counts` has. What it received at once is one
    message or several, of one stamp.
    """
    events: list[Events] = []
    versions: list[Versions] = []
    changes: list[VersionedChanges] = []
    for entry in entries:
        item = entry.item
        if isinstance(item, ChangeItem):
            numbered = _numbered(entry, message_ends(item.changes), counts)
            changes.append(VersionedChanges(item.source, item.changes, numbered))
        elif isinstance(item, np.ndarray) and len(item):
            own = item.copy()
            own["flags"][-1] |= _LAST
            numbered = _numbered(entry, np.flatnonzero(own["flags"] & _LAST) + 1, counts)
            known = own["instrument"] >= 0
            events.append(own[known])
            versions.append(numbered[known])
    whole = np.concatenate(events) if events else np.empty(0, EVENT)
    places = np.concatenate(versions) if versions else np.empty(0, VERSION)
    return Slice(VersionedEvents(whole, places), tuple(changes), entries[-1].stamp)


def _numbered(entry: Stamped, ends: Sequence[int] | NDArray[np.int64], counts: Counter[int]) -> Versions:
    """VERSION of what came at once, whose messages end before `ends`."""
    last = np.array(ends, np.int64)
    lengths = last - np.concatenate(([0], last[:-1]))
    stamps = np.full(len(lengths), entry.stamp, np.int64)
    versions = versions_of(stamps, lengths, entry.switch, counts[entry.switch])
    counts[entry.switch] += len(versions)
    return versions


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
    codes: NDArray[np.int64] | None = None


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
        "rows": engine_state.sections_of(rows),
    }
    if state.rows.books is not None:
        parts["books"] = book_snapshot.sections_of(state.rows.books)
    write_checkpoint(folder, parts, program=settings, position=position, stamp=state.last, keep=_KEEP)


def load_state(found: Checkpoint, program: CompiledProgram) -> FollowState:
    """The state that was written; arrays are read from its file when they are used."""
    follow, books = found.part("follow"), found.part("books")
    values = msgspec.msgpack.decode(follow["values"].bytes(), type=_Values)
    rows = engine_state.state_of(found.part("rows"))
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


# Beside the logs of switches: how they are written, and states from which that goes on.
_PROGRESS, _STATES = "written.json", "states"
# Entries of a log that are taken in together; bytes and seconds between two states.
_TOGETHER = 256
_STATE_BYTES, _STATE_SECONDS = 64 << 20, 30.0


class Progress(msgspec.Struct, frozen=True):
    """How block logs are written that can be gone on with.

    settings: a hash of how the log is cut. begun: it had a record. followed: see EndRequests. finished:
    nothing more can come.
    """

    settings: str
    begun: bool = False
    followed: dict[int, int] = {}
    finished: bool = False


class LogFollower:
    """Writes the block logs of the log in a folder, which a run may be writing; one process at a time.

    A folder that was begun is gone on with: from its newest state, or the log's beginning, everything is done
    again as it was, and what the block logs have already is not written twice. Raises UserError for a folder
    of something else or one that is finished.
    """

    def __init__(self, log: Path, settings: CutSettings) -> None:
        refuse_url(settings.folder)
        self._log, self._settings, self._folder = log, settings, settings.folder
        self._digest = _digest(settings)
        self._lock = self._locked()
        try:
            self._progress = self._found()
            self._begin()
        except BaseException:
            self.close()
            raise

    def _begin(self) -> None:
        settings, progress = self._settings, self._progress
        self.events = 0
        # All that the log has named, by their places in the books.
        self._instruments: dict[Instrument, int] = {}
        self._numbering = Renumbering(self._instruments)
        self._counts: Counter[int] = Counter()
        self._rows = self._fresh()
        self._write(progress)
        self.logs = LoggedSwitches(
            settings.program, self._folder, settings.switches, settings.epoch, [f"log:{self._log.resolve()}"],
            True, progress.followed, self._note, settings.resolution,
        )  # fmt: skip
        self._cutter = BlockCutter(settings, self.logs, 1)
        start = Position(0)
        if progress.begun and (found := newest_checkpoint(self._folder / _STATES, self._digest)):
            start = Position(int(found.position))
            self._load(load_state(found, settings.program))
        self._reader = LogReader(self._log, journal.IDENTITY, start=start)
        # The place and time of the last state, and the stamps that the two newest have come to.
        self._saved, self._saved_at, self._lasts = start, time.monotonic(), (0, self._cutter.last)

    @property
    def problems(self) -> Problems:
        """What was wrong with rows."""
        return self._rows.problems

    @property
    def read_part(self) -> float:
        """Which part of what the log has was read, as far as one can say."""
        try:
            size = sum(path.stat().st_size for path in self._log.glob("*.log"))
            first = bases(OsFiles(), self._log)[0]
        except (OSError, IndexError):
            return 0.0
        return min(1.0, (self._reader.position - first) / max(1, size))

    def read(self, report: Report = lambda _: None, stopped: Callable[[], bool] = lambda: False) -> None:
        """Takes in what the log has now, unless stopped, and lets readers see what came of it.

        `report` is told how many events this process has done. Raises LogError where the log is damaged,
        SourceError where it does not reach back to what is needed, or something else was made of it before.
        """
        entries: list[Stamped] = []
        try:
            for number, (_, record) in enumerate(self._reader.read(), 1):
                if not self._progress.begun:
                    self._write(msgspec.structs.replace(self._progress, begun=True))
                entry = journal.entry_of(record)
                if isinstance(entry, Known):
                    self._take(entries)
                    self._know(entry.instruments)
                elif isinstance(entry, Stamped) and isinstance(entry.item, TickItem):
                    self._take(entries)
                    self._cutter.take(self._rows.tick(entry.stamp), entry.stamp)
                elif isinstance(entry, Stamped) and isinstance(entry.item, np.ndarray | ChangeItem):
                    entries.append(entry)
                if number % _TOGETHER == 0:
                    self._take(entries)
                    self._save_if_due()
                    report(self.events)
                    if stopped():
                        break
        except LogError:
            self._check_there(self._reader.position)
            raise
        self._take(entries)
        self.logs.flush()
        self._save_if_due()
        report(self.events)

    def finish(self) -> None:
        """Ends the last epoch with what was read: the logs are complete, and not gone on with any more."""
        self._cutter.finish()
        self._write(msgspec.structs.replace(self._progress, finished=True))

    def save(self) -> None:
        """Writes a state, from which to go on. Raises CheckpointError."""
        if not self._progress.begun:
            return
        self.logs.flush()
        position, last = self._reader.position, self._cutter.last
        state = FollowState(
            tuple(self._instruments), self._numbering.own, self._counts, self.logs.save(), self._rows.save(),
            self.problems, self._cutter.held, last,
        )  # fmt: skip
        save_state(self._folder / _STATES, self._settings.program, self._digest, position, state)
        self._saved, self._saved_at, self._lasts = position, time.monotonic(), (self._lasts[1], last)
        followed = self.logs.requests.followed
        for stamp in [stamp for stamp in followed if stamp <= self._lasts[0]]:
            del followed[stamp]

    def close(self) -> None:
        """Gives the folder back."""
        OsFiles().unlock(self._lock)

    def _locked(self) -> int:
        files = OsFiles()
        try:
            files.make_folder(self._folder)
            return files.lock(self._folder)
        except BlockingIOError as error:
            raise UserError(f"{self._folder}: {error.strerror}; stop it, or name another folder") from None
        except OSError as error:
            raise SourceError(f"{self._folder}: cannot write: {error.strerror or error}") from None

    def _found(self) -> Progress:
        """How the folder was begun."""
        path, digest = self._folder / _PROGRESS, self._digest.hex()
        if not path.is_file():
            if any(one.name != LOCK_NAME for one in self._folder.iterdir()):
                raise UserError(f"{self._folder}: not empty, and no block logs of a log; name another folder")
            return Progress(digest)
        try:
            found = msgspec.json.decode(path.read_bytes(), type=Progress)
        except (OSError, msgspec.MsgspecError) as error:
            raise SourceError(f"{path}: cannot read: {error}") from None
        if found.settings != digest:
            raise UserError(
                f"{self._folder}: begun with other views, --switches, --epoch or --block; "
                "give the same, or name another folder"
            )
        if found.finished:
            raise UserError(f"{self._folder}: not empty, and complete; name another folder")
        return found

    def _write(self, progress: Progress) -> None:
        self._progress = progress
        replace_file(self._folder / _PROGRESS, msgspec.json.format(msgspec.json.encode(progress), indent=1))

    def _note(self, followed: Mapping[int, int]) -> None:
        self._write(msgspec.structs.replace(self._progress, followed=dict(followed)))

    def _check_there(self, position: int) -> None:
        """Refuses a log that begins later: what its rows do depends on those before."""
        first = min(bases(OsFiles(), self._log), default=0)
        if position < first:
            raise SourceError(
                f"{self._log}: what it had before position {first} is gone, and needed from {position} on; "
                "a run keeps all of it with keep_log = true under [log]"
            )

    def _fresh(self) -> RelationRows:
        try:
            own = Instruments(self._instruments)
        except DataError as error:
            raise SourceError(f"{self._log}: an instrument's tick or lot changed in it: {error}") from error
        return RelationRows(self._settings.program, own, True, self._settings.resolution)

    def _know(self, instruments: tuple[Instrument, ...]) -> None:
        self._numbering.name(instruments)
        count = len(self._instruments)
        for one in instruments:
            self._instruments.setdefault(one, len(self._instruments))
        if len(self._instruments) > count:
            before, self._rows = self._rows, self._fresh()
            self._rows.load(before.save())
            self._rows.problems.extend(before.problems)

    def _take(self, entries: list[Stamped]) -> None:
        """Takes entries in and out of the list."""
        if not entries:
            return
        part = slice_of([self._numbering.of(entry) for entry in entries], self._counts)
        self._cutter.take(self._rows.blocks(part), part.until)
        self.events += len(part.events) + sum(map(len, part.changes))
        entries.clear()

    def _save_if_due(self) -> None:
        grown = self._reader.position - self._saved
        if grown >= _STATE_BYTES or (grown and time.monotonic() - self._saved_at >= _STATE_SECONDS):
            self.save()

    def _load(self, state: FollowState) -> None:
        self._instruments = {one: place for place, one in enumerate(state.instruments)}
        self._numbering = Renumbering(self._instruments, state.own)
        self._counts = Counter(state.counts)
        self._rows = self._fresh()
        self._rows.load(state.rows, state.codes)
        self._rows.problems.extend(state.problems)
        self.logs.load(state.switches)
        self._cutter.held, self._cutter.last = list(state.held), state.last


def _digest(settings: CutSettings) -> bytes:
    """A hash of what the messages of block logs depend on besides the log."""
    cut = settings.switches, settings.epoch, settings.span, settings.resolution
    said = repr((settings.program.relations, *cut))
    return hashlib.sha256(said.encode()).digest()


def write_logged_blocks(
    log: Path, settings: CutSettings, report: Callable[[LogFollower], None]
) -> LogFollower:
    """Cut all that a log has now into block logs, which are complete then; gone on with where begun.

    `report` is called with the follower now and then. Raises as LogFollower does, SourceError without a log.
    """
    if not any(log.glob("*.log")):
        raise SourceError(f"{log}: no log there; name the folder of [log] in the run's configuration")
    follower = LogFollower(log, settings)
    try:
        follower.read(lambda _: report(follower))
        follower.finish()
    finally:
        follower.close()
    return follower
