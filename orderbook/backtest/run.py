"""A backtest as a whole: its plan, an executor that does its tasks, and the manifest of what they made."""

from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import msgspec

from engine.distribution.history import Granularity
from orderbook.backtest.choose_cuts import with_cuts
from orderbook.backtest.execute import Executor
from orderbook.backtest.plan import planned
from orderbook.backtest.progress import forget_progress
from orderbook.backtest.sources import SourceSpec
from orderbook.backtest.tasks import JobSettings, TaskResult
from orderbook.errors import OrderbookError, UserError
from orderbook.findings import Finding, distinct, strategy_findings
from orderbook.jobs.folder import create_folder, remove_unlisted, write_manifest
from orderbook.jobs.layout import fills_dataset, history_of, market_dataset, orders_dataset, signals_dataset
from orderbook.jobs.manifest import FORMAT_VERSION, DataFile, Manifest
from strategies.definition import StrategyDefinition, load_strategy
from strategies.summary import StrategySummary

# Relations that no source brings to a backtest's views, and why.
_ABSENT = {
    "orders": "strategies keep it for the views that they see themselves",
    "fills": "strategies keep it for the views that they see themselves",
}


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a backtest made: its manifest, what became of strategies, and problems of the input, as lines.

    errors: why sources were not read to their end; what came before counts. findings: what makes the result
    incomplete.
    """

    manifest: Manifest
    summaries: tuple[StrategySummary, ...]
    problems: tuple[str, ...]
    errors: tuple[str, ...]
    findings: tuple[Finding, ...] = ()


def backtest(
    settings: JobSettings,
    specs: Sequence[SourceSpec],
    executor: Executor,
    engine: str,
    report: Callable[[int], None] = lambda _: None,
    noted: Callable[[str], None] = lambda _: None,
) -> Outcome:
    """Run a job in `settings.folder`; `noted` is called with what a user should know of its plan.

    The manifest says "running" until the end, then "complete", or "failed" with the reason. A source that is
    damaged ends there, as in a replay; `failure` says so of a job that is complete.
    Raises UserError for views that a backtest cannot keep, OrderbookError where a task failed.
    """
    check_program(settings)
    strategies = [load_strategy(name, parameters) for name, parameters in settings.strategies]
    strategies += [definition for one in settings.combinations for definition in one.definitions()]
    settings, notes = with_cuts(settings, specs, executor.cores)
    plan = planned(settings, specs, strategies)
    for note in (*plan.notes, *notes):
        noted(note)
    folder = Path(settings.folder)
    create_folder(folder)
    forget_progress(folder)
    manifest = _begun(settings, specs, engine, strategies)
    write_manifest(folder, manifest)
    try:
        results = list(executor.run(settings, plan, report))
    except BaseException as error:
        reason = str(error) if isinstance(error, OrderbookError) else type(error).__name__
        # Where it cannot be written, the one that says "running" stays, and no data count either.
        with suppress(OrderbookError):
            write_manifest(folder, msgspec.structs.replace(manifest, status="failed", failure=reason))
        raise
    errors = tuple(dict.fromkeys(line for result in results for line in result.errors))
    summaries = _joined(results)
    found = [finding for result in results for finding in result.findings]
    findings = distinct([*found, *strategy_findings(summaries)])
    done = _completed(manifest, results)
    done = msgspec.structs.replace(done, failure="; ".join(errors) or None, findings=findings)
    write_manifest(folder, done)
    remove_unlisted(folder, done)
    forget_progress(folder)
    problems = tuple(dict.fromkeys(line for result in results for line in result.problems))
    return Outcome(done, summaries, problems, errors, findings)


def check_program(settings: JobSettings) -> None:
    """Refuse views over what a backtest does not bring. Raises UserError."""
    if not settings.views:
        return
    program = settings.program.compiled()
    read = {trigger.relation for trigger in program.program.triggers}
    for relation, why in _ABSENT.items():
        if relation in read:
            raise UserError(f"a view reads {relation}: {why}; leave it out, or use `replay`")


def _parameters(
    settings: JobSettings, strategies: Sequence[StrategyDefinition]
) -> dict[str, dict[str, str]]:
    """By the names of strategies all that is known to be set of them, and of their combination, as text."""
    found = {s.name: {**s.kind.defaults, **s.parameters} for s in strategies}
    for one in settings.combinations:
        for definition in one.definitions():
            found[definition.name] |= one.values
    return {name: {key: str(value) for key, value in own.items()} for name, own in found.items()}


def _begun(
    settings: JobSettings, specs: Sequence[SourceSpec], engine: str, strategies: Sequence[StrategyDefinition]
) -> Manifest:
    compiled = settings.program.compiled()
    keys = {view.name: [key.name for key in view.keys] for view in compiled.views}
    histories = {name: history_of(compiled.program.result(name), keys[name]) for name in settings.views}
    sources = tuple(spec.named for spec in specs)
    seen = settings.combinations[0].program if settings.combinations else settings.strategy_program
    return Manifest(
        FORMAT_VERSION, "running", engine, granularity_text(settings.granularity), settings.partitions,
        sources, settings.program.manifest(), histories, orders_dataset(), fills_dataset(),
        tables={"market": market_dataset(), "signals": signals_dataset()} if strategies else {},
        strategies=_parameters(settings, strategies),
        swept=tuple(settings.combinations[0].values) if settings.combinations else (),
        strategy_program=None if seen is None else seen.manifest(),
    )  # fmt: skip


def _completed(manifest: Manifest, results: Sequence[TaskResult]) -> Manifest:
    views = {
        name: msgspec.structs.replace(dataset, files=_sorted(r.histories.get(name, ()) for r in results))
        for name, dataset in manifest.views.items()
    }
    tables = {
        name: msgspec.structs.replace(dataset, files=_sorted(r.tables.get(name, ()) for r in results))
        for name, dataset in manifest.tables.items()
    }
    statistics = sorted((r.statistics for r in results), key=lambda s: (s.stage, s.partition))
    return msgspec.structs.replace(
        manifest,
        status="complete",
        views=views,
        orders=msgspec.structs.replace(manifest.orders, files=_sorted(r.orders for r in results)),
        fills=msgspec.structs.replace(manifest.fills, files=_sorted(r.fills for r in results)),
        statistics=tuple(statistics),
        tables=tables,
    )


def _sorted(files: Iterable[Iterable[DataFile]]) -> tuple[DataFile, ...]:
    return tuple(sorted((f for own in files for f in own), key=lambda file: (file.first, file.path)))


def _joined(results: Sequence[TaskResult]) -> tuple[StrategySummary, ...]:
    found: dict[str, StrategySummary] = {}
    for result in results:
        for one in result.summaries:
            found[one.name] = found[one.name].joined(one) if one.name in found else one
    return tuple(found.values())


def granularity_text(granularity: Granularity) -> str:
    """As the command line takes it."""
    if granularity.unit != "interval":
        return granularity.unit
    return f"interval:{granularity.length}ns"


