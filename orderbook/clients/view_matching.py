"""Whether a view holds what a SELECT asks for, and the SELECT over the view then.

Source: answering queries using views, for a SELECT over the sources of a view: its conditions are the
view's and others that its rows still tell; its groups the view's, or coarser ones of sums, counts and
extremes. SQL expressions are compared by keys, equal where they mean the same, whatever aliases, order or
layout say.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from itertools import count, islice, permutations
from typing import Any

from sqlglot import exp

from orderbook.views.types import Parameter

# What every alias in scope is called instead.
Aliases = Mapping[str, str]
Key = Any

_COMMUTATIVE = (exp.EQ, exp.NEQ, exp.Add, exp.Mul)
_FLIPPED: dict[type[exp.Expr], str] = {exp.GT: "LT", exp.GTE: "LTE", exp.LT: "LT", exp.LTE: "LTE"}
# Arguments that say nothing of the meaning.
_LAYOUT = {"big_int", "typed", "safe", "is_string", "with_", "hint", "comments", "copy"}


class Keys:
    """Makes keys of qualified expressions: every column has the alias of its source, every output a name.

    parameters: what a placeholder stands for.
    """

    def __init__(self, parameters: Mapping[str, Parameter]) -> None:
        self._parameters = parameters

    def of(self, node: exp.Expr, aliases: Aliases) -> Key:
        """The key of an expression; aliases that are not in `aliases` stay as they are."""
        return self._key(node, aliases, (f"inner {i}" for i in count()))

    def _key(self, node: Any, aliases: Aliases, fresh: Iterator[str]) -> Key:
        match node:
            case exp.Paren():
                return self._key(node.this, aliases, fresh)
            case exp.Column():
                return "column", aliases.get(node.table, node.table), node.name
            case exp.Placeholder() | exp.Parameter() if node.name in self._parameters:
                return literal_key(self._parameters[node.name])
            case exp.Literal():
                return ("text", node.this) if node.is_string else _number(node.this)
            case exp.Identifier():
                return node.name
            case exp.Table():
                alias = node.alias_or_name
                rest = exp.Table(**{n: v for n, v in node.args.items() if n not in ("this", "alias")})
                options = self._arguments(rest, aliases, fresh)
                return "table", node.name.lower(), aliases.get(alias, alias), options
            case exp.And() | exp.Or():
                parts = [self._key(part, aliases, fresh) for part in node.flatten()]
                return type(node).__name__, _sorted(parts)
            case exp.Select():
                return self._select(node, aliases, fresh)
            case exp.Subquery() if not _is_source(node):
                return self._key(node.this, aliases, fresh)
        if isinstance(node, _COMMUTATIVE):
            both = [self._key(part, aliases, fresh) for part in (node.this, node.expression)]
            return type(node).__name__, _sorted(both)
        if type(node) in _FLIPPED:
            both = [self._key(part, aliases, fresh) for part in (node.this, node.expression)]
            return _FLIPPED[type(node)], tuple(both[::-1] if isinstance(node, exp.GT | exp.GTE) else both)
        if isinstance(node, exp.Expr):
            return type(node).__name__, self._arguments(node, aliases, fresh)
        if isinstance(node, list):
            return tuple(self._key(part, aliases, fresh) for part in node)
        return str(node)

    def _arguments(self, node: exp.Expr, aliases: Aliases, fresh: Iterator[str]) -> Key:
        return tuple(
            (name, self._key(value, aliases, fresh))
            for name, value in sorted(node.args.items())
            if name not in _LAYOUT and value is not None and value is not False and value != []
        )

    def _select(self, node: exp.Select, aliases: Aliases, fresh: Iterator[str]) -> Key:
        own = {source.alias_or_name: next(fresh) for source in sources_of(node)}
        inner = {**aliases, **own}
        named = _is_source(node.parent)
        outputs = tuple(
            (output.alias_or_name if named else "", self._key(unnamed(output), inner, fresh))
            for output in node.expressions
        )
        rest = node.copy()
        rest.set("expressions", [])
        return "Select", outputs, self._arguments(rest, inner, fresh)


def sources_of(select: exp.Select) -> list[exp.Expr]:
    """What stands in FROM and its joins."""
    start = select.args.get("from_")
    joins = select.args.get("joins") or []
    return [item.this for item in ([start] if start is not None else []) + joins]


def conjuncts(condition: exp.Expr | None) -> list[exp.Expr]:
    """The conditions that AND connects."""
    if condition is None:
        return []
    inner = condition.unnest()
    if not isinstance(inner, exp.And):
        return [inner]
    return [part for side in inner.flatten() for part in conjuncts(side)]


def unnamed(output: exp.Expr) -> exp.Expr:
    """An output without its alias."""
    return output.this if isinstance(output, exp.Alias) else output


def literal_key(value: Parameter) -> Key:
    """The key of a constant."""
    return ("text", value) if isinstance(value, str) else _number(str(value))


def _number(text: str) -> Key:
    try:
        return "number", str(Decimal(text).normalize())
    except InvalidOperation:
        return "number", text


def _is_source(node: Any) -> bool:
    """Whether a subquery stands in FROM or WITH, where the names of its outputs count."""
    kinds = exp.From | exp.Join | exp.With
    return isinstance(node, exp.Subquery | exp.CTE) and isinstance(node.parent, kinds)


def _sorted(parts: list[Key]) -> tuple[Key, ...]:
    return tuple(sorted(parts, key=repr))


_MOST_PAIRINGS = 24
_LIMITING = ("distinct", "qualify", "limit", "offset")
# Clauses of which nothing is known here.
_KNOWN = {"expressions", "from_", "joins", "where", "group", "having", "order", *_LIMITING}


@dataclass(frozen=True, slots=True)
class Block:
    """A SELECT over named tables that are joined inside, as its parts."""

    select: exp.Select
    tables: tuple[tuple[str, str], ...]  # (alias, table)
    where: tuple[exp.Expr, ...]
    group: tuple[exp.Expr, ...]
    having: tuple[exp.Expr, ...]
    aggregated: bool

    def fineness(self, asked: "Block") -> int:
        """How much finer the rows of this block are than those asked for, roughly."""
        return len(self.group) - len(asked.group) if self.aggregated == asked.aggregated else 1 << 10

    @property
    def limited(self) -> bool:
        """Whether rows are chosen in a way that another condition would change."""
        return any(self.select.args.get(name) for name in _LIMITING)


def block_of(select: exp.Select) -> Block | None:
    """The parts of a qualified SELECT; None where it is of another form."""
    if any(value for name, value in select.args.items() if name not in _KNOWN):
        return None
    if not all(map(_is_plain, sources_of(select))) or not sources_of(select):
        return None
    where = conjuncts(_clause(select, "where"))
    for join in select.args.get("joins") or []:
        outer = any(join.args.get(name) for name in ("side", "using", "method"))
        if outer or join.kind not in ("", "INNER", "CROSS"):
            return None
        where += conjuncts(join.args.get("on"))
    group = select.args.get("group")
    if group is not None and any(map(_is_set, group.expressions)):
        return None
    if group is not None and set(_given(group)) - {"expressions", "all"}:
        return None
    having = conjuncts(_clause(select, "having"))
    tables = tuple((source.alias_or_name, source.name.lower()) for source in sources_of(select))
    groups = _groups(group, select)
    aggregated = bool(groups or having or any(map(_aggregates, select.expressions)))
    return Block(select, tables, tuple(where), groups, tuple(having), aggregated)


def _groups(group: exp.Expr | None, select: exp.Select) -> tuple[exp.Expr, ...]:
    if group is None:
        return ()
    if group.args.get("all"):
        return tuple(unnamed(output) for output in select.expressions if not _aggregates(output))
    return tuple(group.expressions)


def over_view(block: Block, view: Block, name: str, keys: Keys) -> exp.Select | None:
    """The block as a SELECT over a view of that definition; None where the view does not hold it."""
    own = {alias: f"source {i}" for i, (alias, _) in enumerate(view.tables)}
    for aliases in _pairings(block, view):
        found = _Match(block, view, name, keys, aliases, own).rewritten()
        if found is not None:
            return found
    return None


def _pairings(block: Block, view: Block) -> Iterator[Aliases]:
    """Names of the block's sources such that each stands for a source of the view, of the same table."""
    if sorted(t for _, t in block.tables) != sorted(t for _, t in view.tables):
        return
    for order in islice(permutations(range(len(view.tables))), _MOST_PAIRINGS):
        if all(block.tables[i][1] == view.tables[j][1] for i, j in enumerate(order)):
            yield {block.tables[i][0]: f"source {j}" for i, j in enumerate(order)}


class _Unknown(Exception):
    """An expression that the view's columns do not tell."""


class _Match:
    def __init__(
        self, block: Block, view: Block, name: str, keys: Keys, aliases: Aliases, own: Aliases
    ) -> None:
        self._block, self._view, self._name = block, view, name
        self._of: Callable[[exp.Expr], Key] = lambda node: keys.of(node, aliases)
        self._of_view: Callable[[exp.Expr], Key] = lambda node: keys.of(node, own)
        self._columns: Mapping[Key, str] = {
            self._of_view(unnamed(output)): output.alias_or_name for output in view.select.expressions
        }
        self._group = {self._of_view(e) for e in view.group}
        self._coarser = False

    def rewritten(self) -> exp.Select | None:
        """The block over the view."""
        block, view = self._block, self._view
        where = self._beyond(block.where, view.where)
        having = self._beyond(block.having, view.having)
        if where is None or having is None:
            return None
        if not self._grouped_alike() or not self._limited_alike(where, having):
            return None
        try:
            return self._select(where, having)
        except _Unknown:
            return None

    def _beyond(self, asked: tuple[exp.Expr, ...], held: tuple[exp.Expr, ...]) -> list[exp.Expr] | None:
        """What is asked beyond what the view does; None where the view leaves out more."""
        there = {self._of_view(part) for part in held}
        if not there <= {self._of(part) for part in asked}:
            return None
        return [part for part in asked if self._of(part) not in there]

    def _grouped_alike(self) -> bool:
        """Whether the groups are the view's, or coarser; those of a view without groups may be any."""
        if not self._view.aggregated:
            return True
        if not self._block.aggregated:
            return False
        asked = {self._of(e) for e in self._block.group}
        if not asked <= self._group:
            return False
        self._coarser = asked != self._group
        # Groups that HAVING leaves out are missing in coarser ones.
        return not (self._coarser and self._view.having)

    def _limited_alike(self, where: list[exp.Expr], having: list[exp.Expr]) -> bool:
        windows = any(output.find(exp.Window) for output in self._view.select.expressions)
        if not self._view.limited and not windows:
            return True
        if where or having or self._coarser or self._block.aggregated != self._view.aggregated:
            return False
        if not self._view.limited:
            return True
        clauses = (*_LIMITING, "order")
        own = [self._view.select.args.get(c) for c in clauses]
        asked = [self._block.select.args.get(c) for c in clauses]
        same = [None if c is None else self._of_view(c) for c in own] == [
            None if c is None else self._of(c) for c in asked
        ]
        return same and len(self._block.select.expressions) == len(self._view.select.expressions)

    def _select(self, where: list[exp.Expr], having: list[exp.Expr]) -> exp.Select:
        asked, aggregated = self._block.select, self._view.aggregated
        after_groups = aggregated and not self._coarser
        conditions = [self._put(part) for part in where]
        having = [self._put(part) for part in having]
        if after_groups:
            conditions, having = conditions + having, []
        outputs = [exp.alias_(self._put(unnamed(o)), o.alias_or_name) for o in asked.expressions]
        select = exp.Select(expressions=outputs).from_(exp.to_table(self._name))
        for condition in conditions:
            select = select.where(condition, copy=False)
        if not after_groups:
            groups = [self._put(e) for e in self._block.group]
            select = select.group_by(*groups, copy=False) if groups else select
            for condition in having:
                select = select.having(condition, copy=False)
        for clause in ("order",) if self._view.limited else ("order", *_LIMITING):
            if asked.args.get(clause) is not None:
                select.set(clause, self._put(asked.args[clause]))
        return select

    def _put(self, node: exp.Expr) -> exp.Expr:
        """The expression with the view's columns in the place of what they hold."""
        column = self._columns.get(self._of(node))
        if column is not None:
            held = exp.column(column, self._name)
            if not (self._coarser and _aggregates(node)):
                return held
            return _combined(node, held)
        if isinstance(node, exp.Column):
            if node.table:
                raise _Unknown
            return node.copy()  # an output, in ORDER BY
        if isinstance(node, exp.Query) or (isinstance(node, exp.AggFunc) and self._view.aggregated):
            raise _Unknown
        return self._with_children(node)

    def _with_children(self, node: exp.Expr) -> exp.Expr:
        changed = node.copy()
        for name, value in node.args.items():
            if isinstance(value, exp.Expr):
                changed.set(name, self._put(value))
            elif isinstance(value, list):
                changed.set(name, [self._put(v) if isinstance(v, exp.Expr) else v for v in value])
        return changed


def _combined(node: exp.Expr, held: exp.Expr) -> exp.Expr:
    """An aggregate of a coarser group from those of the view's."""
    distinct = isinstance(node.this, exp.Distinct)
    match node:
        case exp.Count() if not distinct:
            total = exp.Coalesce(this=exp.Sum(this=held), expressions=[exp.Literal.number(0)])
            return exp.cast(total, "BIGINT")
        case exp.Sum() if not distinct:
            return exp.Sum(this=held)
        case exp.Min() | exp.Max() if not node.expressions:
            return type(node)(this=held)
    raise _Unknown


def _aggregates(node: exp.Expr) -> bool:
    inside = node.walk(prune=lambda n: isinstance(n, exp.Query) and n is not node)
    return any(isinstance(n, exp.AggFunc) and not isinstance(n.parent, exp.Window) for n in inside)


def _is_plain(source: exp.Expr) -> bool:
    return isinstance(source, exp.Table) and not set(_given(source)) - {"this", "alias"}


def _is_set(node: exp.Expr) -> bool:
    return isinstance(node, exp.Rollup | exp.Cube | exp.GroupingSets)


def _given(node: exp.Expr) -> Iterator[str]:
    return (name for name, value in node.args.items() if value)


def _clause(select: exp.Select, name: str) -> exp.Expr | None:
    clause = select.args.get(name)
    return None if clause is None else clause.this
