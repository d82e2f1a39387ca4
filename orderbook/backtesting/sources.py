"""The sources of a backtest, in an order that depends on what they hold and not on how they were listed.

The log of a run is one too, alone: it has the order of its run, which `logged_slices` keeps.
"""

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from orderbook.core.errors import DataError, SourceError, UserError
from orderbook.durability.journal import Known, Lifecycle, LoggedRun
from orderbook.engine.distribution.blocks import VERSION
from orderbook.feeds.change_stream import ChangeSource
from orderbook.feeds.event_writer import DEFAULT_BATCH_SIZE
from orderbook.feeds.files.binance_capture import NoDepthError
from orderbook.feeds.files.lobster import LobsterSource
from orderbook.feeds.merge import (
    NOTHING,
    ChangeItem,
    Slice,
    VersionedChanges,
    VersionedEvents,
    is_event_source,
    versions_of,
    with_crossed_states,
)
from orderbook.feeds.recording.parquet_record import RecordSource, read_footer, times_of
from orderbook.feeds.row_batch import message_ends
from orderbook.feeds.source import EventSource
from orderbook.feeds.source_kinds import (
    Opened,
    Stream,
    absolute,
    each_file,
    has_files,
    open_source,
    open_streams,
    record_files,
)
from orderbook.feeds.storage import place
from orderbook.market.crossed_books import CROSSED_LIMIT
from orderbook.market.events import EVENT, Events, Flag
from orderbook.market.instruments import Instrument, Instruments
from orderbook.run.event_queue import Stamped

_AT_ONCE = 16
_LOG, RECORD = "log:", "record:"
_LAST = int(Flag.LAST)


@dataclass(frozen=True, slots=True)
class SourceSpec:
    """A source as a task opens it: record files, one after the other, or what `open_source` takes.

    instruments: its own, in its order (none: it gives changes of relations). rows: events, 0 where unknown.
    more: further files of the same feed. anew: see `orderbook.feeds.source_kinds.Stream`.
    crossed_limit: ns that its books may be crossed, 0 for ever; see `crossed_books`.
    """

    text: str
    paths: tuple[str, ...]
    instruments: tuple[Instrument, ...]
    rows: int = 0
    more: tuple[str, ...] = ()
    anew: bool = False
    crossed_limit: int = CROSSED_LIMIT

    @property
    def named(self) -> str:
        """Its files, as a job's manifest has them."""
        return ",".join(self.paths or (self.text, *self.more))

    @property
    def log(self) -> Path | None:
        """The folder of the log that it is."""
        return Path(self.text.removeprefix(_LOG)) if self.text.startswith(_LOG) else None

    def open(self, batch_size: int | None = None, unread: Collection[str] = ()) -> EventSource | ChangeSource:
        """unread: fields of events that nobody asks for, see RecordSource. Raises SourceError where it is not
        there any more."""
        source = self._source(batch_size, unread)
        return with_crossed_states(source, self.crossed_limit) if is_event_source(source) else source

    def _source(self, batch_size: int | None, unread: Collection[str]) -> EventSource | ChangeSource:
        if not self.paths:
            source = open_source(self.text, *self.more)
            if isinstance(source, LobsterSource):
                source.anew = self.anew
            return source
        paths = [place(path) for path in self.paths]
        return RecordSource(paths, batch_size or DEFAULT_BATCH_SIZE, unread=unread)


@dataclass(frozen=True, slots=True)
class RecordFile:
    """A record file as its footer tells it: times in ns, of its earliest and latest event."""

    path: str
    instruments: tuple[Instrument, ...]
    rows: int
    first: int
    last: int


def source_specs(texts: Sequence[str], crossed_limit: int = CROSSED_LIMIT) -> tuple[SourceSpec, ...]:
    """The sources of a run; the place of each is the `switch` of its versions. crossed_limit: see SourceSpec.

    Record files that share an instrument and follow each other in time are one source; files whose times
    overlap are several. Other files of one feed are one, see `open_streams`. Sources are sorted by name,
    whatever the order in which they are given. `log:FOLDER` stands alone.
    Raises SourceError as `open_source` does, and where ticks or lots of one symbol differ; UserError for a
    log beside others.
    """
    logs = [text for text in texts if text.startswith(_LOG)]
    if logs and len(texts) > 1:
        raise UserError(f"{logs[0]}: a log has the order of its run; backtest the other sources apart")
    if logs:
        folder = Path(logs[0].removeprefix(_LOG)).absolute()
        return (SourceSpec(f"{_LOG}{folder}", (), tuple(whole_log(folder).instruments)),)
    names = dict.fromkeys(one for given in texts for one in each_file(given))
    # Files of a store answer late, not slowly.
    with ThreadPoolExecutor(_AT_ONCE if any("://" in name for name in names) else 1) as pool:
        looked = dict(zip(names, pool.map(record_files, names), strict=True))
        records = {str(file.resolve()) for files in looked.values() if files is not None for file in files}
        found = list(pool.map(record_file, sorted(records)))
        others = sorted({absolute(name) for name, files in looked.items() if files is None})
        return _specs(found, others, lambda texts: pool.map(_opened, texts), crossed_limit)


def _specs(
    records: Iterable[RecordFile],
    others: Sequence[str],
    opened: Callable[[Sequence[str]], Iterable[Opened | SourceError]] | None,
    crossed_limit: int,
) -> tuple[SourceSpec, ...]:
    single = [_of_stream(stream) for stream in open_streams(others, opened)]
    specs = sorted([*chained(records), *single], key=lambda spec: spec.text)
    run_instruments(specs)
    return tuple(replace(spec, crossed_limit=crossed_limit) for spec in specs)


class GrowingSources:
    """Files and folders of a stream, in which files appear, whole; what footers tell is read once.

    A file is named as `source_specs` takes it, record files with the kind.
    """

    def __init__(self, texts: Sequence[str], crossed_limit: int = CROSSED_LIMIT) -> None:
        logs = [text for text in texts if text.startswith(_LOG)]
        if logs:
            raise UserError(f"{logs[0]}: a log is followed by `orderbook blocks --follow`; name files")
        self._texts, self._limit = texts, crossed_limit
        self._known: dict[str, RecordFile] = {}

    def files(self) -> list[str]:
        """The files that are there, those of earlier records first. Raises SourceError."""
        found: dict[str, int] = {}
        for text in self._texts:
            for name in each_file(text) if has_files(text) else ():
                paths = record_files(name)
                if paths is None:
                    found[absolute(name)] = 0
                for path in paths or ():
                    if path.name.startswith("."):
                        continue
                    name = f"{RECORD}{path.resolve()}"
                    found[name] = self._record(name).first
        return sorted(found, key=lambda name: (found[name], name))

    def specs(self, batches: Mapping[str, int]) -> tuple[SourceSpec, ...]:
        """Files as sources, see `source_specs`, in the order of the batches in which they began to come."""
        records = [self._record(name) for name in sorted(batches) if name.startswith(RECORD)]
        others = sorted(name for name in batches if not name.startswith(RECORD))

        def begun(spec: SourceSpec) -> tuple[int, str]:
            names = [f"{RECORD}{path}" for path in spec.paths] or [spec.text, *spec.more]
            return min((batches[name], name) for name in names)

        return tuple(sorted(_specs(records, others, None, self._limit), key=begun))

    def _record(self, name: str) -> RecordFile:
        if name not in self._known:
            self._known[name] = record_file(name.removeprefix(RECORD))
        return self._known[name]


def whole_log(folder: Path) -> LoggedRun:
    """A run's log. Raises SourceError where there is none, or its beginning is gone."""
    run = LoggedRun(folder)
    if not run.whole:
        raise SourceError(
            f"{run.name}: its beginning went with a checkpoint; give the run `keep_log = true` under [log]"
        )
    return run


@dataclass(frozen=True, slots=True)
class LoggedSlice(Slice):
    """What a run applied at once, as its log has it in `entry` (None: the log has ended).

    The slice has the whole messages of it, all at the entry's stamp; places: VERSION[n] of the entry's
    events.
    """

    entry: Stamped | Lifecycle | Known | None
    places: NDArray[np.void]


def logged_slices(run: LoggedRun, errors: list[SourceError]) -> Iterator[LoggedSlice]:
    """What a log holds, in the order of its run; a log that is damaged ends there, with a SourceError in
    `errors`."""
    waiting = np.empty(0, EVENT)
    counts: Counter[int] = Counter()
    stamp = 0
    nothing = np.empty(0, VERSION)
    try:
        for entry in run:
            # Stamps increase, but those of the ends of runs, which bring nothing.
            stamp = stamp if isinstance(entry, Known) else max(stamp, entry.stamp)
            item = entry.item if isinstance(entry, Stamped) else None
            if not isinstance(item, np.ndarray | ChangeItem) or not len(_content(item)):
                yield LoggedSlice(NOTHING, (), stamp + 1, entry, nothing)
                continue
            switch = entry.switch if isinstance(entry, Stamped) else 0
            if isinstance(item, ChangeItem):
                ends = message_ends(item.changes)
                versions = _versions(stamp, ends, switch, counts)
                changes = VersionedChanges(item.source, item.changes, versions)
                yield LoggedSlice(NOTHING, (changes,), stamp + 1, entry, nothing)
                continue
            events = np.concatenate([waiting, item])
            ends = np.flatnonzero(events["flags"] & _LAST) + 1
            whole = int(ends[-1]) if len(ends) else 0
            if whole < len(events):
                ends = np.append(ends, len(events))
            versions = _versions(stamp, ends, switch, counts)
            counts[switch] -= len(events) - whole
            numbers: NDArray[np.int32] = events["instrument"]
            kept = np.flatnonzero(numbers[:whole] >= 0)
            told = VersionedEvents(events[:whole].take(kept), versions[:whole].take(kept))
            yield LoggedSlice(told, (), stamp + 1, entry, versions[len(waiting) :])
            waiting = events[whole:]
    except SourceError as error:
        errors.append(error)
    yield LoggedSlice(NOTHING, (), None, None, nothing)


def _content(item: Events | ChangeItem) -> Sequence[object] | Events:
    return item.changes if isinstance(item, ChangeItem) else item


def _versions(stamp: int, ends: NDArray[np.int64], switch: int, counts: Counter[int]) -> NDArray[np.void]:
    """VERSION of messages that end before `ends`, after those that are counted, in which they are put."""
    made = versions_of(np.full(len(ends), stamp), np.diff(ends, prepend=0), switch, counts[switch])
    counts[switch] += len(made)
    return made


def _opened(text: str) -> Opened | SourceError:
    try:
        return open_source(text)
    except NoDepthError as error:
        return error


def _of_stream(stream: Stream) -> SourceSpec:
    text, *more = sorted(stream.texts)
    instruments = tuple(stream.source.instruments) if is_event_source(stream.source) else ()
    return SourceSpec(text, (), instruments, more=tuple(more), anew=stream.anew)


def record_file(path: str) -> RecordFile:
    """What the footer of a record file tells. Raises SourceError as RecordSource does."""
    instruments, metadata = read_footer(place(path))
    first, last = times_of(metadata)
    return RecordFile(path, tuple(instruments), metadata.num_rows, first, last)


def chained(files: Iterable[RecordFile]) -> list[SourceSpec]:
    """Record files as sources: a file goes on one that has an instrument of it and ends before it begins."""
    chains: list[list[RecordFile]] = []
    by_instrument: dict[Instrument, list[list[RecordFile]]] = {}
    for file in sorted(files, key=lambda f: (f.first, f.last, f.path)):
        candidates = chain.from_iterable(by_instrument.get(one, ()) for one in file.instruments)
        found = next((c for c in candidates if c[-1].last <= file.first), None)
        if found is None:
            found = []
            chains.append(found)
        found.append(file)
        for one in file.instruments:
            known = by_instrument.setdefault(one, [])
            if not any(found is other for other in known):
                known.append(found)
    return [_spec(one) for one in chains]


def _spec(files: Sequence[RecordFile]) -> SourceSpec:
    paths = tuple(file.path for file in files)
    instruments = dict.fromkeys(one for file in files for one in file.instruments)
    name = min(paths)
    return SourceSpec(f"record:{name}", paths, tuple(instruments), sum(file.rows for file in files))


def run_instruments(specs: Sequence[SourceSpec]) -> Instruments:
    """The instruments of all sources, by venue and symbol. Raises SourceError where two contradict."""
    found = dict.fromkeys(one for spec in specs for one in spec.instruments)
    try:
        return Instruments(sorted(found, key=lambda one: (one.venue, one.symbol)))
    except DataError as error:
        raise SourceError(f"ticks or lots differ between sources: {error}; run them apart") from error
