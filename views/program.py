"""The compiled program: what SQL texts come to, every stage's value, and the edge that encodes data for it.

A `ProgramSource` is what a program is compiled from, a `CompiledProgram` what its compiler makes of it.
Nothing here needs the SQL parser: whoever runs a program imports this alone, and SQL that comes while it runs
goes to the compiler that the program was made by.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from numpy.typing import NDArray

from orderbook.core.changes import Dictionary
from orderbook.views.binding.bound import Catalog
from orderbook.views.calculus import Poly, Scalar, Var
from orderbook.views.m3 import Program, program_text
from orderbook.views.materialization import Levels, Materialization
from orderbook.views.types import Parameter, Relation, ShownBy, Type

if TYPE_CHECKING:
    from orderbook.core.changes import ChangeBatch


@dataclass(frozen=True, slots=True)
class ViewKey:
    """A key of a view's rows, with its SQL type; a nullable one holds NULL as `conditions.NULL`."""

    variable: Var
    name: str
    type: Type


@dataclass(frozen=True, slots=True)
class ViewColumn:
    """A column of a view: a formula over the keys and lets, NULL where `valid` does not hold."""

    name: str
    type: Type
    scalar: Scalar
    valid: Scalar


@dataclass(frozen=True, slots=True)
class CalculusView:
    """A view in the calculus.

    `multiplicity` counts the rows of each key (a group exists while it has rows); an aggregated view
    has every key once (`grouped`), or exactly one row when `multiplicity` is None. `lets` bind what
    the columns read, each summed for the row's keys.
    """

    name: str
    keys: tuple[ViewKey, ...]
    multiplicity: Poly | None
    grouped: bool
    lets: tuple[tuple[Var, Poly], ...]
    columns: tuple[ViewColumn, ...]


# The file that SQL stands in, None for text given in code, and the SQL.
SourceText = tuple[str | None, str]


class IbisExpression(Protocol):
    """An expression of ibis, as far as it is called here."""

    def unbind(self) -> Any:
        """The expression without the backend of its tables."""


# A query; what declares views: SQL texts, paths of files, expressions of ibis, or these by name.
Question = str | IbisExpression
Text = str | Path | IbisExpression
Sql = Text | Sequence[Text] | Mapping[str, str | IbisExpression]

Amend = Callable[["ProgramSource"], "ProgramSource"]


class ProgramCompiler(Protocol):
    """What makes a program of SQL, and takes the SQL that comes while it runs; `compilation` has it."""

    def compiled(self, source: "ProgramSource", dictionary: Dictionary | None) -> "CompiledProgram":
        """The program of what has been bound. Raises SqlError."""

    def condition(
        self, program: Program, view: str, text: str, parameters: Mapping[str, Parameter]
    ) -> Scalar:
        """A condition as in WHERE over a view's columns: 1 where it holds. Raises SqlError."""

    def adding(self, sql: Sql, params: Mapping[str, Parameter] | None, name: str | None) -> Amend:
        """Adds the views that `sql` declares; with a `name`, its one SELECT. Raises SourceError."""

    def dropping(self, view: str) -> Amend:
        """Takes a view out."""


@dataclass(frozen=True, slots=True)
class ProgramSource:
    """What a program is compiled from: texts and parameters, how much of views is kept, the bound catalog."""

    texts: tuple[SourceText, ...]
    parameters: Mapping[str, Parameter]
    levels: Levels
    catalog: Catalog
    compiler: ProgramCompiler = field(repr=False, compare=False)

    def compiled(self, dictionary: Dictionary | None = None) -> "CompiledProgram":
        """The program. Raises SqlError for a view that is too large, and for wrong M3."""
        return self.compiler.compiled(self, dictionary)


@dataclass(frozen=True, slots=True, repr=False)
class CompiledProgram:
    """What SQL texts compile to: the bound catalog, its views in the calculus, and the M3 program.

    `program.relations` are all declared relations in declared order, read
    by a view or not, and `kinds` of a ChangeBatch index them. `dictionary` encodes the strings of all
    engines, frames and books that share the program. `texts` are the SQL it was compiled from, `levels` how
    much of its views is kept.
    """

    catalog: Catalog
    views: tuple[CalculusView, ...]
    program: Program
    parameters: Mapping[str, Parameter]
    dictionary: Dictionary
    texts: tuple[SourceText, ...]
    levels: Levels
    compiler: ProgramCompiler = field(repr=False, compare=False)

    def __repr__(self) -> str:
        names = ", ".join(result.name for result in self.program.results)
        return f"<CompiledProgram: {names or 'no views'}; {len(self.program.maps)} maps>"

    def level(self, view: str) -> Materialization | None:
        """How much of a view is kept; None for a view declared in M3, which says itself."""
        return next((self.levels.of(v) for v in self.catalog.views if v.name == view), None)

    def order(self, view: str) -> tuple[ShownBy, ...]:
        """What the rows of a view are shown by: its ORDER BY, as far as it names outputs."""
        return next((v.order for v in self.catalog.views if v.name == view), ())

    @property
    def m3(self) -> str:
        """The M3 program as text."""
        return program_text(self.program)

    @property
    def relations(self) -> tuple[Relation, ...]:
        """All declared streams and tables, in order."""
        return self.catalog.relations

    @property
    def streams(self) -> tuple[Relation, ...]:
        """The streams and tables that rows are given to: all relations but the matches of patterns."""
        made = {pattern.name for pattern in self.program.patterns}
        return tuple(relation for relation in self.relations if relation.name not in made)

    @property
    def source(self) -> ProgramSource:
        """What it was compiled from."""
        return ProgramSource(self.texts, dict(self.parameters), self.levels, self.catalog, self.compiler)

    def condition(self, view: str, text: str) -> Scalar:
        """A condition as in WHERE over a view's columns: 1 where it holds. Raises SqlError."""
        return self.compiler.condition(self.program, view, text, self.parameters)

    def changes(self, frame: Any, relation: str | None = None) -> "ChangeBatch":
        """A frame of changes, checked and encoded for `Engine.apply`, in the order of its rows.

        frame: of polars, or what polars makes one of: pandas, Arrow tables, a mapping of columns. Columns:
        `stream`, `op` ("+" or "-"), optionally `last` (end of message; true when absent or null), then the
        columns of all streams, null where not a stream's own. Every row is one event.
        relation: whose rows all are; there is no `stream` then, and without `op` they are inserted.

        Exact columns take integers, decimals, and strings of digits; floats where the decimal that their
        repr shows has no more places than the column. Timestamps are integers (ns since 1970 UTC), datetimes
        or their texts (UTC unless they say otherwise).

        Raises DataError that names the row (counted from 0), the column and the reason; then nothing
        was encoded.
        """
        from orderbook.views.encoding.frames import encode_frame

        return encode_frame(frame, self.relations, self.dictionary, relation)

    def kinds_of(self, relations: Sequence[str]) -> NDArray[np.int16]:
        """Translates kinds that index another list of relations: int16[2 * n + 1], `table[kinds]`.

        Relations that the program does not declare become -1, as does -1 itself.
        """
        index = {r.name: i for i, r in enumerate(self.relations)}
        kinds = [2 * index[r] + delete if r in index else -1 for r in relations for delete in (0, 1)]
        return np.array([*kinds, -1], np.int16)
