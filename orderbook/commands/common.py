"""What `run` and `replay` share: their options, and the engine they start."""

import gc
import signal
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from engine.plan.statistics import read_statistics
from orderbook.assembly import Assembly, assemble
from orderbook.configuration import Configuration, load_configuration
from orderbook.display import working
from orderbook.findings import Finding, incomplete_lines, refuse_incomplete
from orderbook.gate import GatedEngine
from orderbook.instruments import Instruments
from orderbook.logs import configure_logging
from orderbook.pipeline import Pipeline


def configured(
    config: Path | None,
    views: Sequence[str],
    strategies: Sequence[str],
    overrides: Mapping[str, object],
    allow_incomplete: bool = False,
) -> Configuration:
    """The configuration with the command line's options over it; see `load_configuration`."""
    chosen = {**overrides}
    if allow_incomplete:
        chosen["run.allow_incomplete"] = True
    if views:
        chosen["run.views"] = list(views)
    if strategies:
        chosen["run.strategies"] = list(strategies)
    configuration = load_configuration(config, chosen)
    configure_logging(configuration.logging)
    return configuration


def assembled(
    configuration: Configuration, instruments: Instruments, measured: bool = False
) -> tuple[Assembly, Pipeline]:
    """The program compiled to M3, its engine and books, its strategies subscribed."""
    assembly, engine = started(configuration, measured)
    return assembly, piped(configuration, assembly, engine, instruments)


def started(
    configuration: Configuration, measured: bool = False, kind: type[GatedEngine] = GatedEngine
) -> tuple[Assembly, GatedEngine]:
    """The program compiled to M3, and its engine, of this kind."""
    with working("compiling views"):
        assembly = assemble(configuration)
        if not assembly.views:
            seen = dict.fromkeys(view for strategy in assembly.strategies for view in strategy.views)
            assembly = replace(assembly, views=tuple(seen))
        engine = engine_of(configuration, assembly, measured, kind)
        if engine.budgeted is not None:
            print(engine.budgeted, file=sys.stderr)
        return assembly, engine


def engine_of(
    configuration: Configuration,
    assembly: Assembly,
    measured: bool = False,
    kind: type[GatedEngine] = GatedEngine,
) -> GatedEngine:
    """An engine of this kind for the program."""
    options = configuration.engine
    return kind(
        assembly.program,
        configuration.run.backend,
        keep_rows=options.keep_rows,
        statistics=read_statistics(options.statistics) if options.statistics else None,
        memory_budget=options.memory_budget,
        measured=measured,
    )


def piped(
    configuration: Configuration, assembly: Assembly, engine: GatedEngine, instruments: Instruments
) -> Pipeline:
    """The books before an engine, and the strategies subscribed to it."""
    with working("compiling views"):
        return Pipeline(
            engine,
            instruments,
            assembly.strategies,
            configuration.clock.nanoseconds,
            configuration.trading,
        )


def warm_up(pipeline: Pipeline) -> None:
    """Compile what an event runs through; after the last subscription."""
    with working("compiling triggers"):
        pipeline.warm_up()


def tell_incomplete(
    findings: Sequence[Finding], configuration: Configuration, failed: Iterable[Exception] = ()
) -> None:
    """Print what makes a result incomplete, after everything else. Raises the first of what has failed, else
    IncompleteError where there are findings that are not allowed."""
    for line in incomplete_lines(findings):
        print(line)
    for error in failed:
        raise error
    refuse_incomplete(findings, configuration.run.allow_incomplete)


@contextmanager
def terminable() -> Iterator[None]:
    """A request to terminate ends what is done as Ctrl-C does: in order. For the main thread."""
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


@contextmanager
def settled() -> Iterator[None]:
    """What is there now is not looked through for garbage, which would be a pause of a tenth of a second."""
    gc.collect()
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()
