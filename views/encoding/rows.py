"""Rows as users write them, to the codes of a ChangeBatch: one encoder for each relation.

A value of the type that its column usually gets takes a short way, all others that of `encode_value`, which
also says what is wrong; so both obey the same rules.
"""

import struct
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from decimal import Context, Decimal, Inexact, InvalidOperation
from operator import attrgetter
from typing import Any

import numpy as np

from orderbook.core.changes import END_OF_EVENT, END_OF_MESSAGE, NULL_CODE, ChangeBatch, Dictionary
from orderbook.core.errors import DataError
from orderbook.views.encoding.values import encode_value, pack, shown
from orderbook.views.types import Column, Kind, Relation

# A row: a mapping of column names to values, a tuple of values in the order of the columns, or an object that
# has them as attributes (a msgspec.Struct, a dataclass).
Row = Mapping[str, Any] | tuple[Any, ...] | Any

_Encode = Callable[[Any], int]
# Wide enough for every decimal of 64 bits times a power of ten that fits them; of others nothing is rounded.
_CONTEXT = Context(prec=60, traps=[Inexact, InvalidOperation])
# Integers below are exact doubles, and no two decimals of so few digits share a double.
_EXACT_DOUBLE = 2**53
_DOUBLE, _CODE = struct.Struct("<d"), struct.Struct("<q")


class RowEncoder:
    """Encodes rows of one relation; a hidden column need not be among them, and is NULL then."""

    def __init__(self, relation: Relation, dictionary: Dictionary) -> None:
        self._relation, self._dictionary = relation, dictionary
        self._columns = tuple(replace(c, nullable=c.nullable or c.hidden) for c in relation.columns)
        shown = [column for column in self._columns if not column.hidden]
        self._names = tuple(column.name for column in shown)
        encoders = [_encoder(column, dictionary) for column in shown]
        self._encoders = tuple(encoders)
        self._fields = tuple(zip(self._names, encoders, strict=True))
        self._count = len(self._names)
        self._hidden = [column.name for column in self._columns if column.hidden]
        self._unnumbered = [NULL_CODE] * len(self._hidden)
        self._values_of = (
            attrgetter(*self._names) if self._count > 1 else lambda row: (getattr(row, self._names[0]),)
        )
        self._pack = struct.Struct(f"<{len(self._columns)}q").pack_into
        self._values = np.zeros((1, len(self._columns)), np.int64)
        self._words = memoryview(self._values).cast("B")  # type: ignore[arg-type]
        self._batches: dict[tuple[int, int], ChangeBatch] = {}

    def encode(self, row: Row) -> list[int]:
        """The codes of a row; a nullable column that is absent is NULL.

        Raises DataError that names relation, column and reason.
        """
        try:
            if type(row) is dict:
                codes = [encode(row[name]) for name, encode in self._fields]
            elif isinstance(row, tuple):
                codes = [encode(value) for encode, value in zip(self._encoders, row, strict=True)]
            elif isinstance(row, Mapping) or any(hasattr(row, name) for name in self._hidden):
                return self._slowly(row)
            else:
                values = zip(self._encoders, self._values_of(row), strict=True)
                return [encode(value) for encode, value in values] + self._unnumbered
        except (KeyError, ValueError, AttributeError, ArithmeticError):
            return self._slowly(row)
        return codes + self._unnumbered if len(row) == self._count else self._slowly(row)

    def change(self, index: int, delete: int, row: Row, flags: int) -> ChangeBatch:
        """The batch of one change of the relation with this index; the next call writes to its arrays."""
        self._pack(self._words, 0, *self.encode(row))
        kind = 2 * index + delete
        batch = self._batches.get((kind, flags))
        if batch is None:
            ends = np.array([END_OF_EVENT | END_OF_MESSAGE | flags], np.uint8)
            batch = ChangeBatch(np.array([kind], np.int16), ends, self._values)
            self._batches[kind, flags] = batch
        return batch

    def _slowly(self, row: Row) -> list[int]:
        found = self._by_name(row)
        every = [column.name for column in self._columns]
        for name in found:
            if name not in every:
                columns = ", ".join(self._names)
                raise DataError(f"{self._relation.name} has no column {name!r}; its columns are {columns}")
        codes = []
        for column in self._columns:
            where = f"{self._relation.name}.{column.name}"
            if column.name not in found and not column.nullable:
                raise DataError(f"{where}: no value; the column is NOT NULL")
            try:
                codes.append(pack(encode_value(column, found.get(column.name), self._dictionary)))
            except ValueError as error:
                raise DataError(f"{where}: {error}") from None
        return codes

    def _by_name(self, row: Row) -> Mapping[str, Any]:
        name, every = self._relation.name, [column.name for column in self._columns]
        if isinstance(row, Mapping):
            return row
        if isinstance(row, tuple):
            if len(row) not in (self._count, len(every)):
                columns = ", ".join(self._names)
                raise DataError(f"{name}: a row of {len(row)} values; its columns are {columns}")
            return dict(zip(every, row, strict=False))
        found = {own: getattr(row, own) for own in every if hasattr(row, own)}
        if not found:
            raise DataError(
                f"{name}: a row is a mapping of column names to values, a tuple of them in the order of the "
                f"columns, or an object that has them as attributes, not {shown(row)}"
            )
        return found


def encode_row(relation: Relation, row: Row, dictionary: Dictionary) -> list[int]:
    """The codes of one row; see `RowEncoder.encode`."""
    return RowEncoder(relation, dictionary).encode(row)


def event_batch(changes: Iterable[tuple[int, list[int]]]) -> ChangeBatch:
    """The ChangeBatch of one event that is a message of its own: (kind, codes) for each change."""
    listed = list(changes)
    flags = np.zeros(len(listed), np.uint8)
    flags[-1] = END_OF_EVENT | END_OF_MESSAGE
    kinds = np.array([kind for kind, _ in listed], np.int16)
    return ChangeBatch(kinds, flags, np.array([codes for _, codes in listed], np.int64))


def _encoder(column: Column, dictionary: Dictionary) -> _Encode:
    """Gives the code of a value; raises ValueError with the reason where the column does not take it."""

    def any_value(value: Any) -> int:
        return pack(encode_value(column, value, dictionary))

    match column.type.kind:
        case Kind.TEXT:
            return _text(dictionary, any_value)
        case Kind.INTEGER | Kind.DECIMAL:
            return _exact(column, any_value)
        case Kind.TIMESTAMP:
            return _integer(column.type.low, column.type.high, any_value)
        case Kind.DOUBLE:
            return _double(any_value)
    return any_value


def _text(dictionary: Dictionary, any_value: _Encode) -> _Encode:
    code_of = dictionary.known

    def text(value: Any) -> int:
        code = code_of(value) if type(value) is str else None
        return any_value(value) if code is None else code

    return text


def _integer(low: int, high: int, any_value: _Encode) -> _Encode:
    def integer(value: Any) -> int:
        return value if type(value) is int and low <= value <= high else any_value(value)

    return integer


def _exact(column: Column, any_value: _Encode) -> _Encode:
    low, high, scale = column.type.low, column.type.high, column.type.scale
    factor, multiply = 10**scale, _CONTEXT.multiply
    by, lowest, highest = Decimal(factor), Decimal(low), Decimal(high)

    def exact(value: Any) -> int:
        kind = type(value)
        if kind is str and value.isascii() and "_" not in value:
            # What is no number raises, and goes the long way.
            value, kind = Decimal(value), Decimal
        if kind is int:
            scaled = value * factor
        elif kind is float:
            scaled = round(value * factor) if -_EXACT_DOUBLE < value * factor < _EXACT_DOUBLE else 0
            # Dividing gives the very float: its repr is the decimal.
            if scaled / factor != value:
                return any_value(value)
        elif kind is Decimal:
            moved = multiply(value, by)
            scaled = int(moved) if lowest <= moved <= highest else 0
            if scaled != moved:
                return any_value(value)
        else:
            return any_value(value)
        return scaled if low <= scaled <= high else any_value(value)

    return exact


def _double(any_value: _Encode) -> _Encode:
    def double(value: Any) -> int:
        number = float(value) if type(value) is str else value
        if type(number) is float and number - number == 0.0:
            # -0.0 becomes 0.0: the two are one key.
            code: int = _CODE.unpack(_DOUBLE.pack(number + 0.0))[0]
            return code
        return any_value(value)

    return double
