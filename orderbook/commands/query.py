"""`orderbook query`: rows of views as of a version, by key or by SQL: of a job, a run's log or a monitor."""

import sys
from collections.abc import Sequence
from pathlib import Path

import polars as pl

from orderbook.commands.query_source import QuerySource, no_row, query_log, remote_query
from orderbook.errors import UserError
from orderbook.jobs.job import Job
from orderbook.jobs.manifest import JobVersion, Manifest
from orderbook.outside_text import visible
from orderbook.past_states import LAST

_SHOWN_ROWS = 50


def query(
    source: QuerySource,
    sql: str | None,
    at: str | None,
    view: str | None,
    key: Sequence[str],
    out: Path | None,
    tentative: bool = False,
) -> None:
    """Print what a query, a view or one of its rows is; with `out` all of it goes to a file.

    Raises UserError where neither or both of SQL and a view are given, and as what is asked does.
    """
    if (sql is None) is (view is None):
        raise UserError('give one: "SELECT …" over the views, or --view VIEW')
    if key and view is None:
        raise UserError("--key names a row of a view; give --view VIEW")
    job = source.opened_job()
    if tentative and (view is None or job is None):
        raise UserError("--tentative is for a view of a job; give --view VIEW and --job DIR")
    version = None if at is None else parsed_version(at)
    if job is not None:
        _show(_of_job(job, sql, version, view, key, tentative), out)
        warn_incomplete(job.manifest)
    elif source.url is not None:
        if version is not None:
            raise UserError("--at is of a log or a job; a running monitor has its state now")
        _show(remote_query(source.url, sql or _select(view, key)), out)
    else:
        frame, note = query_log(source.configuration(), sql, view, key, version)
        _show(frame, out)
        print(visible(note))


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


def _show(frame: pl.DataFrame, out: Path | None) -> None:
    if out is not None:
        _write(frame, out)
        return
    count = len(frame)
    # Of more rows the first and the last are shown.
    few = frame if count <= _SHOWN_ROWS else pl.concat([frame.head(_SHOWN_ROWS), frame.tail(_SHOWN_ROWS)])
    with pl.Config(tbl_rows=_SHOWN_ROWS, tbl_cols=-1, tbl_hide_dataframe_shape=True, fmt_str_lengths=80):
        print(_visible(few))
    more = "" if count <= _SHOWN_ROWS else f", of which {_SHOWN_ROWS} are shown; --out FILE takes all"
    print(f"{count:,} row{'' if count == 1 else 's'}{more}")


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
