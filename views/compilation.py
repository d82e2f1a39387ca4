"""From SQL texts to a compiled program, with views and conditions added to one that runs.

All stages in a row: bind, translate, compile, link the M3 written by hand. `AddViews` and `DropView` change
what a program is compiled from by a view more or fewer; its relations stay in their order. `bind_condition`
takes the conditions of subscriptions: SQL over one view's columns, to a scalar over them.

Queries may be built with ibis, and are then taken as SQL; ibis itself is needed by those alone who give one.
"""

import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, fields, is_dataclass, replace
from importlib import import_module
from pathlib import Path
from types import MappingProxyType
from typing import NoReturn, TypeGuard, cast

from sqlglot import exp

from orderbook.core.changes import Dictionary
from orderbook.core.errors import DataError, SqlError, UserError
from orderbook.core.step_times import step_times
from orderbook.views.binding.bound import Catalog, Source
from orderbook.views.binding.catalog import bind
from orderbook.views.binding.expressions import ExpressionBinder
from orderbook.views.binding.nodes import CreateRelation, CreateStrategy, CreateView
from orderbook.views.binding.parameters import check_names, parameter_values
from orderbook.views.binding.parser import SqlText, parse, parse_functions, parse_macros
from orderbook.views.binding.scope import FromItem, Scope, refusal_text
from orderbook.views.binding.user_functions import refuse_functions
from orderbook.views.calculus import Scalar, TooMuchWorkError, Var
from orderbook.views.compiled_views import compiled_views
from orderbook.views.conditions import TRUE
from orderbook.views.library import NAME, shipped_file, shipped_that_declares, text_of, with_read
from orderbook.views.m3 import Program, Result, column_there
from orderbook.views.m3_link import is_m3, linked, view_of
from orderbook.views.materialization import Levels, level_of
from orderbook.views.program import (
    Amend,
    CompiledProgram,
    IbisExpression,
    ProgramSource,
    Question,
    SourceText,
    Sql,
    Text,
)
from orderbook.views.translation.translate import Translator
from orderbook.views.translation.values import Value
from orderbook.views.types import Column, Parameter, Relation


def is_ibis(query: object) -> TypeGuard[IbisExpression]:
    """Whether it is an expression of ibis."""
    return any(kind.__module__.partition(".")[0] == "ibis" for kind in type(query).__mro__)


def ibis_text(query: IbisExpression) -> str:
    """The SQL of an expression of ibis. Raises SqlError where it has none."""
    to_sql = import_module("ibis").to_sql
    try:
        return str(to_sql(query, dialect="duckdb"))
    except Exception as error:
        raise SqlError(f"the ibis expression has no SQL: {' '.join(str(error).split())}") from None


def question_text(query: Question) -> str:
    """The SQL of a query. Raises SqlError where it is neither SQL nor an expression of ibis."""
    if isinstance(query, str):
        return query
    if is_ibis(query):
        return ibis_text(query)
    raise SqlError(f"a query is SQL text or an ibis expression, not {type(query).__name__}")


def compile_views(
    sql: Sql,
    params: Mapping[str, Parameter] | None = None,
    dictionary: Dictionary | None = None,
    materialize: str = "full",
) -> CompiledProgram:
    """Compiles CREATE STREAM, CREATE TABLE and CREATE VIEW statements, and M3, into one program.

    sql: SQL text; a path of a .sql file (one line that ends in .sql); the name of a view that ships
        ("market/ofi"), which comes with what it reads; an expression of ibis; a list of these; or a mapping
        of file names, of which a query without a name takes its own, to SQL or ibis.
        M3 written by hand is a file that ends in .m3, or a text that begins as M3 does; it may read the
        maps of all SQL beside it.
    params: what `:name` stands for; a float is the decimal that its repr shows.
    dictionary: shared with other programs; a new one unless given.
    materialize: "none", "first" or "full", how much of a view is kept that does not say so itself.

    Raises SqlError with file, line and column, SourceError for a file that cannot be read, and UserError for
    a parameter that nothing uses and that resembles one which is not given.
    """
    texts = texts_of(sql)
    check_names([text for text in texts if not is_m3(*text)], params or {})
    return compile_texts(texts, params or {}, dictionary, Levels(level_of(materialize)))


def compile_texts(
    texts: Sequence[SourceText],
    params: Mapping[str, Parameter],
    dictionary: Dictionary | None = None,
    levels: Levels = Levels(),
) -> CompiledProgram:
    """`compile_views` of texts that have been read."""
    return compile_source(bound_source(texts, params, levels), dictionary)


def bound_source(
    texts: Sequence[SourceText],
    params: Mapping[str, Parameter],
    levels: Levels = Levels(),
    instead: Mapping[str, Relation] = MappingProxyType({}),
    numbers: bool = True,
) -> ProgramSource:
    """Texts with their SQL bound, which is quick; M3 is read by `compile_source`. Raises SqlError.

    params: over those that the texts give by CREATE PARAMETER, which say what they may be. instead, numbers:
        as of `bind`.
    """
    with step_times.step("SQL bound"):
        sql = [t for t in texts if not is_m3(*t)]
        parameters = parameter_values(sql, params)
        catalog = bind(sql, parameters, instead, numbers)
    return ProgramSource(tuple(texts), parameters, levels, catalog, SqlCompiler())


def compile_source(source: ProgramSource, dictionary: Dictionary | None = None) -> CompiledProgram:
    """The program of what has been bound. Raises SqlError for a view that is too large, and for wrong M3."""
    catalog, levels = source.catalog, source.levels
    try:
        views, compiled = compiled_views(catalog, {v.name: levels.of(v) for v in catalog.views})
    except TooMuchWorkError as error:
        raise _too_large(error.view, source.texts) from None
    by_hand = [t for t in source.texts if is_m3(*t)]
    program = linked(replace(compiled, relations=catalog.relations), by_hand)
    views += tuple(view_of(r) for r in program.results[len(views) :])
    words = Dictionary() if dictionary is None else dictionary
    parameters = MappingProxyType(dict(source.parameters))
    return CompiledProgram(catalog, views, program, parameters, words, source.texts, levels, source.compiler)


def _too_large(view: str, texts: Sequence[SourceText]) -> SqlError:
    """The refusal of a view whose maps and triggers would be too many, at its name."""
    message = (
        f"view {view} is too large to compile: it would need too many maps; "
        "declare NOT NULL what never is NULL, or join the matches of one row, "
        "MATCH_RECOGNIZE (... PATTERN (a) DEFINE a AS TRUE)"
    )
    for file, sql in texts:
        found = re.search(rf"\bVIEW\s+({re.escape(view)})\b", sql, re.IGNORECASE)
        if found:
            line = sql.count("\n", 0, found.start(1)) + 1
            return SqlError(message, line, found.start(1) - sql.rfind("\n", 0, found.start(1)), file)
    return SqlError(message, 1, 1, texts[0][0] if len(texts) == 1 else None)


def texts_of(sql: Sql) -> list[SourceText]:
    """The SQL of what `compile_views` takes. Raises SourceError for a file that cannot be read, UserError for
    a name that no view has which ships."""
    if isinstance(sql, Mapping):
        return [(name, one if isinstance(one, str) else ibis_text(one)) for name, one in sql.items()]
    items = [sql] if isinstance(sql, str | Path) or is_ibis(sql) else list(cast(Sequence[Text], sql))
    texts = [_text(item) for item in items if not _is_name(item)]
    if len(texts) == len(items):
        return texts
    named = dict.fromkeys(shipped_file(str(item)) for item in items if _is_name(item))
    there = [name for text in texts if not is_m3(*text) for name in _declared(text)]
    shipped = with_read(named, shipped_that_declares, there)
    return [*texts, *((str(file), text_of(file)) for file in shipped)]


def _is_name(item: Text) -> bool:
    return isinstance(item, str) and NAME.fullmatch(item) is not None


def _declared(text: SourceText) -> list[str]:
    trees = [statement.tree for statement in parse(*text)]
    return [tree.this.name.lower() for tree in trees if isinstance(tree, CreateView)]


def _text(sql: Text) -> SourceText:
    if is_ibis(sql):
        return None, ibis_text(sql)
    assert isinstance(sql, str | Path)
    if isinstance(sql, str) and ("\n" in sql or not sql.endswith((".sql", ".m3"))):
        return None, sql
    return str(sql), text_of(Path(sql))


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
    # A file that ships may have come with another view already.
    new = [text for text in added if text[0] is None or text not in source.texts]
    refuse_functions([text for text in new if not is_m3(*text)])
    for file, text in new:
        for statement in () if is_m3(file, text) else parse(file, text):
            tree = statement.tree
            if isinstance(tree, CreateStrategy):
                message = "a strategy is not added to what runs; declare it before the start"
                raise statement.text.error(message, tree.this)
            if isinstance(tree, CreateRelation) and tree.this.name.lower() in predeclared:
                raise statement.text.error(f"{tree.this.name} is declared already", tree.this)
    texts = (*source.texts, *new)
    # Rows that have no numbers get none while they are there.
    with suppress(SqlError):
        return bound_source(texts, parameters, source.levels, _relations_of(source), numbers=False)
    return bound_source(texts, parameters, source.levels)


def _relations_of(source: ProgramSource) -> dict[str, Relation]:
    """The relations as they are, numbered or not."""
    return {relation.name: relation for relation in source.catalog.relations}


def without_view(source: ProgramSource, view: str) -> ProgramSource:
    """The source without one of its views.

    Raises DataError for a view that is not there, one declared in M3, a strategy's, and one that another view
    reads.
    """
    catalog = source.catalog
    if not any(v.name == view for v in catalog.views):
        if any(is_m3(*text) for text in source.texts):
            raise DataError(f"view {view} is declared in M3, which is not dropped; compile without it")
        raise DataError(f"no view {view!r} any more")
    if any(v.name == view for v in catalog.strategies):
        raise DataError(f"{view} is a strategy, which is not dropped; run without it")
    readers = [v.name for v in catalog.views if v.name != view and view in _views_read(v.query)]
    if readers:
        raise DataError(f"view {view} is read by {', '.join(readers)}; drop {readers[0]} first")
    kept = tuple(text for text in source.texts for text in _without(text, view, catalog))
    return bound_source(kept, source.parameters, source.levels, _relations_of(source), numbers=False)


def _without(text: SourceText, view: str, catalog: Catalog) -> list[SourceText]:
    """The text, statement by statement where it declares the view, which is left out."""
    file, sql = text
    own = next(v for v in catalog.views if v.name == view)
    if is_m3(file, sql) or own.sql not in sql:
        return [text]
    statements = list(parse(file, sql))
    kept: list[SourceText] = []
    for statement in statements:
        tree = statement.tree
        if isinstance(tree, CreateView):
            declares = tree.this.name.lower() == view
        else:
            declares = not isinstance(tree, CreateRelation) and own.sql == statement.sql
        if not declares:
            kept.append((file, statement.sql))
    called = [*parse_macros(file, sql), *parse_functions(file, sql)]
    return [text] if len(kept) == len(statements) else [*((file, one.sql) for one in called), *kept]


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


# The condition stands on the second line of a statement, so that its columns are its own.
_BEFORE = "SELECT\n"


def bind_condition(
    program: Program, view: str, text: str, parameters: Mapping[str, Parameter] | None = None
) -> Scalar:
    """The scalar that is 1 where `text` holds of a row of the view, 0 where it is false or NULL.

    text: a condition as in WHERE, over the view's columns (`column` or `view.column`), literals and
        parameters; no aggregates or subqueries. The scalar reads a column as the Var of its name, and
        whether it is not NULL as `column_there` names it.

    Raises SqlError that names the condition, with line and column in it.
    """
    result = program.result(view)
    file = f'condition "{" ".join(text.encode(errors="backslashreplace").decode().split())}"'
    try:
        return _condition(result, file, text, parameters or {})
    except SqlError as error:
        raise SqlError(error.message, max(error.line - 1, 1), error.column, file) from None


def _condition(result: Result, file: str, text: str, parameters: Mapping[str, Parameter]) -> Scalar:
    source = SqlText(file, _BEFORE + text)
    node = _expression(source)
    columns = tuple(Column(c.name, c.type, c.valid != TRUE) for c in result.columns)
    scope = Scope(source, None, [FromItem(result.name, result.name, columns, frozenset(), 1)], "a condition")

    def refuse_subquery(node: exp.Expr, scope: Scope) -> NoReturn:
        raise source.error(refusal_text("subquery in a condition", "make it a column of the view"), node)

    def refuse_relation(name: str, text: SqlText, node: exp.Expr) -> NoReturn:
        raise source.error(refusal_text("NOW() in a condition", "make it a column of the view"), node)

    binder = ExpressionBinder(source, parameters, refuse_subquery, lambda alias, _: alias, refuse_relation)
    bound = binder.condition(node, scope)
    values = {
        c.name: Value(Var(c.name), c.type, TRUE if c.valid == TRUE else column_there(c.name))
        for c in result.columns
    }
    return Translator({}).condition(bound, {result.name: values}, [])[0]


def _expression(source: SqlText) -> exp.Expr:
    """The one expression that the text is."""
    statements = list(parse(source.file, source.sql))
    tree = statements[0].tree
    clauses = [key for key, value in tree.args.items() if value and key != "expressions"]
    if len(statements) > 1 or clauses or len(tree.expressions) != 1:
        raise source.error("write one condition, such as bid_vwap > ask_vwap", len(_BEFORE))
    expression: exp.Expr = tree.expressions[0]
    return expression


@dataclass(frozen=True, slots=True)
class SqlCompiler:
    """The ProgramCompiler."""

    def compiled(self, source: ProgramSource, dictionary: Dictionary | None) -> CompiledProgram:
        return compile_source(source, dictionary)

    def condition(
        self, program: Program, view: str, text: str, parameters: Mapping[str, Parameter]
    ) -> Scalar:
        return bind_condition(program, view, text, parameters)

    def adding(self, sql: Sql, params: Mapping[str, Parameter] | None, name: str | None) -> Amend:
        return AddViews.of(sql, params, name)

    def dropping(self, view: str) -> Amend:
        return DropView(view)
