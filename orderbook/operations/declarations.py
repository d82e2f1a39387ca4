"""Which declarations of columns would make the events of a view cheaper: each is tried.

What a declaration does is not guessed from plans: the texts are bound and compiled again with the one column
declared otherwise, and the cost of the worst event is compared.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

from orderbook.core.errors import UserError
from orderbook.engine.plan.describe import Cost
from orderbook.operations.view_parts import part_of, worst_event
from orderbook.views.calculus import Var, scalar_variables, variable_set
from orderbook.views.compilation import bound_source
from orderbook.views.m3 import Program, Trigger
from orderbook.views.program import CompiledProgram
from orderbook.views.types import DEFAULT_MAX_ROWS, Column, Kind, Relation, Type

# What rows and values are tried to be bounded by: a sum of them fits 64 bits.
_FEW_ROWS, _SMALL = 1_000_000, 1_000_000_000


@dataclass(frozen=True, slots=True)
class _Try:
    """A column declared otherwise: its relations with it, what it may be now, and what to write instead."""

    relations: Mapping[str, Relation]
    column: str
    now: str
    instead: str

    def __str__(self) -> str:
        return f"{self.column} of {' and '.join(self.relations)} {self.now}: {self.instead}"


def declarations(compiled: CompiledProgram, view: str) -> list[str]:
    """A line for each column that, declared otherwise, would make the worst event of a view cheapest.

    `price of bids is DOUBLE: DECIMAL(18, 8) would make O(slice) O(log n)`. None where the worst event
    is O(log n + rows) at most.
    """
    part = part_of(compiled.program, view)
    cost = worst_event(part)
    if cost <= Cost.ROWS:
        return []
    alone = list(_tries(part))
    for tries in (alone, _together(alone)):
        found = [(c, t) for t in tries if (c := _cost_with(compiled, view, t.relations)) < cost]
        if found:
            least = min(c for c, _ in found)
            # Of one column the first that helps asks for the least.
            chosen = {(t.column, *t.relations): str(t) for c, t in reversed(found) if c == least}
            return [f"{text} would make {cost} {least}" for text in reversed(chosen.values())]
    return []


def _together(alone: Iterable[_Try]) -> Iterator[_Try]:
    """The same for columns of one name in several relations, which are compared with each other."""
    same: dict[tuple[str, str, str], dict[str, Relation]] = {}
    for one in alone:
        same.setdefault((one.column, one.now, one.instead), {}).update(one.relations)
    return (_Try(relations, *what) for what, relations in same.items() if len(relations) > 1)


def _cost_with(compiled: CompiledProgram, view: str, instead: Mapping[str, Relation]) -> Cost:
    """The cost of the worst event were the relations declared so."""
    try:
        source = bound_source(compiled.texts, compiled.parameters, compiled.levels, instead)
        return worst_event(part_of(source.compiled().program, view))
    except UserError:
        return Cost.PRODUCT


def _tries(program: Program) -> Iterator[_Try]:
    made = {pattern.name for pattern in program.patterns}
    for relation in (one for one in program.relations if one.name not in made):
        used = frozenset[int]().union(*(_used(t) for t in program.triggers if t.relation == relation.name))
        for place, column in enumerate(relation.columns):
            if place in used:
                yield from _tries_of(relation, column)


def _used(trigger: Trigger) -> frozenset[int]:
    """The places of the parameters that the statements of a trigger use."""
    found: frozenset[Var] = frozenset()
    for statement in trigger.statements:
        found |= variable_set(statement.value) | {v for k in statement.keys for v in scalar_variables(k)}
    return frozenset(i for i, parameter in enumerate(trigger.parameters) if parameter in found)


def _tries_of(relation: Relation, column: Column) -> Iterator[_Try]:
    name, kind = column.name, column.type

    def tried(now: str, instead: str, rows: int = relation.max_rows, **change: object) -> _Try:
        columns = tuple(replace(c, **change) if c is column else c for c in relation.columns)  # type: ignore[arg-type]
        return _Try({relation.name: replace(relation, columns=columns, max_rows=rows)}, name, now, instead)

    if column.nullable:
        yield tried("may be NULL", "NOT NULL", nullable=False)
    if kind.kind is Kind.DOUBLE:
        exact = Type(Kind.DECIMAL, 8, -(10**18) + 1, 10**18 - 1)
        yield tried("is DOUBLE", "DECIMAL(18, 8)", type=exact)
        yield tried("is DOUBLE", f"DECIMAL(18, 8) CHECK ({name} >= 0)", type=replace(exact, low=0))
    elif kind.numeric:
        if kind.low < 0:
            yield tried("may be below 0", f"CHECK ({name} >= 0)", type=replace(kind, low=0))
        if relation.max_rows == DEFAULT_MAX_ROWS or kind.high > _SMALL:
            low, high = max(kind.low, 0), min(kind.high, _SMALL)
            written = f"CHECK ({name} BETWEEN 0 AND {_number(high, kind.scale)}) and max_rows = {_FEW_ROWS}"
            rows = min(relation.max_rows, _FEW_ROWS)
            yield tried("is hardly bounded", written, rows, type=replace(kind, low=low, high=high))


def _number(value: int, scale: int) -> str:
    return f"{value / 10**scale:g}" if scale else str(value)
