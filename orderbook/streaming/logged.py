"""The log of a run as slices, which are cut into block logs as those of files are."""

from collections import Counter
from collections.abc import Sequence

import numpy as np

from engine.distribution.block import VERSION
from orderbook.backtest.numbering import VersionedChanges, VersionedEvents, versions_of
from orderbook.backtest.reading import Slice
from orderbook.events import EVENT, Flag
from orderbook.merge import ChangeItem
from orderbook.switch import Stamped

_LAST = int(Flag.LAST)


def slice_of(entries: Sequence[Stamped], counts: Counter[int]) -> Slice:
    """What some entries of a log brought, in the log's order, under the stamps and switches of then.

    A switch's events are numbered from 1, after those that `counts` has. What it received at once is one
    message or several, of one stamp.
    """
    events: list[np.ndarray] = []
    versions: list[np.ndarray] = []
    changes: list[VersionedChanges] = []
    for entry in entries:
        item = entry.item
        if isinstance(item, ChangeItem):
            ends = [i + 1 for i, change in enumerate(item.changes) if change.last]
            numbered = _numbered(entry, len(item.changes), ends, counts)
            changes.append(VersionedChanges(item.source, item.changes, numbered))
        elif isinstance(item, np.ndarray) and len(item):
            own = item.copy()
            own["flags"][-1] |= _LAST
            numbered = _numbered(entry, len(own), np.flatnonzero(own["flags"] & _LAST) + 1, counts)
            known = own["instrument"] >= 0
            events.append(own[known])
            versions.append(numbered[known])
    whole = np.concatenate(events) if events else np.empty(0, EVENT)
    places = np.concatenate(versions) if versions else np.empty(0, VERSION)
    return Slice(VersionedEvents(whole, places), tuple(changes), entries[-1].stamp)


def _numbered(
    entry: Stamped, count: int, ends: Sequence[int] | np.ndarray, counts: Counter[int]
) -> np.ndarray:
    """VERSION of what came at once, whose messages end before `ends`."""
    found = [*map(int, ends)]
    if not found or found[-1] < count:
        found.append(count)
    lengths = np.diff(np.array(found), prepend=0)
    stamps = np.full(len(found), entry.stamp, np.int64)
    versions = versions_of(stamps, lengths, entry.switch, counts[entry.switch])
    counts[entry.switch] += count
    return versions
