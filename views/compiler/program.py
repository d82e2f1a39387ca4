"""From SQL texts to a compiled program: every stage's value, and the edge that encodes data for it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING

import numpy as np

from orderbook.dictionary import Dictionary
from orderbook.errors import SourceError

from .bind import Parameter, bind
from .bound import Catalog
from .compile import Compiler
from .m3 import Program
from .m3_print import program_text
from .translate import CalculusView, Translator
from .types import Relation

if TYPE_CHECKING:
    import polars as pl

    from engine.changes import ChangeBatch

Sql = str | Path | Sequence[str | Path] | Mapping[str, str]


@dataclass(frozen=True, slots=True)
class CompiledProgram:
    """What SQL texts compile to: the bound catalog, its views in the calculus, and the M3 program.

    `m3` is the program as text. `program.relations` are all declared relations in declared order, read
    by a view or not, and `kinds` of a ChangeBatch index them. `dictionary` encodes the strings of all
    engines, frames and books that share the program.
    """

    catalog: Catalog
    views: tuple[CalculusView, ...]
    program: Program
    m3: str
    parameters: Mapping[str, Parameter]
    dictionary: Dictionary

    @property
    def relations(self) -> tuple[Relation, ...]:
        """All declared streams and tables, in order."""
        return self.catalog.relations

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
    sql: Sql, params: Mapping[str, Parameter] | None = None, dictionary: Dictionary | None = None
) -> CompiledProgram:
    """Compiles CREATE STREAM, CREATE TABLE and CREATE VIEW statements into one program.

    sql: SQL text; a path of a .sql file (one line that ends in .sql); a list of texts and paths; or a
        mapping of file names to their SQL.
    params: what `:name` stands for; a float is the decimal that its repr shows.
    dictionary: shared with other programs; a new one unless given.

    Raises SqlError with file, line and column, and SourceError for a file that cannot be read.
    """
    parameters = MappingProxyType(dict(params or {}))
    catalog = bind(_texts(sql), parameters)
    relations = {r.name: r for r in catalog.relations}
    translator = Translator(relations)
    views = tuple(_with_keys_named_apart(translator.view(v)) for v in catalog.views)
    compiled = Compiler(relations, translator.types).program(views)
    program = replace(compiled, relations=catalog.relations)
    words = Dictionary() if dictionary is None else dictionary
    return CompiledProgram(catalog, views, program, program_text(program), parameters, words)


def _with_keys_named_apart(view: CalculusView) -> CalculusView:
    """The view with different names for its keys, which the compiler may reorder."""
    taken: set[str] = set()
    keys = []
    for key in view.keys:
        name, count = key.name, 1
        while name in taken:
            count += 1
            name = f"{key.name}_{count}"
        taken.add(name)
        keys.append(replace(key, name=name))
    return replace(view, keys=tuple(keys))


def _texts(sql: Sql) -> list[tuple[str | None, str]]:
    if isinstance(sql, Mapping):
        return list(sql.items())
    if isinstance(sql, str | Path):
        return [_text(sql)]
    return [_text(item) for item in sql]


def _text(sql: str | Path) -> tuple[str | None, str]:
    if isinstance(sql, str) and ("\n" in sql or not sql.endswith(".sql")):
        return None, sql
    try:
        return str(sql), Path(sql).read_text(encoding="utf-8")
    except OSError as error:
        raise SourceError(f"{sql}: cannot read: {error.strerror}; check the path") from None
    except UnicodeDecodeError:
        raise SourceError(f"{sql}: not a text in UTF-8; save it as UTF-8") from None
