"""Widgets of notebooks that show a view as it changes: its rows, a ladder, and a heat map of books.

A widget looks at its view when that has changed, on the engine's thread, at most `rate` times a second, so
that it costs an engine little however fast events come. What came last is shown when the notebook's loop has
time again.
"""

import asyncio
from collections import deque
from collections.abc import Mapping, Sequence
from contextlib import suppress
from decimal import Decimal
from importlib.resources import files
from itertools import islice
from time import monotonic
from typing import Any

from orderbook.core.errors import DataError, extra
from orderbook.core.units import moment_text, value_text
from orderbook.engine.runtime.live_view import LiveView, ViewRow, column_types
from orderbook.views.types import Kind

with extra("notebook", "anywidget"):
    import anywidget
    import traitlets

_SCRIPT = (files("orderbook") / "clients" / "widgets.js").read_text()
# Of a view without ORDER BY beyond this, some rows are shown, whichever come first.
_MOST_SORTED = 10_000
# Columns of a heat map that are kept.
_KEPT = 600
_LADDER = ("side", "price", "volume")


class _Watching(anywidget.AnyWidget):
    """A widget of one view. `refresh` shows it now; `close` ends it."""

    _esm = _SCRIPT
    kind = traitlets.Unicode().tag(sync=True)
    title = traitlets.Unicode().tag(sync=True)
    _subscription: Any = None

    def __init__(self, view: LiveView, rate: float, title: str, **traits: Any) -> None:
        if rate <= 0:
            raise DataError(f"rate={rate}: give how many times a second it may change, as 4")
        super().__init__(title=title, **traits)
        self._view, self._pause = view, 1 / rate
        self._shown, self._waiting = 0.0, False
        self._subscription = view.subscribe(self._changed)
        self.refresh()

    def refresh(self) -> None:
        """Show the view as it is."""
        self._shown = monotonic()
        self._show()

    def close(self) -> None:
        """Follow the view no more."""
        if self._subscription is not None:
            self._subscription.cancel()
        super().close()

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.title}>"

    def _show(self) -> None:
        raise NotImplementedError

    def _changed(self, _: object) -> None:
        left = self._shown + self._pause - monotonic()
        if left <= 0:
            self.refresh()
        elif not self._waiting:
            # Without a loop in this thread what came last is shown with the next change.
            with suppress(RuntimeError):
                asyncio.get_running_loop().call_later(left, self._later)
                self._waiting = True

    def _later(self) -> None:
        self._waiting = False
        # The view may have been dropped, or the widget closed.
        if self._subscription.active:
            with suppress(DataError):
                self.refresh()


class LiveTable(_Watching):
    """The rows of a view, by its ORDER BY, else by key."""

    columns: Any = traitlets.List().tag(sync=True)
    rows: Any = traitlets.List().tag(sync=True)
    count = traitlets.Int().tag(sync=True)

    def __init__(self, view: LiveView, rows: int, rate: float) -> None:
        self._most = rows
        super().__init__(view, rate, view.name, kind="table")

    def _show(self) -> None:
        view, count = self._view, len(self._view)
        if view.layout.shown_by or count > _MOST_SORTED:
            found = [row for _, row in islice(view.pairs(), self._most)]
        else:
            by_key = sorted(view.pairs(), key=lambda pair: [(v is not None, str(v)) for v in pair[0]])
            found = [row for _, row in by_key[: self._most]]
        with self.hold_sync():
            self.columns, self.count = list(view.columns), count
            self.rows = [_texts(row) for row in found]


def _texts(row: ViewRow) -> list[str]:
    kinds = [one.kind for one in column_types(row)]
    return [
        moment_text(value) if kind is Kind.TIMESTAMP and isinstance(value, int) else value_text(value)
        for value, kind in zip(row.values(), kinds, strict=True)
    ]


Level = tuple[Decimal, Decimal]


class _Book:
    """The levels of one book in a view with columns `side` (bid or ask), `price` and `volume`."""

    def __init__(self, view: LiveView, of: Mapping[str, object]) -> None:
        lacking = [name for name in (*_LADDER, *of) if name not in view.columns]
        if lacking:
            raise DataError(
                f"view {view.name} has no column {lacking[0]}; a ladder and a heat map need a row for each "
                f"level, with {', '.join(_LADDER)}, and what tells books apart"
            )
        self._view, self._of = view, dict(of)

    def sides(self, depth: int) -> tuple[list[Level], list[Level]]:
        """The best so many bids and asks, best first; of several books the volumes of a price together."""
        sides: dict[str, dict[Decimal, Decimal]] = {"bid": {}, "ask": {}}
        for row in self._view.values():
            if any(row[name] != value for name, value in self._of.items()):
                continue
            side, price, volume = str(row["side"]), row["price"], row["volume"]
            levels = sides.get(side.lower().removesuffix("s"))
            if levels is None:
                raise DataError(f"view {self._view.name}: side is bid or ask, not {side!r}")
            if price is not None and volume:
                price, volume = Decimal(str(price)), Decimal(str(volume))
                levels[price] = levels.get(price, Decimal(0)) + volume * row.multiplicity
        bids, asks = sides["bid"], sides["ask"]
        return (
            [(price, bids[price]) for price in sorted(bids, reverse=True)[:depth]],
            [(price, asks[price]) for price in sorted(asks)[:depth]],
        )


class Ladder(_Watching):
    """The levels around the touch of one book."""

    bids: Any = traitlets.List().tag(sync=True)
    asks: Any = traitlets.List().tag(sync=True)

    def __init__(self, view: LiveView, depth: int, rate: float, of: Mapping[str, object]) -> None:
        self._book, self._depth = _Book(view, of), depth
        super().__init__(view, rate, _title(view, of), kind="ladder")

    def _show(self) -> None:
        bids, asks = self._book.sides(self._depth)
        with self.hold_sync():
            self.bids, self.asks = _told(bids), _told(asks)


def _told(levels: Sequence[Level]) -> list[list[str]]:
    return [[value_text(price), value_text(volume)] for price, volume in levels]


class HeatMap(_Watching):
    """Volume by price over time, around the touch of one book: a column for each look."""

    def __init__(self, view: LiveView, depth: int, rate: float, of: Mapping[str, object]) -> None:
        self._book, self._depth = _Book(view, of), depth
        self._columns: deque[list[list[float]]] = deque(maxlen=_KEPT)
        super().__init__(view, rate, _title(view, of), kind="heat")
        self.on_msg(self._asked)

    @property
    def history(self) -> list[list[list[float]]]:
        """For each look, oldest first, its bids and its asks: price, volume, price, volume, …"""
        return list(self._columns)

    def _show(self) -> None:
        sides = self._book.sides(self._depth)
        column = [[float(value) for level in side for value in level] for side in sides]
        self._columns.append(column)
        self.send({"columns": [column]})

    def _asked(self, _: object, content: Mapping[str, Any], __: object) -> None:
        # A page that shows it anew has nothing of before.
        if content.get("all"):
            self.send({"columns": self.history, "all": True})


def _title(view: LiveView, of: Mapping[str, object]) -> str:
    return " ".join([view.name, *map(str, of.values())])


def live(view: LiveView, rows: int = 20, rate: float = 4.0) -> LiveTable:
    """A table of a view that changes with it: `orderbook.live(engine["sobi"])`.

    rows: how many of them are shown. rate: how many times a second it changes at most. Raises DataError for
    a rate that is none, UserError where anywidget is not installed.
    """
    return LiveTable(view, rows, rate)


def ladder(view: LiveView, depth: int = 10, rate: float = 4.0, **of: object) -> Ladder:
    """The ladder of a book that changes with it: `orderbook.ladder(engine["levels"], symbol="BTC-USD")`.

    view: has a row for each level, with columns `side` (bid or ask), `price`, `volume`. of: which rows, by
    other columns. depth: levels of a side. Raises DataError for another view, else as `live`.
    """
    return Ladder(view, depth, rate, of)


def heat_map(view: LiveView, depth: int = 20, rate: float = 4.0, **of: object) -> HeatMap:
    """The volume at prices over time; see `ladder`."""
    return HeatMap(view, depth, rate, of)
