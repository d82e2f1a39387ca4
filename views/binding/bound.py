"""The bound query: SQL after names are resolved and types known, before the calculus.

Every relation in a FROM clause, at any depth, has an identifier unique in the whole view, so a
correlated reference is simply a `ColumnRef` whose `source` belongs to an enclosing query. Inner and
cross joins have become sources plus conjuncts of `where`. Parameters have become literals. What SQL
says in several ways is said here in one: EXISTS, IN, ANY and ALL are counts, DISTINCT is a GROUP BY,
UNION, EXCEPT and INTERSECT are groups of a `UnionAll`, NOW() is the one row of `clock`.

After the nodes: walks over bound expressions, and how many rows a relation or query has.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, fields, is_dataclass, replace
from decimal import Decimal
from typing import Any, Union

from orderbook.views.pattern_automaton import Automaton
from orderbook.views.scalars.user_functions import UserFunction
from orderbook.views.types import Relation, ShownBy, Type


@dataclass(frozen=True, slots=True)
class ColumnRef:
    """Column `name` of the source with identifier `source`, of this query or an enclosing one."""

    source: str
    name: str
    type: Type
    nullable: bool


@dataclass(frozen=True, slots=True)
class Literal:
    """A constant. Exact numbers are `int` or `Decimal`; NULL is None."""

    value: int | Decimal | float | str | bool | None
    type: Type
    nullable: bool = False


@dataclass(frozen=True, slots=True)
class Arithmetic:
    """`left op right`; op is one of + - * /. Division is real: DOUBLE, NULL when right is 0."""

    op: str
    left: "Expression"
    right: "Expression"
    type: Type
    nullable: bool


@dataclass(frozen=True, slots=True)
class Comparison:
    """`left op right`; op is one of = <> < <= > >=. Operands are both numeric or of one kind."""

    op: str
    left: "Expression"
    right: "Expression"
    type: Type
    nullable: bool


@dataclass(frozen=True, slots=True)
class Logical:
    """AND or OR of two or more conditions, or NOT of one; three-valued."""

    op: str
    args: tuple["Expression", ...]
    type: Type
    nullable: bool


@dataclass(frozen=True, slots=True)
class Coalesce:
    """The first argument that is not NULL."""

    args: tuple["Expression", ...]
    type: Type
    nullable: bool


@dataclass(frozen=True, slots=True)
class Function:
    """A scalar function of `functions.py` by its lower-case name, or a UserFunction.

    It is NULL where an argument is NULL; `least` and `greatest` skip NULL arguments instead.
    """

    name: str
    args: tuple["Expression", ...]
    type: Type
    nullable: bool


@dataclass(frozen=True, slots=True)
class Cast:
    """The argument as another type; NULL where the value does not fit it."""

    argument: "Expression"
    type: Type
    nullable: bool


@dataclass(frozen=True, slots=True)
class Case:
    """The value of the first branch whose condition is true, else `otherwise`."""

    branches: tuple[tuple["Expression", "Expression"], ...]
    otherwise: "Expression"
    type: Type
    nullable: bool


@dataclass(frozen=True, slots=True)
class IsNull:
    """Whether the argument is NULL; never NULL itself."""

    argument: "Expression"
    type: Type
    nullable: bool = False


@dataclass(frozen=True, slots=True)
class Aggregate:
    """An aggregate over the rows of the enclosing group; COUNT(*) has no argument.

    `function` is sum, count, avg, min, max, arg_min, arg_max, quantile_cont, quantile_disc, mode (or
    quantile_disc_desc and mode_desc, the greatest value first), or a statistic by its name in SQL, such as
    var_samp. `distinct` takes every value of the argument once. `by` is what arg_min and arg_max order rows
    by, the first expression first; of rows equal in all of them the least argument is taken. Of a statistic
    of two arguments, such as corr, it is the second; of a quantile the fraction, a DECIMAL; of ewma and
    decayed_sum when a row was, the half-life, ns, and for a sum as of then NOW(). Of a count that is distinct
    it is what tells rows apart, NULL a value of it; the argument is NULL where a row does not count.
    """

    function: str
    argument: "Expression | None"
    type: Type
    nullable: bool
    distinct: bool = False
    by: tuple["Expression", ...] = ()


@dataclass(frozen=True, slots=True)
class OrderItem:
    """An item of ORDER BY; NULL comes after every value, or before with `nulls_first`, descending or not."""

    expression: "Expression"
    descending: bool
    nulls_first: bool


@dataclass(frozen=True, slots=True)
class Window:
    """`function(argument) OVER (PARTITION BY ... ORDER BY ...)` over the rows of FROM and WHERE.

    `function` is sum, count, avg, min, max, arg_min, arg_max, a quantile, mode or a statistic over the rows
    of the partition up to and with the peers of the row at hand (all its rows when `order_by` is empty),
    `rank` (1 + the rows before the peers), `dense_rank` (1 + the distinct orders before) or `row_number`
    (rows whose columns are proved unique).
    `lag` and `lead` are the argument in the row `offset` rows before or after, in an order of rows without
    NULL that tells them apart; with `skips_null` of those rows alone where the argument is not NULL. `by` is
    that of the aggregate. With a `frame` the rows are those from so many rows after the row at hand, below 0
    before it, to so many after it, in such an order; None is the end of the partition.
    """

    function: str
    argument: "Expression | None"
    partition_by: tuple["Expression", ...]
    order_by: tuple[OrderItem, ...]
    type: Type
    nullable: bool
    offset: int = 1
    by: tuple["Expression", ...] = ()
    skips_null: bool = False
    frame: tuple[int | None, int | None] | None = None
    distinct: bool = False


@dataclass(frozen=True, slots=True)
class ScalarSubquery:
    """A subquery of one column that is an aggregate without GROUP BY, so it yields exactly one row."""

    query: "Select"
    type: Type
    nullable: bool


Expression = Union[
    ColumnRef,
    Literal,
    Arithmetic,
    Comparison,
    Logical,
    Coalesce,
    Function,
    Cast,
    Case,
    IsNull,
    Aggregate,
    Window,
    ScalarSubquery,
]


@dataclass(frozen=True, slots=True)
class Output:
    """One column of a query's result."""

    name: str
    expression: Expression


@dataclass(frozen=True, slots=True)
class Source:
    """One item of a FROM clause: a stream or table, or a query (derived table or view, inlined).

    `view` names the view where the query is a reference to one. `pattern`: the relation has its matches.
    """

    id: str
    relation: "Relation | Select | UnionAll"
    view: str | None = None
    pattern: "RowPattern | None" = None


# The sources of columns that conditions and measures of a pattern read: `row_at(k)` is the row k rows before
# the one at hand, MATCH what is kept of the rows of a match, by its place.
MATCH = "match"
# Rows before the one at hand that PREV reaches.
MOST_BACK = 64


def row_at(back: int) -> str:
    """The source of the columns of the row so many rows before the one at hand."""
    return f"row_{back}"


@dataclass(frozen=True, slots=True)
class Kept:
    """What is kept of the rows that a match has so far, up to the one at hand.

    `how` is first, last, count, sum, min or max of the argument over the rows of these pattern variables,
    by number, or of all rows where there are none; or variable, the number of the last row's.
    """

    how: str
    variables: tuple[int, ...]
    argument: "Expression | None"
    type: Type
    nullable: bool


@dataclass(frozen=True, slots=True)
class RowPattern:
    """MATCH_RECOGNIZE over the rows of a query, in an order that tells those of a partition apart.

    `name` is that of the relation of its matches, which follows from all else. `order` names columns, each
    with whether it descends. `conditions` are those of the automaton's variables, None: always. With
    `overlapping` matches begin at every row, else after the last row of the one before. `within`: from
    the first to the last row of a match the first column of the order rises by less. The `outputs` are read
    at the last row of a match.
    """

    name: str
    rows: "Select"
    partition: tuple[str, ...]
    order: tuple[tuple[str, bool], ...]
    automaton: Automaton
    kept: tuple[Kept, ...]
    conditions: tuple["Expression | None", ...]
    overlapping: bool
    within: int | float | None
    outputs: tuple["Output", ...]


@dataclass(frozen=True, slots=True)
class OuterJoin:
    """LEFT JOIN of two lists of sources, or FULL JOIN when `full`; RIGHT has its sides exchanged.

    Columns are referred to by the sources they come from; those of a side that may be missing are
    nullable in their references.
    """

    left: tuple["Source | OuterJoin", ...]
    right: tuple["Source | OuterJoin", ...]
    on: Expression
    full: bool


@dataclass(frozen=True, slots=True)
class Top:
    """The first `limit` rows (at least 1), `offset` skipped, of every partition, in order.

    Only on a Select that is not aggregated and has no windows: another one is wrapped as the derived
    table of such a Select, with what it is ordered by among its outputs. So `partition_by` and `order_by`
    are expressions over FROM, like the outputs, and of the enclosing queries where it is correlated.
    Rows equal in `order_by` are ordered by the outputs, left to right, NULL last: what SQL leaves open.
    """

    partition_by: tuple[Expression, ...]
    order_by: tuple[OrderItem, ...]
    limit: int
    offset: int = 0


@dataclass(frozen=True, slots=True)
class Select:
    """SELECT outputs FROM sources WHERE where GROUP BY group_by HAVING having, then `top` of the rows.

    `aggregated` is true when there is a GROUP BY or any aggregate in the outputs or in `having`. Without
    GROUP BY an aggregated query has exactly one row, if `having` lets it. Every output of an aggregated
    query is built from aggregates, group_by expressions, literals and subqueries. Outputs have distinct
    names. `having` is only on aggregated queries, windows only in outputs of those that are not.
    """

    sources: tuple[Source | OuterJoin, ...]
    where: Expression | None
    group_by: tuple[Expression, ...]
    outputs: tuple[Output, ...]
    aggregated: bool
    having: Expression | None = None
    top: Top | None = None


@dataclass(frozen=True, slots=True)
class UnionAll:
    """All rows of all branches, whose outputs agree in number, names and types."""

    branches: tuple[Select, ...]

    @property
    def outputs(self) -> tuple[Output, ...]:
        """The outputs of the first branch; a column is nullable where it is so in any branch."""
        return self.branches[0].outputs


@dataclass(frozen=True, slots=True)
class OrderRules:
    """How the rows of a strategy become requests; see `orderbook.views.binding.orders`.

    min_life: ns that an order stays as it is at least. min_move: of a price, in ticks, below which it stays.
    max_requests: in a second, at most; 0: as many as there are. refill: an order that is filled is placed
    again. line, column, file: where the strategy is declared.
    """

    min_life: int = 0
    min_move: int = 1
    max_requests: int = 0
    refill: bool = False
    line: int = 1
    column: int = 1
    file: str | None = None


@dataclass(frozen=True, slots=True)
class View:
    """A named view: its bound query and the SQL text it came from.

    `order` is what its rows are shown by. `materialize` is how much of it is kept where its SQL says so:
    `full`, `first` or `none`, see materialization.py. `orders`: its rows are the orders of a strategy.
    """

    name: str
    query: Select
    sql: str
    order: tuple[ShownBy, ...] = ()
    materialize: str | None = None
    orders: OrderRules | None = None


@dataclass(frozen=True, slots=True)
class Catalog:
    """All that a set of SQL texts declares, in order: streams and tables, then views; functions in Python.

    `patterns` are those whose matches views read, each after those that it reads itself; their matches are
    relations among the others.
    """

    relations: tuple[Relation, ...]
    views: tuple[View, ...]
    functions: tuple[UserFunction, ...] = ()
    patterns: tuple[RowPattern, ...] = ()

    @property
    def strategies(self) -> tuple[View, ...]:
        """The views whose rows are the orders of a strategy."""
        return tuple(view for view in self.views if view.orders is not None)


def parts(expression: Expression) -> Iterator[Expression]:
    """The expression and all that it is made of, outermost first; not what is inside of subqueries."""
    yield expression
    if not isinstance(expression, ScalarSubquery):
        for field in fields(expression):
            yield from _parts(getattr(expression, field.name))


def has(expression: Expression, *kinds: type) -> bool:
    """Whether a part of the expression is of one of the kinds."""
    return any(isinstance(p, kinds) for p in parts(expression))


def rewritten(value: Any, change: Callable[[Any], Any]) -> Any:
    """A bound node, or a tuple of them, with parts replaced, those of subqueries and sources among them.

    `change` gives what stands in the place of a node, outermost first; None goes on into its parts.
    """
    if isinstance(value, tuple):
        return tuple(rewritten(item, change) for item in value)
    if not is_dataclass(value) or isinstance(value, Type | Relation | RowPattern | type):
        return value
    new = change(value)
    if new is not None:
        return new
    return replace(value, **{f.name: rewritten(getattr(value, f.name), change) for f in fields(value)})


def _parts(value: Any) -> Iterator[Expression]:
    if isinstance(value, tuple):
        for item in value:
            yield from _parts(item)
    elif isinstance(value, OrderItem):
        yield from parts(value.expression)
    elif hasattr(value, "__dataclass_fields__") and not isinstance(value, Type | Select):
        yield from parts(value)


def most_rows(rows: Relation | Select | UnionAll) -> int:
    """The most rows that it can have."""
    if isinstance(rows, Relation):
        return rows.max_rows
    if isinstance(rows, UnionAll):
        return sum(map(most_rows, rows.branches))
    if rows.aggregated and not rows.group_by:
        return 1
    most = _joined(rows.sources)
    return min(most, rows.top.limit) if rows.top and not rows.top.partition_by else most


def _joined(sources: Iterable[Source | OuterJoin]) -> int:
    product = 1
    for source in sources:
        if isinstance(source, Source):
            product *= most_rows(source.relation)
        else:
            left, right = _joined(source.left), _joined(source.right)
            product *= left * right + left + right
    return product
