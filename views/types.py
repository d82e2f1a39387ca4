"""Value types of columns and expressions, and what declared relations and views are made of.

Exact numbers are fixed-point integers: a DECIMAL of scale 2 holds 223.95 as 22395. Each exact type
carries the interval its scaled integer lies in, from which the compiler proves that sums fit 64
bits, that weights are non-negative, and where it must use 128 bits.

Beside types: columns and relations, what the rows of a view are shown by, values of parameters, and the
name of the relation that NOW() reads.
"""

from dataclasses import dataclass, field, replace
from decimal import Decimal
from enum import Enum

INT64_MAX = 2**63 - 1
INT128_MAX = 2**127 - 1
# The most rows one relation may hold; the bound of every sum rests on it.
DEFAULT_MAX_ROWS = 2**31 - 1


class Kind(Enum):
    """What a value is; every kind but DOUBLE is stored as an integer."""

    INTEGER = "INTEGER"
    DECIMAL = "DECIMAL"
    DOUBLE = "DOUBLE"
    BOOLEAN = "BOOLEAN"
    TEXT = "TEXT"
    TIMESTAMP = "TIMESTAMP"


@dataclass(frozen=True, slots=True)
class Type:
    """A value type.

    `scale` is the number of decimal places (0 unless DECIMAL). `low` and `high` bound the scaled
    integer, inclusive (TEXT: dictionary codes; TIMESTAMP: ns since 1970 UTC; unused for DOUBLE).
    """

    kind: Kind
    scale: int = 0
    low: int = -INT64_MAX
    high: int = INT64_MAX

    @property
    def exact(self) -> bool:
        return self.kind is not Kind.DOUBLE

    @property
    def numeric(self) -> bool:
        return self.kind in (Kind.INTEGER, Kind.DECIMAL, Kind.DOUBLE)

    def __str__(self) -> str:
        if self.kind is Kind.DECIMAL:
            return f"DECIMAL({len(str(max(abs(self.low), abs(self.high))))}, {self.scale})"
        return str(self.kind.value)


BOOLEAN = Type(Kind.BOOLEAN, 0, 0, 1)
DOUBLE = Type(Kind.DOUBLE)
TEXT = Type(Kind.TEXT, 0, 0, 2**31 - 1)
# The years 1681 to 2258: what truncation and INTERVALs of up to three years make of it fits 64 bits too.
TIMESTAMP = Type(Kind.TIMESTAMP, 0, -9_100_000_000_000_000_000, 9_100_000_000_000_000_000)
INTEGER = Type(Kind.INTEGER, 0, -(2**31), 2**31 - 1)
BIGINT = Type(Kind.INTEGER)


def decimal(precision: int, scale: int) -> Type:
    """DECIMAL(precision, scale); values are scaled integers of at most `precision` digits."""
    limit = 10**precision - 1
    return Type(Kind.DECIMAL, scale, -limit, limit)


def unscaled(kind: Type) -> Type:
    """The type of the scaled integer that holds a value of `kind`."""
    return replace(kind, kind=Kind.INTEGER, scale=0) if kind.kind is Kind.DECIMAL else kind


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a stream, table or view; a `hidden` one is not among those of *, and numbers rows as they
    come where they have no number."""

    name: str
    type: Type
    nullable: bool = True
    hidden: bool = field(default=False, compare=False)


@dataclass(frozen=True, slots=True)
class Relation:
    """A declared stream or table: an ordered list of columns and the most rows it may hold.

    No two rows agree in all of `primary_key`, which the compiler uses and the checks of rows enforce.
    `retain` is for how many ns a row stays after the time in `retain_by`, a TIMESTAMP
    column; None keeps rows until they are deleted.
    """

    name: str
    columns: tuple[Column, ...]
    max_rows: int = DEFAULT_MAX_ROWS
    source: str | None = None
    static: bool = False
    primary_key: tuple[str, ...] = ()
    retain: int | None = None
    retain_by: str | None = None

    def column(self, name: str) -> Column | None:
        return next((c for c in self.columns if c.name == name), None)

    @property
    def number(self) -> int | None:
        """The place of the hidden column that numbers rows as they come, where there is one."""
        return next((place for place, c in enumerate(self.columns) if c.hidden), None)


Parameter = int | Decimal | float | str
# The relation that NOW() reads.
CLOCK = "clock"
# The stream whose hidden column may be named, as books fill it.
TRADES = "trades"


@dataclass(frozen=True, slots=True)
class ShownBy:
    """An output by which the rows of a view are shown; NULL is last unless `nulls_first`."""

    name: str
    descending: bool = False
    nulls_first: bool = False
