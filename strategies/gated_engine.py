"""The engine of a run: callbacks fire only while the books behind their row are valid.

Callbacks that wait for their books are kept by checkpoints. Conditions of subscriptions are evaluated on a
row that has been read.
"""

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import msgspec

from orderbook.core.changes import Word
from orderbook.core.files import packed, unpacked
from orderbook.engine.runtime.engine import Engine
from orderbook.engine.runtime.held_rows import Rows, not_kept
from orderbook.engine.runtime.interface import Runtime
from orderbook.engine.runtime.interpreter import scalar_value
from orderbook.engine.runtime.live_view import Key, ViewLayout, ViewRow, words_of
from orderbook.engine.runtime.map_entries import Match
from orderbook.engine.runtime.subscriptions import Fire, Granularity, Subscription, ViewEvent
from orderbook.market.book_relations import filled_relations
from orderbook.market.books import RELATIONS, Books
from orderbook.market.instruments import Instruments
from orderbook.views.calculus import Scalar, Var
from orderbook.views.encoding.rows import Row
from orderbook.views.m3 import column_there
from orderbook.views.program import CompiledProgram

if TYPE_CHECKING:
    from orderbook.engine.plan.statistics import Statistics


class RowCondition:
    """A condition of `Engine.subscribe` on rows of a view, bound once for each program."""

    def __init__(self, view: str, when: str) -> None:
        self._view, self._when = view, when
        self._program: CompiledProgram | None = None
        self._condition: Scalar | None = None

    def holds(self, program: CompiledProgram, row: ViewRow) -> bool:
        """As the program at hand has the view, which may change as views come and go."""
        if program is not self._program:
            self._condition = program.condition(self._view, self._when)
            self._program = program
        return condition_holds(program, self._condition, row)


def condition_holds(program: CompiledProgram, condition: Scalar | None, row: ViewRow) -> bool:
    """Whether a condition that is bound, as `Watch` has it (None: always), holds of a row of its view."""
    held = words_of(row)
    if condition is None or held is None:
        return True
    environment: dict[Var, Word] = {}
    for name, word in zip(row, held.columns, strict=True):
        value, there = _variables(name)
        environment[value], environment[there] = word, int(word is not None)
    return bool(scalar_value(condition, environment, program.dictionary))


@lru_cache(1 << 12)
def _variables(column: str) -> tuple[Var, Var]:
    """What stands for a column in a condition, and for whether it is not NULL."""
    return Var(column), column_there(column)


# Whose a subscription is, its view, condition, granularity and firing, and which of several such it is.
Identity = tuple[str, str, str | None, str, str, int]


class HeldEvent(msgspec.Struct, frozen=True):
    """The first event that was held of a row, of a subscription; `key` and `old` are packed."""

    subscription: Identity
    view: str
    key: bytes
    old: bytes | None
    version: tuple[int, int, int]


def save_row(row: ViewRow | None) -> bytes | None:
    """A view's row: its values and multiplicity."""
    return None if row is None else packed((row, row.multiplicity))


def load_row(data: bytes | None, layout: ViewLayout) -> ViewRow | None:
    """The row of `save_row`; raises ValueError where the view has no such row any more."""
    return None if data is None else layout.row_of(*unpacked(data))


# Keys of equal names are told apart by a number: symbol, symbol_2.
_KEY = re.compile(r"(symbol|venue)(_\d+)?")


_Callback = Callable[[Any], object]


def _ignore(*_: object) -> None:
    """Nobody watches."""


class GatedEngine(Engine):
    """Holds back what happens to a row while a book behind it is syncing or stale.

    The books behind a row are those of the venues and symbols among its keys; without a key `venue` all
    venues count, without a key `symbol` all symbols. What was held of a row is delivered by
    `books_changed` as one event, from the row as it was to the row now, unless the condition does not
    hold any more or nothing has changed. Without books (`watch_books` was not called) nothing is held.
    """

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._fitted: Callable[[], object] = _ignore
        # What was `noted` when books were fitted last.
        self._noted: Sequence[str] = ()
        self.observe()
        self._books: Books | None = None
        self._instruments = Instruments(())
        # The instruments behind rows, by view and the codes of the keys that name them.
        self._behind: dict[tuple[Any, ...], list[int]] = {}
        self._held: dict[tuple[int, object], tuple[_Gated, ViewEvent]] = {}
        # By what a checkpoint names them.
        self._gates: dict[Identity, _Gated] = {}
        # Of several changes of a row only the last is told, when `books_changed` is called.
        self.conflating = False
        self._fit_program(self.program)
        # Without it no view will be added, and what strategies insert that none reads goes nowhere.
        self.grows = True

    def observe(
        self,
        *,
        callback: Callable[[ViewEvent], object] = _ignore,
        order: Callable[[Mapping[str, Any]], object] = _ignore,
        fill: Callable[[Mapping[str, Any]], object] = _ignore,
    ) -> None:
        """Who is told from now on.

        callback: of each event before its callback. order: of the row of each order that a strategy places,
        and of each change of it. fill: of the row of each fill.
        """
        self.called_back, self._ordered, self._filled = callback, order, fill

    def watch_books(
        self, books: Books, instruments: Instruments, fit: Callable[[], object] = _ignore
    ) -> None:
        """From now on callbacks wait for these books; `fit` is called when views are added or dropped."""
        self._books, self._instruments, self._fitted = books, instruments, fit
        self._behind.clear()

    def subscribe(
        self,
        view: str,
        callback: _Callback,
        when: str | None = None,
        on: Granularity = "message",
        fire: Fire = "edge",
        *,
        ignores: Callable[[Key], bool] | None = None,
        owner: str = "",
    ) -> Subscription:
        """See `Engine.subscribe`.

        owner: whose subscription it is, by which a checkpoint tells it from others of the view.
        """
        gated = _Gated(self, callback)
        gated.subscription = super().subscribe(view, gated, when, on, fire, ignores=ignores)
        number = sum(one[:5] == (owner, view, when, on, fire) for one in self._gates)
        gated.identity = owner, view, when, on, fire, number
        self._gates[gated.identity] = gated
        return gated.subscription

    def follow(
        self, view: str, callback: _Callback, when: str | None, on: Granularity, fire: Fire
    ) -> Subscription:
        """See `Engine.follow`; it waits for its books like every other, unseen by `observe`."""
        gated = _Gated(self, callback, noted=False)
        gated.subscription = super().subscribe(view, gated, when, on, fire)
        return gated.subscription

    def watch_rows(self, view: str, callback: _Callback) -> Subscription:
        """Calls back after every message with each row of a view that it changed, valid books or not."""
        return super().subscribe(view, callback)

    def insert(self, relation: str, row: Row) -> None:
        """See `Engine.insert`."""
        if self._keeps(relation):
            super().insert(relation, row)
        if relation == "orders" and isinstance(row, Mapping):
            self._ordered(row)
        elif relation == "fills" and isinstance(row, Mapping):
            self._filled(row)

    def update(self, relation: str, old: Row, new: Row) -> None:
        """See `Engine.update`."""
        if self._keeps(relation):
            super().update(relation, old, new)
        if relation == "orders" and isinstance(new, Mapping):
            self._ordered(new)

    @property
    def unobserved(self) -> bool:
        """Whether nobody is told of each callback, order or fill."""
        observers = self.called_back, self._ordered, self._filled
        return not self.conflating and all(one is _ignore for one in observers)

    def takes(self, relation: str) -> bool:
        """Whether rows of what strategies keep go anywhere; where not, they need not be inserted."""
        observed = {"orders": self._ordered, "fills": self._filled}.get(relation, _ignore)
        return observed is not _ignore or self._keeps(relation)

    def _keeps(self, relation: str) -> bool:
        """Whether a view reads a relation, or one that does may come."""
        return self.grows or self.keeps_rows or relation in self._read

    def rows_source(self, relation: str) -> Callable[[], Rows]:
        """See `Engine.rows_source`; what books give out and no view reads is not kept unless asked for."""
        kept = relation in self._read or self.keeps_rows
        filled = relation in RELATIONS and relation in filled_relations(self.program.program)
        if self._books is not None and filled and not kept:
            raise not_kept(relation)
        return super().rows_source(relation)

    def become(
        self,
        program: CompiledProgram,
        runtime: Runtime,
        matches: Mapping[str, Match],
        statistics: "Statistics | None",
    ) -> None:
        """See `Engine.become`."""
        super().become(program, runtime, matches, statistics)
        self._fit_program(program)
        self._fitted()

    def replacements_changed(self) -> None:
        """See `Engine.replacements_changed`."""
        super().replacements_changed()
        if self.noted != self._noted:
            self._noted = self.noted
            self._fitted()

    def _fit_program(self, program: CompiledProgram) -> None:
        self._key_places, self._read = _key_places(program), _read(program)
        self._code_places = {
            name: [self[name].layout.order[place] for _, place in places]
            for name, places in self._key_places.items()
        }
        self._behind.clear()

    @property
    def books_valid(self) -> bool:
        """Whether all books are valid."""
        return self._books is None or self._books.all_valid

    def valid(self, event: ViewEvent) -> bool:
        """Whether all books behind the event's row are valid."""
        books = self._books
        if books is None or books.all_valid:
            return True
        codes, view = event.codes, event.view
        own = view, *[codes[place] for place in self._code_places[view]]
        behind = self._behind.get(own)
        if behind is None:
            behind = self._behind[own] = self._instruments_behind(event)
        return all(map(books.is_valid, behind))

    def hold(self, gated: "_Gated", event: ViewEvent) -> None:
        """Keep what happened to a row for `books_changed`."""
        self._held.setdefault((id(gated), event.key), (gated, event))

    def save_held(self) -> list[HeldEvent]:
        """What is held, for a checkpoint."""
        return [
            HeldEvent(gated.identity, first.view, packed(first.key), save_row(first.old), first.version)
            for gated, first in self._held.values()
            if gated.identity is not None and gated.subscription.active
        ]

    def load_held(self, saved: Sequence[HeldEvent], views: Collection[str] | None = None) -> int:
        """Goes on from `save_held`; how much of it was of subscriptions that this engine has not.

        views: those whose rows mean what they meant then; None: all.
        """
        lost = 0
        for one in saved:
            gated = self._gates.get(one.subscription)
            try:
                if gated is None or (views is not None and one.view not in views):
                    raise KeyError(one.subscription)
                layout, key = gated.subscription.layout, tuple(unpacked(one.key))
                first = ViewEvent.between(layout, key, load_row(one.old, layout), None, one.version)
            except (KeyError, ValueError):
                lost += 1
            else:
                self._held[id(gated), key] = (gated, first)
        return lost

    def books_changed(self) -> None:
        """Deliver what was held of rows whose books are valid now."""
        for place, (gated, first) in list(self._held.items()):
            if not gated.subscription.active:
                del self._held[place]
            elif self.valid(first):
                del self._held[place]
                key, new = first.key, self[first.view].get(first.key)
                layout = gated.subscription.layout
                gated.deliver(ViewEvent.between(layout, key, first.old, new, self.version))

    def _instruments_behind(self, event: ViewEvent) -> list[int]:
        """The instruments of the venues and symbols among the row's keys; of all where it names none."""
        found: dict[str, set[Any]] = {"venue": set(), "symbol": set()}
        for name, place in self._key_places[event.view]:
            found[name].add(event.key[place])
        venues, symbols = found["venue"], found["symbol"]
        return [
            index
            for index, one in enumerate(self._instruments)
            if (not venues or one.venue in venues) and (not symbols or one.symbol in symbols)
        ]


class _Gated:
    """A callback that waits for its row's books."""

    __slots__ = ("_callback", "_engine", "_noted", "identity", "subscription")

    subscription: Subscription
    identity: Identity | None

    def __init__(self, engine: GatedEngine, callback: _Callback, noted: bool = True) -> None:
        self.identity = None
        self._engine = engine
        self._callback = callback
        self._noted = noted

    def __call__(self, event: ViewEvent) -> None:
        engine = self._engine
        if engine.conflating or not engine.valid(event):
            engine.hold(self, event)
            return
        if self._noted and engine.called_back is not _ignore:
            engine.called_back(event)
        self._callback(event)

    def deliver(self, event: ViewEvent) -> None:
        """Call back outside of the engine's own loop, if there still is something to tell."""
        if not self.subscription.active or not self._tells(event):
            return
        try:
            if self._noted:
                self._engine.called_back(event)
            self._callback(event)
        except Exception as error:
            self._engine.failed(self.subscription, error)

    def _tells(self, event: ViewEvent) -> bool:
        condition, new = self.subscription.watch.condition, event.new
        if self.subscription.when is None:
            return event.old != new
        return new is not None and condition_holds(self._engine.program, condition, new)


def _key_places(program: CompiledProgram) -> dict[str, list[tuple[str, int]]]:
    """For each view the keys that name a venue or symbol, and their places."""
    return {
        view.name: [(match[1], i) for i, key in enumerate(view.keys) if (match := _KEY.fullmatch(key.name))]
        for view in program.views
    }


def _read(program: CompiledProgram) -> set[str]:
    """The relations that views read."""
    return {trigger.relation for trigger in program.program.triggers}
