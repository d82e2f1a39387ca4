"""What `orderbook query` and `why` ask: a job, the log of a run, or a monitor that serves."""

import difflib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl

from engine.clients.queries import answered, planned
from engine.clients.snapshot import snapshot
from engine.subscriptions import Version
from orderbook.assembly import assemble
from orderbook.commands.common import configured
from orderbook.configuration import Configuration
from orderbook.configuration_errors import suggestion
from orderbook.errors import SourceError, SqlError, UserError
from orderbook.jobs import open_job
from orderbook.jobs.job import Job
from orderbook.past_states import LAST, log_folder, open_past_run

_SECONDS = 30
_MOST_BYTES = 1 << 28
# Keys that are named where one is not there.
_MOST_NEAR = 5


@dataclass(frozen=True, slots=True)
class QuerySource:
    """Where an answer is looked for, as the command line says it."""

    job: Path | None = None
    log: Path | None = None
    url: str | None = None
    config: Path | None = None

    def opened_job(self) -> Job | None:
        """The job that is asked; None: a log or a monitor is. Raises UserError for more than one of them."""
        given = [name for name in ("job", "log", "url") if getattr(self, name) is not None]
        if len(given) > 1:
            raise UserError(f"give one of {' and '.join(f'--{name}' for name in given)}")
        if self.job is not None:
            return open_job(self.job)
        if given or self.configuration().log.folder is not None:
            return None
        if not Path("job.json").exists():
            raise UserError(
                "nothing to ask: give --job DIR, --log FOLDER of a run, or --url of a monitor, "
                "or log.folder in the configuration"
            )
        return open_job(".")

    def configuration(self) -> Configuration:
        """The configuration of the run whose log is asked."""
        overrides: dict[str, object] = {} if self.log is None else {"log.folder": str(self.log.absolute())}
        return configured(self.config, (), (), overrides)


def query_log(
    configuration: Configuration, sql: str | None, view: str | None, key: Sequence[str], at: Version | None
) -> tuple[pl.DataFrame, str]:
    """What a query gives as of a version, of a run's log, and a line that says of which state it is.

    Raises SqlError, UserError, DataError, LogError.
    """
    program = assemble(configuration).program
    views = [result.name for result in program.program.results]
    plan = planned(program, sql if sql is not None else f'SELECT * FROM "{_known(views, view)}"')
    declared = {r.name for r in program.relations}
    past = open_past_run(configuration, at, keep_rows=not declared.isdisjoint(plan.reads))
    past.go_to((LAST, LAST, LAST) if at is None else at)
    frame = answered(plan, snapshot(past.engine, plan.reads))
    if key and view is not None:
        frame = _row(frame, [k.name for v in program.views if v.name == view for k in v.keys], key, view)
    since = "the log's beginning" if past.checkpoint is None else past.checkpoint.name
    used = f"; rewritten onto {', '.join(plan.instead)}" if plan.instead else ""
    version = ",".join(map(str, past.engine.version))
    return frame, f"as of {version}, from {since} of {log_folder(configuration)}{used}"


def _known(views: Sequence[str], view: str | None) -> str:
    assert view is not None
    if view not in views:
        raise UserError(f"no view is named {view!r}; {suggestion(view, views)}")
    return view


def _row(frame: pl.DataFrame, keys: Sequence[str], key: Sequence[str], view: str) -> pl.DataFrame:
    if len(key) != len(keys):
        wanted = ", ".join(keys) or "none, for it has one row"
        raise UserError(f"view {view}: {len(key)} values are no key of it; its keys are {wanted}")
    for name in keys:
        if name not in frame.columns:
            raise UserError(f'view {view} does not show its key {name}; ask "SELECT … WHERE …"')
    equal = (pl.col(name).cast(pl.String) == value for name, value in zip(keys, key, strict=True))
    found = frame.filter(pl.all_horizontal(pl.lit(True), *equal))
    if found.is_empty() and keys:
        raise no_row(view, keys, key, frame)
    return found


def no_row(view: str, keys: Sequence[str], key: Sequence[str], rows: pl.DataFrame) -> UserError:
    """That none of a view's rows has a key, with the nearest that are there; `rows` are all as of then."""
    if rows.is_empty():
        return UserError(f"view {view}: no row has the key {' '.join(key)}, for it has no rows as of then")
    own = [name for name in keys if name in rows.columns]
    texts = rows.select(pl.col(name).cast(pl.String).fill_null("NULL") for name in own).unique()
    known = [" ".join(row) for row in texts.sort(own).rows()]
    near = difflib.get_close_matches(" ".join(key), known, _MOST_NEAR) or known[:_MOST_NEAR]
    more = ", …" if len(known) > len(near) else ""
    return UserError(
        f"view {view}: no row has the key {' '.join(key)}; the nearest of {len(known):,} are "
        f"{', '.join(near)}{more}"
    )


def remote_query(url: str, sql: str) -> pl.DataFrame:
    """What a query gives at a monitor, as text where it must be exact. Raises SqlError, SourceError."""
    from websockets.exceptions import WebSocketException
    from websockets.sync.client import connect

    try:
        with connect(_socket(url), open_timeout=_SECONDS, max_size=_MOST_BYTES) as socket:
            socket.send(json.dumps({"id": 1, "op": "sql", "sql": sql}))
            while True:
                answer = json.loads(socket.recv(timeout=_SECONDS))
                if answer.get("id") == 1 or answer.get("type") == "error":
                    break
    except (OSError, WebSocketException, TimeoutError, ValueError) as error:
        raise SourceError(f"{url}: no answer: {error or type(error).__name__}; is a monitor there?") from None
    if answer.get("type") != "table":
        raise SqlError(str(answer.get("error", "no table came")))
    return _frame(answer)


def _socket(url: str) -> str:
    """http://HOST:PORT is where people see a monitor; its socket is /ws there."""
    start, separator, rest = url.partition("://")
    if not separator or start not in ("http", "https", "ws", "wss"):
        raise UserError(f"--url {url}: expected ws://HOST:PORT, or http:// of the monitor's page")
    scheme = {"http": "ws", "https": "wss"}.get(start, start)
    rest = rest.rstrip("/")
    return f"{scheme}://{rest}" if "/" in rest else f"{scheme}://{rest}/ws"


def _frame(answer: dict[str, Any]) -> pl.DataFrame:
    names = [name for name, _ in answer["columns"]]
    columns = {name: [row[place] for row in answer["rows"]] for place, name in enumerate(names)}
    return pl.DataFrame({name: pl.Series(name, values, strict=False) for name, values in columns.items()})
