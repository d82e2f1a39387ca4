"""The state of an engine as a value: what `Engine.save` gives and `Engine.load` takes.

Every array is a copy, or is never written again, so that a state can be written to a file while the engine
goes on. What is derived from maps (indexes, sums of trees, cursors, directories) is made anew.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from engine.map_entries import MapRows
from engine.retention import ExpiringRows
from engine.row_counts import RowCounts
from orderbook.dictionary import Dictionary


@dataclass(frozen=True, slots=True)
class EngineState:
    """An engine between two messages.

    program: its `program_hash`. sequence: events applied. stamp, switch: of the last, see `Engine.at`.
    now: the clock's time, None before the first tick. strings: the dictionary by code; codes in all else
    are places in it. maps: every map once. checked, kept: the rows that `check_rows` and `keep_rows` keep,
    None without. expiring: rows with RETAIN. problems: how often each kind occurred; examples: places of
    the first.
    """

    program: bytes
    sequence: int
    stamp: int | None
    switch: int
    now: int | None
    maps: tuple[MapRows, ...]
    checked: tuple[RowCounts, ...] | None
    kept: tuple[RowCounts, ...] | None
    expiring: tuple[ExpiringRows, ...]
    strings: Sequence[str]
    problems: Mapping[str, int]
    examples: Mapping[str, Sequence[str]]


def codes_of(dictionary: Dictionary, strings: Sequence[str]) -> np.ndarray | None:
    """For each code in a state what it is in a dictionary, int64[n], new ones given out; None: all stay."""
    codes = dictionary.encode_all(strings)
    return None if np.array_equal(codes, np.arange(len(codes))) else codes
