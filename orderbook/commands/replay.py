"""`orderbook replay`: recorded sources through views and strategies.

`orderbook replan` applies a source for its statistics: what its data show, and the plans that they make.
"""

import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from orderbook.commands.common import configured, tell_incomplete
from orderbook.core.errors import OrderbookError, UserError
from orderbook.core.summaries import told
from orderbook.durability.journal import Known, Lifecycle, LoggedRun
from orderbook.engine.plan.describe import plan_text
from orderbook.engine.plan.planner import plan
from orderbook.feeds.merge import Item, Merger, check_relations, is_event_source
from orderbook.feeds.source_kinds import open_sources
from orderbook.operations.summary import findings_of, summary, summary_figures
from orderbook.run.assembly import assembled, warm_up
from orderbook.run.display import progress_bar
from orderbook.run.event_queue import Stamped
from orderbook.run.feed_runs import source_report
from orderbook.run.pipeline import Pace, Pipeline
from orderbook.run.read_ahead import read_ahead
from orderbook.run.view_output import written_views

_LOG = "log:"


def replay(
    sources: Sequence[str],
    config: Path | None,
    views: Sequence[str],
    strategies: Sequence[str],
    out: Path | None,
    sets: Sequence[str] = (),
    allow_incomplete: bool = False,
) -> None:
    """Apply the sources in order of time, then print the summary.

    Raises SourceError where a source is truncated, after everything before that has been applied and
    the summary printed; OrderbookError when interrupted, likewise; IncompleteError where the result is.
    """
    configuration = configured(config, views, strategies, {}, allow_incomplete, sets)
    played = _opened(sources, configuration.books.crossed_nanoseconds)
    assembly, pipeline = assembled(configuration, played.instruments, changes=_changing(played))
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
    told(**summary_figures(pipeline, seconds, assembly.views, done, reports))
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


def _changing(played: Merger | LoggedRun) -> Sequence[str]:
    """The sources that give changes of relations; a log may hold some."""
    if not isinstance(played, Merger):
        return (played.name,)
    return [source.name for source in played.sources if not is_event_source(source)]


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
    items: Iterable[Item | Stamped | Known | Lifecycle] = played
    if isinstance(played, Merger) and pipeline.engine.partitions is not None:
        items = read_ahead(played)
    for item in items:
        if isinstance(item, Lifecycle):
            running = item.starts
            if item.starts:
                pipeline.start()
            else:
                pipeline.finish()
        elif isinstance(item, Stamped):
            pipeline.host.begin_item()
            pipeline.apply_stamped(item)
        elif isinstance(item, Known):
            pipeline.instruments.adopt(item.instruments)
        else:
            pipeline.apply(item, pace)
        yield
    if running:
        pipeline.finish()


_DEFAULT = Path("statistics.json")


def replan(
    sources: Sequence[str],
    config: Path | None,
    views: Sequence[str],
    out: Path | None,
    sets: Sequence[str] = (),
    allow_incomplete: bool = False,
) -> None:
    """Replay the sources, write the statistics of the end, and print what they change in the plan.

    The file is `out`, else `engine.statistics` of the configuration, else statistics.json. Raises
    SourceError as `replay` does.
    """
    configuration = configured(config, views, (), {}, allow_incomplete, sets)
    file = out or configuration.engine.statistics or _DEFAULT
    without = {"statistics": None, "memory_budget": None}
    unmeasured = configuration.model_copy(update={"engine": configuration.engine.model_copy(update=without)})
    merger = Merger(open_sources(sources), configuration.books.crossed_nanoseconds)
    assembly, pipeline = assembled(unmeasured, merger.instruments)
    check_relations(merger.sources, assembly.program.relations)
    pipeline.engine.count_updates()
    warm_up(pipeline)
    if not apply_all(pipeline, merger, "batch"):
        raise OrderbookError(f"interrupted after {merger.progress:.0%}; no statistics are written")
    for error in merger.errors:
        raise error
    statistics = pipeline.engine.statistics()
    statistics.write(file)
    before, after = (plan_text(plan(assembly.program.program, s)) for s in (None, statistics))
    changes = _lines(before, after)
    print("\n".join(changes))
    told(statistics=str(file), changes=changes[1:])
    print(f"statistics written to {file}; name it in [engine] statistics, and run and replay plan by it")
    reports = [source_report(one) for one in merger.sources]
    tell_incomplete(findings_of(pipeline, pipeline.host.summary(), reports), configuration)


def _lines(before: str, after: str) -> list[str]:
    """The statements that are planned otherwise, as they were and as they are."""
    if before == after:
        return ["the plan stays as it is"]
    kept = set(before.splitlines()) & set(after.splitlines())
    shown = []
    for mark, text in (("-", before), ("+", after)):
        shown += [f"{mark} {line}" for line in text.splitlines() if line and line not in kept]
    return ["the plan changes:", *shown]
