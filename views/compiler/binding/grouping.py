"""GROUP BY: what its items stand for, grouping sets, and GROUPING."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import combinations, product

from sqlglot import exp

from . import refuse
from .aliases import unaliased
from .bound import Expression
from .definitions import Queries
from .dialect import SqlText
from .scope import Scope, identifier

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
    refuse.only(text, group, {"expressions", "all"})
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
