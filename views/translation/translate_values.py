"""Expressions to scalars with conditions of validity; the factors they need are collected as lifts.

Aggregates become lifts over the rows of a group.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from math import log

from orderbook.views.binding import bound
from orderbook.views.calculus import (
    Apply,
    Cmp,
    Const,
    Exists,
    Extreme,
    Factor,
    Lift,
    Poly,
    Scalar,
    Val,
    Var,
    product,
)
from orderbook.views.conditions import (
    NULL,
    TRUE,
    both,
    choose,
    choose_condition,
    comparison,
    condition_poly,
    either,
    negation,
    truth,
)
from orderbook.views.intervals import exact, join, scalar_type
from orderbook.views.scalars import lists
from orderbook.views.translation.conditional_sums import has_neighbours, weighed
from orderbook.views.translation.row_order import Ordered, before, supporting
from orderbook.views.translation.statistical_aggregates import (
    DECAYED,
    QUANTILES,
    STATISTICS,
    Powers,
    Rank,
    decayed,
    mean,
    statistic,
)
from orderbook.views.translation.values import (
    Names,
    Scope,
    Value,
    aligned,
    arithmetic,
    as_double,
    binders,
    cast,
    coalesce,
    converted,
    function,
    keyed,
    literal,
    renamed,
    times,
    where_valid,
)
from orderbook.views.types import BOOLEAN, DOUBLE, INTEGER, Kind

LISTS = ("string_agg", "list")


@dataclass(frozen=True, slots=True)
class Group:
    """The rows that aggregates and windows read, of all groups of `keys`; `has_rows` says none is empty.

    `around` are variables that the rows share with what is outside of them.
    """

    rows: Poly
    has_rows: bool
    keys: tuple[Var, ...] = ()
    around: frozenset[Var] = frozenset()


@dataclass(frozen=True)
class GroupedScope(Mapping[str, Mapping[str, Value]]):
    """The scope of an aggregated query's outputs: grouping expressions are named by their keys."""

    scope: Scope
    grouped: Mapping[bound.Expression, Value]

    def __getitem__(self, source: str) -> Mapping[str, Value]:
        columns = dict(self.scope[source])
        for expression, value in self.grouped.items():
            if isinstance(expression, bound.ColumnRef) and expression.source == source:
                columns[expression.name] = value
        return columns

    def __iter__(self):  # type: ignore[no-untyped-def]
        return iter(self.scope)

    def __len__(self) -> int:
        return len(self.scope)


# The source of the values of a group that a condition of a subquery asks for.
_OF_GROUP = "values of the group"


@dataclass(slots=True)
class ValueTranslator(Names):
    """Translates expressions; what reads rows of its own is left to the layers above."""

    def value(
        self, expression: bound.Expression, scope: Scope, lifts: list[Factor], group: Group | None = None
    ) -> Value:
        """Translates an expression; factors it needs are appended to `lifts`."""
        if isinstance(scope, GroupedScope) and expression in scope.grouped:
            return scope.grouped[expression]
        match expression:
            case bound.ColumnRef(source, name):
                return scope[source][name]
            case bound.Literal(value, kind):
                return literal(value, kind)
            case bound.Arithmetic(op, left, right):
                a = self.value(left, scope, lifts, group)
                b = self.value(right, scope, lifts, group)
                result = arithmetic(op, a, b)
                return result if expression.type.numeric else replace(result, type=expression.type)
            case bound.Coalesce(args):
                return coalesce([self.value(a, scope, lifts, group) for a in args], expression.type)
            case bound.Function(name, args):
                return function(name, [self.value(a, scope, lifts, group) for a in args], expression.type)
            case bound.Cast(argument):
                given = self.value(argument, scope, lifts, group)
                return converted(given, expression.type, scalar_type(given.scalar, self.types))
            case bound.Case():
                return self._case(expression, scope, lifts, group)
            case bound.ScalarSubquery(query):
                return self.subquery(*self._beside_group(query, scope, lifts, group), lifts)
            case bound.Aggregate() | bound.Window():
                if group is None:
                    raise ValueError(f"{expression.function} outside of rows")
                if isinstance(expression, bound.Window):
                    return self.window(expression, scope, lifts, group)
                return self.aggregate(expression, scope, lifts, group)
            case bound.Comparison() | bound.Logical() | bound.IsNull():
                true, false = self.condition(expression, scope, lifts, group)
                return (
                    Value(true, BOOLEAN, either(true, false)) if expression.nullable else Value(true, BOOLEAN)
                )
        raise TypeError(expression)

    def condition(
        self, expression: bound.Expression, scope: Scope, lifts: list[Factor], group: Group | None = None
    ) -> tuple[Scalar, Scalar]:
        """When the expression is true, and when it is false; NULL is neither."""
        match expression:
            case bound.Comparison(op, left, right):
                a = self.value(left, scope, lifts, group)
                b = self.value(right, scope, lifts, group)
                valid = both(a.valid, b.valid)
                compared = comparison(op, *aligned(a, b))
                return both(valid, compared), both(valid, negation(compared))
            case bound.Logical("NOT", (argument,)):
                true, false = self.condition(argument, scope, lifts, group)
                return false, true
            case bound.Logical(op, args):
                joined = [self.condition(a, scope, lifts, group) for a in args]
                true, false = joined[0]
                for next_true, next_false in joined[1:]:
                    if op == "AND":
                        true, false = both(true, next_true), either(false, next_false)
                    else:
                        true, false = either(true, next_true), both(false, next_false)
                return true, false
            case bound.IsNull(argument):
                valid = self.value(argument, scope, lifts, group).valid
                return negation(valid), valid
        value = self.value(expression, scope, lifts, group)
        holds = truth(value.scalar)
        return both(value.valid, holds), both(value.valid, negation(holds))

    def _beside_group(
        self, query: bound.Select, scope: Scope, lifts: list[Factor], group: Group | None
    ) -> tuple[bound.Select, Scope]:
        """A subquery, and its scope, with columns for what its WHERE asks of the group around it.

        There it has no aggregates and windows of its own, but `SUM(x) IN (query)` compares with each row.
        """
        if group is None or query.where is None:
            return query, scope
        grouped = scope.grouped if isinstance(scope, GroupedScope) else {}
        found: dict[bound.Expression, Value] = {}

        def column(node: bound.Expression) -> bound.Expression | None:
            if isinstance(node, bound.ScalarSubquery | bound.ColumnRef):
                return node
            if not isinstance(node, bound.Aggregate | bound.Window) and node not in grouped:
                return None
            if node not in found:
                found[node] = self.value(node, scope, lifts, group)
            return bound.ColumnRef(_OF_GROUP, str(list(found).index(node)), node.type, node.nullable)

        where = bound.rewritten(query.where, column)
        if not found:
            return query, scope
        values = {str(place): value for place, value in enumerate(found.values())}
        return replace(query, where=where), {**scope, _OF_GROUP: values}

    def _case(self, case: bound.Case, scope: Scope, lifts: list[Factor], group: Group | None) -> Value:
        result = cast(self.value(case.otherwise, scope, lifts, group), case.type)
        for when, then in reversed(case.branches):
            taken = self.condition(when, scope, lifts, group)[0]
            value = cast(self.value(then, scope, lifts, group), case.type)
            pick = choose_condition if case.type.kind is Kind.BOOLEAN else choose
            result = Value(
                pick(taken, value.scalar, result.scalar),
                case.type,
                choose_condition(taken, value.valid, result.valid),
            )
        return result

    def subquery(self, query: bound.Select, scope: Scope, lifts: list[Factor]) -> Value:
        """The value of a query of one row."""
        raise NotImplementedError

    def aggregate(self, aggregate: bound.Aggregate, scope: Scope, lifts: list[Factor], group: Group) -> Value:
        """The value of an aggregate over the rows of the group at hand."""
        raise NotImplementedError

    def window(self, window: bound.Window, scope: Scope, lifts: list[Factor], group: Group) -> Value:
        """The value of a window function for the row at hand."""
        raise NotImplementedError


@dataclass(slots=True)
class AggregateTranslator(ValueTranslator):
    """Translates aggregates: multiplicities apart from values, NULL where nothing was counted."""

    def aggregate(self, aggregate: bound.Aggregate, scope: Scope, lifts: list[Factor], group: Group) -> Value:
        if isinstance(scope, GroupedScope):
            scope = scope.scope
        if aggregate.argument is None:
            return Value(self.lift("count", group.rows, lifts), aggregate.type)
        inner: list[Factor] = []
        argument = self.value(aggregate.argument, scope, inner)
        if aggregate.function == "count" and aggregate.by:
            return self._count_of_rows(aggregate, argument, scope, inner, group, lifts)
        if aggregate.function in LISTS:
            return self._listed(aggregate, argument, scope, inner, group, lifts)
        as_of = aggregate.by[2:] if aggregate.function in DECAYED else ()
        by = [self.value(b, scope, inner) for b in aggregate.by if b not in as_of]
        rows = group.rows * product(*inner)
        valid: Scalar = TRUE
        for value in (argument, *by):
            valid = both(valid, value.valid)
        rows = rows * condition_poly(valid, by_row=has_neighbours(rows))
        argument, *by = (replace(where_valid(value), valid=TRUE) for value in (argument, *by))
        if aggregate.function in DECAYED:
            until = [self.value(b, scope, lifts) for b in as_of]
            return self._decayed(aggregate.function, argument, (*by, *until), rows, group, lifts)
        if aggregate.function in ("min", "max", "arg_min", "arg_max"):
            rows = supporting(rows, argument.scalar)
            chosen = self._chosen(aggregate, argument, by, rows, group, lifts)
            if group.has_rows and valid == TRUE:
                return Value(chosen, argument.type)
            count = self.lift("count", rows, lifts)
            return Value(chosen, argument.type, comparison(">", count, Const(0)), zero_if_null=True)
        if aggregate.distinct:
            rows, argument = self._distinct(argument, rows, group)
        never_null = group.has_rows and valid == TRUE
        if aggregate.function.startswith("bit_"):
            return self._bits(aggregate, argument, rows, never_null, lifts)
        if aggregate.function == "entropy":
            return self._entropy(argument, rows, group, lifts)
        if aggregate.function in (*QUANTILES, "mad", "mode", "mode_desc"):
            found = {"mad": self._mad, "mode": self._mode, "mode_desc": self._mode}.get(
                aggregate.function, self._quantile
            )
            result = found(aggregate, argument, rows, group, lifts)
            if never_null:
                return result
            count = self.lift("count", rows, lifts)
            return replace(result, valid=comparison(">", count, Const(0)))
        if aggregate.function in STATISTICS:
            powers = Powers(rows, lambda name, body: self.lift(name, body, lifts), self.types)
            return statistic(aggregate.function, (argument, *by), powers, never_null)
        return self._sums(aggregate, argument, rows, never_null, lifts)

    def _sums(
        self, aggregate: bound.Aggregate, argument: Value, rows: Poly, never_null: bool, lifts: list[Factor]
    ) -> Value:
        """Aggregates that are made of counts and sums."""
        if aggregate.function == "count":
            return Value(self.lift("count", rows, lifts), aggregate.type)
        total = self.lift("sum", weighed(rows, argument.scalar, self.types), lifts)
        if never_null and aggregate.function == "sum":
            return Value(total, aggregate.type)
        count = self.lift("count", rows, lifts)
        valid = TRUE if never_null else comparison(">", count, Const(0))
        if aggregate.function == "sum":
            return Value(total, aggregate.type, valid, zero_if_null=True)
        return Value(mean(total, argument, count), DOUBLE, valid)

    def _decayed(
        self,
        function: str,
        argument: Value,
        by: Sequence[Value],
        rows: Poly,
        group: Group,
        lifts: list[Factor],
    ) -> Value:
        """A sum or mean by the age of rows; `by` is when a row was, the half-life, and when the age is taken.

        That is the latest row unless it is said, or where rows are later.
        """
        moment, half_life = by[0], by[1].scalar
        assert isinstance(half_life, Const) and isinstance(half_life.value, int)
        until: Scalar = self._extreme("last", moment, rows, True, group, lifts)
        for given in by[2:]:
            later = both(given.valid, comparison(">", given.scalar, until))
            until = choose(later, given.scalar, until)
        count = self.lift("count", rows, lifts)
        scalar = decayed(
            function,
            argument,
            moment,
            until,
            half_life.value,
            rows,
            lambda name, body: self.lift(name, body, lifts),
        )
        return Value(scalar, DOUBLE, comparison(">", count, Const(0)))

    def _quantile(
        self, aggregate: bound.Aggregate, argument: Value, rows: Poly, group: Group, lifts: list[Factor]
    ) -> Value:
        """The value at a rank of the rows, or between two of them."""
        (fraction,) = (b.value for b in aggregate.by if isinstance(b, bound.Literal))
        assert isinstance(fraction, Decimal)
        rank = Rank(fraction, self.lift("count", rows, lifts))
        inner: list[Factor] = []
        local = self._local(argument, rows, group, inner)
        rows = rows * product(*inner)
        others, names = self.copy(rows, group.around.union(group.keys))
        value = Value(local, argument.type)

        def first(reaches: Callable[[Scalar], Cmp], backwards: bool = False) -> Value:
            """The least value such that enough rows lie up to it, or the greatest one."""
            running: list[Factor] = []
            nearer = Cmp(">=" if backwards else "<=", names.get(local, local), local)
            up_to = self.lift("up_to", others * product(nearer), running)
            found = rows * product(*running, reaches(up_to))
            return Value(self._extreme("quantile", value, found, backwards, group, lifts), argument.type)

        if aggregate.function == "quantile_cont":
            return rank.between(first(rank.below), first(rank.above))
        return first(rank.discrete, backwards=aggregate.function == "quantile_disc_desc")

    def _mode(
        self, aggregate: bound.Aggregate, argument: Value, rows: Poly, group: Group, lifts: list[Factor]
    ) -> Value:
        """The value of the most rows; of several the least, or the greatest in a descending order."""
        inner: list[Factor] = []
        local = self._local(argument, rows, group, inner)
        rows = rows * product(*inner)
        counts: list[Factor] = []
        count = self.lift("count", rows, counts)
        values = product(Exists((*group.keys, local), supporting(rows)), *counts)
        most = self._extreme("most", Value(count, INTEGER), values, True, group, lifts)
        often = values * product(Cmp("=", count, most))
        backwards = aggregate.function == "mode_desc"
        found = self._extreme("mode", Value(local, argument.type), often, backwards, group, lifts)
        return Value(found, argument.type)

    def _mad(
        self, aggregate: bound.Aggregate, argument: Value, rows: Poly, group: Group, lifts: list[Factor]
    ) -> Value:
        """The median of the distances from the median."""
        median = replace(aggregate, function="quantile_cont", by=(bound.Literal(Decimal("0.5"), DOUBLE),))
        middle = self._quantile(median, argument, rows, group, lifts)
        apart = arithmetic("-", argument, middle)
        distance = replace(apart, scalar=Apply("abs", (apart.scalar,)))
        return self._quantile(median, distance, rows, group, lifts)

    def _bits(
        self, aggregate: bound.Aggregate, argument: Value, rows: Poly, never_null: bool, lifts: list[Factor]
    ) -> Value:
        """The integer of the bits that all, some, or an odd number of the values have."""
        count, signed = self.lift("count", rows, lifts), aggregate.type.low < 0
        width = aggregate.type.high.bit_length() + signed
        result: Scalar = Const(0)
        for place in range(width):
            top = place == width - 1
            bit: Scalar = Apply("floor_div", (argument.scalar, Const(2**place)))
            if top and signed:
                bit = choose(comparison("<", argument.scalar, Const(0)), Const(1), Const(0))
            elif not top:
                rest = Apply("floor_div", (argument.scalar, Const(2 ** (place + 1))))
                bit = Apply("-", (bit, times(Const(2), rest)))
            having = self.lift("bit", rows * product(Val(bit)), lifts)
            holds = {
                "bit_and": comparison("=", having, count),
                "bit_or": comparison(">", having, Const(0)),
                "bit_xor": comparison("=", Apply("mod", (having, Const(2))), Const(1)),
            }[aggregate.function]
            weight = Const(-(2**place) if top and signed else 2**place)
            result = Apply("+", (result, choose(holds, weight, Const(0))))
        valid = TRUE if never_null else comparison(">", count, Const(0))
        return Value(result, aggregate.type, valid)

    def _entropy(self, argument: Value, rows: Poly, group: Group, lifts: list[Factor]) -> Value:
        """log2 of the rows less the mean of log2 of how many rows have a row's value; 0 of no rows."""
        inner: list[Factor] = []
        local = self._local(argument, rows, group, inner)
        rows = rows * product(*inner)
        counts: list[Factor] = []
        count = as_double(Value(self.lift("count", rows, counts), INTEGER))
        logarithms = product(Val(Apply("*", (count, Apply("ln", (count,))))))
        every = product(Exists((*group.keys, local), rows), *counts) * logarithms
        total, number = self.lift("logarithms", every, lifts, DOUBLE), self.lift("count", rows, lifts)
        all_rows = as_double(Value(number, INTEGER))
        nats = Apply("-", (Apply("ln", (all_rows,)), Apply("/", (total, all_rows))))
        # What rounding leaves of 0 may lie below it.
        bits = Apply("greatest", (Apply("/", (nats, Const(log(2)))), Const(0.0)))
        return Value(choose(comparison(">", number, Const(0)), bits, Const(0.0)), DOUBLE)

    def _count_of_rows(
        self,
        aggregate: bound.Aggregate,
        counts: Value,
        scope: Scope,
        inner: list[Factor],
        group: Group,
        lifts: list[Factor],
    ) -> Value:
        """How many different rows of several values there are, NULL one of them, where a row `counts`."""
        values = [self.value(b, scope, inner) for b in aggregate.by]
        rows = group.rows * product(*inner) * condition_poly(counts.valid)
        found: list[Factor] = []
        locals_ = [self._local(value, rows, group, found) for value in values]
        once = Exists((*group.keys, *dict.fromkeys(locals_)), rows * product(*found))
        return Value(self.lift("count", product(once), lifts), aggregate.type)

    def _listed(
        self,
        aggregate: bound.Aggregate,
        there: Value,
        scope: Scope,
        inner: list[Factor],
        group: Group,
        lifts: list[Factor],
    ) -> Value:
        """The values of the rows that are `there`, in their order, as a text; NULL of no rows.

        What is noted of an entry depends on how many rows there are, so that no map can hold the sum of it.
        """
        *given, last = aggregate.by
        assert isinstance(last, bound.Literal)
        form = lists.form_of(str(last.value))
        values = [self.value(b, scope, inner) for b in given]
        rows, own = group.rows * product(*inner) * condition_poly(there.valid), list[Factor]()
        locals_ = [self._local(value, rows, group, own) for value in values]
        rows *= product(*own)
        held = [keyed(local, value) for local, value in zip(locals_, values, strict=True)]
        count, counts = self.lift("count", rows, lifts), list[Factor]()
        copies = self.lift("copies", rows, counts)
        entries = product(Exists((*group.keys, *dict.fromkeys(locals_)), rows), *counts)
        if form.limit and not form.distinct and held[0].type.kind is not Kind.TEXT:
            entries *= self._among_first(held[0], form, rows, group)
        slot = int(self.fresh("listed", exact(0, 0)).name.rpartition("_")[2])
        noted: Scalar = Const(lists.first_of(slot))
        for value in held:
            if value.valid != TRUE:
                noted = Apply("list_value_i", (choose(value.valid, Const(1), Const(0)), noted))
            letter = {Kind.TEXT: "t", Kind.DOUBLE: "d"}.get(value.type.kind, "i")
            zero: int | float | str = "" if letter == "t" else 0.0 if letter == "d" else 0
            scalar = choose(value.valid, value.scalar, Const(zero))
            noted = Apply(f"list_value_{letter}", (scalar, noted))
        number = product(Val(Apply("listed", (noted, copies, count))))
        total = self.lift("numbers", entries * number, lifts, exact(0, 2**62))
        form_text = Const(replace(form, slot=slot).text())
        text = Apply("list_text", (total, self.lift("entries", entries, lifts), form_text))
        return Value(text, aggregate.type, comparison(">", count, Const(0)))

    def _among_first(self, value: Value, form: lists.Form, rows: Poly, group: Group) -> Poly:
        """That fewer rows than are listed have a place before that of a value, the first of its order."""
        others, names = self.copy(rows, group.around.union(group.keys))
        by, running = form.order[0], list[Factor]()
        pair = Ordered(renamed(value, names), value, by.descending, by.nulls_first)
        ahead = self.lift("ahead", before(others, [pair]), running)
        return product(*running, Cmp("<", ahead, Const(form.limit)))

    def _distinct(self, argument: Value, rows: Poly, group: Group) -> tuple[Poly, Value]:
        """The rows with every value of the argument once, and the argument in them."""
        inner: list[Factor] = []
        value = self._local(argument, rows, group, inner)
        once = Exists((*group.keys, value), supporting(rows) * product(*inner))
        return product(once), replace(argument, scalar=value, valid=TRUE)

    def _chosen(
        self,
        aggregate: bound.Aggregate,
        argument: Value,
        by: Sequence[Value],
        rows: Poly,
        group: Group,
        lifts: list[Factor],
    ) -> Var:
        """The least or greatest argument, for arg_min and arg_max of the rows that come first."""
        greatest = aggregate.function.endswith("max")
        for value in by:
            end = self._extreme("first", value, rows, greatest, group, lifts)
            rows = rows * product(Cmp("=", value.scalar, end))
        return self._extreme(aggregate.function, argument, rows, aggregate.function == "max", group, lifts)

    def _extreme(
        self, name: str, value: Value, rows: Poly, greatest: bool, group: Group, lifts: list[Factor]
    ) -> Var:
        """The variable that holds the least or greatest value, 0 where there is none."""
        inner: list[Factor] = []
        local = self._local(value, rows, group, inner)
        kind = join(self.types[local], exact(0, 0)) if value.type.exact else DOUBLE
        body = supporting(rows, local) * product(*inner)
        for factor in lifts:
            match factor:
                case Lift(var, Poly(((Extreme(_, same, other, again), Val(_)),))) if (same, other, again) == (
                    greatest,
                    local,
                    body,
                ):
                    return var
        found = self.fresh("extreme", kind)
        held = self.fresh(name, kind)
        lifts.append(Lift(held, product(Extreme(found, greatest, local, body), Val(found))))
        return held

    def _local(self, value: Value, rows: Poly, group: Group, inner: list[Factor]) -> Var:
        """A variable that the rows bind to the value, and that is not a key of the group."""
        scalar = value.scalar
        if isinstance(scalar, Var) and scalar in binders(rows) and scalar not in group.keys:
            return scalar
        local = self.fresh("value", scalar_type(scalar, self.types))
        inner.append(Lift(local, product(Val(choose(value.valid, scalar, NULL)))))
        return local
