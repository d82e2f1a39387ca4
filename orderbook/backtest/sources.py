"""The sources of a backtest, in an order that depends on what they hold and not on how they were listed."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

import pyarrow.parquet as pq

from feeds.parquet_record import RecordSource
from feeds.source import ChangeSource, EventSource, each_file, open_source, record_files
from orderbook.errors import DataError, SourceError
from orderbook.instruments import Instrument, Instruments
from orderbook.merge import is_event_source

_TIMES = ("receive_time", "exchange_time")


@dataclass(frozen=True, slots=True)
class SourceSpec:
    """A source as a task opens it: record files, one after the other, or what `open_source` takes.

    instruments: its own, in its order (none: it gives changes of relations). rows: events, 0 where unknown.
    """

    text: str
    paths: tuple[str, ...]
    instruments: tuple[Instrument, ...]
    rows: int = 0

    def open(self, batch_size: int | None = None) -> EventSource | ChangeSource:
        """Raises SourceError where it is not there any more."""
        if not self.paths:
            return open_source(self.text)
        paths = [Path(path) for path in self.paths]
        return RecordSource(paths) if batch_size is None else RecordSource(paths, batch_size)


def by_path(text: str) -> str:
    """A source without `file://`. Raises SourceError for another URL, which no reader of files opens."""
    match = re.match(r"([a-z][a-z0-9+.-]*)://", text)
    if match is None:
        return text
    if match[1] != "file":
        raise SourceError(f"{text}: files are read by their path; mount the store, or copy the files")
    return text.removeprefix("file://").removeprefix("localhost")


def absolute(text: str) -> str:
    """A source whose path does not depend on the working folder."""
    kind, colon, path = text.partition(":")
    if Path(text).exists() or not colon:
        return str(Path(text).resolve())
    return text if "://" in path else f"{kind}:{Path(path).absolute()}"


@dataclass(frozen=True, slots=True)
class RecordFile:
    """A record file as its footer tells it: times in ns, of its earliest and latest event."""

    path: str
    instruments: tuple[Instrument, ...]
    rows: int
    first: int
    last: int


def source_specs(texts: Sequence[str]) -> tuple[SourceSpec, ...]:
    """The sources of a run; the place of each is the `switch` of its versions.

    Record files that share an instrument and follow each other in time are one source; files whose times
    overlap are several. Sources are sorted by name, whatever the order in which they are given.
    Raises SourceError as `open_source` does, and where ticks or lots of one symbol differ.
    """
    records: set[str] = set()
    others: list[SourceSpec] = []
    for text in dict.fromkeys(one for given in texts for one in each_file(by_path(given))):
        files = record_files(text)
        if files is not None:
            records.update(str(file.resolve()) for file in files)
            continue
        text = absolute(text)
        source = open_source(text)
        instruments = tuple(source.instruments) if is_event_source(source) else ()
        others.append(SourceSpec(text, (), instruments))
    chains = chained([record_file(path) for path in sorted(records)])
    specs = sorted([*chains, *others], key=lambda spec: spec.text)
    run_instruments(specs)
    return tuple(specs)


def record_file(path: str) -> RecordFile:
    """What the footer of a record file tells. Raises SourceError as RecordSource does."""
    instruments = tuple(RecordSource([Path(path)]).instruments)
    with pq.ParquetFile(path) as file:
        metadata = file.metadata
        names = file.schema_arrow.names
        groups = [metadata.row_group(i) for i in range(metadata.num_row_groups)]
    found = {}
    for name in _TIMES:
        statistics = [group.column(names.index(name)).statistics for group in groups]
        bounds = [s for s in statistics if s is not None and s.has_min_max]
        lows, highs = [s.min for s in bounds if s.max], [s.max for s in bounds if s.max]
        found[name] = (min(lows), max(highs)) if lows else None
    first, last = found["receive_time"] or found["exchange_time"] or (0, 0)
    return RecordFile(path, instruments, metadata.num_rows, first, last)


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
