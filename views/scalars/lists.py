"""Lists of the values of a group, as a text: STRING_AGG, LIST, MAX(x, n), made when a row is read.

A sum over the entries of a group calls `listed` for each, after `list_value` has noted what the entry holds.
Each entry gets the next number of its list's form, so that the sum of these numbers, with how many there are,
tells `list_text` which entries they are. A form is a constant of the program, and the entries of one list are
walked without those of another between. What is noted is kept by the thread until twice as much as the
longest list has followed.
"""

import json
import re
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from orderbook.core.errors import DataError
from orderbook.views.scalars.formats import text_of_exact, text_of_moment

# The most entries that a list is made of.
MOST_LISTED = 10_000
_Entry = tuple[int, tuple[Any, ...]]


@dataclass(frozen=True, slots=True)
class Order:
    """A value that entries are ordered by: its type holds NULL, it descends, NULLs come first."""

    nullable: bool
    descending: bool
    nulls_first: bool


@dataclass(frozen=True, slots=True)
class Form:
    """How a list is written.

    separator: between texts, NULLs left out; None: in brackets, as DuckDB casts a list. order: of the
    entries, their values after that. nullable, kind, scale: the type of the values. limit: so many of the
    first, 0: all. counted: as a map of each value and how often it stands.
    """

    slot: int
    order: tuple[Order, ...]
    nullable: bool
    kind: str
    scale: int
    separator: str | None = None
    limit: int = 0
    distinct: bool = False
    counted: bool = False

    def text(self) -> str:
        """The form as a constant of the program."""
        order = [[o.nullable, o.descending, o.nulls_first] for o in self.order]
        rest = [self.nullable, self.kind, self.scale, self.separator, self.limit, self.distinct, self.counted]
        return json.dumps([self.slot, order, *rest])


@lru_cache(maxsize=1000)
def form_of(text: str) -> Form:
    """The form that a constant says. Raises DataError for another text."""
    try:
        slot, order, *rest = json.loads(text)
        return Form(slot, tuple(Order(*o) for o in order), *rest)
    except (ValueError, TypeError):
        raise DataError(f"{text[:60]!r} is no form of a list") from None


@dataclass(slots=True)
class _Noted:
    """What is noted of one form: values of the entry at hand, entries, the number of the first of them."""

    values: list[Any] = field(default_factory=list)
    entries: list[_Entry] = field(default_factory=list)
    first: int = 0


class _Notes(threading.local):
    def __init__(self) -> None:
        self.by_slot: dict[int, _Noted] = {}


_notes = _Notes()


def first_of(slot: int) -> int:
    """What stands for a slot beside the first value of an entry."""
    return -1 - slot


def list_value(value: Any, slot: int) -> int:
    """Notes a value of the entry at hand, which begins where `slot` is of `first_of`; gives the slot."""
    begins = slot < 0
    slot = first_of(slot) if begins else slot
    noted = _notes.by_slot.setdefault(slot, _Noted())
    if begins:
        noted.values.clear()
    noted.values.append(value)
    return slot


def listed(slot: int, copies: int, rows: int) -> int:
    """Notes that the entry at hand stands so often; gives its number. `rows` is of the group."""
    noted = _notes.by_slot.setdefault(slot, _Noted())
    if len(noted.entries) >= 4 * MOST_LISTED:
        noted.first += 2 * MOST_LISTED
        del noted.entries[: 2 * MOST_LISTED]
    noted.entries.append((copies, tuple(noted.values)))
    noted.values.clear()
    return noted.first + len(noted.entries) - 1


def list_text(numbers: int, count: int, text: str) -> str:
    """The list of entries, by the sum of their numbers and how many there are."""
    form = form_of(text)
    if count > MOST_LISTED:
        instead = "filter the rows, or write LIMIT n in the call"
        raise DataError(f"a list of {count} different values, more than {MOST_LISTED}; {instead}")
    if count <= 0:
        return ""
    noted = _notes.by_slot.setdefault(form.slot, _Noted())
    first, rest = divmod(numbers - count * (count - 1) // 2, count)
    found = noted.entries[max(first - noted.first, 0) :][:count]
    if rest or first < noted.first or len(found) < count:
        raise DataError("the entries of a list are not those of one group; order it in a view of its own")
    return written(form, found)


def written(form: Form, entries: Sequence[_Entry]) -> str:
    """Entries as a list. Each is how often it stands, and its values: what it is ordered by, then its own;
    before each that may be NULL stands whether it is there."""
    found: list[tuple[int, tuple[Any, ...]]] = []
    nullable = (*(o.nullable for o in form.order), form.nullable)
    for copies, values in entries:
        left, own = iter(values), list[Any]()
        for may_be_null in nullable:
            there = next(left) if may_be_null else True
            value = next(left)
            own.append(value if there else None)
        found.append((copies, tuple(own)))
    orders = (*form.order, Order(form.nullable, descending=False, nulls_first=False))
    for place, order in reversed([*enumerate(orders)]):
        there = [e for e in found if e[1][place] is not None]
        absent = [e for e in found if e[1][place] is None]
        there.sort(key=lambda e: e[1][place], reverse=order.descending)
        found = [*absent, *there] if order.nulls_first else [*there, *absent]
    if form.counted:
        return f"{{{', '.join(f'{_shown(value, form)}={copies}' for copies, (*_, value) in found)}}}"
    texts: list[str | None] = []
    seen: set[Any] = set()
    for copies, (*_, value) in found:
        if form.distinct:
            copies = value not in seen
            seen.add(value)
        texts += [None if value is None else _shown(value, form)] * copies
        if form.limit and len(texts) >= form.limit:
            del texts[form.limit :]
            break
    if form.separator is not None:
        return form.separator.join(t for t in texts if t is not None)
    return f"[{', '.join('NULL' if t is None else t for t in texts)}]"


_PLAIN = re.compile(r"[^\s'\"\\,\[\](){}=:]+(?:[^'\"\\,\[\](){}=:]*[^\s'\"\\,\[\](){}=:])?")


def _shown(value: Any, form: Form) -> str:
    """A value as it stands in a list; a text in quotes where it could be taken for something else."""
    if form.kind == "BOOLEAN":
        return "true" if value else "false"
    if form.kind == "DOUBLE":
        return repr(value + 0.0)
    if form.kind in ("INTEGER", "DECIMAL"):
        return text_of_exact(value, form.scale)
    text = text_of_moment(value) if form.kind == "TIMESTAMP" else str(value)
    if form.separator is not None or (_PLAIN.fullmatch(text) and text.upper() != "NULL"):
        return text
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"
