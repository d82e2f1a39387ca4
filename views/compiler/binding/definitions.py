"""What the parts of the query binder share: views before they are bound, bound queries, the binder itself."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol

from sqlglot import exp

from views.compiler.types import Relation

from .bound import Select, ShownBy
from .dialect import SqlText
from .expressions import ExpressionBinder
from .scope import Scope


@dataclass(frozen=True, slots=True)
class ViewDefinition:
    """A view before it is bound; `named_at` is the node that an error about its name points at."""

    name: str
    tree: exp.Expr
    text: SqlText
    sql: str
    named_at: exp.Expr
    materialize: str | None = None


@dataclass(frozen=True, slots=True)
class BoundQuery:
    """A bound query, the output names it had twice, and the most rows it can have.

    `order` is the ORDER BY by its output names. `limited` is the name of the row number that was left
    out of the outputs because its limit became the query's `top`.
    """

    select: Select
    ambiguous: frozenset[str]
    rows: int
    order: tuple[ShownBy, ...] = ()
    limited: str | None = None


@dataclass(frozen=True, slots=True)
class RowLimit:
    """The row numbers offset + 1 to offset + limit."""

    limit: int
    offset: int = 0


Lookup = Callable[[str, SqlText, exp.Expr], Relation | ViewDefinition]
# What the query around limits row numbers to, by the name of the output that is a row number.
RowLimits = Mapping[str, RowLimit]


@dataclass(frozen=True, slots=True)
class Named:
    """What a name in FROM stands for: a relation, or a query bound for this use and its view's name."""

    relation: "Relation | BoundQuery"
    view: str | None = None


class Queries(Protocol):
    """The query binder as its parts see it."""

    @property
    def text(self) -> SqlText: ...

    @property
    def expressions(self) -> ExpressionBinder: ...

    def query(self, tree: exp.Expr, parent: Scope | None, limits: RowLimits = ...) -> BoundQuery:
        """Binds a query in the scope it stands in; raises SqlError."""

    def named(self, name: str, node: exp.Expr, limits: RowLimits) -> Named:
        """What a name in FROM stands for; raises SqlError when there is no such thing."""

    def unique(self, alias: str, node: exp.Expr) -> str:
        """An identifier for a source, unique in the view; raises SqlError when there are too many."""
