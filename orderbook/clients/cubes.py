"""Cubes: the levels of a view with grouping sets, chosen by roll-up, drill-down, slice and dice.

Source: the query layer of Cumulus takes roll-up, drill-down, slice and dice; each level is a set of
groups that the view keeps, so nothing is summed when it is read.
"""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import reduce
from operator import or_
from typing import TYPE_CHECKING, Any

import polars as pl

from orderbook.clients.encoded_rows import view_table
from orderbook.core.errors import DataError
from orderbook.engine.runtime.live_view import Key, ViewRow
from orderbook.views.binding.bound import ColumnRef, Expression, Literal, Select, UnionAll, View
from orderbook.views.encoding.values import Value

if TYPE_CHECKING:
    from orderbook.engine.runtime.engine import Engine


@dataclass(frozen=True, slots=True)
class GroupingLevel:
    """A grouping set: what it groups by, and what tells its rows: columns with the value they have."""

    dimensions: frozenset[str]
    marks: tuple[tuple[str, Value], ...]
    # Columns that are never NULL in its rows.
    there: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Cube(Mapping[Key, ViewRow]):
    """The rows of one level of a view, by the values of `shown`. It never changes, its rows follow the view.

    shown: the dimensions that tell rows apart. fixed: dimensions of which only some values are looked at.
    Rows have all columns of the view. Raises DataError for a dimension that the view lacks, and
    when it is read for a level, naming those there are.
    """

    engine: "Engine"
    view: str
    levels: tuple[GroupingLevel, ...]
    dimensions: tuple[str, ...]
    shown: tuple[str, ...]
    fixed: tuple[tuple[str, frozenset[Value]], ...] = ()

    def rollup(self, *dimensions: str) -> "Cube":
        """Rolled up to these dimensions, to the grand total without any; what was sliced stays so."""
        return replace(self, shown=self._named(dimensions))

    def drill_down(self, *dimensions: str) -> "Cube":
        """By these dimensions as well."""
        own = self._named(dimensions)
        return replace(self, shown=(*self.shown, *(d for d in own if d not in self.shown)))

    def slice(self, **values: Value) -> "Cube":
        """Only where dimensions have these values; they are not shown any more."""
        return self._fixed({name: frozenset((value,)) for name, value in values.items()})._without(values)

    def dice(self, **values: Collection[Value]) -> "Cube":
        """Only where dimensions have one of these values."""
        return self._fixed({name: frozenset(chosen) for name, chosen in values.items()}).drill_down(*values)

    @property
    def level(self) -> frozenset[str]:
        """The dimensions that the rows are grouped by."""
        return frozenset(self.shown) | {name for name, _ in self.fixed}

    def frame(self) -> pl.DataFrame:
        """The rows now: the dimensions shown, then the other columns, sorted by the first.

        Types are those of `Engine.query`.
        """
        level, live = self._level(), self.engine[self.view]
        table = pl.DataFrame(view_table(live.layout.result, live.row_words(), self.engine.dictionary))
        conditions = [pl.col(name).eq_missing(value) for name, value in level.marks]
        conditions += [pl.col(name).is_not_null() for name in level.there]
        for name, values in self.fixed:
            column = pl.col(name)
            if table.schema[name] == pl.Datetime("ns"):
                column = column.cast(pl.Int64)
            equal = (column.eq_missing(pl.lit(value)) for value in values)
            conditions.append(reduce(or_, equal, pl.lit(False)))
        hidden = {*self.dimensions, *(n for n, _ in level.marks)} - set(self.shown)
        measures = [n for n in table.columns if n not in hidden and n not in self.shown]
        found = table.filter(*conditions).select(*self.shown, *measures)
        return found.sort(self.shown) if self.shown else found

    def __getitem__(self, key: object) -> ViewRow:
        wanted = key if isinstance(key, tuple) else (key,)
        for own, row in self._rows():
            if own == wanted:
                return row
        raise KeyError(key)

    def __iter__(self) -> Iterator[Key]:
        return (key for key, _ in self._rows())

    def __len__(self) -> int:
        return sum(1 for _ in self._rows())

    def _rows(self) -> Iterator[tuple[Key, ViewRow]]:
        level = self._level()
        for row in self.engine[self.view].values():
            own = all(row[name] == value for name, value in level.marks)
            own = own and all(row[name] is not None for name in level.there)
            if own and all(row[name] in values for name, values in self.fixed):
                yield tuple(row[name] for name in self.shown), row

    def _level(self) -> GroupingLevel:
        for level in self.levels:
            if level.dimensions == self.level:
                return level
        known = "; ".join(", ".join(sorted(one.dimensions)) or "the grand total" for one in self.levels)
        wanted = ", ".join(sorted(self.level)) or "nothing"
        raise DataError(f"{self.view} has no groups by {wanted}; it has those by {known}")

    def _named(self, dimensions: Collection[str]) -> tuple[str, ...]:
        for name in dimensions:
            if name not in self.dimensions:
                raise DataError(
                    f"{self.view} has no dimension {name!r}; it has {', '.join(self.dimensions) or 'none'}"
                )
        return tuple(dict.fromkeys(dimensions))

    def _fixed(self, values: Mapping[str, frozenset[Value]]) -> "Cube":
        self._named(values)
        fixed = dict(self.fixed)
        for name, chosen in values.items():
            fixed[name] = fixed[name] & chosen if name in fixed else chosen
        return replace(self, fixed=tuple(fixed.items()))

    def _without(self, names: Collection[str]) -> "Cube":
        return replace(self, shown=tuple(name for name in self.shown if name not in names))


def cube(engine: "Engine", view: str) -> Cube:
    """See `ClientEngine.cube`."""
    engine[view]
    bound = next((v for v in engine.program.catalog.views if v.name == view), None)
    if bound is None:
        raise DataError(f"{view} is declared in M3, which has no grouping sets")
    levels, dimensions = _levels(bound)
    finest = max(levels, key=lambda level: len(level.dimensions)).dimensions
    return Cube(engine, view, levels, dimensions, tuple(d for d in dimensions if d in finest))


def _levels(view: View) -> tuple[tuple[GroupingLevel, ...], tuple[str, ...]]:
    """The levels of a view, and its dimensions in the order of its columns."""
    branches = _branches(view.query)
    if not branches or not all(branch.aggregated for branch in branches):
        raise DataError(f"{view.name} has no GROUP BY, so it is no cube")
    groups = [_grouped(branch) for branch in branches]
    dimensions = tuple(o.name for o in branches[0].outputs if any(o.name in own for own in groups))
    for branch, own in zip(branches, groups, strict=True):
        if len(own) < len(set(branch.group_by)):
            raise DataError(f"{view.name} does not show all that it groups by; add it to the SELECT list")
    names = [
        output.name
        for place, output in enumerate(branches[0].outputs)
        if all(_is_number(branch.outputs[place].expression) for branch in branches)
    ]
    marks = [tuple((name, _literal_of(branch, name)) for name in names) for branch in branches]
    if len(set(marks)) == len(marks):
        return tuple(
            GroupingLevel(frozenset(own), mark) for own, mark in zip(groups, marks, strict=True)
        ), dimensions
    shown = {(n, _shown_as(b, n)) for b, own in zip(branches, groups, strict=True) for n in own}
    perhaps = sorted({name for name, expression in shown if expression.nullable})
    if perhaps:
        raise DataError(
            f"the levels of {view.name} cannot be told apart where {', '.join(perhaps)} may be NULL; add "
            f"GROUPING({', '.join(dimensions)}) to the SELECT list"
        )
    absent = [tuple((d, None) for d in dimensions if d not in own) for own in groups]
    levels = [GroupingLevel(frozenset(o), a, tuple(o)) for o, a in zip(groups, absent, strict=True)]
    return tuple(dict.fromkeys(levels)), dimensions


def _branches(query: Select) -> tuple[Select, ...]:
    """The grouping sets of a query: branches of a union that is shown as it is, or the query itself."""
    if len(query.sources) == 1 and not query.aggregated and query.where is None and query.top is None:
        relation = getattr(query.sources[0], "relation", None)
        shown = [(o.name, o.expression) for o in query.outputs]
        plain = all(isinstance(e, ColumnRef) and e.name == name for name, e in shown)
        if isinstance(relation, UnionAll) and plain:
            return relation.branches
    return (query,)


def _grouped(branch: Select) -> list[str]:
    """The outputs that are what the branch groups by."""
    return [output.name for output in branch.outputs if output.expression in branch.group_by]


def _is_number(expression: Expression) -> bool:
    return isinstance(expression, Literal) and isinstance(expression.value, int)


def _shown_as(branch: Select, name: str) -> Expression:
    return next(output.expression for output in branch.outputs if output.name == name)


def _literal_of(branch: Select, name: str) -> Any:
    expression = _shown_as(branch, name)
    assert isinstance(expression, Literal)
    return expression.value
