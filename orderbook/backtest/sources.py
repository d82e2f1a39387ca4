"""The sources of a backtest, in an order that depends on what they hold and not on how they were listed."""

from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from itertools import chain

from orderbook.core.errors import DataError, SourceError
from orderbook.feeds.change_stream import ChangeSource
from orderbook.feeds.files.binance_capture import NoDepthError
from orderbook.feeds.files.lobster import LobsterSource
from orderbook.feeds.merge import is_event_source, with_crossed_states
from orderbook.feeds.recording.parquet_record import RecordSource, read_footer, times_of
from orderbook.feeds.source import EventSource
from orderbook.feeds.source_kinds import (
    Opened,
    Stream,
    absolute,
    each_file,
    open_source,
    open_streams,
    record_files,
)
from orderbook.feeds.storage import place
from orderbook.market.crossed_books import CROSSED_LIMIT
from orderbook.market.instruments import Instrument, Instruments

_AT_ONCE = 16


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

    def open(self, batch_size: int | None = None) -> EventSource | ChangeSource:
        """Raises SourceError where it is not there any more."""
        source = self._source(batch_size)
        return with_crossed_states(source, self.crossed_limit) if is_event_source(source) else source

    def _source(self, batch_size: int | None) -> EventSource | ChangeSource:
        if not self.paths:
            source = open_source(self.text, *self.more)
            if isinstance(source, LobsterSource):
                source.anew = self.anew
            return source
        paths = [place(path) for path in self.paths]
        return RecordSource(paths) if batch_size is None else RecordSource(paths, batch_size)


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
    whatever the order in which they are given.
    Raises SourceError as `open_source` does, and where ticks or lots of one symbol differ.
    """
    names = dict.fromkeys(one for given in texts for one in each_file(given))
    # Files of a store answer late, not slowly.
    with ThreadPoolExecutor(_AT_ONCE if any("://" in name for name in names) else 1) as pool:
        looked = dict(zip(names, pool.map(record_files, names), strict=True))
        records = {str(file.resolve()) for files in looked.values() if files is not None for file in files}
        chains = chained(list(pool.map(record_file, sorted(records))))
        others = sorted({absolute(name) for name, files in looked.items() if files is None})
        streams = open_streams(others, lambda texts: pool.map(_opened, texts))
    single = [_of_stream(stream) for stream in streams]
    specs = sorted([*chains, *single], key=lambda spec: spec.text)
    run_instruments(specs)
    return tuple(replace(spec, crossed_limit=crossed_limit) for spec in specs)


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
