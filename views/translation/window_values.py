"""Window functions to scalars: lifts over the rows of the partition, renamed apart from the row at hand."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from orderbook.views.binding import bound
from orderbook.views.calculus import (
    ZERO,
    Apply,
    Cmp,
    Const,
    Exists,
    Factor,
    Lift,
    Neighbour,
    Poly,
    Scalar,
    Val,
    Var,
    product,
    scalar_variables,
    substitute,
)
from orderbook.views.conditions import (
    FALSE,
    NULL,
    TRUE,
    both,
    choose,
    comparison,
    condition_poly,
)
from orderbook.views.intervals import exact, join, scalar_type
from orderbook.views.translation.row_order import Ordered, before, in_words, is_wide, supporting, up_to
from orderbook.views.translation.translate_values import AggregateTranslator, Group
from orderbook.views.translation.values import (
    Scope,
    Value,
    binders,
    keyed,
    renamed,
)


@dataclass(slots=True)
class WindowTranslator(AggregateTranslator):
    """Translates window functions.

    The rows of the partition share the variables it is partitioned by with the row at hand, so that
    NULLs form one partition; all their other variables are their own.
    """

    def window(self, window: bound.Window, scope: Scope, lifts: list[Factor], group: Group) -> Value:
        if window.function in ("lag", "lead"):
            return self._neighbour(window, scope, lifts, group)
        if window.frame is not None:
            return self._over_rows(window, window.frame, scope, lifts, group)
        rows = group.rows
        inner: list[Factor] = []
        keys = [self.key("part", self.value(p, scope, inner), inner) for p in window.partition_by]
        order = [self.value(item.expression, scope, inner) for item in window.order_by]
        lifts += [f for f in inner if f not in lifts]
        others, names = self.copy(rows * product(*inner), frozenset(keys))
        pairs = [
            Ordered(renamed(value, names), value, item.descending, item.nulls_first)
            for value, item in zip(order, window.order_by, strict=True)
        ]
        if window.function in ("rank", "row_number") or any(is_wide(p.one, self.types) for p in pairs):
            pairs = in_words(pairs, self.types)
        if window.function == "rank":
            return self._rank(before(others, pairs), window, lifts)
        if window.function == "row_number":
            pairs += [Ordered(renamed(v, names), v) for v in self._columns(rows, scope)]
            return self._rank(before(others, pairs), window, lifts)
        if window.function == "dense_rank":
            return self._rank(self._orders(others, tuple(keys), pairs), window, lifts)
        copied = {source: _renamed_columns(columns, names) for source, columns in scope.items()}
        frame = Group(up_to(others, pairs), True, tuple(keys), binders(rows * product(*inner)))
        aggregate = _aggregate_of(window)
        return self.aggregate(aggregate, copied, lifts, frame)

    def _neighbour(self, window: bound.Window, scope: Scope, lifts: list[Factor], group: Group) -> Value:
        """The argument in the row that stands `offset` rows before (lag) or after (lead) the row at hand."""
        assert window.argument is not None
        inner: list[Factor] = []
        parts, places = self._places(window, scope, inner)
        before = window.function == "lag"
        lifts += [f for f in inner if f not in lifts]
        if not (places and group.rows.terms):
            return Value(Const(0), window.type, FALSE, zero_if_null=True)
        given = self.value(window.argument, scope, inner)
        rows, row = group.rows * product(*inner), tuple(places)
        valid: Scalar = TRUE
        if window.skips_null:
            rows *= condition_poly(given.valid)
            given = replace(given, valid=TRUE)
        argument = given
        # A chain of looks is shorter for some, and needed for what need not be one of the rows.
        away = window.offset if window.offset > 3 and not window.skips_null else 0
        for step in range(1 if away else window.offset):
            _, names = self.copy(rows, frozenset(parts))
            apart = window.skips_null and step == 0
            look, rows, names_there = self._look(rows, row, parts, places, before, away, apart, lifts)
            valid = both(valid, comparison(">", look.found, Const(0)))
            argument, row = renamed(renamed(argument, names), names_there), look.vars
        if argument.valid == TRUE and {*scalar_variables(argument.scalar)} <= {*row, *parts}:
            return replace(argument, valid=valid)
        at_row = condition_poly(valid) * rows * condition_poly(argument.valid)
        kind = scalar_type(given.scalar, self.types)
        kind = join(kind, exact(0, 0)) if kind.exact else kind
        value = self.lift(window.function, at_row * product(Val(argument.scalar)), lifts, kind)
        if argument.valid != TRUE:
            valid = comparison(">", self.lift("count", at_row, lifts, exact(0, 1)), Const(0))
        return Value(value, given.type, valid, zero_if_null=True)

    def _places(
        self, window: bound.Window, scope: Scope, inner: list[Factor]
    ) -> tuple[tuple[Var, ...], dict[Var, bool]]:
        """Variables of the partition, and of what rows are ordered by in it with whether that descends."""
        parts = tuple(self.key("part", self.value(p, scope, inner), inner) for p in window.partition_by)
        places: dict[Var, bool] = {}
        for item in window.order_by:
            variable = self.key("order", self.value(item.expression, scope, inner), inner)
            if variable not in parts:
                places.setdefault(variable, item.descending)
        return parts, places

    def _look(
        self,
        rows: Poly,
        row: tuple[Var, ...],
        parts: tuple[Var, ...],
        places: Mapping[Var, bool],
        before: bool,
        away: int,
        apart: bool,
        lifts: list[Factor],
    ) -> tuple[Neighbour, Poly, Mapping[Var, Scalar]]:
        """The neighbour, before or after it, of the row that is ordered as `row`; and `_looking`'s others."""
        others, names = self.copy(rows, frozenset(parts))
        values = _renamed_variables(row, names)
        greatest = tuple(descends is not before for descends in places.values())
        look = Neighbour(Var("found"), values, greatest, values, row, parts, others, apart, away)
        return self._looking(look, lifts)

    def _over_rows(
        self,
        window: bound.Window,
        frame: tuple[int | None, int | None],
        scope: Scope,
        lifts: list[Factor],
        group: Group,
    ) -> Value:
        """The aggregate over the rows between those that stand so many rows from the row at hand."""
        if not group.rows.terms:
            return Value(Const(0), window.type, FALSE if window.nullable else TRUE, zero_if_null=True)
        inner: list[Factor] = []
        parts, places = self._places(window, scope, inner)
        lifts += [f for f in inner if f not in lifts]
        rows = group.rows * product(*inner)
        others, names = self.copy(rows, frozenset(parts))
        if not places and not all(
            end is None or end * sign <= 0 for end, sign in zip(frame, (1, -1), strict=True)
        ):
            # A partition is the row at hand alone.
            others = ZERO
        around = set(binders(rows))
        for first, end in zip((True, False), frame if places else (None, None), strict=True):
            if end is None:
                continue
            at = tuple(places)
            next_to = end == (1 if first else -1)
            if end and not next_to:
                look, _, _ = self._look(rows, at, parts, places, end < 0, abs(end), False, lifts)
                at = look.vars
                around |= {*at}
                if (end < 0) is not first:
                    # Where there is no such row the frame is empty; elsewhere it ends with the partition.
                    others *= product(Cmp(">", look.found, Const(0)))
            pairs = [
                Ordered(Value(names[v], exact(0, 0)), Value(there, exact(0, 0)), descends is not first)
                for (v, descends), there in zip(places.items(), at, strict=True)
            ]
            others = (before if next_to else up_to)(others, pairs)
        copied = {source: _renamed_columns(columns, names) for source, columns in scope.items()}
        aggregate = _aggregate_of(window)
        return self.aggregate(aggregate, copied, lifts, Group(others, False, parts, frozenset(around)))

    def _looking(self, look: Neighbour, lifts: list[Factor]) -> tuple[Neighbour, Poly, Mapping[Var, Scalar]]:
        """The neighbour with variables of its own, once in `lifts`; the rows in them, and their names."""
        alike = (f for f in lifts if isinstance(f, Neighbour))
        same = next((f for f in alike if replace(f, found=look.found, vars=look.vars) == look), None)
        found = same.found if same else self.fresh("found", exact(0, 1))
        names: dict[Var, Scalar] = {}
        for variable in binders(look.body) - {*look.partition}:
            source, dot, column = variable.name.rpartition(".")
            names[variable] = Var(f"{source}~{found.name}.{column}" if dot else f"{column}~{found.name}")
        own = replace(look, found=found, vars=_renamed_variables(look.values, names))
        if same is None:
            lifts.append(own)
        return own, substitute(look.body, names), names

    def _rank(self, rows: Poly, window: bound.Window, lifts: list[Factor]) -> Value:
        """1 and the rows that stand before."""
        return Value(Apply("+", (self.lift("before", rows, lifts), Const(1))), window.type)

    def _orders(self, others: Poly, keys: tuple[Var, ...], pairs: list[Ordered]) -> Poly:
        """The distinct values of the order in the partition that stand before the row at hand."""
        inner: list[Factor] = []
        distinct = []
        for pair in pairs:
            variable = self.fresh("order", scalar_type(pair.one.scalar, self.types))
            inner.append(Lift(variable, product(Val(choose(pair.one.valid, pair.one.scalar, NULL)))))
            distinct.append(Ordered(keyed(variable, pair.one), pair.other, pair.descending, pair.nulls_first))
        variables = tuple(p.one.scalar for p in distinct if isinstance(p.one.scalar, Var))
        exists = Exists((*keys, *variables), supporting(others) * product(*inner))
        return before(product(exists), distinct)

    def _columns(self, rows: Poly, scope: Scope) -> list[Value]:
        """What tells rows apart: the columns of their identity, or all that they bind."""
        identity = self.identity(rows)
        found = binders(rows) if identity is None else identity
        return [
            value
            for columns in scope.values()
            for value in columns.values()
            if isinstance(value.scalar, Var) and value.scalar in found
        ]


def _aggregate_of(window: bound.Window) -> bound.Aggregate:
    kept = (window.function, window.argument, window.type, window.nullable, window.distinct)
    return bound.Aggregate(*kept, by=window.by)


def _renamed_variables(variables: Iterable[Var], names: Mapping[Var, Scalar]) -> tuple[Var, ...]:
    found = tuple(names[v] for v in variables)
    assert all(isinstance(v, Var) for v in found)
    return found  # type: ignore[return-value]


def _renamed_columns(columns: Mapping[str, Value], names: Mapping[Var, Scalar]) -> dict[str, Value]:
    return {name: renamed(value, names) for name, value in columns.items()}
