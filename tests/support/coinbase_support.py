"""A session driven by hand, a small order flow and plain books for the tests of Coinbase's `full` channel."""

import random
from collections.abc import Iterable, Iterator
from decimal import Decimal
from uuid import UUID

import numpy as np

from orderbook.feeds.exchanges.exchange import ExchangeOptions
from orderbook.feeds.live.session import Connect, Disconnect, Get, Session
from orderbook.feeds.live.simulated_exchange import Simulated
from orderbook.market.events import EVENT, Action, BookState, Flag, Side
from orderbook.market.instruments import Instrument, Instruments

VENUE = "simulated"
Orders = dict[int, tuple[int, int, int]]
Row = tuple[int, ...]


def instruments(*products: str) -> Instruments:
    """Products with a tick of 0.01 (odd ones 0.05) and a lot of 0.00000001."""
    ticks = (Decimal("0.01"), Decimal("0.05"))
    return Instruments(
        Instrument(VENUE, product, product, ticks[i % 2], Decimal("0.00000001"))
        for i, product in enumerate(products)
    )


def order_id(uuid: str) -> int:
    """The first 63 of a UUID's 128 bits."""
    return int(f"{UUID(uuid).int:0128b}"[:63], 2)


def truth(book: dict[str, tuple[int, int, int]]) -> Orders:
    """A simulated exchange's book with the ids that events carry."""
    return {order_id(uuid): (int(side), price, volume) for uuid, (side, price, volume) in book.items()}


class Client:
    """A session of Coinbase's `full` channel on a virtual clock; receive times are the caller's."""

    def __init__(self, *products: str) -> None:
        known = instruments(*products)
        self.now = 0.0
        self.session = Session(
            Simulated, known, range(len(known)), ExchangeOptions(), lambda: self.now, seed=1
        )
        self.statistics = self.session.statistics
        self._asked: set[str] = set()

    @property
    def problems(self) -> dict[str, int]:
        return dict(self.statistics.problems.counts)

    def connected(self, receive_time: int) -> None:
        assert not self.session.open
        self._asked.clear()
        self.session.connected(receive_time)

    def disconnected(self, receive_time: int) -> None:
        self.session.disconnected("closed", receive_time)

    def frame(self, data: bytes | str, receive_time: int) -> None:
        self.session.frame(data if isinstance(data, bytes) else data.encode(), receive_time)

    def pass_time(self, seconds: float) -> None:
        """Let time pass, and connections break where the session wants it; they are made anew at once."""
        end, session = self.now + seconds, self.session
        if not session.open:
            self.now = end
            return
        while True:
            for command in session.commands():
                if isinstance(command, Get):
                    self._asked.add(command.product)
                elif isinstance(command, Disconnect):
                    self.disconnected(session.receive_time)
                elif isinstance(command, Connect):
                    self._asked.clear()
                    session.connected(session.receive_time)
            if session.wake_at > end:
                break
            self.now = max(self.now, session.wake_at)
            session.wake(session.receive_time)
        self.now = end

    def needs_snapshot(self, product: str) -> bool:
        """Whether a snapshot has been asked for and not been answered, or is within a second."""
        self.pass_time(1.0)
        return product in self._asked

    def snapshot(self, product: str, body: bytes, receive_time: int) -> bool:
        """Answer a request; whether the book is valid then."""
        self._asked.discard(product)
        self.session.answered(product, body, receive_time)
        return self.session.books[product].state is BookState.VALID

    def take(self) -> np.ndarray:
        return self.session.take()


class PlainBooks:
    """Books from events, one dictionary an instrument; `contradictions` lists what cannot be applied."""

    def __init__(self, count: int) -> None:
        self.orders: list[Orders] = [{} for _ in range(count)]
        self.states = [BookState.SYNCING] * count
        self.trades: list[tuple[int, int, int, int]] = []
        self.contradictions: list[str] = []

    def apply(self, events: np.ndarray) -> None:
        for event in events:
            book = self.orders[int(event["instrument"])]
            number, price, volume = (int(event[name]) for name in ("order_id", "price", "volume"))
            action, side = Action(int(event["action"])), int(event["side"])
            if action is Action.STATE:
                self.states[int(event["instrument"])] = BookState(volume)
            elif action is Action.CLEAR:
                book.clear()
            elif action is Action.TRADE:
                self.trades.append((int(event["instrument"]), side, price, volume))
            elif action is Action.ADD:
                if number in book:
                    self.contradictions.append(f"add of {number} twice")
                book[number] = (side, price, volume)
            elif number not in book:
                self.contradictions.append(f"{action.name} of unknown {number}")
            elif book[number][0] != side:
                self.contradictions.append(f"{action.name} of {number} on the wrong side")
            else:
                self._change(book, number, action, price, volume)

    def _change(self, book: Orders, number: int, action: Action, price: int, volume: int) -> None:
        side, old_price, left = book.pop(number)
        if action is Action.MODIFY:
            book[number] = (side, price, volume)
        elif action in (Action.REDUCE, Action.EXECUTE):
            if volume > left:
                self.contradictions.append(f"{action.name} of {number} by more than there is")
            if volume < left:
                book[number] = (side, old_price, left - volume)


def flow(seed: int, count: int, resting: int = 40) -> Iterator[np.ndarray]:
    """Endless random units of `count` instruments: adds, reductions, moves, cancels, sweeps of 1 to 3."""
    rng = random.Random(seed)
    books: list[Orders] = [{} for _ in range(count)]
    number = 0
    while True:
        rows: list[Row] = []
        for _ in range(64):
            number += 1
            instrument = rng.randrange(count)
            rows += _unit(rng, books[instrument], instrument, number, resting)
        yield np.array(rows, EVENT)


def _unit(rng: random.Random, book: Orders, instrument: int, number: int, resting: int) -> list[Row]:
    choice = rng.random() if len(book) > resting // 2 else 0.0
    side = rng.randrange(2)
    price = 10_000 + (rng.randrange(1, 50) if side == Side.ASK else -rng.randrange(1, 50))
    volume = rng.randrange(1, 10**9)
    if choice < 0.45 and len(book) < resting:
        book[number] = (side, price, volume)
        return _rows(instrument, [(Action.ADD, number, side, price, volume)])
    if choice < 0.7:
        return _rows(instrument, _sweep(rng, book, number, rng.randrange(2)))
    victim = rng.choice(list(book))
    side, old_price, left = book[victim]
    if choice < 0.8 and left > 1:
        part = rng.randrange(1, left)
        book[victim] = (side, old_price, left - part)
        return _rows(instrument, [(Action.REDUCE, victim, side, old_price, part)])
    if choice < 0.85:
        price = 10_000 + (rng.randrange(1, 50) if side == Side.ASK else -rng.randrange(1, 50))
        book[victim] = (side, price, volume)
        return _rows(instrument, [(Action.MODIFY, victim, side, price, volume)])
    del book[victim]
    return _rows(instrument, [(Action.DELETE, victim, side, old_price, left)])


def _sweep(rng: random.Random, book: Orders, number: int, side: int) -> list[Row]:
    """Executions of up to three orders of a side; what is left of some aggressors rests."""
    makers = [number for number, order in book.items() if order[0] == side][: rng.randrange(1, 4)]
    events: list[tuple[int, ...]] = []
    for position, maker in enumerate(makers, 1):
        _, price, left = book.pop(maker)
        volume = left if position < len(makers) else rng.randrange(1, left + 1)
        if volume < left:
            book[maker] = (side, price, left - volume)
        events.append((Action.EXECUTE, maker, side, price, volume))
    if rng.random() < 0.3:
        book[number] = (1 - side, 10_000, 7)
        events.append((Action.ADD, number, 1 - side, 10_000, 7))
    return events


def _rows(instrument: int, events: Iterable[tuple[int, ...]]) -> list[Row]:
    rows: list[Row] = [
        (0, 0, 0, number, price, volume, instrument, 0, action, side, 0, 0)
        for action, number, side, price, volume in events
    ]
    if rows:
        rows[-1] = (*rows[-1][:10], int(Flag.LAST), 0)
    return rows
