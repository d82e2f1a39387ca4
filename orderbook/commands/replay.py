"""`orderbook replay`: recorded sources through views and strategies."""

import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from feeds.source import open_sources
from orderbook.change_rows import check_relations
from orderbook.commands.common import assembled, configured, tell_incomplete, warm_up
from orderbook.display import progress_bar
from orderbook.errors import OrderbookError, UserError
from orderbook.feed_runs import source_report
from orderbook.journal import Lifecycle
from orderbook.logged_run import LoggedRun
from orderbook.merge import Merger
from orderbook.pipeline import Pace, Pipeline
from orderbook.summary import findings_of, summary
from orderbook.switch import Stamped
from orderbook.written_views import written_views

_LOG = "log:"


def replay(
    sources: Sequence[str],
    config: Path | None,
    views: Sequence[str],
    strategies: Sequence[str],
    out: Path | None,
    allow_incomplete: bool = False,
) -> None:
    """Apply the sources in order of time, then print the summary.

    Raises SourceError where a source is truncated, after everything before that has been applied and
    the summary printed; OrderbookError when interrupted, likewise; IncompleteError where the result is.
    """
    configuration = configured(config, views, strategies, {}, allow_incomplete)
    played = _opened(sources, configuration.books.crossed_nanoseconds)
    assembly, pipeline = assembled(configuration, played.instruments)
    if isinstance(played, Merger):
        check_relations(played.sources, assembly.program.relations)
    # One message at a time where its time is written.
    pace: Pace = "batch" if out is None else "message"
    with written_views(out, assembly, pipeline) as failures:
        warm_up(pipeline)
        start = time.monotonic()
        interrupted = not apply_all(pipeline, played, pace)
        seconds = time.monotonic() - start
    reports = [source_report(one) for one in (played.sources if isinstance(played, Merger) else [played])]
    done = pipeline.host.summary()
    print(summary(pipeline, seconds, assembly.views, done, reports))
    failed = [*failures, *(played.errors if isinstance(played, Merger) else ())]
    if interrupted:
        failed.append(OrderbookError(f"interrupted after {played.progress:.0%}"))
    tell_incomplete(findings_of(pipeline, done, reports), configuration, failed)


def _opened(sources: Sequence[str], crossed_limit: int) -> Merger | LoggedRun:
    """The sources; a log has the order and the versions of its run, and so is played alone."""
    logs = [source for source in sources if source.startswith(_LOG)]
    if not logs:
        return Merger(open_sources(sources), crossed_limit)
    if len(sources) > 1:
        raise UserError(f"{logs[0]}: a log is replayed alone; replay the other sources apart")
    return LoggedRun(Path(logs[0].removeprefix(_LOG)))


def apply_all(pipeline: Pipeline, played: Merger | LoggedRun, pace: Pace) -> bool:
    """Apply everything and finish; whether it came to its end, and not to a Ctrl-C."""
    try:
        with progress_bar("replaying") as bar:
            for _ in _applied(pipeline, played, pace):
                bar(played.progress, f"{pipeline.events + pipeline.changes:,} events")
    except KeyboardInterrupt:
        pipeline.finish()
        return False
    return True


def _applied(pipeline: Pipeline, played: Merger | LoggedRun, pace: Pace) -> Iterator[None]:
    """Applies one item after another, from the strategies' start to their end."""
    running = isinstance(played, Merger)
    pipeline.measures = False
    if running:
        pipeline.start()
    for item in played:
        if isinstance(item, Lifecycle):
            running = item.starts
            if item.starts:
                pipeline.start()
            else:
                pipeline.finish()
        elif isinstance(item, Stamped):
            pipeline.host.begin_item()
            pipeline.apply_stamped(item)
        else:
            pipeline.apply(item, pace)
        yield
    if running:
        pipeline.finish()
