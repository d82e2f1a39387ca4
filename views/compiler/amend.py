"""What a program is compiled from, with a view more or fewer; its relations stay in their order."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass

from orderbook.errors import DataError, UserError
from views.compiler.binding.bind import Parameter
from views.compiler.binding.bound import Catalog, Source
from views.compiler.binding.declaration_grammar import CreateRelation, CreateView
from views.compiler.binding.dialect import parse
from views.compiler.m3_text.m3_link import is_m3

from .program import ProgramSource, SourceText, Sql, bound_source, texts_of


@dataclass(frozen=True, slots=True)
class AddViews:
    """Adds the views that texts declare; see `with_views`. name: of the view that the one SELECT there is."""

    texts: tuple[SourceText, ...]
    parameters: Mapping[str, Parameter]
    name: str | None = None

    @classmethod
    def of(
        cls, sql: Sql, params: Mapping[str, Parameter] | None = None, name: str | None = None
    ) -> "AddViews":
        """Of what users give. Raises SourceError for a file that cannot be read."""
        return cls(tuple(texts_of(sql)), dict(params or {}), name)

    def __call__(self, source: ProgramSource) -> ProgramSource:
        """The source with the views."""
        texts = self.texts
        if self.name is not None:
            trees = [statement.tree for file, text in texts for statement in parse(file, text)]
            if len(trees) != 1 or isinstance(trees[0], CreateRelation | CreateView):
                raise DataError("one SELECT can be followed; views are added with add_view")
            texts = tuple((f"{self.name}.sql", text) for _, text in texts)
        return with_views(source, texts, self.parameters)


@dataclass(frozen=True, slots=True)
class DropView:
    """Drops a view; see `without_view`."""

    view: str

    def __call__(self, source: ProgramSource) -> ProgramSource:
        """The source without the view."""
        return without_view(source, self.view)


def with_views(
    source: ProgramSource, added: Sequence[SourceText], params: Mapping[str, Parameter]
) -> ProgramSource:
    """The source with the streams, tables and views of texts as well; these may read its views.

    Raises SqlError as `bound_source` does, also for a name that is taken, and UserError for a parameter
    that has another value already.
    """
    parameters = dict(source.parameters)
    for name, value in params.items():
        if parameters.setdefault(name, value) != value:
            raise UserError(
                f"parameter {name} is {parameters[name]} in the running program, not {value}; rename it"
            )
    predeclared = {r.name for r in source.catalog.relations}
    for file, text in added:
        for statement in () if is_m3(file, text) else parse(file, text):
            tree = statement.tree
            if isinstance(tree, CreateRelation) and tree.this.name.lower() in predeclared:
                raise statement.text.error(f"{tree.this.name} is declared already", tree.this)
    return bound_source((*source.texts, *added), parameters, source.levels)


def without_view(source: ProgramSource, view: str) -> ProgramSource:
    """The source without one of its views.

    Raises DataError for a view that is not there, one declared in M3, and one that another view reads.
    """
    catalog = source.catalog
    if not any(v.name == view for v in catalog.views):
        if any(is_m3(*text) for text in source.texts):
            raise DataError(f"view {view} is declared in M3, which is not dropped; compile without it")
        raise DataError(f"no view {view!r} any more")
    readers = [v.name for v in catalog.views if v.name != view and view in _views_read(v.query)]
    if readers:
        raise DataError(f"view {view} is read by {', '.join(readers)}; drop {readers[0]} first")
    kept = tuple(text for text in source.texts for text in _without(text, view, catalog))
    return bound_source(kept, source.parameters, source.levels)


def _without(text: SourceText, view: str, catalog: Catalog) -> list[SourceText]:
    """The text, statement by statement where it declares the view, which is left out."""
    file, sql = text
    if is_m3(file, sql):
        return [text]
    statements = list(parse(file, sql))
    own = next(v for v in catalog.views if v.name == view)
    kept: list[SourceText] = []
    for statement in statements:
        tree = statement.tree
        if isinstance(tree, CreateView):
            declares = tree.this.name.lower() == view
        else:
            declares = not isinstance(tree, CreateRelation) and own.sql == statement.sql
        if not declares:
            kept.append((file, statement.sql))
    return [text] if len(kept) == len(statements) else kept


def _views_read(query: object) -> set[str]:
    """Names of the views that a query reads in FROM or in subqueries, at any depth."""
    found: set[str] = set()
    _collect(query, found)
    return found


def _collect(node: object, found: set[str]) -> None:
    if isinstance(node, Source) and node.view is not None:
        found.add(node.view)
    if isinstance(node, tuple):
        for item in node:
            _collect(item, found)
    elif is_dataclass(node):
        for field in fields(node):
            _collect(getattr(node, field.name), found)
