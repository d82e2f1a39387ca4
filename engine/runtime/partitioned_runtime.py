"""One program in partitions of its rows, each a runtime of its own that another thread can run.

Every map is held by the key that decides on the partition, or in full by all of them; so a row changes maps
of one partition alone, rows of views are those of all partitions together, and a partition needs nothing of
the others. `orderbook.engine.distribution.threads` says which programs are so.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from orderbook.core.changes import END_OF_EVENT, END_OF_MESSAGE, ChangeBatch, Word, part_of
from orderbook.core.errors import DataError
from orderbook.engine.runtime.interface import (
    Direct,
    Firing,
    Recorder,
    Recording,
    Row,
    Runtime,
    ViewCopy,
    Watch,
)
from orderbook.engine.runtime.map_entries import Entries, MapRows, Match, recode
from orderbook.engine.runtime.relation_store import RelationStore

_ENDS = END_OF_EVENT | END_OF_MESSAGE
# Of a row that goes to every partition.
_ALL = -1


class Partitions:
    """Which rows and entries are in which of `count` partitions, by the value of one column.

    column: its name. places: where it stands in the rows of each relation of the program; None: their rows
    go to all partitions. keys: where it stands among the keys of each map, by name; a map that is not named
    is held in full. Values are dealt out in turn, in the order in which they are first asked for.
    """

    def __init__(
        self, count: int, column: str, places: Sequence[int | None], keys: Mapping[str, int]
    ) -> None:
        self.count, self.column, self.keys = count, column, keys
        self.places = tuple(places)
        self._known: dict[int, int] = {}

    def of(self, value: int) -> int:
        """The partition of a value, encoded as in a ChangeBatch."""
        return self._known.setdefault(value, len(self._known) % self.count)

    def numbers(self, values: NDArray[np.int64]) -> NDArray[np.int64]:
        """The partition of each value, int64[n]."""
        found, places = np.unique(values, return_inverse=True)
        return np.array([self.of(value) for value in found.tolist()], np.int64)[places]


class PartitionedRuntime:
    """See Runtime; `parts` are those of the partitions. One thread owns it, and lends parts to others."""

    def __init__(self, partitions: Partitions, parts: Sequence[Runtime]) -> None:
        self.partitions, self.parts = partitions, tuple(parts)
        self._watched = False
        self._firings: Sequence[Firing] = ()
        self.noted = False

    def watch(self, watches: Sequence[Watch]) -> None:
        """See Runtime."""
        self._watched, self._firings = bool(watches), ()
        for part in self.parts:
            part.watch(watches)

    def admit(self, rows: RelationStore) -> None:
        """See Runtime."""
        for part in self.parts:
            part.admit(rows)

    def apply(self, batch: ChangeBatch, start: int = 0) -> int:
        """See Runtime."""
        self.noted, self._firings = False, ()
        shares = self._shares(batch)
        if not self._watched:
            return self._apply(shares, start)
        for end in (start + 1 + np.flatnonzero(batch.flags[start:] & _ENDS)).tolist() or [len(batch)]:
            done = self._apply([part_of(share, 0, end) for share in shares], start)
            self._firings = [firing for part in self.parts if part.noted for firing in part.firings()]
            if self.noted:
                return done
            start = done
        return self._apply(shares, start)

    def fill(self, batches: Iterable[ChangeBatch]) -> None:
        """See Runtime."""
        for batch in batches:
            self.apply(batch)

    def _apply(self, shares: Sequence[ChangeBatch], start: int) -> int:
        """Applies the share of each partition; where all of them have come to."""
        done = min(part.apply(share, start) for part, share in zip(self.parts, shares, strict=True))
        self.noted = any(part.noted for part in self.parts)
        return done

    def _shares(self, batch: ChangeBatch) -> list[ChangeBatch]:
        """What each partition applies: all changes, of which those of others are of no relation."""
        numbers = np.full(len(batch), _ALL, np.int64)
        for relation, place in enumerate(self.partitions.places):
            if place is not None and len(rows := np.flatnonzero(batch.kinds >> 1 == relation)):
                numbers[rows] = self.partitions.numbers(batch.values[rows, place])
        return [
            ChangeBatch(
                np.where((numbers == number) | (numbers == _ALL), batch.kinds, -1).astype(np.int16),
                batch.flags,
                batch.values,
            )
            for number in range(len(self.parts))
        ]

    def direct(self, progress: int) -> Direct | None:
        """See Runtime."""
        return None

    def ready(self) -> int:
        """See Runtime; the address is that of the first part."""
        first, *_ = (part.ready() for part in self.parts)
        return first

    def functions_of(self, watch: Watch) -> tuple[int, int, int]:
        """See Runtime: each part has others, which compiled code knows by itself."""
        return 0, 0, 0

    def stopped(self, stop: int) -> int:
        """See Runtime."""
        return self.parts[0].stopped(stop)

    def firings(self) -> Sequence[Firing]:
        """See Runtime."""
        return sorted(self._firings, key=lambda firing: firing.watch)

    def record(self, recordings: Sequence[Recording]) -> Recorder:
        """See Runtime. Raises DataError: each part records for itself."""
        raise DataError("a program in several partitions is recorded by partition")

    def row(self, view: str, key: tuple[Word, ...]) -> Row | None:
        """See Runtime."""
        return next((row for part in self.parts if (row := part.row(view, key)) is not None), None)

    def rows(self, view: str) -> Iterator[tuple[tuple[Word, ...], Row]]:
        """See Runtime."""
        for part in self.parts:
            yield from part.rows(view)

    def row_words(self, view: str) -> NDArray[np.int64]:
        """See Runtime."""
        return np.concatenate([part.row_words(view) for part in self.parts])

    def copy_view(self, view: str) -> ViewCopy | None:
        """See Runtime."""
        return None

    def map_sizes(self) -> dict[str, int]:
        """See Runtime."""
        return self._added([part.map_sizes() for part in self.parts])

    def memory_bytes(self) -> int:
        """See Runtime."""
        return sum(part.memory_bytes() for part in self.parts)

    def map_bytes(self) -> dict[str, int]:
        """See Runtime."""
        held = [part.map_bytes() for part in self.parts]
        return {name: sum(own[name] for own in held) for name in held[0]}

    def _added(self, held: Sequence[Mapping[str, int]]) -> dict[str, int]:
        """Numbers by map, those of maps that are in full everywhere counted once."""
        keys = self.partitions.keys
        return {name: sum(h[name] for h in held) if name in keys else held[0][name] for name in held[0]}

    def entries(self, name: str) -> Entries:
        """See Runtime."""
        if name not in self.partitions.keys:
            return self.parts[0].entries(name)
        found = [part.entries(name) for part in self.parts]
        return Entries(np.concatenate([e.keys for e in found]), np.concatenate([e.words for e in found]))

    def copied(self) -> tuple[MapRows, ...]:
        """See Runtime."""
        # Parts are of one plan, so that their stores are laid out alike.
        stores = zip(*(part.copied() for part in self.parts), strict=True)
        return tuple(
            replace(own[0], rows=np.concatenate([one.rows[:] for one in own]))
            if own[0].maps[0].name in self.partitions.keys
            else own[0]
            for own in stores
        )

    def restore(self, maps: Sequence[MapRows], codes: NDArray[np.int64] | None) -> None:
        """See Runtime."""
        shares: list[list[MapRows]] = [[] for _ in self.parts]
        for one in maps:
            place = self.partitions.keys.get(one.maps[0].name)
            if place is None:
                for share in shares:
                    share.append(one)
                continue
            rows = one.rows[:]
            values = rows[:, [one.keys[place]]].copy()
            recode(values, [0], codes)
            numbers = self.partitions.numbers(values[:, 0])
            for number, share in enumerate(shares):
                share.append(replace(one, rows=rows[numbers == number]))
        for part, share in zip(self.parts, shares, strict=True):
            part.restore(share, codes)

    def adopt(self, other: Runtime, matches: Mapping[str, Match]) -> None:
        """See Runtime."""
        assert isinstance(other, PartitionedRuntime)
        for part, theirs in zip(self.parts, other.parts, strict=True):
            part.adopt(theirs, matches)

    def close(self) -> None:
        """See Runtime."""
        for part in self.parts:
            part.close()
