"""Rows as the executor writes them: words in memory, unpacked in one go, decoded when they are looked at."""

import struct
from collections.abc import Callable
from typing import Any

from views.compiler.m3 import Result
from views.compiler.types import Kind, Type

from .changes import NULL_CODE
from .generate.layout import column_words
from .runtime import Word

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

    def __eq__(self, other: object) -> bool:
        return (self.count, self.columns) == (getattr(other, "count", None), getattr(other, "columns", None))

    def __hash__(self) -> int:
        return hash((self.count, self.columns))

    def __repr__(self) -> str:
        return f"Row(count={self.count}, columns={self.columns})"


class RecordFormat:
    """How a firing of a watch lies in memory: watch, key, the old row, the new row."""

    __slots__ = ("form", "new", "old", "size", "unpack")

    def __init__(self, form: RowFormat):
        self.form = form
        self.old = 1 + form.key_count
        self.new = self.old + len(form.row)
        self.size = 1 + form.key_count + 2 * form.words
        self.unpack = unpacker("q" + form.key + 2 * form.row)


class UnpackedFiring:
    """A firing unpacked from memory; its parts are decoded when they are asked for."""

    __slots__ = ("_format", "_values", "watch")

    def __init__(self, watch: int, values: tuple[Any, ...], record: RecordFormat):
        self.watch = watch
        self._values = values
        self._format = record

    @property
    def key(self) -> tuple[Word, ...]:
        """The row's key."""
        return self._format.form.decoded_key(self._values[1 : self._format.old])

    @property
    def old(self) -> UnpackedRow | None:
        """The row at the last look."""
        return self._row(self._format.old, self._format.new)

    @property
    def new(self) -> UnpackedRow | None:
        """The row now."""
        return self._row(self._format.new, None)

    def _row(self, start: int, end: int | None) -> UnpackedRow | None:
        values = self._values[start:end]
        return UnpackedRow(values, self._format.form.columns) if values[0] else None


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
