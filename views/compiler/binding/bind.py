"""From SQL texts to a catalog of declared relations and bound, typed views."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from functools import cache
from importlib import resources
from pathlib import PurePath

from sqlglot import exp

from views.compiler.types import Relation

from .bound import Catalog, View
from .declaration_grammar import CreateRelation, CreateView
from .declare import declare
from .definitions import ViewDefinition
from .dialect import SqlText, Statement, parse
from .queries import QueryBinder
from .scope import identifier, nearest

Parameter = int | Decimal | float | str
# The relation that NOW() reads.
CLOCK = "clock"


def bind(
    texts: Sequence[tuple[str | None, str]], parameters: Mapping[str, Parameter] | None = None
) -> Catalog:
    """The relations and views that SQL texts declare, with names resolved and types known.

    texts: (file name or None, SQL) each: CREATE STREAM, CREATE TABLE and CREATE VIEW, and at most one
        SELECT without a name, which is a view named as its file (`view` without a file).
    parameters: what `:name` stands for; a float is taken as the decimal its repr shows.

    The streams of `views/schema.sql` come first unless the texts declare a relation of the same name.
    Views come after the views they read. Raises SqlError with file, line and column.
    """
    binder = _CatalogBinder(dict(parameters or {}))
    for file, sql in texts:
        binder.read(file, sql)
    return binder.catalog()


@dataclass(slots=True)
class _CatalogBinder:
    parameters: Mapping[str, Parameter]
    declared: dict[str, Relation] = field(default_factory=dict)
    views: dict[str, ViewDefinition] = field(default_factory=dict)
    relations: dict[str, Relation] = field(default_factory=dict)
    bound: dict[str, View] = field(default_factory=dict)
    path: list[str] = field(default_factory=list)

    def read(self, file: str | None, sql: str) -> None:
        """Declares what one text says."""
        unnamed = False
        for statement in parse(file, sql):
            tree = statement.tree
            if isinstance(tree, CreateRelation):
                relation = declare(statement)
                if relation.name == CLOCK:
                    message = "clock is the engine's own relation of one row; name the relation otherwise"
                    raise statement.text.error(message, tree.this)
                self._check_new(relation.name, statement.text, tree.this)
                self.declared[relation.name] = relation
                continue
            if not isinstance(tree, CreateView):
                if unnamed:
                    message = "a second SELECT without a name; write CREATE VIEW name AS SELECT ..."
                    raise statement.text.error(message, tree)
                unnamed = True
            view = _definition(statement)
            self._check_new(view.name, view.text, view.named_at)
            self.views[view.name] = view

    def catalog(self) -> Catalog:
        """Binds every view, after the views it reads."""
        predeclared = (r for r in _schema() if r.name not in self.declared)
        self.relations = {r.name: r for r in (*predeclared, *self.declared.values())}
        for view in self.views.values():
            if view.name in self.relations:
                message = f"{view.name} is the name of a stream or table; name the view otherwise"
                raise view.text.error(message, view.named_at)
        for view in self.views.values():
            self._bind(view)
        return Catalog(tuple(self.relations.values()), tuple(self.bound.values()))

    def _check_new(self, name: str, text: SqlText, at: exp.Expr) -> None:
        if name in self.declared or name in self.views:
            raise text.error(f"{name} is declared twice", at)

    def _bind(self, view: ViewDefinition) -> None:
        if view.name in self.bound:
            return
        self.path.append(view.name)
        try:
            query = QueryBinder(view.text, self.parameters, self._lookup).query(view.tree, None)
        except RecursionError:
            message = f"view {view.name} is nested too deeply; split it into views"
            raise view.text.error(message, view.tree) from None
        self.path.pop()
        self.bound[view.name] = View(view.name, query.select, view.sql, query.order, view.materialize)

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
    sql = resources.files("views").joinpath("schema.sql").read_text(encoding="utf-8")
    return tuple(declare(statement) for statement in parse("schema.sql", sql))
