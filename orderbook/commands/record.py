"""`orderbook record`: live feeds to files, raw frames and normalised events, without views."""

import asyncio
import time
from collections.abc import Sequence
from pathlib import Path

from orderbook.commands.common import configured, stopped_by_signals, tell_incomplete
from orderbook.core.errors import SourceError, UserError, visible, visible_lines
from orderbook.core.run_clock import RunClock
from orderbook.core.summaries import told
from orderbook.core.units import size_text
from orderbook.feeds.merge import Item
from orderbook.operations.summary import feed_figures, feed_lines
from orderbook.run.display import Display, open_display
from orderbook.run.feed_runs import FeedRun, LiveFeedRun, Recordings, open_runs, recorded
from orderbook.run.findings import distinct

_TICK = 0.25
_DEFAULT_FOLDER = "recordings"


def record(
    config: Path | None,
    duration: float | None,
    feeds: Sequence[str],
    out: Path | None,
    rotate: str | None,
    allow_incomplete: bool = False,
) -> None:
    """Record live feeds for `duration` seconds, until Ctrl-C or until they end, then print what was written.

    Raises UserError for a feed that is none, and what ended a feed or its recording, after the files were
    ended as far as they could be.
    """
    overrides: dict[str, object] = {"feeds": list(feeds)} if feeds else {}
    for key, value in (("run.duration_seconds", duration), ("record.folder", out), ("record.rotate", rotate)):
        if value is not None:
            overrides[key] = str(value) if isinstance(value, Path) else value
    configuration = configured(config, (), (), overrides, allow_incomplete)
    options = configuration.record
    if options.folder is None:
        options = options.model_copy(update={"folder": Path(_DEFAULT_FOLDER)})
    runs, _ = asyncio.run(open_runs(configuration.feeds, configuration.books.crossed_nanoseconds))
    for run in runs:
        if not isinstance(run, LiveFeedRun):
            raise UserError(f"{run.name} is no live feed, so there are no frames to record; leave it out")
    clock = RunClock(limits=configuration.clock.limits)
    for run in runs:
        run.clock = clock.now
    with recorded(runs, options, needed=True) as recordings:
        following = _Following(runs, recordings, open_display())
        seconds = asyncio.run(following.run(configuration.run.duration_seconds))
    print(f"\nrecorded {seconds:.1f} s")
    for line in recordings.summary():
        print(visible(line))
    reports = [run.report() for run in runs]
    counts = {name: recorder.counts for name, recorder in recordings.recorders.items()}
    told(
        seconds=round(seconds, 6),
        recordings={
            name: {"frames": own.frames, "bytes": own.bytes, "files": list(map(str, own.files))}
            for name, own in counts.items()
        },
        feeds=list(map(feed_figures, reports)),
    )
    for report in reports:
        print(visible_lines(feed_lines(report)))
    found = distinct(finding for report in reports for finding in report.findings)
    tell_incomplete(found, configuration, (*following.errors, *recordings.errors))


class _Following:
    """Follows feeds, and shows how their recordings grow; `errors` has what ended feeds."""

    def __init__(self, runs: Sequence[FeedRun], recordings: Recordings, display: Display) -> None:
        self.errors: list[Exception] = []
        self._runs = runs
        self._recordings = recordings
        self._display = display
        self._start = time.monotonic()

    async def run(self, duration: float | None) -> float:
        """Follow all to their end; how many seconds that took."""
        with stopped_by_signals() as stopped:
            tasks = [asyncio.create_task(one) for one in (self._follow_all(), stopped.wait(), self._show())]
            await asyncio.wait(tasks, timeout=duration, return_when=asyncio.FIRST_COMPLETED)
            for task in tasks:
                task.cancel()
            results = await asyncio.gather(*tasks, return_exceptions=True)
        self._display.close()
        self.errors += [result for result in results if isinstance(result, Exception)]
        return time.monotonic() - self._start

    async def _follow_all(self) -> None:
        await asyncio.gather(*(self._follow(run) for run in self._runs))

    async def _follow(self, run: FeedRun) -> None:
        try:
            await run.follow(_nothing)
        except (SourceError, OSError) as error:
            self.errors.append(error)
            self._display.say(f"feed {run.name} ended: {error}")

    async def _show(self) -> None:
        while True:
            await asyncio.sleep(_TICK)
            counts = [recorder.counts for recorder in self._recordings.recorders.values()]
            seconds = time.monotonic() - self._start
            frames, size = sum(c.frames for c in counts), sum(c.bytes for c in counts)
            status = f"{seconds:6.1f} s  {frames:,} frames, {frames / seconds:,.0f}/s  {size_text(size)}"
            files = [c.files[-1] for c in counts if c.files]
            self._display.refresh(status, [(file.parent.name, file.stem) for file in files])


async def _nothing(item: Item) -> None:
    """What is decoded goes to the record alone."""
    # A feed whose frames never end must not keep the display waiting.
    await asyncio.sleep(0)
