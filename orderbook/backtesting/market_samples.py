"""What strategies' reports need of the market, taken as a run goes on, in memory that no length of it fills.

The touch of every instrument, and signals, at times of a grid. An instrument's grid depends on its own
messages alone, so that samples are the same however a job is cut: it begins fine, and each time that there
are more samples than are kept, twice as long steps halve them.

The touch at HORIZONS after each sample and each fill, exactly: `Paths` has all changes of touches of the rows
at hand, from books of its own. With it go what signals are measured against: the imbalance of the touch,
and the flow of orders at it.

Signals are the columns of views that strategies go by.
"""

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sqlglot import exp

from orderbook.core.changes import Dictionary
from orderbook.core.errors import ConfigurationError
from orderbook.engine.runtime.engine import Engine
from orderbook.feeds.merge import VersionedEvents
from orderbook.jobs.datasets import VERSION_COLUMNS
from orderbook.jobs.folder import BASELINES, HORIZONS
from orderbook.market.book_state import TOUCH
from orderbook.market.books import Books
from orderbook.market.events import Action, BookState, Events
from orderbook.market.instruments import Instrument, Instruments
from orderbook.strategies.strategy import StrategyDefinition, watches_of
from orderbook.views.binding.parser import parse
from orderbook.views.program import CompiledProgram
from orderbook.views.types import Kind

# Samples that are kept: of all instruments at most, but of each at least so many, and beyond that one for so
# many of its events, since a look costs as much as some of them do. The first step of a grid, ns.
MOST, LEAST, EVENTS = 65_536, 2_048, 512
FIRST_STEP = 100_000

_FLOW_WINDOW = 10**9
_STATE, _VALID = int(Action.STATE), int(BookState.VALID)
_NO_BID, _NO_ASK, _START = -(2**63), 2**63 - 1, -(2**62)

Version = tuple[int, int, int]
# Called with "market" or "signals" and a row of that dataset.
Write = Callable[[str, Mapping[str, Any]], object]
# Bid and ask by time (ns); None: a side was empty, or the book not valid.
Marks = dict[int, tuple[Decimal | None, Decimal | None]]

# The touch from a time on (ns), in ticks and lots, whether it is that of a valid book with both sides, and
# sums until then: the flow of orders (e_n of Cont, Kukanov, Stoikov 2014), depth of both sides, and changes.
_POINT = np.dtype([
    (name, "i8")
    for name in ("time", "bid", "bid_volume", "ask", "ask_volume", "valid", "flow", "depth", "changes")
])  # fmt: skip


class Paths:
    """The touches of all instruments over the rows at hand, and as long before as flows are summed."""

    def __init__(self, instruments: Instruments) -> None:
        self._count = len(instruments)
        self._books = Books(instruments, Dictionary())
        start = np.zeros(1, _POINT)
        start["time"], start["bid"], start["ask"] = _START, _NO_BID, _NO_ASK
        self._points: list[NDArray[np.void]] = [start] * self._count
        self._valid = [0] * self._count

    def follow(self, part: VersionedEvents) -> None:
        """Takes in whole messages; what is further back than flows need is let go."""
        events, times = part.events, part.versions["stamp"]
        if not len(events):
            return
        touches = np.empty(len(events) + self._count, TOUCH)
        self._books.apply(events, touches=touches)
        touches = touches[: self._books.touches_written]
        states = np.flatnonzero(events["action"] == _STATE)
        # Of each instrument in order; of one event the touch, then the state.
        instruments = np.concatenate([touches["instrument"], events["instrument"].take(states)])
        order = np.lexsort([np.concatenate([touches["event"], states]), instruments])
        cuts = np.flatnonzero(np.diff(instruments.take(order))) + 1
        for own in np.split(order, cuts):
            index = int(instruments[own[0]]) if len(own) else -1
            if 0 <= index < self._count:
                told = own[own >= len(touches)] - len(touches)
                self._extend(index, touches.take(own[own < len(touches)]), states.take(told), events, times)

    def _extend(
        self,
        index: int,
        touches: NDArray[np.void],
        states: NDArray[np.int64],
        events: Events,
        times: NDArray[np.int64],
    ) -> None:
        old = self._points[index]
        places = np.concatenate([touches["event"], states])
        order = np.argsort(places, kind="stable")
        places = places.take(order)
        made = np.empty(len(places) + 1, _POINT)
        made[0] = old[-1]
        made["time"][1:] = times.take(places)
        # Of a state the touch before it, of a touch the state before it.
        for name in ("bid", "bid_volume", "ask", "ask_volume"):
            made[name][1:] = np.concatenate([old[name][-1:], touches[name]])[
                _latest(order < len(touches), order)
            ]
        told = np.concatenate([[self._valid[index]], events["volume"].take(states) == _VALID])
        valid = told[_latest(order >= len(touches), order - len(touches))]
        self._valid[index] = int(valid[-1])
        made["valid"][1:] = (valid != 0) & (made["bid"][1:] != _NO_BID) & (made["ask"][1:] != _NO_ASK)
        _sum(made)
        since = max(int(old["time"][-1]), _START + _FLOW_WINDOW) - _FLOW_WINDOW
        kept = max(0, int(np.searchsorted(old["time"], since)) - 1)
        self._points[index] = np.concatenate([old[kept:], made[1:]])

    def at(self, index: int, times: NDArray[np.int64]) -> NDArray[np.void]:
        """What was before each time (ns), _POINT[n]."""
        points = self._points[index]
        return points.take(np.maximum(np.searchsorted(points["time"], times) - 1, 0))

    def baselines(self, index: int, time: int) -> dict[str, float]:
        """Of a valid book before a time: `touch_imbalance`, (bid - ask) / (bid + ask) of the volumes there,
        and `order_flow`, the move in ticks that the last second's flow of orders explains, flow / (2 depth).

        Source: R. Cont, A. Kukanov, S. Stoikov, "The price impact of order book events", Journal of Financial
        Econometrics 12 (2014).
        """
        now, before = self.at(index, np.array([time, time - _FLOW_WINDOW]))
        if not now["valid"]:
            return {}
        flow, depth, changes = (int(now[name]) - int(before[name]) for name in ("flow", "depth", "changes"))
        bid, ask = int(now["bid_volume"]), int(now["ask_volume"])
        return {
            "touch_imbalance": (bid - ask) / (bid + ask),
            "order_flow": flow * changes / depth if depth else 0.0,
        }


def _latest(own: NDArray[np.bool_], places: NDArray[np.int64]) -> NDArray[np.int64]:
    """For each row the last place of those that are `own` until then, counted from 1; 0: none yet."""
    return np.maximum.accumulate(np.where(own, places + 1, 0))


def _sum(points: NDArray[np.void]) -> None:
    """Sums flow, depth and changes from the first point on, over changes from one valid touch to another."""
    columns: list[NDArray[np.int64]] = [points[n] for n in ("bid", "bid_volume", "ask", "ask_volume")]
    bids, bid_volumes, asks, ask_volumes = columns
    flow = np.where(bids[1:] >= bids[:-1], bid_volumes[1:], 0)
    flow -= np.where(bids[1:] <= bids[:-1], bid_volumes[:-1], 0)
    flow -= np.where(asks[1:] <= asks[:-1], ask_volumes[1:], 0)
    flow += np.where(asks[1:] >= asks[:-1], ask_volumes[:-1], 0)
    valid: NDArray[np.int64] = points["valid"]
    moved = np.zeros(len(flow), np.bool_)
    for column in columns:
        moved |= column[1:] != column[:-1]
    counted = (valid[:-1] != 0) & (valid[1:] != 0) & moved
    depth = bid_volumes[1:] + ask_volumes[1:]
    for name, step in (("flow", flow), ("depth", depth), ("changes", np.ones_like(flow))):
        own: NDArray[np.int64] = points[name]
        own[1:] = own[0] + np.cumsum(np.where(counted, step, 0))


@dataclass(frozen=True, slots=True)
class Signal:
    """What a strategy goes by: a column of a view."""

    view: str
    column: str


@dataclass(frozen=True, slots=True)
class Sample:
    """An instrument at a time: its touch (None: that side is empty, or the book not valid) and its
    signals. marks: the touch at HORIZONS after it; baselines: see Paths."""

    stamp: int
    bid: Decimal | None
    ask: Decimal | None
    values: tuple[float | None, ...]
    marks: Marks = field(default_factory=dict)
    baselines: dict[str, float] = field(default_factory=dict)


@dataclass(slots=True)
class Track:
    """The samples of one instrument: at most one for each step of its grid, the state before the step began.

    A step without a message has none, for nothing changed in it. Where samples were halved, one keeps the
    time that it was taken at. most: how many are kept. stamps: the times of those that are kept, also of
    rows at hand, whose samples are taken once it is known which these are.
    """

    most: int = field(default_factory=lambda: MOST)
    step: int = FIRST_STEP
    samples: list[Sample] = field(default_factory=list)
    last: int = 0
    events: int = 0
    stamps: list[int] = field(default_factory=list)
    # Times of the samples to come.
    looks: deque[int] = field(default_factory=deque)

    def look(self, stamp: int) -> int | None:
        """The time of the sample that is wanted before a message, if one is; where there are too many, they
        are halved."""
        start = stamp - stamp % self.step
        if self.stamps and self.stamps[-1] >= start:
            return None
        self.stamps.append(start)
        while len(self.stamps) > self.most:
            self.step *= 2
            kept: dict[int, int] = {}
            for one in self.stamps:
                kept.setdefault(one - one % self.step, one)
            self.stamps = list(kept.values())
        return start

    def taken(self, looks: Mapping[int, int]) -> list[int]:
        """The places of those of looks, by their times, that are kept; samples that are not are forgotten."""
        kept = set(self.stamps)
        self.samples = [one for one in self.samples if one.stamp in kept]
        own = [stamp for stamp in looks if stamp in kept]
        self.looks.extend(own)
        return [looks[stamp] for stamp in own]


class Sampler:
    """Samples the books and signals that strategies see, and marks the market after samples and fills.

    signals: None: only fills are marked.
    """

    def __init__(
        self, engine: Engine, books: Books | None, instruments: Instruments, signals: Sequence[Signal] | None
    ) -> None:
        self._engine, self._books, self._instruments = engine, books, instruments
        self._sampled = signals is not None
        self._signals = [
            (signal, keys) for signal in signals or () if (keys := _keys(engine, signal.view)) is not None
        ]
        self._paths = Paths(instruments)
        # Of each instrument and horizon what is to be marked: from which time, and where.
        self._due: dict[tuple[int, int, bool], deque[tuple[int, Marks]]] = {}
        self._new: list[tuple[int, Sample]] = []
        self._fills: dict[int, Marks] = {}
        # Instruments and times of the fills since the last `settle`.
        self._asked: set[tuple[int, int]] = set()
        self._places = {(one.venue, one.symbol): index for index, one in enumerate(instruments)}
        self._most = max(LEAST, MOST // max(1, len(instruments)))
        self._tracks = [Track(LEAST) for _ in instruments]

    def looks(self, instruments: NDArray[np.int32], stamps: NDArray[np.int64]) -> Iterator[tuple[int, int]]:
        """(place, instrument) of events, [n], before which samples are taken that are kept, in any order: of
        those that begin a step of their grid."""
        if not self._sampled:
            return
        for index in np.unique(instruments).tolist():
            if not 0 <= index < len(self._tracks):
                continue
            places = np.flatnonzero(instruments == index)
            track = self._tracks[index]
            track.last = max(track.last, int(stamps[places[-1]]))
            own = stamps[places]
            steps = own // track.step
            begins = np.flatnonzero(np.concatenate([[True], steps[1:] != steps[:-1]]))
            looks: dict[int, int] = {}
            for begin, stamp in zip(begins.tolist(), own[begins].tolist(), strict=True):
                track.most = max(LEAST, min(self._most, (track.events + begin) // EVENTS))
                start = track.look(stamp)
                if start is not None:
                    looks[start] = int(places[begin])
            track.events += len(places)
            yield from ((place, index) for place in track.taken(looks))

    def take(self, instrument: int) -> None:
        """Looks at an instrument before a message that `looks` has told."""
        track = self._tracks[instrument]
        sample = self._sample(instrument, track.looks.popleft())
        self._new.append((instrument, sample))
        track.samples.append(sample)

    def follow(self, part: VersionedEvents) -> None:
        """Takes in rows that are about to be applied."""
        self._paths.follow(part)
        numbers: NDArray[np.int32] = part.events["instrument"]
        found, places = np.unique(numbers[::-1], return_index=True)
        times: NDArray[np.int64] = part.versions["stamp"]
        stamps = times[::-1].take(places)
        for index, stamp in zip(found.tolist(), stamps.tolist(), strict=True):
            if 0 <= index < len(self._tracks):
                self._tracks[index].last = max(self._tracks[index].last, stamp)

    def filled(self, venue: str, symbol: str, time: int) -> None:
        """An order was filled by a message of a time (ns)."""
        instrument = self._places[venue, symbol]
        marks = self._fills.setdefault(instrument, {})
        for horizon in (1, *HORIZONS):
            self._ask(instrument, horizon, True, time, marks)

    def filled_at(self, instruments: NDArray[np.int64], times: NDArray[np.int64]) -> None:
        """Orders were filled by messages of these times (ns), each of an instrument: both [n]."""
        for index, time in dict.fromkeys(zip(instruments.tolist(), times.tolist(), strict=True)):
            if (index, time) not in self._asked:
                one = self._instruments[index]
                self._asked.add((index, time))
                self.filled(one.venue, one.symbol, time)

    def settle(self, write: Write) -> None:
        """Marks what is known now that rows were applied, all there are of their stamps."""
        for instrument, sample in self._new:
            sample.baselines.update(self._paths.baselines(instrument, sample.stamp))
            for horizon in HORIZONS:
                self._ask(instrument, horizon, False, sample.stamp, sample.marks)
        self._new.clear()
        self._asked.clear()
        for (instrument, horizon, _), waiting in self._due.items():
            # An instrument's own messages alone decide what is known, so that cuts of a job do not.
            end = self._tracks[instrument].last + 1
            ready: list[tuple[int, Marks]] = []
            while waiting and waiting[0][0] + horizon <= end:
                ready.append(waiting.popleft())
            if ready:
                self._mark(instrument, horizon, ready)
        for instrument, marks in self._fills.items():
            for time, touch in sorted(marks.items()):
                self._write_touch(write, self._instruments[instrument], (time, 0, 0), *touch)
            marks.clear()

    def _ask(self, instrument: int, horizon: int, fill: bool, time: int, marks: Marks) -> None:
        self._due.setdefault((instrument, horizon, fill), deque()).append((time, marks))

    def _mark(self, instrument: int, horizon: int, ready: Sequence[tuple[int, Marks]]) -> None:
        one = self._instruments[instrument]
        times = np.array([time + horizon for time, _ in ready])
        for (time, marks), point in zip(ready, self._paths.at(instrument, times), strict=True):
            bid = ask = None
            if point["valid"]:
                bid, ask = one.price(int(point["bid"])), one.price(int(point["ask"]))
            marks[time + horizon] = bid, ask

    def write(self, write: Write) -> None:
        """Writes all samples, and the state at the end."""
        for index, track in enumerate(self._tracks):
            if not track.samples:
                continue
            one = self._instruments[index]
            taken = {sample.stamp for sample in track.samples}
            for place, sample in enumerate((*track.samples, self._sample(index, track.last))):
                version = sample.stamp, 0, int(place == len(track.samples))
                self._write(write, one, version, sample)
                for time, touch in sample.marks.items():
                    if time not in taken:
                        taken.add(time)
                        self._write_touch(write, one, (time, 0, 0), *touch)

    def _write(self, write: Write, one: Instrument, version: Version, sample: Sample) -> None:
        self._write_touch(write, one, version, sample.bid, sample.ask)
        common = _common(one, version)
        for name, baseline in sample.baselines.items():
            write("signals", {**common, "view": BASELINES, "column": name, "value": baseline})
        for (signal, _), value in zip(self._signals, sample.values, strict=True):
            if value is not None:
                write("signals", {**common, "view": signal.view, "column": signal.column, "value": value})

    def _write_touch(
        self, write: Write, one: Instrument, version: Version, bid: Decimal | None, ask: Decimal | None
    ) -> None:
        write("market", {**_common(one, version), "bid": bid, "ask": ask})

    def _sample(self, instrument: int, stamp: int) -> Sample:
        one, bid, ask = self._instruments[instrument], None, None
        if self._books is not None and self._books.state(instrument) is BookState.VALID:
            bid, ask = self._books.best(instrument)
        return Sample(
            stamp,
            None if bid is None else one.price(bid),
            None if ask is None else one.price(ask),
            tuple(self._value(signal, keys, one) for signal, keys in self._signals),
        )

    def _value(self, signal: Signal, keys: Sequence[str], one: Instrument) -> float | None:
        row = self._engine[signal.view].get(tuple(getattr(one, name) for name in keys))
        value = None if row is None else row[signal.column]
        return None if value is None else float(value)


def _common(one: Instrument, version: Version) -> dict[str, Any]:
    return {**dict(zip(VERSION_COLUMNS, version, strict=True)), "venue": one.venue, "symbol": one.symbol}


def _keys(engine: Engine, view: str) -> Sequence[str] | None:
    """The names of a view's keys; None where they are not those of an instrument."""
    names = next(([key.name for key in v.keys] for v in engine.program.views if v.name == view), [])
    told = set(names) <= {"venue", "symbol"} and len(set(names)) == len(names) > 0
    return names if told else None


_NUMBERS = (Kind.INTEGER, Kind.DECIMAL, Kind.DOUBLE)


def signals_of(definitions: Iterable[StrategyDefinition], program: CompiledProgram) -> tuple[Signal, ...]:
    """The signals of strategies, each once. Raises ConfigurationError for a `signal` that is no column."""
    columns = {
        view.name: [c.name for c in program.program.result(view.name).columns if c.type.kind in _NUMBERS]
        for view in program.views
    }
    found = (signal_of(definition, columns) for definition in definitions)
    return tuple(dict.fromkeys(signal for signal in found if signal is not None))


def signal_of(definition: StrategyDefinition, columns: Mapping[str, list[str]]) -> Signal | None:
    """The class's `signal`, else the first column of numbers that a condition of it names; None without one.

    A method of that name is not meant. columns: those of numbers, by view.
    """
    stated = definition.kind.signal
    if stated is not None and not callable(stated):
        view, _, column = stated.partition(".") if isinstance(stated, str) else ("", "", "")
        if column not in columns.get(view, ()):
            raise ConfigurationError(
                f"{definition.name}: signal = {stated!r}: no view has that column of numbers; "
                "give VIEW.COLUMN"
            )
        return Signal(view, column)
    for watch in watches_of(definition.kind):
        if watch.when is not None and watch.view in columns:
            (statement,) = parse(None, f"SELECT 1 WHERE {watch.when}")
            for named in statement.tree.find_all(exp.Column):
                if named.name.lower() in columns[watch.view]:
                    return Signal(watch.view, named.name.lower())
    return None
