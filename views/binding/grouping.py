"""What the parts of the query binder share, the outputs of a query, and GROUP BY.

Shared are views before they are bound, bound queries, and the binder itself. Outputs have names, given or
derived and made distinct, and may be named in other clauses of their query (`with_aliases`), as in the items
of GROUP BY; of that are here its items, grouping sets, and GROUPING.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations, product
from typing import Protocol

from sqlglot import exp

from orderbook.views.binding.bound import (
    Aggregate,
    Cast,
    ColumnRef,
    Expression,
    OrderRules,
    Output,
    Select,
    Window,
)
from orderbook.views.binding.expressions import ExpressionBinder
from orderbook.views.binding.parser import SqlText
from orderbook.views.binding.scope import Scope, identifier, refuse_other_clauses
from orderbook.views.names import UniqueNames
from orderbook.views.types import Relation, ShownBy


@dataclass(frozen=True, slots=True)
class ViewDefinition:
    """A view before it is bound; `named_at` is the node that an error about its name points at, `orders` the
    rules of a strategy."""

    name: str
    tree: exp.Expr
    text: SqlText
    sql: str
    named_at: exp.Expr
    materialize: str | None = None
    orders: OrderRules | None = None


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

    @property
    def keyed(self) -> bool:
        """Whether queries in FROM have what tells their rows apart."""

    @property
    def numberable(self) -> frozenset[str]:
        """Names of relations whose rows could be numbered, and are not."""

    def query(self, tree: exp.Expr, parent: Scope | None, limits: RowLimits = ...) -> BoundQuery:
        """Binds a query in the scope it stands in; raises SqlError."""

    def alone(self) -> "Queries":
        """One that sees the same, for a query by itself: sources are named anew, rows can be told apart."""

    def named(self, name: str, node: exp.Expr, limits: RowLimits) -> Named:
        """What a name in FROM stands for; raises SqlError when there is no such thing."""

    def unique(self, alias: str, node: exp.Expr) -> str:
        """An identifier for a source, unique in the view; raises SqlError when there are too many."""


@dataclass(frozen=True, slots=True)
class NamedOutput:
    """An output, whether its name was given by AS, and where it stands."""

    output: Output
    given: bool
    node: exp.Expr


def default_name(expression: Expression) -> str:
    """The name of an output without AS: the column's, `sum_volume`, `count`, `rank`, or else `value`."""
    match expression:
        case ColumnRef(_, name):
            return name
        case Cast(argument):
            return default_name(argument)
        case Aggregate(function, ColumnRef(_, name)) | Window(function, ColumnRef(_, name)):
            return f"{function}_{name}"
        case Aggregate(function) | Window(function):
            return function
    return "value"


def distinct_names(named: Sequence[NamedOutput], text: SqlText) -> tuple[tuple[Output, ...], frozenset[str]]:
    """The outputs with distinct names, and the names that were there more than once.

    A name given twice by AS is an error; a derived one gets a number: price, price_2.
    """
    given: set[str] = set()
    for item in named:
        if item.given and item.output.name in given:
            raise text.error(f"two outputs are named {item.output.name}", item.node)
        if item.given:
            given.add(item.output.name)
    names = UniqueNames(given)
    outputs = [
        Output(item.output.name if item.given else names.new(item.output.name), item.output.expression)
        for item in named
    ]
    counts = Counter(item.output.name for item in named)
    return tuple(outputs), frozenset(name for name, count in counts.items() if count > 1)


def with_hidden(select: Select, hidden: Iterable[Expression]) -> Select:
    """The query with more outputs, named apart."""
    outputs = list(select.outputs)
    taken = {o.name for o in outputs}
    for count, expression in enumerate(hidden, 1):
        name = f"hidden_{count}"
        while name in taken:
            name += "_"
        taken.add(name)
        outputs.append(Output(name, expression))
    return replace(select, outputs=tuple(outputs))


def outputs_of(id: str, outputs: Iterable[Output]) -> tuple[Output, ...]:
    """The outputs of a source, selected."""
    return tuple(
        Output(o.name, ColumnRef(id, o.name, o.expression.type, o.expression.nullable)) for o in outputs
    )


def unaliased(node: exp.Expr) -> exp.Expr:
    """The expression of an output, without its AS."""
    return node.this if isinstance(node, exp.Alias) else node


def define(known: dict[str, exp.Expr], output: exp.Expr, scope: Scope) -> None:
    """Adds an output by the name that AS gives it; its expression may name those that are known."""
    if isinstance(output, exp.Alias):
        known[output.alias.lower()] = with_aliases(output.this, known, scope)


def with_aliases(node: exp.Expr, known: Mapping[str, exp.Expr], scope: Scope) -> exp.Expr:
    """The expression with the names of outputs replaced; a column of FROM comes before an output."""
    names = [c.name.lower() for c in node.find_all(exp.Column)]
    if not any(name in known and not scope.has(name) for name in names):
        return node
    root = exp.Paren(this=node.copy())
    root.parent = node.parent
    inside = root.walk(prune=lambda n: isinstance(n, exp.Query))
    for column in [n for n in inside if isinstance(n, exp.Column) and not n.args.get("table")]:
        name = column.name.lower()
        if name in known and not scope.has(name):
            column.replace(exp.Paren(this=known[name].copy()))
    replaced: exp.Expr = root.this
    return replaced


MAX_GROUPING_SETS = 64
_Set = tuple[exp.Expr, ...]


@dataclass(frozen=True, slots=True)
class Groups:
    """A bound grouping set: the grouping expressions of the set, and those of other sets only."""

    present: tuple[Expression, ...]
    absent: frozenset[Expression]


def grouping_sets(tree: exp.Select, text: SqlText) -> list[_Set]:
    """The grouping sets of a query, one without ROLLUP, CUBE or GROUPING SETS; none without GROUP BY."""
    group = tree.args.get("group")
    if not group:
        return []
    refuse_other_clauses(text, group, {"expressions", "all"})
    if group.args.get("all"):
        return [_ungrouped(tree, group, text)]
    alternatives = [_sets(e, text) for e in group.expressions]
    count = 1
    for sets in alternatives:
        count *= len(sets)
        if count > MAX_GROUPING_SETS:
            message = f"GROUP BY has more than {MAX_GROUPING_SETS} grouping sets; write several views"
            raise text.error(message, group)
    return [tuple(e for part in choice for e in part) for choice in product(*alternatives)]


def _ungrouped(tree: exp.Select, group: exp.Expr, text: SqlText) -> _Set:
    """GROUP BY ALL: the outputs without aggregates."""
    outputs = [unaliased(e) for e in tree.expressions]
    if any(e.is_star for e in outputs):
        raise text.error("GROUP BY ALL does not go with *; name the columns", group)
    return tuple(e for e in outputs if not _aggregates(e))


def _aggregates(node: exp.Expr) -> bool:
    inside = (n for n in node.walk(prune=lambda n: isinstance(n, exp.Query)) if not isinstance(n, exp.Query))
    return any(isinstance(n, exp.AggFunc | exp.Window) for n in inside)


def _sets(node: exp.Expr, text: SqlText) -> list[_Set]:
    """The grouping sets of one item of GROUP BY."""
    match node:
        case exp.Rollup():
            units = [_unit(e) for e in node.expressions]
            return [_joined(units[:count]) for count in range(len(units), -1, -1)]
        case exp.Cube():
            units = [_unit(e) for e in node.expressions]
            if 2 ** len(units) > MAX_GROUPING_SETS:
                message = f"CUBE has more than {MAX_GROUPING_SETS} grouping sets; write several views"
                raise text.error(message, node)
            sizes = range(len(units), -1, -1)
            return [_joined(chosen) for size in sizes for chosen in combinations(units, size)]
        case exp.GroupingSets():
            return [found for e in node.expressions for found in _sets(e, text)]
    return [_unit(node)]


def _unit(node: exp.Expr) -> _Set:
    if isinstance(node, exp.Tuple):
        return tuple(node.expressions)
    return (node.this,) if isinstance(node, exp.Paren) else (node,)


def _joined(units: Iterable[_Set]) -> _Set:
    return tuple(e for unit in units for e in unit)


def bind_groups(
    queries: Queries, tree: exp.Select, scope: Scope, sets: Sequence[_Set], chosen: int
) -> Groups:
    """Binds the grouping expressions of all sets, for the set of index `chosen`."""
    scope.clause = "GROUP BY"
    bound: dict[int, Expression] = {}
    for item in (e for found in sets for e in found):
        if id(item) not in bound:
            meant = _meant(item, tree, scope, queries.text)
            bound[id(item)] = queries.expressions.value(meant, scope)
    present = tuple(dict.fromkeys(bound[id(e)] for e in sets[chosen]))
    return Groups(present, frozenset(bound.values()) - set(present))


def _meant(node: exp.Expr, tree: exp.Select, scope: Scope, text: SqlText) -> exp.Expr:
    """The expression that an item of GROUP BY means: a column before an alias, an ordinal its output."""
    if isinstance(node, exp.Literal) and not node.is_string:
        ordinal = int(node.name) if node.name.isdigit() else 0
        if not 1 <= ordinal <= len(tree.expressions):
            message = f"GROUP BY {node.name} names no output; there are {len(tree.expressions)}"
            raise text.error(message, node)
        if any(e.is_star for e in tree.expressions[:ordinal]):
            raise text.error("an ordinal in GROUP BY does not count past *; name the column", node)
        return unaliased(tree.expressions[ordinal - 1])
    if isinstance(node, exp.Column) and len(node.parts) == 1 and isinstance(node.this, exp.Identifier):
        name = identifier(node.this, text)
        aliases = [e for e in tree.expressions if isinstance(e, exp.Alias) and e.alias.lower() == name]
        if aliases and not scope.has(name):
            return unaliased(aliases[0])
    return node


def resolve_grouping(queries: Queries, tree: exp.Select, scope: Scope, groups: Groups) -> None:
    """Puts numbers in the place of GROUPING(a, b): a bit for each argument, 1 where it is not in the set."""
    for node in [*tree.find_all(exp.Grouping)]:
        bits = 0
        for argument in node.expressions:
            value = queries.expressions.value(argument, scope)
            if value not in groups.absent and value not in groups.present:
                raise queries.text.error("GROUPING takes expressions of GROUP BY", node)
            bits = 2 * bits + (value in groups.absent)
        number = exp.Literal.number(bits)
        number.meta.update(node.meta)
        node.replace(number)
