"""What follows the rows of a query: QUALIFY, DISTINCT, ORDER BY, LIMIT.

They are bound to *slots*: the outputs by their indices, then the expressions `hidden` from the outputs. So
they stay what they are when the query becomes a derived table. `Finisher` applies them to a Select, which
becomes one where it already groups or limits.

Limits on row numbers: `ROW_NUMBER() OVER (...) AS rn` where `rn <= n` is the first n rows of a partition.
The row number has to be seen by the limit alone, in QUALIFY or in WHERE around a derived table.

Limits on the first place of an order are implied by limits on ranks in all of it:
`ROW_NUMBER() OVER (ORDER BY price, id) <= 10` implies `RANK() OVER (ORDER BY price) <= 10`, which an index
by price can cut, so that the rows beyond it are not looked at.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from sqlglot import exp

from orderbook.views.binding.bound import (
    ColumnRef,
    Comparison,
    Expression,
    Literal,
    Logical,
    OrderItem,
    OuterJoin,
    Output,
    ScalarSubquery,
    Select,
    Source,
    Top,
    Window,
    has,
)
from orderbook.views.binding.grouping import Queries, RowLimit, outputs_of, with_aliases, with_hidden
from orderbook.views.binding.parser import START, position
from orderbook.views.binding.scope import Scope, identifier, refusal_text
from orderbook.views.binding.text_functions import order_words
from orderbook.views.binding.typed_nodes import FALSE, comparison, logical
from orderbook.views.calculus import MIRRORED

# The whole number that an expression stands for, or None.
Number = Callable[[exp.Expr], int | None]
_MIRRORED_NODES: dict[type[exp.Expr], type[exp.Expr]] = {
    exp.LT: exp.GT,
    exp.GT: exp.LT,
    exp.LTE: exp.GTE,
    exp.GTE: exp.LTE,
    exp.EQ: exp.EQ,
}


@dataclass(frozen=True, slots=True)
class Limited:
    """A conjunct that limits `subject`."""

    conjunct: exp.Expr
    subject: exp.Expr
    limit: RowLimit


def is_row_number(node: exp.Expr) -> bool:
    """Whether it is ROW_NUMBER() OVER (PARTITION BY ... ORDER BY ...), with an ORDER BY."""
    return (
        isinstance(node, exp.Window)
        and isinstance(node.this, exp.RowNumber)
        and bool(node.args.get("order"))
        and not node.args.get("spec")
        and not node.args.get("alias")
    )


def limited(conjunct: exp.Expr, number: Number) -> Limited | None:
    """The subject that a conjunct limits to row numbers, as in `rn <= 10`; None for another conjunct."""
    node = conjunct.unnest()
    if isinstance(node, exp.Between) and not node.args.get("symmetric"):
        low, high = number(node.args["low"]), number(node.args["high"])
        if low is None or high is None:
            return None
        return _between(conjunct, node.this, low, high)
    op = type(node)
    if op not in _MIRRORED_NODES:
        return None
    subject, value = node.this, number(node.expression)
    if value is None:
        subject, value, op = node.expression, number(node.this), _MIRRORED_NODES[op]
    if value is None or op in (exp.GT, exp.GTE):
        return None
    if op is exp.EQ:
        return _between(conjunct, subject, value, value)
    return _between(conjunct, subject, 1, value if op is exp.LTE else value - 1)


def _between(conjunct: exp.Expr, subject: exp.Expr, low: int, high: int) -> Limited | None:
    low = max(low, 1)
    if high < low:
        return None
    return Limited(conjunct, subject.unnest(), RowLimit(high - low + 1, low - 1))


def conjuncts(condition: exp.Expr | None) -> list[exp.Expr]:
    """The parts that AND connects."""
    if condition is None:
        return []
    node = condition.unnest()
    return (
        [p for part in node.flatten() for p in conjuncts(part)] if isinstance(node, exp.And) else [condition]
    )


def hidden_limits(tree: exp.Select, number: Number) -> list[Limited]:
    """The limits in WHERE on columns that the query names nowhere else."""
    joins = tree.args.get("joins") or ()
    if any(j.side or j.args.get("method") or j.args.get("using") for j in joins) or any(
        e.is_star for e in tree.expressions
    ):
        return []
    limits = (limited(c, number) for c in conjuncts(_where(tree)))
    found = [f for f in limits if f and isinstance(f.subject, exp.Column)]
    seen = [c.name.lower() for c in _columns(tree)]
    alone = not joins
    return [
        f for f in found if seen.count(f.subject.name.lower()) == 1 and (alone or f.subject.args.get("table"))
    ]


def with_ties(tree: exp.Select) -> exp.Select:
    """FETCH FIRST n ROWS WITH TIES as the rows whose rank in the order is n at most."""
    limit, order = tree.args.get("limit"), tree.args.get("order")
    options = limit.args.get("limit_options") if isinstance(limit, exp.Fetch) else None
    apart = ("qualify", "distinct", "offset")
    if not options or not options.args.get("with_ties") or options.args.get("percent") or not order:
        return tree
    if any(tree.args.get(k) for k in apart):
        return tree
    tree = tree.copy()
    fetch, by = tree.args["limit"], tree.args["order"].copy()
    for item in by.expressions:
        node = item.this
        place = int(node.name) if isinstance(node, exp.Literal) and node.is_int else 0
        if 1 <= place <= len(tree.expressions):
            item.set("this", exp.Paren(this=tree.expressions[place - 1].unalias().copy()))
    rank = exp.Window(this=exp.Rank(), order=by, over="OVER")
    count = fetch.args.get("count") or exp.Literal.number(1)
    tree.set("qualify", exp.Qualify(this=exp.LTE(this=rank, expression=count.copy())))
    tree.set("limit", None)
    for part in tree.args["qualify"].walk():
        part.meta.setdefault(START, position(fetch))
    return tree


def by_source(found: Sequence[Limited]) -> Mapping[str | None, dict[str, RowLimit]]:
    """The limits by the alias they name (None: without one) and the column."""
    result: dict[str | None, dict[str, RowLimit]] = {}
    for item in found:
        table = item.subject.args.get("table")
        alias = table.name.lower() if table else None
        result.setdefault(alias, {})[item.subject.name.lower()] = item.limit
    return result


def _where(tree: exp.Select) -> exp.Expr | None:
    where = tree.args.get("where")
    return where.this if where else None


def _columns(tree: exp.Select) -> Iterator[exp.Column]:
    """The columns that a query names outside of its derived tables and common table expressions."""

    def apart(node: exp.Expr) -> bool:
        return isinstance(node, exp.With | exp.From) or (
            isinstance(node, exp.Subquery) and isinstance(node.parent, exp.Join)
        )

    return (n for n in tree.walk(prune=apart) if isinstance(n, exp.Column))


def with_implied(condition: Expression) -> Expression:
    """The condition and what its limits on ranks imply."""
    implied = [
        _limit(found[0], op, limit)
        for op, subject, limit in _limits(_conjuncts([condition]))
        if (found := _first_places([subject]))
    ]
    return logical("AND", [condition, *implied]) if implied else condition


def with_implied_in_sources(
    sources: Sequence[Source | OuterJoin], conditions: Sequence[Expression]
) -> tuple[tuple[Source | OuterJoin, ...], list[Expression]]:
    """The same for limits on columns of derived tables, which get the rank of the first place as a column."""
    result, implied = list(sources), list(conditions)
    for op, subject, limit in _limits(_conjuncts(conditions)):
        for place, source in enumerate(result):
            if not (isinstance(subject, ColumnRef) and isinstance(source, Source)):
                continue
            if source.id != subject.source or not isinstance(source.relation, Select):
                continue
            outputs = source.relation.outputs
            ranks = _first_places([o.expression for o in outputs if o.name == subject.name])
            if ranks and not source.relation.top:
                result[place] = replace(source, relation=with_hidden(source.relation, ranks))
                name = result[place].relation.outputs[-1].name  # type: ignore[union-attr]
                implied.append(_limit(ColumnRef(source.id, name, ranks[0].type, False), op, limit))
    return tuple(result), implied


def _conjuncts(conditions: Iterable[Expression]) -> Iterable[Expression]:
    for condition in conditions:
        if isinstance(condition, Logical) and condition.op == "AND":
            yield from _conjuncts(condition.args)
        else:
            yield condition


def _limits(conditions: Iterable[Expression]) -> list[tuple[str, Expression, Literal]]:
    """The conditions that are `subject op limit`, op one of < <= =."""
    found = []
    for condition in conditions:
        if isinstance(condition, Comparison):
            if isinstance(condition.right, Literal) and condition.op in ("<", "<=", "="):
                found.append((condition.op, condition.left, condition.right))
            elif isinstance(condition.left, Literal) and condition.op in (">", ">=", "="):
                found.append((MIRRORED[condition.op], condition.right, condition.left))
    return found


def _first_places(expressions: Iterable[Expression]) -> list[Window]:
    """The ranks in the first place of the order of ranks in several."""
    return [
        replace(e, function="rank", order_by=e.order_by[:1])
        for e in expressions
        if isinstance(e, Window)
        and e.function in ("rank", "row_number")
        and len(e.order_by) > 1
        and not has(e, ScalarSubquery)
    ]


def _limit(rank: Expression, op: str, limit: Literal) -> Expression:
    return comparison("<=" if op == "=" else op, rank, limit)


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
        order = self._order(limit is not None or on is not None)
        if plain and any(k.slot is not None and k.slot >= len(self.outputs) for k in order):
            message = "with SELECT DISTINCT, ORDER BY takes what is selected; select the expression too"
            raise self.queries.text.error(message, self.tree.args["order"])
        return Final(numbering, condition, plain, on, order, limit)

    def _order(self, decides: bool) -> tuple[OrderKey, ...]:
        """ORDER BY, which `decides` about rows or not."""
        order = self.tree.args.get("order")
        self.scope.clause = "ORDER BY"
        return tuple(k for item in order.expressions for k in self._keys(item, decides)) if order else ()

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
        return Numbering(partition, items, row_number.limit)

    def _distinct_on(self, distinct: exp.Distinct) -> tuple[int, ...] | None:
        on = distinct.args.get("on")
        if on is None:
            return None
        if not self.tree.args.get("order"):
            instead = "say with ORDER BY which row of each it takes"
            raise self.queries.text.error(refusal_text("DISTINCT ON without ORDER BY", instead), self.tree)
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
                raise text.error(refusal_text("OFFSET without LIMIT", instead), offset)
            return None
        options = limit.args.get("limit_options")
        if options and (options.args.get("percent") or options.args.get("with_ties")):
            raise text.error(refusal_text("LIMIT of PERCENT or WITH TIES", "give a number of rows"), limit)
        if limit.expressions:
            raise text.error(refusal_text("LIMIT BY", "write QUALIFY ROW_NUMBER() OVER (...) <= n"), limit)
        count = limit.args.get("count") if isinstance(limit, exp.Fetch) else limit.expression
        number = self._number(count, limit) if count else 1
        skipped = self._number(offset.expression, offset) if offset else 0
        if number and not single and not self.tree.args.get("order"):
            instead = "say with ORDER BY which rows are the first"
            raise text.error(refusal_text("LIMIT without ORDER BY", instead), limit)
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


@dataclass(slots=True)
class Finisher:
    """A Select and the expressions hidden from its outputs; `unique` names a source of the view."""

    select: Select
    hidden: tuple[Expression, ...]
    unique: Callable[[], str]

    def finish(self, final: Final) -> Select:
        """The query with all its final clauses."""
        if final.numbering:
            number = final.numbering
            self._top(number.partition_by, number.order_by, number.limit)
        if final.qualify is not None:
            self._derive()
            self.select = replace(self.select, where=self._value(final.qualify))
        if final.distinct:
            self._distinct()
        if final.distinct_on is not None:
            order = [k for k in final.order if k.slot not in final.distinct_on]
            self._top(final.distinct_on, order, RowLimit(1))
        if final.limit is not None:
            self._limit(final.limit, final.order)
        return self.select

    def _value(self, slot: int | None) -> Expression:
        assert slot is not None
        outputs = self.select.outputs
        return outputs[slot].expression if slot < len(outputs) else self.hidden[slot - len(outputs)]

    def _limit(self, limit: RowLimit, order: Sequence[OrderKey]) -> None:
        if limit.limit == 0:
            if self.select.aggregated or self.select.top:
                self._derive()
            self.select = replace(self.select, where=FALSE)
        elif order or limit.offset:
            self._top((), order, limit)

    def _top(self, partition: Iterable[int], order: Iterable[OrderKey], limit: RowLimit) -> None:
        partition = tuple(partition)
        order = tuple(k for place, key in enumerate(order) for k in self._words(key, leading=not place))
        used = [slot for slot in (*partition, *(k.slot for k in order)) if slot is not None]
        outputs = [o.expression for o in self.select.outputs]
        repeated = [self._value(s) for s in used if s < len(outputs)]
        windows = any(has(e, Window) for e in (*outputs, *map(self._value, used)))
        if self._shaped or windows or any(has(e, ScalarSubquery) for e in repeated):
            self._derive()
        top = Top(
            tuple(self._value(s) for s in partition),
            tuple(OrderItem(self._value(k.slot), k.descending, k.nulls_first) for k in order),
            limit.limit,
            limit.offset,
        )
        self.select = replace(self.select, top=top)

    def _words(self, key: OrderKey, leading: bool) -> list[OrderKey]:
        """What a TEXT is ordered by, as hidden expressions; groups in its order are groups by these too."""
        value = self._value(key.slot)
        words = order_words(value)
        if words == (value,):
            return [key]
        if leading and value in self.select.group_by:
            self.select = replace(self.select, group_by=(*self.select.group_by, *words))
        first = len(self.select.outputs) + len(self.hidden)
        self.hidden += words
        return [replace(key, slot=first + place) for place in range(len(words))]

    @property
    def _shaped(self) -> bool:
        return self.select.aggregated or self.select.top is not None

    def _distinct(self) -> None:
        if self._shaped or any(has(o.expression, Window, ScalarSubquery) for o in self.select.outputs):
            self._derive()
        groups = tuple(dict.fromkeys(o.expression for o in self.select.outputs))
        self.select, self.hidden = replace(self.select, group_by=groups, aggregated=True), ()

    def _derive(self) -> None:
        """Makes the query a derived table of one that selects its outputs."""
        inner = with_hidden(self.select, self.hidden)
        id, count = self.unique(), len(self.select.outputs)
        columns = outputs_of(id, inner.outputs)
        self.select = Select((Source(id, inner),), None, (), columns[:count], False)
        self.hidden = tuple(o.expression for o in columns[count:])
