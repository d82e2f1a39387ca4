"""Sessions of every kind of strategy that log what they do, and what is made of their logs again.

A session is some processes one after the other. The last ends in order, and every other one before it;
the rest end without a word, as one that is killed.
"""

import hashlib
import pickle
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from random import Random
from typing import Any
from unittest.mock import patch

import numpy as np
from everywhere_support import Erratic, ErraticByVenue, ErraticTogether, flow, state_of

from orderbook.backtesting.sources import logged_slices, whole_log
from orderbook.backtesting.strategy_run import StrategyRun
from orderbook.configuration.configuration import Configuration, load_configuration
from orderbook.core.errors import SourceError
from orderbook.durability import past_states
from orderbook.durability.durable_run import DurableRun, open_past
from orderbook.durability.past_states import LAST, open_past_run
from orderbook.feeds.merge import TickItem
from orderbook.jobs.writers import OrderWriters
from orderbook.market.events import BookState, Flag
from orderbook.market.instruments import Instrument, Instruments
from orderbook.run.assembly import Assembly, assemble, engine_of, piped, warm_up
from orderbook.run.event_queue import Stamped
from orderbook.run.pipeline import Pipeline
from orderbook.strategies.execution.account import OrderUpdate, StrategySummary, row_of
from orderbook.strategies.execution.venue_model import strategy_table
from orderbook.strategies.gated_engine import GatedEngine
from orderbook.strategies.runner import Runner

# How orders are simulated, and what may be risked.
SIMULATIONS = {
    "at once": "",
    "constant": """
order_latency = "2ms"
response_latency = "1ms"
feed_latency = "500us"
queue = "proportional"
fees = { maker = -0.5, taker = 2.5 }
[risk]
max_position = 60
""",
    "margin": """
order_latency = "2ms"
response_latency = "1ms"
fees = { maker = -0.5, taker = 2.5 }
margin = { balance = 400, leverage = 10, maintenance = 0.9 }
""",
    "drawn": """
order_latency = { median = "3ms", sigma = 0.8 }
response_latency = ["0ms", "1ms", "20ms"]
feed_latency = ["0ms", "700us"]
fees = { maker = 0.25, taker = 0.25, unit = "lot" }
[risk]
max_position = 60
max_orders_per_second = 40
max_drawdown = 50
""",
}
# Rows are held back by each of the options, and what is filled comes back.
SQL = """
CREATE STRATEGY restless WITH (min_life = '5ms', min_move = 2, max_requests = 200, refill) AS
SELECT t.venue, t.symbol, 'buy' AS side, 1 AS tag, t.bid AS price,
       CASE WHEN COALESCE(p.volume, 0) < 0 THEN 3 ELSE 1 END AS volume, 'post only' AS kind
FROM touch t LEFT JOIN positions p ON p.venue = t.venue AND p.symbol = t.symbol
WHERE COALESCE(p.volume, 0) < 6 AND t.imbalance > -0.7
UNION ALL
SELECT t.venue, t.symbol, 'sell' AS side, 1 AS tag, t.ask AS price, 2 AS volume, 'limit' AS kind
FROM touch t LEFT JOIN positions p ON p.venue = t.venue AND p.symbol = t.symbol
WHERE COALESCE(p.volume, 0) > -6 AND t.imbalance < 0.7;
"""
STRATEGIES = {
    "by symbol, SQL": ("session_again:Kept", "restless"),
    "of all, compiled": ("session_again:KeptTogether", "strategies.micro_price_maker:MicroPriceMaker"),
    "by venue, SQL, compiled": (
        "session_again:KeptByVenue", "strategies.micro_price_maker:MicroPriceMaker", "restless",
    ),
    "in the loop": ("compiled_rules:Quoter",),
}  # fmt: skip
_TABLES = {
    "Kept": "volume = 2", "KeptTogether": "volume = 2", "KeptByVenue": "volume = 2",
    "Quoter": "size = 2", "SobiBand": "half_life = 0.3\nthreshold = 0.5",
    "MicroPriceMaker": "half_spread = 0.0001\nvolume = 2\nmost = 6",
}  # fmt: skip


class _Kept:
    """What `Erratic` knows, kept over a crash."""

    _NAMES = ("state", "open", "last", "news")

    def on_save(self) -> bytes:
        """Everything."""
        return pickle.dumps({name: getattr(self, name) for name in self._NAMES})

    def on_load(self, state: bytes) -> None:
        """Everything."""
        self.__dict__.update(pickle.loads(state))


class Kept(_Kept, Erratic):
    """By symbol."""


class KeptTogether(_Kept, ErraticTogether):
    """One for all."""


class KeptByVenue(_Kept, ErraticByVenue):
    """By venue."""


@dataclass
class Told:
    """What became of orders: changes and fills, each with the instance that it is of, in order, and what
    each strategy came to."""

    orders: list[dict[str, Any]] = field(default_factory=list)
    fills: list[dict[str, Any]] = field(default_factory=list)
    summaries: tuple[StrategySummary, ...] = ()

    def note(self, runner: Runner, update: OrderUpdate) -> None:
        """An order has changed."""
        own = {"instance": runner.identity}
        self.orders.append(row_of(update.new) | own)
        self.fills += [row_of(one) | own for one in update.fills]

    def money(self) -> list[tuple[Any, ...]]:
        """Of each strategy, without its calls, which a process that was killed has made too."""
        return [(one.name, one.orders, one.refused, one.fills, one.positions) for one in self.summaries]


class Sessions:
    """Sessions of some strategies on a backend, whose program is compiled once."""

    def __init__(
        self, folder: Path, strategies: Sequence[str], simulation: str, backend: str = "numba", sql: str = SQL
    ) -> None:
        # Of one name for one text, whose program is compiled once.
        own = folder.parent / f"{hashlib.sha256(sql.encode()).hexdigest()[:16]}.sql"
        own.write_text(sql)
        tables = [(strategy_table(name), _TABLES.get(name.partition(":")[2])) for name in strategies]
        config = folder / "run.toml"
        config.write_text(
            f'[run]\nviews = []\nstrategies = {list(strategies)}\nbackend = "{backend}"\n'
            f'[views]\npaths = ["{own}"]\n'
            f'[log]\nfolder = "{folder / "log"}"\nkeep_log = true\nsync = "never"\n'
            f"[simulation]\n{simulation}\n"
            + "".join(f"[strategies.{name}]\n{text}\n" for name, text in tables if text)
        )
        self.configuration = load_configuration(config, {})
        self._log, self._assembly = folder / "log", assemble(self.configuration)

    def run(
        self, parts: Sequence[Sequence[Any]], instruments: Iterable[Instrument], every: int = LAST
    ) -> Told:
        """A session whose processes receive a part each, and write a checkpoint after so many items."""
        told = Told()
        for number, items in enumerate(parts):
            with self._process(instruments) as (pipeline, run):
                pipeline.host.observe_orders(told.note)
                run.start()
                for place, item in enumerate(items, 1):
                    # Of feeds that happen now, and of files.
                    stamped = Stamped(run.clock.stamp(), 0, item, live=place % 4 > 0)
                    run.accept([stamped])
                    run.apply(stamped)
                    if place % every == 0 and _whole(item):
                        run.checkpoint()
                if number % 2 or number == len(parts) - 1:
                    run.stop()
                    told.summaries = pipeline.host.summary()
        return told

    def killed(self, items: Sequence[Any], instruments: Iterable[Instrument], lost: int) -> None:
        """A process that receives these items, and is killed before the last bytes of its log are written."""
        with self._process(instruments) as (_, run):
            run.start()
            for place, item in enumerate(items, 1):
                stamped = Stamped(run.clock.stamp(), 0, item, live=place % 4 > 0)
                run.accept([stamped])
                run.apply(stamped)
        last = max(self._log.rglob("*.log"))
        with last.open("r+b") as file:
            file.truncate(max(0, last.stat().st_size - lost))
        # What the disk was to have.
        for promise in self._log.rglob("durable*"):
            promise.unlink()

    def again(self) -> Told:
        """The log applied again, with nobody called."""
        told = Told()
        with patch.object(past_states, "started", self._started):
            past = open_past_run(self.configuration, (0, 0, 0))
        past.pipeline.host.observe_orders(told.note)
        past.go_to((LAST, LAST, LAST))
        told.summaries = past.pipeline.host.summary()
        return told

    def backtested(self, folder: Path) -> Told:
        """The backtest of the log."""
        told, errors, log = Told(), list[SourceError](), whole_log(self._log)
        one, configuration = self._assembly, self.configuration
        run = StrategyRun(
            one.program, Instruments(log.instruments), one.strategies, OrderWriters(folder),
            configuration.run.backend, configuration.clock.nanoseconds, configuration.live_trading, None,
            logged=True,
        )  # fmt: skip
        run.pipeline.host.observe_orders(told.note)
        for part in logged_slices(log, errors):
            run.apply(part)
        told.summaries = run.finish()
        assert not errors
        return told

    @contextmanager
    def _process(self, instruments: Iterable[Instrument]) -> Iterator[tuple[Pipeline, DurableRun]]:
        def made(known: Instruments) -> Pipeline:
            assembly, engine = self._started(self.configuration)
            pipeline = piped(self.configuration, assembly, engine, known, gateways=True)
            warm_up(pipeline)
            return pipeline

        with open_past(self.configuration, self._assembly.program, Instruments(instruments)) as past:
            pipeline, run = past.recovered(made)
            assert run is not None
            yield pipeline, run

    def _started(self, configuration: Configuration, measured: bool = False) -> tuple[Assembly, GatedEngine]:
        return self._assembly, engine_of(configuration, self._assembly, measured)


def received(seed: int, events: int, processes: int) -> tuple[list[Instrument], list[list[Any]]]:
    """Instruments of two venues, and items of their flow for processes one after the other: of one message,
    or of up to hundreds, and some end within one."""
    random = Random(seed)
    instruments, messages = flow(events // 2, 2, seed, venues=2, resting=20)
    most, items, start = random.choice([2, 40, 1_000]), list[Any](), 0
    while start < len(messages):
        end = start + 1 + int(random.paretovariate(0.9)) % most
        item = np.concatenate(messages[start:end])
        cut = random.randrange(1, len(item)) if len(item) > 1 and random.random() < 0.1 else 0
        items += [part for part in np.split(item, [cut]) if len(part)]
        if random.random() < 0.1:
            items.append(TickItem(_time(item)))
        start = end
    ends = [place for place, item in enumerate(items, 1) if _whole(item)]
    cuts = [0, *sorted(random.sample(ends[:-1], processes - 1)), len(items)]
    parts = [items[start:end] for start, end in pairwise(cuts)]
    for before, part in pairwise(parts):
        # Books are lost with a process.
        part[:0] = [_states(before, instruments, one) for one in (BookState.STALE, BookState.VALID)]
    return instruments, parts


def _states(items: Sequence[Any], instruments: Sequence[Instrument], state: BookState) -> np.ndarray:
    """All books have a state, after these items."""
    last = next(item for item in reversed(items) if isinstance(item, np.ndarray))
    time = max(_time(item) for item in items)
    found = np.concatenate([state_of(last, state, time) for _ in instruments])
    found["instrument"] = range(len(instruments))
    return found


def _time(item: Any) -> int:
    """The time of the last event, ns."""
    if isinstance(item, TickItem):
        return item.time
    return int(item["receive_time"][-1]) or int(item["exchange_time"][-1])


def _whole(item: Any) -> bool:
    """Whether no message goes on after an item."""
    return isinstance(item, TickItem) or bool(item["flags"][-1] & int(Flag.LAST))
