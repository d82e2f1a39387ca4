"""MATCH_RECOGNIZE, from its syntax tree to a bound pattern over the rows of a query.

Conditions and measures read the row at hand, rows before it (PREV), and what is kept of the rows of a match:
`A.price` is that of the last row of A, beside FIRST, LAST, COUNT, SUM, AVG, MIN and MAX. In a condition the
row at hand counts as one of its variable's already; a measure is read at the last row of a match.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, fields, is_dataclass, replace
from decimal import Decimal
from hashlib import sha256
from math import ceil
from typing import Any, NoReturn

from sqlglot import exp

from orderbook.views.binding.bound import (
    MATCH,
    MOST_BACK,
    ColumnRef,
    Expression,
    Kept,
    Literal,
    Output,
    RowPattern,
    Select,
    Source,
    row_at,
)
from orderbook.views.binding.expressions import ExpressionBinder
from orderbook.views.binding.grouping import Queries
from orderbook.views.binding.literals_and_casts import span
from orderbook.views.binding.nodes import MatchRecognize
from orderbook.views.binding.parser import START, SqlText, position
from orderbook.views.binding.scope import (
    FromItem,
    Scope,
    identifier,
    nearest,
    refusal_text,
    refused_construct,
)
from orderbook.views.binding.typed_nodes import arithmetic, number, summed
from orderbook.views.names import UniqueNames
from orderbook.views.pattern_automaton import Automaton, PatternError, automaton
from orderbook.views.types import Column, Kind, Relation, Type
from orderbook.views.wide_values import BITS, word_types

_NAME = "matches_"
_AGGREGATES: dict[type[exp.Expr], str] = {
    exp.Count: "count",
    exp.Sum: "sum",
    exp.Min: "min",
    exp.Max: "max",
    exp.Avg: "avg",
}


def bound_pattern(queries: Queries, node: MatchRecognize, rows: Source, item: FromItem) -> RowPattern:
    """The pattern over a source, bound as `item`. Raises SqlError."""
    text = queries.text
    _refuse(node, text)
    found = _automaton(node, text)
    binder = _PatternBinder(queries, item, found)
    partition = [binder.column(n, "PARTITION BY") for n in node.args.get("partition_by") or ()]
    order = _order(binder, node, [c.name for c in partition])
    conditions = _conditions(binder, node, found)
    outputs = [Output(c.name, binder.here(c)) for c in partition]
    for measure in node.args.get("measures") or ():
        name = identifier(measure.args["alias"], text)
        if any(output.name == name for output in outputs):
            raise text.error(f"{name} stands twice among partition and MEASURES", measure)
        outputs.append(Output(name, binder.value(measure.this, None)))
    if not outputs:
        raise text.error("a match needs MEASURES to show, as in FIRST(ts) AS began", node)
    within = _within(binder, node, order[0][0])
    pattern = RowPattern(
        "",
        Select((rows,), None, (), tuple(Output(c, r) for c, r in binder.read.items()), False),
        tuple(c.name for c in partition),
        tuple(order),
        found,
        tuple(binder.kept),
        conditions,
        bool(node.args.get("after")) and node.args["after"].name == "TO NEXT ROW",
        within,
        tuple(outputs),
    )
    # A name that follows from the pattern: equal ones share their matches, another one has others.
    digest = sha256(_said(pattern).encode(errors="surrogatepass")).hexdigest()[:16]
    return replace(pattern, name=_NAME + digest)


def _said(node: Any) -> str:
    """A bound node as text, without where the rows of relations come from."""
    if isinstance(node, Relation):
        return repr(replace(node, source=None))
    if isinstance(node, tuple):
        return f"({', '.join(map(_said, node))})"
    if is_dataclass(node) and not isinstance(node, Type):
        return f"{type(node).__name__}{_said(tuple(getattr(node, one.name) for one in fields(node)))}"
    return repr(node)


def matches_of(pattern: RowPattern, rows: int, id: str) -> Select:
    """The query of a pattern's matches, as many as the rows at most, of a source that is called so.

    A row of their relation has a word for each column, and several columns for what needs more.
    """
    names = UniqueNames({output.name for output in pattern.outputs})
    columns, outputs = [], []
    for output in pattern.outputs:
        value = output.expression
        kinds = word_types(value.type)
        called = [output.name] if len(kinds) == 1 else [names.new(output.name) for _ in kinds]
        columns += [Column(n, kind, value.nullable) for n, kind in zip(called, kinds, strict=True)]
        words = [ColumnRef(id, n, kind, value.nullable) for n, kind in zip(called, kinds, strict=True)]
        outputs.append(Output(output.name, _whole(words)))
    relation = Relation(pattern.name, tuple(columns), max_rows=rows)
    return Select((Source(id, relation, pattern=pattern),), None, (), tuple(outputs), False)


def _whole(words: Sequence[Expression]) -> Expression:
    """The value that words are."""
    found = words[-1]
    for word in reversed(words[:-1]):
        found = arithmetic("+", arithmetic("*", found, number(1 << BITS)), word)
    return found


def _refuse(node: MatchRecognize, text: SqlText) -> None:
    rows = node.args.get("rows")
    if rows and rows.name.startswith("ALL"):
        instead = "name what is wanted of them in MEASURES, such as LAST(B.price) or COUNT(*)"
        raise text.error(refusal_text("ALL ROWS PER MATCH", instead), rows)


def _automaton(node: MatchRecognize, text: SqlText) -> Automaton:
    given = node.args["pattern"]
    try:
        return automaton(given.name)
    except PatternError as error:
        start = int(given.meta.get(START, position(node))) + 1
        raise text.error(str(error), start + error.offset) from None


def _order(
    binder: "_PatternBinder", node: MatchRecognize, partition: Sequence[str]
) -> list[tuple[str, bool]]:
    """The columns of the order, then those of a key that tell rows apart which are equal in it."""
    text, given, order = binder.queries.text, node.args.get("order"), []
    if not given:
        raise text.error("MATCH_RECOGNIZE needs ORDER BY, as in ORDER BY ts", node)
    for ordered in given.expressions:
        column = binder.column(ordered.this, "ORDER BY")
        if column.type.kind is Kind.TEXT:
            raise text.error(refusal_text("ORDER BY a TEXT here", "order by when rows came"), ordered)
        if ordered.args.get("nulls_first"):
            raise text.error(refusal_text("NULLS FIRST here", "leave out rows without it in WHERE"), ordered)
        order.append((column.name, bool(ordered.args.get("desc"))))
    item, known = binder.item, {*partition, *(name for name, _ in order)}
    names = {item.stored.get(c.name, c.name): c for c in item.columns}
    keys = [[names[n] for n in sorted(key) if n in names] for key in item.keys if key <= names.keys()]
    if not keys:
        raise text.error(
            f"the rows of {item.alias} have nothing that tells two of one moment apart; "
            "declare a PRIMARY KEY",
            node,
        )
    for column in min(([c for c in key if c.name not in known] for key in keys), key=len):
        order.append((binder.here(column).name, False))
    return order


def _conditions(
    binder: "_PatternBinder", node: MatchRecognize, found: Automaton
) -> tuple[Expression | None, ...]:
    text, given = binder.queries.text, {}
    for defined in node.args.get("define") or ():
        name = identifier(defined.args["alias"], text)
        if name not in found.variables:
            raise text.error(f"{name} is not in the PATTERN{nearest(name, found.variables)}", defined)
        if name in given:
            raise text.error(f"{name} is defined twice", defined)
        given[name] = binder.condition(defined.this, found.variables.index(name))
    return tuple(given.get(name) for name in found.variables)


def _within(binder: "_PatternBinder", node: MatchRecognize, first: str) -> int | float | None:
    """How much the first column of the order rises at most, as the column holds it."""
    text, given = binder.queries.text, node.args.get("within")
    if not given:
        return None
    kind = next(c for c in binder.item.columns if c.name == first).type
    if isinstance(given, exp.Interval) and kind.kind is Kind.TIMESTAMP:
        length, months = span(binder.expressions, given, Scope(text, None))
        if length > 0 and not months:
            return length
    elif not isinstance(given, exp.Interval) and kind.numeric:
        value = binder.expressions.value(given, Scope(text, None))
        if isinstance(value, Literal) and isinstance(value.value, int | Decimal) and value.value > 0:
            scaled = float(value.value) if kind.kind is Kind.DOUBLE else value.value * 10**kind.scale
            return scaled if isinstance(scaled, float) else ceil(scaled)
    wanted = "INTERVAL '1 minute'" if kind.kind is Kind.TIMESTAMP else "a number above 0"
    raise text.error(
        f"WITHIN takes a constant that {first}, the first of ORDER BY, may rise by: {wanted}", given
    )


@dataclass(slots=True)
class _PatternBinder:
    """Binds expressions of a pattern over the rows of one source.

    `read` are the columns that are read, `back` how many rows before one are.
    """

    queries: Queries
    item: FromItem
    automaton: Automaton
    kept: list[Kept] = field(default_factory=list)
    read: dict[str, ColumnRef] = field(default_factory=dict)
    back: int = 0

    @property
    def expressions(self) -> ExpressionBinder:
        """A binder of expressions that sees rows alone."""
        text = self.queries.text

        def refuse_subquery(node: exp.Expr, scope: Scope) -> NoReturn:
            instead = "join it in a derived table that the pattern reads"
            raise text.error(refusal_text("subquery in MATCH_RECOGNIZE", instead), node)

        def refuse_relation(name: str, text: SqlText, node: exp.Expr) -> NoReturn:
            raise text.error(refusal_text("NOW() in MATCH_RECOGNIZE", "compare rows with each other"), node)

        parameters = self.queries.expressions.parameters
        return ExpressionBinder(text, parameters, refuse_subquery, lambda alias, _: alias, refuse_relation)

    def here(self, column: Column) -> ColumnRef:
        """A column of the row at hand, which is read then."""
        name = column.name
        if column.hidden:
            # It has no name of its own, or one that no SQL says.
            name = UniqueNames({c.name for c in self.item.columns}).new(
                f"key_{self.item.columns.index(column)}"
            )
        self.read.setdefault(name, self.item.reference(column))
        return ColumnRef(row_at(0), name, column.type, column.nullable)

    def column(self, node: exp.Expr, clause: str) -> Column:
        """The column that a clause names."""
        text = self.queries.text
        if not isinstance(node, exp.Column) or isinstance(node.this, exp.Star):
            raise text.error(f"{clause} names columns here; compute others in a derived table", node)
        qualifier = node.args.get("table")
        if qualifier and identifier(qualifier, text) != self.item.alias:
            raise text.error(f"unknown relation {identifier(qualifier, text)}; name the column alone", node)
        found = self._known(node)
        self.here(found)
        return found

    def _known(self, node: exp.Column) -> Column:
        text, name = self.queries.text, identifier(node.this, self.queries.text)
        found = self.item.column(name)
        if found is None or name in self.item.ambiguous:
            close = nearest(name, (c.name for c in self.item.columns if not c.hidden))
            raise text.error(f"unknown column {name}{close}", node)
        return found

    def condition(self, node: exp.Expr, own: int) -> Expression:
        """The condition of a variable, by its number."""
        tree = self._rewritten(node, own)
        return self.expressions.condition(tree, self._scope("DEFINE"))

    def value(self, node: exp.Expr, own: int | None) -> Expression:
        """A measure."""
        tree = self._rewritten(node, own)
        return self.expressions.value(tree, self._scope("MEASURES"))

    def _scope(self, clause: str) -> Scope:
        items = [
            FromItem(row_at(back), row_at(back), self._columns(back), frozenset(), 1)
            for back in range(self.back + 1)
        ]
        kept = tuple(Column(_kept_name(n), k.type, k.nullable) for n, k in enumerate(self.kept))
        return Scope(self.queries.text, None, [*items, FromItem(MATCH, MATCH, kept, frozenset(), 1)], clause)

    def _columns(self, back: int) -> tuple[Column, ...]:
        return tuple(replace(c, nullable=c.nullable or back > 0) for c in self.item.columns)

    def _rewritten(self, node: exp.Expr, own: int | None) -> exp.Expr:
        """The expression over columns of rows and of what is kept, each with its source."""
        reading = _Reading(self, own)
        return node.transform(reading.replaced)

    def over_a_row(self, node: exp.Expr) -> Expression:
        """An expression over the columns of the row at hand, whichever variable qualifies them."""

        def here(part: exp.Expr) -> exp.Expr:
            return self.row(part, 0) if isinstance(part, exp.Column) else part

        return self.expressions.value(node.copy().transform(here), self._scope("MEASURES"))

    def variable(self, node: exp.Column) -> int | None:
        """The number of the variable that qualifies a column; None where none does."""
        qualifier, text = node.args.get("table"), self.queries.text
        if not qualifier:
            return None
        name = identifier(qualifier, text)
        if name in self.automaton.variables:
            return self.automaton.variables.index(name)
        if name == self.item.alias:
            return None
        raise text.error(f"unknown pattern variable {name}{nearest(name, self.automaton.variables)}", node)

    def row(self, node: exp.Column, back: int) -> exp.Expr:
        """The column of a row, as a node."""
        self.here(self._known(node))
        self.back = max(self.back, back)
        return _named(row_at(back), identifier(node.this, self.queries.text), node)

    def keep(self, kept: Kept, node: exp.Expr) -> exp.Expr:
        """What is kept, as a node."""
        if kept not in self.kept:
            self.kept.append(kept)
        return _named(MATCH, _kept_name(self.kept.index(kept)), node)

    def ends(self, how: str, node: exp.Column, variable: int | None) -> exp.Expr:
        """The column in the first or last row of a variable, or of all rows."""
        column = self._known(node)
        nullable = column.nullable or variable is not None
        of = () if variable is None else (variable,)
        return self.keep(Kept(how, of, self.here(column), column.type, nullable), node)


def _kept_name(number: int) -> str:
    return f"kept_{number}"


def _named(source: str, name: str, at: exp.Expr) -> exp.Column:
    found = exp.Column(this=exp.to_identifier(name), table=exp.to_identifier(source))
    found.meta[START] = position(at)
    return found


@dataclass(slots=True)
class _Reading:
    """Replaces what one expression reads; `own` is the variable whose condition it is, `back` within PREV,
    `how` within FIRST or LAST."""

    binder: _PatternBinder
    own: int | None
    back: int = 0
    how: str = ""

    def replaced(self, node: exp.Expr) -> exp.Expr:
        """What stands in the place of a node."""
        text = self.binder.queries.text
        name = node.name.upper() if isinstance(node, exp.Anonymous) else ""
        if isinstance(node, exp.Query):
            raise text.error(
                refusal_text(
                    "subquery in MATCH_RECOGNIZE", "join it in a derived table that the pattern reads"
                ),
                node,
            )
        if isinstance(node, exp.Column):
            return self._column(node)
        if isinstance(node, exp.First | exp.Last):
            return self._ends(node)
        if name == "PREV":
            return self._before(node)
        if name == "NEXT":
            instead = "give the row after a variable of its own in the PATTERN"
            raise text.error(refusal_text("NEXT", instead), node)
        if name == "CLASSIFIER":
            return self._classifier(node)
        if name == "MATCH_NUMBER":
            instead = "number matches by ROW_NUMBER() OVER (ORDER BY ...) outside"
            raise text.error(refusal_text("MATCH_NUMBER", instead), node)
        if isinstance(node, exp.AggFunc | exp.Filter):
            return self._aggregate(node)
        return node

    def _column(self, node: exp.Column) -> exp.Expr:
        variable = self.binder.variable(node)
        if self.how:
            return self.binder.ends(self.how, node, variable)
        if variable is None or variable == self.own:
            return self.binder.row(node, self.back)
        if self.back:
            instead = "PREV of a column without a variable is of the row before the one at hand"
            raise self.binder.queries.text.error(
                refusal_text("PREV of another variable's row", instead), node
            )
        return self.binder.ends("last", node, variable)

    def _within(self, node: exp.Expr, argument: exp.Expr, **how: Any) -> exp.Expr:
        if self.how or self.back:
            instead = "take the row before in a derived table, by LAG"
            raise self.binder.queries.text.error(
                refusal_text("PREV, FIRST and LAST within each other", instead), node
            )
        return exp.Paren(this=argument.copy().transform(replace(self, **how).replaced))

    def _ends(self, node: exp.Expr) -> exp.Expr:
        offset = node.args.get("expression")
        if offset is not None and offset.name != "0":
            instead = "name the row by a variable of its own in the PATTERN"
            raise self.binder.queries.text.error(refusal_text("FIRST and LAST with an offset", instead), node)
        return self._within(node, node.this, how="first" if isinstance(node, exp.First) else "last")

    def _before(self, node: exp.Expr) -> exp.Expr:
        given = node.expressions
        steps = given[1].name if len(given) == 2 and isinstance(given[1], exp.Literal) else "1"
        if len(given) not in (1, 2) or not steps.isdecimal() or not 0 < int(steps[:9]) <= MOST_BACK:
            message = f"PREV takes a column and, if not 1, a number of rows up to {MOST_BACK}"
            raise self.binder.queries.text.error(message, node)
        return self._within(node, given[0], back=int(steps))

    def _classifier(self, node: exp.Expr) -> exp.Expr:
        variables = self.binder.automaton.variables
        kind = number(len(variables)).type
        kept = Kept("variable", (), None, replace(kind, low=0, high=len(variables)), False)
        last = self.binder.keep(kept, node)
        ways = [
            exp.If(
                this=exp.EQ(this=last.copy(), expression=exp.Literal.number(n)),
                true=exp.Literal.string(v.upper()),
            )
            for n, v in enumerate(variables)
        ]
        return exp.Case(ifs=ways)

    def _aggregate(self, node: exp.Expr) -> exp.Expr:
        text, how, binder = self.binder.queries.text, _AGGREGATES.get(type(node)), self.binder
        name = node.sql_name() if isinstance(node, exp.Func) else "FILTER"
        if how is None or isinstance(node.this, exp.Distinct):
            instead = "there are COUNT, SUM, AVG, MIN and MAX of a variable's rows"
            raise text.error(refusal_text(f"{name} in MATCH_RECOGNIZE", instead), node)
        if self.how or self.back:
            raise text.error(refused_construct(node), node)
        variables = {binder.variable(c) for c in node.this.find_all(exp.Column)}
        if len(variables) > 1:
            raise text.error(f"{name} is over the rows of one variable", node)
        of = tuple(v for v in variables if v is not None)
        rows = summed(number(1).type, binder.item.rows)
        if isinstance(node.this, exp.Star) or isinstance(node.this.this, exp.Star):
            return binder.keep(Kept("count", of, None, rows, False), node)
        value = binder.over_a_row(node.this)
        count, kind = Kept("count", of, value, rows, False), value.type
        if how == "count":
            return binder.keep(count, node)
        if how in ("sum", "avg"):
            if not kind.numeric:
                raise text.error(f"{name} needs a number, not {kind}", node)
            total = binder.keep(Kept("sum", of, value, summed(kind, binder.item.rows), True), node)
            if how == "sum":
                return total
            return exp.Paren(this=exp.Div(this=total, expression=binder.keep(count, node)))
        if kind.kind is Kind.TEXT:
            raise text.error(refusal_text(f"{name} of a TEXT here", "take it of the matches"), node)
        return binder.keep(Kept(how, of, value, kind, True), node)
