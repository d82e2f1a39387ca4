"""The bound query: SQL after names are resolved and types known, before the calculus.

Every relation in a FROM clause, at any depth, has an identifier unique in the whole view, so a
correlated reference is simply a `ColumnRef` whose `source` belongs to an enclosing query. Inner and
cross joins have become sources plus conjuncts of `where`. Parameters have become literals. What SQL
says in several ways is said here in one: EXISTS, IN, ANY and ALL are counts, DISTINCT is a GROUP BY,
UNION, EXCEPT and INTERSECT are groups of a `UnionAll`, NOW() is the one row of `clock`.
"""

from dataclasses import dataclass
from decimal import Decimal
from typing import Union

from views.compiler.types import Relation, Type


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
    """A scalar function of `functions.py` by its lower-case name; NULL where an argument is NULL.

    `least` and `greatest` skip NULL arguments instead.
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

    `function` is sum, count, avg, min, max, arg_min, arg_max, var_samp, var_pop, stddev_samp or
    stddev_pop. `distinct` takes every value of the argument once. `by` is what arg_min and arg_max order
    rows by, the first expression first; of rows equal in all of them the least argument is taken.
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

    `function` is sum, count, avg, min or max over the rows of the partition up to and with the peers of
    the row at hand (all its rows when `order_by` is empty), `rank` (1 + the rows before the peers),
    `dense_rank` (1 + the distinct orders before) or `row_number` (rows whose columns are proved unique).
    """

    function: str
    argument: "Expression | None"
    partition_by: tuple["Expression", ...]
    order_by: tuple[OrderItem, ...]
    type: Type
    nullable: bool


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

    `view` names the view where the query is a reference to one.
    """

    id: str
    relation: "Relation | Select | UnionAll"
    view: str | None = None


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
class ShownBy:
    """An output by which the rows of a view are shown; NULL is last unless `nulls_first`."""

    name: str
    descending: bool = False
    nulls_first: bool = False


@dataclass(frozen=True, slots=True)
class View:
    """A named view: its bound query and the SQL text it came from.

    `order` is what its rows are shown by. `materialize` is how much of it is kept where its SQL says so:
    `full`, `first` or `none`, see materialisation_level.py.
    """

    name: str
    query: Select
    sql: str
    order: tuple[ShownBy, ...] = ()
    materialize: str | None = None


@dataclass(frozen=True, slots=True)
class Catalog:
    """All that a set of SQL texts declares, in order: streams and tables, then views."""

    relations: tuple[Relation, ...]
    views: tuple[View, ...]
