"""Changes of rows of watched views as arrays, recorded while changes are applied."""

import struct
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import repeat
from typing import Protocol

import numpy as np

from orderbook.errors import ExactnessError
from views.compiler.m3 import Program, Result
from views.compiler.types import Kind

from .changes import END_OF_MESSAGE, ChangeBatch
from .encoding import pack
from .map_entries import recode
from .row_format import RowFormat, UnpackedRow, word_of
from .runtime import Firing, PlainRow, Row, Runtime, Watch, Word

_LOW = (1 << 64) - 1
_HIGHEST = (1 << 63) - 1
_NO_VALUES = np.zeros((1, 1), np.int64)


Unlook = Callable[[int, Sequence[tuple[tuple[Word, ...], Row | None]]], None]


@dataclass(frozen=True, slots=True)
class Recording:
    """A view whose changed rows are recorded: at the end of each message, or of each event."""

    view: str
    per_message: bool


@dataclass(frozen=True, slots=True)
class Records:
    """n changes of rows of one view, in the order of the changes that made them.

    changes: int64[n], the index of the last change that the look took in. keys: int64[n, k], encoded as in
    a ChangeBatch. old, new: int64[n, w], the row at the look before and now as `RowFormat` lays it out: how
    often it stands (0: no row), then for each column whether it is there and its value, an int64 or the
    bits of a double; of 128 bits the low and the high word. A row that stays as it was is not recorded.
    """

    changes: np.ndarray
    keys: np.ndarray
    old: np.ndarray
    new: np.ndarray

    def __len__(self) -> int:
        return len(self.changes)


class Recorder(Protocol):
    """Applies changes to one runtime, whose watches it has taken the place of, and gives what they did."""

    def apply(self, batch: ChangeBatch) -> tuple[Records, ...]:
        """Applies a batch; the Records of every recording, in their order. Raises as Runtime.apply does."""

    def rows(self, view: str) -> tuple[np.ndarray, np.ndarray]:
        """Keys and rows of a view now, laid out as in Records, in any order."""

    def pending(self) -> tuple[Records, ...]:
        """What would be recorded if a message ended here; `changes` mean nothing."""

    def restore(self, pending: Sequence[Records]) -> None:
        """Makes rows differ from the last look as `pending` says: `old` is how that look saw them."""


class FiringRecorder:
    """Records by the firings of unconditional watches, one by one, of any runtime.

    unlook: makes rows of the watch of a number, by key, those that its last look saw.
    """

    def __init__(
        self, runtime: Runtime, program: Program, recordings: Sequence[Recording], unlook: Unlook
    ):
        self._runtime, self._program, self._unlook = runtime, program, unlook
        self._results = [program.result(r.view) for r in recordings]
        runtime.watch([Watch(r.view, None, r.per_message, False) for r in recordings])

    def apply(self, batch: ChangeBatch) -> tuple[Records, ...]:
        """See Recorder."""
        found: list[list[tuple[int, Firing]]] = [[] for _ in self._results]
        done = 0
        while done < len(batch):
            done = self._runtime.apply(batch, done)
            for firing in self._runtime.firings():
                found[firing.watch].append((done - 1, firing))
        return tuple(_records(r, own) for r, own in zip(self._results, found, strict=True))

    def rows(self, view: str) -> tuple[np.ndarray, np.ndarray]:
        """See Recorder."""
        words = self._runtime.row_words(view)
        count = len(self._program.result(view).keys)
        return words[:, :count], words[:, count:]

    def pending(self) -> tuple[Records, ...]:
        """See Recorder."""
        end = ChangeBatch(np.array([-1], np.int16), np.array([END_OF_MESSAGE], np.uint8), _NO_VALUES)
        found = self.apply(end)
        self.restore(found)
        return found

    def restore(self, pending: Sequence[Records]) -> None:
        """See Recorder."""
        for number, (result, records) in enumerate(zip(self._results, pending, strict=True)):
            rows = unpacked(RowFormat(result), records.keys, records.old)
            plain = [(key, PlainRow(row.count, row.columns) if row.count else None) for key, row in rows]
            self._unlook(number, plain)


def unpacked(
    form: RowFormat, keys: np.ndarray, rows: np.ndarray
) -> list[tuple[tuple[Word, ...], UnpackedRow]]:
    """Keys and rows laid out as in Records, as runtimes have them; a row of count 0 is none."""
    key_values = struct.iter_unpack("<" + form.key, keys.tobytes()) if form.key_count else repeat(())
    row_values = struct.iter_unpack("<" + form.row, rows.tobytes())
    return [
        (form.decoded_key(key), UnpackedRow(row, form.columns))
        for key, row in zip(key_values, row_values, strict=False)
    ]


def words_of(result: Result, pairs: Iterable[tuple[tuple[Word, ...], Row]]) -> np.ndarray:
    """Keys and rows, as runtimes have them, as words: int64[n, words of the key and of the row]."""
    rows = [_key_words(result, key) + _row_words(result, row) for key, row in pairs]
    return _matrix(rows, len(result.keys) + RowFormat(result).words)


def _records(result: Result, found: Sequence[tuple[int, Firing]]) -> Records:
    width = RowFormat(result).words
    return Records(
        np.array([index for index, _ in found], np.int64),
        _matrix([_key_words(result, f.key) for _, f in found], len(result.keys)),
        _matrix([_row_words(result, f.old) for _, f in found], width),
        _matrix([_row_words(result, f.new) for _, f in found], width),
    )


def _matrix(rows: Sequence[Sequence[int]], width: int) -> np.ndarray:
    return np.array(rows, np.int64).reshape(len(rows), width)


def _key_words(result: Result, key: Sequence[int | float | None]) -> list[int]:
    return [word_of(word, k.type) for word, k in zip(key, result.keys, strict=True)]


def _row_words(result: Result, row: Row | None) -> list[int]:
    form = RowFormat(result)
    words = [0] * form.words
    if row is None:
        return words
    words[0] = row.count
    for (at, wide), word in zip(form.columns, row.columns, strict=True):
        if word is None:
            continue
        words[at] = 1
        if not wide:
            words[at + 1] = pack(word)
            continue
        assert isinstance(word, int)
        low = word & _LOW
        words[at + 1] = low - (1 << 64) if low > _HIGHEST else low
        words[at + 2] = word >> 64
    return words


def one_word(rows: np.ndarray, at: int, view: str) -> np.ndarray:
    """The low words of a column of 128 bits at word `at`. Raises ExactnessError where they are not all."""
    low, high = rows[:, at], rows[:, at + 1]
    if not np.array_equal(low >> 63, high):
        raise ExactnessError(f"{view}: a value does not fit the 64 bits in which rows travel")
    return low


def recoded(result: Result, records: Records, codes: np.ndarray | None) -> Records:
    """Records whose dictionary codes have become `codes[code]`; None: all stay."""
    keys, old, new = records.keys.copy(), records.old.copy(), records.new.copy()
    recode(keys, [i for i, key in enumerate(result.keys) if key.type.kind is Kind.TEXT], codes)
    for (at, _), column in zip(RowFormat(result).columns, result.columns, strict=True):
        if column.type.kind is Kind.TEXT:
            for rows in (old, new):
                there = rows[:, at] != 0
                if codes is not None:
                    rows[there, at + 1] = codes[rows[there, at + 1]]
    return Records(records.changes, keys, old, new)
