"""What Python code and the command line say of a backtest, as the settings of its tasks."""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any

from orderbook.backtesting.tasks import JobProgram, JobSettings
from orderbook.configuration.configuration import Configuration
from orderbook.core.errors import UserError, suggestion
from orderbook.core.units import nanoseconds
from orderbook.engine.distribution.stage_runner import Granularity
from orderbook.feeds.storage import Place
from orderbook.run.assembly import Assembly, assemble, parameters_of
from orderbook.run.display import working
from orderbook.strategies.execution.venue_model import strategy_table
from orderbook.strategies.loop_reasons import kept_relations
from orderbook.strategies.strategy import Strategy, load_strategy, parameters_named
from orderbook.views.library import declared_strategies, declared_views


def view_file(view: str | Path, folder: Path, number: int) -> str:
    """A view as the configuration names it; SQL as a file of its own."""
    text = str(view)
    if isinstance(view, Path) or not any(map(str.isspace, text)):
        return text
    with suppress(OSError):  # SQL may be longer than a name can be
        if Path(text).is_file():
            return text
    file = folder / f"query{number or ''}.sql"
    file.write_text(text, "utf-8")
    return str(file)


def strategy_path(strategy: str | type[Strategy]) -> str:
    """MODULE:CLASS of a class. Raises UserError for one that other processes cannot import."""
    if isinstance(strategy, str):
        return strategy
    module, name = strategy.__module__, strategy.__qualname__
    if getattr(import_module(module), name, None) is not strategy:
        raise UserError(f"{module}.{name}: define the class at the top of its module or notebook")
    return f"{module}:{name}"


def configuration_keys(configuration: Configuration, names: Sequence[str]) -> dict[str, list[str]]:
    """The keys of the configuration that each name sets: of strategies that have it as a default or in a
    condition, else of views, else of strategies that take it otherwise.

    Raises UserError for a name that none has.
    """
    strategies = {path: load_strategy(path) for path in configuration.run.strategies if ":" in path}
    of_views: set[str] | None = None
    found: dict[str, list[str]] = {}
    for name in names:
        own = [path for path, one in strategies.items() if name in parameters_named(one.kind, code=False)]
        if not own and of_views is None:
            of_views = parameters_of(view.sql for view in assemble(configuration).program.catalog.views)
        if not own and of_views is not None and name in of_views:
            found[name] = [f"parameters.{name}"]
            continue
        own = own or [path for path, one in strategies.items() if one.refusal_of(name) is None]
        if not own:
            known = set(of_views or ()).union(*(parameters_named(one.kind) for one in strategies.values()))
            raise UserError(
                f"--set {name}: neither the strategies nor their views have it; {suggestion(name, known)}"
            )
        found[name] = [f"strategies.{strategy_table(path)}.{name}" for path in own]
    return found


def shown_of(configuration: Configuration) -> Assembly:
    """What a backtest shows: the views of `run.views`, but those of files of strategies that read what these
    keep, and so are theirs alone. Raises as `assemble`."""
    found = assemble(configuration.with_run(strategies=()))
    files = {configuration.view_file(name) for name in configuration.run.views}
    beside = {view for file in files if declared_strategies(file) for view in declared_views(file)}
    program = found.program.program
    views = (name for name in found.views if name not in beside or not kept_relations(program, name))
    return replace(found, views=tuple(views))


def settings_of(
    configuration: Configuration,
    folder: Place | None,
    granularity: Granularity,
    partitions: int,
    key: str | None,
) -> JobSettings:
    """What tasks need of a configuration; folder: None: rows are sent, not written.

    Raises as `assemble` does.
    """
    with working("compiling views"):
        shown = shown_of(configuration)
        watched = None
        if configuration.run.strategies:
            watched = assemble(configuration.without_views())
    names = configuration.run.strategies
    parameters: list[tuple[str, Mapping[str, Any]]] = [
        (name, dict(configuration.strategy_parameters(name))) for name in names
    ]
    return JobSettings(
        JobProgram.of(shown.program),
        str(folder.resolve()) if folder is not None else "",
        shown.views,
        granularity,
        tuple(parameters),
        None if watched is None else JobProgram.of(watched.program),
        partitions,
        configuration.run.backend,
        configuration.clock.nanoseconds,
        key,
        trading=configuration.trading,
    )


def parsed_granularity(text: str) -> Granularity:
    """event, message, end, or interval:LENGTH with a unit. Raises UserError."""
    if text in ("event", "message", "end"):
        return Granularity(text)  # type: ignore[arg-type]
    kind, _, length = text.partition(":")
    try:
        if kind == "interval":
            return Granularity("interval", nanoseconds(length))
    except UserError:
        pass
    raise UserError(f"--granularity {text}: give event, message, end, or a length as in interval:1s")
