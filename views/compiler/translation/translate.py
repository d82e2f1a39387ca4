"""From the bound query to the calculus.

A value of SQL becomes a pair: a scalar, and the condition under which it is not NULL. Nested
aggregates become lifts, groups of derived tables become Exists, so that what follows knows neither
NULL nor decimals: exact values are scaled integers (the scale stays here and in the view's columns).
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from views.compiler.binding import bound
from views.compiler.calculus import (
    ONE,
    Cmp,
    Factor,
    Lift,
    Poly,
    Scalar,
    Var,
    bound_by,
    product,
    scalar_variables,
    substitute,
    substitute_scalar,
    substitute_term,
    variable_set,
)
from views.compiler.conditions import FALSE, NULL
from views.compiler.names import renamed
from views.compiler.rewriting.scoping import rename_apart
from views.compiler.types import Type

from .translate_rows import RowTranslator
from .values import Value


@dataclass(frozen=True, slots=True)
class ViewKey:
    """A key of a view's rows, with its SQL type; a nullable one holds NULL as `conditions.NULL`."""

    variable: Var
    name: str
    type: Type


@dataclass(frozen=True, slots=True)
class ViewColumn:
    """A column of a view: a formula over the keys and lets, NULL where `valid` does not hold."""

    name: str
    type: Type
    scalar: Scalar
    valid: Scalar


@dataclass(frozen=True, slots=True)
class CalculusView:
    """A view in the calculus.

    `multiplicity` counts the rows of each key (a group exists while it has rows); an aggregated view
    has every key once (`grouped`), or exactly one row when `multiplicity` is None. `lets` bind what
    the columns read, each summed for the row's keys.
    """

    name: str
    keys: tuple[ViewKey, ...]
    multiplicity: Poly | None
    grouped: bool
    lets: tuple[tuple[Var, Poly], ...]
    columns: tuple[ViewColumn, ...]


@dataclass(slots=True)
class Translator(RowTranslator):
    """Translates the views of a catalog."""

    def view(self, view: bound.View) -> CalculusView:
        """The calculus of one view; no two scopes of one polynomial use a variable for different things."""
        result = _without_unused_lets(self._view(view))
        outer = frozenset(k.variable for k in result.keys)
        multiplicity = result.multiplicity and rename_apart(result.multiplicity, outer)
        lets = []
        for variable, body in result.lets:
            lets.append((variable, rename_apart(body, outer)))
            outer |= {variable}
        return replace(result, multiplicity=multiplicity, lets=tuple(lets))

    def _view(self, view: bound.View) -> CalculusView:
        query = view.query
        if query.aggregated and query.having is None and query.top is None:
            return self._aggregated_view(view.name, query)
        table = self.table(query, {})
        return self._plain_view(view.name, table.rows, list(table.lifts), list(table.columns.items()))

    def _aggregated_view(self, name: str, query: bound.Select) -> CalculusView:
        group, scope = self.group(query.group_by, *self.rows(query, {}))
        lifts: list[Factor] = []
        columns = [(o.name, self.value(o.expression, scope, lifts, group)) for o in query.outputs]
        return CalculusView(
            name,
            self._keys(group.keys),
            group.rows if query.group_by else None,
            True,
            _lets(lifts),
            tuple(ViewColumn(n, v.type, v.scalar, v.valid) for n, v in columns),
        )

    def _plain_view(
        self, name: str, rows: Poly, lifts: list[Factor], values: Sequence[tuple[str, Value]]
    ) -> CalculusView:
        if not rows.terms:
            return CalculusView(
                name, (), rows, False, (), tuple(ViewColumn(n, v.type, NULL, FALSE) for n, v in values)
            )
        same = _same_columns(rows)
        rows, lifts = substitute(rows, same), list(substitute_term(tuple(lifts), same))
        values = [(n, renamed(v, same)) for n, v in values]
        needed = [v for _, value in values for s in (value.scalar, value.valid) for v in scalar_variables(s)]
        needed += [v for lift in lifts for v in variable_set(product(lift))]
        keys, lets = _roots(rows, needed)
        return CalculusView(
            name,
            self._keys(keys),
            None if rows == ONE else rows,
            rows == ONE,
            lets + _lets(lifts),
            tuple(ViewColumn(n, v.type, v.scalar, v.valid) for n, v in values),
        )

    def _keys(self, variables: Sequence[Var]) -> tuple[ViewKey, ...]:
        return tuple(ViewKey(v, v.name.rpartition(".")[2], self.shown[v]) for v in variables)


def _without_unused_lets(view: CalculusView) -> CalculusView:
    used = {v for c in view.columns for s in (c.scalar, c.valid) for v in scalar_variables(s)}
    lets = []
    for variable, body in reversed(view.lets):
        if variable in used:
            lets.append((variable, body))
            used |= variable_set(body)
    return replace(view, lets=tuple(reversed(lets)))


def _lets(lifts: Sequence[Factor]) -> tuple[tuple[Var, Poly], ...]:
    return tuple((f.var, f.body) for f in lifts if isinstance(f, Lift))


def _same_columns(rows: Poly) -> dict[Var, Scalar]:
    """One variable for columns that every row has equal, so that a joined key is a key once."""
    same: dict[Var, Scalar] = {}
    lifted = {f.var for t in rows.terms for f in t if isinstance(f, Lift)}
    columns = {v for t in rows.terms for f in t for v in bound_by(f)} - lifted
    for factor in rows.terms[0] if rows.terms else ():
        if not isinstance(factor, Cmp) or factor.op != "=" or not all(factor in t for t in rows.terms):
            continue
        left, right = substitute_scalar(factor.left, same), substitute_scalar(factor.right, same)
        if isinstance(left, Var) and isinstance(right, Var) and left != right and {left, right} <= columns:
            same = {v: substitute_scalar(s, {left: right}) for v, s in same.items()} | {left: right}
    return same


def _roots(rows: Poly, needed: Sequence[Var]) -> tuple[tuple[Var, ...], tuple[tuple[Var, Poly], ...]]:
    """The variables that identify a row, and the lifts that follow from them.

    A needed variable that a lift of every term binds is recomputed from that lift's own variables.
    """
    lifted: dict[Var, Poly] = {}
    for factor in rows.terms[0] if rows.terms else ():
        if isinstance(factor, Lift) and all(factor in term for term in rows.terms):
            lifted[factor.var] = factor.body
    keys: dict[Var, None] = {}
    lets: dict[Var, Poly] = {}
    bound_variables = {v for t in rows.terms for f in t for v in bound_by(f)}

    def need(variable: Var) -> None:
        if variable in lets or variable in keys or variable not in bound_variables:
            return
        if variable in lifted:
            for inner in sorted(variable_set(lifted[variable]), key=lambda v: v.name):
                need(inner)
            lets[variable] = lifted[variable]
        else:
            keys[variable] = None

    for variable in needed:
        need(variable)
    return tuple(keys), tuple(lets.items())
