"""The rows of a view that one instance of a partitioned strategy sees."""

from collections.abc import Iterator, Mapping

from engine.engine import Engine
from engine.live_view import Key, LiveView, ViewRow
from orderbook.errors import DataError
from strategies.strategy import PartitionBy


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
