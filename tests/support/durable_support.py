"""A run with a log on a disk that crashes, and what it must be after that."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from functools import cache
from pathlib import Path
from random import Random
from typing import Any, ClassVar

import numpy as np
from crash_files import CrashFiles, PowerLoss

from orderbook.core.changes import Dictionary
from orderbook.core.run_clock import LIMITS, ClockLimits
from orderbook.durability import journal
from orderbook.durability.durable_run import DurableRun
from orderbook.durability.journal import Asked, Completed, Known, Lifecycle
from orderbook.engine.checkpoint import newest_checkpoint
from orderbook.engine.log.log import Log, SyncPolicy
from orderbook.engine.runtime.engine_state import program_hash
from orderbook.feeds.merge import TickItem
from orderbook.market.events import EVENT, Action, BookState, Flag, Side
from orderbook.market.instruments import Instruments
from orderbook.market.synthetic_flow import generate, synthetic_instruments
from orderbook.run.event_queue import HybridClock, Stamped
from orderbook.run.pipeline import Pipeline
from orderbook.strategies.gated_engine import GatedEngine
from orderbook.strategies.strategy import Strategy, StrategyDefinition, on_view
from orderbook.views.compilation import compile_views
from orderbook.views.program import CompiledProgram

FOLDER = Path("/log")
SECOND, MINUTE = 10**9, 60 * 10**9
INSTRUMENTS = tuple(synthetic_instruments(2))
SQL = """
CREATE VIEW depth AS SELECT symbol, COUNT(*) AS orders, SUM(volume) AS volume FROM bids GROUP BY symbol;
CREATE VIEW my_orders AS SELECT strategy, status, COUNT(*) AS n, SUM(filled) AS filled
FROM orders GROUP BY strategy, status;
CREATE VIEW my_fills AS SELECT strategy, side, COUNT(*) AS n, SUM(volume * price) AS turnover
FROM fills GROUP BY strategy, side;
CREATE VIEW books AS SELECT symbol, state, reason, COUNT(*) AS n FROM book_states
GROUP BY symbol, state, reason;
CREATE VIEW recent AS SELECT symbol, COUNT(*) AS n FROM trades
WHERE ts > NOW() - INTERVAL '1 second' GROUP BY symbol;
CREATE VIEW told AS SELECT NOW() AS now, COUNT(*) AS n FROM trades;
CREATE VIEW touches AS SELECT symbol, COUNT(*) AS n, MAX(id) AS last, SUM(mid) AS mids, COUNT(ask) AS asks
FROM quotes GROUP BY symbol;
CREATE VIEW happened AS SELECT symbol, action, COUNT(*) AS n, MAX(number) AS last,
  SUM(level_volume_ahead) AS ahead, MIN(placed_at) AS placed FROM book_events GROUP BY symbol, action;
"""
Call = tuple[str, Any]


class Trader(Strategy):
    """Notes every call, and places and cancels orders by a count that it saves."""

    calls: ClassVar[list[Call]] = []

    def __init__(self) -> None:
        self.seen = 0

    def on_start(self) -> None:
        self._note("start", None)

    @on_view("depth", fire="change")
    def changed(self, event: Any) -> None:
        self._note(event.key[0], (event.version, self.seen))
        self.seen += 1
        symbol = event.key[0]
        if self.seen % 3 == 0:
            self.buy(symbol, 30)
        elif self.seen % 5 == 0:
            side, offset = (self.buy, -1) if self.seen % 2 else (self.sell, 1)
            side(symbol, 20, Decimal(100) + offset * Decimal(self.seen % 7 - 2) / 50)
        elif self.seen % 11 == 0:
            self.cancel(self.seen // 4)

    def on_fill(self, fill: Any) -> None:
        self._note("fill", (fill.order_id, fill.volume))

    def on_save(self) -> bytes:
        return str(self.seen).encode()

    def on_load(self, state: bytes) -> None:
        self.seen = int(state)

    def _note(self, what: str, detail: Any) -> None:
        Trader.calls.append((what, detail))


@cache
def _program() -> CompiledProgram:
    return compile_views(SQL)


def pipeline() -> Pipeline:
    """A fresh one, of a program that is compiled once in a process."""
    engine = GatedEngine(replace(_program(), dictionary=Dictionary()), "interpreter")
    return Pipeline(engine, Instruments(INSTRUMENTS), [StrategyDefinition(Trader)])


def items(seed: int, count: int) -> list[np.ndarray | TickItem]:
    """What feeds receive: books become valid, then flow in parts of whole messages, with ticks between."""
    random = Random(seed)
    flow = next(generate(count, len(INSTRUMENTS), 12, seed, batch=count))
    ends = np.flatnonzero(flow["flags"] & int(Flag.LAST)) + 1
    found: list[np.ndarray | TickItem] = [_states(BookState.VALID)]
    start, valid = 0, True
    while start < ends[-1]:
        end = int(
            ends[min(int(np.searchsorted(ends, start, side="right")) + random.randrange(6), len(ends) - 1)]
        )
        found.append(flow[start:end])
        if random.random() < (0.1 if valid else 0.3):
            valid = not valid
            found.append(_states(BookState.VALID if valid else BookState.STALE))
        if random.random() < 0.2:
            found.append(_steps(random))
        if random.random() < 0.1:
            found.append(TickItem(int(flow["exchange_time"][end - 1])))
        start = end
    return [*found, _states(BookState.VALID)]


def _steps(random: Random) -> np.ndarray:
    """An instrument has another tick and lot, by which some orders are refused."""
    steps = np.zeros(1, EVENT)
    steps["instrument"], steps["action"] = random.randrange(len(INSTRUMENTS)), Action.INSTRUMENT
    steps["side"], steps["flags"] = Side.NONE, Flag.LAST
    steps["price"], steps["volume"] = random.choice([1, 2, 4]), random.choice([1, 10, 30])
    return steps


def _states(state: BookState) -> np.ndarray:
    states = np.zeros(len(INSTRUMENTS), EVENT)
    states["instrument"], states["action"] = range(len(INSTRUMENTS)), Action.STATE
    states["side"], states["volume"], states["flags"] = Side.NONE, state, Flag.LAST
    return states


def rows(of: Pipeline) -> dict[str, list[Any]]:
    """The rows of all views, and of the orders."""
    return {view: sorted(map(repr, of.engine[view].items())) for view in of.engine.views}


@dataclass
class Process:
    """One process from its start to its end."""

    run: DurableRun
    pipeline: Pipeline
    log: Log
    completed_before: int
    calls_before: int


class Machine:
    """The clocks of a machine: one that nobody sets, which moves a little with every look, and the wall's."""

    # ns between two looks at most.
    look = 7

    def __init__(self) -> None:
        self._steady, self._wall_offset = 1_000, 0
        self.interrupted_for = 0

    def steady(self) -> int:
        """ns since the machine was started."""
        self._steady += self.look
        return self._steady

    def wall(self) -> int:
        """ns since 1970; a process that is to be interrupted goes on after it has looked."""
        found = self._steady + self._wall_offset
        self._steady, self.interrupted_for = self._steady + self.interrupted_for, 0
        return found

    def set_by(self, jump: int) -> None:
        """Set the wall clock by so much."""
        self._wall_offset += jump

    def pass_time(self, elapsed: int) -> None:
        self._steady += elapsed

    def reboot(self) -> None:
        """The clock that nobody sets begins anew."""
        self._wall_offset += self._steady
        self._steady = 0

    def clock(self, limits: ClockLimits = LIMITS) -> HybridClock:
        """What a process stamps by."""
        return HybridClock(self.wall, self.steady, limits)


class World:
    """A disk, a machine's clocks, and the processes that use them one after another.

    With every item that is received some time passes, and sometimes the wall clock jumps, while a process
    runs or between two.
    """

    def __init__(self, policy: str, seed: int) -> None:
        self.files = CrashFiles(page=512)
        self.random = Random(seed)
        self.machine, self.limits = Machine(), LIMITS
        self._policy = SyncPolicy.parse(policy)
        self._seed = seed

    def start(self) -> Process:
        """Open the log, recover, and go on."""
        log = Log.open(
            FOLDER,
            journal.IDENTITY,
            policy=self._policy,
            segment_bytes=1 << 14,
            files=self.files,
            clock=self.machine.steady,
        )
        fresh = pipeline()
        program = program_hash(fresh.engine.program)
        folder, clock = FOLDER / "checkpoints", self.machine.clock(self.limits)
        run = DurableRun(fresh, log, folder, clock=clock, keep_log=True, files=self.files)
        before = len(Trader.calls)
        entries = [journal.entry_of(record) for _, record in log.read()]
        completed = max((e.stamp for e in entries if isinstance(e, Completed)), default=-1)
        run.recover(newest_checkpoint(folder, program, self.files))
        return Process(run, fresh, log, completed, before)

    def move_clocks(self) -> None:
        """Some time passes, in which the wall clock may be set, forward or back."""
        self.machine.pass_time(self.random.randrange(1_000))
        if self.random.random() < 0.02:
            self.machine.pass_time(self.random.randrange(2 * MINUTE))
            self.machine.set_by(self.random.randrange(-60 * MINUTE, 60 * MINUTE))

    def feed(self, process: Process, received: Sequence[np.ndarray | TickItem]) -> None:
        """Receive, log and apply, in groups, with a checkpoint now and then."""
        process.run.start()
        waiting = list(received)
        while waiting:
            size = self.random.randrange(1, 5)
            group, waiting = waiting[:size], waiting[size:]
            self.move_clocks()
            stamped = [Stamped(process.run.clock.stamp(), 0, item, True) for item in group]
            process.run.accept(stamped)
            for one in stamped:
                process.run.apply(one)
            if self.random.random() < 0.3:
                process.run.checkpoint()


def entries_of(process: Process) -> list[journal.Entry]:
    """All that the log of a process has."""
    return [journal.entry_of(record) for _, record in process.log.read()]


def clean_replay(entries: Sequence[journal.Entry]) -> tuple[Pipeline, list[Call], list[int]]:
    """What a run that never crashed makes of the log: the pipeline, the calls, and each call's stamp."""
    fresh, before = pipeline(), len(Trader.calls)
    stamps: list[int] = []
    numbering = journal.Renumbering({one: index for index, one in enumerate(INSTRUMENTS)})
    for entry in entries:
        if isinstance(entry, Known):
            numbering.name(entry.instruments)
            fresh.instruments.adopt(entry.instruments)
            continue
        if not isinstance(entry, Stamped | Lifecycle):
            continue
        count = len(Trader.calls)
        fresh.host.begin_item()
        if isinstance(entry, Stamped):
            fresh.apply_stamped(numbering.of(entry))
        elif entry.starts:
            fresh.start()
        else:
            fresh.finish()
        stamps += [entry.stamp] * (len(Trader.calls) - count)
    calls = Trader.calls[before:]
    del Trader.calls[before:]
    return fresh, calls, stamps


def check_recovered(world: World, process: Process, surviving: list[journal.Entry]) -> None:
    """Compares a process that has recovered with a replay of what it found in the log."""
    clean, calls, stamps = clean_replay(surviving)
    assert rows(process.pipeline) == rows(clean)
    again = Trader.calls[process.calls_before :]
    expected = [call for call, stamp in zip(calls, stamps, strict=True) if stamp > process.completed_before]
    assert again == expected
    asked = [e.request for e in entries_of(process) if isinstance(e, Asked)]
    identities = [(r.strategy, r.kind, r.id) for r in asked]
    assert len(set(identities)) == len(identities)
    stamps = [e.stamp for e in surviving if isinstance(e, Stamped)]
    assert stamps == sorted(set(stamps)) and process.run.clock.last >= max(stamps, default=0)


def crash_and_recover(policy: str, seed: int, crashes: int, power: bool) -> int:
    """Runs with crashes at random operations of the disk; how many processes had something to recover."""
    random = Random(f"{policy} {seed}")
    world = World(policy, seed)
    received = items(seed, 1200)
    recovered = 0
    for _ in range(crashes):
        process = world.start()
        surviving = entries_of(process)
        check_recovered(world, process, surviving)
        recovered += len(surviving) > 1
        world.files.cut_power(random.randrange(5, 900))
        try:
            world.feed(process, received)
            received = received[len(received) // 2 :]
        except PowerLoss:
            pass
        if power:
            world.files.crash(world.random)
            world.machine.reboot()
        else:
            world.files.kill()
        world.machine.set_by(random.randrange(-60 * MINUTE, 60 * MINUTE))
    process = world.start()
    check_recovered(world, process, entries_of(process))
    world.feed(process, received)
    process.run.stop()
    clean, _, _ = clean_replay(entries_of(process))
    assert rows(process.pipeline) == rows(clean)
    assert any(isinstance(e, Completed) for e in entries_of(process))
    return recovered
