"""Scalar expressions and conditions, from syntax trees to bound ones.

Subqueries as values: scalar ones, and EXISTS, IN, ANY and ALL as comparisons of counts. `x IN q` is true
where a row of q equals x. Otherwise it is NULL where some row might: x is NULL and q has rows, or q has a
NULL. That is `count(equal) > 0 OR (count(perhaps equal) > 0 AND NULL)`, whose three values come from SQL's
own OR and AND. `x op ALL q` is `NOT (x opposite ANY q)`.

Predicates are the comparisons they stand for; with them CASE and its short forms. A subject is bound once for
each comparison, so that the sources of a subquery in it stay unique.

Calls of scalar functions, by sqlglot's nodes and by name, go to those of `functions.py` and `times.py`.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from math import pi
from typing import Any

from sqlglot import exp

from orderbook.views.binding import (
    aggregates,
    functions,
    list_aggregates,
    literals_and_casts,
    macros,
    other_rows,
    pattern_functions,
    text_functions,
    times,
    user_functions,
    windows,
)
from orderbook.views.binding.bound import (
    Cast,
    ColumnRef,
    Expression,
    Literal,
    ScalarSubquery,
    Select,
    Source,
    Window,
    has,
    most_rows,
)
from orderbook.views.binding.literals_and_casts import LITERAL_HANDLERS
from orderbook.views.binding.parser import SqlText, is_formula, is_function
from orderbook.views.binding.scope import (
    Binder,
    Handler,
    Scope,
    arguments,
    identifier,
    refusal,
    refusal_text,
    refused_construct,
)
from orderbook.views.binding.typed_nodes import (
    FALSE,
    TRUE,
    UNKNOWN,
    TypingError,
    adopt,
    arithmetic,
    case,
    coalesce,
    comparison,
    count_of,
    is_null,
    is_true,
    logical,
    negation,
    number,
)
from orderbook.views.calculus import NEGATED
from orderbook.views.scalars.integers import trunc_div
from orderbook.views.types import BOOLEAN, DOUBLE, Kind, Type


def _scalar(binder: Binder, node: exp.Subquery, scope: Scope) -> Expression:
    query = _bound(binder, node, scope)
    if len(query.outputs) != 1:
        raise _not_one_value(binder, f"this one has {len(query.outputs)} columns", node)
    value = query.outputs[0].expression
    single = query.aggregated and not query.group_by
    if single and query.having is None and query.top is None:
        return ScalarSubquery(query, value.type, value.nullable)
    if not single and not _at_most_one(query):
        raise _not_one_value(binder, _reason(query), node)
    return other_rows.only_row(query, binder.unique("subquery", node))


def _reason(query: Select) -> str:
    if query.group_by:
        return "with GROUP BY it may have none or many rows; move the grouping into WHERE"
    return "without an aggregate it may have none or many rows; write SUM(...) or AVG(...)"


def _not_one_value(binder: Binder, problem: str, node: exp.Expr) -> Exception:
    return binder.text.error(f"a scalar subquery must give exactly one value: {problem}", node)


def _at_most_one(query: Select) -> bool:
    return query.top is not None and not query.top.partition_by and query.top.limit <= 1


def _exists(binder: Binder, node: exp.Exists, scope: Scope) -> Expression:
    rows = _Rows(binder, node.this, scope)
    return rows.some(())


def in_subquery(binder: Binder, subject: exp.Expr, query: exp.Expr, scope: Scope) -> Expression:
    """`subject IN (query)`; a row value is compared with as many columns."""
    parts = subject.expressions if isinstance(subject, exp.Tuple) else [subject]
    return _any(binder, "=", parts, query, scope)


def quantified_comparison(binder: Binder, op: str, node: exp.Expr, scope: Scope) -> Expression | None:
    """`x op ANY (query)` or `x op ALL (query)`, op one of the comparisons; None for another node."""
    quantifier = node.expression
    if isinstance(quantifier, exp.Anonymous) and quantifier.name.upper() == "ALL":
        quantifier = exp.All(this=exp.Tuple(expressions=quantifier.expressions))
        if len(quantifier.this.expressions) == 1:
            quantifier = exp.All(this=quantifier.this.expressions[0])
    if not isinstance(quantifier, exp.Any | exp.All):
        return None
    query = quantifier.this
    while isinstance(query, exp.Paren):
        query = query.this
    if not isinstance(query, exp.Query):
        return _with_each(binder, op, node, quantifier, scope)
    if isinstance(quantifier, exp.Any):
        return _any(binder, op, [node.this], query, scope)
    return negation(_any(binder, NEGATED[op], [node.this], query, scope))


def _with_each(
    binder: Binder, op: str, node: exp.Expr, quantifier: exp.Any | exp.All, scope: Scope
) -> Expression:
    """`x op ANY ([...])` as a comparison with each value of the list."""
    every = isinstance(quantifier, exp.All)
    if not isinstance(quantifier.this.unnest(), exp.Array | exp.Tuple):
        name = "ALL" if every else "ANY"
        raise refusal(binder, f"{name} of such a value", "write a list, as in ANY ([1, 2])", quantifier)
    listed = pattern_functions.listed_values(quantifier.this) or ()
    found = [compared(binder, op, node.this, value, scope) for value in listed]
    return logical("AND" if every else "OR", found) if found else (TRUE if every else FALSE)


def _any(binder: Binder, op: str, parts: Sequence[exp.Expr], query: exp.Expr, scope: Scope) -> Expression:
    rows = _Rows(binder, query, scope, len(parts))
    equal = [comparison(op, binder.value(p, scope), c) for p, c in zip(parts, rows.columns, strict=True)]
    if scope.aggregated and any(has(e, Window) for e in equal):
        instead = "compute it in a derived table and compare its column"
        raise refusal(binder, "window over groups compared with a subquery", instead, parts[0])
    found = rows.some(equal)
    if not any(e.nullable for e in equal):
        return found
    rows = _Rows(binder, query, scope, len(parts))
    perhaps = rows.some(
        [_perhaps(binder, op, p, c, scope, len(parts) == 1) for p, c in zip(parts, rows.columns, strict=True)]
    )
    return logical("OR", [found, logical("AND", [perhaps, UNKNOWN])])


def _perhaps(
    binder: Binder, op: str, part: exp.Expr, column: Expression, scope: Scope, alone: bool
) -> Expression:
    """That a part does not differ for sure; equality of the only part is decided before."""
    value = binder.value(part, scope)
    equal = comparison(op, value, column)
    nulls = [test for operand in (equal.left, equal.right) if (test := is_null(operand)) != FALSE]
    return logical("OR", nulls if alone else [*nulls, equal])


class _Rows:
    """The rows of a subquery, bound once more as a derived table to count some of them."""

    def __init__(self, binder: Binder, node: exp.Expr, scope: Scope, columns: int | None = None) -> None:
        query = _bound(binder, node, scope)
        if columns is not None and len(query.outputs) != columns:
            compared = "1 is compared" if columns == 1 else f"{columns} are compared"
            message = f"this subquery has {len(query.outputs)} columns where {compared}"
            raise binder.text.error(message, node)
        self.source = Source(binder.unique("subquery", node), query)
        self.columns = tuple(
            ColumnRef(self.source.id, o.name, o.expression.type, o.expression.nullable) for o in query.outputs
        )
        self.most = most_rows(query)

    def some(self, conditions: Sequence[Expression]) -> Expression:
        """That there is a row for which all conditions are true."""
        return count_of((self.source,), conditions, self.most, ">")


def _bound(binder: Binder, node: exp.Expr, scope: Scope) -> Select:
    if scope.clause == "GROUP BY":
        instead = "compute it as a column of a derived table and group by that"
        raise refusal(binder, "subquery in GROUP BY", instead, node)
    return binder.bind_query(node, scope)


SUBQUERY_HANDLERS: dict[type[exp.Expr], Handler] = {exp.Subquery: _scalar, exp.Exists: _exists}


def compared(binder: Binder, op: str, left: exp.Expr, right: exp.Expr, scope: Scope) -> Expression:
    """`left op right`; of row values the first parts that differ decide."""
    pairs = _parts(binder, left, right)
    if pairs is None:
        return comparison(op, binder.value(left, scope), binder.value(right, scope))
    if op in ("=", "<>"):
        equal = logical("AND", [compared(binder, "=", a, b, scope) for a, b in pairs])
        return equal if op == "=" else negation(equal)
    decided = [compared(binder, op, *pairs[-1], scope)]
    for a, b in reversed(pairs[:-1]):
        level = logical("AND", [compared(binder, "=", a, b, scope), *decided])
        decided = [logical("OR", [compared(binder, op[0], a, b, scope), level])]
    return decided[0]


def _parts(binder: Binder, left: exp.Expr, right: exp.Expr) -> list[tuple[exp.Expr, exp.Expr]] | None:
    """The parts of two row values in pairs, None of other values."""
    if not isinstance(left, exp.Tuple) or not isinstance(right, exp.Tuple):
        return None
    if len(left.expressions) != len(right.expressions):
        raise binder.text.error("these row values have different numbers of parts", right)
    return list(zip(left.expressions, right.expressions, strict=True))


def _between(binder: Binder, node: exp.Between, scope: Scope) -> Expression:
    low, high = node.args["low"], node.args["high"]
    either = [(low, high), (high, low)] if node.args.get("symmetric") else [(low, high)]
    ranges = [
        logical("AND", [compared(binder, op, node.this, b, scope) for op, b in ((">=", a), ("<=", z))])
        for a, z in either
    ]
    return logical("OR", ranges)


def _in(binder: Binder, node: exp.In, scope: Scope) -> Expression:
    listed = node.expressions
    if len(listed) == 1 and isinstance(listed[0], exp.Values):
        listed = [e.expressions[0] if len(e.expressions) == 1 else e for e in listed[0].expressions]
    query = node.args.get("query")
    if query is None and len(listed) == 1 and isinstance(listed[0], exp.Query):
        query = listed[0]
    if query is not None:
        return in_subquery(binder, node.this, query, scope)
    if not listed:
        raise refusal(binder, "IN of an array", "list the values", node)
    return logical("OR", [compared(binder, "=", node.this, e, scope) for e in listed])


def _is(binder: Binder, node: exp.Is, scope: Scope) -> Expression:
    match node.expression:
        case exp.Null():
            return is_null(binder.value(node.this, scope))
        case exp.Boolean(this=truth):
            condition = binder.condition(node.this, scope)
            return is_true(condition if truth else negation(condition))
    raise refusal(binder, f"IS {node.expression.sql()}", "IS takes NULL, TRUE and FALSE", node)


def _not_distinct(binder: Binder, node: exp.Expr, scope: Scope) -> Expression:
    """Equal, or both NULL; never NULL itself."""
    if pairs := _parts(binder, node.this, node.expression):
        alike = (exp.NullSafeEQ(this=a.copy(), expression=b.copy()) for a, b in pairs)
        return logical("AND", [_not_distinct(binder, one, scope) for one in alike])
    equal = compared(binder, "=", node.this, node.expression, scope)
    if not equal.nullable:
        return equal
    nulls = [is_null(binder.value(n, scope)) for n in (node.this, node.expression)]
    known = [negation(is_null(binder.value(n, scope))) for n in (node.this, node.expression)]
    known = [k for k in known if k != TRUE]
    same = logical("AND", [equal, *known])
    if FALSE not in nulls:
        same = logical("OR", [same, logical("AND", nulls)])
    return replace(same, nullable=False)


def _distinct(binder: Binder, node: exp.NullSafeNEQ, scope: Scope) -> Expression:
    return negation(_not_distinct(binder, node, scope))


def _case(binder: Binder, node: exp.Case, scope: Scope) -> Expression:
    branches = []
    for branch in node.args["ifs"]:
        if node.this is None:
            condition = binder.condition(branch.this, scope)
        else:
            condition = compared(binder, "=", node.this, branch.this, scope)
        branches.append((condition, binder.value(branch.args["true"], scope)))
    default = node.args.get("default")
    return case(branches, binder.value(default, scope) if default else None)


def _if(binder: Binder, node: exp.If, scope: Scope) -> Expression:
    condition = binder.condition(node.this, scope)
    value, other = node.args["true"], node.args.get("false")
    branch = (condition, binder.value(value, scope))
    return case([branch], binder.value(other, scope) if other else None)


def _width_bucket(binder: Binder, node: exp.WidthBucket, scope: Scope) -> Expression:
    """The number of the bucket that a value lies in: 0 below, count + 1 from the upper end on."""
    keys = ("this", "min_value", "max_value", "num_buckets")
    given = [n for key in keys if (n := node.args.get(key)) is not None]
    arguments(binder, "width_bucket", node, len(given), 4, 4)
    value, again, once_more, low, high, count = (binder.value(n, scope) for n in (given[0], given[0], *given))
    ends = [
        c.value for c in (low, high, count) if isinstance(c, Literal) and isinstance(c.value, int | Decimal)
    ]
    if len(ends) < 3 or ends[0] == ends[1] or type(ends[2]) is not int or ends[2] < 1:
        rule = (
            "WIDTH_BUCKET takes a value, two ends that are different constants, and a constant count above 0"
        )
        raise binder.text.error(rule, node)
    lower, upper = (">", "<=") if ends[0] > ends[1] else ("<", ">=")
    width = arithmetic("-", high, low)
    parts = arithmetic("*", arithmetic("-", once_more, low), count)
    if parts.type.exact:
        unit = number(10 ** max(parts.type.scale, width.type.scale))
        place = functions.call(
            "div", [functions.call("round", [arithmetic("*", v, unit)]) for v in (parts, width)]
        )
    else:
        place = functions.call("floor", [arithmetic("/", parts, width)])
    whole = Cast(place, Type(Kind.INTEGER, 0, 0, ends[2]), nullable=True)
    beyond = [
        (comparison(lower, value, low), number(0)),
        (comparison(upper, again, high), number(ends[2] + 1)),
    ]
    return case(beyond, arithmetic("+", whole, number(1)))


def _nullif(binder: Binder, node: exp.Nullif, scope: Scope) -> Expression:
    equal = compared(binder, "=", node.this, node.expression, scope)
    value = binder.value(node.this, scope)
    return case([(equal, Literal(None, value.type, nullable=True))], value)


def _nvl2(binder: Binder, node: exp.Nvl2, scope: Scope) -> Expression:
    given = negation(is_null(binder.value(node.this, scope)))
    there, absent = binder.value(node.args["true"], scope), node.args.get("false")
    return case([(given, there)], binder.value(absent, scope) if absent else None)


def _decode(binder: Binder, node: exp.DecodeCase, scope: Scope) -> Expression:
    """DECODE(x, value, result, ..., otherwise), in which NULL equals NULL."""
    given = node.expressions
    if len(given) < 3:
        raise binder.text.error("DECODE takes at least 3 arguments", node)
    subject, *others = given
    branches = []
    for place in range(0, len(others) - 1, 2):
        pair = exp.NullSafeEQ(this=subject.copy(), expression=others[place].copy())
        branches.append((_not_distinct(binder, pair, scope), binder.value(others[place + 1], scope)))
    return case(branches, binder.value(others[-1], scope) if len(others) % 2 else None)


def _never(binder: Binder, node: exp.IsNan | exp.IsInf, scope: Scope) -> Expression:
    """ISNAN and ISINF: what no double holds is NULL."""
    return comparison("<>", *(_number(binder, node, node.this, scope) for _ in range(2)))


def _finite(binder: Binder, node: exp.Anonymous, scope: Scope) -> Expression:
    arguments(binder, "isfinite", node, len(node.expressions), 1, 1)
    return comparison("=", *(_number(binder, node, node.expressions[0], scope) for _ in range(2)))


def _number(binder: Binder, node: exp.Func, given: exp.Expr, scope: Scope) -> Expression:
    value = binder.value(given, scope)
    if not value.type.numeric:
        name = node.name.upper() if isinstance(node, exp.Anonymous) else node.sql_name()
        raise TypingError(f"{name} of {value.type.kind.value} is not supported; it takes a number")
    return value


def _list_contains(binder: Binder, node: exp.ArrayContains | exp.Anonymous, scope: Scope) -> Expression:
    """LIST_CONTAINS([a, b], x) of a list that is written out."""
    given = node.expressions if isinstance(node, exp.Anonymous) else [node.this, node.expression]
    arguments(binder, "list_contains", node, len(given), 2, 2)
    listed, subject = given
    if not isinstance(listed.unnest(), exp.Array) or not listed.unnest().expressions:
        raise refusal(binder, "LIST_CONTAINS of such a list", "write x IN (SELECT ...)", node)
    values = [n for n in listed.unnest().expressions if not isinstance(n, exp.Null)]
    found = logical("OR", [compared(binder, "=", subject, n, scope) for n in values]) if values else FALSE
    absent = is_null(binder.value(subject, scope))
    return case([(absent, UNKNOWN)], is_true(found)) if absent != FALSE else is_true(found)


def _not(binder: Binder, node: exp.Not, scope: Scope) -> Expression:
    return negation(binder.condition(node.this, scope))


def _connected(binder: Binder, node: exp.And | exp.Or, scope: Scope) -> Expression:
    op = "AND" if isinstance(node, exp.And) else "OR"
    return logical(op, [binder.condition(n, scope) for n in node.flatten()])


def _coalesce(binder: Binder, node: exp.Coalesce, scope: Scope) -> Expression:
    return coalesce([binder.value(n, scope) for n in (node.this, *node.expressions)])


PREDICATE_HANDLERS: dict[type[exp.Expr], Handler] = {
    exp.And: _connected,
    exp.Or: _connected,
    exp.Not: _not,
    exp.Between: _between,
    exp.In: _in,
    exp.Is: _is,
    exp.NullSafeEQ: _not_distinct,
    exp.NullSafeNEQ: _distinct,
    exp.Case: _case,
    exp.If: _if,
    exp.Nullif: _nullif,
    exp.WidthBucket: _width_bucket,
    exp.Nvl2: _nvl2,
    exp.Coalesce: _coalesce,
    exp.DecodeCase: _decode,
    exp.IsNan: _never,
    exp.IsInf: _never,
    exp.ArrayContains: _list_contains,
}


_NODES: dict[type[exp.Expr], str] = {
    exp.Abs: "abs",
    exp.Sign: "sign",
    exp.Floor: "floor",
    exp.Ceil: "ceil",
    exp.Trunc: "trunc",
    exp.Round: "round",
    exp.Sqrt: "sqrt",
    exp.Ln: "ln",
    exp.Log: "log",
    exp.Exp: "exp",
    exp.Pow: "power",
    exp.Sin: "sin",
    exp.Cos: "cos",
    exp.Tan: "tan",
    exp.Asin: "asin",
    exp.Acos: "acos",
    exp.Atan: "atan",
    exp.Atan2: "atan2",
    exp.Sinh: "sinh",
    exp.Cosh: "cosh",
    exp.Tanh: "tanh",
    exp.Asinh: "asinh",
    exp.Acosh: "acosh",
    exp.Atanh: "atanh",
    exp.Cot: "cot",
    exp.Degrees: "degrees",
    exp.Radians: "radians",
    exp.Least: "least",
    exp.Greatest: "greatest",
    exp.Mod: "mod",
    exp.IntDiv: "div",
    exp.StartsWith: "starts_with",
    exp.EndsWith: "ends_with",
    exp.Contains: "contains",
}
_ARGUMENTS = ("this", "expression", "decimals")
_NAMED = {"starts_with": "starts_with", "prefix": "starts_with", "ends_with": "ends_with",
          "suffix": "ends_with", "contains": "contains"}  # fmt: skip


def call_function(binder: Binder, name: str, args: Sequence[Expression], node: exp.Expr) -> Expression:
    """The function of bound arguments; raises SqlError for a wrong number of them."""
    function = functions.FUNCTIONS[name]
    arguments(binder, name, node, len(args), function.least, function.most)
    return functions.call(name, args)


def _cube_root(binder: Binder, node: exp.Cbrt, scope: Scope) -> Expression:
    third = Literal(1 / 3, DOUBLE)
    size = functions.call("power", [functions.call("abs", [binder.value(node.this, scope)]), third])
    return arithmetic("*", functions.call("sign", [binder.value(node.this, scope)]), size)


def _pi(binder: Binder, node: exp.Pi, scope: Scope) -> Expression:
    return Literal(pi, DOUBLE)


def _function(binder: Binder, node: exp.Func, scope: Scope) -> Expression:
    name = _NODES[type(node)]
    given = [n for key in _ARGUMENTS if (n := node.args.get(key)) is not None]
    given += node.expressions
    if any(v and k not in (*_ARGUMENTS, "expressions", "ignore_nulls") for k, v in node.args.items()):
        raise binder.text.error(refusal_text(f"this form of {name.upper()}", "leave the options out"), node)
    return call_function(binder, name, [binder.value(n, scope) for n in given], node)


def _anonymous(binder: Binder, node: exp.Anonymous, scope: Scope) -> Expression:
    name = node.name.lower()
    handler = _CALLS.get(name)
    if handler:
        return handler(binder, node, scope)
    if name not in _NAMED:
        raise binder.text.error(refused_construct(node), node)
    return call_function(binder, _NAMED[name], [binder.value(n, scope) for n in node.expressions], node)


_CALLS: dict[str, Handler] = {
    **times.NAMED,
    **text_functions.NAMED,
    **pattern_functions.NAMED,
    **dict.fromkeys(("list_contains", "list_has", "array_has"), _list_contains),
    "isfinite": _finite,
}


def is_built_in(name: str) -> bool:
    """Whether a name, in lower case, is that of a function or aggregate of our SQL."""
    upper = name.upper()
    return is_function(upper) or is_formula(upper) or name in _CALLS or name in _NAMED


CALL_HANDLERS: dict[type[exp.Expr], Handler] = {
    **dict.fromkeys(_NODES, _function),
    exp.Anonymous: _anonymous,
    exp.Cbrt: _cube_root,
    exp.Pi: _pi,
}


_ARITHMETIC: dict[type[exp.Expr], str] = {exp.Add: "+", exp.Sub: "-", exp.Mul: "*"}
_COMPARISONS: dict[type[exp.Expr], str] = {
    exp.EQ: "=",
    exp.NEQ: "<>",
    exp.LT: "<",
    exp.LTE: "<=",
    exp.GT: ">",
    exp.GTE: ">=",
}


@dataclass(slots=True)
class ExpressionBinder:
    """Binds the expressions of one view; see `Binder` for what it is given."""

    text: SqlText
    parameters: Mapping[str, Any]
    bind_query: Callable[[exp.Expr, Scope], Select]
    unique: Callable[[str, exp.Expr], str]
    lookup: Callable[[str, SqlText, exp.Expr], Any]

    def value(self, node: exp.Expr, scope: Scope) -> Expression:
        """A value of any type."""
        before = scope.mark()
        handler = _HANDLERS.get(type(node))
        if handler is None:
            raise self.text.error(refused_construct(node), node)
        try:
            result = handler(self, node, scope)
        except TypingError as error:
            raise self.text.error(str(error), node) from None
        return scope.settle(before, result)

    def condition(self, node: exp.Expr, scope: Scope) -> Expression:
        """A value of type BOOLEAN."""
        (result,) = adopt([self.value(node, scope)], BOOLEAN)
        if result.type.kind is not Kind.BOOLEAN:
            kind = result.type.kind.value
            raise self.text.error(f"a condition is needed here, not a value of type {kind}", node)
        return result


def _parenthesised(binder: Binder, node: exp.Paren, scope: Scope) -> Expression:
    return binder.value(node.this, scope)


def _column(binder: Binder, node: exp.Column, scope: Scope) -> Expression:
    if node.args.get("db"):
        raise binder.text.error("a name of three parts is not supported; write alias.column", node)
    if isinstance(node.this, exp.Star):
        raise binder.text.error("* stands for columns only as an item of SELECT or in COUNT(*)", node)
    qualifier = node.args.get("table")
    return scope.resolve(
        identifier(qualifier, binder.text) if qualifier else None, identifier(node.this, binder.text), node
    )


def _arithmetic(binder: Binder, node: exp.Binary, scope: Scope) -> Expression:
    moved = times.moved_by_months(binder, node, scope)
    if moved is not None:
        return moved
    left, right = binder.value(node.this, scope), binder.value(node.expression, scope)
    return times.in_days(node, left, right) or arithmetic(_ARITHMETIC[type(node)], left, right)


def _division(binder: Binder, node: exp.Div, scope: Scope) -> Expression:
    """Real division, but where the dialect says that integers are divided without a fraction."""
    left, right = binder.value(node.this, scope), binder.value(node.expression, scope)
    if isinstance(node.this.unnest(), exp.Interval) and isinstance(left, Literal):
        if not isinstance(right, Literal) or type(right.value) is not int or not right.value:
            instead = "divide by an integer constant that is not 0"
            raise refusal(binder, "INTERVAL / such a value", instead, node)
        return number(trunc_div(int(str(left.value)), right.value))
    if node.args.get("typed") and left.type.kind is right.type.kind is Kind.INTEGER:
        return call_function(binder, "div", [left, right], node)
    return arithmetic("/", left, right)


def _comparison(binder: Binder, node: exp.Binary, scope: Scope) -> Expression:
    op = _COMPARISONS[type(node)]
    quantified = quantified_comparison(binder, op, node, scope)
    return quantified or compared(binder, op, node.this, node.expression, scope)


_HANDLERS: dict[type[exp.Expr], Handler] = {
    exp.Paren: _parenthesised,
    exp.Column: _column,
    exp.Div: _division,
    **dict.fromkeys(_ARITHMETIC, _arithmetic),
    **dict.fromkeys(_COMPARISONS, _comparison),
    **LITERAL_HANDLERS,
    **PREDICATE_HANDLERS,
    **literals_and_casts.CAST_HANDLERS,
    **times.HANDLERS,
    **CALL_HANDLERS,
    **text_functions.HANDLERS,
    **pattern_functions.HANDLERS,
    **macros.HANDLERS,
    **user_functions.HANDLERS,
    **aggregates.HANDLERS,
    **list_aggregates.HANDLERS,
    **SUBQUERY_HANDLERS,
    **windows.HANDLERS,
}
