"""How the events of sources lie in time, and the stamps that part them evenly."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from feeds.places import open_parquet, place
from orderbook.backtest.reading import read_slices
from orderbook.backtest.sources import SourceSpec
from orderbook.instruments import Instruments

_TIMES = ("receive_time", "exchange_time")


@dataclass(frozen=True, slots=True)
class Span:
    """So many events between two stamps, ns, taken to be spread evenly."""

    first: int
    last: int
    events: int


def spans_of(specs: Sequence[SourceSpec]) -> tuple[Span, ...]:
    """The events of sources in spans: of records by the footers of their files, of others by reading them.

    Raises SourceError of a source that cannot be opened.
    """
    records = [span for spec in specs for path in spec.paths for span in _record_spans(path)]
    others = [(place, spec) for place, spec in enumerate(specs) if not spec.paths]
    return (*records, *_read_spans(others)) if others else tuple(records)


def _record_spans(path: str) -> Iterator[Span]:
    with open_parquet(place(path)) as file:
        names = file.schema_arrow.names
        for number in range(file.metadata.num_row_groups):
            group = file.metadata.row_group(number)
            for name in _TIMES:
                found = group.column(names.index(name)).statistics
                if found is not None and found.has_min_max and found.max:
                    yield Span(found.min or found.max, found.max, group.num_rows)
                    break


def _read_spans(specs: Sequence[tuple[int, SourceSpec]]) -> Iterator[Span]:
    instruments = Instruments(dict.fromkeys(one for _, spec in specs for one in spec.instruments))
    for part in read_slices(specs, instruments, []):
        for versions in (part.events.versions, *(changes.versions for changes in part.changes)):
            if len(versions):
                stamps = versions["stamp"]
                yield Span(int(stamps[0]), int(stamps[-1]), len(stamps))


def quantiles(spans: Sequence[Span], pieces: int, step: int = 1) -> tuple[int, ...]:
    """Stamps, multiples of `step`, at which pieces of about equally many events begin, all but the first.

    They are fewer where events are at fewer moments.
    """
    if not spans:
        return ()
    start = min(span.first for span in spans)
    firsts = np.array([span.first - start for span in spans], np.float64)
    lengths = np.array([span.last - span.first + 1 for span in spans], np.float64)
    rates = np.array([span.events for span in spans]) / lengths
    moments = np.concatenate([firsts, firsts + lengths])
    order = np.argsort(moments, kind="stable")
    moments = moments.take(order)
    rate = np.cumsum(np.concatenate([rates, -rates]).take(order))
    events = np.concatenate([[0.0], np.cumsum(rate[:-1] * np.diff(moments))])
    wanted = events[-1] * np.arange(1, pieces) / pieces
    stamps = {-(-(start + int(at)) // step) * step for at in np.interp(wanted, events, moments)}
    return tuple(sorted(stamp for stamp in stamps if start < stamp <= start + moments[-1]))
