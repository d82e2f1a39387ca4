"""Recorded sessions of an exchange, replayed through the decoder that takes them live."""

from collections import Counter
from collections.abc import Iterator, Sequence

import numpy as np

from feeds.capture_head import read_head
from feeds.capture_lines import RecordedLines
from feeds.capture_sessions import CaptureSessions
from feeds.message_writer import DEFAULT_BATCH_SIZE
from feeds.places import Place, place
from feeds.source_options import split_options
from feeds.statistics import FeedStatistics
from orderbook.problems import Problems

OPTIONS = ("exchange", "products")
_COUNTED = ("frames", "gaps", "resyncs")


class CaptureSource:
    """The events of a recorded session, whole messages, with the receive times of the recording.

    path: a recording of ours (its file, its folder, a glob of its files, or several of these), or of
        cryptofeed, of version 3 (JSON lines) or before (text); for the latter `kind` is the exchange's name
        in the registry and `products` its names for what to replay, where the recording does not tell.

    Nothing is waited for: snapshots are those of the recording. A file of ours that goes on from one that is
    missing has books that are SYNCING until the exchange sends a snapshot. Raises SourceError where the head
    names no exchange or product that is known; iterating, where a file is cut off, after all files were read.
    """

    def __init__(
        self,
        path: Place | Sequence[Place],
        kind: str | None = None,
        products: Sequence[str] = (),
        batch_size: int = DEFAULT_BATCH_SIZE,
    ) -> None:
        paths = list(path) if isinstance(path, Sequence) else [path]
        self.name = f"capture:{paths[0]}" + (f" and {len(paths) - 1} more" if paths[1:] else "")
        self.counts: Counter[str] = Counter()
        self._head = read_head(paths, kind, products)
        self._sessions = CaptureSessions(self._head)
        self.instruments = self._sessions.instruments
        self._lines = RecordedLines(self._head)
        self._batch_size = batch_size
        self._never_valid = Problems()

    @property
    def feeds(self) -> frozenset[str]:
        """Keys that it has in common with other recordings of the same feed."""
        return self._head.feeds

    @property
    def progress(self) -> float:
        """Fraction of the files' bytes read."""
        return self._lines.progress

    @property
    def statistics(self) -> FeedStatistics:
        """What the sessions have counted."""
        return self._sessions.statistics

    @property
    def problems(self) -> Problems:
        found = self.statistics.problems
        found.extend(self._lines.problems)
        found.extend(self._never_valid)
        return found

    def __iter__(self) -> Iterator[np.ndarray]:
        self._sessions = sessions = CaptureSessions(self._head)
        self._never_valid.clear()
        for line in self._lines:
            sessions.apply(line)
            if sessions.waiting_events >= self._batch_size:
                yield sessions.take()
        if sessions.waiting_events:
            yield sessions.take()
        found = self.statistics
        self.counts = Counter({name: getattr(found, name) for name in _COUNTED})
        self._never_valid = sessions.never_valid()
        self._lines.raise_if_cut()


def open_captures(*texts: str) -> CaptureSource:
    """Recordings of one feed, each written as PATH?exchange=NAME&products=A,B; the first's options count."""
    split = [split_options(text, OPTIONS) for text in texts]
    options = split[0][1]
    return CaptureSource([place(path) for path, _ in split], options.get("exchange"), products_of(options))


def products_of(options: dict[str, str]) -> tuple[str, ...]:
    """The products that an option names."""
    return tuple(options["products"].split(",")) if "products" in options else ()
