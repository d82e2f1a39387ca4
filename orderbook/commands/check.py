"""`orderbook check`: everything that can be wrong before a run.

`orderbook diff`: what another configuration would change.
"""

import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import TypeVar

from orderbook.alerts.run_alerts import check_alerts
from orderbook.configuration.configuration import Configuration, load_configuration
from orderbook.configuration.options import (
    CaptureFeed,
    ExchangeFeed,
    Feed,
    FileFeed,
    KafkaFeed,
    SimulatedFeed,
)
from orderbook.core.errors import ConfigurationError, OrderbookError, visible
from orderbook.core.summaries import told
from orderbook.engine.plan.describe import Cost, warnings
from orderbook.engine.plan.planner import plan
from orderbook.engine.plan.statistics import read_statistics
from orderbook.engine.runtime.measures import within_budget
from orderbook.feeds.database_table import TableSource
from orderbook.feeds.live.simulated_exchange import simulated_instruments
from orderbook.feeds.merge import check_relations, is_event_source
from orderbook.feeds.recording.capture_replay import CapturePlayer
from orderbook.feeds.source_kinds import Opened, open_sources
from orderbook.market.instruments import Instrument, Instruments, normalise_symbol
from orderbook.operations.differences import program_differences, setting_differences
from orderbook.run.assembly import (
    Assembly,
    assemble,
    compiled_beside,
    partitions_or_why,
    view_files,
    with_strategies_of_views,
)
from orderbook.run.pipeline import Pipeline
from orderbook.strategies.gated_engine import GatedEngine
from orderbook.strategies.strategy import Strategy, watches_of
from orderbook.views.library import declared_views
from orderbook.views.program import CompiledProgram

_Made = TypeVar("_Made")


def _threads(configuration: Configuration, assembly: Assembly, changes: Sequence[str]) -> list[str]:
    """In how many threads books and views will run, where several are asked for."""
    found = partitions_or_why(configuration, assembly, changes)
    if found is None:
        return []
    if isinstance(found, str):
        return [f"threads: 1 instead of {configuration.engine.threads}: {found}"]
    return [f"threads: {found.count}, by {found.column}"]


def check(config: Path | None) -> None:
    """Print what is fine, or raise ConfigurationError with a line for each mistake.

    Compiled are the views of the run, then each other file on the search path by itself. Strategies are made
    and their conditions bound; files, captures and databases of feeds are opened, and their instruments
    compared. What exchanges list is asked when they are followed.
    """
    configuration = with_strategies_of_views(load_configuration(config))
    checks = _Checks()
    checks.made(configuration.check_core)
    assembly = checks.made(lambda: assemble(configuration))
    if assembly is not None:
        checks.told(lambda: _views(assembly.program, [v.name for v in assembly.program.catalog.views]))
        checks.told(lambda: _statistics(assembly))
    for file in _other_files(configuration, () if assembly is None else assembly.files):
        checks.told(partial(_file, configuration, file))
    opened = [checks.made(partial(_opened, feed)) for feed in configuration.feeds]
    files = [feed.source for feed in configuration.feeds if isinstance(feed, FileFeed)]
    opened.append(checks.made(lambda: _read(_files(files))))
    found = [one for one in opened if one is not None]
    if assembly is not None and len(found) == len(opened):
        instruments = checks.made(lambda: Instruments(dict.fromkeys(one for own, _ in found for one in own)))
        sources = [source for _, own in found for source in own]
        checks.made(partial(check_relations, sources, assembly.program.relations))
        if instruments is not None:
            checks.told(lambda: _strategies(assembly, instruments))
        changing = [source.name for source in sources if not is_event_source(source)]
        checks.told(lambda: _threads(configuration, assembly, changing))
    for feed in configuration.feeds:
        checks.lines.append(f"feed {feed.source if isinstance(feed, FileFeed) else feed.kind}: fine")
    told(fine=not checks.errors, checks=checks.lines)
    if checks.errors:
        raise ConfigurationError("\n".join(dict.fromkeys(checks.errors)))
    print(f"configuration {config or 'by default'}: fine", *checks.lines, sep="\n")


class _Checks:
    """Lines about what is fine, and the errors found."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.errors: list[str] = []

    def made(self, make: Callable[[], _Made]) -> _Made | None:
        """What is made; None where it cannot be."""
        try:
            return make()
        except OrderbookError as error:
            self.errors.append(str(error))
            return None

    def told(self, tell: Callable[[], Iterable[str]]) -> None:
        """Lines that are told."""
        self.lines += self.made(lambda: list(tell())) or ()


def _views(program: CompiledProgram, names: Iterable[str], whose: str = "") -> Iterator[str]:
    for name in names:
        yield f"view {name}: fine{whose}"
    for warning in warnings(plan(program.program)):
        yield f"  warning: {warning}"


def _file(configuration: Configuration, file: Path) -> Iterator[str]:
    """A view file that the run has not."""
    program = compiled_beside(configuration, file)
    yield from _views(program, declared_views(file), ", not of this run")


def _statistics(assembly: Assembly) -> Iterator[str]:
    """The statistics by which a run is planned, and the budget that they are for."""
    options = assembly.configuration.engine
    statistics = None if options.statistics is None else read_statistics(options.statistics)
    if options.memory_budget is not None:
        yield str(within_budget(assembly.program, options.memory_budget, statistics))


def _other_files(configuration: Configuration, checked: Sequence[Path]) -> list[Path]:
    done = {file.resolve() for file in checked}
    try:
        files = view_files(configuration)
    except ConfigurationError:
        # The run's own, which has been told.
        return []
    return [file for file in files if file.resolve() not in done]


_Opened = tuple[Sequence[Instrument], Sequence[Opened]]


def _opened(feed: Feed) -> _Opened:
    """A feed's instruments, and what it reads; an exchange's with any tick and lot. Files come apart."""
    if isinstance(feed, SimulatedFeed):
        return tuple(simulated_instruments(feed.products)), ()
    if isinstance(feed, ExchangeFeed):
        return [_of_exchange(feed.kind, product) for product in dict.fromkeys(feed.products)], ()
    if isinstance(feed, CaptureFeed):
        player = CapturePlayer(feed.path, feed.exchange, feed.products, feed.speed)
        return tuple(player.instruments), ()
    if isinstance(feed, FileFeed | KafkaFeed):
        return (), ()
    return _read([TableSource(feed.table_options)])


def _files(texts: Sequence[str]) -> Sequence[Opened]:
    """Files as a run opens them, those of one feed together.

    Raises ConfigurationError with a line for each mistake.
    """
    try:
        return open_sources(texts)
    except OrderbookError as error:
        errors = {str(error): None}
        for text in texts:
            try:
                open_sources([text])
            except OrderbookError as own:
                errors[str(own)] = None
        raise ConfigurationError("\n".join(errors)) from error


def _read(sources: Sequence[Opened]) -> _Opened:
    return [one for source in sources if is_event_source(source) for one in source.instruments], sources


def _of_exchange(kind: str, product: str) -> Instrument:
    one = Decimal("0.01")
    return Instrument(kind, normalise_symbol(kind, product), product, one, one)


def _strategies(assembly: Assembly, instruments: Instruments) -> Iterator[str]:
    """The strategies, made and subscribed; the interpreter compiles nothing."""
    engine = GatedEngine(assembly.program, "interpreter")
    logger = logging.getLogger("orderbook.strategies")
    # What they raise is told here.
    before, logger.disabled = logger.disabled, True
    try:
        pipeline = Pipeline(engine, instruments, assembly.strategies)
    finally:
        logger.disabled = before
    if failures := pipeline.host.failures:
        raise ConfigurationError("\n".join(f"strategy {visible(str(failure))}" for failure in failures))
    for strategy in assembly.strategies:
        yield f"strategy {strategy.name}: fine, {_subscriptions(strategy.kind)}"
    yield from check_alerts(assembly.configuration, engine)


def _subscriptions(kind: type[Strategy]) -> str:
    found = [f"{watch.view} when {watch.when}" if watch.when else watch.view for watch in watches_of(kind)]
    return f"subscribed to {'; '.join(found)}" if found else "subscribed to nothing"


def diff(first: Path | None, second: Path) -> None:
    """Print what changes from one configuration to another. Raises ConfigurationError, SqlError."""
    configurations = [with_strategies_of_views(load_configuration(file)) for file in (first, second)]
    before, after = (assemble(one) for one in configurations)
    settings = setting_differences(*configurations)
    found = replace(program_differences(before.program, after.program), settings=settings)
    for line in found.lines():
        print(visible(line))
    told(
        views=[
            {
                "view": one.view, "costs": _texts(one.costs), "maps": one.maps, "lines": one.text,
                "events": {name: _texts(costs) for name, costs in one.events.items()},
                "map_costs": {name: _texts(costs) for name, costs in one.of_maps.items()},
            }
            for one in found.views
        ],
        maps={"kept": found.kept, "new": found.new, "dropped": found.dropped},
        filled_from=found.filled_from, restart=found.restart, settings=settings,
    )  # fmt: skip


def _texts(costs: Sequence[Cost | None]) -> list[str | None]:
    return [None if cost is None else str(cost) for cost in costs]
