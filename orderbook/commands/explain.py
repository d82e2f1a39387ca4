"""`orderbook explain`: the stages of a view."""

import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from orderbook.commands.common import configured, settings, tell_incomplete
from orderbook.commands.replay import apply_all
from orderbook.configuration.configuration import Configuration, Scalar, load_configuration
from orderbook.core.code_cache import cache_root
from orderbook.core.errors import ConfigurationError, OrderbookError, UserError, suggestion, visible_lines
from orderbook.core.native_code import counts
from orderbook.core.step_times import step_times
from orderbook.core.summaries import told
from orderbook.engine.plan.statistics import read_statistics
from orderbook.engine.runtime.engine import Engine
from orderbook.engine.runtime.measures import within_budget
from orderbook.feeds.merge import Merger, check_relations
from orderbook.feeds.source_kinds import open_sources
from orderbook.operations.explain import explain as explained
from orderbook.operations.overview import SHOWN_PARTITIONS, overview
from orderbook.operations.summary import findings_of
from orderbook.run.assembly import (
    assemble,
    assembled,
    compiled_beside,
    parameters_of,
    view_files,
    warm_up,
    with_read,
)
from orderbook.run.feed_runs import source_report
from orderbook.strategies.loop_reasons import loop_notes
from orderbook.strategies.order_views import strategy_of
from orderbook.strategies.strategy import StrategyDefinition, watches_of
from orderbook.views.library import declared_strategies, declared_views, shipped_views, shown_views, text_of
from orderbook.views.program import CompiledProgram


def explain(view: str, stage: str | None, config: Path | None, sets: Sequence[str]) -> None:
    """Print one stage of a view, or the overview; of a strategy MODULE:CLASS what it watches, and where it
    runs. Of a .sql file with several strategies the overviews of all are printed, else of one view, with how
    the others are named."""
    configuration = load_configuration(config)
    if ":" in view and ".sql:" not in view:
        _explain_class(configuration, view, stage)
        return
    file, name = _find(configuration, view)
    given = _settings(configuration, file, sets)
    options, note = configuration.engine, ""
    statistics = None
    if options.statistics is not None and file in map(configuration.view_file, configuration.run.views):
        # Statistics name the maps of the whole run's program.
        program, statistics = assemble(configuration).program, read_statistics(options.statistics)
        if options.memory_budget is not None:
            budgeted = within_budget(program, options.memory_budget, statistics)
            program, statistics, note = budgeted.program, budgeted.statistics, f"\n{budgeted}\n"
    else:
        program = compiled_beside(configuration, file, given)
    figures: Mapping[str, Any] = {}
    if stage is None:
        shown = _shown(view, name, file)
        seen = {one: overview(program, one, statistics) for one in shown}
        texts = [
            seen[one].text()
            + (_others(view, shown, file) + note if one == shown[-1] else "")
            + _loop_text(configuration, one, program)
            for one in shown
        ]
        text, figures = "\n".join(texts), seen[name].json()
        if len(shown) > 1:
            figures = {**figures, "strategies": {one: seen[one].json() for one in shown}}
    else:
        text = explained(program, name, stage)
    told(view=name, stage=stage, text=text, **figures)
    # What is piped can be compiled again, what a terminal gets must not steer it.
    text = visible_lines(text.split("\n")) if sys.stdout.isatty() else text
    print(text, end="" if text.endswith("\n") else "\n")
    if stage == "spark" and file in map(configuration.view_file, configuration.run.views):
        _explain_strategies(configuration, name)


def _explain_class(configuration: Configuration, name: str, stage: str | None) -> None:
    """Says what a strategy MODULE:CLASS watches, and whether the compiled loop calls it."""
    if stage is not None:
        raise UserError(
            f"{name} is a class and has no stages; orderbook explain VIEW shows those of what it watches"
        )
    own = configuration.with_run(strategies=(name,), views=())
    assembly = assemble(own)
    (strategy,) = assembly.strategies
    watched = [
        f"{watch.method}: {watch.view}" + (f" when {watch.when}" if watch.when else "")
        for watch in watches_of(strategy.kind)
    ]
    lines = [f"strategy {strategy.name}", *watched, "", *_in_loop(configuration, strategy, assembly.program)]
    told(view=name, stage=None, text="\n".join(lines))
    print("\n".join(visible_lines(lines) if sys.stdout.isatty() else lines))


def _loop_text(configuration: Configuration, name: str, program: CompiledProgram) -> str:
    """Where a strategy in SQL runs; nothing of a view."""
    if all(one.name != name for one in program.catalog.strategies):
        return ""
    return "\n".join(["", *_in_loop(configuration, strategy_of(program, name), program), ""])


def _in_loop(
    configuration: Configuration, strategy: StrategyDefinition, program: CompiledProgram
) -> list[str]:
    """Whether a strategy runs in the compiled loop, beside the others of the run if it is one of that."""
    others: Sequence[StrategyDefinition] = ()
    if strategy.name in {name.rpartition(":")[2] for name in configuration.run.strategies}:
        assembly = assemble(configuration)
        program = assembly.program
        others = [one for one in assembly.strategies if one.name != strategy.name]
    return loop_notes(program.program, strategy, others, configuration.trading)


def explain_timings(view: str, config: Path | None, sets: Sequence[str]) -> None:
    """Compile a view and print where the seconds went, from the start of Python to the view's first rows."""
    # Steps that have been may have waited for a processor.
    imports = max(0.0, time.process_time() - sum(step_times.seconds.values()))
    with step_times.step("configuration, memory of maps"):
        configuration = load_configuration(config)
        file, name = _find(configuration, view)
        given = _settings(configuration, file, sets)
        program = compiled_beside(configuration, file, given)
        engine = Engine(program)
        for _ in engine[name]:
            pass
    print(f"view {name}, seconds to its first rows:\n")
    steps = {"Python and imports": imports, **step_times.seconds}
    # The first step was around all others.
    total = sum(steps.values())
    told(view=name, seconds=steps, total=total, compiled=counts.made, read=counts.read)
    for step, seconds in steps.items():
        print(f"  {step:<30} {seconds:6.3f}")
    print(f"  {'total':<30} {total:6.3f}")
    print(f"\n{counts.made:,} functions were compiled, {counts.read:,} read from {cache_root()}")


def _explain_strategies(configuration: Configuration, view: str) -> None:
    """Say how the run's strategies that watch a view run on Spark."""
    from orderbook.backtesting.plan import strategies_note
    from orderbook.backtesting.plan import why_one_task as why_together

    assembly = assemble(configuration)
    watching = [s for s in assembly.strategies if any(w.view == view for w in watches_of(s.kind))]
    if watching:
        names = ", ".join(strategy.name for strategy in watching)
        why = why_together(assembly.strategies, assembly.program, SHOWN_PARTITIONS)
        print(f"\nwatched by {names}; {strategies_note(why)}")


def explain_live(
    view: str,
    sources: Sequence[str],
    config: Path | None,
    sets: Sequence[str] = (),
    allow_incomplete: bool = False,
) -> None:
    """Replay sources through the view, measured, and print what each of its statements and maps costs."""
    overrides = {"run.backend": "numba"}
    made = configured(config, [view], (), overrides, allow_incomplete, sets)
    configuration = made.with_run(strategies=())
    merger = Merger(open_sources(sources), configuration.books.crossed_nanoseconds)
    assembly, pipeline = assembled(configuration, merger.instruments, measured=True)
    check_relations(merger.sources, assembly.program.relations)
    warm_up(pipeline)
    if not apply_all(pipeline, merger, "batch"):
        raise OrderbookError(f"interrupted after {merger.progress:.0%}")
    costs = str(pipeline.engine.costs())
    print(costs, end="")
    told(view=view, text=costs)
    reports = [source_report(one) for one in merger.sources]
    tell_incomplete(findings_of(pipeline, (), reports), configuration, merger.errors)


def _shown(view: str, name: str, file: Path) -> list[str]:
    """What of a file is shown, of which one was found: all strategies of a file that was named."""
    strategies = declared_strategies(file) if view.endswith(".sql") else ()
    return [*strategies] if len(strategies) > 1 and name in strategies else [name]


def _others(view: str, shown: Sequence[str], file: Path) -> str:
    """A line with the other views of a file that was named."""
    others = [one for one in declared_views(file) if one not in shown] if view.endswith(".sql") else []
    return f"the file has other views: {', '.join(f'{view}:{one}' for one in others)}\n" if others else ""


def _settings(configuration: Configuration, file: Path, sets: Sequence[str]) -> Mapping[str, Scalar]:
    """What `--set` gives a file and those that it reads. Raises UserError for what none of them has."""
    given, known = settings(sets), parameters_of(map(text_of, with_read(configuration, [file])))
    for name in given:
        if name not in known:
            why = f"neither {file.stem} nor what it reads has it; {suggestion(name, known)}"
            raise UserError(f"--set {name}: {why}")
    return given


def _find(configuration: Configuration, view: str) -> tuple[Path, str]:
    """The file and name of a view; a .sql file stands for the view named as it, else for its last.

    FILE.sql:VIEW is one of a file.
    """
    path, _, wanted = view.partition(".sql:")
    if wanted:
        file = configuration.view_file(f"{path}.sql")
        declared = declared_views(file)
        if wanted not in declared:
            raise ConfigurationError(f"{file}: no view is named {wanted!r}; {suggestion(wanted, declared)}")
        return file, wanted
    if view.endswith(".sql") or "/" in view:
        file = configuration.view_file(view)
        return file, shown_views(file, declared_views(file))[-1]
    known: dict[str, Path] = {}
    for file in (*view_files(configuration), *shipped_views().values()):
        for name in declared_views(file):
            known.setdefault(name, file)
    if view not in known:
        raise ConfigurationError(f"no view is named {view!r}; {suggestion(view, known)}")
    return known[view], view
