"""`orderbook replay`: recorded sources through views and strategies."""

import time
from collections.abc import Sequence
from contextlib import ExitStack, closing
from pathlib import Path

from engine.subscriptions import ViewEvent
from feeds.source import open_source
from orderbook.assembly import Assembly
from orderbook.change_rows import check_relations
from orderbook.commands.common import assembled, configured, warm_up
from orderbook.display import progress_bar
from orderbook.errors import OrderbookError
from orderbook.feed_runs import source_report
from orderbook.gate import LaterEvent
from orderbook.merge import Merger
from orderbook.pipeline import Pace, Pipeline
from orderbook.summary import summary
from orderbook.view_output import open_output


def replay(
    sources: Sequence[str],
    config: Path | None,
    views: Sequence[str],
    strategies: Sequence[str],
    out: Path | None,
) -> None:
    """Apply the sources in order of time, then print the summary.

    Raises SourceError where a source is truncated, after everything before that has been applied and
    the summary printed; OrderbookError when interrupted, likewise.
    """
    configuration = configured(config, views, strategies, {})
    merger = Merger([open_source(source) for source in sources])
    assembly, pipeline = assembled(configuration, merger.instruments)
    check_relations(merger.sources, assembly.program.relations)
    # One message at a time where somebody needs to know which one it is.
    pace: Pace = "message" if out is not None or assembly.strategies else "batch"
    failures: list[Exception] = []
    with ExitStack() as stack:
        if out is not None:
            _write_events(out, assembly, pipeline, stack, failures)
        warm_up(pipeline)
        start = time.monotonic()
        interrupted = not apply_all(pipeline, merger, pace)
        pipeline.finish()
        seconds = time.monotonic() - start
    reports = [source_report(source) for source in merger.sources]
    print(summary(pipeline, seconds, assembly.views, pipeline.host.summary(), reports))
    for error in (*failures, *merger.errors):
        raise error
    if interrupted:
        raise OrderbookError(f"interrupted after {merger.progress:.0%}")


def apply_all(pipeline: Pipeline, merger: Merger, pace: Pace) -> bool:
    """Apply everything; whether it came to its end, and not to a Ctrl-C."""
    pipeline.start()
    try:
        with progress_bar("replaying") as bar:
            for item in merger:
                pipeline.apply(item, pace)
                bar(merger.progress, f"{pipeline.events + pipeline.changes:,} events")
    except KeyboardInterrupt:
        return False
    return True


def _write_events(
    out: Path, assembly: Assembly, pipeline: Pipeline, stack: ExitStack, failures: list[Exception]
) -> None:
    """Write every change of the chosen views' rows until the stack is closed, or writing fails."""
    program = assembly.program
    results = {name: program.program.result(name) for name in assembly.views}
    keys = {view.name: [key.name for key in view.keys] for view in program.views}
    output = stack.enter_context(closing(open_output(out, results, keys)))

    def write(event: ViewEvent) -> None:
        try:
            output.write(event, pipeline.time)
        except Exception as error:
            failures.append(error)
            raise

    for view in assembly.views:
        # A view has rows before the first event where it groups by nothing.
        for key, row in pipeline.engine[view].items():
            output.write(LaterEvent(view, key, None, row, (0, 0, 0), "committed"), 0)
        pipeline.engine.watch_rows(view, write)
