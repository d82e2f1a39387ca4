"""Column lineage: which columns of relations each column of a view derives from, and how.

Taken from the bound query, in which views and CTEs are derived tables, names are resolved, and what SQL says
in several ways is said in one; so what it says is what the compiler understood. Uses have the names of
OpenLineage's "Column Level Lineage Dataset Facet" (openlineage.io/docs/spec/facets/dataset-facets).
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from dataclasses import fields as fields_of
from typing import Any, get_args

from orderbook.views.binding.bound import (
    MATCH,
    MOST_BACK,
    Aggregate,
    Case,
    ColumnRef,
    Expression,
    Literal,
    Logical,
    OuterJoin,
    RowPattern,
    ScalarSubquery,
    Select,
    Source,
    UnionAll,
    Window,
    parts,
    row_at,
)
from orderbook.views.types import Relation

# Direct uses, by which a value enters another: as it is, computed with, and with those of other rows.
IDENTITY, TRANSFORMATION, AGGREGATION = "IDENTITY", "TRANSFORMATION", "AGGREGATION"
# Indirect uses, which decide which rows and values count.
JOIN, FILTER, GROUP_BY = "JOIN", "FILTER", "GROUP_BY"
SORT, WINDOW, CONDITIONAL = "SORT", "WINDOW", "CONDITIONAL"
DIRECT = (IDENTITY, TRANSFORMATION, AGGREGATION)
USES = (*DIRECT, CONDITIONAL, WINDOW, SORT, GROUP_BY, JOIN, FILTER)
# Aggregates whose further arguments only order rows.
_ORDERED = frozenset({"arg_min", "arg_max"})
_EXPRESSIONS = get_args(Expression)
_OF_ROWS_AT_A_DISTANCE = frozenset({"lag", "lead"})


@dataclass(frozen=True, slots=True)
class Input:
    """A column of a relation, or its rows where `column` is None, as COUNT(*) counts them; and its uses.

    uses: of USES, in that order.
    """

    relation: str
    column: str | None
    uses: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.relation}.{self.column or '*'}"


@dataclass(frozen=True, slots=True)
class Lineage:
    """What each column of a view derives from, by its name, and by what its rows are chosen and grouped.

    relations: all that it reads, those too of which no column is used, as in a cross join.
    """

    columns: Mapping[str, tuple[Input, ...]]
    rows: tuple[Input, ...]
    relations: tuple[str, ...]


_Uses = dict[tuple[str, str | None], set[str]]


@dataclass(frozen=True, slots=True)
class _Rows:
    """Of a relation or query: the uses of its columns by name, of its rows, and the relations in its FROM."""

    columns: Mapping[str, _Uses]
    chosen: _Uses
    relations: tuple[str, ...]


def lineage(query: Select) -> Lineage:
    """The lineage of a view's bound query.

    A column stands once for each column or relation that it derives from, in the order in which the query
    names them. Of INTERSECT and EXCEPT both sides count, as groups of both decide. An expression of constants
    alone derives from nothing; so does a count of what is never NULL from that column: it counts rows.
    """
    walk = _Walk()
    found = walk.query(query)
    columns = {output.name: _inputs(found.columns[output.name]) for output in query.outputs}
    return Lineage(columns, _inputs(found.chosen), tuple(walk.read))


def lineage_lines(found: Lineage) -> Iterator[str]:
    """A line for each column and one for the rows: uses in lower case, and what is used so."""
    yield f"reads {', '.join(found.relations) or 'no relation'}"
    for name, inputs in found.columns.items():
        yield f"{name}: {_said(inputs) or 'constants'}"
    if found.rows:
        yield f"its rows: {_said(found.rows)}"


def lineage_json(found: Lineage) -> dict[str, Any]:
    """`fields` and `dataset` as OpenLineage's facet has them, the rows of a relation with the field null.

    `inputs`: all relations.
    """
    return {
        "inputs": list(found.relations),
        "fields": {name: {"inputFields": list(map(_field, own))} for name, own in found.columns.items()},
        "dataset": list(map(_field, found.rows)),
    }


def _field(one: Input) -> dict[str, Any]:
    uses = [{"type": "DIRECT" if use in DIRECT else "INDIRECT", "subtype": use} for use in one.uses]
    return {"name": one.relation, "field": one.column, "transformations": uses}


def _said(inputs: Iterable[Input]) -> str:
    by_use: dict[str, list[str]] = {}
    for one in inputs:
        for use in one.uses:
            by_use.setdefault(use, []).append(str(one))
    said = (f"{use.lower().replace('_', ' ')} {', '.join(by_use[use])}" for use in USES if use in by_use)
    return "; ".join(said)


def _inputs(uses: _Uses) -> tuple[Input, ...]:
    return tuple(Input(*key, tuple(use for use in USES if use in own)) for key, own in uses.items())


def _add(to: _Uses, uses: _Uses) -> None:
    for key, own in uses.items():
        to.setdefault(key, set()).update(own)


def _used(uses: _Uses, use: str) -> _Uses:
    """What is used so, of what has these uses itself."""
    if use not in DIRECT:
        return {key: {use} for key in uses}
    return {
        key: {max(one, use, key=DIRECT.index) if one in DIRECT else one for one in own}
        for key, own in uses.items()
    }


class _Walk:
    """Goes through a query; sources have identifiers of their own in the whole of it."""

    def __init__(self) -> None:
        self._sources: dict[str, _Rows] = {}
        # The relations of the FROM of each query that is gone through, the innermost last.
        self._counted: list[tuple[str, ...]] = []
        # All relations that are read, in order.
        self.read: dict[str, None] = {}

    def query(self, query: Select | UnionAll) -> _Rows:
        if isinstance(query, UnionAll):
            return _united(query, [self.query(branch) for branch in query.branches])
        chosen: _Uses = {}
        relations = tuple(dict.fromkeys(self._from(query.sources, chosen)))
        self._counted.append(relations)
        for condition in _conjuncts(query.where):
            _add(chosen, self.expression(condition, _use_of(condition)))
        for grouped in query.group_by:
            _add(chosen, self.expression(grouped, GROUP_BY))
        for condition in _conjuncts(query.having):
            _add(chosen, self.expression(condition, FILTER))
        if query.top is not None:
            for partition in query.top.partition_by:
                _add(chosen, self.expression(partition, WINDOW))
            for item in query.top.order_by:
                _add(chosen, self.expression(item.expression, SORT))
        columns = {output.name: self.expression(output.expression, IDENTITY) for output in query.outputs}
        self._counted.pop()
        return _Rows(columns, chosen, relations)

    def _from(self, sources: Iterable[Source | OuterJoin], chosen: _Uses) -> Iterator[str]:
        """The relations of sources; what chooses their rows is added to `chosen`."""
        for source in sources:
            if isinstance(source, OuterJoin):
                yield from self._from((*source.left, *source.right), chosen)
                _add(chosen, self.expression(source.on, JOIN))
                continue
            if source.pattern is not None:
                rows = self._matches(source.pattern)
            elif isinstance(source.relation, Relation):
                name = source.relation.name
                self.read[name] = None
                own: dict[str, _Uses] = {}
                for column in source.relation.columns:
                    own[column.name] = {(name, column.name): {IDENTITY}}
                rows = _Rows(own, {}, (name,))
            else:
                rows = self.query(source.relation)
            self._sources[source.id] = rows
            _add(chosen, rows.chosen)
            yield from rows.relations

    def _matches(self, pattern: RowPattern) -> _Rows:
        """The matches of a pattern, from the rows that it is sought in."""
        walk = _Walk()
        found = walk.query(pattern.rows)
        walk._counted.append(found.relations)
        for back in range(MOST_BACK + 1):
            walk._sources[row_at(back)] = found
        kept = {}
        for number, one in enumerate(pattern.kept):
            use = IDENTITY if one.how in ("first", "last") else AGGREGATION
            kept[f"kept_{number}"] = {} if one.argument is None else walk.expression(one.argument, use)
        walk._sources[MATCH] = _Rows(kept, {}, found.relations)
        columns = {output.name: walk.expression(output.expression, IDENTITY) for output in pattern.outputs}
        chosen = dict(found.chosen)
        for condition in pattern.conditions:
            if condition is not None:
                _add(chosen, walk.expression(condition, FILTER))
        for name in pattern.partition:
            _add(chosen, _used(found.columns[name], WINDOW))
        for name, _ in pattern.order:
            _add(chosen, _used(found.columns[name], SORT))
        self.read.update(walk.read)
        return _Rows(columns, chosen, found.relations)

    def expression(self, expression: Expression, use: str) -> _Uses:
        """What an expression derives from, where its value is used so."""
        match expression:
            case ColumnRef(source, name):
                return _used(self._sources[source].columns[name], use)
            case Literal():
                return {}
            case Aggregate(function, argument, by=by):
                ordering = SORT if function in _ORDERED else AGGREGATION
                return self._all(use, [(argument, AGGREGATION), *((one, ordering) for one in by)])
            case Window(function, argument, partition_by, order_by, by=by):
                of_rows = TRANSFORMATION if function in _OF_ROWS_AT_A_DISTANCE else AGGREGATION
                placed = (*partition_by, *(item.expression for item in order_by))
                found = [(one, of_rows) for one in (argument, *by)]
                return self._all(use, [*found, *((one, WINDOW) for one in placed)])
            case ScalarSubquery(query):
                inner = self.query(query)
                (value,) = inner.columns.values()
                computed = max(use, TRANSFORMATION, key=DIRECT.index) if use in DIRECT else use
                uses = {key: set(own) for key, own in _used(value, computed).items()}
                _add(uses, inner.chosen if use in DIRECT else _used(inner.chosen, use))
                return uses
            case Case(branches, otherwise):
                values = [*(value for _, value in branches), otherwise]
                asked = [(condition, CONDITIONAL) for condition, _ in branches]
                return self._all(use, [*((one, TRANSFORMATION) for one in values), *asked])
        return self._all(use, [(part, TRANSFORMATION) for part in _operands(expression)])

    def _all(self, use: str, parts: Iterable[tuple[Expression | None, str]]) -> _Uses:
        """What parts derive from, each used so in what is used as `use`; None: the rows."""
        found: _Uses = {}
        for part, own in parts:
            if use not in DIRECT:
                within = use
            else:
                within = max(own, use, key=DIRECT.index) if own in DIRECT else own
            if part is None:
                _add(found, {(name, None): {within} for name in self._counted[-1]})
            else:
                _add(found, self.expression(part, within))
        return found


def _united(query: UnionAll, branches: list[_Rows]) -> _Rows:
    columns: dict[str, _Uses] = {}
    chosen: _Uses = {}
    for place, output in enumerate(query.outputs):
        own: _Uses = columns.setdefault(output.name, {})
        for branch in branches:
            _add(own, list(branch.columns.values())[place])
    for branch in branches:
        _add(chosen, branch.chosen)
    return _Rows(columns, chosen, tuple(dict.fromkeys(name for b in branches for name in b.relations)))


def _conjuncts(condition: Expression | None) -> Iterator[Expression]:
    if isinstance(condition, Logical) and condition.op == "AND":
        for one in condition.args:
            yield from _conjuncts(one)
    elif condition is not None:
        yield condition


def _use_of(condition: Expression) -> str:
    """Of a conjunct of WHERE: a join where it compares sources."""
    sources = {part.source for part in parts(condition) if isinstance(part, ColumnRef)}
    return JOIN if len(sources) > 1 else FILTER


def _operands(expression: Expression) -> Iterator[Expression]:
    """The expressions that one is made of at once."""
    for field in fields_of(expression):
        value = getattr(expression, field.name)
        for one in value if isinstance(value, tuple) else (value,):
            if isinstance(one, _EXPRESSIONS):
                yield one
