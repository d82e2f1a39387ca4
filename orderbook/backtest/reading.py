"""Reading sources in the order of versions: slices of all that lies before a stamp, of chosen instruments.

A message's stamp is its receive time, else its exchange time, never less than that of the message before it
in its source; its events are numbered from 1 through the source. So a version does not depend on what else is
read.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import cast

import numpy as np

from engine.distribution.block import VERSION
from feeds.source import ChangeSource
from orderbook.backtest.numbering import (
    FIRST_STAMP,
    VersionedChanges,
    VersionedEvents,
    versioned_changes,
    versioned_events,
)
from orderbook.backtest.sources import SourceSpec
from orderbook.errors import SourceError
from orderbook.events import EVENT
from orderbook.findings import WatchedSource, watched
from orderbook.instruments import Instruments
from orderbook.merge import is_event_source

# Events of one source that are read at a time; less where many sources are open.
BATCH, SMALLEST_BATCH, MOST_OPEN = 1 << 16, 1 << 12, 1 << 20


NOTHING = VersionedEvents(np.empty(0, EVENT), np.empty(0, VERSION))


@dataclass(frozen=True, slots=True)
class Slice:
    """All rows of a range of stamps: of events in the order of versions, of changes by source.

    until: what follows has stamps of at least this; None: nothing follows.
    """

    events: VersionedEvents
    changes: tuple[VersionedChanges, ...]
    until: int | None

    def stamps(self) -> np.ndarray:
        """The stamps of all rows, int64[n], in no order."""
        own = [self.events.versions, *(changes.versions for changes in self.changes)]
        return np.concatenate([versions["stamp"] for versions in own])

    def parted(self, stamp: int) -> tuple["Slice", "Slice"]:
        """The rows before a stamp, and the others."""
        end = int(np.searchsorted(self.events.versions["stamp"], stamp))
        ends = [int(np.searchsorted(changes.versions["stamp"], stamp)) for changes in self.changes]
        both = list(zip(self.changes, ends, strict=True))
        first = Slice(self.events.part(0, end), tuple(c.part(0, at) for c, at in both if at), stamp)
        rest = tuple(c.part(at, len(c)) for c, at in both if at < len(c))
        return first, Slice(self.events.part(end, len(self.events)), rest, self.until)


def read_slices(
    specs: Sequence[tuple[int, SourceSpec]],
    instruments: Instruments,
    errors: list[SourceError] | None = None,
    step: int = 0,
    opened: list[WatchedSource] | None = None,
) -> Iterator[Slice]:
    """All messages of sources, each given with its place, as events of `instruments`.

    Events of other instruments count in the numbers of versions and are left out. A source that is damaged
    ends there, with a SourceError in `errors`; raised is that of one which cannot be opened, and any where
    there are no `errors`. step: above 0 where events are read for their times alone; of each source the first
    in every step of so many ns is among those given. opened: is given the sources.
    """
    batch = max(SMALLEST_BATCH, min(BATCH, MOST_OPEN // max(1, len(specs))))
    sources = [(place, watched(spec.open(batch))) for place, spec in specs]
    cursors = [_Cursor(place, source, instruments, errors, step) for place, source in sources]
    if opened is not None:
        opened += [source for _, source in sources]
    until: int | None = FIRST_STAMP
    if len(cursors) == 1:
        yield from cursors[0].slices()
        return
    while True:
        for cursor in cursors:
            if cursor.stamp == until:
                cursor.fill()
        until = min((cursor.stamp for cursor in cursors if not cursor.ended), default=None)
        parts = [cursor.take(until) for cursor in cursors]
        events = _merged([part for part in parts if isinstance(part, VersionedEvents) and len(part)])
        changes = tuple(part for part in parts if isinstance(part, VersionedChanges) and len(part))
        if len(events) or changes or until is None:
            yield Slice(events, changes, until)
        if until is None:
            return


def _merged(parts: Sequence[VersionedEvents]) -> VersionedEvents:
    if len(parts) == 1:
        return parts[0]
    if not parts:
        return NOTHING
    versions = np.concatenate([part.versions for part in parts])
    # Parts are in order of their places, each in order of its numbers.
    order = np.argsort(versions["stamp"], kind="stable")
    events = np.concatenate([part.events for part in parts])
    # `take` is many times as fast as indexing.
    return VersionedEvents(events.take(order), versions.take(order))


@dataclass(slots=True)
class _Cursor:
    """A source's place in the merge.

    stamp: that of the last message read; what is read later is not before it. ended: nothing is left to read.
    """

    place: int
    source: WatchedSource
    instruments: Instruments
    errors: list[SourceError] | None
    step: int
    stamp: int = FIRST_STAMP
    ended: bool = False
    _parts: Iterator[tuple[int, VersionedEvents | VersionedChanges]] = field(init=False)
    _held: list[VersionedEvents | VersionedChanges] = field(default_factory=list)

    def __post_init__(self) -> None:
        source = self.source
        if is_event_source(source):
            self._parts = versioned_events(source, self.place, self.instruments, self.errors)
            if self.step:
                self._parts = ((stamp, part.firsts(self.step)) for stamp, part in self._parts)
        else:
            self._parts = versioned_changes(cast(ChangeSource, source), self.place, self.errors)

    def slices(self) -> Iterator[Slice]:
        """All that there is, as it is read: copied are only rows of the last stamp that is known yet."""
        held: VersionedEvents | VersionedChanges | None = None
        for _, part in self._parts:
            if held is not None:
                same = int(np.searchsorted(part.versions["stamp"], held.versions["stamp"][-1], "right"))
                held, part = _joined([held, part.part(0, same)]), part.part(same, len(part))
            if not len(part):
                continue
            if held is not None:
                yield _slice(held, int(part.versions["stamp"][0]))
            last = int(part.versions["stamp"][-1])
            count = int(np.searchsorted(part.versions["stamp"], last))
            yield _slice(part.part(0, count), last)
            held = part.part(count, len(part))
        yield Slice(NOTHING, (), None) if held is None else _slice(held, None)

    def fill(self) -> None:
        """Reads on."""
        if self.ended:
            return
        found = next(self._parts, None)
        if found is None:
            self.ended = True
            return
        self.stamp, part = found
        if len(part):
            self._held.append(part)

    def take(self, until: int | None) -> VersionedEvents | VersionedChanges | None:
        """What was read and has stamps before `until`."""
        if not self._held:
            return None
        held = _joined(self._held)
        count = len(held) if until is None else int(np.searchsorted(held.versions["stamp"], until))
        self._held = [held.part(count, len(held))] if count < len(held) else []
        return held.part(0, count)


def _slice(part: VersionedEvents | VersionedChanges, until: int | None) -> Slice:
    if isinstance(part, VersionedEvents):
        return Slice(part, (), until)
    return Slice(NOTHING, (part,) if len(part) else (), until)


def _joined(parts: Sequence[VersionedEvents | VersionedChanges]) -> VersionedEvents | VersionedChanges:
    if len(parts) == 1:
        return parts[0]
    versions = np.concatenate([part.versions for part in parts])
    if isinstance(parts[0], VersionedChanges):
        changes = [one for part in parts if isinstance(part, VersionedChanges) for one in part.changes]
        return VersionedChanges(parts[0].source, changes, versions)
    events = [part.events for part in parts if isinstance(part, VersionedEvents)]
    return VersionedEvents(np.concatenate(events), versions)
