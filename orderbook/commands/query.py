"""`orderbook query`: rows of a job's views as of a version, by key or by SQL."""

from collections.abc import Sequence
from pathlib import Path

import polars as pl

from orderbook.errors import UserError
from orderbook.jobs import open_job
from orderbook.jobs.manifest import JobVersion

_SHOWN_ROWS = 50


def query(
    job: Path,
    sql: str | None,
    as_of: str | None,
    view: str | None,
    key: Sequence[str],
    out: Path | None,
    tentative: bool = False,
) -> None:
    """Print what a query, a view or one of its rows is; with `out` all of it goes to a file.

    Raises UserError where neither or both of SQL and a view are given, and as `Job` does.
    """
    if (sql is None) is (view is None):
        raise UserError('give one: "SELECT …" over the views, or --view VIEW')
    if tentative and view is None:
        raise UserError("--tentative is for a view; give --view VIEW")
    if key and view is None:
        raise UserError("--key names a row of a view; give --view VIEW")
    opened, version = open_job(job), None if as_of is None else parsed_version(as_of)
    if sql is not None:
        frame = opened.sql(sql, version)
    elif key and view is not None:
        row = opened.lookup(view, key, version, tentative=tentative)
        frame = opened.view(view, version).clear() if row is None else pl.DataFrame([row])
    else:
        assert view is not None
        frame = opened.view(view, version, tentative=tentative)
    if out is not None:
        _write(frame, out)
        return
    with pl.Config(tbl_rows=_SHOWN_ROWS, tbl_cols=-1, tbl_hide_dataframe_shape=True, fmt_str_lengths=80):
        print(frame)
    count = len(frame)
    more = "" if count <= _SHOWN_ROWS else f", of which {_SHOWN_ROWS} are shown; --out FILE takes all"
    print(f"{count:,} row{'' if count == 1 else 's'}{more}")


def parsed_version(text: str) -> JobVersion:
    """STAMP, STAMP,SWITCH or STAMP,SWITCH,SEQUENCE; what is left out is the last of that stamp or switch."""
    parts = text.split(",")
    if not (1 <= len(parts) <= 3 and all(part.strip().lstrip("-").isdecimal() for part in parts)):
        raise UserError(
            f"--as-of {text}: expected STAMP, or STAMP,SWITCH,SEQUENCE, as the history's columns have it"
        )
    last = 2**63 - 1
    stamp, switch, sequence = [int(part) for part in parts] + [last] * (3 - len(parts))
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
