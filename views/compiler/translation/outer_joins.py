"""Outer joins and unions of rows: sums of polynomials whose terms bind the same variables."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from views.compiler.calculus import Cmp, Const, Factor, Lift, Poly, Scalar, Val, Var, product, substitute
from views.compiler.conditions import NULL, TRUE, choose, not_null
from views.compiler.intervals import join, scalar_type
from views.compiler.names import Names, binders, own_variable, renamed
from views.compiler.types import Type, unscaled

from .values import Value, cast


@dataclass(frozen=True, slots=True)
class Rows:
    """A polynomial that counts rows, and the columns of the sources they come from."""

    counted: Poly
    columns: Mapping[str, Mapping[str, Value]]


def outer_join(names: Names, left: Rows, right: Rows, on: Poly, full: bool) -> Rows:
    """The pairs of rows that join, the left rows that have no partner, and with `full` the right ones.

    A column of a side that may be missing is a variable that is NULL where it is missing.
    """
    optional_right, right_variables = _optional(names, right)
    optional_left, left_variables = _optional(names, left) if full else (left, ())
    joined = optional_left.counted * optional_right.counted * on
    joined += optional_left.counted * _without_partner(
        names, right.counted * on, left.counted, right_variables
    )
    if full:
        joined += optional_right.counted * _without_partner(
            names, left.counted * on, right.counted, left_variables
        )
    return Rows(joined, {**optional_left.columns, **optional_right.columns})


def _optional(names: Names, rows: Rows) -> tuple[Rows, tuple[Var, ...]]:
    """The rows with every column in a variable of its own that may be NULL, and those variables."""
    bound = binders(rows.counted)
    lifts: list[Factor] = []
    variables: dict[Var, None] = {}

    def optional(name: str, value: Value) -> Value:
        variable = own_variable(value, bound)
        if variable is None:
            body = product(Val(choose(value.valid, value.scalar, NULL)))
            variable = names.lift(name, body, lifts, scalar_type(value.scalar, names.types))
        names.shown[variable] = value.type
        variables[variable] = None
        return Value(variable, value.type, not_null(variable))

    columns = {
        source: {name: optional(name, value) for name, value in values.items()}
        for source, values in rows.columns.items()
    }
    return Rows(rows.counted * product(*lifts), columns), tuple(variables)


def _without_partner(names: Names, partners: Poly, kept: Poly, missing: Sequence[Var]) -> Poly:
    """1 where no partner of a row of `kept` exists; then the missing columns are NULL."""
    others, _ = names.copy(partners, binders(kept))
    lifts: list[Factor] = []
    count = names.lift("partners", others, lifts)
    nulls = (Lift(v, product(Val(NULL))) for v in missing)
    return product(*lifts, Cmp("=", count, Const(0)), *nulls)


def union(names: Names, source: str, outputs: Sequence[tuple[str, Type]], branches: Sequence[Rows]) -> Rows:
    """The rows of all branches; `branches` have one source each, `source`, with the outputs' names.

    A branch's own variable takes the union's name where it can, so that conditions on it reach the
    branch's relation.
    """
    columns = {}
    for name, kind in outputs:
        values = [cast(b.columns[source][name], kind) for b in branches]
        variable = names.column(source, name, _type_of_all(names, values, kind))
        names.shown[variable] = kind
        never_null = all(v.valid == TRUE for v in values)
        columns[name] = Value(variable, kind, TRUE if never_null else not_null(variable))
    counted = Poly(())
    for branch in branches:
        counted += _as_outputs(branch.counted, branch.columns[source], columns)
    return Rows(counted, {source: columns})


def _as_outputs(rows: Poly, found: Mapping[str, Value], columns: Mapping[str, Value]) -> Poly:
    """The rows of a branch, binding the union's variables."""
    bound = binders(rows)
    names: dict[Var, Scalar] = {}
    lifts: list[tuple[Var, Value]] = []
    for name, column in columns.items():
        value = cast(found[name], column.type)
        plain = own_variable(value, bound)
        assert isinstance(column.scalar, Var)
        if plain is None or plain in names:
            lifts.append((column.scalar, value))
        else:
            names[plain] = column.scalar
    values = ((v, renamed(value, names)) for v, value in lifts)
    factors = (Lift(v, product(Val(choose(value.valid, value.scalar, NULL)))) for v, value in values)
    return substitute(rows, names) * product(*factors)


def _type_of_all(names: Names, values: Sequence[Value], kind: Type) -> Type:
    types = [scalar_type(v.scalar, names.types) for v in values]
    result = types[0]
    for other in types[1:]:
        result = join(result, other)
    return replace(unscaled(kind), low=result.low, high=result.high)
