"""Patterns of MATCH_RECOGNIZE in the calculus: their conditions and measures as scalars over rows."""

from collections.abc import Mapping

from orderbook.views.binding import bound
from orderbook.views.calculus import Factor, Lift, Scalar, Val, Var, substitute_scalar
from orderbook.views.conditions import TRUE
from orderbook.views.m3 import (
    Kept,
    Result,
    ResultColumn,
    RowPattern,
    kept_there,
    kept_value,
    row_there,
    row_value,
)
from orderbook.views.translation.translate import Translator
from orderbook.views.translation.values import Value
from orderbook.views.types import Type, unscaled
from orderbook.views.wide_values import word_scalars, word_types


def rows_of(pattern: bound.RowPattern) -> bound.View:
    """The view whose rows a pattern is sought in."""
    return bound.View(f"{pattern.name}_rows", pattern.rows, "")


def row_pattern(pattern: bound.RowPattern, rows: Result) -> RowPattern:
    """The pattern over the rows of that view."""
    return _Scalars(pattern, rows).pattern()


class _Scalars:
    def __init__(self, pattern: bound.RowPattern, rows: Result) -> None:
        self._pattern, self._rows = pattern, rows
        self._names = [c.name for c in rows.columns]
        self._translator = Translator({})
        self._back = 0
        self._scope: dict[str, Mapping[str, Value]] = {}
        for back in _rows_back(pattern):
            self._back = max(self._back, back)
            self._scope[bound.row_at(back)] = {
                c.name: self._value(
                    row_value(back, place), c.type, row_there(back, place), back or c.valid != TRUE
                )
                for place, c in enumerate(rows.columns)
            }
        self._scope[bound.MATCH] = {
            f"kept_{n}": self._value(kept_value(n), kept.type, kept_there(n), kept.nullable)
            for n, kept in enumerate(pattern.kept)
        }

    def _value(self, variable: Var, kind: Type, there: Var, nullable: object) -> Value:
        self._translator.types[variable] = unscaled(kind)
        return Value(variable, kind, there if nullable else TRUE)

    def pattern(self) -> RowPattern:
        """The pattern."""
        of, found = self._pattern, self._pattern.automaton
        return RowPattern(
            of.name,
            self._rows,
            tuple(map(self._names.index, of.partition)),
            tuple((self._names.index(name), descending) for name, descending in of.order),
            found.variable_of,
            found.first,
            found.follow,
            tuple(TRUE if c is None else self._condition(c) for c in of.conditions),
            tuple(self._kept(kept) for kept in of.kept),
            of.overlapping,
            of.within,
            self._back,
            tuple(column for output in of.outputs for column in self._columns(output)),
        )

    def _condition(self, expression: bound.Expression) -> Scalar:
        lifts: list[Factor] = []
        return _resolved(self._translator.condition(expression, self._scope, lifts)[0], lifts)

    def _scalars(self, expression: bound.Expression) -> tuple[Scalar, Scalar]:
        lifts: list[Factor] = []
        value = self._translator.value(expression, self._scope, lifts)
        return _resolved(value.scalar, lifts), _resolved(value.valid, lifts)

    def _kept(self, kept: bound.Kept) -> Kept:
        value, valid = (TRUE, TRUE) if kept.argument is None else self._scalars(kept.argument)
        return Kept(kept.how, kept.variables, value, valid, kept.type)

    def _columns(self, output: bound.Output) -> list[ResultColumn]:
        """The columns of the relation of matches for an output: one, or several of what is wide."""
        value, valid = self._scalars(output.expression)
        kind = output.expression.type
        words = zip(word_types(kind), word_scalars(value, kind), strict=True)
        return [ResultColumn(output.name, one, word, valid) for one, word in words]


def _rows_back(pattern: bound.RowPattern) -> list[int]:
    """How far back the rows lie that are read."""
    expressions = [
        *pattern.conditions,
        *(k.argument for k in pattern.kept),
        *(o.expression for o in pattern.outputs),
    ]
    read = {
        p.source
        for e in expressions
        if e is not None
        for p in bound.parts(e)
        if isinstance(p, bound.ColumnRef)
    }
    return [0, *(back for back in range(1, bound.MOST_BACK + 1) if bound.row_at(back) in read)]


def _resolved(scalar: Scalar, lifts: list[Factor]) -> Scalar:
    """The scalar with what lifts bind in their place."""
    for factor in reversed(lifts):
        match factor:
            case Lift(variable, body) if len(body.terms) == 1 and isinstance(body.terms[0][0], Val):
                scalar = substitute_scalar(scalar, {variable: body.terms[0][0].scalar})
            case _:
                raise AssertionError(factor)
    return scalar
