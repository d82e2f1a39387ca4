"""The market as a strategy's report needs it: the touch of every instrument, and signals, at times of a grid.

An instrument's grid depends on its own messages alone, so that samples are the same however a job is cut: it
begins fine, and each time that there are more samples than are kept, twice as long steps halve them. So it is
as fine as the messages, and the length of what is read, let it be in bounded memory.
"""

from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

import numpy as np

from engine.engine import Engine
from orderbook.books import Books
from orderbook.events import BookState
from orderbook.instruments import Instrument, Instruments
from orderbook.jobs.layout import VERSION_COLUMNS

# Samples that are kept: of all instruments at most, but of each at least so many, and beyond that one for so
# many of its events, since a look costs as much as some of them do. The first step of a grid, ns.
MOST, LEAST, EVENTS = 65_536, 2_048, 512
FIRST_STEP = 100_000

Version = tuple[int, int, int]
# Called with "market" or "signals" and a row of that dataset.
Write = Callable[[str, Mapping[str, Any]], object]


@dataclass(frozen=True, slots=True)
class Signal:
    """What a strategy goes by: a column of a view."""

    view: str
    column: str


@dataclass(frozen=True, slots=True)
class Sample:
    """An instrument at a time: its touch (None: that side is empty, or the book not valid) and its
    signals."""

    stamp: int
    bid: Decimal | None
    ask: Decimal | None
    values: tuple[float | None, ...]


@dataclass(slots=True)
class Track:
    """The samples of one instrument: at most one for each step of its grid, the state before the step began.

    A step without a message has none, for nothing changed in it. most: how many are kept.
    """

    most: int = field(default_factory=lambda: MOST)
    step: int = FIRST_STEP
    samples: list[Sample] = field(default_factory=list)
    last: int = 0
    # Events so far, and how many there were at the looks to come.
    events: int = 0
    looks: deque[int] = field(default_factory=deque)

    def due(self, stamp: int) -> int | None:
        """The time of the sample to be taken before a message, if one is."""
        start = stamp - stamp % self.step
        return None if self.samples and self.samples[-1].stamp >= start else start

    def add(self, sample: Sample) -> None:
        """Keeps a sample, and halves them where there are too many."""
        self.samples.append(sample)
        while len(self.samples) > self.most:
            self.step *= 2
            kept: dict[int, Sample] = {}
            for one in self.samples:
                start = one.stamp - one.stamp % self.step
                # Without a sample at its start nothing changed until the later one.
                kept.setdefault(start, Sample(start, one.bid, one.ask, one.values))
            self.samples = list(kept.values())


class Sampler:
    """Samples the books and signals that strategies see."""

    def __init__(
        self, engine: Engine, books: Books | None, instruments: Instruments, signals: Sequence[Signal]
    ) -> None:
        self._engine, self._books, self._instruments = engine, books, instruments
        self._signals = [
            (signal, keys) for signal in signals if (keys := _keys(engine, signal.view)) is not None
        ]
        self._most = max(LEAST, MOST // max(1, len(instruments)))
        self._tracks = [Track(LEAST) for _ in instruments]

    def looks(self, instruments: np.ndarray, stamps: np.ndarray) -> Iterator[tuple[int, int]]:
        """(place, instrument) of events that begin a step of their instrument's grid, in any order."""
        for index in np.unique(instruments).tolist():
            if not 0 <= index < len(self._tracks):
                continue
            places = np.flatnonzero(instruments == index)
            track = self._tracks[index]
            track.last = max(track.last, int(stamps[places[-1]]))
            steps = stamps[places] // track.step
            begins = np.flatnonzero(np.concatenate([[True], steps[1:] != steps[:-1]]))
            track.looks.extend((track.events + begins).tolist())
            track.events += len(places)
            yield from ((place, index) for place in places[begins].tolist())

    def take(self, instrument: int, stamp: int) -> None:
        """Looks at an instrument before a message that `looks` has told, where its grid asks for that."""
        track = self._tracks[instrument]
        track.most = max(LEAST, min(self._most, track.looks.popleft() // EVENTS))
        start = track.due(stamp)
        if start is not None:
            track.add(self._sample(instrument, start))

    def write(self, write: Write) -> None:
        """Writes all samples, and the state at the end."""
        for index, track in enumerate(self._tracks):
            if not track.samples:
                continue
            for place, sample in enumerate((*track.samples, self._sample(index, track.last))):
                version = sample.stamp, 0, int(place == len(track.samples))
                self._write(write, self._instruments[index], version, sample)

    def _write(self, write: Write, one: Instrument, version: Version, sample: Sample) -> None:
        common = {
            **dict(zip(VERSION_COLUMNS, version, strict=True)), "venue": one.venue, "symbol": one.symbol,
        }  # fmt: skip
        write("market", {**common, "bid": sample.bid, "ask": sample.ask})
        for (signal, _), value in zip(self._signals, sample.values, strict=True):
            if value is not None:
                write("signals", {**common, "view": signal.view, "column": signal.column, "value": value})

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


def _keys(engine: Engine, view: str) -> Sequence[str] | None:
    """The names of a view's keys; None where they are not those of an instrument."""
    names = next(([key.name for key in v.keys] for v in engine.program.views if v.name == view), [])
    told = set(names) <= {"venue", "symbol"} and len(set(names)) == len(names) > 0
    return names if told else None
