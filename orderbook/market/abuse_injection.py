"""Adds labelled abuse to a stream of orders, so that what detectors find can be counted.

The stream is followed by plain books. Between two of its messages those of the abuse come, at their own
times, so that no book is crossed, no id is used twice and no time goes back; they have the sequence number of
the message before. Every event of the stream stays as it is, but those of orders that the abuse has taken:
these are left out, and the label names the orders.

Where a message of the stream would trade with an order that is not meant to be executed, or with one behind
it, the abuse ends before that message: its orders are cancelled and its label is cut short. One that is meant
to be executed is, first. Where the abuse has taken all of a side, somebody quotes there again.
"""

import heapq
from collections import Counter, defaultdict, deque
from collections.abc import Iterable, Sequence
from dataclasses import replace

import numpy as np

from orderbook.core.errors import UserError
from orderbook.market.abuse_book import (
    ACTION,
    BROKER,
    EXCHANGE_TIME,
    FLAGS,
    INSTRUMENT,
    ORDER_ID,
    PRICE,
    RECEIVE_TIME,
    SEQUENCE,
    SIDE,
    VOLUME,
    Book,
    Order,
    Role,
)
from orderbook.market.abuse_plan import Label, Planned, Survey, planned
from orderbook.market.abuse_scripts import SCRIPTS, NoRoomError, Script
from orderbook.market.events import EVENT, Action, BookState, Events, Flag, Side

_RETRY = 20 * 10**6
_RECENT = 60 * 10**9
# As long as published cases last, in which one trade of others may come.
_CALM = 3 * 10**8
# Orders of a snapshot tell what is usual until there are so many.
_FEWEST_VOLUMES = 16
_LAST = int(Flag.LAST)
_SNAPSHOT = int(Flag.SNAPSHOT)
_ADD, _REDUCE, _MODIFY, _DELETE = int(Action.ADD), int(Action.REDUCE), int(Action.MODIFY), int(Action.DELETE)
_EXECUTE, _TRADE, _CLEAR = int(Action.EXECUTE), int(Action.TRADE), int(Action.CLEAR)
_STATE = int(Action.STATE)
_BID, _ASK = int(Side.BID), int(Side.ASK)
_OF_ORDER = (_REDUCE, _MODIFY, _DELETE, _EXECUTE)
Row = tuple[int, ...]


class _Episode:
    """One that runs: its label, its script and its resting orders; the desk of that script."""

    def __init__(self, injector: "Injector", plan: Planned, strength: float) -> None:
        self.random = injector.random
        self.plan, self.strength, self.close = plan, strength, plan.close
        self.side = int(self.random.integers(0, 2))
        self.book = injector.books[plan.instrument]
        self.step = self.book.step
        self.pace = injector.pace(plan.instrument)
        self.tempo = min(1.0, 1.0 / max(1e-9, injector.trades(plan.instrument) * _CALM))
        self.rate = injector.survey.rate(plan.instrument)
        self.now = injector.now
        self.broker = injector.draw_broker()
        self.label = Label(plan.kind, strength, plan.instrument, self.side, self.now)
        self.resting: dict[int, Order] = {}
        self._usual = self.book.usual_volume
        self._injector = injector
        self.script: Script = SCRIPTS[plan.kind](self)

    def best(self, side: int) -> int | None:
        return self.book.best(side)

    def depth(self, side: int) -> int:
        return self.book.depth(side)

    def lots(self, times: float) -> int:
        """So many times the usual volume, in round numbers."""
        unit, volume = int(10 ** (len(str(int(self._usual))) - 1)), times * self._usual
        if volume < unit:
            unit = max(1, self.book.lot)
        return unit * max(1, round(volume / unit))

    def place(self, side: int, price: int, volume: int, role: Role) -> Order:
        best = self.book.best(1 - side)
        if price <= 0 or (best is not None and (price >= best if side == _BID else price <= best)):
            raise NoRoomError
        broker = self._injector.draw_broker() if role is Role.COUNTERPARTY else self.broker
        order = self._injector.add(self, side, price, volume, broker, role)
        self.resting[order.id] = order
        listed = {Role.NON_BONA_FIDE: self.label.non_bona_fide, Role.BONA_FIDE: self.label.bona_fide}
        listed.get(role, self.label.counterparties).append(order.id)
        return order

    def cancel(self, order: Order) -> None:
        if order.volume:
            self.resting.pop(order.id, None)
            self._injector.cancel(self, order)

    def is_first(self, order: Order) -> bool:
        return (
            order.price == self.book.best(order.side) and self.book.queue(order.side, order.price)[0] is order
        )

    def fill(self, order: Order) -> None:
        self._injector.execute(self, [order])

    def sweep(self, aggressor: int, limit: int) -> None:
        """Everything of the other side up to a price is executed, in the order of price and time."""
        side = 1 - aggressor
        levels = self.book.levels[side]
        prices = sorted(
            (p for p in levels if (p <= limit if side == _ASK else p >= limit)), reverse=side == _BID
        )
        orders = [order for price in prices for order in self.book.queue(side, price)]
        if not orders:
            raise NoRoomError
        self._injector.execute(self, orders)


class Injector:
    """Adds episodes of abuse to a stream: `apply` its batches in order, then take `finish`.

    survey: of the whole stream. abuse: kinds and how many of each. strength: 1 is a clear case. The same
    arguments and the same stream give the same events, whatever its batches are.

    `labels` are in the order of their begin, of episodes that were cut short too, which begin again;
    `not_placed` counts those that found no room to be whole.
    Raises UserError for arguments out of range.
    """

    def __init__(
        self, survey: Survey, abuse: Sequence[tuple[str, int]], *, strength: float = 1.0, seed: int = 1
    ) -> None:
        if not strength > 0:
            raise UserError(f"strength must be above 0, not {strength}")
        if seed < 0:
            raise UserError(f"seed must be at least 0, not {seed}")
        self.survey = survey
        self.random = np.random.Generator(np.random.PCG64(seed))
        self.books: dict[int, Book] = {instrument: Book() for instrument in survey.counts}
        self.labels: list[Label] = []
        self.not_placed: Counter[str] = Counter()
        self._strength = strength
        self._next_order, self._next_trade = survey.last_order + 1, survey.last_trade + 1
        # (time, number, what is due): an episode that runs, or one that is planned.
        self._due: list[tuple[int, int, Planned | _Episode]] = []
        self._numbers = 0
        for plan in planned(survey, abuse, self.random):
            self._schedule(plan.start, plan)
        self._running: dict[int, _Episode] = {}
        # Of instruments: quotes where the abuse has emptied a side, and labels that dropped events count for.
        self._standing: dict[int, dict[int, Order]] = {}
        self._owners: dict[tuple[int, int], Label] = {}
        # Trades of the last minute of instruments, (time, volume).
        self._traded: dict[int, deque[tuple[int, int]]] = defaultdict(deque)
        self._clock = self._receive = self._sequence = 0
        self._out: list[Events] = []
        self._rest = np.empty(0, EVENT)
        self._rows: list[Row] = []
        self._closed = 0
        # Whether the stream tells the exchange's times.
        self._told = True

    @property
    def now(self) -> int:
        """The time of what was written last, ns."""
        return self._clock

    def draw_broker(self) -> int:
        """One of the stream's brokers; 0 where it tells none."""
        return int(self.random.integers(1, self.survey.brokers + 1)) if self.survey.brokers else 0

    def pace(self, instrument: int) -> float:
        """Lots traded a ns in the last minute."""
        return sum(volume for _, volume in self._traded[instrument]) / self._recent(instrument)

    def trades(self, instrument: int) -> float:
        """Trades a ns in the last minute."""
        return len(self._traded[instrument]) / self._recent(instrument)

    def _recent(self, instrument: int) -> int:
        """The last minute, or as much of it as the stream has had."""
        return max(1, min(_RECENT, self._clock - self.survey.first(instrument)))

    def apply(self, events: Events) -> Events:
        """The next EVENT[n] with what comes between; a message without its end waits for the next."""
        if len(self._rest):
            events, self._rest = np.concatenate([self._rest, events]), np.empty(0, EVENT)
        ends = (np.flatnonzero(events["flags"] & _LAST) + 1).tolist()
        rows: list[Row] = events.tolist()
        written = start = 0
        for end in ends:
            message = rows[start:end]
            time, receive = message[0][EXCHANGE_TIME] or message[0][RECEIVE_TIME], message[0][RECEIVE_TIME]
            if self._due and self._due[0][0] <= time:
                self._run(time, receive)
            self._clock, self._receive = max(self._clock, time), max(self._receive, receive)
            dropped = self._drop(message) if self._owners else ()
            if self._running or self._standing:
                self._make_way([row for k, row in enumerate(message) if k not in dropped])
            if self._rows:
                written = self._flush(events, written, start)
            self._follow([row for k, row in enumerate(message) if k not in dropped] if dropped else message)
            if dropped:
                self._flush(events, written, start)
                kept = np.delete(events[start:end], list(dropped))
                kept["flags"][-1:] |= _LAST
                self._out.append(kept)
                written = end
            self._sequence, self._told = message[0][SEQUENCE], message[0][EXCHANGE_TIME] > 0
            if self._owners or self._standing:
                self._stand(message[0][INSTRUMENT])
                self._message()
                if self._rows:
                    written = self._flush(events, written, end)
            start = end
        self._flush(events, written, start)
        self._rest = events[start:].copy()
        out, self._out = self._out, []
        return np.concatenate(out) if out else np.empty(0, EVENT)

    def finish(self) -> Events:
        """What is left: orders that rest are cancelled, at the stream's last time."""
        for episode in list(self._running.values()):
            self._end(episode, True)
        for _, _, due in self._due:
            if isinstance(due, Planned):
                self.not_placed[due.kind] += 1
        self._due = []
        for instrument in list(self._standing):
            self._withdraw_standing(instrument)
        rest, self._rest = self._rest, np.empty(0, EVENT)
        self._flush(rest, 0, len(rest))
        out, self._out = self._out, []
        return np.concatenate(out) if out else np.empty(0, EVENT)

    def add(self, episode: _Episode, side: int, price: int, volume: int, broker: int, role: Role) -> Order:
        """A message: an order of an episode rests."""
        order = self._place(episode.label.instrument, side, price, volume, broker, role)
        episode.label.messages += self._message()
        return order

    def cancel(self, episode: _Episode, order: Order) -> None:
        """A message: an order of an episode leaves."""
        self._withdraw(episode.label.instrument, order)
        episode.label.messages += self._message()

    def execute(self, episode: _Episode, orders: Iterable[Order]) -> None:
        """A message: somebody takes whole orders; where a side is empty then, somebody quotes there again."""
        label = episode.label
        book = self.books[label.instrument]
        for order in orders:
            if order.role is Role.CLEAN:
                book.taken[order.id] = replace(order)
                label.taken.append(order.id)
                self._owners[label.instrument, order.id] = label
            self._execute(label.instrument, order)
            episode.resting.pop(order.id, None)
            self._forget_standing(label.instrument, order)
        self._stand(label.instrument)
        label.messages += self._message()

    def _schedule(self, time: int, what: "Planned | _Episode") -> None:
        self._numbers += 1
        heapq.heappush(self._due, (time, self._numbers, what))

    def _run(self, time: int, receive: int) -> None:
        """What is due until a time, before its message; each at its own time."""
        latest, lag = max(self._receive, receive), max(0, self._receive - self._clock)
        while self._due and self._due[0][0] <= time:
            due, _, what = heapq.heappop(self._due)
            self._clock = max(self._clock, due)
            self._receive = min(max(self._receive, self._clock + lag), latest)
            if isinstance(what, Planned):
                self._begin(what)
            elif self._running.get(what.label.instrument) is what:
                self._go_on(what)

    def _begin(self, plan: Planned) -> None:
        book = self.books[plan.instrument]
        if plan.instrument not in self._running and book.state == BookState.VALID and book.step:
            episode = _Episode(self, plan, self._strength)
            self._running[plan.instrument] = episode
            if self._go_on(episode) or episode.label.messages:
                self.labels.append(episode.label)
                return
        self._retry(plan, _RETRY)

    def _retry(self, plan: Planned, pause: int) -> None:
        """Has an episode begin later, where that may be."""
        if plan.tries and self._clock + pause < plan.latest:
            self._schedule(self._clock + pause, plan)
        else:
            self.not_placed[plan.kind] += 1

    def _go_on(self, episode: _Episode) -> bool:
        """The next step of an episode; whether it goes on."""
        episode.now = self._clock
        try:
            self._schedule(self._clock + max(1, next(episode.script)), episode)
        except (StopIteration, NoRoomError) as ended:
            self._end(episode, isinstance(ended, NoRoomError))
            return False
        return True

    def _end(self, episode: _Episode, cut_short: bool) -> None:
        for order in list(episode.resting.values()):
            self.cancel(episode, order)
        episode.script.close()  # type: ignore[attr-defined]
        episode.label.end, episode.label.cut_short = self._clock, cut_short
        del self._running[episode.label.instrument]
        self._stand(episode.label.instrument)
        if cut_short and episode.label.messages:
            plan = replace(episode.plan, tries=episode.plan.tries - 1)
            self._retry(plan, max(_RETRY, (plan.latest - self._clock) // (plan.tries + 2)))

    def _make_way(self, message: list[Row]) -> None:
        """Injected orders that a message of the stream would meet are executed or leave, before it."""
        for row in message:
            instrument = row[INSTRUMENT]
            episode = self._running.get(instrument)
            standing = self._standing.get(instrument, {})
            if episode is None and not standing:
                continue
            if row[ACTION] == _CLEAR or (row[ACTION] == _STATE and row[VOLUME] != BookState.VALID):
                if episode is not None:
                    self._end(episode, True)
                self._withdraw_standing(instrument)
                continue
            for order in list(standing.values()):
                if self._meets(row, order):
                    self._withdraw(instrument, order)
                    self._forget_standing(instrument, order)
                    self._message()
            if episode is not None:
                self._meet(episode, [order for order in episode.resting.values() if self._meets(row, order)])

    def _meets(self, row: Row, order: Order) -> bool:
        """Whether an event of the stream trades with an injected order, or with one behind it."""
        action, price = row[ACTION], row[PRICE]
        if action == _ADD or action == _MODIFY:
            own = self.books[row[INSTRUMENT]].orders.get(row[ORDER_ID])
            side = row[SIDE] if action == _ADD or own is None else own.side
            return side != order.side and (
                price <= order.price if order.side == _BID else price >= order.price
            )
        if action == _EXECUTE:
            own = self.books[row[INSTRUMENT]].orders.get(row[ORDER_ID])
            if own is None or own.side != order.side:
                return False
            if own.price == order.price:
                return order.number < own.number
            return order.price > own.price if order.side == _BID else order.price < own.price
        if action == _TRADE and row[SIDE] == 1 - order.side:
            return order.price > price if order.side == _BID else order.price < price
        return False

    def _meet(self, episode: _Episode, orders: list[Order]) -> None:
        if any(order.role is Role.NON_BONA_FIDE for order in orders):
            self._end(episode, True)
            return
        for order in orders:
            if order.role is Role.BONA_FIDE:
                self.execute(episode, [order])
            else:
                episode.cancel(order)

    def _drop(self, message: list[Row]) -> set[int]:
        """Which events of a message are of orders that the abuse has taken, or trades of them."""
        found: set[int] = set()
        for k, row in enumerate(message):
            label = self._owners.get((row[INSTRUMENT], row[ORDER_ID]))
            if label is None or row[ACTION] not in _OF_ORDER:
                if row[ACTION] == _CLEAR:
                    self._forget_taken(row)
                continue
            found.add(k)
            if row[ACTION] == _EXECUTE:
                near = (k - 1, k + 1) if self.survey.trade_first else (k + 1, k - 1)
                for other in near:
                    if 0 <= other < len(message) and other not in found and _is_trade_of(message[other], row):
                        found.add(other)
                        label.dropped += 1
                        break
            label.dropped += 1
            taken = self.books[row[INSTRUMENT]].taken
            order = taken[row[ORDER_ID]]
            if row[ACTION] == _MODIFY:
                order.price, order.volume = row[PRICE], row[VOLUME]
                continue
            order.volume -= order.volume if row[ACTION] == _DELETE else row[VOLUME]
            if order.volume <= 0:
                del taken[order.id], self._owners[row[INSTRUMENT], order.id]
        return found

    def _forget_taken(self, row: Row) -> None:
        """The stream has cleared a side, or both."""
        taken = self.books[row[INSTRUMENT]].taken
        for order in list(taken.values()):
            if row[SIDE] in (order.side, Side.NONE):
                del taken[order.id], self._owners[row[INSTRUMENT], order.id]

    def _follow(self, message: Sequence[Row]) -> None:
        """Does to the books what the stream's events do."""
        for row in message:
            book, action = self.books[row[INSTRUMENT]], row[ACTION]
            if action == _ADD:
                book.add(Order(row[ORDER_ID], row[SIDE], row[PRICE], row[VOLUME], row[BROKER]))
                if not row[FLAGS] & _SNAPSHOT or len(book.volumes) < _FEWEST_VOLUMES:
                    book.volumes.append(row[VOLUME])
            elif action in _OF_ORDER:
                order = book.orders.get(row[ORDER_ID])
                if order is None:
                    continue
                if action == _DELETE:
                    book.remove(order)
                elif action == _MODIFY:
                    book.modify(order, row[PRICE], row[VOLUME])
                else:
                    book.reduce(order, row[VOLUME])
            elif action == _TRADE:
                trades = self._traded[row[INSTRUMENT]]
                trades.append((self._clock, row[VOLUME]))
                while trades[0][0] < self._clock - _RECENT:
                    trades.popleft()
            elif action == _CLEAR:
                book.clear(row[SIDE])
            elif action == _STATE:
                book.state = row[VOLUME]

    def _stand(self, instrument: int) -> None:
        """Where the abuse has taken all of a side, somebody quotes there, until the stream does."""
        book = self.books[instrument]
        standing = self._standing.get(instrument, {})
        for side in (_BID, _ASK):
            own = [order for order in standing.values() if order.side == side]
            gone = [order for order in book.taken.values() if order.side == side]
            orders = sum(map(len, book.levels[side].values()))
            if own and (orders > len(own) or not gone):
                for order in own:
                    self._withdraw(instrument, order)
                    self._forget_standing(instrument, order)
            elif gone and not orders:
                first = max(gone, key=lambda order: order.price if order.side == _BID else -order.price)
                other = book.best(1 - side)
                price = first.price
                if other is not None:
                    price = min(price, other - book.step) if side == _BID else max(price, other + book.step)
                if price > 0:
                    broker = self.draw_broker()
                    quote = self._place(instrument, side, price, first.volume, broker, Role.COUNTERPARTY)
                    self._standing.setdefault(instrument, {})[quote.id] = quote

    def _forget_standing(self, instrument: int, order: Order) -> None:
        quotes = self._standing.get(instrument)
        if quotes is not None and quotes.pop(order.id, None) is not None and not quotes:
            del self._standing[instrument]

    def _withdraw_standing(self, instrument: int) -> None:
        for order in list(self._standing.pop(instrument, {}).values()):
            self._withdraw(instrument, order)
        self._message()

    def _place(self, instrument: int, side: int, price: int, volume: int, broker: int, role: Role) -> Order:
        order = Order(self._next_order, side, price, volume, broker, role=role)
        self._next_order += 1
        self.books[instrument].add(order)
        self._write(instrument, _ADD, order, volume)
        return order

    def _withdraw(self, instrument: int, order: Order) -> None:
        self._write(instrument, _DELETE, order, order.volume)
        self.books[instrument].remove(order)
        order.volume = 0

    def _execute(self, instrument: int, order: Order) -> None:
        """All that is left of an order trades."""
        trade_id = self._next_trade if self.survey.last_trade else 0
        trade = Order(trade_id, 1 - order.side, order.price, order.volume, 0)
        self._next_trade += 1
        if self.survey.trade_first:
            self._write(instrument, _TRADE, trade, order.volume)
        self._write(instrument, _EXECUTE, order, order.volume)
        if not self.survey.trade_first:
            self._write(instrument, _TRADE, trade, order.volume)
        self.books[instrument].reduce(order, order.volume)

    def _write(self, instrument: int, action: int, order: Order, volume: int) -> None:
        """An event of the open message."""
        time = self._clock if self._told else 0
        self._rows.append(
            (time, self._receive, self._sequence, order.id, order.price, volume, instrument, order.broker,
             action, order.side, 0, 0)
        )  # fmt: skip

    def _message(self) -> int:
        """Ends the open message; how many that is, 0 or 1."""
        if len(self._rows) == self._closed:
            return 0
        last = self._rows[-1]
        self._rows[-1] = (*last[:FLAGS], _LAST, *last[FLAGS + 1 :])
        self._closed = len(self._rows)
        return 1

    def _flush(self, events: Events, start: int, end: int) -> int:
        """Hands over events of the stream, and then the messages that were written; returns `end`."""
        if end > start:
            self._out.append(events[start:end])
        if self._rows:
            self._out.append(np.array(self._rows, EVENT))
            self._rows, self._closed = [], 0
        return end


def _is_trade_of(row: Row, execution: Row) -> bool:
    return (
        row[ACTION] == _TRADE
        and row[INSTRUMENT] == execution[INSTRUMENT]
        and row[PRICE] == execution[PRICE]
        and row[VOLUME] == execution[VOLUME]
    )
