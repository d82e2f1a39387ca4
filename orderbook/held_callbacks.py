"""Callbacks that wait for their books, as a checkpoint keeps them."""

import msgspec

from engine.live_view import ViewLayout, ViewRow
from orderbook.exact_messagepack import packed, unpacked

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
