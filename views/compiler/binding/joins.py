"""FROM: joins of all kinds, from syntax trees to sources, outer joins and conjuncts of WHERE."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from sqlglot import exp

from . import asof, refuse
from .bound import Expression, OuterJoin, Output, Select, Source
from .building import comparison, logical
from .counting import count_of
from .definitions import Queries
from .dialect import position
from .scope import MergedColumn, Scope, identifier, nearest
from .sources import SourceBinder
from .typing_rules import TypingError

Rows = Source | OuterJoin
_KINDS = ("", "INNER", "CROSS", "OUTER", "SEMI", "ANTI")


@dataclass(frozen=True, slots=True)
class Joined:
    """A part of FROM: what it joins, what its rows must satisfy, and its items in the scope."""

    rows: tuple[Rows, ...]
    conditions: tuple[Expression, ...]
    start: int
    end: int


@dataclass(slots=True)
class JoinBinder:
    """Binds the FROM of one query."""

    queries: Queries
    scope: Scope
    sources: SourceBinder

    def from_clause(self, tree: exp.Select) -> tuple[tuple[Rows, ...], list[Expression]]:
        """The sources of a query, and the conditions that its joins put on their rows."""
        first, joins = tree.args.get("from_"), tree.args.get("joins") or ()
        if not first:
            return (), []
        joined = self._chain(first.this, joins)
        return joined.rows, list(joined.conditions)

    def _chain(self, first: exp.Expr, joins: Sequence[exp.Join]) -> Joined:
        """Joins from left to right; a comma binds less tightly than JOIN."""
        outside, self.scope.first_item = self.scope.first_item, len(self.scope.items)
        groups = [self._part(first)]
        for join in joins:
            self._join(groups, join)
        self.scope.first_item = outside
        return _product(groups)

    def _part(self, node: exp.Expr) -> Joined:
        """One operand of a join: a source, or joins in parentheses or before their ON."""
        joins = node.args.get("joins") or ()
        if joins:
            alone = node.copy()
            alone.set("joins", None)
            return self._chain(alone, joins)
        if isinstance(node, exp.Subquery) and not isinstance(node.unnest(), exp.Query):
            if alias := node.args.get("alias"):
                message = refuse.sentence("alias of joins in parentheses", "give each relation its own")
                raise self.queries.text.error(message, alias)
            refuse.only(self.queries.text, node, {"this"})
            return self._part(node.this)
        start = len(self.scope.items)
        source = self.sources.source(node, self.scope)
        return Joined((source,), (), start, len(self.scope.items))

    def _join(self, groups: list[Joined], join: exp.Join) -> None:
        side, kind, method = (str(join.args.get(k) or "").upper() for k in ("side", "kind", "method"))
        comma = self.queries.text.sql[position(join)] == ","
        self._check(join, side, kind, method, comma)
        right = self._part(join.this)
        left = groups[-1]
        if comma:
            groups.append(right)
        elif method == "ASOF":
            on = self._asof(join, left, right)
            groups[-1] = self._outer(left, right, on) if side else _product([left, right], on)
        elif kind in ("SEMI", "ANTI"):
            groups[-1] = self._semi(join, left, right, ">" if kind == "SEMI" else "=")
        elif side:
            self._outer_join(groups, join, side, right)
        else:
            groups[-1] = _product([left, right], self._condition(join, left, right))

    def _check(self, join: exp.Join, side: str, kind: str, method: str, comma: bool) -> None:
        name = " ".join(w for w in (method, side, kind, "JOIN") if w)
        known = method in ("", "NATURAL") or (method == "ASOF" and side in ("", "LEFT"))
        if kind not in _KINDS or not known:
            instead = "there are inner, cross, outer, semi, anti and ASOF joins"
            raise self.queries.text.error(refuse.sentence(name, instead), join)
        if kind in ("SEMI", "ANTI") and side not in ("", "LEFT"):
            raise self.queries.text.error(refuse.sentence(name, "exchange its sides"), join)
        refuse.only(self.queries.text, join, {"this", "on", "using", "side", "kind", "method"})
        conditioned = bool(join.args.get("on") or join.args.get("using"))
        free = comma or kind == "CROSS" or method == "NATURAL"
        if conditioned and free and not comma:
            raise self.queries.text.error(f"{name} takes no ON; write JOIN ... ON", join)
        if not conditioned and not free:
            message = f"{name} needs ON; write CROSS JOIN to pair every row with every row"
            raise self.queries.text.error(message, join)

    def _outer_join(self, groups: list[Joined], join: exp.Join, side: str, right: Joined) -> None:
        if side == "LEFT":
            on = self._condition(join, groups[-1], right)
            groups[:] = [self._outer(_product(groups), right, on)]
            return
        left = groups[-1]
        if side == "FULL":
            left, right = self._filtered(left, join), self._filtered(right, join)
        # What stands before a comma takes no part in the join, so its ON does not see it.
        outside, self.scope.first_item = self.scope.first_item, left.start
        on = self._condition(join, left, right, side)
        self.scope.first_item = outside
        groups[-1] = self._outer(left, right, on, side)

    def _outer(self, left: Joined, right: Joined, on: Sequence[Expression], side: str = "LEFT") -> Joined:
        """A join that keeps the rows without a partner of the left, the right, or of both."""
        kept, other = (right, left) if side == "RIGHT" else (left, right)
        for part in (kept, other) if side == "FULL" else (other,):
            items = [i.nullable() for i in self.scope.items[part.start : part.end]]
            if side == "FULL":
                items[0] = replace(items[0], rows=items[0].rows + 1)
            self.scope.items[part.start : part.end] = items
        join = OuterJoin(kept.rows, other.rows, logical("AND", [*other.conditions, *on]), side == "FULL")
        return Joined((join,), kept.conditions, left.start, right.end)

    def _semi(self, join: exp.Join, left: Joined, right: Joined, op: str) -> Joined:
        """The rows of the left that have a partner, or none; the right is not seen outside of ON."""
        merged = list(self.scope.merged)
        on = self._condition(join, left, right)
        most = 1
        for item in self.scope.items[right.start :]:
            most *= item.rows
        self.scope.merged[:] = merged
        del self.scope.items[right.start :]
        matches = count_of(right.rows, [*right.conditions, *on], most, op)
        return replace(left, conditions=(*left.conditions, matches))

    def _asof(self, join: exp.Join, left: Joined, right: Joined) -> list[Expression]:
        if right.end - right.start > 1 or right.conditions:
            instead = "join a derived table"
            raise self.queries.text.error(refuse.sentence("ASOF JOIN of joins in parentheses", instead), join)
        using = self._using(join, left, right)

        def bind() -> list[Expression]:
            return self._equalities(using, join, left, right, last=">=") if using else self._on(join)

        def again() -> Source:
            del self.scope.items[right.start :]
            return self.sources.source(join.this, self.scope)

        on = asof.conditions(self.queries.text, join, self.scope, bind, again)
        self._merge(using, left, right)
        return on

    def _filtered(self, part: Joined, node: exp.Expr) -> Joined:
        """The part as one derived table, so that its conditions hold before the rows meet others."""
        if not part.conditions:
            return part
        id = self.queries.unique("joined", node)
        outputs: dict[str, Output] = {}
        for index in range(part.start, part.end):
            item, stored = self.scope.items[index], {}
            for column in item.columns:
                name = f"{item.id}_{column.name}"
                while name in outputs:
                    name += "_"
                outputs[name] = Output(name, item.reference(column))
                stored[column.name] = name
            self.scope.items[index] = replace(item, id=id, stored=stored)
        query = Select(part.rows, logical("AND", part.conditions), (), tuple(outputs.values()), False)
        return replace(part, rows=(Source(id, query),), conditions=())

    def _condition(self, join: exp.Join, left: Joined, right: Joined, side: str = "LEFT") -> list[Expression]:
        using = self._using(join, left, right)
        on = self._equalities(using, join, left, right) if using else self._on(join)
        self._merge(using, left, right, side)
        return on

    def _on(self, join: exp.Join) -> list[Expression]:
        on = join.args.get("on")
        self.scope.clause = "ON"
        return [self.queries.expressions.condition(on, self.scope)] if on else []

    def _using(self, join: exp.Join, left: Joined, right: Joined) -> list[tuple[str, exp.Expr]]:
        """The names of USING, or of all columns that both sides of a NATURAL join have."""
        text, scope = self.queries.text, self.scope
        if str(join.args.get("method") or "").upper() == "NATURAL":
            there = {c.name for _, c in scope.visible(right.start, right.end)}
            names = [c.name for _, c in scope.visible(left.start, left.end) if c.name in there]
            if not names:
                raise text.error("NATURAL JOIN finds no column that both sides have; write JOIN ... ON", join)
            return [(name, join) for name in dict.fromkeys(names)]
        return [(identifier(n, text), n) for n in join.args.get("using") or ()]

    def _equalities(
        self, using: list[tuple[str, exp.Expr]], join: exp.Join, left: Joined, right: Joined, last: str = "="
    ) -> list[Expression]:
        conditions: list[Expression] = []
        for count, (name, node) in enumerate(using, 1):
            sides = [self._merged(name, node, part) for part in (left, right)]
            values = [self.scope.merged_value(side, node) for side in sides]
            try:
                conditions.append(comparison(last if count == len(using) else "=", values[0], values[1]))
            except TypingError as error:
                raise self.queries.text.error(str(error), node) from None
        return conditions

    def _merged(self, name: str, node: exp.Expr, part: Joined) -> MergedColumn:
        merged = self.scope.named(name, part.start, part.end, node)
        if merged is None:
            known = (c.name for _, c in self.scope.visible(part.start, part.end))
            where = " and ".join(i.alias for i in self.scope.items[part.start : part.end])
            raise self.queries.text.error(f"{where} has no column {name}{nearest(name, known)}", node)
        return merged

    def _merge(
        self, using: list[tuple[str, exp.Expr]], left: Joined, right: Joined, side: str = "LEFT"
    ) -> None:
        """Makes one column of those of each name: the left's, the right's, or the first that is not NULL."""
        for name, node in using:
            a, b = (self._merged(name, node, part) for part in (left, right))
            taken = {"RIGHT": b.taken, "FULL": a.taken + b.taken}.get(side, a.taken)
            self.scope.merged = [m for m in self.scope.merged if m not in (a, b)]
            self.scope.merged.append(MergedColumn(name, a.items + b.items, taken))


def _product(parts: Sequence[Joined], conditions: Sequence[Expression] = ()) -> Joined:
    """Every row of each part with every row of the others, where the conditions hold."""
    return Joined(
        tuple(r for p in parts for r in p.rows),
        (*(c for p in parts for c in p.conditions), *conditions),
        parts[0].start,
        parts[-1].end,
    )
