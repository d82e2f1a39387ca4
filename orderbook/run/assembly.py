"""From a configuration to what runs: view files found, SQL compiled, parameters checked, engine made."""

import os
import re
import sys
from collections import deque
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from types import MappingProxyType

from sqlglot import exp

from orderbook.configuration.configuration import Configuration
from orderbook.core.changes import Dictionary
from orderbook.core.errors import ConfigurationError, UserError, suggestion
from orderbook.core.options import KeyPath
from orderbook.engine.distribution.threads import partitions_of
from orderbook.engine.plan.statistics import read_statistics
from orderbook.engine.runtime.partitioned_runtime import Partitions
from orderbook.market.book_relations import filled_relations
from orderbook.market.instruments import Instruments
from orderbook.run.display import working
from orderbook.run.pipeline import Pipeline
from orderbook.strategies.gated_engine import GatedEngine
from orderbook.strategies.order_views import strategy_of
from orderbook.strategies.strategy import StrategyDefinition, load_strategy, parameters_named
from orderbook.views.binding.nodes import CreateStrategy
from orderbook.views.binding.parameters import ParameterError
from orderbook.views.binding.parser import parse, position
from orderbook.views.compilation import bound_source, compile_source, compile_texts, texts_of
from orderbook.views.library import (
    declared_strategies,
    declared_views,
    packaged_views,
    shown_views,
    trees_of,
)
from orderbook.views.library import with_read as files_with_read
from orderbook.views.m3_link import is_m3
from orderbook.views.materialization import Levels, level_of
from orderbook.views.program import CompiledProgram, SourceText
from orderbook.views.types import Parameter


@dataclass(frozen=True, slots=True)
class Assembly:
    """What a run is made of; `views` are those that were asked for by name."""

    configuration: Configuration
    files: tuple[Path, ...]
    program: CompiledProgram
    views: tuple[str, ...]
    strategies: tuple[StrategyDefinition, ...]


def assemble(configuration: Configuration) -> Assembly:
    """Compile the views of `run.views`, and those that strategies, sinks and alerts of the run read.

    Raises ConfigurationError for a view, strategy or parameter that is not there, SqlError with file,
    line and column.
    """
    use_cache(configuration)
    in_python = {name: _strategy(configuration, name) for name in configuration.run.strategies if ":" in name}
    in_sql = [name for name in configuration.run.strategies if ":" not in name]
    others: list[tuple[str, StrategyDefinition]] = []
    for name in configuration.other_strategies:
        with suppress(ConfigurationError):
            others.append((name, load_strategy(name)))
    for name, other in others:
        configuration.check_strategy_parameters(name, other.refusal_of)
    declared = {file: declared_views(file) for file in map(configuration.view_file, configuration.run.views)}
    silent = {name for file in declared for name in declared_strategies(file) if name not in in_sql}
    shown = tuple(
        dict.fromkeys(
            name
            for file, names in declared.items()
            for name in shown_views(file, names)
            if name not in silent
        )
    )
    seen = [(strategy.name, view) for strategy in in_python.values() for view in strategy.views]
    for name, view in (*seen, *((name, name) for name in in_sql)):
        if not any(view in names for names in declared.values()):
            file = _view_of_strategy(configuration, name, view)
            declared[file] = declared_views(file)
    sent: list[tuple[KeyPath, str]] = [
        (("sinks", number, "view"), sink.view) for number, sink in enumerate(configuration.sinks)
    ]
    sent += [(("alerts", name, "view"), alert.view) for name, alert in configuration.alerts.items()]
    for key, view in sent:
        if not any(view in names for names in declared.values()):
            file = _view_at(configuration, key, view)
            declared[file] = declared_views(file)
    files = with_read(configuration, declared)
    levels = Levels(level_of(configuration.engine.materialize))
    texts = [without_strategies(text, in_sql) for text in texts_of(files)]
    with _parameters_placed(configuration):
        program = _compiled(texts, configuration.parameters, levels)
    used = parameters_of(view.sql for view in program.catalog.views)
    used.update(*(parameters_named(strategy.kind) for strategy in in_python.values()))
    strategies = tuple(
        in_python.get(name) or strategy_of(program, name) for name in configuration.run.strategies
    )
    configuration.check_parameters(used, lambda: _parameters_elsewhere(configuration))
    return Assembly(configuration, tuple(files), program, shown, strategies)


def compiled_beside(
    configuration: Configuration, file: Path, given: Mapping[str, Parameter] = MappingProxyType({})
) -> CompiledProgram:
    """The program of a file alone with what it reads, by the parameters of a configuration under those given.

    Raises SqlError, and ConfigurationError for a parameter of the configuration that has a wrong value.
    """
    levels = Levels(level_of(configuration.engine.materialize))
    with _parameters_placed(configuration, given):
        texts = texts_of(with_read(configuration, [file]))
        return compile_texts(texts, {**configuration.parameters, **given}, levels=levels)


@contextmanager
def _parameters_placed(configuration: Configuration, given: Collection[str] = ()) -> Iterator[None]:
    """What is wrong with a value of the configuration is told where that stands."""
    try:
        yield
    except ParameterError as error:
        if error.name in given:
            raise
        reason = f"{error.reason}; declared at {error.file or 'SQL'}:{error.line}:{error.column}"
        raise configuration.error(("parameters", error.name), reason) from None


# Of this process: a command looks at what it runs first, or runs it again.
_known: deque[CompiledProgram] = deque(maxlen=4)


def _compiled(
    texts: Sequence[SourceText], parameters: Mapping[str, Parameter], levels: Levels
) -> CompiledProgram:
    """The program of texts with a dictionary of its own, compiled where it is none of the last ones."""
    source = bound_source(texts, parameters, levels)
    # 1 and TRUE are equal.
    said = repr(dict(source.parameters))
    same = (one for one in _known if one.source == source and repr(dict(one.parameters)) == said)
    found = next(same, None)
    if found is None:
        found = compile_source(source)
        _known.append(found)
    return replace(found, dictionary=Dictionary())


def _strategy(configuration: Configuration, name: str) -> StrategyDefinition:
    configuration.check_strategy_parameters(name, load_strategy(name).refusal_of)
    return load_strategy(name, configuration.strategy_parameters(name))


def _parameters_elsewhere(configuration: Configuration) -> set[str]:
    """The parameters of all views and strategies that a run of this configuration could have."""
    found: set[str] = set()
    files = [configuration.view_file(name) for name in configuration.views_of_file]
    for file in dict.fromkeys([*files, *view_files(configuration)]):
        with suppress(UserError):
            found |= _parameters_in(trees_of(file))
    for name in configuration.other_strategies:
        with suppress(ConfigurationError):
            found |= parameters_named(load_strategy(name).kind)
    return found


def use_cache(configuration: Configuration) -> None:
    """Keep compiled programs where the configuration says; before anything is compiled."""
    if configuration.engine.cache is not None:
        os.environ["ORDERBOOK_CACHE"] = str(configuration.engine.cache)


def parameters_of(texts: Iterable[str]) -> set[str]:
    """The names that SQL texts write as :name."""
    return _parameters_in(statement.tree for sql in texts for statement in parse(None, sql))


def _parameters_in(trees: Iterable[exp.Expr]) -> set[str]:
    return {str(node.this) for tree in trees for node in tree.find_all(exp.Placeholder)}


def with_strategies_of_views(configuration: Configuration) -> Configuration:
    """The configuration with the strategies that the files of its views declare in SQL as well.

    What is wrong with a file is left to `assemble`.
    """
    found = dict.fromkeys(configuration.run.strategies)
    for name in configuration.run.views:
        with suppress(UserError):
            found.update(dict.fromkeys(declared_strategies(configuration.view_file(name))))
    return configuration.with_run(strategies=tuple(found))


def without_strategies(text: SourceText, kept: Sequence[str]) -> SourceText:
    """A text with blanks in the place of the strategies that it declares, but for some."""
    file, sql = text
    for statement in () if is_m3(file, sql) else parse(file, sql):
        tree = statement.tree
        if isinstance(tree, CreateStrategy) and tree.this.name.lower() not in kept:
            start = position(tree)
            end = start + len(statement.sql)
            sql = sql[:start] + re.sub(r"[^\n]", " ", sql[start:end]) + sql[end:]
    return file, sql


def with_read(configuration: Configuration, files: Iterable[Path]) -> list[Path]:
    """Files, and those on the search path with views that are read and that none of them declares.

    Raises as `declared_views`.
    """
    return files_with_read(files, partial(_file_that_declares, configuration))


def view_files(configuration: Configuration) -> list[Path]:
    """The files of the run's views, then all others on the search path."""
    found = [configuration.view_file(name) for name in configuration.run.views]
    for path in (*configuration.views.paths, packaged_views()):
        found += sorted(path.glob("*.sql")) if path.is_dir() else [path]
    return [file for file in dict.fromkeys(found) if file != packaged_views() / "schema.sql"]


def _view_of_strategy(configuration: Configuration, strategy: str, view: str) -> Path:
    try:
        return _file_of_view(configuration, view)
    except ConfigurationError as error:
        raise ConfigurationError(f"strategy {strategy} looks at view {view!r}: {error}") from None


def _view_at(configuration: Configuration, key: KeyPath, view: str) -> Path:
    try:
        file = _file_of_view(configuration, view)
    except ConfigurationError:
        file = None
    if file is None or view not in declared_views(file):
        known = {name for one in view_files(configuration) for name in declared_views(one)}
        raise configuration.error(key, f"no view is named {view!r}; {suggestion(view, known)}")
    return file


def _file_that_declares(configuration: Configuration, view: str) -> Path | None:
    try:
        file = _file_of_view(configuration, view)
    except ConfigurationError:
        return None
    return file if view in declared_views(file) else None


def _file_of_view(configuration: Configuration, view: str) -> Path:
    """The file on the search path that is there for a view: one that is named itself, or is named as it."""
    for file in filter(Path.is_file, configuration.views.paths):
        if view in declared_views(file):
            return file
    return configuration.view_file(view)


def assembled(
    configuration: Configuration,
    instruments: Instruments,
    measured: bool = False,
    changes: Collection[str] | None = None,
) -> tuple[Assembly, Pipeline]:
    """The program compiled to M3, its engine and books, its strategies subscribed; see `started`."""
    assembly, engine = started(configuration, measured, changes)
    return assembly, piped(configuration, assembly, engine, instruments)


def started(
    configuration: Configuration, measured: bool = False, changes: Collection[str] | None = None
) -> tuple[Assembly, GatedEngine]:
    """The program compiled to M3, and its engine, for as many threads as the configuration says.

    changes: the names of sources that give changes of relations; None: it is for one thread.
    """
    with working("compiling views"):
        assembly = assemble(configuration)
        if not assembly.views:
            seen = dict.fromkeys(view for strategy in assembly.strategies for view in strategy.views)
            assembly = replace(assembly, views=tuple(seen))
        partitions = None if changes is None else partitioned(configuration, assembly, changes)
        engine = engine_of(configuration, assembly, measured, partitions)
        if engine.budgeted is not None:
            print(engine.budgeted, file=sys.stderr)
        return assembly, engine


def partitioned(
    configuration: Configuration, assembly: Assembly, changes: Collection[str]
) -> Partitions | None:
    """The partitions that `engine.threads` run; None for one thread, of which standard error is told why."""
    found = partitions_or_why(configuration, assembly, changes)
    if isinstance(found, str):
        print(f"threads: 1 instead of {configuration.engine.threads}: {found}", file=sys.stderr)
        return None
    return found


def partitions_or_why(
    configuration: Configuration, assembly: Assembly, changes: Collection[str]
) -> Partitions | str | None:
    """The partitions that `engine.threads` run, or why it is one thread; None where one is asked for."""
    options = configuration.engine
    if options.threads == 1:
        return None
    if configuration.run.backend != "numba":
        return f"the backend {configuration.run.backend} runs in one"
    if assembly.strategies:
        names = ", ".join(strategy.name for strategy in assembly.strategies)
        return f"{names} may look at every view when called, as of one version"
    if options.keep_rows:
        return "the rows of relations are kept (engine.keep_rows), in one place"
    if options.memory_budget is not None:
        return "engine.memory_budget is for the maps of one"
    if changes:
        return f"{', '.join(changes)} may change relations, one row after the other"
    program = assembly.program.program
    return partitions_of(program, options.threads, filled_relations(program))


def engine_of(
    configuration: Configuration,
    assembly: Assembly,
    measured: bool = False,
    partitions: Partitions | None = None,
) -> GatedEngine:
    """An engine for the program."""
    options = configuration.engine
    return GatedEngine(
        assembly.program,
        configuration.run.backend,
        keep_rows=options.keep_rows,
        statistics=read_statistics(options.statistics) if options.statistics else None,
        memory_budget=options.memory_budget,
        measured=measured,
        partitions=partitions,
    )


def piped(
    configuration: Configuration,
    assembly: Assembly,
    engine: GatedEngine,
    instruments: Instruments,
    gateways: bool = False,
) -> Pipeline:
    """The books before an engine, and the strategies subscribed to it. gateways: orders go where [execution]
    says, and are not all simulated."""
    with working("compiling views"):
        return Pipeline(
            engine,
            instruments,
            assembly.strategies,
            configuration.clock.nanoseconds,
            configuration.live_trading if gateways else configuration.trading,
        )


def warm_up(pipeline: Pipeline) -> None:
    """Compile what an event runs through; after the last subscription."""
    with working("compiling triggers"):
        pipeline.warm_up()
