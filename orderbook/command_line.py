"""The program `orderbook`: its commands, options and exit status.

0: done (also a run that Ctrl-C ended); 2: bad usage or configuration; 1: anything else, a result that is
incomplete among it. An error is one line on standard error, or a line for each mistake of a configuration;
--debug adds the traceback. With --json standard output has one object, and standard error what people read.
"""

import gc
import sys
import traceback
from collections.abc import Sequence
from enum import StrEnum
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Annotated

import typer

from orderbook.core.errors import ConfigurationError, OrderbookError, UserError, visible_lines
from orderbook.core.summaries import collected, told, write_json
from orderbook.core.units import seconds
from orderbook.operations.logs import log_to_standard_error

_INTERRUPTED = 130

app = typer.Typer(
    name="orderbook",
    help="SQL views over live order books, refreshed at every event, that call trading strategies.",
    no_args_is_help=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)

Config = Annotated[
    Path | None,
    typer.Option("--config", help="Configuration file, laid over the default one.", metavar="FILE"),
]
Feeds = Annotated[
    list[str] | None,
    typer.Option(
        "--feed",
        help="simulated, coinbase:BTC-USD,ETH-USD, capture:FILE, or what `replay` reads.",
    ),
]
Views = Annotated[
    list[str] | None, typer.Option("--view", help="A view that ships or is on views.paths, or a .sql file.")
]
Strategies = Annotated[list[str] | None, typer.Option("--strategy", help="MODULE:CLASS of a strategy.")]
Out = Annotated[
    Path | None,
    typer.Option("--out", help="Write every view event to FILE.ndjson or FILE.parquet.", metavar="FILE"),
]
Sources = Annotated[
    list[str], typer.Argument(help="FILE, or KIND:FILE with capture, record, lobster, changes, …")
]
JobSources = Annotated[
    list[str], typer.Argument(help="FILE, folder, glob, or the URL of one; KIND: before it as in `replay`.")
]
Partitions = Annotated[
    int | None, typer.Option("--partitions", min=1, help="Into how many the work is cut: the cores.")
]
Master = Annotated[
    str | None, typer.Option("--master", help="Where Spark runs: local[N], spark://HOST:7077, …")
]
KeyColumn = Annotated[
    str | None, typer.Option("--key", help="Partition by this column wherever that can be.")
]

Postgres = Annotated[
    bool | None,
    typer.Option("--postgres/--no-postgres", help="Let clients of PostgreSQL read views, or do not."),
]
Flight = Annotated[
    bool | None,
    typer.Option("--flight/--no-flight", help="Let clients of Arrow Flight read views, or do not."),
]


def _duration(text: str) -> float:
    try:
        return seconds(text)
    except UserError as error:
        raise UserError(f"--duration: {error}") from None


Duration = Annotated[
    float | None,
    typer.Option(
        "--duration",
        help="How long, as 20s or 1.5h, or in seconds; without it, until Ctrl-C.",
        metavar="LENGTH",
        parser=_duration,
    ),
]
Sets = Annotated[
    list[str] | None,
    typer.Option("--set", help="A parameter of views or strategies, as k=0.5.", metavar="NAME=VALUE"),
]
AllowIncomplete = Annotated[
    bool,
    typer.Option(
        "--allow-incomplete", help="Status 0 also where books were lost or input could not be used."
    ),
]
LogFolder = Annotated[
    Path | None,
    typer.Option("--log", help="Folder of a run's log; without it, the configuration's.", metavar="FOLDER"),
]
MonitorUrl = Annotated[
    str, typer.Option("--url", help="Of a run's monitor, as the run prints it, or HOST:PORT.", metavar="URL")
]
Token = Annotated[str, typer.Option("--token", help="Where the monitor has one.")]
Abuse = Annotated[
    list[str] | None,
    typer.Option(
        "--abuse",
        help="Labelled abuse between the messages, as spoofing=5; also layering, quote_stuffing, "
        "momentum_ignition, marking_the_close, wash_trades, iceberg, pinging, flipping.",
        metavar="KIND=COUNT",
    ),
]
Strength = Annotated[
    float, typer.Option("--strength", help="Of the abuse: 1 is a clear case, 0.5 half of it.")
]
RowKey = Annotated[
    list[str] | None, typer.Option("--key", help="The row of a view with this key; a value each.")
]


class Stage(StrEnum):
    """The stages that `explain` shows."""

    SQL = "sql"
    CALCULUS = "calculus"
    M3 = "m3"
    PLAN = "plan"
    PYTHON = "python"
    SPARK = "spark"


class Form(StrEnum):
    """What `query` prints."""

    TABLE = "table"
    CSV = "csv"
    JSON = "json"


class Backend(StrEnum):
    """What a test of views runs on."""

    INTERPRETER = "interpreter"
    NUMBA = "numba"


class EngineName(StrEnum):
    """What runs a backtest."""

    NUMBA = "numba"
    SPARK = "spark"


def _version(wanted: bool) -> None:
    if wanted:
        try:
            typer.echo(f"orderbook {version('orderbook')}")
        except PackageNotFoundError:
            typer.echo("orderbook, not installed")
        raise typer.Exit


@app.callback()
def _options(
    show_version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version and end.")
    ] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="Write the summary of any command as one line of JSON.")
    ] = False,
) -> None:
    """Options of every command."""


@app.command()
def run(
    config: Config = None,
    duration: Duration = None,
    feed: Feeds = None,
    view: Views = None,
    strategy: Strategies = None,
    out: Out = None,
    monitor: Annotated[
        bool | None, typer.Option("--monitor/--no-monitor", help="Serve the monitor's page, or do not.")
    ] = None,
    postgres: Postgres = None,
    flight: Flight = None,
    sets: Sets = None,
    allow_incomplete: AllowIncomplete = False,
) -> None:
    """Follow live feeds; without options a simulated exchange on this machine, and no network."""
    from orderbook.commands.preview import previewed

    chosen = (feed or (), view or (), strategy or ())
    with previewed(config, feed or (), monitor) as preview:
        from orderbook.commands.run import run as command

        command(
            config, duration, *chosen, out, monitor, sets or (), allow_incomplete, postgres, flight,
            preview=preview,
        )  # fmt: skip


@app.command()
def serve(
    config: Config = None,
    duration: Duration = None,
    feed: Feeds = None,
    view: Views = None,
    strategy: Strategies = None,
    out: Out = None,
    postgres: Postgres = None,
    flight: Flight = None,
    sets: Sets = None,
    allow_incomplete: AllowIncomplete = False,
) -> None:
    """Follow live feeds for the page, and clients of PostgreSQL and Arrow Flight, with nothing shown here."""
    from orderbook.commands.preview import previewed

    feeds, views, strategies = feed or (), view or (), strategy or ()
    chosen = (feeds, views, strategies, out, True, sets or ())
    with previewed(config, feeds, True) as preview:
        from orderbook.commands.run import run as command
        from orderbook.run.display import QuietDisplay

        command(config, duration, *chosen, allow_incomplete, postgres, flight, QuietDisplay, preview)


@app.command()
def top(
    url: MonitorUrl = "http://127.0.0.1:8799/",
    token: Token = "",
) -> None:
    """Show a running engine's feeds, views and strategies in this terminal."""
    from orderbook.commands.top import top as command

    command(url, token)


@app.command()
def halt(
    url: MonitorUrl = "http://127.0.0.1:8799/",
    token: Token = "",
    release: Annotated[bool, typer.Option("--release", help="Let orders be placed again.")] = False,
    reason: Annotated[str, typer.Option("--reason", help="What refused orders say.")] = "",
) -> None:
    """Cancel every order of a run, and let none be placed: its kill switch."""
    from orderbook.commands.halt import halt as command

    command(url, token, release, reason)


@app.command()
def alerts(
    url: MonitorUrl = "http://127.0.0.1:8799/",
    token: Token = "",
    acknowledge: Annotated[
        str | None,
        typer.Option("--acknowledge", help="An alert, or all open ones of a name.", metavar="ID|NAME"),
    ] = None,
    silence: Annotated[
        str | None, typer.Option("--silence", help="A name, or * for all.", metavar="NAME")
    ] = None,
    match: Annotated[
        list[str] | None,
        typer.Option("--match", help="Only rows with this value.", metavar="COLUMN=VALUE"),
    ] = None,
    length: Annotated[str, typer.Option("--for", help="How long a silence lasts.", metavar="TIME")] = "1h",
    end_silence: Annotated[
        int | None, typer.Option("--end-silence", help="End a silence.", metavar="NUMBER")
    ] = None,
    by: Annotated[str, typer.Option("--by", help="Who does so, for others to see.")] = "",
) -> None:
    """List the alerts of a run, acknowledge them, or silence them."""
    from orderbook.commands.alerts import alerts as command

    command(url, token, acknowledge, silence, match or (), length, end_silence, by)


@app.command()
def mcp(
    url: MonitorUrl = "http://127.0.0.1:8799/",
    token: Token = "",
    port: Annotated[
        int | None,
        typer.Option("--port", help="Streamable HTTP on loopback, instead of standard input and output."),
    ] = None,
) -> None:
    """Serve a run's views, SQL, explain and why to language models, by the Model Context Protocol."""
    from orderbook.commands.mcp_server import serve_mcp as command

    command(url, token, port)


@app.command()
def replay(
    source: Sources,
    config: Config = None,
    view: Views = None,
    strategy: Strategies = None,
    sets: Sets = None,
    out: Out = None,
    allow_incomplete: AllowIncomplete = False,
) -> None:
    """Put recorded sources, merged in order of time, through the views and strategies."""
    from orderbook.commands.replay import replay as command

    command(source, config, view or (), strategy or (), out, sets or (), allow_incomplete)


@app.command()
def backtest(
    source: JobSources,
    config: Config = None,
    view: Views = None,
    strategy: Strategies = None,
    engine: Annotated[
        EngineName, typer.Option("--engine", help="numba: this process; spark: as many as there are cores.")
    ] = EngineName.NUMBA,
    out: Annotated[
        str | None,
        typer.Option("--out", help="Folder of the job, or URL; without it backtests/TIME.", metavar="DIR"),
    ] = None,
    granularity: Annotated[
        str, typer.Option("--granularity", help="History by event, message, interval:1s, or end.")
    ] = "message",
    partitions: Partitions = None,
    master: Master = None,
    key: KeyColumn = None,
    cut_time: Annotated[
        str, typer.Option("--cut-time", help="History in pieces of time: auto, never, or how many.")
    ] = "auto",
    sets: Annotated[
        list[str] | None,
        typer.Option("--set", help="A parameter; of several values each one.", metavar="NAME=VALUE,…"),
    ] = None,
    random: Annotated[
        int | None, typer.Option("--random", help="So many combinations, at random.", metavar="COUNT")
    ] = None,
    seed: Annotated[int, typer.Option("--seed", help="What --random draws by.")] = 1,
    allow_incomplete: AllowIncomplete = False,
) -> None:
    """Put history through views and strategies into a job's folder, in this process or on Spark."""
    from orderbook.commands.backtest import Sample
    from orderbook.commands.backtest import run_backtest as command

    names, chosen = (view or (), strategy or ()), sets or ()
    command(
        source, config, *names, engine.value, out, granularity, partitions, master, key, cut_time, chosen,
        Sample(random, seed), allow_incomplete,
    )  # fmt: skip


@app.command()
def report(
    job: Annotated[str, typer.Option("--job", help="Folder of a job, or URL.", metavar="DIR")],
) -> None:
    """Write the report of a backtest's strategies again, from its folder alone."""
    from orderbook.commands.query import warn_incomplete
    from orderbook.jobs.job import open_job
    from orderbook.report.page import write_report

    path, _ = write_report(job)
    typer.echo(path)
    told(report=str(path))
    warn_incomplete(open_job(job).manifest)


@app.command()
def compare(
    job: Annotated[
        list[str],
        typer.Argument(help="Folders of jobs; the first may be log:FOLDER.", metavar="JOB..."),
    ],
    out: Annotated[
        Path | None, typer.Option("--out", help="Write the figures to FILE.parquet, .csv or .ndjson.")
    ] = None,
    config: Config = None,
    view: Views = None,
    strategy: Strategies = None,
    sets: Sets = None,
) -> None:
    """Show what strategies made in several backtests, and how their orders and fills differ from the first's.

    A live session's log:FOLDER, with the configuration of its run, beside a backtest shows in which orders,
    fills and money both differ: beside that of the log itself (`backtest log:FOLDER`) in none. Where they do
    the exit status is 1.
    """
    from orderbook.commands.query import compare as command

    if not command(job, out, config, view or (), strategy or (), sets or ()):
        raise typer.Exit(1)


@app.command()
def blocks(
    source: JobSources,
    out: Annotated[Path, typer.Option("--out", help="Folder of the logs.", metavar="DIR")],
    config: Config = None,
    view: Views = None,
    sets: Sets = None,
    switches: Annotated[int, typer.Option("--switches", min=1, help="Of how many switches.")] = 1,
    epoch: Annotated[str, typer.Option("--epoch", help="How long an epoch lasts, as in 1s.")] = "1s",
    block: Annotated[
        str | None, typer.Option("--block", help="How long a block lasts: a quarter of an epoch.")
    ] = None,
    follow: Annotated[
        bool, typer.Option("--follow", help="Of log:FOLDER, as the run goes on, until Ctrl-C.")
    ] = False,
    allow_incomplete: AllowIncomplete = False,
) -> None:
    """Cut history into block logs, as `stream` reads them: what switches send, with epochs."""
    from orderbook.commands.stream import write_blocks as command

    command(source, config, view or (), out, switches, epoch, block, follow, sets or (), allow_incomplete)


@app.command()
def stream(
    logs: Annotated[list[str], typer.Argument(help="Folders of block logs.", metavar="BLOCKS...")],
    out: Annotated[Path, typer.Option("--out", help="Folder of the job.", metavar="DIR")],
    config: Config = None,
    view: Views = None,
    sets: Sets = None,
    granularity: Annotated[
        str, typer.Option("--granularity", help="History by event, message, or interval:1s.")
    ] = "message",
    partitions: Partitions = None,
    master: Master = None,
    key: KeyColumn = None,
    once: Annotated[bool, typer.Option("--once", help="End when all that is there is read.")] = False,
    log_limit: Annotated[
        int, typer.Option("--log-limit", min=0, help="Rows in a node's logs above which epochs should end.")
    ] = 0,
    chain: Annotated[
        int, typer.Option("--chain", min=0, help="Levels up to which each is an operator of one query.")
    ] = 2,
    allow_incomplete: AllowIncomplete = False,
) -> None:
    """Keep views over block logs on Spark: tentative rows at once, committed ones epoch by epoch."""
    from orderbook.commands.stream import run_stream as command

    options = (granularity, partitions, master, key, once, log_limit, chain, sets or (), allow_incomplete)
    command(logs, config, view or (), out, *options)


@app.command()
def query(
    sql: Annotated[str | None, typer.Argument(help="A SELECT over the views, orders and fills.")] = None,
    job: Annotated[str | None, typer.Option("--job", help="Folder of a job, or URL.", metavar="DIR")] = None,
    log: LogFolder = None,
    url: Annotated[
        str | None, typer.Option("--url", help="A run's monitor, as `top` has it.", metavar="URL")
    ] = None,
    at: Annotated[
        str | None,
        typer.Option("--at", "--as-of", help="STAMP[,SWITCH,SEQUENCE]; without it, the last."),
    ] = None,
    view: Annotated[str | None, typer.Option("--view", help="A view instead of a query.")] = None,
    key: RowKey = None,
    out: Annotated[
        Path | None, typer.Option("--out", help="Write it to FILE.parquet, .csv or .ndjson.", metavar="FILE")
    ] = None,
    form: Annotated[
        Form | None, typer.Option("--format", help="How all of it is printed: a table, unless this says so.")
    ] = None,
    token: Token = "",
    tentative: Annotated[
        bool, typer.Option("--tentative", help="Of a stream's view also rows that may still be replaced.")
    ] = False,
    config: Config = None,
) -> None:
    """Look up rows of views, by SQL or by key: of a job or a run's log as of any version, or of a monitor."""
    from orderbook.commands.query import QuerySource
    from orderbook.commands.query import query as command

    source = QuerySource(job, log, url, config, token)
    command(source, sql, at, view, key or (), out, tentative, form and form.value)


@app.command()
def why(
    view: Annotated[str, typer.Argument(help="A view of the run.")],
    at: Annotated[str, typer.Option("--at", help="STAMP,SWITCH,SEQUENCE of one event.")],
    key: RowKey = None,
    log: LogFolder = None,
    config: Config = None,
) -> None:
    """Show what one event of a run's log did to a view, statement by statement, and what followed from it."""
    from orderbook.commands.query import QuerySource
    from orderbook.commands.query import why as command

    command(QuerySource(None, log, None, config), view, at, key or ())


@app.command()
def record(
    config: Config = None,
    feed: Feeds = None,
    out: Annotated[
        Path | None,
        typer.Option("--out", help="Folder of the recordings, without it recordings.", metavar="FOLDER"),
    ] = None,
    duration: Duration = None,
    rotate: Annotated[
        str | None,
        typer.Option("--rotate", help="A new file after so many bytes or a time: 256MB, 1h.", metavar="SIZE"),
    ] = None,
    allow_incomplete: AllowIncomplete = False,
) -> None:
    """Record live feeds: raw frames as received, and what they mean as a Parquet record."""
    from orderbook.commands.record import record as command

    command(config, duration, feed or (), out, rotate, allow_incomplete)


@app.command()
def replan(
    source: Sources,
    config: Config = None,
    view: Views = None,
    sets: Sets = None,
    out: Annotated[
        Path | None, typer.Option("--out", help="Where the statistics go.", metavar="FILE.json")
    ] = None,
    allow_incomplete: AllowIncomplete = False,
) -> None:
    """Measure recorded sources, plan the views again by that, and keep the statistics for later starts."""
    from orderbook.commands.replay import replan as command

    command(source, config, view or (), out, sets or (), allow_incomplete)


@app.command()
def latencies(
    source: Sources,
    out: Annotated[Path, typer.Option("--out", help="The file, .csv or .parquet.", metavar="FILE")],
    every: Annotated[
        str, typer.Option("--every", help="A row in so long a time, by its last message.", metavar="TIME")
    ] = "1s",
    order: Annotated[
        float, typer.Option("--order", min=0, help="Orders take so many times as long as messages.")
    ] = 1,
    response: Annotated[
        float, typer.Option("--response", min=0, help="Responses take so many times as long.")
    ] = 1,
    least: Annotated[
        str, typer.Option("--least", help="The least latency, where the receiver's clock was behind.")
    ] = "0ms",
) -> None:
    """Write a file of latencies, for [simulation], from how long messages of recordings took."""
    from orderbook.commands.latencies import latencies as command

    command(source, out, every, order, response, least)


@app.command()
def explain(
    view: Annotated[
        str, typer.Argument(help="A view, a .sql file, FILE.sql:VIEW, or a strategy MODULE:CLASS.")
    ],
    stage: Annotated[
        Stage | None,
        typer.Option("--stage", help="One stage of the compiler; without it, an overview with costs."),
    ] = None,
    live: Annotated[
        list[str] | None,
        typer.Option("--live", help="Replay this source and show what every statement cost.", metavar="FILE"),
    ] = None,
    timings: Annotated[
        bool, typer.Option("--timings", help="Where the seconds go until the view's first value.")
    ] = False,
    config: Config = None,
    sets: Sets = None,
    allow_incomplete: AllowIncomplete = False,
) -> None:
    """Show how a view is compiled and what every event costs it."""
    from orderbook.commands.explain import explain as command
    from orderbook.commands.explain import explain_live, explain_timings

    if timings:
        if stage is not None or live:
            raise UserError("--timings takes neither --stage nor --live")
        explain_timings(view, config, sets or ())
        return

    if live:
        if stage is not None:
            raise UserError("--live takes no --stage")
        explain_live(view, live, config, sets or (), allow_incomplete)
        return
    command(view, stage.value if stage else None, config, sets or ())


@app.command()
def views(
    view: Annotated[
        str | None, typer.Argument(help="One view; without it, all that ship are listed.")
    ] = None,
    config: Config = None,
) -> None:
    """List the views that ship and those on views.paths, or describe one: parameters, cost and its SQL."""
    from orderbook.commands.views import views as command

    command(view, config)


@app.command()
def check(config: Config = None) -> None:
    """Validate the configuration, all its SQL, and what its strategies subscribe to."""
    from orderbook.commands.check import check as command

    command(config)


@app.command()
def doctor(config: Config = None) -> None:
    """Check this machine, from its clock to the network, and say what to do."""
    from orderbook.commands.doctor import doctor as command

    command(config)


@app.command()
def diff(
    first: Annotated[Path, typer.Argument(help="The configuration as it is.", metavar="CONFIG_A")],
    second: Annotated[Path, typer.Argument(help="The one that would come.", metavar="CONFIG_B")],
) -> None:
    """Show which views, maps, costs and settings another configuration changes, and what a run rebuilds."""
    from orderbook.commands.check import diff as command

    command(first, second)


@app.command("test")
def run_tests(
    path: Annotated[
        list[Path] | None, typer.Argument(help="Files *.test.yaml, or folders; else this and views.paths.")
    ] = None,
    config: Config = None,
    chosen: Annotated[
        str | None, typer.Option("-k", help="Only tests with this in their names.", metavar="TEXT")
    ] = None,
    backend: Annotated[
        Backend | None, typer.Option("--backend", help="One of them; without it, on both.")
    ] = None,
    spark: Annotated[
        bool, typer.Option("--spark", help="On Spark, too, which takes seconds to start.")
    ] = False,
) -> None:
    """Run unit tests of views: rows and events that are given, rows and events that are expected."""
    from orderbook.commands.view_tests import run_tests as command

    command(path or (), config, chosen, None if backend is None else backend.value, spark)


@app.command()
def generate(
    out: Annotated[Path, typer.Option("--out", help="The Parquet record to write.", metavar="FILE")],
    events: Annotated[int, typer.Option("--events", help="Market events.")] = 1_000_000,
    symbols: Annotated[int, typer.Option("--symbols", help="Symbols.")] = 1,
    levels: Annotated[int, typer.Option("--levels", help="Price levels a side.")] = 200,
    seed: Annotated[int, typer.Option("--seed", help="The same seed gives the same events.")] = 1,
    imbalance: Annotated[
        float, typer.Option("--imbalance", help="0: balanced; 1: sides crowd to the touch in turns.")
    ] = 0.0,
    rate: Annotated[float, typer.Option("--rate", help="Events a second of the market's time.")] = 20.0,
    abuse: Abuse = None,
    strength: Strength = 1.0,
) -> None:
    """Write a synthetic order flow, every order of it, to a Parquet record."""
    from orderbook.commands.flow import generate as command

    command(out, events, symbols, levels, seed, imbalance, rate, abuse or (), strength)


@app.command()
def inject(
    sources: Sources,
    out: Annotated[Path, typer.Option("--out", help="The Parquet record to write.", metavar="FILE")],
    abuse: Abuse = None,
    strength: Strength = 1.0,
    seed: Annotated[int, typer.Option("--seed", help="The same seed gives the same abuse.")] = 1,
) -> None:
    """Add labelled abuse to recorded sources, to see what the views of surveillance find of it."""
    from orderbook.commands.flow import inject as command

    command(sources, out, abuse or (), strength, seed)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the program with `arguments` (default: the command line's) and exit with its status."""
    # Of what is imported nothing is garbage, and looking for it was a quarter of a command's start.
    gc.set_threshold(50_000)
    sys.exit(status_of(sys.argv[1:] if arguments is None else arguments))


def status_of(arguments: Sequence[str]) -> int:
    """Run the program; the exit status. `--debug` and `--json` may stand anywhere."""
    debug, out = "--debug" in arguments, sys.stdout
    own = [argument for argument in arguments if argument not in ("--debug", "--json")]
    log_to_standard_error()
    if "--json" not in arguments:
        return _status(own, debug)
    with collected() as figures:
        status = _status(own, debug)
    command = next((argument for argument in own if not argument.startswith("-")), None)
    try:
        write_json({"command": command, "status": status, **figures}, out)
    except BrokenPipeError:
        return 1
    return status


def _status(arguments: Sequence[str], debug: bool) -> int:
    try:
        status = app(list(arguments), prog_name="orderbook", standalone_mode=False)
    except OrderbookError as error:
        # Of a configuration all mistakes are told; any other line end has come with a text from outside.
        lines = str(error).split("\n") if isinstance(error, ConfigurationError) else [str(error)]
        return _failed(lines, error.exit_status, debug)
    except typer.TyperException as error:
        return _failed([f"{error.format_message().rstrip('.')}; see --help"], error.exit_code, debug)
    except BrokenPipeError:
        return 1
    except Exception as error:
        hint = "" if debug else "; this is a defect, --debug shows where"
        return _failed([f"{type(error).__name__}: {error}{hint}"], 1, debug)
    if status == _INTERRUPTED:
        return _failed(["interrupted"], 1, False)
    return status or 0


def _failed(lines: Sequence[str], status: int, debug: bool) -> int:
    if debug:
        traceback.print_exc()
    told(errors=list(lines))
    print(visible_lines(f"orderbook: {line}" for line in lines), file=sys.stderr)
    return status


if __name__ == "__main__":
    main()
