"""The log of a run as a source: what was received, in the order and under the versions of then."""

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from engine.log.reader import LogReader
from orderbook import journal
from orderbook.errors import DataError, SourceError
from orderbook.findings import Finding, SourceWatch
from orderbook.instruments import Instrument, Instruments
from orderbook.journal import Known, Lifecycle
from orderbook.problems import Problems
from orderbook.switch import Stamped


class LoggedRun:
    """Iterates over what a log holds: items that switches stamped, and the strategies' start and stop.

    Raises SourceError where there is no log, or instruments had different ticks or lots in it; iterating,
    LogError where it is damaged.
    """

    def __init__(self, folder: Path) -> None:
        self.name = f"log:{folder}"
        self.problems = Problems()
        self.counts: Counter[str] = Counter()
        self._folder = folder
        self._bytes = sum(file.stat().st_size for file in folder.glob("*.log")) if folder.is_dir() else 0
        if not self._bytes:
            raise SourceError(f"{folder}: no log there; name the folder of [log] in the run's configuration")
        self._position = self._start = 0
        found: dict[Instrument, None] = {}
        for entry in self._entries():
            if isinstance(entry, Known):
                found.update(dict.fromkeys(entry.instruments))
        try:
            self.instruments = Instruments(found)
        except DataError as error:
            raise SourceError(f"{self.name}: an instrument has other units later: {error}") from error
        self._watch = SourceWatch(self.name, self.instruments)

    @property
    def progress(self) -> float:
        """Fraction of the log read."""
        return (self._position - self._start) / self._bytes

    def findings(self) -> list[Finding]:
        """Books that the run lost, as far as the log was read."""
        return list(self._watch.findings())

    def __iter__(self) -> Iterator[Stamped | Lifecycle]:
        numbering = journal.Renumbering({one: index for index, one in enumerate(self.instruments)})
        self.counts.clear()
        self._watch.clear()
        for entry in self._entries():
            self.counts[type(entry).__name__.lower()] += 1
            if isinstance(entry, Known):
                numbering.name(entry.instruments)
                self.instruments.adopt(entry.instruments)
            elif isinstance(entry, Stamped):
                stamped = numbering.of(entry)
                if isinstance(stamped.item, np.ndarray):
                    self._watch.note(stamped.item)
                yield stamped
            elif isinstance(entry, Lifecycle):
                yield entry

    def _entries(self) -> Iterator[journal.Entry]:
        reader = LogReader(self._folder, journal.IDENTITY)
        first = True
        for position, record in reader.read():
            if first:
                self._start, first = position, False
            self._position = position
            yield journal.entry_of(record)
