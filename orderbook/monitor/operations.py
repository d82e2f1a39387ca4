"""What clients ask of the run once: SQL, explain, views added and dropped, rules, and to halt."""

import asyncio
from base64 import b64encode
from collections.abc import Callable, Coroutine
from typing import Any

from orderbook.alerts.run_alerts import RunAlerts
from orderbook.clients.queries import readable_schemas
from orderbook.configuration.configuration import Configuration
from orderbook.core.errors import DataError, OrderbookError
from orderbook.engine.runtime.program_replacement import Replacement
from orderbook.monitor.alerts import Alerts
from orderbook.monitor.continuous_queries import Replacing, work_limits
from orderbook.monitor.messages import (
    Acknowledge,
    AddView,
    Answer,
    Ask,
    Cancel,
    Costs,
    DropView,
    EndSilence,
    Explain,
    Halt,
    ListAlerts,
    ListTables,
    QueryArrow,
    QuerySql,
    Rules,
    SetRule,
    SilenceAlerts,
    Why,
    body_of,
    is_followed,
    version_of,
)
from orderbook.monitor.publisher import Mailbox
from orderbook.monitor.query_pool import FairQueue, QueryPool
from orderbook.monitor.questions import CostQuestion, EventQuestion, ExplainQuestion, answer_of
from orderbook.strategies.gated_engine import GatedEngine
from orderbook.views.library import files_by_name
from orderbook.views.program import CompiledProgram

_REPLACED_SECONDS = 0.02

AlertRequest = ListAlerts | Acknowledge | SilenceAlerts | EndSilence

# An answer, or one that is encoded already.
Message = dict[str, Any] | bytes


class Operations:
    """Answers requests in the run's event loop; what takes long goes on beside it."""

    def __init__(
        self,
        configuration: Configuration,
        engine: GatedEngine,
        mailbox: Mailbox,
        alerts: Alerts,
        replacing: Replacing,
        waited: Callable[[], float],
        halt: Callable[[bool, str], Coroutine[Any, Any, dict[str, Any]]],
        run_alerts: RunAlerts | None = None,
    ) -> None:
        """waited: see Share. halt: pulls or releases the kill switch, and says what that did."""
        self._halt, self._run_alerts = halt, run_alerts
        self._engine, self._mailbox, self._alerts, self._replacing = engine, mailbox, alerts, replacing
        self._configuration = configuration
        self._tasks: set[asyncio.Task[None]] = set()
        # Those that can be cancelled, by client and id.
        self._cancellable: dict[tuple[int, int], asyncio.Task[None]] = {}
        self._limits = work_limits(configuration.queries)
        self._queries = QueryPool(engine, configuration.queries, waited)
        # One explanation at a time, whoever asks.
        self._explaining = FairQueue(1)
        self._explained: dict[str, tuple[CompiledProgram, dict[str, Any]]] = {}

    def ask(self, ask: Ask) -> None:
        """Answer a request, now or later."""
        request = ask.request
        match request:
            case QuerySql() | QueryArrow():
                self._cancellable_later(ask, self._queries.answer(ask.client, request))
            case Explain():
                self._cancellable_later(ask, self._explain(ask.client, request.view))
            case Why():
                self._cancellable_later(ask, self._why(ask.client, request))
            case Costs():
                self._cancellable_later(ask, self._costs(ask.client))
            case ListTables():
                self._now(ask, lambda: self._answer(ask, self._tables()))
            case Cancel():
                self._cancel((ask.client, request.request))
            case AddView():
                self._now(ask, lambda: self._replaced(ask, self._add_view(request.sql)))
            case DropView():
                self._now(ask, lambda: self._replaced(ask, self._drop(request.view)))
            case Rules():
                self._answer(ask, {"type": "rules", "rules": self._alerts.told()})
            case Halt():
                self._later(ask, self._halt(request.halted, request.reason))
            case SetRule():
                self._now(ask, lambda: self._set_rule(ask, request))
            case ListAlerts() | Acknowledge() | SilenceAlerts() | EndSilence():
                self._later(ask, self._of_alerts(request))

    async def _of_alerts(self, request: AlertRequest) -> dict[str, Any]:
        """What is asked of the configuration's alerts; their own thread does it."""
        alerts = self._run_alerts
        if not alerts:
            raise DataError("the run has no alerts: declare them in its configuration, [alerts.NAME]")
        match request:
            case ListAlerts():
                listed = await asyncio.wrap_future(alerts.listed())
                return {"type": "alerts", **listed}
            case Acknowledge():
                count = await asyncio.wrap_future(alerts.acknowledge(request.alert, request.by))
                return {"type": "done", "acknowledged": count}
            case SilenceAlerts():
                asked = alerts.silence(request.alert, request.match, request.seconds, request.by)
                silence = await asyncio.wrap_future(asked)
                return {"type": "done", **silence}
            case EndSilence():
                await asyncio.wrap_future(alerts.end_silence(request.silence))
                return {"type": "done"}

    def leave(self, client: int) -> None:
        """A client has gone: give up what it waited for."""
        for key in [key for key in self._cancellable if key[0] == client]:
            self._cancel(key)
        self._queries.leave(client)
        self._explaining.leave(client)

    def close(self) -> None:
        """Give up what is under way."""
        for task in self._tasks:
            task.cancel()
        self._queries.close()

    def _add_view(self, sql: str) -> Replacement:
        name = sql.strip()
        # Several lines are never the name of a file.
        text = name if name in files_by_name(()) else f"{sql}\n"
        return self._engine.add_view(text, background=True, limits=self._limits)

    def _drop(self, view: str) -> Replacement:
        if is_followed(view):
            raise DataError(f"{view} belongs to a continuous query; unsubscribe that")
        return self._engine.drop_view(view, background=True, limits=self._limits)

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

    def _tables(self) -> dict[str, Any]:
        """What can be read, and its columns: a schema of Arrow, as text."""
        found = readable_schemas(self._engine, [v for v in self._engine.views if not is_followed(v)])
        tables = {name: b64encode(schema.serialize()).decode() for name, schema in found.items()}
        return {"type": "tables", "tables": tables}

    async def _explain(self, client: int, view: str) -> dict[str, Any]:
        self._engine[view]
        async with self._explaining.turn(client):
            program = self._engine.program
            known = self._explained.get(view)
            if known is None or known[0] is not program:
                known = program, await answer_of(ExplainQuestion(program.source, view))
                self._explained = {v: k for v, k in self._explained.items() if k[0] is program}
                self._explained[view] = known
        return {"type": "explain", "view": view, **known[1]}

    async def _why(self, client: int, request: Why) -> dict[str, Any]:
        self._engine[request.view]
        question = EventQuestion(self._configuration, request.view, version_of(request.at))
        async with self._explaining.turn(client):
            answer = await answer_of(question)
        return {"type": "why", "view": request.view, "version": request.at, **answer}

    async def _costs(self, client: int) -> dict[str, Any]:
        question = CostQuestion(self._configuration, self._engine.version[0])
        async with self._explaining.turn(client):
            return {"type": "costs", **await answer_of(question)}

    def _now(self, ask: Ask, action: Callable[[], None]) -> None:
        try:
            action()
        except OrderbookError as error:
            self._answer(ask, {"type": "error", "error": str(error)})

    def _cancel(self, key: tuple[int, int]) -> None:
        if (task := self._cancellable.get(key)) is not None:
            # Not before it has begun, so that it answers.
            asyncio.get_running_loop().call_soon(task.cancel)

    def _cancellable_later(self, ask: Ask, answer: Coroutine[Any, Any, Message]) -> None:
        key = ask.client, ask.request.id
        self._cancellable[key] = task = self._later(ask, answer)
        task.add_done_callback(lambda _: self._cancellable.pop(key, None))

    def _later(self, ask: Ask, answer: Coroutine[Any, Any, Message]) -> asyncio.Task[None]:
        async def answered() -> None:
            message: Message
            try:
                message = await answer
            except OrderbookError as error:
                message = {"type": "error", "error": str(error)}
            except asyncio.CancelledError:
                self._answer(ask, {"type": "error", "error": "the request was cancelled"})
                self._mailbox.flush()
                raise
            except Exception as error:
                message = {"type": "error", "error": f"{type(error).__name__}: {error}"}
            self._answer(ask, message)
            self._mailbox.flush()

        task = asyncio.get_running_loop().create_task(answered())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    def _answer(self, ask: Ask, message: Message) -> None:
        body = message if isinstance(message, bytes) else body_of(message)
        # A client whose answer finds no room is too far behind to wait for it.
        self._mailbox.post(Answer(ask.client, ask.request.id, body))
