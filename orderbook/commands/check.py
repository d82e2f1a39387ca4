"""`orderbook check`: everything that can be wrong before a run."""

from collections.abc import Iterable, Iterator
from pathlib import Path

from engine.plan.describe import warnings
from engine.plan.planner import plan
from feeds.source import open_source
from orderbook.assembly import assemble, declared_views, view_files, with_read
from orderbook.configuration import Configuration, load_configuration
from orderbook.feed_options import FileFeed
from orderbook.gate import GatedEngine
from orderbook.instruments import Instruments
from strategies.host import StrategyHost
from strategies.strategy import Strategy, watches_of
from views.compiler.program import CompiledProgram, compile_views


def check(config: Path | None) -> None:
    """Print what is fine, up to the first thing that is not, which is raised.

    Compiled are the views of the run, then each other file on the search path by itself.
    """
    configuration = load_configuration(config)
    print(f"configuration {config or 'by default'}: fine")
    assembly = assemble(configuration)
    print(*_views(assembly.program, [view.name for view in assembly.program.catalog.views]), sep="\n")
    parameters, materialize = configuration.parameters, configuration.engine.materialize
    for file in _other_files(configuration, assembly.files):
        program = compile_views(with_read(configuration, [file]), parameters, materialize=materialize)
        print(*_views(program, declared_views(file)), sep="\n")
    # Subscribing binds the conditions; the interpreter compiles nothing.
    StrategyHost(GatedEngine(assembly.program, "interpreter"), None, Instruments(()), assembly.strategies)
    for strategy in assembly.strategies:
        print(f"strategy {strategy.name}: fine, {_subscriptions(strategy.kind)}")
    for feed in configuration.feeds:
        if isinstance(feed, FileFeed):
            open_source(feed.source)
        print(f"feed {feed.source if isinstance(feed, FileFeed) else feed.kind}: fine")


def _views(program: CompiledProgram, names: Iterable[str]) -> Iterator[str]:
    for name in names:
        yield f"view {name}: fine"
    for warning in warnings(plan(program.program)):
        yield f"  warning: {warning}"


def _other_files(configuration: Configuration, checked: tuple[Path, ...]) -> list[Path]:
    done = {file.resolve() for file in checked}
    return [file for file in view_files(configuration) if file.resolve() not in done]


def _subscriptions(kind: type[Strategy]) -> str:
    found = [f"{watch.view} when {watch.when}" if watch.when else watch.view for watch in watches_of(kind)]
    return f"subscribed to {'; '.join(found)}" if found else "subscribed to nothing"
