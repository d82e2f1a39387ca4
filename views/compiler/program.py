"""From SQL texts to a compiled program: every stage's value, and the edge that encodes data for it."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, cast

import numpy as np

from orderbook.dictionary import Dictionary
from orderbook.errors import SourceError, SqlError
from views.compiler.binding.bind import Parameter, bind
from views.compiler.binding.bound import Catalog, ShownBy
from views.compiler.m3_text.m3_link import is_m3, linked, view_of
from views.compiler.m3_text.m3_print import program_text
from views.compiler.maintenance.budget import Budget, TooMuchWorkError
from views.compiler.maintenance.compile import Compiler
from views.compiler.maintenance.materialisation_level import Level, Levels, level_of
from views.compiler.translation.translate import CalculusView, Translator

from .ibis_text import IbisExpression, ibis_text, is_ibis
from .m3 import Program
from .types import Relation
from .unique_names import UniqueNames

if TYPE_CHECKING:
    import polars as pl

    from engine.changes import ChangeBatch

Text = str | Path | IbisExpression
Sql = Text | Sequence[Text] | Mapping[str, str | IbisExpression]
# The file that SQL stands in, None for text given in code, and the SQL.
SourceText = tuple[str | None, str]


@dataclass(frozen=True, slots=True)
class ProgramSource:
    """What a program is compiled from: texts and parameters, how much of views is kept, the bound catalog."""

    texts: tuple[SourceText, ...]
    parameters: Mapping[str, Parameter]
    levels: Levels
    catalog: Catalog


@dataclass(frozen=True, slots=True)
class CompiledProgram:
    """What SQL texts compile to: the bound catalog, its views in the calculus, and the M3 program.

    `m3` is the program as text. `program.relations` are all declared relations in declared order, read
    by a view or not, and `kinds` of a ChangeBatch index them. `dictionary` encodes the strings of all
    engines, frames and books that share the program. `texts` are the SQL it was compiled from, `levels` how
    much of its views is kept.
    """

    catalog: Catalog
    views: tuple[CalculusView, ...]
    program: Program
    m3: str
    parameters: Mapping[str, Parameter]
    dictionary: Dictionary
    texts: tuple[SourceText, ...] = ()
    levels: Levels = field(default_factory=Levels)

    def level(self, view: str) -> Level | None:
        """How much of a view is kept; None for a view declared in M3, which says itself."""
        return next((self.levels.of(v) for v in self.catalog.views if v.name == view), None)

    def order(self, view: str) -> tuple[ShownBy, ...]:
        """What the rows of a view are shown by: its ORDER BY, as far as it names outputs."""
        return next((v.order for v in self.catalog.views if v.name == view), ())

    @property
    def relations(self) -> tuple[Relation, ...]:
        """All declared streams and tables, in order."""
        return self.catalog.relations

    @property
    def source(self) -> ProgramSource:
        """What it was compiled from."""
        return ProgramSource(self.texts, dict(self.parameters), self.levels, self.catalog)

    def changes(self, frame: "pl.DataFrame") -> "ChangeBatch":
        """A polars frame of changes, checked and encoded for `Engine.apply`, in the order of its rows.

        Columns: `stream`, `op` ("+" or "-"), optionally `last` (end of message; true when absent or
        null), then the columns of all streams, null where not a stream's own. Every row is one event.
        Exact columns take integers, decimals, and strings of digits; floats where the decimal that
        their repr shows has no more places than the column. Timestamps are integers (ns since 1970
        UTC) or datetimes (UTC unless they say otherwise).

        Raises DataError that names the row (counted from 0), the column and the reason; then nothing
        was encoded.
        """
        from engine.frame_changes import encode_frame

        return encode_frame(frame, self.relations, self.dictionary)

    def kinds_of(self, relations: Sequence[str]) -> np.ndarray:
        """Translates kinds that index another list of relations: int16[2 * n + 1], `table[kinds]`.

        Relations that the program does not declare become -1, as does -1 itself.
        """
        index = {r.name: i for i, r in enumerate(self.relations)}
        kinds = [2 * index[r] + delete if r in index else -1 for r in relations for delete in (0, 1)]
        return np.array([*kinds, -1], np.int16)


def compile_views(
    sql: Sql,
    params: Mapping[str, Parameter] | None = None,
    dictionary: Dictionary | None = None,
    materialize: str = "full",
) -> CompiledProgram:
    """Compiles CREATE STREAM, CREATE TABLE and CREATE VIEW statements, and M3, into one program.

    sql: SQL text; a path of a .sql file (one line that ends in .sql); an expression of ibis; a list of
        these; or a mapping of file names, of which a query without a name takes its own, to SQL or ibis.
        M3 written by hand is a file that ends in .m3, or a text that begins as M3 does; it may read the
        maps of all SQL beside it.
    params: what `:name` stands for; a float is the decimal that its repr shows.
    dictionary: shared with other programs; a new one unless given.
    materialize: "none", "first" or "full", how much of a view is kept that does not say so itself.

    Raises SqlError with file, line and column, and SourceError for a file that cannot be read.
    """
    return compile_texts(texts_of(sql), params or {}, dictionary, Levels(level_of(materialize)))


def compile_texts(
    texts: Sequence[SourceText],
    params: Mapping[str, Parameter],
    dictionary: Dictionary | None = None,
    levels: Levels = Levels(),
) -> CompiledProgram:
    """`compile_views` of texts that have been read."""
    return compile_source(bound_source(texts, params, levels), dictionary)


def bound_source(
    texts: Sequence[SourceText], params: Mapping[str, Parameter], levels: Levels = Levels()
) -> ProgramSource:
    """Texts with their SQL bound, which is quick; M3 is read by `compile_source`. Raises SqlError."""
    catalog = bind([t for t in texts if not is_m3(*t)], params)
    return ProgramSource(tuple(texts), dict(params), levels, catalog)


def compile_source(source: ProgramSource, dictionary: Dictionary | None = None) -> CompiledProgram:
    """The program of what has been bound. Raises SqlError for a view that is too large, and for wrong M3."""
    catalog, levels = source.catalog, source.levels
    relations = {r.name: r for r in catalog.relations}
    try:
        views, compiled = _compiled(catalog, relations, {v.name: levels.of(v) for v in catalog.views})
    except TooMuchWorkError as error:
        raise _too_large(error.view, source.texts) from None
    by_hand = [t for t in source.texts if is_m3(*t)]
    program = linked(replace(compiled, relations=catalog.relations), by_hand)
    views += tuple(view_of(r) for r in program.results[len(views) :])
    words = Dictionary() if dictionary is None else dictionary
    text, parameters = program_text(program), MappingProxyType(dict(source.parameters))
    return CompiledProgram(catalog, views, program, text, parameters, words, source.texts, levels)


def _compiled(
    catalog: Catalog, relations: Mapping[str, Relation], levels: Mapping[str, Level]
) -> tuple[tuple[CalculusView, ...], Program]:
    translator = Translator(relations)
    budgets = {v.name: Budget(v.name) for v in catalog.views}
    views = []
    for view in catalog.views:
        with budgets[view.name].spending():
            views.append(_with_keys_named_apart(translator.view(view)))
    return tuple(views), Compiler(relations, translator.types, budgets, levels).program(views)


def _too_large(view: str, texts: Sequence[SourceText]) -> SqlError:
    """The refusal of a view whose maps and triggers would be too many, at its name."""
    message = f"view {view} is too large to compile: it would need too many maps; split it into views"
    for file, sql in texts:
        found = re.search(rf"\bVIEW\s+({re.escape(view)})\b", sql, re.IGNORECASE)
        if found:
            line = sql.count("\n", 0, found.start(1)) + 1
            return SqlError(message, line, found.start(1) - sql.rfind("\n", 0, found.start(1)), file)
    return SqlError(message, 1, 1, texts[0][0] if len(texts) == 1 else None)


def _with_keys_named_apart(view: CalculusView) -> CalculusView:
    """The view with different names for its keys, which the compiler may reorder."""
    names = UniqueNames()
    return replace(view, keys=tuple(replace(key, name=names.new(key.name)) for key in view.keys))


def texts_of(sql: Sql) -> list[SourceText]:
    """The SQL of what `compile_views` takes. Raises SourceError for a file that cannot be read."""
    if isinstance(sql, Mapping):
        return [(name, one if isinstance(one, str) else ibis_text(one)) for name, one in sql.items()]
    if isinstance(sql, str | Path) or is_ibis(sql):
        return [_text(sql)]
    return [_text(item) for item in cast(Sequence[Text], sql)]


def _text(sql: Text) -> SourceText:
    if is_ibis(sql):
        return None, ibis_text(sql)
    assert isinstance(sql, str | Path)
    if isinstance(sql, str) and ("\n" in sql or not sql.endswith((".sql", ".m3"))):
        return None, sql
    try:
        return str(sql), Path(sql).read_text(encoding="utf-8")
    except OSError as error:
        raise SourceError(f"{sql}: cannot read: {error.strerror}; check the path") from None
    except UnicodeDecodeError:
        raise SourceError(f"{sql}: not a text in UTF-8; save it as UTF-8") from None
