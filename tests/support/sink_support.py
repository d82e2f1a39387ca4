"""A run with a log whose sinks' targets are kept across its crashes, and views with values of every type."""

import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from random import Random
from typing import Any

from samples import PATIENCE

from orderbook.durability import journal
from orderbook.durability.durable_run import DurableRun, checkpoints_of
from orderbook.engine.checkpoint import newest_checkpoint
from orderbook.engine.log.log import Log, SyncPolicy
from orderbook.engine.runtime.engine_state import program_hash
from orderbook.engine.runtime.subscriptions import Version
from orderbook.feeds.change_stream import RelationChange
from orderbook.feeds.merge import ChangeItem
from orderbook.market.instruments import Instruments
from orderbook.run.event_queue import Stamped
from orderbook.run.pipeline import Pipeline
from orderbook.sinks.delivery import ChangeDelivery, Delivery
from orderbook.sinks.outbox import RowChange, SinkError
from orderbook.strategies.gated_engine import GatedEngine
from orderbook.views.compilation import compile_views
from orderbook.views.program import CompiledProgram

SQL = """
CREATE STREAM quotes (symbol TEXT, price DECIMAL(18, 6), volume DECIMAL(18, 9), at TIMESTAMP, good BOOLEAN);
CREATE VIEW totals AS SELECT symbol, COUNT(*) AS n, SUM(price * volume) AS turnover, MAX(at) AS last,
    SUM(price) / NULLIF(SUM(volume), 0) AS ratio, MAX(good) AS good
FROM quotes GROUP BY symbol;
"""


def program() -> CompiledProgram:
    return compile_views(SQL)


def row(random: Random) -> dict[str, Any]:
    """A row, with NULLs."""
    values = {
        "symbol": random.choice(["A", "B", "Ö'\"\\", None]),
        "price": f"{random.randrange(-(10**10), 10**10)}.{random.randrange(10**6):06}",
        "volume": f"{random.randrange(10**8)}.{random.randrange(10**9):09}",
        "at": random.randrange(2 * 10**18),
        "good": random.random() < 0.5,
    }
    return {name: None if name != "symbol" and random.random() < 0.1 else one for name, one in values.items()}


def messages(seed: int, count: int) -> Iterator[list[RelationChange]]:
    """Messages of inserted and deleted rows."""
    random, there = Random(seed), list[dict[str, Any]]()
    for _ in range(count):
        changes = []
        for _ in range(random.randrange(1, 4)):
            if there and random.random() < 0.45:
                changes.append(
                    RelationChange(0, "quotes", "-", there.pop(random.randrange(len(there))), False)
                )
            else:
                there.append(row(random))
                changes.append(RelationChange(0, "quotes", "+", there[-1], False))
        yield [*changes[:-1], changes[-1]._replace(last=True)]


class Run:
    """A process: from what the folder holds until it is dropped. deliveries: made anew, begun in order."""

    def __init__(self, folder: Path, made: Callable[[CompiledProgram, Path], Sequence[Delivery]]) -> None:
        own = program()
        self.engine = GatedEngine(own, "interpreter")
        self.pipeline = Pipeline(self.engine, Instruments(()))
        self.log = Log.open(folder, journal.IDENTITY, policy=SyncPolicy(0))
        self.durable = DurableRun(self.pipeline, self.log, checkpoints_of(folder), keep=1)
        self.deliveries = tuple(made(own, folder))
        for one in self.deliveries:
            one.attach(self.engine)
        self.durable.recover(newest_checkpoint(checkpoints_of(folder), program_hash(own)))
        self.durable.before_checkpoint = self._save
        for one in self.deliveries:
            one.open()
        for one in self.deliveries:
            one.begin(self.engine)
        self.items = sum(record.kind == journal.Kind.CHANGES for _, record in self.log.read())

    def _save(self) -> None:
        for one in self.deliveries:
            one.save()

    def apply(self, changes: list[RelationChange]) -> None:
        item = Stamped(self.durable.clock.stamp(), 0, ChangeItem("test", changes))
        self.durable.accept([item])
        self.durable.apply(item)
        for one in self.deliveries:
            one.attend()

    def rows(self) -> dict[Any, dict[str, Any]]:
        return {key: dict(one) for key, one in self.engine["totals"].items()}

    def settle(self, seconds: float = PATIENCE) -> None:
        """Until the targets have everything."""
        end = time.monotonic() + seconds
        while any(one.report().behind for one in self.deliveries):
            assert time.monotonic() < end, [one.report() for one in self.deliveries]
            for one in self.deliveries:
                one.attend()
            time.sleep(0.002)

    def close(self) -> None:
        for one in self.deliveries:
            one.close()
        self.log.close()


@contextmanager
def crashed(run: Run, folder: Path, other: Path) -> Iterator[None]:
    """What a killed process leaves: its files as they are now. What it was sending may still arrive."""
    with ExitStack() as held:
        for one in run.deliveries:
            if isinstance(one, ChangeDelivery):
                held.enter_context(one._outbox._lock)
        shutil.copytree(folder, other)
    yield
    run.close()


class KeptTarget:
    """Has what it was given as a reader that drops repeats by version; fails as often as is asked for."""

    def __init__(self, seed: int = 0, failing: float = 0.0) -> None:
        self.given: list[RowChange] = []
        self.rows: dict[Any, RowChange] = {}
        self.late = 0
        self.failing = failing
        self._random = Random(seed)

    def open(self) -> None:
        self._fail()

    def write(self, changes: list[RowChange]) -> None:
        self._fail()
        part = self._random.randrange(len(changes) + 1) if self._random.random() < self.failing else None
        for change in changes[:part]:
            self.given.append(change)
            before = self.rows.get(change.key)
            if before is None or before.version < change.version:
                self.rows[change.key] = change
            else:
                self.late += 1
        if part is not None:
            raise SinkError("it broke in the middle")

    def replace(self, rows: list[RowChange], version: Version) -> None:
        self._fail()
        self.rows = {one.key: one for one in rows}

    def end(self) -> None:
        return

    def close(self) -> None:
        return

    @property
    def present(self) -> dict[Any, dict[str, Any]]:
        return {key: dict(one.row) for key, one in self.rows.items() if one.op != "delete"}

    def _fail(self) -> None:
        if self._random.random() < self.failing:
            raise SinkError("it is away")
