"""The bound query: SQL after names are resolved and types known, before the calculus.

Every relation in a FROM clause, at any depth, has an identifier unique in the whole view, so a
correlated reference is simply a `ColumnRef` whose `source` belongs to an enclosing query. Inner and
cross joins have become sources plus conjuncts of `where`. Parameters have become literals.
"""

from dataclasses import dataclass
from decimal import Decimal
from typing import Union

from .types import Relation, Type


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
class Aggregate:
    """SUM, COUNT or AVG (lower case) over the rows of the enclosing group; COUNT(*) has no argument."""

    function: str
    argument: "Expression | None"
    type: Type
    nullable: bool


@dataclass(frozen=True, slots=True)
class ScalarSubquery:
    """A subquery of one column that is an aggregate without GROUP BY, so it yields exactly one row."""

    query: "Select"
    type: Type
    nullable: bool


Expression = Union[ColumnRef, Literal, Arithmetic, Comparison, Logical, Coalesce, Aggregate, ScalarSubquery]


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
    relation: "Relation | Select"
    view: str | None = None


@dataclass(frozen=True, slots=True)
class Select:
    """SELECT outputs FROM sources WHERE where GROUP BY group_by.

    `aggregated` is true when there is a GROUP BY or any aggregate in the outputs. Without GROUP BY
    an aggregated query has exactly one row. Every output of an aggregated query is built from
    aggregates, group_by expressions, literals and subqueries. Outputs have distinct names.
    """

    sources: tuple[Source, ...]
    where: Expression | None
    group_by: tuple[Expression, ...]
    outputs: tuple[Output, ...]
    aggregated: bool


@dataclass(frozen=True, slots=True)
class View:
    """A named view: its bound query and the SQL text it came from."""

    name: str
    query: Select
    sql: str


@dataclass(frozen=True, slots=True)
class Catalog:
    """All that a set of SQL texts declares, in order: streams and tables, then views."""

    relations: tuple[Relation, ...]
    views: tuple[View, ...]
