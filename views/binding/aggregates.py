"""Aggregates: their arguments, FILTER, ORDER BY in them, and the types of their results.

NULL is skipped, as in SQL; FILTER makes the argument NULL elsewhere. FIRST and LAST in an order are ARG_MIN
and ARG_MAX by it. Items of ORDER BY are bound alike in aggregates, in windows and of LIMIT.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from decimal import Decimal

from sqlglot import exp

from orderbook.views.binding.bound import (
    Aggregate,
    Cast,
    Expression,
    Literal,
    OrderItem,
)
from orderbook.views.binding.composed_aggregates import composed
from orderbook.views.binding.decayed_aggregates import decayed_by
from orderbook.views.binding.list_aggregates import ListParts, list_parts, stands_alone
from orderbook.views.binding.nodes import (
    BitAnd,
    BitOr,
    BitXor,
    Composed,
    DecayedSum,
    Entropy,
    Ewma,
    Histogram,
    KurtosisPop,
    Mad,
    Outward,
    QuantileCont,
    QuantileDisc,
)
from orderbook.views.binding.parser import order_parts
from orderbook.views.binding.scope import Binder, Handler, Scope, refusal, refused_construct
from orderbook.views.binding.text_functions import concatenated, order_words, to_text
from orderbook.views.binding.typed_nodes import (
    FALSE,
    TypingError,
    case,
    coalesce,
    comparison,
    is_null,
    logical,
    negation,
    negative,
    number,
    summed,
    zero_of,
)
from orderbook.views.scalars.lists import Form, Order
from orderbook.views.types import DOUBLE, INT64_MAX, TEXT, Kind, Type


def order_items(binder: Binder, order: exp.Order, scope: Scope) -> tuple[OrderItem, ...]:
    """The items of an ORDER BY, bound in the scope as it is; NULL is last unless NULLS FIRST says so."""
    return tuple(item for node in order.expressions for item in _order_item(binder, node, scope))


def _order_item(binder: Binder, node: exp.Expr, scope: Scope) -> list[OrderItem]:
    """One item, which for a TEXT is several."""
    ordered = node if isinstance(node, exp.Ordered) else exp.Ordered(this=node)
    if ordered.args.get("with_fill"):
        raise refusal(binder, "ORDER BY WITH FILL", "", node)
    descending, nulls_first = bool(ordered.args.get("desc")), bool(ordered.args.get("nulls_first"))
    words = order_words(binder.value(ordered.this, scope))
    return [OrderItem(word, descending, nulls_first) for word in words]


# Where aggregates of the query at hand may stand.
CLAUSES = ("SELECT", "HAVING", "QUALIFY", "ORDER BY")
# Those of two arguments: y, and x that it is explained by.
_PAIRS: dict[type[exp.Expr], str] = {
    exp.Corr: "corr",
    exp.CovarPop: "covar_pop",
    exp.CovarSamp: "covar_samp",
    exp.RegrAvgx: "regr_avgx",
    exp.RegrAvgy: "regr_avgy",
    exp.RegrCount: "regr_count",
    exp.RegrIntercept: "regr_intercept",
    exp.RegrR2: "regr_r2",
    exp.RegrSlope: "regr_slope",
    exp.RegrSxx: "regr_sxx",
    exp.RegrSxy: "regr_sxy",
    exp.RegrSyy: "regr_syy",
}
_QUANTILES: dict[type[exp.Expr], str] = {
    exp.Median: "quantile_cont",
    QuantileCont: "quantile_cont",
    QuantileDisc: "quantile_disc",
    exp.Quantile: "quantile_disc",
    exp.PercentileCont: "quantile_cont",
    exp.PercentileDisc: "quantile_disc",
}
# So that a fraction of the ranks of 64 bits fits 128.
_MOST_PLACES = 18
_DECAYED: dict[type[exp.Expr], str] = {Ewma: "ewma", DecayedSum: "decayed_sum"}
_NAMES: dict[type[exp.Expr], str] = {
    exp.Sum: "sum",
    exp.Count: "count",
    exp.Avg: "avg",
    exp.Min: "min",
    exp.Max: "max",
    exp.AnyValue: "min",
    exp.Variance: "var_samp",
    exp.VariancePop: "var_pop",
    exp.Stddev: "stddev_samp",
    exp.StddevSamp: "stddev_samp",
    exp.StddevPop: "stddev_pop",
    exp.Skewness: "skewness",
    exp.Kurtosis: "kurtosis",
    KurtosisPop: "kurtosis_pop",
    **_PAIRS,
    **_DECAYED,
    **_QUANTILES,
    exp.Mode: "mode",
    exp.GroupConcat: "string_agg",
    exp.ArrayAgg: "list",
    Histogram: "list",
    BitAnd: "bit_and",
    BitOr: "bit_or",
    BitXor: "bit_xor",
    Composed: "composed",
    Entropy: "entropy",
    Mad: "mad",
    exp.LogicalAnd: "min",
    exp.LogicalOr: "max",
    exp.ArgMin: "arg_min",
    exp.ArgMax: "arg_max",
    exp.First: "arg_min",
    exp.FirstValue: "arg_min",
    exp.Last: "arg_max",
    exp.LastValue: "arg_max",
}
# Statistics that some rows have none of: too few, or all alike.
_UNDEFINED = {"var_samp", "stddev_samp", "skewness", "kurtosis", "kurtosis_pop"}
_UNDEFINED |= {*_PAIRS.values(), *_DECAYED.values()} - {"regr_count"}
_ORDERED = (exp.First, exp.FirstValue, exp.Last, exp.LastValue)
_BOOLEAN_ONLY = (exp.LogicalAnd, exp.LogicalOr)


@dataclass(frozen=True, slots=True)
class Call:
    """A call of an aggregate as it is written: its bound name, its node, FILTER's condition, WITHIN GROUP."""

    name: str
    node: exp.Func
    condition: exp.Expr | None = None
    within: exp.Order | None = None

    @property
    def shown(self) -> str:
        return (
            self.name.upper()
            if isinstance(self.node, exp.Sum | exp.Count | exp.Avg)
            else self.node.sql_name()
        )


def call_of(node: exp.Expr) -> Call | None:
    """The aggregate that a node calls, with or without FILTER; None for another node."""
    if isinstance(node, exp.Filter):
        inner = call_of(node.this)
        return inner and replace(inner, condition=node.expression.this)
    if isinstance(node, exp.WithinGroup):
        inner = call_of(node.this)
        return inner and _ordered(inner, node.expression)
    name = _NAMES.get(type(node))
    return Call(name, node) if name and isinstance(node, exp.Func) else None


def _ordered(call: Call, within: exp.Order) -> Call:
    backwards = call.name in ("quantile_disc", "mode") and _descends(within)
    return replace(call, name=f"{call.name}_desc" if backwards else call.name, within=within)


def _descends(order: exp.Order) -> bool:
    return any(item.args.get("desc") for item in order.expressions)


def _aggregate(binder: Binder, node: exp.Expr, scope: Scope) -> Expression:
    call = call_of(node)
    if call is None:
        if isinstance(node, exp.WithinGroup):
            raise binder.text.error(refused_construct(node.this), node)
        raise refusal(binder, f"FILTER on {node.this.sql_name()}", "FILTER is for aggregates", node)
    if scope.in_aggregate:
        raise refusal(binder, f"nested aggregate {call.shown}", "aggregate a derived table", node)
    if scope.clause not in CLAUSES:
        instead = "write a scalar subquery (SELECT ... FROM ...)"
        raise refusal(binder, f"aggregate {call.shown} in {scope.clause}", instead, node)
    scope.aggregated = True
    fractions = _fractions(call)
    if fractions and stands_alone(node):
        return _quantiles(binder, node, fractions, scope)
    if isinstance(call.node, Composed):
        return binder.value(composed(binder, call.node, lambda a: filtered_call(call, a)), scope)
    with scope.aggregate(call.shown, node):
        if listed := list_parts(binder, call.node, call.within):
            return _list(binder, call, listed, scope)
        if call.name in ("arg_min", "arg_max") or _of_ordered(call):
            return of_first(binder, call, scope)
        value, distinct = argument(binder, call, scope)
        if value is not None and value.type.kind is Kind.TEXT and call.name in ("min", "max"):
            nullable = value.nullable or not scope.grouped
            return Aggregate(f"arg_{call.name}", value, value.type, nullable, by=order_words(value))
        by = explained_by(binder, call, value, scope)
    return _typed(call.name, value, by, distinct, scope)


def _list(binder: Binder, call: Call, listed: ListParts, scope: Scope) -> Aggregate:
    """STRING_AGG, LIST, MAX(x, n) and the like: a text of the values of the rows in an order."""
    if scope.clause != "SELECT" or not (listed.joined or stands_alone(call.node)):
        instead = "show it alone in SELECT, or join texts by STRING_AGG(x, ',' ORDER BY y)"
        raise refusal(binder, f"{listed.name} in an expression or in {scope.clause}", instead, call.node)
    value = binder.value(listed.value, scope)
    order = [(binder.value(n.this, scope), n) for n in listed.order]
    for given in (value, *(v for v, _ in order)):
        if given.type.exact and max(-given.type.low, given.type.high) > INT64_MAX:
            raise TypingError(f"{listed.name} of more than 64 bits is not supported; write CAST(x AS BIGINT)")
    skipped = [value] if listed.joined else [] if listed.keeps_null else [value, *(v for v, _ in order)]
    nulls = [test for v in skipped if (test := is_null(v)) != FALSE]
    there: Expression = case([(negation(logical("OR", nulls)), number(1))], None) if nulls else number(1)
    counted = _filtered(binder, there, call.condition, scope)
    assert counted is not None
    form = Form(
        0,
        tuple(Order(v.nullable, bool(n.args.get("desc")), bool(n.args.get("nulls_first"))) for v, n in order),
        value.nullable,
        value.type.kind.value,
        value.type.scale,
        listed.separator if listed.joined else None,
        listed.limit,
        listed.distinct,
        listed.counted,
    )
    nullable = counted.nullable or not scope.grouped
    by = (*(v for v, _ in order), value, Literal(form.text(), TEXT))
    return Aggregate("string_agg" if listed.joined else "list", counted, TEXT, nullable, by=by)


def filtered_call(call: Call, aggregate: exp.AggFunc) -> exp.Expr:
    """Another aggregate with the FILTER of a call."""
    if call.condition is None:
        return aggregate
    return exp.Filter(this=aggregate, expression=exp.Where(this=call.condition.copy()))


def _of_ordered(call: Call) -> bool:
    """Whether it is ANY_VALUE(x ORDER BY y)."""
    return isinstance(call.node, exp.AnyValue) and isinstance(call.node.this, exp.Order)


def aggregates_rows(tree: exp.Select) -> bool:
    """Whether a query has aggregates of its own, which a window function is not."""
    clauses = (tree.args.get(k) for k in ("qualify", "order"))
    nodes = [*tree.expressions, *(tree.args.get("windows") or ()), *(c for c in clauses if c)]
    return any(
        isinstance(n, exp.Func) and call_of(n) is not None and not _of_window(n)
        for node in nodes
        for n in node.walk(prune=lambda n: isinstance(n, exp.Query | Outward))
    )


def _of_window(node: exp.Expr) -> bool:
    parent = node.parent
    while isinstance(parent, exp.Filter | exp.IgnoreNulls | exp.RespectNulls | exp.WithinGroup):
        node, parent = parent, parent.parent
    return isinstance(parent, exp.Window) and parent.this is node


def argument(binder: Binder, call: Call, scope: Scope) -> tuple[Expression | None, bool]:
    """The argument of an aggregate (None: COUNT(*)), NULL where FILTER is not true, and DISTINCT."""
    node, given = call.node, _given(binder, call)
    if given is None and call.name == "count" and not node.expressions:
        return _filtered(binder, None, call.condition, scope), False
    if isinstance(given, exp.Star) and call.name == "count" and not any(given.args.values()):
        return _filtered(binder, None, call.condition, scope), False
    distinct = False
    if isinstance(given, exp.Distinct):
        distinct = True
        if _several(given) and call.name == "count":
            return _filtered(binder, _all_there(binder, given, scope), call.condition, scope), True
        if given.args.get("on") or len(given.expressions) != 1:
            instead = "GROUP BY the columns in a derived table, then count its rows"
            raise refusal(binder, f"{call.shown}(DISTINCT) of several columns", instead, node)
        (given,) = given.expressions
    if isinstance(given, exp.Order):
        raise refusal(binder, f"ORDER BY in {call.shown}", "its result does not depend on the order", node)
    if given is None or isinstance(given, exp.Star) or node.expressions:
        raise binder.text.error(f"{call.shown} takes one argument", node)
    value = binder.value(given, scope)
    if isinstance(node, _BOOLEAN_ONLY) and value.type.kind is not Kind.BOOLEAN:
        raise TypingError(f"{call.shown} of {value.type.kind.value} is not supported; it takes BOOLEAN")
    return _filtered(binder, value, call.condition, scope), distinct


def _several(distinct: exp.Distinct) -> list[exp.Expr]:
    """The nodes of COUNT(DISTINCT (a, b)) and of COUNT(DISTINCT a, b); none of another."""
    if distinct.args.get("on"):
        return []
    nodes: list[exp.Expr] = distinct.expressions
    if len(nodes) == 1 and isinstance(nodes[0], exp.Tuple):
        nodes = nodes[0].expressions
    return nodes if len(nodes) > 1 else []


def _all_there(binder: Binder, distinct: exp.Distinct, scope: Scope) -> Expression:
    """1 where a row counts: always for a row value, for several columns where none is NULL."""
    if len(distinct.expressions) == 1:
        return number(1)
    nulls = [test for n in distinct.expressions if (test := is_null(binder.value(n, scope))) != FALSE]
    return case([(negation(logical("OR", nulls)), number(1))], None) if nulls else number(1)


def _given(binder: Binder, call: Call) -> exp.Expr | None:
    """The node of the argument, which WITHIN GROUP (ORDER BY argument) may hold."""
    fraction = isinstance(call.node, exp.PercentileCont | exp.PercentileDisc)
    if call.within is None and not fraction:
        return call.node.this  # type: ignore[no-any-return]
    if not fraction and not isinstance(call.node, exp.Mode):
        raise refusal(binder, f"{call.shown} WITHIN GROUP", f"write {call.shown}(x)", call.node)
    others = call.node.args.get("expression") if fraction else call.node.this
    if call.within is None or others or len(call.within.expressions) != 1:
        form = f"{call.shown}({'fraction' * fraction}) WITHIN GROUP (ORDER BY x)"
        raise binder.text.error(f"write {form}", call.node)
    return call.within.expressions[0].this  # type: ignore[no-any-return]


def explained_by(
    binder: Binder, call: Call, value: Expression | None, scope: Scope, over: Sequence[OrderItem] = ()
) -> tuple[Expression, ...]:
    """The second argument of an aggregate of two, which is over rows where neither is NULL.

    Of a decayed one what rows weigh by, of a quantile the fraction. value: the first argument. over: ORDER BY
    of the window.
    """
    node = call.node
    if isinstance(node, exp.Mode) and call.within and value is not None and value.type.kind is Kind.TEXT:
        instead = "write MODE(x), which of several is the one that was seen first"
        raise refusal(binder, "MODE of TEXT in an order", instead, node)
    if isinstance(node, exp.Count) and isinstance(node.this, exp.Distinct):
        return tuple(binder.value(n, scope) for n in _several(node.this))
    if type(node) in _QUANTILES:
        return (_fraction(binder, call, scope),)
    if type(node) in _DECAYED:
        assert value is not None
        return decayed_by(binder, node, value, scope, over)
    if type(node) not in _PAIRS:
        return ()
    if any(v for k, v in node.args.items() if k not in ("this", "expression")):
        raise binder.text.error(f"{call.shown} takes two arguments", node)
    other = binder.value(node.expression, scope)
    result_type(call.name, other.type, scope.rows)
    return (other,)


def _fraction(binder: Binder, call: Call, scope: Scope) -> Literal:
    """The fraction of a quantile as a DECIMAL; a continuous one of a descending order is of the ascending."""
    node, within = call.node, call.within
    if isinstance(node, exp.Median):
        return number(Decimal("0.5"))
    given = node.this if within else node.args.get("quantile") or node.expression
    if isinstance(given, exp.Order):
        name = "PERCENTILE_CONT" if call.name == "quantile_cont" else "PERCENTILE_DISC"
        instead = f"write {name}(fraction) WITHIN GROUP (ORDER BY x DESC)"
        raise refusal(binder, f"ORDER BY in {call.shown}", instead, node)
    if isinstance(given, exp.Array | exp.Bracket):
        instead = f"write {call.shown} once for each of them"
        raise refusal(binder, f"{call.shown} of several fractions", instead, given)
    value = binder.value(given, scope)
    known = value.value if isinstance(value, Literal) and value.type.numeric else None
    fraction = Decimal(repr(known) if isinstance(known, float) else known or 0)
    exponent = fraction.as_tuple().exponent
    if known is None or not 0 <= fraction <= 1 or not isinstance(exponent, int) or exponent < -_MOST_PLACES:
        rule = f"a fraction that is a constant from 0 to 1, of {_MOST_PLACES} decimal places at most"
        raise binder.text.error(f"{call.shown} takes {rule}", given)
    mirrored = within is not None and _descends(within) and call.name == "quantile_cont"
    return number(1 - fraction if mirrored else fraction)


def _fractions(call: Call) -> list[exp.Expr]:
    """The fractions of a quantile of several, none of another aggregate."""
    if type(call.node) not in _QUANTILES or isinstance(call.node, exp.Median):
        return []
    given = call.node.args[_fraction_key(call.node)]
    return list(given.expressions) if isinstance(given, exp.Array) else []


def _fraction_key(node: exp.Expr) -> str:
    if isinstance(node, exp.PercentileCont | exp.PercentileDisc):
        return "this"
    return "quantile" if isinstance(node, exp.Quantile) else "expression"


def _quantiles(binder: Binder, node: exp.Expr, fractions: Sequence[exp.Expr], scope: Scope) -> Expression:
    """Several quantiles as a list, which is a text."""
    found: list[Expression] = []
    for fraction in fractions:
        one = exp.Paren(this=node.copy())
        quantile = next(n for n in one.walk() if type(n) in _QUANTILES)
        quantile.set(_fraction_key(quantile), fraction.copy())
        one.parent = node.parent
        found += [Literal(", " if found else "[", TEXT), to_text(binder.value(one.this, scope))]
    return concatenated([*found, Literal("]", TEXT)])


def _filtered(
    binder: Binder, value: Expression | None, condition: exp.Expr | None, scope: Scope
) -> Expression | None:
    if condition is None:
        return value
    return case([(binder.condition(condition, scope), value or number(1))], None)


def nullable_over_rows(name: str, value: Expression | None) -> bool:
    """Whether the aggregate of a value may be NULL over some rows, of which there is one at least."""
    return name not in ("count", "regr_count", "entropy") and (
        name in _UNDEFINED or (value is not None and value.nullable)
    )


def _typed(
    name: str, value: Expression | None, by: tuple[Expression, ...], distinct: bool, scope: Scope
) -> Aggregate:
    """The aggregate with its type; of no rows, which only a query without GROUP BY has, it is NULL."""
    if name == "count":
        kind = _count_type(None if by else value, distinct, scope)
        return Aggregate(name, value, kind, False, distinct, by)
    assert value is not None
    kind = result_type(name, value.type, scope.rows)
    nullable = name not in ("regr_count", "entropy") and (
        value.nullable or not scope.grouped or name in {"avg", *_UNDEFINED}
    )
    return Aggregate(name, value, kind, nullable, distinct and name not in ("min", "max"), by)


def _count_type(value: Expression | None, distinct: bool, scope: Scope) -> Type:
    most = scope.rows
    if distinct and value is not None and value.type.exact:
        most = min(most, value.type.high - value.type.low + 1)
    return Type(Kind.INTEGER, 0, 0, most)


def result_type(name: str, argument: Type, rows: int) -> Type:
    """The type of an aggregate over at most `rows` rows; raises TypingError for kinds it does not take."""
    if name == "count":
        return Type(Kind.INTEGER, 0, 0, rows)
    if name == "sum":
        return summed(argument, rows)
    if name in ("min", "max"):
        if argument.kind is Kind.TEXT:
            instead = f"join with the {name.upper()} of each group"
            raise TypingError(f"{name.upper()} of TEXT OVER rows is not supported; {instead}")
        return argument
    if name.startswith("quantile"):
        return _of_quantile(name, argument)
    if name.startswith("mode"):
        return argument
    if name == "entropy":
        return DOUBLE
    if name.startswith("bit_"):
        return _of_bits(name, argument)
    if not argument.numeric:
        kind = argument.kind.value
        raise TypingError(f"{name.upper()} of {kind} is not supported; it takes numbers")
    if name == "mad" and argument.kind is Kind.DECIMAL:
        return Type(Kind.DECIMAL, argument.scale, 0, argument.high - argument.low)
    return Type(Kind.INTEGER, 0, 0, rows) if name == "regr_count" else DOUBLE


# Each bit is a count of its own.
_MOST_BITS = 64


def _of_bits(name: str, argument: Type) -> Type:
    if argument.kind is not Kind.INTEGER:
        kind = argument.kind.value
        raise TypingError(f"{name.upper()} of {kind} is not supported; it takes INTEGER")
    bits = max(argument.low.bit_length(), argument.high.bit_length()) + (argument.low < 0)
    if bits > _MOST_BITS:
        raise TypingError(f"{name.upper()} of more than {_MOST_BITS} bits is not supported; cast to BIGINT")
    return Type(
        Kind.INTEGER, 0, -(2 ** (bits - 1)) if argument.low < 0 else 0, 2 ** (bits - (argument.low < 0)) - 1
    )


def _of_quantile(name: str, argument: Type) -> Type:
    """That of the argument, but a DOUBLE between two integers."""
    if argument.kind is Kind.TEXT:
        raise TypingError("a quantile of TEXT is not supported; TEXT has no order, rank a number instead")
    if name != "quantile_cont":
        return argument
    if argument.kind is Kind.BOOLEAN:
        raise TypingError("a continuous quantile of BOOLEAN is not supported; write QUANTILE_DISC(x, 0.5)")
    return DOUBLE if argument.kind is Kind.INTEGER else argument


def of_first(binder: Binder, call: Call, scope: Scope) -> Expression:
    """ARG_MIN(value, by), FIRST(value ORDER BY ...) and their counterparts."""
    node = call.node
    if isinstance(node, (*_ORDERED, exp.AnyValue)):
        return _first_in_order(binder, call, scope)
    if node.args.get("count") or node.expression is None:
        raise binder.text.error(f"{call.shown} takes two arguments", node)
    value = binder.value(node.this, scope)
    if isinstance(node.expression, exp.Tuple):
        parts = order_parts(node.expression)
        by = tuple(i.expression for p in parts for i in _never_null(_order_item(binder, p, scope)))
    else:
        by = order_words(binder.value(node.expression, scope))
    nullable = value.nullable or any(b.nullable for b in by) or not scope.grouped
    result = _filtered(binder, value, call.condition, scope)
    assert result is not None
    return Aggregate(call.name, result, value.type, nullable or call.condition is not None, by=by)


def _first_in_order(binder: Binder, call: Call, scope: Scope) -> Expression:
    """FIRST as ARG_MIN by its order, or as ARG_MAX where all of it descends; ANY_VALUE skips NULL."""
    ordered = call.node.this
    if not isinstance(ordered, exp.Order):
        raise refusal(
            binder, f"{call.shown} without ORDER BY", f"write {call.shown}(x ORDER BY y)", call.node
        )
    given = "arg_max" if isinstance(call.node, exp.Last | exp.LastValue) else "arg_min"

    def chosen(value: Expression) -> Expression:
        items = [i for node in ordered.expressions for i in _never_null(_order_item(binder, node, scope))]
        name, by = in_order(given, items)
        result = _filtered(binder, value, call.condition, scope)
        assert result is not None
        return Aggregate(name, result, value.type, result.nullable or not scope.grouped, by=by)

    value = binder.value(ordered.this, scope)
    if not value.nullable or isinstance(call.node, exp.AnyValue):
        return chosen(value)
    # Aggregates skip NULL: of the first row it is told apart whether its value is there.
    there = chosen(case([(is_null(value), number(0))], number(1)))
    held = chosen(coalesce([binder.value(ordered.this, scope), zero_of(value.type)]))
    return case([(comparison("=", there, number(1)), held)], None)


def _never_null(items: Sequence[OrderItem]) -> list[OrderItem]:
    """The items of one expression, with whether it is NULL before them."""
    if not any(i.expression.nullable for i in items):
        return list(items)
    first = items[0]
    null = OrderItem(is_null(first.expression), first.nulls_first, nulls_first=False)
    return [
        null,
        *(replace(i, expression=coalesce([i.expression, zero_of(i.expression.type)])) for i in items),
    ]


def in_order(name: str, items: Sequence[OrderItem]) -> tuple[str, tuple[Expression, ...]]:
    """arg_min or arg_max in an order, as one of the two by expressions that all ascend."""
    if not all(i.descending for i in items):
        return name, tuple(map(_ascending, items))
    opposite = "arg_max" if name == "arg_min" else "arg_min"
    return opposite, tuple(i.expression for i in items)


def _ascending(item: OrderItem) -> Expression:
    if not item.descending:
        return item.expression
    if item.expression.type.numeric:
        return negative(item.expression)
    if item.expression.type.kind is Kind.BOOLEAN:
        return negation(item.expression)
    kind = replace(item.expression.type, kind=Kind.INTEGER)
    return negative(Cast(item.expression, kind, item.expression.nullable))


HANDLERS: dict[type[exp.Expr], Handler] = dict.fromkeys((*_NAMES, exp.Filter, exp.WithinGroup), _aggregate)
