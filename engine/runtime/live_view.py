"""Views as users read them: a live mapping of keys to rows, decoded when a column is asked for."""

from collections.abc import Callable, ItemsView, Iterator, Mapping, Sequence, ValuesView
from dataclasses import dataclass
from html import escape
from itertools import islice
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from orderbook.core.changes import Dictionary, Word
from orderbook.core.errors import DataError
from orderbook.engine.runtime.interface import PlainRow, Row, Runtime, ViewCopy
from orderbook.views.encoding.values import Value, decoder, encode_value
from orderbook.views.m3 import Result
from orderbook.views.program import CompiledProgram
from orderbook.views.types import Column, Kind, ShownBy, Type

if TYPE_CHECKING:
    import polars as pl

Key = tuple[Value, ...]
Subscribe = Callable[..., Any]
# Rows that a notebook shows.
_SHOWN_ROWS = 10


@dataclass(frozen=True, slots=True)
class ViewLayout:
    """How one view's keys and rows are decoded.

    `order` gives, for each key column as users see it, its place in the runtime's keys; `shown_by` is the
    view's ORDER BY.
    """

    result: Result
    order: tuple[int, ...]
    key_columns: tuple[Column, ...]
    key_decoders: tuple[tuple[int, Callable[[Any], Value]], ...]
    index: Mapping[str, int]
    decoders: tuple[Callable[[Any], Value], ...]
    dictionary: Dictionary
    shown_by: tuple[ShownBy, ...] = ()

    def key(self, key: tuple[Word, ...]) -> Key:
        """A runtime's key as users see it."""
        return tuple([decode(key[i]) for i, decode in self.key_decoders])

    def encode_key(self, key: object) -> tuple[Word, ...]:
        """The runtime's key; raises KeyError for one that no row can have."""
        parts = key if isinstance(key, tuple) else (key,)
        if len(parts) != len(self.order):
            raise KeyError(key)
        words: list[Word] = [None] * len(parts)
        for part, place, column in zip(parts, self.order, self.key_columns, strict=True):
            if column.type.kind is Kind.TEXT and part is not None and part not in self.dictionary:
                raise KeyError(key)
            try:
                words[place] = encode_value(column, part, self.dictionary)
            except ValueError:
                raise KeyError(key) from None
        return tuple(words)

    def row(self, row: Row | None) -> "ViewRow | None":
        return None if row is None else ViewRow(self, row)

    def row_of(self, values: Mapping[str, Value], multiplicity: int) -> "ViewRow":
        """The row with these values by column; raises ValueError for ones that no row of the view has."""
        columns = [Column(c.name, c.type) for c in self.result.columns]
        if values.keys() != self.index.keys():
            raise ValueError(f"view {self.result.name} has other columns now")
        words = tuple(encode_value(column, values[column.name], self.dictionary) for column in columns)
        return ViewRow(self, PlainRow(multiplicity, words))


def view_layout(
    result: Result,
    key_names: tuple[str, ...],
    dictionary: Dictionary,
    shown_by: tuple[ShownBy, ...] = (),
) -> ViewLayout:
    """The layout of a view; `key_names` are its keys in the order users see, `shown_by` its ORDER BY."""
    places = {key.name: place for place, key in enumerate(result.keys)}
    order = tuple(places[name] for name in key_names)
    keys = [result.keys[place] for place in order]
    return ViewLayout(
        result,
        order,
        tuple(Column(k.name, k.type) for k in keys),
        tuple((place, decoder(result.keys[place].type, dictionary)) for place in order),
        {c.name: i for i, c in enumerate(result.columns)},
        tuple(decoder(c.type, dictionary) for c in result.columns),
        dictionary,
        shown_by,
    )


class ViewRow(Mapping[str, Value]):
    """A row of a view as it was when it was read: `row.bid_vwap` or `row["bid_vwap"]`.

    Decimal for DECIMAL, int, float, str, bool, None for NULL; timestamps are int ns since 1970 UTC.
    A column named as a method of Mapping, or `multiplicity`, is reached by item only.
    """

    __slots__ = ("_layout", "_row")

    def __init__(self, layout: ViewLayout, row: Row):
        self._layout = layout
        self._row = row

    @property
    def multiplicity(self) -> int:
        """How many equal rows this one stands for: 1 in a view with aggregates."""
        return self._row.count

    def __getitem__(self, name: str) -> Value:
        layout = self._layout
        place = layout.index[name]
        return layout.decoders[place](self._row.word(place))

    def __getattr__(self, name: str) -> Any:
        if name not in ViewRow.__slots__:
            layout = self._layout
            place = layout.index.get(name)
            if place is not None:
                return layout.decoders[place](self._row.word(place))
        raise AttributeError(f"the row has no column {name!r}")

    def __iter__(self) -> Iterator[str]:
        return iter(self._layout.index)

    def __len__(self) -> int:
        return len(self._layout.index)

    def __repr__(self) -> str:
        return f"{self._layout.result.name}({', '.join(f'{k}={v!r}' for k, v in self.items())})"


def words_of(row: ViewRow | None) -> Row | None:
    """A row as a runtime has it."""
    return None if row is None else row._row


def column_types(row: ViewRow) -> Iterator[Type]:
    """The types of a row's columns, in order."""
    return (column.type for column in row._layout.result.columns)


class LiveView(Mapping[Key, ViewRow]):
    """The rows of a view as of the last change applied, by key; in the view's ORDER BY, if it has one.

    A key is the tuple of the GROUP BY values in their order, `()` for a view of one row; without
    aggregates, of the columns that its rows are made from. A key of one column may be given bare.
    """

    def __init__(self, layout: ViewLayout, runtime: Runtime, subscribe: Subscribe):
        self._layout, self._subscribe = layout, subscribe
        self._held: Runtime | None = runtime

    @property
    def layout(self) -> ViewLayout:
        """How keys and rows are decoded."""
        return self._layout

    @property
    def _runtime(self) -> Runtime:
        if self._held is None:
            raise DataError(f"view {self.name} was dropped")
        return self._held

    def follow(self, layout: ViewLayout, runtime: Runtime) -> None:
        """Goes on with the rows of another runtime."""
        self._layout, self._held = layout, runtime

    def end(self) -> None:
        """The view was dropped: reading it raises DataError from now on."""
        self._held = None

    @property
    def name(self) -> str:
        return self._layout.result.name

    @property
    def columns(self) -> tuple[str, ...]:
        return tuple(self._layout.index)

    def pairs(self) -> Iterator[tuple[Key, ViewRow]]:
        """Keys and rows, all as of the moment the first is asked for."""
        layout = self._layout
        if not layout.shown_by:
            for key, row in list(self._runtime.rows(self.name)):
                yield layout.key(key), ViewRow(layout, row)
            return
        found = [(layout.key(key), ViewRow(layout, row)) for key, row in self._runtime.rows(self.name)]
        yield from in_order(found, layout.shown_by)

    def first(self, count: int = 1) -> list[ViewRow]:
        """The first rows by the view's ORDER BY. Raises DataError for a view without one."""
        return self._ordered()[:count]

    def last(self, count: int = 1) -> list[ViewRow]:
        """The last rows by the view's ORDER BY, the last one first. Raises DataError as `first`."""
        return self._ordered()[::-1][:count]

    def _ordered(self) -> list[ViewRow]:
        if not self._layout.shown_by:
            raise DataError(f"view {self.name} has no ORDER BY, so no row of it is the first")
        return list(self.values())

    def row_words(self) -> NDArray[np.int64]:
        """All rows encoded, in any order: int64[n, words of the key and of the row]; see RowFormat."""
        return self._runtime.row_words(self.name)

    def copy(self) -> ViewCopy | None:
        """A copy of all rows, to be made in pieces; None where `row_words` is as good."""
        return self._runtime.copy_view(self.name)

    def subscribe(self, callback: Callable[[Any], object], when: str | None = None, **how: Any) -> Any:
        """See `Engine.subscribe`."""
        return self._subscribe(self.name, callback, when, **how)

    def frame(self, most: int | None = None) -> "pl.DataFrame":
        """Its rows, see `Engine.frame`; `most`: of a view without ORDER BY so many of them, whichever."""
        from orderbook.views.encoding.frames import view_frame

        layout, found = self._layout, self._runtime.rows(self.name)
        few = found if most is None or layout.shown_by else islice(found, most)
        rows = [row.columns for _, row in few for _ in range(row.count)]
        frame = view_frame(layout.result, rows, layout.dictionary, layout.shown_by)
        return frame if most is None else frame.head(most)

    def __getitem__(self, key: object) -> ViewRow:
        row = self._runtime.row(self.name, self._layout.encode_key(key))
        if row is None:
            raise KeyError(key)
        return ViewRow(self._layout, row)

    def __iter__(self) -> Iterator[Key]:
        return (key for key, _ in self.pairs())

    def __len__(self) -> int:
        return sum(1 for _ in self._runtime.rows(self.name))

    def items(self) -> ItemsView[Key, ViewRow]:
        return _Items(self)

    def values(self) -> ValuesView[ViewRow]:
        return _Values(self)

    def __repr__(self) -> str:
        return f"<view {self.name}({', '.join(self.columns)}): {len(self):,} rows>"

    def _repr_html_(self) -> str:
        """The first rows, for notebooks."""
        count, shown = len(self), self.frame(_SHOWN_ROWS)
        more = f", {len(shown)} of them shown" if count > len(shown) else ""
        return f"<p>view {escape(self.name)}: {count:,} rows{more}</p>{shown._repr_html_()}"


def live_views(
    program: CompiledProgram, runtime: Runtime, before: Mapping[str, LiveView], subscribe: Subscribe
) -> dict[str, LiveView]:
    """The views of a program by name; those there before go on or, where the program lacks them, end.

    subscribe: as `Engine.subscribe`.
    """
    keys = {v.name: tuple(k.name for k in v.keys) for v in program.views}
    views = {}
    for result in program.program.results:
        name = result.name
        layout = view_layout(result, keys[name], program.dictionary, program.order(name))
        known = before.get(name)
        views[name] = LiveView(layout, runtime, subscribe) if known is None else known
        views[name].follow(layout, runtime)
    for name in before.keys() - views.keys():
        before[name].end()
    return views


def in_order(pairs: list[tuple[Key, ViewRow]], shown_by: Sequence[ShownBy]) -> list[tuple[Key, ViewRow]]:
    """Sorts keys and rows by an ORDER BY; equal rows stay in the order they have."""
    for item in reversed(shown_by):
        pairs.sort(key=lambda pair: _place(pair[1][item.name], item), reverse=item.descending)
    return pairs


def _place(value: Any, item: ShownBy) -> tuple[bool, Any]:
    """What a row is sorted by; NULL has a place before or after all values."""
    if value is None:
        return item.nulls_first == item.descending, 0
    return item.nulls_first != item.descending, value


class _Items(ItemsView[Key, ViewRow]):
    _mapping: LiveView

    def __iter__(self) -> Iterator[tuple[Key, ViewRow]]:
        return self._mapping.pairs()


class _Values(ValuesView[ViewRow]):
    _mapping: LiveView

    def __iter__(self) -> Iterator[ViewRow]:
        return (row for _, row in self._mapping.pairs())


def missing_view(name: object, known: Mapping[str, object]) -> DataError:
    return DataError(f"no view {name!r}; the program has {', '.join(known) or 'none'}")
