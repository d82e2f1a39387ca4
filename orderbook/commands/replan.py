"""`orderbook replan`: what a source shows of its data, and the plans that it makes."""

from collections.abc import Sequence
from pathlib import Path

from engine.plan.describe import plan_text
from engine.plan.planner import plan
from feeds.source import open_sources
from orderbook.change_rows import check_relations
from orderbook.commands.common import assembled, configured, tell_incomplete, warm_up
from orderbook.commands.replay import apply_all
from orderbook.errors import OrderbookError
from orderbook.feed_runs import source_report
from orderbook.merge import Merger
from orderbook.summary import findings_of

_DEFAULT = Path("statistics.json")


def replan(
    sources: Sequence[str],
    config: Path | None,
    views: Sequence[str],
    out: Path | None,
    allow_incomplete: bool = False,
) -> None:
    """Replay the sources, write the statistics of the end, and print what they change in the plan.

    The file is `out`, else `engine.statistics` of the configuration, else statistics.json. Raises
    SourceError as `replay` does.
    """
    configuration = configured(config, views, (), {}, allow_incomplete)
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
    print("\n".join(_lines(before, after)))
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
