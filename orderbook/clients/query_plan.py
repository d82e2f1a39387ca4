"""How an ad-hoc query is answered: of which views and relations, and the SQL that asks them."""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from sqlglot import exp, parse_one
from sqlglot.errors import SqlglotError
from sqlglot.optimizer.merge_subqueries import merge_subqueries
from sqlglot.optimizer.qualify import qualify

from orderbook.clients.duckdb_queries import check_tables, output_columns, tables_in
from orderbook.clients.encoded_rows import table_schema
from orderbook.clients.view_matching import Block, Keys, block_of, over_view
from orderbook.core.errors import SqlError, suggestion
from orderbook.views.binding.nodes import CreateView
from orderbook.views.binding.parser import parse
from orderbook.views.m3 import Result
from orderbook.views.program import CompiledProgram
from orderbook.views.types import Parameter, Relation

_DIALECT = "duckdb"
# Text in quotes, comments, casts, or a parameter.
_PARAMETER = re.compile(
    r"""\b[eE]'(?:[^'\\]|\\.|'')*'|'(?:[^']|'')*'|"(?:[^"]|"")*"|(?P<dollar>\$\w*\$).*?(?P=dollar)"""
    r"""|--[^\n]*|/\*.*?\*/|::|[:$](?P<name>[A-Za-z_]\w*)""",
    re.DOTALL,
)


@dataclass(frozen=True, slots=True)
class QueryPlan:
    """How a query is answered.

    sql: what DuckDB is asked. reads: the views and relations whose rows it is asked over. instead: the views
    that stand for the relations and views that the query names, as they were rewritten. columns: the names of
    the answer's columns. types: theirs, as DuckDB calls them. parameters: what `$name` in the SQL stands for.
    """

    sql: str
    reads: tuple[str, ...]
    instead: tuple[str, ...]
    columns: tuple[str, ...]
    types: tuple[str, ...]
    parameters: Mapping[str, Parameter]

    def __str__(self) -> str:
        held = f"read from the rows of {', '.join(self.reads) or 'nothing'}"
        used = f"rewritten onto {', '.join(self.instead)}; " if self.instead else ""
        return f"{used}{held}\n{self.sql}"


@dataclass(frozen=True, slots=True)
class Queryable:
    """What of a program queries can be asked of, for any process: `definitions` has the SQL of its views."""

    relations: tuple[Relation, ...]
    views: tuple[Result, ...]
    definitions: Mapping[str, str]
    parameters: Mapping[str, Parameter]

    @classmethod
    def of(cls, program: CompiledProgram) -> "Queryable":
        """Of a program."""
        definitions = {view.name: view.sql for view in program.catalog.views}
        return cls(program.streams, program.program.results, definitions, dict(program.parameters))


class QueryPlanner:
    """Plans queries over the views and relations of one program."""

    def __init__(self, program: Queryable) -> None:
        self._program = program
        self._schemas: dict[str, pa.Schema] = {}
        self._keys = Keys(program.parameters)
        self._known: dict[str, Relation | Result] = {r.name: r for r in program.relations}
        self._known |= {r.name: r for r in program.views}
        self._definitions: dict[str, Block] | None = None

    def plan(self, sql: str) -> QueryPlan:
        """The plan of a SELECT. Raises SqlError for one that is wrong, with line and column."""
        sql, used = self._with_parameters(sql)
        found = tables_in(sql)
        check_tables(found, self._known)
        given = found.given
        names = tuple(name for name in found.tables if name in self._known)
        # A name of the query's own WITH hides a view or relation, unless that WITH itself reads it.
        plain = tuple(name for name in names if name not in given)
        try:
            columns = self._columns(sql, plain, used)
            names = plain
        except SqlError:
            if plain == names:
                raise
            columns = self._columns(sql, names, used)
        rewritten = None if given & self._known.keys() else self._rewritten(sql)
        if rewritten is None:
            return QueryPlan(sql, names, (), *columns, used)
        text, instead = rewritten
        reads = tuple(name for name in tables_in(text).tables if name in self._known)
        return QueryPlan(text, reads, instead, *columns, self._with_parameters(text)[1])

    def schemas(self, names: Iterable[str]) -> dict[str, pa.Schema]:
        """The columns of views and relations, as `table_schema` has them."""
        return {name: self._schema(name) for name in names}

    def _columns(
        self, sql: str, names: Iterable[str], used: Mapping[str, Parameter]
    ) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Names and types."""
        try:
            found = output_columns(sql, {name: self._schema(name) for name in names}, used)
            return tuple(name for name, _ in found), tuple(kind for _, kind in found)
        except SqlError as error:
            raise self._missing(error) from None

    def _schema(self, name: str) -> pa.Schema:
        if name not in self._schemas:
            self._schemas[name] = table_schema(self._known[name])
        return self._schemas[name]

    def _with_parameters(self, sql: str) -> tuple[str, dict[str, Parameter]]:
        """The SQL with the program's parameters as DuckDB writes them, at the same places."""
        used: dict[str, Parameter] = {}

        def written(match: re.Match[str]) -> str:
            name = match["name"]
            if name not in self._program.parameters:
                return match[0]
            used[name] = self._program.parameters[name]
            return f"${name}"

        return _PARAMETER.sub(written, sql), used

    def _missing(self, error: SqlError) -> SqlError:
        """A table that is not there, said with the names there are; a function that only views may call."""
        if called := re.match(r"(?:Scalar|Table) Function with name (\S+) does not exist", error.message):
            what = f"no function is named {called[1]!r}; those of a program are called in its views"
            return SqlError(what, error.line, error.column)
        found = re.match(r"Table with name (\S+) does not exist", error.message)
        if not found:
            return error
        near = "leave out its schema" if found[1] in self._known else suggestion(found[1], self._known)
        what = f"no view or relation is named {found[1]!r}; {near}"
        return SqlError(what, error.line, error.column)

    def _rewritten(self, sql: str) -> tuple[str, tuple[str, ...]] | None:
        """The query over views in the place of their definitions; None where it is none of them."""
        try:
            tree = self._qualified(parse_one(sql, dialect=_DIALECT))
        except (SqlglotError, RecursionError):
            return None
        instead: dict[str, None] = {}
        holder = exp.Subquery(this=tree)
        for select in _selects(holder):
            block = block_of(select)
            found = None if block is None else self._covering(block)
            if found is not None:
                instead[found[0]] = None
                select.replace(found[1])
        return (holder.this.sql(_DIALECT), tuple(instead)) if instead else None

    def _covering(self, block: Block) -> tuple[str, exp.Select] | None:
        """The view that tells most directly what is asked: as it stands, from finer groups, or from rows."""
        found = [
            (definition.fineness(block), name, select)
            for name, definition in self._views().items()
            if (select := over_view(block, definition, name, self._keys)) is not None
        ]
        if not found:
            return None
        _, name, select = min(found, key=lambda one: one[0])
        return name, select

    def _views(self) -> Mapping[str, Block]:
        """The definitions of the views that are of a form that can be recognised."""
        if self._definitions is None:
            found = {}
            for name, sql in self._program.definitions.items():
                tree = next(iter(parse(None, sql))).tree
                select = tree.expression if isinstance(tree, CreateView) else tree
                try:
                    qualified = self._qualified(select.copy())
                except SqlglotError:
                    continue
                block = block_of(qualified) if isinstance(qualified, exp.Select) else None
                if block is not None:
                    found[name] = block
            self._definitions = found
        return self._definitions

    def _qualified(self, tree: exp.Expr) -> exp.Expr:
        schema: dict[str, object] = {
            name: {c.name: "UNKNOWN" for c in one.columns} for name, one in self._known.items()
        }
        options: dict[str, Any] = {"schema": schema, "dialect": _DIALECT, "identify": False}
        return merge_subqueries(qualify(tree, quote_identifiers=False, **options))


def _selects(holder: exp.Expr) -> Iterator[exp.Select]:
    """The SELECTs of a tree, an outer one before those in it, which may be gone when it has been replaced."""
    waiting = [holder]
    while waiting:
        node = waiting.pop(0)
        if isinstance(node, exp.Select):
            parent, key, index = node.parent, node.arg_key, node.index
            assert parent is not None and key is not None
            yield node
            there = parent.args[key] if index is None else parent.args[key][index]
            if there is not node:
                continue
        waiting += list(node.iter_expressions())
