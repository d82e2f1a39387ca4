"""What a strategy's author writes: a subclass of Strategy, its methods subscribed by `on_view`."""

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, ClassVar, Literal, Protocol, TypeVar

from engine.live_view import Key, ViewRow
from engine.subscriptions import Fire, Granularity
from strategies.orders import Fill, OrderSide
from strategies.paper import Number

Parameter = Decimal | int | float | str | bool
PartitionBy = Literal["symbol", "venue"]
Method = TypeVar("Method", bound=Callable[..., object])

_WATCHES = "_on_view"


@dataclass(frozen=True, slots=True)
class ViewWatch:
    """One `on_view`: the arguments of `Engine.subscribe`, and the method that is called."""

    method: str
    view: str
    when: str | None
    on: Granularity
    fire: Fire


def on_view(
    view: str, when: str | None = None, on: Granularity = "message", fire: Fire = "edge"
) -> Callable[[Method], Method]:
    """Subscribes a method of a Strategy to a view; it is called with a ViewEvent.

    when: a condition as in WHERE over the view's columns; `:name` stands for a parameter of the strategy,
        else of the views. None: whenever a row changes.
    on: looked at after every "message" or every "event".
    fire: on the "edge", when the condition comes to hold of a row, or at every "change" of a row while it
        holds.

    A method may have several; they are subscribed in the order of the class, the lowest first.
    """

    def mark(method: Method) -> Method:
        watches = getattr(method, _WATCHES, ())
        setattr(method, _WATCHES, (*watches, ViewWatch(method.__name__, view, when, on, fire)))
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

    def place(
        self, side: OrderSide, symbol: str, volume: Number, price: Number | None, venue: str | None
    ) -> int: ...

    def cancel(self, order_id: int) -> None: ...


class Strategy:
    """A trading strategy: what views tell it, and the orders it places.

    Subclasses are made without arguments, with everything below already at hand in `__init__`. What a method
    orders or cancels takes effect after the message at hand. A method that raises disables the strategy.
    """

    defaults: ClassVar[Mapping[str, Parameter]] = {}
    """Parameters that the configuration may set otherwise."""

    partition_by: ClassVar[PartitionBy | None] = None
    """With "symbol" or "venue" there is an instance for each one, which sees the rows of its own and trades
    it alone, and whose orders have ids of their own; so that they can run apart from each other."""

    _desk: Desk

    def on_start(self) -> None:
        """Called before the first event."""

    def on_fill(self, fill: Fill) -> None:
        """Called for each fill, after the fill is in the relation `fills`."""

    def on_stop(self) -> None:
        """Called after the last event."""

    def on_save(self) -> bytes | None:
        """What `on_load` needs to go on after a crash; called often, so keep it small. None keeps nothing."""
        return None

    def on_load(self, state: bytes) -> None:
        """Called with what `on_save` gave last, before `on_start`, or instead of it after a crash."""

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

    @property
    def log(self) -> logging.Logger:
        """The strategy's logger."""
        return logging.getLogger(f"orderbook.strategies.{self.name}")

    @property
    def partition(self) -> str | None:
        """The symbol or venue that the instance is for, by `partition_by`."""
        return self._desk.key

    def view(self, name: str) -> Mapping[Key, ViewRow]:
        """The live rows of a view, by key; of a partition's own rows. Raises DataError for an unknown one."""
        return self._desk.view(name)

    def position(self, symbol: str) -> Decimal:
        """Volume held of a symbol on all venues, negative when short."""
        return self._desk.position(symbol)

    def buy(self, symbol: str, volume: Number, price: Number | None = None, venue: str | None = None) -> int:
        """Places a paper order to buy; returns its id. What is wrong with it refuses the order.

        volume, price: in the units of the relations, multiples of the lot and the tick; price None is a
        market order. venue: needed where the symbol trades on several. A float is the decimal that its
        repr shows.
        """
        return self._desk.place("buy", symbol, volume, price, venue)

    def sell(self, symbol: str, volume: Number, price: Number | None = None, venue: str | None = None) -> int:
        """Places a paper order to sell; see `buy`."""
        return self._desk.place("sell", symbol, volume, price, venue)

    def cancel(self, order_id: int) -> None:
        """Cancels what rests of an order; without effect where nothing does."""
        self._desk.cancel(order_id)


def watches_of(kind: type[Strategy]) -> tuple[ViewWatch, ...]:
    """The watches of a class and its bases, base first; an overriding method stands for itself."""
    names = dict.fromkeys(name for base in reversed(kind.__mro__) for name in vars(base))
    return tuple(
        watch for name in names for watch in reversed(getattr(getattr(kind, name, None), _WATCHES, ()))
    )
