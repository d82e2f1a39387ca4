"""What follows the rows of a query: QUALIFY, DISTINCT, ORDER BY, LIMIT.

They are bound to *slots*: the outputs by their indices, then the expressions `hidden` from the outputs. So
they stay what they are when the query becomes a derived table, which `finish.py` does where it must.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

from sqlglot import exp

from views.compiler.types import Kind

from . import refuse
from .aliases import with_aliases
from .bound import Expression, Literal, Output
from .definitions import Queries, RowLimit
from .implied_ranks import with_implied
from .row_limits import Limited
from .scope import Scope, identifier

CLAUSES = {"distinct", "qualify", "order", "limit", "offset"}


@dataclass(frozen=True, slots=True)
class OrderKey:
    """An item of ORDER BY; `slot` None: an expression that only the display would need."""

    slot: int | None
    descending: bool
    nulls_first: bool


@dataclass(frozen=True, slots=True)
class Numbering:
    """A row number that is limited: the slots it counts by, and the limit."""

    partition_by: tuple[int, ...]
    order_by: tuple[OrderKey, ...]
    limit: RowLimit


@dataclass(frozen=True, slots=True)
class Final:
    """The bound final clauses of a query. `limit` None: all rows; `distinct_on` None: no DISTINCT ON."""

    numbering: Numbering | None = None
    qualify: int | None = None
    distinct: bool = False
    distinct_on: tuple[int, ...] | None = None
    order: tuple[OrderKey, ...] = ()
    limit: RowLimit | None = None


@dataclass(slots=True)
class FinalBinder:
    """Binds the final clauses of a query in its scope; `known` are its outputs' expressions by alias."""

    queries: Queries
    tree: exp.Expr
    scope: Scope
    outputs: Sequence[Output]
    known: dict[str, exp.Expr] = field(default_factory=dict)
    hidden: list[Expression] = field(default_factory=list)

    def final(self, row_number: Limited | None, single: bool) -> Final:
        """All final clauses. `row_number` is a limited one; `single`: the query has one row at most."""
        distinct, qualify = (self.tree.args.get(k) for k in ("distinct", "qualify"))
        if not isinstance(self.tree, exp.Select):
            distinct = None
        numbering = condition = None
        if row_number:
            numbering = self._numbering(row_number)
        if qualify and not (row_number and row_number.conjunct is qualify.this):
            condition = self._qualify(qualify)
        limit = self._limit(single)
        on = self._distinct_on(distinct) if distinct else None
        plain = bool(distinct) and on is None
        order = self._order(limit is not None or on is not None, on if limit is None and on else ())
        if plain and any(k.slot is not None and k.slot >= len(self.outputs) for k in order):
            message = "with SELECT DISTINCT, ORDER BY takes what is selected; select the expression too"
            raise self.queries.text.error(message, self.tree.args["order"])
        return Final(numbering, condition, plain, on, order, limit)

    def _order(self, decides: bool, partition: Sequence[int] = ()) -> tuple[OrderKey, ...]:
        """ORDER BY, which `decides` about rows, beside the slots of `partition`, or not."""
        order = self.tree.args.get("order")
        self.scope.clause = "ORDER BY"
        keys = [(item, k) for item in order.expressions for k in self._keys(item, decides)] if order else []
        for item, key in keys:
            if decides and key.slot not in partition:
                self._check_ordered(key, item)
        return tuple(key for _, key in keys)

    def _check_ordered(self, key: OrderKey, node: exp.Expr) -> None:
        assert key.slot is not None
        values = [*(o.expression for o in self.outputs), *self.hidden]
        if values[key.slot].type.kind is Kind.TEXT:
            instead = "TEXT has no order here; order by a number that stands for it"
            raise self.queries.text.error(refuse.sentence("LIMIT with ORDER BY of TEXT", instead), node)

    def _keys(self, item: exp.Ordered, decides: bool) -> list[OrderKey]:
        node = item.this
        named_all = isinstance(node, exp.Column) and len(node.parts) == 1 and node.name.lower() == "all"
        if named_all and not self.scope.has("all") and all(o.name != "all" for o in self.outputs):
            return [_key(i, item) for i in range(len(self.outputs))]
        return [_key(self._order_slot(node, decides), item)]

    def _order_slot(self, node: exp.Expr, decides: bool) -> int | None:
        """A number is an output, a name an output before it is a column."""
        if isinstance(node, exp.Literal) and not node.is_string:
            ordinal = int(node.name) if node.name.isdigit() else 0
            if not 1 <= ordinal <= len(self.outputs):
                message = f"ORDER BY {node.name} names no output; there are {len(self.outputs)}"
                raise self.queries.text.error(message, node)
            return ordinal - 1
        if isinstance(node, exp.Column) and len(node.parts) == 1 and isinstance(node.this, exp.Identifier):
            name = identifier(node.this, self.queries.text)
            named = [i for i, o in enumerate(self.outputs) if o.name == name]
            if named:
                return named[0]
        value = self._value(node)
        found = [i for i, o in enumerate(self.outputs) if o.expression == value]
        if found:
            return found[0]
        return self._hide(value) if decides else None

    def _value(self, node: exp.Expr) -> Expression:
        return self.queries.expressions.value(with_aliases(node, self.known, self.scope), self.scope)

    def _hide(self, value: Expression) -> int:
        self.hidden.append(value)
        return len(self.outputs) + len(self.hidden) - 1

    def _qualify(self, clause: exp.Qualify) -> int:
        self.scope.clause = "QUALIFY"
        condition = with_aliases(clause.this, self.known, self.scope)
        return self._hide(with_implied(self.queries.expressions.condition(condition, self.scope)))

    def _numbering(self, row_number: Limited) -> Numbering:
        self.scope.clause = "QUALIFY"
        window = row_number.subject
        partition = tuple(self._hide(self._value(n)) for n in window.args.get("partition_by") or ())
        items = tuple(_key(self._hide(self._value(i.this)), i) for i in window.args["order"].expressions)
        for key, item in zip(items, window.args["order"].expressions, strict=True):
            self._check_ordered(key, item)
        return Numbering(partition, items, row_number.limit)

    def _distinct_on(self, distinct: exp.Distinct) -> tuple[int, ...] | None:
        on = distinct.args.get("on")
        if on is None:
            return None
        if not self.tree.args.get("order"):
            instead = "say with ORDER BY which row of each it takes"
            raise self.queries.text.error(refuse.sentence("DISTINCT ON without ORDER BY", instead), self.tree)
        self.scope.clause = "ORDER BY"
        items = on.expressions if isinstance(on, exp.Tuple) else [on]
        slots = [self._order_slot(n, True) for n in items]
        return tuple(s for s in slots if s is not None)

    def _limit(self, single: bool) -> RowLimit | None:
        """LIMIT and OFFSET, or FETCH; a query of one row needs no order."""
        text = self.queries.text
        limit, offset = self.tree.args.get("limit"), self.tree.args.get("offset")
        if limit is None:
            if offset is not None:
                instead = "write ORDER BY ... LIMIT n OFFSET m"
                raise text.error(refuse.sentence("OFFSET without LIMIT", instead), offset)
            return None
        options = limit.args.get("limit_options")
        if options and (options.args.get("percent") or options.args.get("with_ties")):
            raise text.error(refuse.sentence("LIMIT of PERCENT or WITH TIES", "give a number of rows"), limit)
        if limit.expressions:
            raise text.error(refuse.sentence("LIMIT BY", "write QUALIFY ROW_NUMBER() OVER (...) <= n"), limit)
        count = limit.args.get("count") if isinstance(limit, exp.Fetch) else limit.expression
        number = self._number(count, limit) if count else 1
        skipped = self._number(offset.expression, offset) if offset else 0
        if number and not single and not self.tree.args.get("order"):
            instead = "say with ORDER BY which rows are the first"
            raise text.error(refuse.sentence("LIMIT without ORDER BY", instead), limit)
        return RowLimit(number, skipped)

    def _number(self, node: exp.Expr, clause: exp.Expr) -> int:
        value = whole_number(self.queries, node)
        if value is None or value < 0:
            name = "OFFSET" if isinstance(clause, exp.Offset) else "LIMIT"
            raise self.queries.text.error(f"{name} takes a whole number that is not negative", clause)
        return value


def _key(slot: int | None, item: exp.Ordered) -> OrderKey:
    return OrderKey(slot, bool(item.args.get("desc")), bool(item.args.get("nulls_first")))


def whole_number(queries: Queries, node: exp.Expr) -> int | None:
    """The whole number that a literal or parameter stands for; None for other expressions."""
    if not isinstance(node, exp.Literal | exp.Placeholder) or node.is_string:
        return None
    bound = queries.expressions.value(node, Scope(queries.text, None))
    value = bound.value if isinstance(bound, Literal) else None
    return value if isinstance(value, int) and not isinstance(value, bool) else None
