"""The sinks of a run: made from their configuration, begun where its log ends, and ended with it."""

import asyncio
import hashlib
import re
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from orderbook.configuration.configuration import Configuration
from orderbook.configuration.options import SinkOptions, from_environment
from orderbook.core.errors import Problems
from orderbook.core.units import nanoseconds, size_of, size_text
from orderbook.engine.runtime.engine_state import program_hash
from orderbook.feeds.source import Finding
from orderbook.sinks.delivery import ChangeDelivery, Delivery, RowDelivery, SinkReport
from orderbook.sinks.kafka import KafkaTopic
from orderbook.sinks.outbox import Outbox, Target
from orderbook.sinks.postgres import PostgresChanges, PostgresRows
from orderbook.strategies.gated_engine import GatedEngine
from orderbook.views.program import CompiledProgram

# Seconds between two looks at what sinks want of the engine's thread.
_LOOK = 0.05


class RunSinks:
    """The sinks of a run, in the order of its configuration. One thread, the engine's, calls it."""

    def __init__(self, deliveries: tuple[Delivery, ...] = ()) -> None:
        self._deliveries = deliveries

    def __bool__(self) -> bool:
        return bool(self._deliveries)

    def attach(self, engine: GatedEngine) -> None:
        """The engine is about to be brought to where its log ends."""
        for one in self._deliveries:
            one.attach(engine)

    @contextmanager
    def delivering(self, engine: GatedEngine) -> Iterator[None]:
        """From here on the engine's changes are new; at the end what waits is sent, for some seconds."""
        for one in self._deliveries:
            one.open()
        for one in self._deliveries:
            one.begin(engine)
        try:
            yield
        finally:
            self.close()

    def close(self) -> None:
        """See Delivery.close."""
        with ExitStack() as all_:
            for one in self._deliveries:
                all_.callback(one.close)

    def save(self) -> None:
        """What has been put survives a crash on return; before a checkpoint. Raises LogError."""
        for one in self._deliveries:
            one.save()

    async def attend(self) -> None:
        """Sees to what sinks want of the engine's thread, until one raises what ends the run."""
        while True:
            for one in self._deliveries:
                one.attend()
            await asyncio.sleep(_LOOK)

    def reports(self) -> list[SinkReport]:
        """What became of the changes of each."""
        return [one.report() for one in self._deliveries]

    def findings(self) -> Iterator[Finding]:
        """Sinks that lack changes."""
        for one in self.reports():
            if one.behind:
                todo = "see why it cannot be written, and run again: the next run sends what it lacks"
                yield Finding("sink behind its view", (one.name,), max(1, one.waiting), todo)

    def summary(self) -> Iterator[str]:
        """Lines on each sink, and on what went wrong in it."""
        for one in self.reports():
            parts = [f"delivered {one.delivered:,}"]
            parts += [f"conflated {one.conflated:,}"] if one.conflated else []
            parts += [f"waiting {one.waiting:,}"] if one.waiting else []
            parts += [f"on the disk {size_text(one.spilled)}"] if one.spilled else []
            yield f"  sink {one.name}: {', '.join(parts)}"
            yield from (f"    {line}" for line in one.problems.report())


@contextmanager
def sinks_of(configuration: Configuration, program: CompiledProgram) -> Iterator[RunSinks]:
    """The sinks that a configuration names, closed in the end.

    Raises ConfigurationError for changes without a log, UserError where a driver is not installed, and as
    targets do for views that they cannot hold.
    """
    with ExitStack() as opened:
        made: list[Delivery] = []
        for number, options in enumerate(configuration.sinks):
            if any(options.target == other.target for other in configuration.sinks[:number]):
                raise configuration.error(("sinks", number, "to"), f"two sinks write {options.target}")
            one = _delivery(configuration, number, options, program)
            opened.callback(one.close)
            made.append(one)
        yield RunSinks(tuple(made))


def _delivery(
    configuration: Configuration, number: int, options: SinkOptions, program: CompiledProgram
) -> Delivery:
    problems = Problems()
    view, interval = options.view, nanoseconds(options.interval) / 1e9
    result = program.program.result(view)
    keys = next([key.name for key in one.keys] for one in program.views if one.name == view)
    name = f"{view} to {options.target}"
    if options.sends == "rows":
        rows = PostgresRows(options.to, options.table or view, result, problems)
        return RowDelivery(name, view, rows, interval, options.buffer_rows, problems)
    folder = configuration.log.folder
    if folder is None:
        raise configuration.error(
            ("sinks", number, "view"),
            "changes are kept for a sink in the run's log: give log.folder, or --log FOLDER",
        )
    target: Target
    if options.to.startswith("kafka:"):
        target = KafkaTopic(options.to, view, keys, from_environment(options.properties))
    else:
        target = PostgresChanges(options.to, options.table or view, result, problems)
    slug = f"{re.sub(r'[^a-z0-9_]', '_', view)}-{hashlib.sha256(name.encode()).hexdigest()[:12]}"
    outbox = Outbox(folder / "sinks" / slug, program_hash(program).hex())
    return ChangeDelivery(name, view, target, interval, outbox, size_of(options.spill), problems)
