"""History of views: what rows became, and when, as arrays that are decoded when they are looked at."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

import numpy as np

from engine.live_view import Key, ViewLayout, ViewRow
from engine.row_format import RowFormat, UnpackedRow, unpacker

# When a look is taken: (stamp, switch, sequence), see `Granularity`.
LOOK = np.dtype([("stamp", "<i8"), ("switch", "<i8"), ("sequence", "<i8")])


@dataclass(frozen=True, slots=True)
class Granularity:
    """When views are looked at; a row that changed since the look before has a history row then.

    event, message: at the end of each; the version is that of the event, or of the message's last event.
    interval: at the end of every `length` ns of stamps, counted from 1970; the version is (that end, 0, 0).
    end: when nothing comes any more; the version is (0, 0, 0), and every row that is there has one.
    """

    unit: Literal["event", "message", "interval", "end"]
    length: int = 0

    def units(self, versions: np.ndarray) -> list[np.ndarray]:
        """Columns, each [n], that together tell the unit that every version, VERSION[n], belongs to."""
        match self.unit:
            case "event":
                return [versions["stamp"], versions["switch"], versions["sequence"]]
            case "message":
                return [versions["stamp"], versions["switch"], versions["last"]]
            case "interval":
                return [versions["stamp"] // self.length]
            case _:
                return []

    def looks(self, versions: np.ndarray) -> np.ndarray:
        """The versions of the looks, LOOK[n], that end the units of VERSION[n]."""
        looks = np.zeros(len(versions), LOOK)
        match self.unit:
            case "interval":
                looks["stamp"] = (versions["stamp"] // self.length + 1) * self.length
            case "event" | "message" as unit:
                looks["stamp"], looks["switch"] = versions["stamp"], versions["switch"]
                looks["sequence"] = versions["sequence" if unit == "event" else "last"]
        return looks

    def over(self, version: np.void, until: int | None) -> bool:
        """Whether the unit of a version is over where all that comes has a stamp of `until` or more."""
        if until is None:
            return True
        if self.unit == "interval":
            return (int(version["stamp"]) // self.length + 1) * self.length <= until
        return self.unit != "end" and int(version["stamp"]) < until


@dataclass(frozen=True, slots=True)
class History:
    """n history rows of one view, in the order of their looks.

    looks: LOOK[n]. keys: int64[n, k] and rows: int64[n, w], laid out as in engine.recorded.Records: a row
    that is gone has 0 in rows[:, 0], else that is its multiplicity.
    """

    view: str
    looks: np.ndarray
    keys: np.ndarray
    rows: np.ndarray

    def __len__(self) -> int:
        return len(self.looks)

    def entries(self, layout: ViewLayout) -> Iterator[tuple[tuple[int, int, int], Key, ViewRow | None]]:
        """Version, key and row (None: gone) as users see them; a column is decoded when it is asked for."""
        form = RowFormat(layout.result)
        unpack_key, unpack_row = unpacker(form.key), unpacker(form.row)
        keys, rows = np.ascontiguousarray(self.keys), np.ascontiguousarray(self.rows)
        key_bytes, row_bytes = keys.tobytes(), rows.tobytes()
        key_size, row_size = 8 * keys.shape[1], 8 * rows.shape[1]
        for place, version in enumerate(self.looks.tolist()):
            key = layout.key(form.decoded_key(unpack_key(key_bytes, place * key_size)))
            row = UnpackedRow(unpack_row(row_bytes, place * row_size), form.columns)
            yield version, key, layout.row(row) if row.count else None
