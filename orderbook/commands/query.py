"""`orderbook query`: rows of views as of a version, by key or by SQL: of a job, a run's log or a monitor.

`orderbook why`: what one event of a run's log did to a view, and what followed. `orderbook compare`: jobs
beside each other.
"""

import difflib
import json
import math
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any

import polars as pl
from rich.console import Console

from orderbook.clients.queries import answered, planned, snapshot
from orderbook.commands.asking import socket_address
from orderbook.commands.common import configured
from orderbook.configuration.configuration import Configuration
from orderbook.core.errors import SourceError, SqlError, UserError, suggestion, visible, visible_lines
from orderbook.core.summaries import is_collected, told, write_json
from orderbook.durability.past_states import LAST, log_folder, open_past_run
from orderbook.engine.runtime.subscriptions import Version
from orderbook.feeds.storage import place
from orderbook.jobs.datasets import PARTITION_KEY, PLACE, VERSION_COLUMNS, JobVersion
from orderbook.jobs.folder import Manifest
from orderbook.jobs.job import Job, open_job
from orderbook.operations.why import Explanation, why_figures, why_text
from orderbook.report.comparison import (
    counterparts,
    difference,
    difference_lines,
    figures,
    figures_table,
    job_names,
    renamed,
)
from orderbook.report.results import report_of
from orderbook.run.assembly import assemble
from orderbook.strategies.execution.account import OrderUpdate, StrategySummary, row_of
from orderbook.strategies.runner import Runner

_SECONDS = 30
_MOST_BYTES = 1 << 28
_LOG = "log:"
# Position, fees and profit.
_Money = tuple[Decimal | float, Decimal | float, Decimal | float | None]
_NOTHING: _Money = (0, 0, 0)
# Money that doubles may be off by.
_CENT = 1e-6
# Keys that are named where one is not there.
_MOST_NEAR = 5


@dataclass(frozen=True, slots=True)
class QuerySource:
    """Where an answer is looked for, as the command line says it."""

    job: str | None = None
    log: Path | None = None
    url: str | None = None
    config: Path | None = None
    token: str = ""

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


def compare(
    given: Sequence[str],
    out: Path | None,
    config: Path | None = None,
    views: Sequence[str] = (),
    strategies: Sequence[str] = (),
    sets: Sequence[str] = (),
) -> bool:
    """Prints figures of several jobs, and the orders and fills in which they differ from the first, which may
    be a session's log; then the money, too. Whether all is equal to what the log has; True of jobs alone.

    Raises UserError for fewer than two, for one without strategies, and for a log elsewhere.
    """
    if len(given) < 2:
        raise UserError("compare takes two jobs or more")
    if any(one.startswith(_LOG) for one in given[1:]) or (given[0].startswith(_LOG) and out is not None):
        raise UserError("compare takes a log in the first place, before jobs, and without --out")
    folders = [place(one) for one in given if not one.startswith(_LOG)]
    names = job_names(folders)
    if given[0].startswith(_LOG):
        folder = Path(given[0].removeprefix(_LOG)).absolute()
        session = _session(configured(config, views, strategies, {"log.folder": str(folder)}, sets=sets))
        lines: dict[str, list[str]] = {}
        equal = True
        for name, job in zip(names, map(open_job, folders), strict=True):
            lines[name], alike = session.differences(given[0], name, job)
            equal = equal and alike
            for line in lines[name]:
                print(visible(line))
        told(differences=lines)
        return equal
    jobs = dict(zip(names, map(open_job, folders), strict=True))
    numbers = figures(jobs)
    if out is not None:
        _write(numbers, out)
        return True
    console = Console(highlight=False, soft_wrap=True)
    console.print(figures_table(numbers))
    first = jobs[names[0]]
    lines = {}
    for name in names[1:]:
        console.print()
        same = counterparts(first, jobs[name])
        lines[name] = [f"{own} of {names[0]} is compared with {one} of {name}" for one, own in same.items()]
        for what, own, other in (
            ("changes of orders", first.order_changes(), jobs[name].order_changes()),
            ("fills", first.fills(), jobs[name].fills()),
        ):
            found = difference(own, renamed(other, same))
            lines[name] += difference_lines(what, (names[0], name), found)
        for line in lines[name]:
            console.print(visible(line), markup=False)
    told(figures=numbers.to_dicts(), differences=lines)
    for job in jobs.values():
        warn_incomplete(job.manifest)
    return True


class _Session:
    """What became of the orders of a run by its log alone: what strategies asked for is taken from there."""

    def __init__(self) -> None:
        self.rows: dict[str, list[dict[str, Any]]] = {"orders": [], "fills": []}
        self.summaries: tuple[StrategySummary, ...] = ()
        self.forgetful: set[str] = set()

    def note(self, runner: Runner, update: OrderUpdate) -> None:
        """An order has changed."""
        own = {PARTITION_KEY: runner.key}
        self.rows["orders"].append(row_of(update.new) | own)
        self.rows["fills"] += [row_of(fill) | own for fill in update.fills]

    def differences(self, name: str, other: str, job: Job) -> tuple[list[str], bool]:
        """Lines that say in what a job differs, and whether it does in nothing."""
        lines, alike, others = list[str](), True, set[str]()
        for what, dataset, found in (
            ("changes of orders", "orders", job.order_changes()),
            ("fills", "fills", job.fills()),
        ):
            plain = found.drop(*VERSION_COLUMNS, PLACE)
            own = pl.DataFrame(self.rows[dataset], plain.schema | {"ts": pl.Int64}, strict=False)
            own = (
                own.select(plain.columns)
                .with_columns(pl.col("ts").cast(pl.Datetime("ns")))
                .cast(plain.schema)
            )
            apart = difference(own, plain)
            alike = alike and apart.first.is_empty() and apart.second.is_empty()
            lines += difference_lines(what, (name, other), apart)
            others.update(*(rows["strategy"] for rows in (apart.first, apart.second)))
        lines += [
            f"{one} has no on_save: what it knew ended with each process of the session, not in the backtest"
            for one in sorted(others & self.forgetful)
        ]
        report = report_of(job)
        made: dict[tuple[str | None, ...], _Money] = {
            (one.strategy, one.venue, one.symbol): (one.position, one.fees, one.profit)
            for of_one in report.statistics.values()
            for one in of_one[1:]
        }
        held: dict[tuple[str | None, ...], _Money] = {
            (summary.name, one.venue, one.symbol): (one.position, one.fees, one.profit)
            for summary in self.summaries
            for one in summary.positions
        }
        equal = 0
        for key in dict.fromkeys((*held, *made)):
            pairs = list(zip(held.get(key, _NOTHING), made.get(key, _NOTHING), strict=True))
            if all(_alike(one, value) for one, value in pairs):
                equal += 1
            else:
                told = ", ".join(
                    f"{what} {one} and {value:.10g}"
                    for what, (one, value) in zip(("position", "fees", "profit"), pairs, strict=True)
                )
                lines.append(f"money: {' '.join(map(str, key))}: {told}")
        count = len({*held, *made})
        lines.append(f"money: position, fees and profit are equal in {equal:,} of {count:,} instruments")
        return lines, alike and equal == count


def _alike(one: Decimal | float | None, other: Decimal | float | None) -> bool:
    """Whether two amounts are equal, as far as both are known."""
    return one is None or other is None or math.isclose(one, other, abs_tol=_CENT)


def _session(configuration: Configuration) -> _Session:
    """Raises UserError and SourceError where there is no log, or its beginning is gone."""
    past, session = open_past_run(configuration, (0, 0, 0)), _Session()
    past.pipeline.host.observe_orders(session.note)
    past.go_to((LAST, LAST, LAST))
    host = past.pipeline.host
    session.summaries, session.forgetful = host.summary(), host.forgetful
    return session


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


def remote_query(url: str, sql: str, token: str = "") -> pl.DataFrame:
    """What a query gives at a monitor. Raises SqlError, SourceError, UserError for a URL that is none."""
    from websockets.exceptions import WebSocketException
    from websockets.sync.client import connect

    try:
        with connect(socket_address(url, token), open_timeout=_SECONDS, max_size=_MOST_BYTES) as socket:
            socket.send(json.dumps({"id": 1, "op": "sql", "sql": sql, "whole": True}))
            while True:
                answer = json.loads(socket.recv(timeout=_SECONDS))
                if answer.get("id") == 1 or answer.get("type") == "error":
                    break
    except (OSError, WebSocketException, TimeoutError, ValueError) as error:
        raise SourceError(f"{url}: no answer: {error or type(error).__name__}; is a monitor there?") from None
    if answer.get("type") != "table":
        raise SqlError(str(answer.get("error", "no table came")))
    return _frame(answer)


def _frame(answer: dict[str, Any]) -> pl.DataFrame:
    return pl.DataFrame(
        [
            _column(name, kind, [row[place] for row in answer["rows"]])
            for place, (name, kind) in enumerate(answer["columns"])
        ]
    )


def _column(name: str, kind: str, values: list[Any]) -> pl.Series:
    """A column as it was before it became JSON, in which what must be exact is text."""
    match kind:
        case "integer":
            whole = [None if value is None else int(value) for value in values]
            small = all(value is None or abs(value) < 1 << 63 for value in whole)
            return pl.Series(name, whole, pl.Int64 if small else pl.Int128)
        case "decimal":
            exact = [None if value is None else Decimal(value) for value in values]
            scales = (-int(value.as_tuple().exponent) for value in exact if value is not None)
            return pl.Series(name, exact, pl.Decimal(38, max(0, *scales, 0)))
        case "timestamp":
            stamps = [None if value is None else int(value) for value in values]
            return pl.Series(name, stamps, pl.Int64).cast(pl.Datetime("ns"))
        case "double":
            return pl.Series(name, values, pl.Float64, strict=False)
    return pl.Series(name, values, strict=False)


_SHOWN_ROWS = 50


def query(
    source: QuerySource,
    sql: str | None,
    at: str | None,
    view: str | None,
    key: Sequence[str],
    out: Path | None,
    tentative: bool = False,
    form: str | None = None,
) -> None:
    """Print what a query, a view or one of its rows is; with `out` all of it goes to a file.

    form: table, csv or json; of the last two all rows are printed, and notes on standard error. Raises
    UserError where neither or both of SQL and a view are given, and as what is asked does.
    """
    if (sql is None) is (view is None):
        raise UserError('give one: "SELECT …" over the views, or --view VIEW')
    if key and view is None:
        raise UserError("--key names a row of a view; give --view VIEW")
    if out is not None and form is not None:
        raise UserError("--format is for standard output; the name of --out says what is written")
    job = source.opened_job()
    if tentative and (view is None or job is None):
        raise UserError("--tentative is for a view of a job; give --view VIEW and --job DIR")
    version = None if at is None else parsed_version(at)
    if job is not None:
        _show(_of_job(job, sql, version, view, key, tentative), out, form)
        warn_incomplete(job.manifest)
    elif source.url is not None:
        if version is not None:
            raise UserError("--at is of a log or a job; a running monitor has its state now")
        _show(remote_query(source.url, sql or _select(view, key), source.token), out, form)
    else:
        frame, note = query_log(source.configuration(), sql, view, key, version)
        _show(frame, out, form)
        told(state=note)
        print(visible(note), file=sys.stdout if form in (None, "table") else sys.stderr)


def warn_incomplete(manifest: Manifest) -> None:
    """Say on standard error what makes a job incomplete."""
    for line in (*filter(None, [manifest.failure]), *manifest.incomplete):
        print(f"orderbook: the job is incomplete: {visible(str(line))}", file=sys.stderr)


def _of_job(
    job: Job,
    sql: str | None,
    version: JobVersion | None,
    view: str | None,
    key: Sequence[str],
    tentative: bool,
) -> pl.DataFrame:
    if sql is not None:
        return job.sql(sql, version)
    assert view is not None
    if not key:
        return job.view(view, version, tentative=tentative)
    row = job.lookup(view, key, version, tentative=tentative)
    if row is None:
        rows = job.view(view, version, tentative=tentative)
        raise no_row(view, job.manifest.views[view].keys, key, rows)
    return pl.DataFrame([row])


def _select(view: str | None, key: Sequence[str]) -> str:
    if key:
        raise UserError('--key is of a job or a log; ask "SELECT … WHERE …"')
    return f'SELECT * FROM "{view}"'


def _show(frame: pl.DataFrame, out: Path | None, form: str | None = None) -> None:
    if out is not None:
        _write(frame, out)
        return
    if is_collected():
        told(rows=_plain_rows(frame))
    if form == "json":
        write_json(_plain_rows(frame), sys.stdout)
        return
    if form == "csv":
        text = _without_nesting(frame).write_csv()
        # What is piped stays as it is, what a terminal gets must not steer it.
        print(visible_lines(text.split("\n")) if sys.stdout.isatty() else text, end="")
        return
    count = len(frame)
    # Of more rows the first and the last are shown.
    few = frame if count <= _SHOWN_ROWS else pl.concat([frame.head(_SHOWN_ROWS), frame.tail(_SHOWN_ROWS)])
    with pl.Config(tbl_rows=_SHOWN_ROWS, tbl_cols=-1, tbl_hide_dataframe_shape=True, fmt_str_lengths=80):
        print(_visible(few))
    more = "" if count <= _SHOWN_ROWS else f", of which {_SHOWN_ROWS} are shown; --out FILE takes all"
    print(f"{count:,} row{'' if count == 1 else 's'}{more}")


def _plain_rows(frame: pl.DataFrame) -> list[dict[str, Any]]:
    """Rows as JSON has them: times as ISO 8601 in UTC with all their places."""
    times = pl.selectors.datetime().dt.to_string("%Y-%m-%dT%H:%M:%S%.9fZ")
    return frame.with_columns(times).to_dicts()


def _without_nesting(frame: pl.DataFrame) -> pl.DataFrame:
    """Lists and structures as text, which CSV does not have."""
    nested = [name for name, kind in frame.schema.items() if kind.is_nested()]
    return frame.with_columns(
        pl.col(name).map_elements(lambda v: str(v.to_list() if isinstance(v, pl.Series) else v), pl.String)
        for name in nested
    )


def _visible(frame: pl.DataFrame) -> pl.DataFrame:
    """A frame to be printed: texts, also those within lists and structures, and names of columns."""
    shown = []
    for name, kind in frame.schema.items():
        column = pl.col(name)
        if kind.is_nested() or kind in (pl.String, pl.Categorical, pl.Enum, pl.Object, pl.Binary):
            column = column.map_elements(_text, return_dtype=pl.String, skip_nulls=True)
        shown.append(column)
    return frame.select(shown).rename({name: visible(name) for name in frame.columns})


def _text(value: object) -> str:
    value = value.to_list() if isinstance(value, pl.Series) else value
    return visible(value if isinstance(value, str) else str(value))


def parsed_version(text: str) -> JobVersion:
    """STAMP, STAMP,SWITCH or STAMP,SWITCH,SEQUENCE; what is left out is the last of that stamp or switch."""
    parts = text.split(",")
    if not (1 <= len(parts) <= 3 and all(part.strip().lstrip("-").isdecimal() for part in parts)):
        raise UserError(
            f"--at {text}: expected STAMP, or STAMP,SWITCH,SEQUENCE, as the history's columns have it"
        )
    stamp, switch, sequence = [int(part) for part in parts] + [LAST] * (3 - len(parts))
    return stamp, switch, sequence


def _write(frame: pl.DataFrame, out: Path) -> None:
    match out.suffix:
        case ".parquet":
            frame.write_parquet(out)
        case ".csv":
            frame.write_csv(out)
        case ".ndjson":
            frame.write_ndjson(out)
        case _:
            raise UserError(f"--out {out}: the name must end in .parquet, .csv or .ndjson")
    print(f"{out}: {len(frame):,} rows")
    told(out=str(out), count=len(frame))


def why(source: QuerySource, view: str, at: str, key: Sequence[str]) -> None:
    """Print the event of a version, the statements it ran, what they read and wrote, and what followed.

    Raises UserError for a version that names no event, and as reading the log does.
    """
    version = parsed_version(at)
    if LAST in version:
        raise UserError(f"--at {at}: one event has STAMP,SWITCH,SEQUENCE, as view events have it")
    past = open_past_run(source.configuration(), version)
    found = Explanation(past, view, version).found()
    print(why_text(found, past.engine.program, key), end="")
    told(**why_figures(found, key))
