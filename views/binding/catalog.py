"""From SQL texts to a catalog of declared relations and bound, typed views.

CREATE STREAM and CREATE TABLE become relations; CHECK ranges narrow the columns' intervals.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, fields, is_dataclass, replace
from functools import cache
from importlib import resources
from pathlib import PurePath
from types import MappingProxyType

from sqlglot import exp

from orderbook.core.errors import SqlError
from orderbook.core.recent import Recent
from orderbook.views import types
from orderbook.views.binding.bound import Catalog, RowPattern, Source, View
from orderbook.views.binding.checks import CHECK_FORM, Bound, bounds_of
from orderbook.views.binding.expressions import is_built_in
from orderbook.views.binding.grouping import ViewDefinition
from orderbook.views.binding.macros import Macros
from orderbook.views.binding.nodes import CreateRelation, CreateView
from orderbook.views.binding.orders import OwnRows, check_orders, with_rules
from orderbook.views.binding.parser import TYPES, SqlText, Statement, parse
from orderbook.views.binding.queries import QueryBinder
from orderbook.views.binding.scope import identifier, nearest
from orderbook.views.binding.typed_nodes import interval_of
from orderbook.views.binding.user_functions import declared_functions, with_calls
from orderbook.views.scalars.user_functions import UserFunction
from orderbook.views.types import CLOCK, TRADES, Column, Kind, Parameter, Relation, Type

MAX_PRECISION = 18
# Streams of `views/schema.sql` that are not there where a view has their name.
_HIDDEN_BY_VIEWS = frozenset({"quotes", "book_events"})
NUMBER = "number"
_SMALLINT = Type(Kind.INTEGER, 0, -(2**15), 2**15 - 1)
_TYPES = {
    exp.DType.SMALLINT: _SMALLINT,
    exp.DType.INT: types.INTEGER,
    exp.DType.BIGINT: types.BIGINT,
    exp.DType.DOUBLE: types.DOUBLE,
    exp.DType.FLOAT: types.DOUBLE,
    exp.DType.BOOLEAN: types.BOOLEAN,
    exp.DType.TEXT: types.TEXT,
    exp.DType.VARCHAR: types.TEXT,
    exp.DType.TIMESTAMP: types.TIMESTAMP,
}


def declare(statement: Statement) -> Relation:
    """The relation that a CREATE STREAM or CREATE TABLE declares; raises SqlError with the position."""
    tree, text = statement.tree, statement.text
    assert isinstance(tree, CreateRelation)
    columns = _columns(tree, text)
    for check in tree.find_all(exp.CheckColumnConstraint):
        _narrow(check.this, columns, text)
    primary_key = _primary_key(tree, columns, text)
    retain, retain_by = _retention(tree, columns, text)
    source, max_rows = tree.args.get("source"), tree.args.get("max_rows")
    return Relation(
        identifier(tree.this, text),
        tuple(columns.values()),
        int(max_rows.name) if max_rows else types.DEFAULT_MAX_ROWS,
        source.name if source else None,
        tree.args["static"],
        primary_key,
        retain,
        retain_by,
    )


def _columns(tree: CreateRelation, text: SqlText) -> dict[str, Column]:
    columns: dict[str, Column] = {}
    for definition in tree.expressions:
        if not isinstance(definition, exp.ColumnDef):
            continue
        name = identifier(definition.this, text)
        if name in columns:
            raise text.error(f"column {name} is declared twice", definition)
        not_null = any(isinstance(c, exp.NotNullColumnConstraint) for c in definition.args["constraints"])
        columns[name] = Column(name, _type(definition.args["kind"], text), not not_null)
    if not columns:
        raise text.error("a relation needs at least one column", tree)
    return columns


def _primary_key(tree: CreateRelation, columns: dict[str, Column], text: SqlText) -> tuple[str, ...]:
    """The columns of the primary key, which become NOT NULL; none without one."""
    keys = list(tree.find_all(exp.PrimaryKey, exp.PrimaryKeyColumnConstraint, bfs=False))
    if not keys:
        return ()
    if len(keys) > 1:
        raise text.error("a relation has one PRIMARY KEY; list its columns in one", keys[1])
    named = keys[0].expressions if isinstance(keys[0], exp.PrimaryKey) else [_parent(keys[0]).this]
    names = [identifier(n, text) for n in named]
    for name, node in zip(names, named, strict=True):
        columns[name] = replace(_column(name, columns, node, text), nullable=False)
    return tuple(dict.fromkeys(names))


def _parent(constraint: exp.Expr) -> exp.Expr:
    assert constraint.parent is not None
    return constraint.parent


def _retention(
    tree: CreateRelation, columns: dict[str, Column], text: SqlText
) -> tuple[int | None, str | None]:
    """For how many ns rows stay, and the column that this counts from: the one named, or `ts`."""
    node, by = tree.args.get("retain"), tree.args.get("retain_by")
    if node is None:
        return None, None
    if tree.args["static"]:
        raise text.error("RETAIN is for a stream; rows of a TABLE stay until they are deleted", node)
    unit = node.args.get("unit")
    span = interval_of(f"{node.this.name} {unit.name}" if unit else node.this.name) if node.this else None
    if span is None or span[1] or span[0] <= 0:
        message = "RETAIN takes an INTERVAL above 0 of days or less, as in RETAIN INTERVAL '1 hour'"
        raise text.error(message, node)
    if by is None and "ts" not in columns:
        message = "RETAIN needs a TIMESTAMP column ts, or another one: RETAIN INTERVAL '1 hour' ON column"
        raise text.error(message, node)
    name = identifier(by, text) if by else "ts"
    kind = _column(name, columns, by or node, text).type.kind
    if kind is not Kind.TIMESTAMP:
        raise text.error(f"RETAIN counts from a TIMESTAMP column; {name} is {kind.value}", by or node)
    return span[0], name


def _column(name: str, columns: dict[str, Column], node: exp.Expr, text: SqlText) -> Column:
    column = columns.get(name)
    if column is None:
        raise text.error(f"unknown column {name}{nearest(name, columns)}", node)
    return column


def _type(node: exp.DataType, text: SqlText) -> Type:
    if node.this is exp.DType.DECIMAL:
        return _decimal(node, text)
    kind = _TYPES.get(node.this)
    takes_length = node.this is exp.DType.VARCHAR
    if kind is None or node.args.get("nested") or (node.expressions and not takes_length):
        raise text.error(f"type {node.sql()} is not supported; the types are {TYPES}", node)
    return kind


def _decimal(node: exp.DataType, text: SqlText) -> Type:
    parameters = [e.name for e in node.expressions]
    if not parameters:
        raise text.error("DECIMAL needs a precision and a scale, as in DECIMAL(18, 8)", node)
    precision, scale = (int(p) if p.isdigit() else -1 for p in (*parameters, "0")[:2])
    if not 1 <= precision <= MAX_PRECISION or not 0 <= scale <= precision or len(parameters) > 2:
        message = f"{node.sql()} is not supported; DECIMAL(p, s) has 1 <= p <= {MAX_PRECISION}, 0 <= s <= p"
        raise text.error(message, node)
    return types.decimal(precision, scale)


def _narrow(node: exp.Expr, columns: dict[str, Column], text: SqlText) -> None:
    bounds = bounds_of(node, text)
    if len({b.column.name.lower() for b in bounds}) > 1:
        raise text.error(f"a CHECK over several columns is not supported; {CHECK_FORM}", node)
    for bound in bounds:
        name = identifier(bound.column.this, text)
        column = _column(name, columns, bound.column, text)
        if column.type.kind not in (Kind.INTEGER, Kind.DECIMAL):
            kind = column.type.kind.value
            raise text.error(f"CHECK on a {kind} column is not supported; it takes INTEGER and DECIMAL", node)
        narrowed = _narrowed(column.type, bound)
        if narrowed.low > narrowed.high:
            raise text.error(f"CHECK leaves no value for column {name}", node)
        columns[name] = replace(column, type=narrowed)


def _narrowed(kind: Type, bound: Bound) -> Type:
    """The scaled integers of `kind` on the right side of the bound."""
    numerator, denominator = bound.value.as_integer_ratio()
    numerator *= 10**kind.scale
    floor, ceiling = numerator // denominator, -(-numerator // denominator)
    low, high = kind.low, kind.high
    if bound.op in (exp.GTE, exp.EQ):
        low = max(low, ceiling)
    if bound.op in (exp.LTE, exp.EQ):
        high = min(high, floor)
    if bound.op is exp.GT:
        low = max(low, floor + 1)
    if bound.op is exp.LT:
        high = min(high, ceiling - 1)
    return replace(kind, low=low, high=high)


def bind(
    texts: Sequence[tuple[str | None, str]],
    parameters: Mapping[str, Parameter] | None = None,
    instead: Mapping[str, Relation] = MappingProxyType({}),
    numbers: bool = True,
) -> Catalog:
    """The relations and views that SQL texts declare, with names resolved and types known.

    texts: (file name or None, SQL) each: CREATE STREAM, TABLE, VIEW and STRATEGY, FUNCTION where there is
        a file, and at most one SELECT without a name, which is a view named as its file (`view` without).
    parameters: what `:name` stands for; a float is taken as the decimal its repr shows.
    instead: relations by their names, as if they had been declared so. numbers: whether relations may be
        `numbered` that are not.

    The streams of `views/schema.sql` come first unless the texts declare a relation of the same name, or a
    view of the name `quotes` or `book_events`; relations without a key are `numbered` where a view cannot do
    without. Views come after the views they read. Raises SqlError with file, line and column.
    """
    binder = replace(_CatalogBinder.of(texts, parameters or {}, instead), numbers=numbers)
    with suppress(SqlError):
        return binder.catalog()
    # Keys that nothing needs are not carried along, nor numbers.
    with suppress(SqlError):
        return binder.again(frozenset()).catalog()
    needed = binder.numberable
    found = binder.again(needed).catalog()
    for name in sorted(needed):
        with suppress(SqlError):
            found = binder.again(needed - {name}).catalog()
            needed -= {name}
    return found


def numbered(relation: Relation) -> Relation:
    """A relation with `number`, which is hidden, so that no two of its rows are equal.

    It counts the `trades` of a book from 1, and rows of other relations as they come.
    """
    if relation.number is not None or (relation.name == TRADES and relation.column(NUMBER)):
        return relation
    name = NUMBER
    while relation.column(name):
        name += "_"
    number = Column(name, types.BIGINT, nullable=False, hidden=True)
    of_books = relation.name == TRADES and relation.column("venue") and relation.column("symbol")
    key = ("venue", "symbol", name) if of_books else (name,)
    return replace(relation, columns=(*relation.columns, number), primary_key=key)


def patterns_of(queries: Iterable[object]) -> Iterator[tuple[str, tuple[Relation, RowPattern]]]:
    """The patterns whose matches queries read, by name, with their relations: each after those it reads."""
    for query in queries:
        yield from _patterns(query)


def _patterns(node: object) -> Iterator[tuple[str, tuple[Relation, RowPattern]]]:
    if isinstance(node, tuple):
        for item in node:
            yield from _patterns(item)
    elif isinstance(node, Source) and node.pattern is not None:
        assert isinstance(node.relation, Relation)
        yield from _patterns(node.pattern.rows)
        yield node.relation.name, (node.relation, node.pattern)
    elif is_dataclass(node) and not isinstance(node, Type | Relation):
        for own in fields(node):
            yield from _patterns(getattr(node, own.name))


# What a text declares, and where errors about it point.
_Declared = tuple[Relation | ViewDefinition, SqlText, exp.Expr]


@dataclass(frozen=True, slots=True)
class _BoundView:
    """A view, with what the names that it reads and its parameters stood for when it was bound."""

    view: View
    read: Mapping[str, Relation | View]
    parameters: Mapping[str, Parameter]


class _Recording(dict[str, Parameter]):
    """Parameters that note which of them were read."""

    def __init__(self, parameters: Mapping[str, Parameter]) -> None:
        super().__init__(parameters)
        self.read: dict[str, Parameter] = {}

    def __getitem__(self, name: str) -> Parameter:
        value = self.read[name] = super().__getitem__(name)
        return value


# More than a program of some hundred views has.
_KEPT = 1024
_TEXTS: Recent[tuple[object, ...], list[_Declared]] = Recent(_KEPT)
_VIEWS: Recent[tuple[object, ...], _BoundView] = Recent(_KEPT)


@dataclass(slots=True)
class _CatalogBinder:
    """keyed: as of QueryBinder. numbered: names of relations whose rows are. numbers: whether any may be."""

    parameters: Mapping[str, Parameter]
    instead: Mapping[str, Relation]
    macros: Macros
    functions: Mapping[str, UserFunction]
    keyed: bool = False
    numbered: frozenset[str] = frozenset()
    numbers: bool = True
    declared: dict[str, Relation] = field(default_factory=dict)
    views: dict[str, ViewDefinition] = field(default_factory=dict)
    relations: dict[str, Relation] = field(default_factory=dict)
    bound: dict[str, View] = field(default_factory=dict)
    path: list[str] = field(default_factory=list)

    @classmethod
    def of(
        cls,
        texts: Sequence[tuple[str | None, str]],
        parameters: Mapping[str, Parameter],
        instead: Mapping[str, Relation],
    ) -> "_CatalogBinder":
        """One that has read the texts."""
        macros = Macros(texts)

        def taken(name: str) -> str | None:
            return "a function" if is_built_in(name) else "a macro" if name in macros.names else None

        functions = declared_functions(texts, _type, taken)
        binder = cls(dict(parameters), instead, macros, functions)
        for file, sql in texts:
            binder.read(file, sql)
        return binder

    @property
    def _called(self) -> tuple[object, ...]:
        """What macros say, and which functions in Python there are."""
        return self.macros.said, tuple(self.functions.items())

    def again(self, numbers: frozenset[str]) -> "_CatalogBinder":
        """One that binds the same anew, with keys; `numbers` are the relations whose rows are numbered."""
        return replace(self, keyed=True, numbered=numbers, relations={}, bound={}, path=[])

    @property
    def numberable(self) -> frozenset[str]:
        """The relations whose rows could be numbered: `trades`, and those that are the texts' own."""
        known = self.relations.values() if self.numbers else ()
        return frozenset(r.name for r in known if not r.primary_key and self._own(r))

    def _own(self, relation: Relation) -> bool:
        """Whether a relation is `trades`, or one that nobody but users fills."""
        known = next((r for r in _schema() if r.name == relation.name), None)
        if known is None or known.name not in _HIDDEN_BY_VIEWS:
            return relation.name == TRADES or (known is None and relation.name in self.declared)
        names = {column.name for column in relation.columns}
        return not {"venue", "symbol"} <= names <= {column.name for column in known.columns}

    def read(self, file: str | None, sql: str) -> None:
        """Declares what one text says."""
        said = file, sql, *self._called
        known = _TEXTS.get(said)
        if known is None:
            known = []
            for declared in self._declarations(file, sql):
                self._declare(declared)
                known.append(declared)
            if not any(view.orders is not None for view, _, _ in known if isinstance(view, ViewDefinition)):
                _TEXTS.put(said, known)
        else:
            for declared in known:
                self._declare(declared)

    def _declarations(self, file: str | None, sql: str) -> Iterator[_Declared]:
        unnamed = False
        for statement in parse(file, sql):
            tree = statement.tree
            if isinstance(tree, CreateRelation):
                yield declare(statement), statement.text, tree.this
                continue
            if not isinstance(tree, CreateView):
                if unnamed:
                    message = "a second SELECT without a name; write CREATE VIEW name AS SELECT ..."
                    raise statement.text.error(message, tree)
                unnamed = True
            self.macros.expanded(tree, statement.text)
            with_calls(tree, self.functions, statement.text)
            view = with_rules(_definition(statement), statement, self.parameters)
            yield view, view.text, view.named_at

    def _declare(self, declared: _Declared) -> None:
        what, text, at = declared
        if isinstance(what, Relation) and what.name == CLOCK:
            message = "clock is the engine's own relation of one row; name the relation otherwise"
            raise text.error(message, at)
        if what.name in self.declared or what.name in self.views:
            raise text.error(f"{what.name} is declared twice", at)
        if isinstance(what, Relation):
            self.declared[what.name] = what
        else:
            self.views[what.name] = what

    def catalog(self) -> Catalog:
        """Binds every view, after the views it reads."""
        own = {*self.declared, *(_HIDDEN_BY_VIEWS & self.views.keys())}
        predeclared = (r for r in _schema() if r.name not in own)
        declared = (*predeclared, *self.declared.values())
        self.relations = {r.name: self.instead.get(r.name, r) for r in declared}
        for name in self.numbered:
            self.relations[name] = numbered(self.relations[name])
        for view in self.views.values():
            if view.name in self.relations:
                message = f"{view.name} is the name of a stream or table; name the view otherwise"
                raise view.text.error(message, view.named_at)
        for view in self.views.values():
            self._bind(view)
        functions, views = tuple(self.functions.values()), tuple(self.bound.values())
        found = dict(patterns_of(view.query for view in views))
        known = {**self.relations, **{name: relation for name, (relation, _) in found.items()}}
        if not self.instead.keys() <= self.relations.keys():
            # Matches of a program that runs stay where they are, also where nobody reads them any more.
            known = {name: known.get(name, relation) for name, relation in self.instead.items()} | known
        patterns = tuple(pattern for _, pattern in found.values())
        return Catalog(tuple(known.values()), views, functions, patterns)

    def _bind(self, view: ViewDefinition) -> None:
        if view.name in self.bound:
            return
        # Nothing but an as-of join asks what could be numbered.
        could = self.numberable if "asof" in view.sql.lower() else None
        said = view.name, view.sql, view.materialize, *self._called, self.keyed, could
        self.path.append(view.name)
        known = _VIEWS.get(said) if view.orders is None else None
        if known is None or not self._is_as_it_was(known):
            known = self._bound_anew(view)
            if view.orders is None:
                _VIEWS.put(said, known)
        self.path.pop()
        self.bound[view.name] = known.view

    def _is_as_it_was(self, known: _BoundView) -> bool:
        """Whether all that a view was bound by is what it was then."""
        for name, value in known.parameters.items():
            own = self.parameters.get(name)
            if type(own) is not type(value) or own != value:
                return False
        return all(self._named(name) == what for name, what in known.read.items())

    def _named(self, name: str) -> Relation | View | None:
        """The relation of a name, or the bound view; None where it is none that could be read here."""
        if name in self.relations or name not in self.views or name in self.path:
            return self.relations.get(name)
        self._bind(self.views[name])
        return self.bound[name]

    def _bound_anew(self, view: ViewDefinition) -> _BoundView:
        read: dict[str, Relation | View] = {}

        def lookup(name: str, text: SqlText, node: exp.Expr) -> Relation | ViewDefinition:
            found = self._lookup(name, text, node)
            read[name] = found if isinstance(found, Relation) else self.bound[name]
            return found

        parameters = _Recording(self.parameters)
        try:
            own = lookup if view.orders is None else OwnRows(view.name, lookup)
            binder = QueryBinder(view.text, parameters, own, keyed=self.keyed, numberable=self.numberable)
            query = binder.query(view.tree, None)
        except RecursionError:
            message = f"view {view.name} is nested too deeply; split it into views"
            raise view.text.error(message, view.tree) from None
        if view.orders is not None:
            check_orders(view, query.select)
        bound = View(view.name, query.select, view.sql, query.order, view.materialize, view.orders)
        return _BoundView(bound, read, parameters.read)

    def _lookup(self, name: str, text: SqlText, node: exp.Expr) -> Relation | ViewDefinition:
        if name in self.relations:
            return self.relations[name]
        view = self.views.get(name)
        if view is None:
            raise text.error(f"unknown relation {name}{nearest(name, (*self.relations, *self.views))}", node)
        if name in self.path:
            cycle = " -> ".join([*self.path[self.path.index(name) :], name])
            raise text.error(f"views read each other in a cycle: {cycle}", node)
        self._bind(view)
        return view


def _definition(statement: Statement) -> ViewDefinition:
    tree, text = statement.tree, statement.text
    if isinstance(tree, CreateView):
        name, materialize = identifier(tree.this, text), tree.args.get("materialize")
        return ViewDefinition(name, tree.expression, text, statement.sql, tree.this, materialize)
    stem = PurePath(text.file).stem.lower() if text.file else "view"
    return ViewDefinition(re.sub(r"\W", "_", stem), tree, text, statement.sql, tree)


@cache
def _schema() -> tuple[Relation, ...]:
    sql = resources.files("orderbook.views").joinpath("schema.sql").read_text(encoding="utf-8")
    return tuple(declare(statement) for statement in parse("schema.sql", sql))
