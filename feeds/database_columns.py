"""What is read of a table: its options, and where the columns of rows are."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from feeds.source_options import split_options
from orderbook.errors import SourceError


@dataclass(frozen=True, slots=True)
class TableOptions:
    """Which table is read as which relation, and how.

    `relation` is the table's name where it is "". `columns` are those read, each `NAME`, or
    `RELATION_COLUMN:TABLE_COLUMN`; without any, all. `mode` "poll" tells rows apart by the columns `key`, or
    as a multiset without any. `mode` "log" reads after the number `after`; `sequence` and `op` name its
    columns, and rows next to each other with one value of `transaction` are a message.
    """

    url: str
    table: str
    relation: str = ""
    mode: Literal["poll", "log"] = "poll"
    key: tuple[str, ...] = ()
    columns: tuple[str, ...] = ()
    sequence: str = "sequence"
    op: str = "op"
    transaction: str = ""
    after: str = ""

    @property
    def name(self) -> str:
        """The source as KIND:URL#TABLE, without a password."""
        return f"table:{re.sub(r'//[^@/]*@', '//', self.url)}#{self.table}"

    @property
    def stream(self) -> str:
        """The relation's name."""
        return self.relation or self.table.rpartition(".")[2]


def table_options(text: str) -> TableOptions:
    """The options of `URL#TABLE?key=value&…`; lists have commas. Raises SourceError for what is no option."""
    url, mark, rest = text.rpartition("#")
    known = ("relation", "mode", "key", "columns", "sequence", "op", "transaction", "after")
    table, given = split_options(rest, known)
    if not mark or not url or not table:
        raise SourceError(f"{text}: write the table after the file or address: URL#TABLE")
    options: dict[str, Any] = dict(given)
    for name in ("key", "columns"):
        if name in options:
            options[name] = tuple(options[name].split(","))
    if options.get("mode", "poll") not in ("poll", "log"):
        raise SourceError(f"{text}: mode is 'poll' or 'log', not {options['mode']!r}")
    return TableOptions(url, table, **options)


class Images:
    """Where the columns of a log are: `selected` begins with sequence, op and, where named, transaction."""

    def __init__(self, options: TableOptions, columns: Sequence[str]):
        fixed = [options.sequence, options.op, *([options.transaction] if options.transaction else [])]
        _check(options, fixed, columns)
        others = [c for c in columns if c not in fixed]
        bases = dict.fromkeys(_base(name, others) for name in others)
        names = read_columns(options, list(bases))
        self.selected = [*fixed, *others]
        places = {name: len(fixed) + i for i, name in enumerate(others)}
        new = {n: f"new_{c}" if f"new_{c}" in places else c for n, c in names.items()}
        self._new = {n: places[c] for n, c in new.items() if c in places}
        self._old = {n: places.get(f"old_{c}", self._new.get(n)) for n, c in names.items()}
        self.both = any(f"old_{c}" in places for c in names.values())

    def new(self, row: tuple[Any, ...]) -> dict[str, Any]:
        """The row as it is."""
        return {name: row[place] for name, place in self._new.items()}

    def old(self, row: tuple[Any, ...]) -> dict[str, Any]:
        """The row as it was."""
        return {name: row[place] for name, place in self._old.items() if place is not None}


def _base(name: str, others: Sequence[str]) -> str:
    """The column that `new_NAME` or `old_NAME` is an image of."""
    for prefix, other in (("new_", "old_"), ("old_", "new_")):
        base = name.removeprefix(prefix)
        if base != name and (base in others or f"{other}{base}" in others):
            return base
    return name


def read_columns(options: TableOptions, columns: Sequence[str]) -> dict[str, str]:
    """The relation's columns, and those of the table that they are read from."""
    if not options.columns:
        return {name: name for name in columns}
    pairs = (entry.partition(":") for entry in options.columns)
    names = {name: column or name for name, _, column in pairs}
    _check(options, names.values(), columns)
    return names


def _check(options: TableOptions, wanted: Iterable[str], columns: Sequence[str]) -> None:
    for name in wanted:
        if name not in columns:
            raise SourceError(
                f"{options.name}: the table has no column {name!r}; its columns are {', '.join(columns)}"
            )


def place_of(options: TableOptions, names: Mapping[str, str], key: str) -> int:
    if key not in names:
        raise SourceError(f"{options.name}: the key {key!r} is none of the columns {', '.join(names)}")
    return list(names).index(key)
