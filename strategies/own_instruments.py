"""What of a run an instance of a strategy sees: its instruments, and its rows of views."""

from collections.abc import Iterator, Mapping

from orderbook.core.errors import DataError
from orderbook.engine.runtime.engine import Engine
from orderbook.engine.runtime.live_view import Key, LiveView, ViewRow
from orderbook.engine.runtime.subscriptions import ViewEvent
from orderbook.market.instruments import Instrument, Instruments
from orderbook.strategies.strategy import PartitionBy


def key_place(engine: Engine, view: str, column: PartitionBy) -> int | None:
    """Where the keys of a view's rows have the column; None where they lack it, or have two."""
    names = next((v.keys for v in engine.program.views if v.name == view), ())
    places = [place for place, key in enumerate(names) if key.name == column]
    both = any(key.name.startswith(f"{column}_") for key in names)
    return places[0] if places and not both else None


class OwnRows(Mapping[Key, ViewRow]):
    """The rows of a view that belong to one partition. Raises DataError where rows have no such key."""

    def __init__(self, engine: Engine, view: LiveView, column: PartitionBy, key: str) -> None:
        place = key_place(engine, view.name, column)
        if place is None:
            raise DataError(f"view {view.name}: a strategy by {column} sees views with it among their keys")
        self._view, self._place, self._key = view, place, key

    def __getitem__(self, key: Key) -> ViewRow:
        parts = key if isinstance(key, tuple) else (key,)
        if len(parts) <= self._place or parts[self._place] != self._key:
            raise KeyError(key)
        return self._view[key]

    def __iter__(self) -> Iterator[Key]:
        return (key for key in self._view if key[self._place] == self._key)

    def __len__(self) -> int:
        return sum(1 for _ in self)


class OwnInstruments:
    """The instruments of an instance: of a partition, `key` by its `column`, those of its symbol or venue,
    else all. `indexes` are theirs among all of the run."""

    def __init__(
        self, engine: Engine, instruments: Instruments, column: PartitionBy | None, key: str | None
    ) -> None:
        self.all, self.column, self.key = instruments, column, key
        self._engine = engine
        self.indexes = [index for index, one in enumerate(instruments) if self.sees(one)]
        # By symbol and venue, and those of rows, by view and key.
        self._places: dict[tuple[str, str | None], int] = {}
        self._of_rows: dict[tuple[object, ...], int | None] = {}

    def sees(self, one: Instrument) -> bool:
        """Whether messages of an instrument are its own."""
        return self.key is None or self.key == (one.symbol if self.column == "symbol" else one.venue)

    @property
    def only(self) -> int | None:
        """The index of the one that there is; None where there are several."""
        return self.indexes[0] if len(self.indexes) == 1 else None

    def rows(self, view: str) -> Mapping[Key, ViewRow]:
        """Its rows of a view. Raises DataError as OwnRows does."""
        engine = self._engine
        if self.key is None or self.column is None:
            return engine[view]
        return OwnRows(engine, engine[view], self.column, self.key)

    def of_row(self, event: ViewEvent) -> int | None:
        """The index that a row's venue and symbol name; None where they name none, or several."""
        own = event.view, *event.codes
        if own not in self._of_rows:
            names = [key.name for key in self._engine[event.view].layout.key_columns]
            key = dict(zip(names, event.key, strict=True))
            found = [
                index
                for index, one in enumerate(self.all)
                if key.get("venue", one.venue) == one.venue and key.get("symbol", one.symbol) == one.symbol
            ]
            self._of_rows[own] = found[0] if len(found) == 1 else None
        return self._of_rows[own]

    def index(self, symbol: str, venue: str) -> int | None:
        """The index of an instrument of the run; None where there is none."""
        found = self._places.get((symbol, venue))
        if found is None:
            for index, own in enumerate(self.all):
                if (own.symbol, own.venue) == (symbol, venue):
                    found = self._places[symbol, venue] = index
        return found

    def index_of(self, venue: str, symbol: str) -> int:
        """The index of an instrument of the run, 0 where there is none."""
        found = self.index(symbol, venue)
        return 0 if found is None else found

    def place_of(self, symbol: str, venue: str | None) -> int | None:
        """The index of one of its own by symbol and venue; None where they name none of these. Raises
        DataError as `named` does."""
        self.named(symbol, venue)
        found = self._places[symbol, venue]
        return found if self.sees(self.all[found]) else None

    def named(self, symbol: str, venue: str | None) -> Instrument:
        """The instrument of the run of a symbol, and venue. Raises DataError for none, and for several."""
        place = self._places.get((symbol, venue))
        if place is None:
            found = [
                i for i, one in enumerate(self.all) if one.symbol == symbol and venue in (None, one.venue)
            ]
            if len(found) != 1:
                where = f" on {venue}" if venue else ""
                what = "no instrument" if not found else f"{len(found)} venues, name one, for"
                raise DataError(f"{what} {symbol}{where}")
            place = self._places[symbol, venue] = found[0]
        return self.all[place]
