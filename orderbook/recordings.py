"""Recordings of a run's live feeds: a folder for each, raw frames and what was decoded beside them."""

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from feeds.raw_recorder import RawRecorder, Rotation
from orderbook.configuration import RecordOptions
from orderbook.errors import SourceError
from orderbook.feed_runs import FeedRun, LiveFeedRun
from orderbook.sizes import size_text


class Recordings:
    """The recorders of live feeds, by the path of their folders; `errors` has what ended one at its end."""

    def __init__(self) -> None:
        self.recorders: dict[Path, RawRecorder] = {}
        self.errors: list[SourceError] = []

    def summary(self) -> Iterator[str]:
        """A line for each folder: what was written."""
        for folder, recorder in self.recorders.items():
            counts = recorder.counts
            lost = f", ended early: {counts.lost:,} lines and batches later" if counts.lost else ""
            yield (
                f"  recording {folder}: {counts.frames:,} frames, {counts.events:,} events, "
                f"{len(counts.files):,} files, {size_text(counts.bytes)} of raw lines{lost}"
            )


@contextmanager
def recorded(
    runs: Sequence[FeedRun], options: RecordOptions, *, needed: bool
) -> Iterator[Recordings]:
    """Record the live feeds that will be followed, where the options name a folder; ended at the end.

    needed: a feed ends where its recording cannot go on, instead of going on without it. Raises SourceError
    where a folder cannot be made.
    """
    found = Recordings()
    size, seconds = options.limits
    taken: Counter[str] = Counter()
    try:
        for run in runs if options.folder is not None else ():
            if isinstance(run, LiveFeedRun):
                taken[run.label] += 1
                number = taken[run.label]
                assert options.folder is not None
                folder = options.folder / (run.label if number == 1 else f"{run.label}-{number}")
                found.recorders[folder] = run.record(folder, Rotation(size, seconds), needed)
        yield found
    finally:
        for recorder in found.recorders.values():
            try:
                recorder.close()
            except SourceError as error:
                found.errors.append(error)
