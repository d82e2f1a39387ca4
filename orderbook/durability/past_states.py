"""What a run was at any version that its log still holds, from the nearest checkpoint; neither is touched.

An engine that goes to one event and no further stops there.
"""

from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from orderbook.configuration.configuration import Configuration
from orderbook.core.changes import END_OF_EVENT, END_OF_MESSAGE, ChangeBatch, part_of
from orderbook.core.errors import DataError, SourceError, UserError
from orderbook.core.files import OsFiles
from orderbook.durability import journal
from orderbook.durability.durable_run import checkpoints_of
from orderbook.durability.journal import Asked, Kind, Known, Lifecycle
from orderbook.durability.run_checkpoint import instruments_of, load_checkpoint
from orderbook.engine.checkpoint import Checkpoint, newest_checkpoint
from orderbook.engine.log.log import LogReader
from orderbook.engine.log.segments import Position, Record, bases
from orderbook.engine.runtime.engine_state import program_hash
from orderbook.engine.runtime.subscriptions import Version
from orderbook.market.book_relations import TOLD_BY_STATES
from orderbook.market.instruments import Instrument, Instruments
from orderbook.run.assembly import piped, started, warm_up
from orderbook.run.event_queue import Stamped
from orderbook.run.pipeline import Pipeline
from orderbook.strategies.execution.client import LoggedRequest
from orderbook.strategies.gated_engine import GatedEngine
from orderbook.views.program import CompiledProgram

_ENDS = END_OF_EVENT | END_OF_MESSAGE


class Reached(Exception):
    """The engine stands where it was to stop."""


# What strategies bring about in a message comes after it.
_FOLLOWING = ("orders", "fills", "positions")


class Stop:
    """How far the engine of a past run goes; raises Reached before the first event that it is not to apply.

    Without `stop_after` or `look_at` it goes on. unnumbered: relations whose events have no number, because
    the run whose numbers these are did not have them.
    """

    def __init__(self, engine: GatedEngine, unnumbered: Collection[str] = ()) -> None:
        self._engine, self._unnumbered = engine, unnumbered
        self._last: int | None = None
        self._looked: int | None = None
        self._look: Callable[[ChangeBatch], object] = lambda _: None
        self._after: Callable[[], object] = lambda: None
        # The number of the event before those at hand.
        self._before = 0
        engine.control(self)

    def stop_after(self, sequence: int) -> None:
        """The event of this number, counted from 1, is the last."""
        self._last = sequence

    def look_at(
        self, sequence: int, look: Callable[[ChangeBatch], object], after: Callable[[], object]
    ) -> None:
        """`look` is given the changes of the event of this number before it is applied, `after` called then.

        The message it belongs to is the last, but for orders and fills that follow from it.
        """
        self._looked, self._look, self._after = sequence, look, after

    def end(self, changes: ChangeBatch, start: int) -> int:
        """See StepControl."""
        self._before = before = self._engine.version[2]
        end, relation = len(changes), self._relation(changes, start)
        if self._without_number(changes, start):
            return end
        if self._last is not None:
            if before >= self._last:
                raise Reached
            end = _end_of(changes, start, self._last - before)
        elif self._looked is not None and before < self._looked:
            end = _end_of(changes, start, max(self._looked - 1 - before, 1))
            if before == self._looked - 1:
                self._look(part_of(changes, start, end))
        elif self._looked is not None and not self._engine.message_open and relation not in _FOLLOWING:
            # The message that was looked at is over.
            raise Reached
        return end

    def applied(self, changes: ChangeBatch, start: int, _: int) -> None:
        """See StepControl."""
        if self._without_number(changes, start):
            self._engine.count_from(self._before)
        elif self._looked is not None and self._before < self._looked == self._engine.version[2]:
            self._after()

    def free(self, events: int) -> bool:
        """See StepControl."""
        last = [one for one in (self._last, self._looked) if one is not None]
        return not self._unnumbered and all(self._engine.version[2] + events < one for one in last)

    def _without_number(self, changes: ChangeBatch, start: int) -> bool:
        """Whether all of an event, which is a batch then, is of relations that have none."""
        return all(self._relation(changes, at) in self._unnumbered for at in (start, len(changes) - 1))

    def _relation(self, changes: ChangeBatch, start: int) -> str | None:
        kind = int(changes.kinds[start])
        return self._engine.program.relations[kind >> 1].name if kind >= 0 else None


def _end_of(batch: ChangeBatch, start: int, events: int) -> int:
    """The index after the last change of the next `events` events."""
    ends = np.flatnonzero(batch.flags[start:] & _ENDS)[:events]
    return start + int(ends[-1]) + 1 if len(ends) == events else len(batch)


LAST = 2**63 - 1
_ATTEMPTS = 3


@dataclass(slots=True)
class PastRun:
    """A log on its way to a version: strategies are silent, what they asked for then is done again.

    `requests` are those of the log, by the stamp of what they answer.
    """

    configuration: Configuration
    engine: GatedEngine
    stop: Stop
    pipeline: Pipeline
    requests: dict[int, list[LoggedRequest]]
    checkpoint: Path | None
    first: Position | None
    own: Sequence[Instrument]
    item: Stamped | Lifecycle | None = field(default=None)

    def go_to(self, version: Version) -> None:
        """Apply every event up to this version; the engine is of no more use than to be read then."""
        for entry in self.items(version):
            if self.place(entry) == version[:2] and version[2] != LAST:
                if self.engine.version[2] >= version[2]:
                    return
                self.stop.stop_after(version[2])
            try:
                self.apply(entry)
            except Reached:
                return

    def apply_through(self, stamp: int) -> None:
        """Apply every item up to one, without a look at events' numbers."""
        self.engine.control(None)
        for entry in self.items((stamp, LAST, LAST)):
            self.apply(entry)

    def apply(self, entry: Stamped | Lifecycle) -> None:
        """Apply an item. Raises Reached where the engine was to stop in it."""
        host = self.pipeline.host
        self.item = entry
        host.begin_item(self.requests.get(entry.stamp, ()))
        if isinstance(entry, Stamped):
            self.pipeline.apply_stamped(entry)
        elif entry.starts:
            self.pipeline.start(entry.names)
        else:
            self.pipeline.finish()
        host.end_item()

    def items(self, version: Version) -> Iterator[Stamped | Lifecycle]:
        """What was stamped up to a version, to be applied by `apply`."""
        known = {one: index for index, one in enumerate(self.pipeline.instruments)}
        numbering = journal.Renumbering(known, self.own)
        for _, record in _reader(self.configuration, self.first).read():
            entry = numbering.take(journal.entry_of(record), self.pipeline.instruments)
            if isinstance(entry, Stamped | Lifecycle):
                if self.place(entry) > version[:2]:
                    return
                yield entry

    @staticmethod
    def place(entry: Stamped | Lifecycle) -> tuple[int, int]:
        """Stamp and switch."""
        return entry.stamp, entry.switch if isinstance(entry, Stamped) else 0


def open_past_run(
    configuration: Configuration, version: Version | None, keep_rows: bool = False, measured: bool = False
) -> PastRun:
    """The run that the configuration's log holds, at the nearest checkpoint before a version (None: the end).

    keep_rows: the rows of all relations are kept, for which the log is applied from its beginning, unless
    the run keeps them itself. measured: see Engine. Nothing is locked, and the run may go on meanwhile.

    Raises SourceError where there is no log, UserError for a version before what is kept, LogError.
    """
    for _ in range(_ATTEMPTS - 1):
        # The run may write a checkpoint meanwhile, and remove the one that is being read.
        with suppress(FileNotFoundError):
            return _opened(configuration, version, keep_rows, measured)
    return _opened(configuration, version, keep_rows, measured)


def _opened(
    configuration: Configuration, version: Version | None, keep_rows: bool, measured: bool
) -> PastRun:
    folder = log_folder(configuration)
    again = keep_rows and not configuration.engine.keep_rows
    if again:
        kept = configuration.engine.model_copy(update={"keep_rows": True})
        configuration = configuration.model_copy(update={"engine": kept})
    assembly, engine = started(configuration, measured)
    checkpoint = None if again else _checkpoint(folder, engine.program, version)
    if checkpoint is None:
        _check_beginning(folder, version, again)
    first = None if checkpoint is None else Position(int(checkpoint.position))
    requests: dict[int, list[LoggedRequest]] = defaultdict(list)
    found = [] if checkpoint is None else list(instruments_of(checkpoint))
    for record in _records(configuration, first):
        entry = journal.entry_of(record)
        if isinstance(entry, Known):
            found += entry.instruments
        elif isinstance(entry, Asked):
            requests[entry.stamp].append(entry.request)
    try:
        instruments = Instruments(dict.fromkeys(found))
    except DataError as error:
        raise SourceError(f"{folder}: an instrument has other units later in the log: {error}") from error
    pipeline = piped(configuration, assembly, engine, instruments, gateways=True)
    warm_up(pipeline)
    pipeline.measures, pipeline.host.silent = False, True
    # These reach an engine where a view reads them, or all rows are kept.
    read = {trigger.relation for trigger in engine.program.program.triggers}
    stop = Stop(engine, [name for name in TOLD_BY_STATES if name not in read] if again else ())
    own = () if checkpoint is None else load_checkpoint(checkpoint, pipeline).instruments
    path = None if checkpoint is None else checkpoint.path
    return PastRun(configuration, engine, stop, pipeline, requests, path, first, own)


def log_folder(configuration: Configuration) -> Path:
    """The folder of the log. Raises UserError where none is configured, SourceError where there is none."""
    folder = configuration.log.folder
    if folder is None:
        raise UserError("no log is configured; give --log FOLDER, or log.folder in the configuration")
    if not folder.is_dir() or not bases(OsFiles(), folder):
        raise SourceError(f"{folder}: no log there; name the folder of [log] in the run's configuration")
    return folder


def _checkpoint(folder: Path, program: CompiledProgram, version: Version | None) -> Checkpoint | None:
    before = None if version is None else version[0]
    return newest_checkpoint(checkpoints_of(folder), program_hash(program), before=before)


def _check_beginning(folder: Path, version: Version | None, again: bool) -> None:
    start = min(bases(OsFiles(), folder))
    if not start:
        return
    if again:
        raise DataError(
            f"{folder}: the rows of relations are not kept, and the log's beginning is gone; query views, "
            "or run with keep_rows = true in [engine]"
        )
    what = "is of this program" if version is None else f"of this program is older than {version[0]}"
    raise UserError(
        f"{folder}: the log's beginning is gone and no checkpoint {what}; ask for a later version, and with "
        "the configuration of the run; keep_log = true in [log] keeps everything"
    )


def _reader(configuration: Configuration, first: Position | None) -> LogReader:
    assert configuration.log.folder is not None
    return LogReader(configuration.log.folder, journal.IDENTITY, start=first)


def _records(configuration: Configuration, first: Position | None) -> Iterator[Record]:
    """Instruments and requests, which are needed before what they belong to."""
    for _, record in _reader(configuration, first).read():
        if record.kind in (Kind.INSTRUMENTS, Kind.REQUEST):
            yield record
