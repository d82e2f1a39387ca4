"""One strategy file through every command: its flow, a strategy that tries everything, and what became of
its orders."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal
from heapq import merge
from pathlib import Path
from typing import Any, ClassVar
from zlib import crc32

import numpy as np
import polars as pl
from command_line_support import Program

import orderbook
from orderbook.feeds.merge import is_event_source
from orderbook.feeds.recording.parquet_record import RecordWriter
from orderbook.feeds.source_kinds import open_source
from orderbook.jobs.job import open_job
from orderbook.market.events import EVENT, Action, BookState, Flag, Side
from orderbook.market.instruments import Instrument, Instruments
from orderbook.market.synthetic_flow import generate, synthetic_instruments
from orderbook.strategies.execution.account import FILL_COLUMNS, ORDER_COLUMNS, Fill, Order
from orderbook.strategies.strategy import BookStateChange, PartitionBy, Strategy, Trade, on_timer, on_view

OWN = """
CREATE VIEW own_orders AS SELECT * FROM orders;
CREATE VIEW own_fills AS SELECT * FROM fills;
"""
# Strategies that run in the tasks of their symbols, as one task, over several venues of a symbol, and in the
# tasks of their venues.
APART = ("strategies.order_flow:OrderFlow", "strategies.micro_price_maker:MicroPriceMaker",
         "everywhere_support:Erratic")  # fmt: skip
TOGETHER = ("strategies.sobi:Sobi", "everywhere_support:ErraticTogether")
VENUES = ("strategies.arbitrage_watch:ArbitrageWatch", "everywhere_support:Erratic")
BY_VENUE = ("everywhere_support:ErraticByVenue",)
ALL = (*APART, *TOGETHER, VENUES[0], *BY_VENUE)
PARAMETERS = """
[strategies.sobi]
threshold = {sobi}
volume = {volume}
[strategies.order_flow]
threshold = 0.5
volume = {volume}
[strategies.micro_price_maker]
half_spread = {spread}
volume = {volume}
most = {most}
[strategies.arbitrage_watch]
edge = {edge}
volume = {volume}
most = {most}
[strategies.erratic]
volume = {volume}
[strategies.erratic_together]
volume = {volume}
[strategies.erratic_by_venue]
volume = {volume}
"""
# How orders are simulated: as they are, with numbers for the sizes of a market.
TRADING = {
    "at once": "",
    "constant": """
[simulation]
order_latency = "2ms"
response_latency = "1ms"
feed_latency = "500us"
queue = "proportional"
[simulation.fees]
maker = -0.5
taker = 2.5
[risk]
max_position = {limit}
""",
    "sampled": """
[simulation]
order_latency = {{ median = "3ms", sigma = 0.8 }}
response_latency = ["0ms", "1ms", "20ms"]
feed_latency = ["0ms", "700us"]
seed = {seed}
[simulation.fees]
maker = {fee}
taker = {fee}
unit = "lot"
[risk]
max_position = {limit}
max_orders_per_second = 40
max_drawdown = {drawdown}
""",
}


class Erratic(Strategy):
    """Does everything that a strategy can do, as all that it was told before has it: whatever is told
    otherwise in one run gives other orders there."""

    partition_by: ClassVar[PartitionBy | None] = "symbol"
    defaults: ClassVar = {"volume": 1, "lean": Decimal("0.6")}
    reads = ("micro_price",)

    def __init__(self) -> None:
        self.state = crc32(str(self.partition).encode())
        self.open: dict[int, Order] = {}
        self.last = 0
        self.news = 0

    def told(self, *what: object) -> int:
        """Takes in what was told; a number that follows from everything so far."""
        self.state = crc32(repr((self.now, what)).encode(), self.state)
        return self.state

    def on_start(self) -> None:
        """Orders before there is any book."""
        if self.partition is not None:
            self.buy(self.partition, self.parameters["volume"])

    @on_view("touch", fire="change", every="40ms")
    def moved(self, event: orderbook.ViewEvent) -> None:
        """Acts upon the touch, now and then."""
        _, symbol = map(str, event.key)
        choice = self.told(event.key, _values(event.old), _values(event.new), self.position(symbol))
        if event.new is not None:
            self.act(choice % 13, choice // 13 % 5, event.new)

    @on_view("touch", when="imbalance > :lean", on="event")
    def pressed(self, event: orderbook.ViewEvent) -> None:
        """Acts when the bids come to press."""
        choice = self.told(event.key, _values(event.new))
        if choice % 7 == 0:
            self.act(choice // 7 % 13, choice // 91 % 5, event.new)

    def act(self, kind: int, size: int, row: Any) -> None:
        """One of the things that can be asked for."""
        one = self.instrument(row.symbol, row.venue)
        volume, at = self.parameters["volume"] * (1 + size), {"venue": row.venue}
        side = self.buy if self.state & 4096 else self.sell
        near, far = (row.bid, row.ask) if side == self.buy else (row.ask, row.bid)
        standing = sorted(self.open)
        match kind:
            case 0:
                self.last = side(row.symbol, volume, **at)
            case 1 | 2:
                self.last = side(row.symbol, volume, near, **at)
            case 3:
                self.last = side(row.symbol, volume, near, post_only=True, **at)
            case 4:
                self.last = side(row.symbol, volume, far, post_only=True, **at)
            case 5:
                self.last = side(row.symbol, 5 * volume, far, time_in_force="ioc", **at)
            case 6:
                self.last = side(row.symbol, 7 * volume, far, **at)
            case 7 if standing:
                self.cancel(standing[size % len(standing)])
            case 8 if standing:
                self.modify(standing[size % len(standing)], price=near)
            case 9 if standing:
                self.modify(standing[size % len(standing)], volume=volume)
            case 10 if standing:
                self.modify(standing[-1], volume=2 * volume, price=far)
            case 11:
                side(row.symbol, volume, near + one.tick / 2, **at)
                self.cancel(self.last + 1000)
            case _:
                self.modify(self.last, volume=self.parameters["volume"])

    @on_timer("70ms")
    def often(self) -> None:
        """Looks at everything it may see, and cancels the oldest order."""
        views = [self.view(name) for name in ("touch", *self.reads)]
        rows = [sorted((key, _values(row)) for key, row in view.items()) for view in views]
        if self.told(rows) % 3 == 0 and self.open:
            self.cancel(min(self.open))

    @on_timer("1s")
    def seldom(self) -> None:
        """Asks for what nobody has."""
        if self.told("second") % 5 == 0:
            self.buy(f"{self.partition}-not", self.parameters["volume"])

    def on_trade(self, trade: Trade) -> None:
        """Follows a trade once in a while."""
        choice = self.told(trade)
        self.news += 1
        if choice % 11 == 0 and trade.side:
            place = self.buy if trade.side == "buy" else self.sell
            place(trade.symbol, self.parameters["volume"], trade.price, trade.venue)

    def on_book_state(self, state: BookStateChange) -> None:
        """Cancels everything."""
        self.told(state)
        for one in sorted(self.open):
            self.cancel(one)

    def on_order_update(self, order: Order) -> None:
        """Knows what is open."""
        self.told(order)
        if order.status in ("sent", "resting"):
            self.open[order.id] = order
        else:
            self.open.pop(order.id, None)

    def on_fill(self, fill: Fill) -> None:
        """Answers some fills at once."""
        if self.told(fill, self.position(fill.symbol)) % 4 == 0:
            place = self.sell if fill.side == "buy" else self.buy
            place(fill.symbol, fill.volume, fill.price, fill.venue, post_only=True)

    def on_stop(self) -> None:
        """Says in an order far from the market what it was told until the end."""
        for one in sorted(self.open):
            self.cancel(one)
        for venue, symbol in sorted(tuple(map(str, key)) for key in self.view("touch")):
            volume = (1 + self.told(self.news) % 100_000) * self.parameters["volume"]
            self.buy(symbol, volume, self.instrument(symbol, venue).tick, venue)


class ErraticTogether(Erratic):
    """The same as one instance for all symbols."""

    partition_by = None


class ErraticByVenue(Erratic):
    """The same as an instance for each venue."""

    partition_by = "venue"


def _values(row: Any) -> Any:
    return None if row is None else tuple(row.values())


def write_flow(
    path: Path,
    events: int,
    symbols: int,
    seed: int,
    *,
    venues: int = 1,
    apart: bool = False,
    resting: int = 60,
) -> list[Path]:
    """A `flow` as one record file, or one for each symbol of each venue."""
    instruments, messages = flow(events, symbols, seed, venues, resting)
    whole = np.concatenate(messages)
    if not apart:
        _write(path, whole, instruments)
        return [path]
    path.mkdir()
    for index, one in enumerate(instruments):
        own = whole[whole["instrument"] == index].copy()
        own["instrument"] = 0
        _write(path / f"{one.symbol}-{one.venue}.parquet", own, [one])
    return sorted(path.iterdir())


def flow(
    events: int, symbols: int, seed: int, venues: int, resting: int
) -> tuple[list[Instrument], list[np.ndarray]]:
    """Instruments, and generated messages of theirs, the receipt of which wavers, of books that are lost now
    and then. events: of a venue."""
    known = synthetic_instruments(symbols)
    instruments = [replace(one, venue=f"{one.venue}{venue}") for venue in range(venues) for one in known]
    random = np.random.default_rng(seed)
    flows = [_messages(events, symbols, resting, seed + 1_000_000 * venue, venue) for venue in range(venues)]
    parts = merge(*flows, key=lambda part: part["exchange_time"][0])
    made: list[np.ndarray] = []
    for number, part in enumerate(parts):
        delay = random.integers(0, 3_000_000)
        if random.random() < 0.9:
            part["receive_time"] = part["exchange_time"] + delay
        made.append(part)
        if number > 20 and random.random() < 0.01:
            time = int(part["exchange_time"][-1])
            state = random.choice([BookState.STALE, BookState.SYNCING])
            made += [state_of(part, state, time), state_of(part, BookState.VALID, time + 4_000_000)]
    return instruments, made


def _messages(events: int, symbols: int, resting: int, seed: int, venue: int) -> list[np.ndarray]:
    """A venue's generated messages."""
    flow = np.concatenate(list(generate(events, symbols, 30, seed, resting=resting, rate=400, imbalance=0.7)))
    flow["instrument"] += venue * symbols
    return np.split(flow, np.flatnonzero(flow["flags"] & int(Flag.LAST))[:-1] + 1)


def write_cut(source: Path, path: Path, events: int, symbol: str | None = None) -> Path:
    """The first messages of a recorded source, about so many events, as a record; perhaps with another name
    of its one symbol."""
    opened = open_source(str(source))
    assert is_event_source(opened)
    written = 0
    instruments = opened.instruments
    if symbol is not None:
        instruments = Instruments([replace(one, symbol=symbol) for one in instruments])
    with RecordWriter(path, instruments) as writer:
        for batch in opened:
            writer.write(batch)
            written += len(batch)
            if written >= events:
                break
    return path


def state_of(part: np.ndarray, state: BookState, time: int) -> np.ndarray:
    """A message by which the book of another one has a state from a time at the exchange on, ns."""
    event = np.zeros(1, EVENT)
    event["instrument"], event["action"], event["side"] = part["instrument"][0], Action.STATE, Side.NONE
    event["volume"], event["flags"], event["exchange_time"] = state, Flag.LAST, time
    return event


def _write(path: Path, events: np.ndarray, instruments: Iterable[Instrument]) -> None:
    with RecordWriter(path, Instruments(instruments)) as writer:
        writer.write(events)


@dataclass(frozen=True)
class Outcome:
    """What became of strategies: changes of orders and fills, each with every column, of one strategy and
    symbol, or venue, in the order in which they were; and the lines that say the profit."""

    orders: dict[tuple[str, str], list[tuple[Any, ...]]] = field(default_factory=dict)
    fills: dict[tuple[str, str], list[tuple[Any, ...]]] = field(default_factory=dict)
    lines: list[str] = field(default_factory=list)

    def counts(self) -> tuple[int, int]:
        """How many changes of orders and fills."""
        return sum(map(len, self.orders.values())), sum(map(len, self.fills.values()))


@dataclass(frozen=True)
class Setting:
    """What all commands are given: the program, a folder for what they write, the configuration, and names
    of strategies."""

    program: Program
    folder: Path
    config: Path
    strategies: tuple[str, ...]

    def live(self, *feeds: object, name: str = "run") -> Outcome:
        """What `run` makes of feeds."""
        return self._viewed("run", name, "--no-monitor", *(part for one in feeds for part in ("--feed", one)))

    def replayed(self, *sources: object, name: str = "replay") -> Outcome:
        """What `replay` makes of sources."""
        return self._viewed("replay", name, *sources)

    def tested(self, sources: Sequence[Path | str], name: str, *options: object) -> Outcome:
        """What `backtest` makes of sources."""
        folder = self.folder / name
        out = self._call("backtest", *sources, "--out", folder, "--granularity", "end", *options)
        job = open_job(folder)
        return Outcome(
            _grouped(job.order_changes(), ORDER_COLUMNS), _grouped(job.fills(), FILL_COLUMNS), _lines(out)
        )

    def _viewed(self, command: str, name: str, *arguments: object) -> Outcome:
        views, written = self.folder / "own.sql", self.folder / f"{name}.parquet"
        views.write_text(OWN)
        out = self._call(command, *arguments, "--view", views, "--out", written)
        events = pl.read_parquet(written).filter(~pl.col("gone"))
        return Outcome(
            _grouped(_named(events, "own_orders", ORDER_COLUMNS), ORDER_COLUMNS),
            _grouped(_named(events, "own_fills", FILL_COLUMNS), FILL_COLUMNS),
            _lines(out),
        )

    def _call(self, command: str, *arguments: object) -> str:
        named = [part for name in self.strategies for part in ("--strategy", name)]
        result = self.program(command, *arguments, "--config", self.config, *named)
        assert result.status == 0, result.err
        return result.out


def _named(events: pl.DataFrame, view: str, columns: Sequence[str]) -> pl.DataFrame:
    """The rows of a view among written events."""
    names = {name: f"{view}.{name}" if f"{view}.{name}" in events.columns else name for name in columns}
    own = events.filter(pl.col("view") == view)
    return own.select(pl.col(there).alias(name) for name, there in names.items())


def _grouped(frame: pl.DataFrame, columns: Sequence[str]) -> dict[tuple[str, str], list[tuple[Any, ...]]]:
    """Rows by strategy and symbol, or venue; decimals of any scale are equal where their values are."""
    strategy = columns.index("strategy")
    found: dict[tuple[str, str], list[tuple[Any, ...]]] = {}
    last: dict[tuple[Any, ...], tuple[Any, ...]] = {}
    for row in frame.select(pl.col("ts").cast(pl.Int64), pl.col(columns).exclude("ts")).rows():
        values = dict(zip(("ts", *(c for c in columns if c != "ts")), row, strict=True))
        own = tuple(values[name] for name in columns)
        key = own[strategy], values["venue" if own[strategy] == ErraticByVenue.__name__ else "symbol"]
        # A modification that changes nothing leaves an order's row as it was, and is no event of a view.
        if "id" in values and last.get((*key, values["id"])) == own:
            continue
        last[*key, values.get("id")] = own
        found.setdefault(key, []).append(own)
    return found


def _lines(out: str) -> list[str]:
    """What a summary says of strategies, in the order of their names."""
    pattern = re.compile(r"  strategy |    \S+:\S+ position |    disabled")
    return sorted(line for line in out.splitlines() if pattern.match(line))
