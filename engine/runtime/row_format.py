"""Rows of views as words, and the changes of rows as arrays of them.

The executor writes rows as words in memory, which are unpacked in one go and decoded when they are looked
at. Changes of rows of watched views are recorded as arrays while changes are applied. What is said when a
value does not fit: 128 bits, 64 for a key, the range of DOUBLE for others.
"""

import struct
from collections.abc import Callable, Iterable, Sequence
from itertools import repeat
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from orderbook.core.changes import END_OF_MESSAGE, NULL_CODE, ChangeBatch, Word
from orderbook.core.errors import DataError, ExactnessError, OrderbookError
from orderbook.engine.generate.state_layout import INFINITE, WIDE_KEY, column_words
from orderbook.engine.plan.stores import layout_of
from orderbook.engine.runtime.interface import Firing, PlainRow, Recording, Records, Row, Runtime, Watch
from orderbook.engine.runtime.map_entries import recode
from orderbook.views.calculus import maps_read
from orderbook.views.encoding.values import pack
from orderbook.views.m3 import MapDeclaration, Program, Result
from orderbook.views.types import Kind, Type

_LOW_WORD = 2**64


class RowFormat:
    """How the keys and the row of one view lie in memory.

    `key` and `row` are formats of `struct`; `words` is the row's length. Unpacked, a row is how often
    it stands, then for each column whether it is there and its value, of 128 bits as low and high word.
    """

    __slots__ = ("columns", "key", "key_count", "key_kinds", "row", "words")

    def __init__(self, result: Result):
        self.key_kinds = tuple(k.type.kind for k in result.keys)
        self.key = "".join("d" if k is Kind.DOUBLE else "q" for k in self.key_kinds)
        self.key_count = len(self.key)
        parts, columns, at = ["q"], [], 1
        for column in result.columns:
            form = _value_format(column.type)
            parts.append("q" + form)
            columns.append((at, len(form) == 2))
            at += 1 + len(form)
        self.row = "".join(parts)
        self.words = at
        self.columns = tuple(columns)

    def decoded_key(self, values: tuple[Any, ...]) -> tuple[Word, ...]:
        """The key's values, None for NULL."""
        return tuple(
            [
                None if (_bits(v) if kind is Kind.DOUBLE else v) == NULL_CODE else v
                for v, kind in zip(values, self.key_kinds, strict=True)
            ]
        )


def _value_format(kind: Type) -> str:
    return "d" if kind.kind is Kind.DOUBLE else "Qq" if column_words(kind) == 2 else "q"


class UnpackedRow:
    """A row unpacked from memory; its columns are decoded when they are asked for."""

    __slots__ = ("_columns", "_values", "count")

    def __init__(self, values: tuple[Any, ...], columns: tuple[tuple[int, bool], ...]):
        self.count: int = values[0]
        self._values = values
        self._columns = columns

    @property
    def columns(self) -> tuple[Word, ...]:
        """The values of the columns, None for NULL."""
        values = self._values
        return tuple(
            [
                (values[at + 1] + values[at + 2] * _LOW_WORD if wide else values[at + 1])
                if values[at]
                else None
                for at, wide in self._columns
            ]
        )

    def word(self, place: int) -> Word:
        """See Row."""
        at, wide = self._columns[place]
        values = self._values
        if not values[at]:
            return None
        found: Word = values[at + 1] + values[at + 2] * _LOW_WORD if wide else values[at + 1]
        return found

    def __eq__(self, other: object) -> bool:
        return (self.count, self.columns) == (getattr(other, "count", None), getattr(other, "columns", None))

    def __hash__(self) -> int:
        return hash((self.count, self.columns))

    def __repr__(self) -> str:
        return f"Row(count={self.count}, columns={self.columns})"


class RecordFormat:
    """How a firing of a watch lies in memory: watch, key, the old row, the new row; `size` bytes.

    old_word, new_word: where the rows begin, in words.
    """

    __slots__ = ("form", "new", "new_word", "old", "old_word", "size", "unpack")

    def __init__(self, form: RowFormat):
        self.form = form
        self.old = 1 + form.key_count
        self.new = self.old + len(form.row)
        self.old_word = self.old
        self.new_word = self.old_word + form.words
        self.size = 8 * (1 + form.key_count + 2 * form.words)
        self.unpack = unpacker("q" + form.key + 2 * form.row)


class UnpackedFiring(msgspec.Struct, eq=False):
    """A firing as it lay in memory; its parts are unpacked and decoded when they are asked for."""

    watch: int
    held: bytes
    format: RecordFormat
    _unpacked: tuple[Any, ...] | None = None

    @property
    def _values(self) -> tuple[Any, ...]:
        found = self._unpacked
        if found is None:
            found = self._unpacked = self.format.unpack(self.held)
        return found

    @property
    def key(self) -> tuple[Word, ...]:
        """The row's key."""
        record = self.format
        return record.form.decoded_key(self._values[1 : record.old])

    @property
    def old(self) -> UnpackedRow | None:
        """The row at the last look."""
        return self._row(self.format.old, self.format.new)

    @property
    def new(self) -> UnpackedRow | None:
        """The row now."""
        return self._row(self.format.new, None)

    def _row(self, start: int, end: int | None) -> UnpackedRow | None:
        values = self._values[start:end]
        return UnpackedRow(values, self.format.form.columns) if values[0] else None


def unpacker(form: str) -> Callable[..., tuple[Any, ...]]:
    """A function that unpacks `form` from a buffer at an offset in bytes."""
    return struct.Struct("<" + form).unpack_from


def _bits(value: float) -> int:
    return int(struct.unpack("<q", struct.pack("<d", value))[0])


def word_of(value: Word, kind: Type) -> int:
    """The word that holds a value of a key."""
    if value is None:
        return NULL_CODE
    return _bits(float(value)) if kind.kind is Kind.DOUBLE else int(value)


def noted_error_of(noted: int, program: Program) -> OrderbookError:
    """The error that a state notes, but for those of functions."""
    errors = {INFINITE: infinite_error, WIDE_KEY: wide_key_error}
    return errors.get(noted, overflow_error)(program)


def overflow_error(program: Program) -> ExactnessError:
    """Names the views whose sums are not proved to fit 128 bits, or all."""
    named = _views(program, lambda m: layout_of(m.type) == "W")
    return ExactnessError(f"a value of {named} does not fit 128 bits; declare narrower columns (CHECK)")


def wide_key_error(program: Program) -> ExactnessError:
    """Names the views with rows told apart by values that are not proved to fit 64 bits, or all."""
    named = _views(program, lambda m: any(k.exact and layout_of(k) != "i" for k in m.key_types))
    return ExactnessError(
        f"a value that {named} groups, joins or orders by does not fit 64 bits; "
        "declare narrower columns (CHECK)"
    )


def infinite_error(program: Program) -> DataError:
    """Names the views that add up doubles."""
    named = _views(program, lambda m: not m.type.exact)
    return DataError(f"a value of {named} is beyond the range of DOUBLE")


def _views(program: Program, concerned: Callable[[MapDeclaration], bool]) -> str:
    """The views that read a map which is concerned, or one made from it; all where none does."""
    maps = {m.name for m in program.maps if concerned(m)}
    statements = [s for t in program.triggers for s in t.statements]
    growing = True
    while growing:
        more = {s.target for s in statements if not maps.isdisjoint(maps_read(s.value))} - maps
        growing = bool(more)
        maps |= more
    read = {r.name: {r.multiplicity, *(n for _, p in r.lets for n in maps_read(p))} for r in program.results}
    return ", ".join(sorted(v for v, names in read.items() if not maps.isdisjoint(names)) or sorted(read))


_LOW = (1 << 64) - 1
_HIGHEST = (1 << 63) - 1
_NO_VALUES = np.zeros((1, 1), np.int64)


Unlook = Callable[[int, Sequence[tuple[tuple[Word, ...], Row | None]]], None]


class FiringRecorder:
    """Records by the firings of unconditional watches, one by one, of any runtime.

    unlook: makes rows of the watch of a number, by key, those that its last look saw.
    """

    def __init__(self, runtime: Runtime, program: Program, recordings: Sequence[Recording], unlook: Unlook):
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

    def rows(self, view: str) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
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
    form: RowFormat, keys: NDArray[np.int64], rows: NDArray[np.int64]
) -> list[tuple[tuple[Word, ...], UnpackedRow]]:
    """Keys and rows laid out as in Records, as runtimes have them; a row of count 0 is none."""
    key_values = struct.iter_unpack("<" + form.key, keys.tobytes()) if form.key_count else repeat(())
    row_values = struct.iter_unpack("<" + form.row, rows.tobytes())
    return [
        (form.decoded_key(key), UnpackedRow(row, form.columns))
        for key, row in zip(key_values, row_values, strict=False)
    ]


def words_of(result: Result, pairs: Iterable[tuple[tuple[Word, ...], Row]]) -> NDArray[np.int64]:
    """Keys and rows, as runtimes have them, as words: int64[n, words of the key and of the row]."""
    rows = [_key_words(result, key) + row_words(result, row) for key, row in pairs]
    return _matrix(rows, len(result.keys) + RowFormat(result).words)


def _records(result: Result, found: Sequence[tuple[int, Firing]]) -> Records:
    width = RowFormat(result).words
    return Records(
        np.array([index for index, _ in found], np.int64),
        _matrix([_key_words(result, f.key) for _, f in found], len(result.keys)),
        _matrix([row_words(result, f.old) for _, f in found], width),
        _matrix([row_words(result, f.new) for _, f in found], width),
    )


def _matrix(rows: Sequence[Sequence[int]], width: int) -> NDArray[np.int64]:
    return np.array(rows, np.int64).reshape(len(rows), width)


def _key_words(result: Result, key: Sequence[int | float | None]) -> list[int]:
    return [word_of(word, k.type) for word, k in zip(key, result.keys, strict=True)]


def row_words(result: Result, row: Row | None) -> list[int]:
    """A row, as runtimes have it, as words; None: a row that stands 0 times."""
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


def one_word(rows: NDArray[np.int64], at: int, view: str) -> NDArray[np.int64]:
    """The low words, int64[n], of a column of 128 bits at word `at` of int64[n, words].

    Raises ExactnessError where they are not all.
    """
    low, high = rows[:, at], rows[:, at + 1]
    if not np.array_equal(low >> 63, high):
        raise ExactnessError(f"{view}: a value does not fit the 64 bits in which rows travel")
    return low


def recoded(result: Result, records: Records, codes: NDArray[np.int64] | None) -> Records:
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
