"""What a strategy's author writes: a subclass of Strategy, its methods subscribed by `on_view`."""

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from decimal import Decimal
from types import CodeType, FunctionType
from typing import Any, ClassVar, Literal, Protocol, TypeVar

from engine.live_view import Key, ViewRow
from engine.subscriptions import Fire, Granularity
from orderbook.durations import nanoseconds
from orderbook.instruments import Instrument
from strategies.conditions import Parameter as Parameter
from strategies.conditions import parameter_names
from strategies.market_news import BookStateChange, Trade
from strategies.orders import Fill, Order, OrderSide
from strategies.simulation.client import Number, TimeInForce

PartitionBy = Literal["symbol", "venue"]
Method = TypeVar("Method", bound=Callable[..., object])

_WATCHES, _TIMERS = "_on_view", "_on_timer"


@dataclass(frozen=True, slots=True)
class ViewWatch:
    """One `on_view`: the arguments of `Engine.subscribe`, the method that is called, and how often at most
    (ns)."""

    method: str
    view: str
    when: str | None
    on: Granularity
    fire: Fire
    every: int = 0


@dataclass(frozen=True, slots=True)
class Timer:
    """One `on_timer`: the method that is called, and its period (ns)."""

    method: str
    period: int


def on_view(
    view: str,
    when: str | None = None,
    on: Granularity = "message",
    fire: Fire = "edge",
    every: str | None = None,
) -> Callable[[Method], Method]:
    """Subscribes a method of a Strategy to a view; it is called with a ViewEvent.

    when: a condition as in WHERE over the view's columns; `:name` stands for a parameter of the strategy,
        else of the views. None: whenever a row changes.
    on: looked at after every "message" or every "event".
    fire: on the "edge", when the condition comes to hold of a row, or at every "change" of a row while it
        holds.
    every: a time such as "100ms", in which it is called once at most for each row: what happens to the row
        meanwhile is told as one event, at the end of the strategy's first message after. Times are those of
        events; a partitioned strategy's own messages are those of its symbol or venue.

    A method may have several; they are subscribed in the order of the class, the lowest first.
    """

    length = 0 if every is None else nanoseconds(every)

    def mark(method: Method) -> Method:
        watches = getattr(method, _WATCHES, ())
        setattr(method, _WATCHES, (*watches, ViewWatch(method.__name__, view, when, on, fire, length)))
        return method

    return mark


def on_timer(period: str) -> Callable[[Method], Method]:
    """Calls a method of a Strategy, without arguments, as time goes by: at the end of the strategy's first
    message at or after each multiple of the period (such as "1s") since 1970 UTC, once where several have
    passed.

    Time is that of events, `Strategy.now`: while nothing comes nothing is called. Raises UserError for
    another text than a time.
    """
    length = nanoseconds(period)

    def mark(method: Method) -> Method:
        setattr(method, _TIMERS, Timer(method.__name__, length))
        return method

    return mark


class Desk(Protocol):
    """What a strategy trades through; `StrategyHost` gives it one."""

    @property
    def name(self) -> str: ...

    @property
    def key(self) -> str | None: ...

    @property
    def now(self) -> int: ...

    @property
    def parameters(self) -> Mapping[str, Any]: ...

    def view(self, name: str) -> Mapping[Key, ViewRow]: ...

    def position(self, symbol: str) -> Decimal: ...

    def instrument(self, symbol: str, venue: str | None) -> Instrument: ...

    def place(
        self,
        side: OrderSide,
        symbol: str,
        volume: Number,
        price: Number | None,
        venue: str | None,
        time_in_force: TimeInForce,
        post_only: bool,
    ) -> int: ...

    def modify(self, order_id: int, volume: Number | None, price: Number | None) -> None: ...

    def cancel(self, order_id: int) -> None: ...


class Strategy:
    """A trading strategy: what views tell it, and the orders it places.

    Subclasses are made without arguments, with everything below already at hand in `__init__`. What a method
    orders or cancels takes effect after the message at hand. A method that raises disables the strategy, but
    for `on_save` and `on_load`.
    """

    defaults: ClassVar[Mapping[str, Parameter]] = {}
    """Parameters that the configuration may set otherwise."""

    accepts: ClassVar[tuple[str, ...]] = ()
    """Parameters without a default that neither a condition nor a method names, as where the code makes up
    their names: names, or patterns such as "limit_*"; ("*",) takes any."""

    reads: ClassVar[tuple[str, ...]] = ()
    """Views that `view` shows besides those of `on_view`, so that every run has them."""

    partition_by: ClassVar[PartitionBy | None] = None
    """With "symbol" or "venue" there is an instance for each one, which sees the rows of its own and trades
    it alone, and whose orders have ids of their own; so that they can run apart from each other."""

    signal: ClassVar[str | None] = None
    """The VIEW.COLUMN, of a row for each symbol, that the strategy goes by: its report shows what the market
    did after each value of it. Without it, the first column that a condition names."""

    _desk: Desk

    def on_start(self) -> None:
        """Called before the first event."""

    def on_fill(self, fill: Fill) -> None:
        """Called for each fill, after the fill is in the relation `fills`."""

    def on_trade(self, trade: Trade) -> None:
        """Called for each trade that the market prints, after the message that told it."""

    def on_book_state(self, state: BookStateChange) -> None:
        """Called for each state that a book comes to have, after the message that told it."""

    def on_order_update(self, order: Order) -> None:
        """Called for each change of an order, once the relation `orders` has it, before `on_fill`."""

    def on_stop(self) -> None:
        """Called after the last event."""

    def on_save(self) -> bytes | None:
        """What `on_load` needs to go on after a crash; called often, so keep it small. None keeps nothing.

        Where it raises, or returns anything else than bytes (of at most 4 MB), an error is logged, the
        strategy goes on, and what it returned before is what is kept.
        """
        return None

    def on_load(self, state: bytes) -> None:
        """Called with what `on_save` gave last, before `on_start`, or instead of it after a crash.

        Where it raises it is called again, on a new instance, with what was saved before that; where it takes
        none of it, the strategy is disabled until the next start.
        """

    @property
    def name(self) -> str:
        """The strategy's name in `orders` and `fills`: its class's."""
        return self._desk.name

    @property
    def parameters(self) -> Mapping[str, Any]:
        """What the configuration sets for the strategy, else the views' parameters, else `defaults`."""
        return self._desk.parameters

    @property
    def now(self) -> int:
        """The time of the message at hand, ns since 1970 UTC; 0 before the first."""
        return self._desk.now

    def instrument(self, symbol: str, venue: str | None = None) -> Instrument:
        """The instrument of a symbol, with its tick and lot; `venue` where it trades on several.

        Raises DataError where there is none, or several.
        """
        return self._desk.instrument(symbol, venue)

    @property
    def log(self) -> logging.Logger:
        """The strategy's logger."""
        return logging.getLogger(f"orderbook.strategies.{self.name}")

    @property
    def partition(self) -> str | None:
        """The symbol or venue that the instance is for, by `partition_by`."""
        return self._desk.key

    def view(self, name: str) -> Mapping[Key, ViewRow]:
        """The live rows of a view, by key; of a partition's own rows.

        Raises DataError for a view that the strategy neither watches nor names in `reads`.
        """
        return self._desk.view(name)

    def position(self, symbol: str) -> Decimal:
        """Volume held of a symbol on all venues, negative when short, by the fills told until now."""
        return self._desk.position(symbol)

    def buy(
        self,
        symbol: str,
        volume: Number,
        price: Number | None = None,
        venue: str | None = None,
        *,
        time_in_force: TimeInForce = "gtc",
        post_only: bool = False,
    ) -> int:
        """Sends an order to buy; returns its id. What is wrong with it refuses the order.

        volume, price: in the units of the relations, multiples of the lot and the tick; price None is a
        market order. venue: needed where the symbol trades on several. A float is the decimal that its
        repr shows. time_in_force "ioc": what is not filled at once is cancelled; "gtc": it rests until it is
        cancelled. post_only: the order is refused where it would be filled at once.
        """
        return self._desk.place("buy", symbol, volume, price, venue, time_in_force, post_only)

    def sell(
        self,
        symbol: str,
        volume: Number,
        price: Number | None = None,
        venue: str | None = None,
        *,
        time_in_force: TimeInForce = "gtc",
        post_only: bool = False,
    ) -> int:
        """Sends an order to sell; see `buy`."""
        return self._desk.place("sell", symbol, volume, price, venue, time_in_force, post_only)

    def modify(self, order_id: int, volume: Number | None = None, price: Number | None = None) -> None:
        """Gives an order that rests another volume, what is filled included, or another price.

        It keeps its place in the queue only if nothing but its volume gets less. Without effect where nothing
        of the order rests; what is wrong is the `reason` of the order, which stays as it was.
        """
        self._desk.modify(order_id, volume, price)

    def cancel(self, order_id: int) -> None:
        """Cancels what is left of an order; without effect where nothing is."""
        self._desk.cancel(order_id)


def parameters_named(kind: type[Strategy], code: bool = True) -> frozenset[str]:
    """The parameters that a class has: its `defaults`, those of its conditions, and, with `code`, those that
    its methods name, as in `self.parameters["limit"]`."""
    conditions = (watch.when for watch in watches_of(kind) if watch.when)
    found = {*kind.defaults, *(name for when in conditions for name in parameter_names(when))}
    for base in kind.__mro__[: kind.__mro__.index(Strategy)] if code else ():
        for value in vars(base).values():
            function = getattr(value, "fget", None) or getattr(value, "__func__", value)
            if isinstance(function, FunctionType):
                found |= _texts_beside_parameters(function.__code__)
    return frozenset(found)


def _texts_beside_parameters(code: CodeType) -> set[str]:
    """The names among the texts of a function that reads `parameters`, functions within it included."""
    parts = [code]
    # It grows meanwhile.
    for part in parts:
        parts += [one for one in part.co_consts if isinstance(one, CodeType)]
    if not any("parameters" in part.co_names for part in parts):
        return set()
    constants = [one for part in parts for one in part.co_consts]
    constants += [one for own in constants if isinstance(own, tuple | frozenset) for one in own]
    return {one for one in constants if isinstance(one, str) and one.isidentifier()}


def watches_of(kind: type[Strategy]) -> tuple[ViewWatch, ...]:
    """The watches of a class and its bases, base first; an overriding method stands for itself."""
    names = dict.fromkeys(name for base in reversed(kind.__mro__) for name in vars(base))
    return tuple(
        watch for name in names for watch in reversed(getattr(getattr(kind, name, None), _WATCHES, ()))
    )


def timers_of(kind: type[Strategy]) -> tuple[Timer, ...]:
    """The timers of a class and its bases, base first; an overriding method stands for itself."""
    names = dict.fromkeys(name for base in reversed(kind.__mro__) for name in vars(base))
    found = (getattr(getattr(kind, name, None), _TIMERS, None) for name in names)
    return tuple(timer for timer in found if isinstance(timer, Timer))
