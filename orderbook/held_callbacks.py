"""Callbacks that wait for their books, as a checkpoint keeps them."""

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec


class SavedRow(Mapping[str, Any]):
    """A view's row from a checkpoint; see `engine.live_view.ViewRow`."""

    __slots__ = ("_values", "multiplicity")

    def __init__(self, values: Mapping[str, Any], multiplicity: int) -> None:
        self._values = dict(values)
        self.multiplicity = multiplicity

    def __getitem__(self, name: str) -> Any:
        return self._values[name]

    def __getattr__(self, name: str) -> Any:
        if name not in SavedRow.__slots__ and name in self._values:
            return self._values[name]
        raise AttributeError(f"the row has no column {name!r}")

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)


class HeldEvent(msgspec.Struct, frozen=True):
    """The first event that was held of a row, by the number of its subscription.

    `key` and `old`, a row's values and multiplicity, are packed.
    """

    subscription: int
    view: str
    key: bytes
    old: bytes | None
    version: tuple[int, int, int]
