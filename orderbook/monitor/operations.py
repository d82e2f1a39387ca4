"""What clients ask of the run once: SQL, explain, views added and dropped, rules."""

import asyncio
import time
from collections.abc import Callable, Coroutine
from decimal import Decimal
from typing import Any

import polars as pl

from engine.clients.queries import answer_async
from engine.replacement import Replacement
from orderbook.configuration import Configuration
from orderbook.errors import DataError, OrderbookError
from orderbook.gate import GatedEngine
from orderbook.monitor.alerts import Alerts
from orderbook.monitor.explain_question import ExplainQuestion
from orderbook.monitor.follows import Replacing, is_followed
from orderbook.monitor.letters import Answer, Ask, body_of
from orderbook.monitor.log_questions import CostQuestion, EventQuestion
from orderbook.monitor.mailbox import Mailbox
from orderbook.monitor.question_process import answer_of
from orderbook.monitor.requests import (
    AddView,
    Costs,
    DropView,
    Explain,
    QuerySql,
    Rules,
    SetRule,
    Why,
    version_of,
    wire_version,
)
from orderbook.monitor.values import wire_value
from views.compiler.program import CompiledProgram

# Rows of an answer to SQL.
MOST_ROWS = 1_000
_REPLACED_SECONDS = 0.02


class Operations:
    """Answers requests in the run's event loop; what takes long goes on beside it."""

    def __init__(
        self,
        configuration: Configuration,
        engine: GatedEngine,
        mailbox: Mailbox,
        alerts: Alerts,
        replacing: Replacing,
    ) -> None:
        self._engine, self._mailbox, self._alerts, self._replacing = engine, mailbox, alerts, replacing
        self._configuration = configuration
        self._tasks: set[asyncio.Task[None]] = set()
        # One query and one explanation at a time, whoever asks.
        self._querying, self._explaining = asyncio.Lock(), asyncio.Lock()
        self._explained: dict[str, tuple[CompiledProgram, dict[str, Any]]] = {}

    def ask(self, ask: Ask) -> None:
        """Answer a request, now or later."""
        request = ask.request
        match request:
            case QuerySql():
                self._later(ask, self._query(request.sql))
            case Explain():
                self._later(ask, self._explain(request.view))
            case Why():
                self._later(ask, self._why(request))
            case Costs():
                self._later(ask, self._costs())
            case AddView():
                self._now(ask, lambda: self._replaced(ask, self._add_view(request.sql)))
            case DropView():
                self._now(ask, lambda: self._replaced(ask, self._drop(request.view)))
            case Rules():
                self._answer(ask, {"type": "rules", "rules": self._alerts.told()})
            case SetRule():
                self._now(ask, lambda: self._set_rule(ask, request))

    def close(self) -> None:
        """Give up what is under way."""
        for task in self._tasks:
            task.cancel()

    def _add_view(self, sql: str) -> Replacement:
        return self._engine.add_view(sql, background=True)

    def _drop(self, view: str) -> Replacement:
        if is_followed(view):
            raise DataError(f"{view} belongs to a continuous query; unsubscribe that")
        return self._engine.drop_view(view, background=True)

    def _set_rule(self, ask: Ask, request: SetRule) -> None:
        rule = request.rule
        if rule.when is None:
            self._alerts.end(rule.name)
        else:
            self._alerts.begin(rule)
        self._answer(ask, {"type": "done"})

    def _replaced(self, ask: Ask, replacement: Replacement) -> None:
        self._replacing.wait(replacement)

        async def done() -> dict[str, Any]:
            while not replacement.done:
                await asyncio.sleep(_REPLACED_SECONDS)
            if replacement.error is not None:
                raise replacement.error
            return {"type": "done", "views": [v for v in self._engine.views if not is_followed(v)]}

        self._later(ask, done())

    async def _query(self, sql: str) -> dict[str, Any]:
        async with self._querying:
            start = time.monotonic()
            frame, version = await answer_async(self._engine, sql)
        return {
            "type": "table",
            "columns": [(name, _type_name(kind)) for name, kind in frame.schema.items()],
            "rows": _rows(frame.head(MOST_ROWS)),
            "count": len(frame),
            "truncated": len(frame) > MOST_ROWS,
            "version": wire_version(version),
            "seconds": round(time.monotonic() - start, 6),
        }

    async def _explain(self, view: str) -> dict[str, Any]:
        self._engine[view]
        async with self._explaining:
            program = self._engine.program
            known = self._explained.get(view)
            if known is None or known[0] is not program:
                known = program, await answer_of(ExplainQuestion(program.source, view))
                self._explained = {v: k for v, k in self._explained.items() if k[0] is program}
                self._explained[view] = known
        return {"type": "explain", "view": view, **known[1]}

    async def _why(self, request: Why) -> dict[str, Any]:
        self._engine[request.view]
        question = EventQuestion(self._configuration, request.view, version_of(request.at))
        async with self._explaining:
            answer = await answer_of(question)
        return {"type": "why", "view": request.view, "version": request.at, **answer}

    async def _costs(self) -> dict[str, Any]:
        question = CostQuestion(self._configuration, self._engine.version[0])
        async with self._explaining:
            return {"type": "costs", **await answer_of(question)}

    def _now(self, ask: Ask, action: Callable[[], None]) -> None:
        try:
            action()
        except OrderbookError as error:
            self._answer(ask, {"type": "error", "error": str(error)})

    def _later(self, ask: Ask, answer: Coroutine[Any, Any, dict[str, Any]]) -> None:
        async def answered() -> None:
            try:
                message = await answer
            except OrderbookError as error:
                message = {"type": "error", "error": str(error)}
            except Exception as error:
                message = {"type": "error", "error": f"{type(error).__name__}: {error}"}
            self._answer(ask, message)
            self._mailbox.flush()

        task = asyncio.get_running_loop().create_task(answered())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _answer(self, ask: Ask, message: dict[str, Any]) -> None:
        # A client whose answer finds no room is too far behind to wait for it.
        self._mailbox.post(Answer(ask.client, ask.request.id, body_of(message)))


def _type_name(kind: pl.DataType) -> str:
    if kind.is_decimal():
        return "decimal"
    if kind.is_integer():
        return "integer"
    if kind.is_float():
        return "double"
    if kind == pl.Boolean:
        return "boolean"
    return "timestamp" if isinstance(kind, pl.Datetime) else "text"


def _rows(frame: pl.DataFrame) -> list[list[Any]]:
    """Rows as messages have them; times as text of ns."""
    names = [name for name, kind in frame.schema.items() if isinstance(kind, pl.Datetime)]
    times = [pl.col(name).dt.epoch("ns").cast(pl.String) for name in names]
    plain = frame.with_columns(times) if times else frame
    return [[wire_value(_plain(value)) for value in row] for row in plain.rows()]


def _plain(value: Any) -> Any:
    """A value that JSON has, or a decimal."""
    return value if value is None or isinstance(value, bool | int | float | str | Decimal) else str(value)
