"""Unit tests of views, written in YAML beside them: given rows and events, expected rows and events.

    - test: bids outweigh asks
      view: pressure
      given:
        bids: [{symbol: AAA, price: 10, volume: 60}]
        asks: [{symbol: AAA, price: 11, volume: 20}]
      steps:
        - expect: {pressure: [{symbol: AAA, imbalance: 0.5}]}
        - delete: {asks: {symbol: AAA}}
        - expect: {pressure: []}
      expect_events:
        pressure: [{old: {symbol: AAA, imbalance: 0.5}, new: null}]

Columns of given rows that are left out are NULL where they may be, else 0, an empty text, or in a primary key
the row's number. Of expected rows only the columns that are written are compared.
"""

import math
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from typing import Any, Protocol

import yaml

from orderbook.configuration.configuration import Configuration
from orderbook.core.errors import ConfigurationError, DataError, OrderbookError, UserError, suggestion
from orderbook.core.units import moment_text, value_text
from orderbook.engine.runtime.engine import Engine
from orderbook.engine.runtime.program_start import Backend
from orderbook.engine.runtime.subscriptions import ViewEvent
from orderbook.run.assembly import compiled_beside, view_files
from orderbook.views.encoding.values import decoder, encode_value
from orderbook.views.library import declared_views
from orderbook.views.program import CompiledProgram
from orderbook.views.types import Column, Kind, Relation, Type

SUFFIXES = (".test.yaml", ".test.yml")
_KEYS = ("test", "view", "set", "given", "steps", "expect", "expect_events")
_STEPS = ("insert", "delete", "update", "tick", "expect")
# Doubles are equal within this, relatively; one written with four places or more, within half of the last.
_CLOSE, _PLACES = 1e-9, 4


class _Line(dict[str, Any]):
    """A mapping of a file, and the line where it begins."""

    line = 0


class _Loader(yaml.SafeLoader):  # type: ignore[misc]
    """YAML with exact decimals, in which only true and false are booleans."""


def _mapping(loader: _Loader, node: yaml.MappingNode) -> _Line:
    found = _Line(loader.construct_mapping(node, deep=True))
    found.line = node.start_mark.line + 1
    return found


def _decimal(loader: _Loader, node: yaml.ScalarNode) -> Decimal | float:
    text = str(loader.construct_scalar(node)).replace("_", "")
    return Decimal(text) if text.strip("+-.").lower() not in ("inf", "nan") else float(text.replace(".", ""))


_Loader.add_constructor("tag:yaml.org,2002:map", _mapping)
_Loader.add_constructor("tag:yaml.org,2002:float", _decimal)
_Loader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in known if first in "tTfF" or tag != "tag:yaml.org,2002:bool"]
    for first, known in yaml.SafeLoader.yaml_implicit_resolvers.items()
}


@dataclass(frozen=True, slots=True)
class ViewTest:
    """One test of a file: `place` is FILE:LINE, `given` what it says."""

    name: str
    view: str
    place: str
    given: Mapping[str, Any]


@dataclass(slots=True)
class Outcome:
    """What became of a test on a backend: lines that say what is otherwise, none where it passes.

    skipped: why it was not run there, where it was not.
    """

    test: ViewTest
    backend: str
    lines: list[str] = field(default_factory=list)
    skipped: str | None = None


class ShownRow(Protocol):
    """A row of a view: its columns by name, and how often it stands."""

    @property
    def multiplicity(self) -> int: ...

    def __getitem__(self, name: str, /) -> Any: ...

    def items(self) -> Iterable[tuple[str, Any]]: ...


@dataclass(frozen=True, slots=True)
class RowChange:
    """A row that a test inserts or deletes: its values in the order of the columns, times as ns.

    number: of the message, from 1; an update is a delete and an insert of one.
    """

    number: int
    relation: str
    insert: bool
    row: tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class HistoryRow:
    """A change of a view's row in the message `number`: the row of `key` from then on; None: it has ended."""

    number: int
    key: tuple[Any, ...]
    row: ShownRow | None


class NotThereError(Exception):
    """A test cannot run on another runtime, for the reason that this says."""


# Makes the histories of views, each in order, of changes of relations. Raises NotThereError.
HistoryMaker = Callable[
    [CompiledProgram, Sequence[str], Sequence[RowChange]], Mapping[str, Sequence[HistoryRow]]
]


def test_files(paths: Sequence[Path]) -> list[Path]:
    """The files of tests in these files and folders. Raises UserError for a path that is not there."""
    found: list[Path] = []
    for path in paths:
        if path.is_dir():
            found += sorted(_below(path))
        elif path.is_file():
            found.append(path)
        else:
            raise UserError(f"{path}: no such file or folder; give files of tests, or folders of them")
    return list(dict.fromkeys(found))


def _below(folder: Path) -> Iterator[Path]:
    for here, folders, names in os.walk(folder):
        folders[:] = [name for name in folders if not name.startswith(".")]
        yield from (Path(here) / name for name in names if name.endswith(SUFFIXES))


def read_tests(file: Path) -> list[ViewTest]:
    """The tests of a file. Raises UserError with the line of what is wrong."""
    try:
        with file.open(encoding="utf-8") as text:
            found = yaml.load(text, _Loader)
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else 1
        raise UserError(f"{file}:{line}: no YAML: {error.problem}") from None
    except (OSError, yaml.YAMLError, ValueError) as error:
        raise UserError(f"{file}: cannot be read: {' '.join(str(error).split())}") from None
    if not isinstance(found, list) or not found:
        raise UserError(f"{file}: a list of tests is expected, each with `- test: NAME`")
    return [_test(file, one) for one in found]


def _test(file: Path, given: Any) -> ViewTest:
    if not isinstance(given, _Line) or not isinstance(given.get("test"), str):
        raise UserError(f"{file}: a test begins with `test: NAME`, not with {given!r:.60}")
    place = f"{file}:{given.line}"
    _check_names(place, given, _KEYS, "a test")
    if not isinstance(given.get("view"), str):
        raise UserError(f"{place}: say which `view:` is tested, by name or as a .sql file")
    if not any(given.get(name) for name in ("expect", "expect_events", "steps")):
        raise UserError(f"{place}: nothing is expected; give `expect:`, `expect_events:` or `steps:`")
    return ViewTest(given["test"], given["view"], place, given)


def _check_names(place: str, given: Mapping[str, Any], known: Sequence[str], what: str) -> None:
    for name in given:
        if name not in known:
            raise UserError(f"{place}: {what} has no {name!r}; {suggestion(str(name), known)}")


class ViewTests:
    """Runs tests by a configuration, whose search path each test's folder is in front of."""

    def __init__(self, configuration: Configuration) -> None:
        self._configuration = configuration
        self._programs: dict[tuple[object, ...], CompiledProgram] = {}

    def run(self, test: ViewTest, backend: Backend) -> Outcome:
        """Raises UserError, with its place, where a test cannot be run."""
        return self._outcome(test, backend, lambda program, lines: _Run(test, program, backend, lines).go())

    def run_elsewhere(self, test: ViewTest, where: str, history: HistoryMaker) -> Outcome:
        """On a runtime that gives the whole histories of views. Raises UserError as `run` does."""

        def go(program: CompiledProgram, lines: list[str]) -> None:
            first = _HistoryRun(test, program, [], None)
            first.go()
            found = history(program, list(first.asked), first.changes)
            _HistoryRun(test, program, lines, found).go()

        return self._outcome(test, where, go)

    def _outcome(
        self, test: ViewTest, backend: str, go: Callable[[CompiledProgram, list[str]], None]
    ) -> Outcome:
        outcome = Outcome(test, backend)
        try:
            go(self._program(test), outcome.lines)
        except NotThereError as error:
            outcome.skipped = str(error)
        except UserError as error:
            said = str(error)
            raise UserError(
                said if said.startswith(test.place.rpartition(":")[0]) else f"{test.place}: {said}"
            ) from None
        except OrderbookError as error:
            raise UserError(f"{test.place}: {error}") from None
        return outcome

    def _program(self, test: ViewTest) -> CompiledProgram:
        folder = Path(test.place.rpartition(":")[0]).resolve().parent
        views = self._configuration.views
        here = self._configuration.model_copy(
            update={"views": views.model_copy(update={"paths": (folder, *views.paths)})}
        )
        file = folder / test.view if test.view.endswith(".sql") else _file(here, test.view)
        chosen = test.given.get("set") or {}
        key = (file, folder, *sorted((name, str(value)) for name, value in chosen.items()))
        if key not in self._programs:
            self._programs[key] = compiled_beside(here, file, chosen)
        return self._programs[key]


def _file(configuration: Configuration, view: str) -> Path:
    known: dict[str, Path] = {}
    for file in view_files(configuration):
        for name in declared_views(file):
            known.setdefault(name, file)
    if view not in known:
        raise ConfigurationError(f"no view is named {view!r}; {suggestion(view, known)}")
    return known[view]


class _Run:
    """One test on one engine. `lines` is added what is otherwise than expected."""

    def __init__(self, test: ViewTest, program: CompiledProgram, backend: Backend, lines: list[str]) -> None:
        self._test, self._lines = test, lines
        self._file = test.place.rpartition(":")[0]
        self._engine = Engine(program, backend)
        self._relations = {one.name: one for one in program.relations}
        self._held: dict[str, list[dict[str, Any]]] = {}
        self._inserted = 0
        self._events: dict[str, list[ViewEvent]] = {}
        # Of times, ns.
        self._resolution = 1

    def go(self) -> None:
        given, place = self._test.given, self._test.place
        for relation, rows in _named(place, given.get("given") or {}, "given"):
            for row in _listed(place, rows):
                self._insert(relation, row, place)
        for view, _ in _named(place, given.get("expect_events") or {}, "expect_events"):
            self._follow(view)
        for number, step in enumerate(_listed(place, given.get("steps") or []), 1):
            self._step(step, number)
        self._expect(given.get("expect") or {}, place, "at the end")
        for view, wanted in (given.get("expect_events") or {}).items():
            self._expect_events(view, _listed(place, wanted), place)

    def _follow(self, view: str) -> None:
        own: list[ViewEvent] = []
        self._events[view] = own
        self._engine.subscribe(view, own.append, fire="change")

    def _rows(self, view: str) -> Sequence[ShownRow] | None:
        """The rows of a view at this moment; None where nothing is known of it yet."""
        return list(self._engine[view].values())

    def _told(self, view: str) -> Sequence[tuple[ShownRow | None, ShownRow | None]] | None:
        """Old and new of each event of a view since it was followed."""
        return [(event.old, event.new) for event in self._events[view]]

    def _kinds(self, view: str) -> dict[str, Type]:
        """The types of the columns of a view."""
        return {c.name: c.type for c in self._engine[view].layout.result.columns}

    def _step(self, step: Mapping[str, Any], number: int) -> None:
        place = f"{self._file}:{getattr(step, 'line', 0)}"
        if len(step) != 1 or next(iter(step)) not in _STEPS:
            raise UserError(f"{place}: a step is one of {', '.join(_STEPS)}, as `- insert: {{bids: {{…}}}}`")
        ((what, given),) = step.items()
        if what == "expect":
            self._expect(given or {}, place, f"after step {number}")
        elif what == "tick":
            self._engine.tick(self._nanoseconds(given, place))
        else:
            for relation, rows in _named(place, given, what):
                for row in _listed(place, rows):
                    getattr(self, f"_{what}")(relation, row, place)

    def _nanoseconds(self, given: Any, place: str) -> int:
        try:
            word = encode_value(
                Column("now", Type(Kind.TIMESTAMP, 0, -(2**62), 2**62)), given, self._engine.dictionary
            )
        except ValueError as error:
            raise UserError(f"{place}: tick: {error}") from None
        assert isinstance(word, int)
        return word

    def _insert(self, relation: str, row: Mapping[str, Any], place: str) -> None:
        held = self._held.setdefault(relation, [])
        whole = _whole(self._relation(relation, place), row, self._inserted, place)
        self._inserted += 1
        self._changed(place, lambda: self._engine.insert(relation, whole), relation, (whole, True))
        held.append(whole)

    def _delete(self, relation: str, row: Mapping[str, Any], place: str) -> None:
        found = self._found(relation, row, place)
        self._changed(place, lambda: self._engine.delete(relation, found), relation, (found, False))
        self._held[relation].remove(found)

    def _update(self, relation: str, given: Mapping[str, Any], place: str) -> None:
        if set(given) != {"where", "set"}:
            raise UserError(f"{place}: an update is `{relation}: {{where: {{…}}, set: {{…}}}}`")
        old = self._found(relation, given["where"], place)
        new = _whole(self._relation(relation, place), {**old, **given["set"]}, 0, place)
        both = (old, False), (new, True)
        self._changed(place, lambda: self._engine.update(relation, old, new), relation, *both)
        self._held[relation].remove(old)
        self._held[relation].append(new)

    def _changed(
        self, place: str, change: Callable[[], None], relation: str, *rows: tuple[Mapping[str, Any], bool]
    ) -> None:
        """Makes a change, of rows that come (True) and go."""
        try:
            change()
        except DataError as error:
            raise UserError(f"{place}: {error}") from None
        if self._engine.problems.counts:
            raise UserError(f"{place}: {next(iter(self._engine.problems.report()))}")

    def _found(self, relation: str, row: Mapping[str, Any], place: str) -> dict[str, Any]:
        """The one row that was inserted with these values."""
        columns = {c.name for c in self._relation(relation, place).columns}
        _check_names(place, row, sorted(columns), relation)
        found = [
            one
            for one in self._held.get(relation, ())
            if all(one[name] == value for name, value in row.items())
        ]
        if len(found) != 1:
            raise UserError(
                f"{place}: {len(found)} rows of {relation} have {_text(row)}; say which one is meant"
            )
        return found[0]

    def _relation(self, name: str, place: str) -> Relation:
        if name not in self._relations:
            raise UserError(f"{place}: no relation is named {name!r}; {suggestion(name, self._relations)}")
        return self._relations[name]

    def _expect(self, given: Mapping[str, Any], place: str, when: str) -> None:
        for view, rows in _named(place, given, "expect"):
            wanted = _listed(place, rows)
            columns = self._kinds(view)
            shown = [name for name in columns if any(name in row for row in wanted)] or list(columns)
            for row in wanted:
                _check_names(place, row, list(columns), f"view {view}")
            if (rows := self._rows(view)) is None:
                continue
            held = [row for row in rows for _ in range(row.multiplicity)]
            missing, more = self._differences(columns, wanted, held)
            if missing or more:
                self._lines.append(f"view {view} {when}, {place}:")
                self._lines += [f"  expected    {_text(row)}" for row in missing]
                self._lines += [f"  is there    {_row_text(row, columns, shown)}" for row in more]

    def _differences(
        self, columns: Mapping[str, Type], wanted: Sequence[Mapping[str, Any]], held: Sequence[ShownRow]
    ) -> tuple[list[Mapping[str, Any]], list[ShownRow]]:
        # A row that says little may be any of several: each gets one such that as few as can be are left.
        fits = [[n for n, row in enumerate(held) if self._equal(columns, one, row)] for one in wanted]
        of_row: dict[int, int] = {}

        def placed(one: int, seen: set[int]) -> bool:
            for n in fits[one]:
                if n not in seen:
                    seen.add(n)
                    if n not in of_row or placed(of_row[n], seen):
                        of_row[n] = one
                        return True
            return False

        missing = [row for one, row in enumerate(wanted) if not placed(one, set())]
        return missing, [row for n, row in enumerate(held) if n not in of_row]

    def _equal(self, columns: Mapping[str, Type], wanted: Mapping[str, Any], row: ShownRow) -> bool:
        return all(self._same(columns[name], value, row[name], name) for name, value in wanted.items())

    def _same(self, kind: Type, wanted: Any, value: Any, name: str) -> bool:
        if wanted is None or value is None:
            return wanted is None and value is None
        if kind.kind is Kind.DOUBLE and isinstance(wanted, int | float | Decimal):
            places = -int(wanted.as_tuple().exponent) if isinstance(wanted, Decimal) else 0
            slack = 10.0**-places / 2 if places >= _PLACES else 0.0
            return math.isclose(float(wanted), value, rel_tol=_CLOSE, abs_tol=slack)
        dictionary = self._engine.dictionary
        try:
            word = encode_value(Column(name, kind), wanted, dictionary)
        except ValueError as error:
            raise UserError(f"{self._test.place}: column {name}: {error}") from None
        if kind.kind is Kind.TIMESTAMP and self._resolution > 1:
            return int(word or 0) // self._resolution == int(value) // self._resolution
        return bool(decoder(kind, dictionary)(word) == value)

    def _expect_events(self, view: str, wanted: Sequence[Mapping[str, Any]], place: str) -> None:
        columns = self._kinds(view)
        for one in wanted:
            _check_names(place, one, ("old", "new"), "an event")
            for side in (one.get("old"), one.get("new")):
                _check_names(place, side or {}, list(columns), f"view {view}")
        if (found := self._told(view)) is None:
            return
        for number in range(max(len(wanted), len(found))):
            expected = wanted[number] if number < len(wanted) else None
            event = found[number] if number < len(found) else None
            if (
                expected is not None
                and event is not None
                and all(self._is_side(columns, expected[side], event[side == "new"]) for side in expected)
            ):
                continue
            told = "none" if expected is None else ", ".join(f"{k} {_text(v)}" for k, v in expected.items())
            came = (
                "none"
                if event is None
                else f"old {_row_text(event[0], columns)}, new {_row_text(event[1], columns)}"
            )
            self._lines += [
                f"event {number + 1} of view {view}, {place}:",
                f"  expected    {told}",
                f"  is there    {came}",
            ]

    def _is_side(
        self, columns: Mapping[str, Type], wanted: Mapping[str, Any] | None, row: ShownRow | None
    ) -> bool:
        if wanted is None or row is None:
            return wanted is None and row is None
        return self._equal(columns, wanted, row)


class _HistoryRun(_Run):
    """A test against histories that another runtime has made of its changes.

    Without histories it finds out what these are to be of: `changes`, and `asked`, the views that are looked
    at. The interpreter is there to say what is wrong with rows.
    """

    def __init__(
        self,
        test: ViewTest,
        program: CompiledProgram,
        lines: list[str],
        histories: Mapping[str, Sequence[HistoryRow]] | None,
    ) -> None:
        super().__init__(test, program, "interpreter", lines)
        self.changes: list[RowChange] = []
        self.asked: dict[str, None] = {}
        self._histories = histories
        self._number = 0
        self._followed_from: dict[str, int] = {}
        # As fine as Spark's.
        self._resolution = 1000

    def _follow(self, view: str) -> None:
        # That there is such a view.
        self._kinds(view)
        self._followed_from[view] = self._number

    def _rows(self, view: str) -> Sequence[ShownRow] | None:
        self.asked[view] = None
        if self._histories is None:
            return None
        held: dict[tuple[Any, ...], ShownRow | None] = {}
        for one in self._histories[view]:
            if one.number <= self._number:
                held[one.key] = one.row
        return [row for row in held.values() if row is not None]

    def _told(self, view: str) -> Sequence[tuple[ShownRow | None, ShownRow | None]] | None:
        self.asked[view] = None
        if self._histories is None:
            return None
        held: dict[tuple[Any, ...], ShownRow | None] = {}
        events = []
        for one in self._histories[view]:
            if one.number > self._followed_from[view]:
                events.append((held.get(one.key), one.row))
            held[one.key] = one.row
        return events

    def _changed(
        self, place: str, change: Callable[[], None], relation: str, *rows: tuple[Mapping[str, Any], bool]
    ) -> None:
        super()._changed(place, change, relation, *rows)
        self._number += 1
        columns, words = self._relations[relation].columns, self._engine.dictionary
        for row, insert in rows:
            values = []
            for column in columns:
                word = encode_value(column, row[column.name], words)
                values.append(None if row[column.name] is None else decoder(column.type, words)(word))
            self.changes.append(RowChange(self._number, relation, insert, tuple(values)))


def _named(place: str, given: Any, what: str) -> Iterator[tuple[str, Any]]:
    if not isinstance(given, Mapping):
        raise UserError(f"{place}: {what} names relations or views, as `{what}: {{bids: [{{…}}]}}`")
    yield from given.items()


def _listed(place: str, given: Any) -> list[Mapping[str, Any]]:
    rows = given if isinstance(given, list) else [given]
    if not all(isinstance(row, Mapping) for row in rows):
        raise UserError(f"{place}: rows are written as {{column: value, …}}, not as {rows!r:.60}")
    return rows


def _whole(relation: Relation, row: Mapping[str, Any], number: int, place: str) -> dict[str, Any]:
    """The row with the columns that are left out."""
    _check_names(place, row, [c.name for c in relation.columns], relation.name)
    return {c.name: row[c.name] if c.name in row else _default(relation, c, number) for c in relation.columns}


def _default(relation: Relation, column: Column, number: int) -> Any:
    if column.nullable:
        return None
    if column.type.kind is Kind.TEXT:
        return ""
    if column.type.kind is Kind.BOOLEAN:
        return False
    of_key = column.name in relation.primary_key and column.type.kind is Kind.INTEGER
    least = -(-column.type.low // 10**column.type.scale)
    return max(number if of_key else 0, least) if column.type.kind is not Kind.DOUBLE else 0.0


def _text(row: Mapping[str, Any] | None) -> str:
    return "no row" if row is None else " ".join(f"{name}={value_text(value)}" for name, value in row.items())


def _row_text(row: ShownRow | None, kinds: Mapping[str, Type], columns: Sequence[str] | None = None) -> str:
    if row is None:
        return "no row"
    parts = []
    for name, value in row.items():
        if columns is None or name in columns:
            is_time = kinds[name].kind is Kind.TIMESTAMP and isinstance(value, int)
            parts.append(f"{name}={moment_text(value) if is_time else value_text(value)}")
    return " ".join(parts)
