"""Why a view's rows are as they are after one event: what it changed, step by step, and what followed.

What one event did to the maps of a view: the statements that ran, and the entries they read and wrote.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

from orderbook.core.changes import ChangeBatch, Dictionary, Word
from orderbook.core.errors import UserError, visible_lines
from orderbook.durability.past_states import PastRun, Reached
from orderbook.engine.runtime.interface import Runtime
from orderbook.engine.runtime.interpreter import Interpreter, InterpreterRuntime, Number
from orderbook.engine.runtime.live_view import Key, ViewRow
from orderbook.engine.runtime.subscriptions import Version, ViewEvent
from orderbook.operations.summary import callback_text, fill_text, key_text, order_text, values_text
from orderbook.operations.view_parts import part_of
from orderbook.strategies.execution.client import LoggedRequest
from orderbook.views.encoding.values import decoder, unpack
from orderbook.views.m3 import Program, Statement, statement_text
from orderbook.views.program import CompiledProgram
from orderbook.views.types import Type

EntryKey = tuple[Word, ...]
Value = int | Fraction


@dataclass(slots=True)
class StatementTrace:
    """A statement that ran: entries read, by map and key, and written, before and after (0: none)."""

    statement: Statement
    reads: dict[tuple[str, EntryKey], Number] = field(default_factory=dict)
    writes: dict[EntryKey, tuple[Value, Value]] = field(default_factory=dict)


@dataclass(slots=True)
class ChangeTrace:
    """One changed row, by relation, and the statements that ran for it, in their order."""

    relation: str
    insert: bool
    row: EntryKey
    statements: list[StatementTrace] = field(default_factory=list)


class StatementTracer:
    """A Tracer: notes what each statement reads and writes in `statements`."""

    def __init__(self) -> None:
        self.statements: list[StatementTrace] = []
        self._at: StatementTrace | None = None

    def begin(self, statement: Statement) -> None:
        """See Tracer."""
        self._at = StatementTrace(statement)
        self.statements.append(self._at)

    def read(self, name: str, key: EntryKey, value: Number) -> None:
        """See Tracer."""
        if self._at is not None:
            self._at.reads[name, key] = value

    def end(self, held: Mapping[EntryKey, Value], changes: Mapping[EntryKey, Value]) -> None:
        """See Tracer."""
        self.statements[-1].writes = {
            key: (held.get(key, 0), held.get(key, 0) + change) for key, change in changes.items() if change
        }
        self._at = None

    def assigned(self, before: Mapping[EntryKey, Value], after: Mapping[EntryKey, Value]) -> None:
        """See Tracer."""
        changed = [key for key in {**before, **after} if before.get(key, 0) != after.get(key, 0)]
        self.statements[-1].writes = {key: (before.get(key, 0), after.get(key, 0)) for key in changed}


def trace(
    program: Program, dictionary: Dictionary, held: Runtime, changes: ChangeBatch, maps: Collection[str]
) -> list[ChangeTrace]:
    """Applies one event's changes to a copy of what a runtime holds, and notes what they do to these maps.

    Several statements of a trigger that add to one entry read it as it was before them all.
    """
    tracer = StatementTracer()
    interpreter = Interpreter(program, dictionary, tracer)
    InterpreterRuntime(program, dictionary, interpreter).restore(held.copied(), None)
    found = []

    def traced(relation: str, insert: bool, row: EntryKey) -> None:
        change = ChangeTrace(relation, insert, row)
        tracer.statements.clear()
        interpreter.change(relation, insert, row)
        change.statements = [one for one in tracer.statements if one.statement.target in maps]
        found.append(change)

    for kind, codes in zip(changes.kinds.tolist(), changes.values.tolist(), strict=True):
        if kind >= 0:
            relation = program.relations[kind >> 1]
            traced(relation.name, not kind & 1, unpack(relation, codes))
    interpreter.follow(traced)
    return found


_SHOWN_ENTRIES = 12
_SHOWN_ROWS = 20


@dataclass(slots=True)
class Why:
    """What one event did to a view, and what followed from it.

    Without `changes` there was no event: callbacks that had waited were told, since the books behind their
    rows became valid.

    changes: the rows it changed, and the statements that ran for each on maps of the view, with what they
    read and wrote. rows: those of the view that it changed, by key: before and after (None: no row).
    callbacks: what subscriptions were told at the event, or at the end of its message. requests: what
    strategies asked for then. orders, fills: rows of orders and fills that followed.
    """

    view: str
    version: Version
    changes: list[ChangeTrace] = field(default_factory=list)
    rows: dict[Key, tuple[ViewRow | None, ViewRow | None]] = field(default_factory=dict)
    callbacks: list[ViewEvent] = field(default_factory=list)
    requests: list[LoggedRequest] = field(default_factory=list)
    orders: list[Mapping[str, Any]] = field(default_factory=list)
    fills: list[Mapping[str, Any]] = field(default_factory=list)


class Explanation:
    """Collects a Why while a past run goes to the event.

    Raises UserError for a version at which there was no event, DataError for a view that is not there.
    """

    def __init__(self, past: PastRun, view: str, version: Version) -> None:
        past.engine[view]
        self._past, self._version = past, version
        self._why = Why(view, version)
        self._maps = {m.name for m in part_of(past.engine.program.program, view).maps}
        self._before: dict[Key, ViewRow] = {}
        self._step = -1

    def found(self) -> Why:
        """Goes to the event, and to the end of its message."""
        past, engine, version = self._past, self._past.engine, self._version
        for entry in past.items(version):
            here = past.place(entry) == version[:2]
            first = engine.version[2] + 1
            if here:
                past.stop.look_at(version[2], self._look, self._compare)
                engine.observe(callback=self._called, order=self._ordered, fill=self._filled)
            try:
                past.apply(entry)
            except Reached:
                break
            if here and self._step < 0:
                raise self._missing(first)
        if self._step < 0:
            raise self._missing(None)
        self._finish()
        return self._why

    def _look(self, changes: ChangeBatch) -> None:
        """The event is about to be applied."""
        engine, why = self._past.engine, self._why
        program = engine.program
        self._step = self._past.pipeline.host.step
        self._before = dict(engine[why.view].items())
        why.changes += trace(program.program, program.dictionary, engine.runtime, changes, self._maps)

    def _called(self, event: ViewEvent) -> None:
        why = self._why
        if self._step < 0 and event.version == self._version:
            # Held back until now: there will be no event of this version.
            self._step = self._past.pipeline.host.step
        if self._step >= 0 and not why.changes and event.view == why.view:
            before, _ = why.rows.get(event.key, (event.old, None))
            why.rows[event.key] = before, event.new
        why.callbacks += [event] if self._step >= 0 else []

    def _ordered(self, row: Mapping[str, Any]) -> None:
        self._why.orders += [row] if self._step >= 0 else []

    def _filled(self, row: Mapping[str, Any]) -> None:
        self._why.fills += [row] if self._step >= 0 else []

    def _compare(self) -> None:
        """The event has been applied, and nothing after it."""
        after = dict(self._past.engine[self._why.view].items())
        for key in {**self._before, **after}:
            old, new = self._before.get(key), after.get(key)
            if old != new:
                self._why.rows[key] = old, new

    def _finish(self) -> None:
        asked = self._past.requests.get(self._version[0], ())
        self._why.requests += [one for one in asked if self._step <= one.step <= self._step + 2]

    def _missing(self, first: int | None) -> UserError:
        stamp, switch, sequence = self._version
        what = f"no event has the version {stamp},{switch},{sequence}"
        if first is None:
            return UserError(f"{what}; the log has nothing of that stamp and switch")
        if sequence == first - 1:
            return UserError(f"{what}; nothing changed then, and what was told had waited for its books")
        last = self._past.engine.version[2]
        if last < first:
            return UserError(f"{what}; what came then changed nothing")
        return UserError(f"{what}; that stamp and switch has the sequence numbers {first} to {last}")


def why_figures(why: Why, key: Sequence[str] = ()) -> dict[str, Any]:
    """A Why for scripts: the rows before and after, and what followed; with a key, only that row."""
    rows = {k: pair for k, pair in why.rows.items() if not key or tuple(map(_plain, k)) == tuple(key)}
    return {
        "view": why.view,
        "version": list(why.version),
        "rows": [
            {
                "key": list(k),
                "before": None if a is None else dict(a),
                "after": None if b is None else dict(b),
            }
            for k, (a, b) in rows.items()
        ],
        "callbacks": len(why.callbacks),
        "orders": [dict(row) for row in why.orders],
        "fills": [dict(row) for row in why.fills],
    }


def why_text(why: Why, program: CompiledProgram, key: Sequence[str] = ()) -> str:
    """A Why for people; with a key, only that row of the view."""
    lines = [f"{why.view} at {','.join(map(str, why.version))}", ""]
    if not why.changes:
        lines += ["no event: what had been held back was told, since the books behind it became valid", ""]
    for change in why.changes:
        lines += _change_lines(change, program)
    rows = {k: pair for k, pair in why.rows.items() if not key or tuple(map(_plain, k)) == tuple(key)}
    lines += [f"{len(rows)} row{'' if len(rows) == 1 else 's'} of {why.view} changed"]
    if why.callbacks and not why.rows:
        lines += ["  the callbacks at the end of its message are of an event before it"]
    for row_key, pair in list(rows.items())[:_SHOWN_ROWS]:
        lines += [f"  {key_text(row_key)}".rstrip()]
        lines += [f"    before {_row_text(pair[0])}", f"    after  {_row_text(pair[1])}"]
    if len(rows) > _SHOWN_ROWS:
        lines += [f"  … {len(rows) - _SHOWN_ROWS} more; choose one with --key"]
    followed = [
        *(f"callback {callback_text(event)}" for event in why.callbacks),
        *(f"asked {_request_text(one)}" for one in why.requests),
        *(f"order {order_text(row)}" for row in why.orders),
        *(f"fill {fill_text(row)}" for row in why.fills),
    ]
    lines += ["", *(followed or ["no callback and no order followed"])]
    return visible_lines(lines) + "\n"


def _change_lines(change: ChangeTrace, program: CompiledProgram) -> Iterator[str]:
    relation = program.program.relation(change.relation)
    values = (
        f"{c.name}={_plain(decoder(c.type, program.dictionary)(w))}"
        for c, w in zip(relation.columns, change.row, strict=True)
    )
    yield f"{'+' if change.insert else '-'} {change.relation}({', '.join(values)})"
    for ran in change.statements:
        yield f"    {statement_text(ran.statement)}"
        reads = {(name, key): _value(value) for (name, key), value in ran.reads.items()}
        yield from _entry_lines("read ", reads, program)
        target = ran.statement.target
        writes = {(target, key): f"{_value(a)} -> {_value(b)}" for key, (a, b) in ran.writes.items()}
        yield from _entry_lines("wrote", writes, program)
    if not change.statements:
        yield "    no statement of the view's maps ran"
    yield ""


def _entry_lines(
    what: str, entries: Mapping[tuple[str, tuple[Word, ...]], str], program: CompiledProgram
) -> Iterator[str]:
    for (name, key), text in list(entries.items())[:_SHOWN_ENTRIES]:
        types = program.program.map(name).key_types
        words = (_word(w, t, program) for w, t in zip(key, types, strict=True))
        yield f"        {what} {name}[{', '.join(words)}] {text}"
    if len(entries) > _SHOWN_ENTRIES:
        yield f"        {what} … {len(entries) - _SHOWN_ENTRIES} more"


def _word(word: Word, kind: Type, program: CompiledProgram) -> str:
    return _plain(decoder(kind, program.dictionary)(word))


def _value(value: object) -> str:
    """A map's value: scaled where it is exact, as M3 computes with it."""
    return str(float(value)) if isinstance(value, Fraction) else str(value)


def _row_text(row: ViewRow | None) -> str:
    return "no row" if row is None else values_text(row)


def _request_text(request: LoggedRequest) -> str:
    what = f"{request.strategy}: {request.kind} {request.id}"
    if request.kind != "order":
        return what
    price = "market" if request.price is None else request.price
    return f"{what}: {request.side} {request.volume} {request.symbol} at {price}"


def _plain(value: object) -> str:
    return "NULL" if value is None else str(value)
