"""What a strategy's author writes: a subclass of Strategy, its methods subscribed by `on_view`.

Besides views, strategies are told of the market's trades and of states of books. The parameters of a strategy
are written into the text of its conditions. Strategies are found by name, MODULE:CLASS.
"""

import dis
import importlib
import importlib.util
import inspect
import logging
import pkgutil
import re
import struct
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from fnmatch import fnmatchcase
from pathlib import Path
from types import CodeType, FunctionType, MappingProxyType, ModuleType
from typing import Any, ClassVar, Literal, Protocol, TypeVar, Unpack, get_args

from orderbook.core.errors import ConfigurationError, UserError, suggestion
from orderbook.core.native_types import WIDENS
from orderbook.core.units import nanoseconds
from orderbook.core.user_modules import imported
from orderbook.engine.runtime.live_view import Key, ViewRow
from orderbook.engine.runtime.subscriptions import Fire, Granularity
from orderbook.market.books import AGGRESSORS
from orderbook.market.events import EVENT, Action, BookState, Events, StateReason
from orderbook.market.instruments import Instrument, Instruments
from orderbook.strategies.execution.account import (
    FILL_COLUMNS,
    ORDER_COLUMNS,
    POSITION_COLUMNS,
    Fill,
    Order,
    OrderSide,
)
from orderbook.strategies.execution.order_terms import Number, OrderTerms, TermsAsked, TimeInForce, terms_of
from orderbook.views.program import CompiledProgram

Parameter = Decimal | int | float | str | bool

# A quoted text or name, or a parameter that does not follow another colon or a word.
_PARAMETER = re.compile(r"""'(?:[^']|'')*'|"(?:[^"]|"")*"|(?<![:\w]):(?P<name>[A-Za-z_]\w*)""")


def with_parameters(condition: str, parameters: Mapping[str, Parameter]) -> str:
    """The condition with literals for the parameters known; others stay for the engine to refuse."""

    def literal(match: re.Match[str]) -> str:
        name = match["name"]
        return match[0] if name is None or name not in parameters else _literal(parameters[name])

    return _PARAMETER.sub(literal, condition)


def parameter_names(condition: str) -> set[str]:
    """The parameters that a condition names."""
    return {match["name"] for match in _PARAMETER.finditer(condition) if match["name"] is not None}


def _literal(value: Parameter) -> str:
    if isinstance(value, bool):
        return str(value).upper()
    if isinstance(value, str):
        return "'" + value.replace("'", "''") + "'"
    number = Decimal(repr(value)) if isinstance(value, float) else Decimal(value)
    return f"({number:f})" if number < 0 else f"{number:f}"


# What a field of a class with compiled methods may be declared as.
_NUMBERS = (int, float, bool, "int", "float", "bool")
_TRADE, _STATE = int(Action.TRADE), int(Action.STATE)
# The words of an EVENT, and which of them is the action.
_EVENT_WORDS, _ACTION = struct.Struct("<6q2i2BHI"), (EVENT.names or ()).index("action")
assert _EVENT_WORDS.size == EVENT.itemsize
_AGGRESSORS = dict(enumerate(AGGRESSORS))


@dataclass(frozen=True, slots=True)
class Trade:
    """A trade that the market printed.

    ts: ns, of its receipt, else at the exchange. price, volume: in the relation's units. side: who took,
    "buy" or "sell", "" where that is not told.
    """

    ts: int
    venue: str
    symbol: str
    side: str
    volume: Decimal
    price: Decimal


@dataclass(frozen=True, slots=True)
class BookStateChange:
    """A book's state: "syncing", "valid" or "stale", and why, such as "gap" or "halted"; ts as of a Trade."""

    ts: int
    venue: str
    symbol: str
    state: str
    reason: str


@dataclass(frozen=True, slots=True)
class NewsWanted:
    """What a class of strategies overrides, and so wants to be told."""

    trades: bool
    states: bool

    @classmethod
    def of(cls, kind: type) -> "NewsWanted":
        """What a class wants: what is not as its first base that has it."""
        return cls(*(_overrides(kind, name) for name in ("on_trade", "on_book_state")))

    @property
    def any(self) -> bool:
        """Whether there is anything."""
        return self.trades or self.states


def _overrides(kind: type, name: str) -> bool:
    """Whether a method is defined more than once among a class's bases."""
    return sum(name in vars(base) for base in kind.__mro__) > 1


def trades_of(parts: Sequence[Events], instruments: Instruments) -> Iterator[tuple[int, Trade]]:
    """The trades among market events (EVENT[n]), in order, with the places of their instruments."""
    for exchange_time, receive_time, _, _, price, volume, index, _, _, side, *_ in _chosen(parts, _TRADE):
        if not 0 <= index < len(instruments):
            continue
        one = instruments[index]
        yield index, Trade(
            receive_time or exchange_time, one.venue, one.symbol, _AGGRESSORS.get(side, ""),
            one.volume(volume), one.price(price),
        )  # fmt: skip


def states_of(parts: Sequence[Events], instruments: Instruments) -> Iterator[tuple[int, BookStateChange]]:
    """The states of books among market events (EVENT[n]), in order, with the places of their instruments."""
    for exchange_time, receive_time, _, reason, _, state, index, *_ in _chosen(parts, _STATE):
        if 0 <= index < len(instruments) and 0 <= state <= BookState.STALE:
            known = StateReason(reason if 0 <= reason <= max(StateReason) else 0)
            one = instruments[index]
            texts = BookState(state).name.lower(), known.name.lower()
            yield index, BookStateChange(receive_time or exchange_time, one.venue, one.symbol, *texts)


def _chosen(parts: Sequence[Events], action: int) -> Iterator[tuple[int, ...]]:
    """The events of an action, as words."""
    for part in parts:
        for words in _EVENT_WORDS.iter_unpack(part.tobytes()):
            if words[_ACTION] == action:
                yield words


PartitionBy = Literal["symbol", "venue"]
Method = TypeVar("Method", bound=Callable[..., object])

_WATCHES, _TIMERS, _COMPILED = "_on_view", "_on_timer", "_compiled"


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


def compiled(method: Method) -> Method:
    """Makes a method of `on_view` or `on_timer` machine code; see `orderbook.strategies.compiled`."""
    setattr(method, _COMPILED, True)
    setattr(method, WIDENS, True)
    return method


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
        terms: OrderTerms | None = None,
    ) -> int: ...

    def modify(
        self, order_id: int, volume: Number | None, price: Number | None, stop: Number | None = None
    ) -> None: ...

    def cancel(self, order_id: int) -> None: ...

    def look_at_end(self) -> None: ...

    def wake(self, time: int) -> None: ...

    def field(self, name: str) -> float: ...

    def set_field(self, name: str, value: float) -> None: ...


class _Field:
    """A number among the fields of a class with compiled methods, as Python reads and writes it."""

    def __init__(self, name: str, first: float) -> None:
        self.name, self.first = name, first

    def __get__(self, instance: "Strategy | None", kind: type) -> Any:
        return self.first if instance is None else type(self.first)(instance._desk.field(self.name))

    def __set__(self, instance: "Strategy", value: float) -> None:
        instance._desk.set_field(self.name, value)


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

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        if compiled_methods(cls):
            for name, kind in inspect.get_annotations(cls).items():
                first = vars(cls).get(name)
                if kind in _NUMBERS and isinstance(first, int | float):
                    setattr(cls, name, _Field(name, first))

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
        **terms: Unpack[TermsAsked],
    ) -> int:
        """Sends an order to buy; returns its id. What is wrong with it refuses the order.

        volume, price: in the units of the relations, multiples of the lot and the tick; price None is a
        market order. venue: needed where the symbol trades on several. A float is the decimal that its
        repr shows. time_in_force "ioc": what is not filled at once is cancelled; "fok": all of it, where not
        all can be filled at once; "gtc": it rests until it is cancelled, "gtd" until `good_until`.
        post_only: the order is refused where it would be filled at once.

        Further terms, by name; see docs/strategies.md:

        stop: a price; the order waits until the market trades there, or above (a sell order: or below).
        trail: a distance in price; the stop stays that far from the best price since then.
        good_until: a time (ns since 1970 UTC, or a datetime) at the exchange, after which it is cancelled.
        reduce_only: it fills no more than there is of a position to reduce.
        display: an iceberg's volume that others see.
        take_profit, stop_loss: prices of two orders to close what this one has filled, once it is done; what
        one fills the other loses. Their ids follow this order's, take_profit's first.
        oco: the id of another open order of the instrument; what one fills the other loses.
        """
        return self._desk.place(
            "buy",
            symbol,
            volume,
            price,
            venue,
            time_in_force,
            post_only,
            terms_of(**terms) if terms else None,
        )

    def sell(
        self,
        symbol: str,
        volume: Number,
        price: Number | None = None,
        venue: str | None = None,
        *,
        time_in_force: TimeInForce = "gtc",
        post_only: bool = False,
        **terms: Unpack[TermsAsked],
    ) -> int:
        """Sends an order to sell; see `buy`."""
        return self._desk.place(
            "sell", symbol, volume, price, venue, time_in_force, post_only,
            terms_of(**terms) if terms else None,
        )  # fmt: skip

    def hold(self, symbol: str, target: Number, venue: str | None = None) -> None:
        """Buys or sells at market what is missing to a position, as far as it is known.

        target: in the relation's units; a float is the decimal that its repr shows.
        """
        wanted = target if isinstance(target, Decimal) else Decimal(str(target))
        change = wanted - self.position(symbol)
        if change > 0:
            self.buy(symbol, change, venue=venue)
        elif change < 0:
            self.sell(symbol, -change, venue=venue)

    def modify(
        self,
        order_id: int,
        volume: Number | None = None,
        price: Number | None = None,
        stop: Number | None = None,
    ) -> None:
        """Gives an order that rests another volume, what is filled included, or another price; one that waits
        also another stop.

        It keeps its place in the queue only if nothing but its volume gets less. Without effect where nothing
        of the order rests; what is wrong is the `reason` of the order, which stays as it was.
        """
        self._desk.modify(order_id, volume, price, stop)

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
    # The names of arguments are constants, too, which nothing loads.
    steps = (step for part in parts for step in dis.get_instructions(part))
    constants: list[Any] = [step.argval for step in steps if step.opname == "LOAD_CONST"]
    constants += [one for own in constants if isinstance(own, tuple | frozenset) for one in own]
    return {one for one in constants if isinstance(one, str) and one.isidentifier()}


def compiled_methods(kind: type) -> tuple[str, ...]:
    """The names of the compiled methods of a class and its bases."""
    names = dict.fromkeys(name for base in reversed(kind.__mro__) for name in vars(base))
    return tuple(name for name in names if getattr(getattr(kind, name, None), _COMPILED, False))


def fields_of(kind: type) -> dict[str, float]:
    """The fields that compiled methods of a class read and write, and their first values."""
    found = {}
    for base in reversed(kind.__mro__):
        found.update({name: one.first for name, one in vars(base).items() if isinstance(one, _Field)})
    return found


def stored_attributes(kind: type) -> frozenset[str]:
    """The attributes that methods of a class and its bases assign, of whatever."""
    functions = (one for base in kind.__mro__ for one in vars(base).values() if isinstance(one, FunctionType))
    return frozenset(
        step.argval for one in functions for step in dis.get_instructions(one) if step.opname == "STORE_ATTR"
    )


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


def timers_in_python(kind: type[Strategy]) -> tuple[str, ...]:
    """The methods of a class with timers that the loop does not call.

    It calls all or none: they are called in their order, and after trades.
    """
    timers, own = tuple(timer.method for timer in timers_of(kind)), compiled_methods(kind)
    in_loop = kind.on_trade is Strategy.on_trade and set(timers) <= set(own)
    return () if in_loop else timers


def fills_in_python(kind: type[Strategy]) -> bool:
    """Whether Python tells a class of its fills."""
    return kind.on_fill is not Strategy.on_fill and "on_fill" not in compiled_methods(kind)


_PACKAGE = __name__.rpartition(".")[0]
# Modules that ship are called `strategies.sobi`, as their files are.
_SHIPPED = "strategies."


@dataclass(frozen=True, slots=True)
class StrategyDefinition:
    """A strategy to run: its class, the parameters that its configuration sets, and what it is called where
    one class runs several times."""

    kind: type[Strategy]
    parameters: Mapping[str, Parameter] = field(default_factory=lambda: MappingProxyType({}))
    label: str | None = None

    @property
    def name(self) -> str:
        """What names the strategy everywhere: its label, else the class's name."""
        return self.label or self.kind.__name__

    @property
    def partition_by(self) -> PartitionBy | None:
        """What the class is partitioned by. Raises ConfigurationError for what it cannot be."""
        column = self.kind.partition_by
        if column is not None and column not in get_args(PartitionBy):
            known = " or ".join(map(repr, get_args(PartitionBy)))
            raise ConfigurationError(f"{self.name}: partition_by = {column!r}; give {known}, or None")
        return column

    def refusal_of(self, parameter: str) -> str | None:
        """Why the class has no parameter of this name; None where it has."""
        named = parameters_named(self.kind)
        if parameter in named or any(fnmatchcase(parameter, one) for one in self.kind.accepts):
            return None
        return f"{self.kind.__name__} has no such parameter; {suggestion(parameter, named)}"

    @property
    def views(self) -> tuple[str, ...]:
        """The views that the class watches or reads. Raises ConfigurationError where `reads` names none."""
        reads = self.kind.reads
        if not isinstance(reads, tuple) or not all(isinstance(name, str) for name in reads):
            raise ConfigurationError(f'{self.name}: reads = {reads!r}; give names of views, as in ("touch",)')
        return tuple(dict.fromkeys([*(watch.view for watch in watches_of(self.kind)), *reads]))


def load_strategy(text: str, parameters: Mapping[str, Parameter] | None = None) -> StrategyDefinition:
    """The strategy `MODULE:CLASS`, its module found as Python finds it or in the working folder.

    Raises ConfigurationError where there is no such module or class, the module raises, the class is not a
    Strategy, or has no such parameter, naming the nearest there is.
    """
    definition = StrategyDefinition(_kind(text), MappingProxyType(dict(parameters or {})))
    for name in definition.parameters:
        if (why := definition.refusal_of(name)) is not None:
            raise ConfigurationError(f"strategy {text!r}: {name}: {why}")
    return definition


def _kind(text: str) -> type[Strategy]:
    module_name, colon, class_name = text.partition(":")
    if not (module_name and colon and class_name):
        raise ConfigurationError(f"strategy {text!r}: expected MODULE:CLASS, such as strategies.sobi:Sobi")
    module = _module(text, module_name)
    found = getattr(module, class_name, None)
    if isinstance(found, type) and issubclass(found, Strategy) and found is not Strategy:
        return found
    near = suggestion(class_name, _strategies(module))
    if found is not None:
        raise ConfigurationError(
            f"strategy {text!r}: {class_name} is no class derived from orderbook.Strategy; {near}"
        )
    raise ConfigurationError(f"strategy {text!r}: {module_name} has no class {class_name!r}; {near}")


def _module(text: str, name: str) -> ModuleType:
    folder = Path.cwd()
    try:
        return imported(name, [folder], _modules, _full_name(name, folder))
    except UserError as error:
        raise ConfigurationError(f"strategy {text!r}: {error}") from error.__cause__


def _full_name(name: str, folder: Path) -> str:
    """What a module is imported as: a user's own file stands before one of this package with its name."""
    if not name.startswith(_SHIPPED) or name.count(".") > 1:
        return name
    full = f"{_PACKAGE}.{name.removeprefix(_SHIPPED)}"
    shipped, own = importlib.util.find_spec(full), folder.joinpath(*name.split(".")).with_suffix(".py")
    if shipped is None or shipped.origin is None:
        return name
    return name if own.exists() and not own.samefile(shipped.origin) else full


def _modules() -> Iterable[str]:
    """Modules that may hold strategies: those of this package that ship one, and the working folder's."""
    package = importlib.import_module(_PACKAGE)
    for found in pkgutil.iter_modules(package.__path__):
        module = importlib.import_module(f"{_PACKAGE}.{found.name}")
        if _strategies(module):
            yield f"{_SHIPPED}{found.name}"
    yield from (path.stem for path in sorted(Path.cwd().glob("*.py")))


def _strategies(module: ModuleType) -> list[str]:
    """The names of the strategies that a module has."""
    return [
        name
        for name, value in vars(module).items()
        if isinstance(value, type) and issubclass(value, Strategy) and value is not Strategy
    ]


def _called(kind: type[Strategy]) -> Iterable[str]:
    """The names of the methods that are called."""
    yield from (watch.method for watch in watches_of(kind))
    yield from (timer.method for timer in timers_of(kind))
    yield from (name for name in vars(Strategy) if name.startswith("on_"))


def check_relations(program: CompiledProgram, strategies: Iterable[StrategyDefinition]) -> None:
    """Raises ConfigurationError for two strategies of one name, one with a method that would have to be
    awaited, or if views declare their relations."""
    strategies = list(strategies)
    for one in strategies:
        for name in _called(one.kind):
            if inspect.iscoroutinefunction(getattr(one.kind, name)):
                raise ConfigurationError(
                    f"{one.name}.{name} is async, and nothing awaits it; make it `def {name}`"
                )
    names = [strategy.name for strategy in strategies]
    for name in names:
        if names.count(name) > 1:
            raise ConfigurationError(f"two strategies are called {name}; rename a class")
    relations = {relation.name: relation for relation in program.relations}
    kept = {"orders": ORDER_COLUMNS, "fills": FILL_COLUMNS, "positions": POSITION_COLUMNS}
    for name, columns in kept.items():
        if names and tuple(column.name for column in relations[name].columns) != columns:
            raise ConfigurationError(
                f"the views declare a relation {name} of their own, where strategies keep theirs; rename it"
            )
