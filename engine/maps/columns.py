"""Value columns of a layout, and the text of what generated modules do with them.

A layout is one character a column: `i` int64 (1 word), `w` Int128 known not to overflow (2 words),
`W` Int128 whose overflow is reported (2 words), `d` double-double sum (2 words: high, low).
"""

from dataclasses import dataclass

WORDS = {"i": 1, "w": 2, "W": 2, "d": 2}


@dataclass(frozen=True, slots=True)
class Column:
    """Column `number` of a layout; `offset` counts the words of the columns before it."""

    kind: str
    number: int
    offset: int

    @property
    def zero(self) -> str:
        return {"i": "0", "d": "0.0"}.get(self.kind, "wide(0)")

    @property
    def counts(self) -> bool:
        """Whether a non-zero value keeps the entry."""
        return self.kind != "d"


def columns(layout: str) -> tuple[Column, ...]:
    """The columns of a layout. Raises ValueError for a letter that is none, or no exact column."""
    if not layout or set(layout) - set(WORDS) or set(layout) == {"d"}:
        raise ValueError(f"layout {layout!r}: want letters of 'iwWd' with an exact column among them")
    offset, result = 0, []
    for number, kind in enumerate(layout):
        result.append(Column(kind, number, offset))
        offset += WORDS[kind]
    return tuple(result)


def width(layout: str) -> int:
    """Words of all columns."""
    return sum(WORDS[kind] for kind in layout)


def names(prefix: str, count: int, before: str = "") -> str:
    """`before` and p0, p1, .. as an argument list."""
    return ", ".join(([before] if before else []) + [f"{prefix}{i}" for i in range(count)])


def all_zero(layout: str, prefix: str) -> str:
    """The condition that no exact column of variables `prefix`0.. holds anything."""
    return " and ".join(f"{prefix}{c.number} == 0" for c in columns(layout) if c.counts)


def indent(lines: list[str] | tuple[str, ...], depth: int = 1) -> str:
    """Lines as a block, each `depth` levels in, for the middle of a template."""
    return "\n".join("    " * depth + line for line in lines)


def tuple_of(parts: list[str]) -> str:
    return (
        "(" + "".join(f"{part}, " for part in parts).rstrip() + ")"
        if len(parts) == 1
        else f"({', '.join(parts)})"
    )


def read_entry(column: Column, base: int, entry: str = "entry") -> str:
    """The value of a column stored in words from `base` of an entry on."""
    at = base + column.offset
    if column.kind == "i":
        return f"load({entry}, {at})"
    if column.kind == "d":
        return f"load_double({entry}, {at}) + load_double({entry}, {at + 1})"
    return f"load_wide({entry}, {at})"


def write_entry(column: Column, base: int, value: str, entry: str = "entry") -> list[str]:
    """Set a column of an entry."""
    at = base + column.offset
    if column.kind == "i":
        return [f"store({entry}, {at}, {value})"]
    if column.kind == "d":
        return [f"store_double({entry}, {at}, {value})", f"store_double({entry}, {at + 1}, 0.0)"]
    return [f"store_wide({entry}, {at}, {value})"]


def sum_entry(column: Column, base: int, error: str) -> list[str]:
    """Set v<number> to the stored value plus d<number> (exact columns only)."""
    n = column.number
    if column.kind == "W":
        return [f"v{n} = checked_add({read_entry(column, base)}, d{n}, {error})"]
    return [f"v{n} = {read_entry(column, base)} + d{n}"]
