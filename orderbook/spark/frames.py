"""Views, orders and fills as DataFrames of the user's own Spark session.

A DataFrame is lazy: at the call views are compiled, sources looked at and the work is planned; an action runs
it. Nothing is set in the session: how functions get to its workers, and into how many tasks the work is cut,
is a matter of each DataFrame.
"""

import pickle
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial, reduce
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from orderbook.backtesting.plan import layout_of, planned, sent_relations, why_one_task
from orderbook.backtesting.relation_rows import timed_relations
from orderbook.backtesting.settings import (
    configuration_keys,
    parsed_granularity,
    settings_of,
    strategy_path,
    view_file,
)
from orderbook.backtesting.shuffle import Sender
from orderbook.backtesting.sources import SourceSpec, source_specs
from orderbook.backtesting.task_runner import read_task, stage_task
from orderbook.backtesting.tasks import JobProgram, JobSettings, ReadTask, check_program
from orderbook.configuration.configuration import Configuration, load_configuration
from orderbook.core.changes import Dictionary
from orderbook.core.errors import DataError, UserError
from orderbook.engine.distribution.blocks import Sent
from orderbook.engine.distribution.stage_runner import END
from orderbook.jobs.datasets import fills_dataset, history_of, orders_dataset
from orderbook.spark.batch import Finish, map_blocks, reduce_blocks
from orderbook.spark.market_frames import Market, Matched, market_blocks, market_task, matched
from orderbook.spark.results import Shape, rows_of
from orderbook.spark.session import cores
from orderbook.spark.table_frames import Rows, table_frame, tables_of
from orderbook.spark.workers import map_in_workers, reach
from orderbook.strategies.strategy import Strategy
from orderbook.views.compilation import without_view
from orderbook.views.m3_link import is_m3
from orderbook.views.program import CompiledProgram

Frames = DataFrame | Rows | Market
Source = str | Path | DataFrame | Market | Sequence[str | Path | DataFrame | Market] | Mapping[str, Frames]
# Tasks where the session does not tell how many run at a time.
_TASKS = 8


def views(
    source: Source,
    sql: str | Path | Sequence[str | Path],
    *,
    parameters: Mapping[str, Any] | None = None,
    history: bool = False,
    granularity: str = "message",
    order: str | Sequence[str] | None = None,
    partitions: int | None = None,
    key: str | None = None,
    config: str | Path | None = None,
    options: Mapping[str, Any] | None = None,
    together: bool = False,
    allow_incomplete: bool = False,
    session: SparkSession | None = None,
) -> "Views":
    """The views of `sql` over `source`, by name, as lazy DataFrames.

    source: files, globs or folders of any format that is read ("binance:days/*.gz"), which workers read
        themselves; a DataFrame of market events, or several (see `Market`); or DataFrames by the names of the
        streams and tables that `sql` declares (see `Rows`).
    sql: SQL, .sql files, or names of views, as `orderbook.backtest` takes them.
    history: every change of a row instead of the rows at the end: the version (stamp, ns; switch; sequence),
        keys, columns, `gone` and `multiplicity`, looked at after each `granularity`: "event", "message" or
        "interval:1s".
    order: the `order` of `Rows` that say none.
    partitions: tasks of each stage, None: as many as run at a time. key: a column to partition by.
    parameters: what `:name` stands for. config, options: as of `orderbook.backtest`.
    together: one pass over the source makes the rows of all views, at the first action; Spark keeps them
        until `unpersist` of what is returned. Else each DataFrame reads the source for itself.
    allow_incomplete: what is wrong with sources does not fail the query.
    session: of DataFrames theirs, else the active one.

    Raises UserError for what cannot be, before anything runs. A query fails with SourceError, DataError or
    IncompleteError, as the command does. Integers are bigint, decimals decimal(38, scale), timestamps have
    microseconds and are instants, whatever the session's time zone.
    """
    with TemporaryDirectory() as folder:
        names = [view_file(one, Path(folder), number) for number, one in enumerate(_several(sql))]
        if not names:
            raise UserError("name the views: SQL, .sql files, or views that ship")
        chosen: dict[str, Any] = {**(options or {}), "run.views": names, "run.strategies": []}
        chosen |= {f"parameters.{name}": value for name, value in (parameters or {}).items()}
        configuration = load_configuration(None if config is None else Path(config), chosen)
        session, given = _given(source, order, session, configuration)
        looks = parsed_granularity(granularity) if history else END
        given = replace(given, allow_incomplete=allow_incomplete)
        settings = settings_of(configuration, None, looks, _partitions(partitions, session, given), key)
    check_program(settings)
    reach(session, settings.program.modules)
    shapes = _view_shapes(settings, history)
    if not together:
        return Views(
            {
                name: _frame(session, _narrowed(settings, name), given, Result(name, shape, allow_incomplete))
                for name, shape in shapes.items()
            }
        )
    everything = _frame(session, settings, given, None).persist()
    results = {name: Result(name, shape, allow_incomplete) for name, shape in shapes.items()}
    return Views({name: _chosen(everything, result) for name, result in results.items()}, everything)


class Views(dict[str, DataFrame]):
    """DataFrames by the names of their views."""

    def __init__(self, frames: Mapping[str, DataFrame], kept: DataFrame | None = None) -> None:
        super().__init__(frames)
        self._kept = kept

    def unpersist(self) -> None:
        """Let go of the rows that were made `together`."""
        if self._kept is not None:
            self._kept.unpersist()


def strategies(
    source: Source,
    strategies: str | type[Strategy] | Sequence[str | type[Strategy]],
    *,
    parameters: Mapping[str, Any] | None = None,
    partitions: int | None = None,
    config: str | Path | None = None,
    options: Mapping[str, Any] | None = None,
    modules: Sequence[str] = (),
    allow_incomplete: bool = False,
    session: SparkSession | None = None,
) -> dict[str, DataFrame]:
    """What strategies do over `source`: lazy DataFrames `orders`, every change of an order, and `fills`.

    strategies: classes of a module that workers can import, MODULE:CLASS, or names of strategies in SQL.
    parameters: of the strategies. modules: of Python, that workers of other machines are sent beside those of
    the strategies and of functions in SQL. source: files or market events; the rest as of `views`. An action
    on either runs the strategies; persist what is used twice.
    """
    paths = [strategy_path(one) for one in _several(strategies)]
    if not paths:
        raise UserError("name a strategy")
    chosen = {**(options or {}), "run.strategies": paths, "run.views": []}

    def configuration_with(more: Mapping[str, Any]) -> Configuration:
        return load_configuration(None if config is None else Path(config), {**chosen, **more})

    configuration = configuration_with({})
    if parameters:
        keys = configuration_keys(configuration, list(parameters))
        configuration = configuration_with(
            {key: value for name, value in parameters.items() for key in keys[name]}
        )
    session, given = _given(source, None, session, configuration)
    if given.tables:
        raise UserError("strategies trade in markets: give files, or DataFrames of market events")
    settings = settings_of(configuration, None, END, _partitions(partitions, session, given), None)
    settings = replace(settings, views=())
    called = settings.strategy_program.modules if settings.strategy_program else ()
    reach(session, (*modules, *called, *(path.partition(":")[0] for path in paths if ":" in path)))
    datasets = {"orders": orders_dataset(), "fills": fills_dataset()}
    return {
        name: _frame(session, settings, given, Result(name, Shape.changes(dataset), allow_incomplete))
        for name, dataset in datasets.items()
    }


@dataclass(frozen=True, slots=True)
class Given:
    """What a source comes to: files, rows of streams, or market events.

    allow_incomplete: rows that contradict others are left out.
    """

    specs: tuple[SourceSpec, ...] = ()
    tables: Mapping[str, Rows] | None = None
    markets: tuple[Matched, ...] = ()
    allow_incomplete: bool = False


@dataclass(frozen=True, slots=True)
class Result:
    """The rows that are wanted: of a view, orders or fills, and in which shape."""

    name: str
    shape: Shape
    allow_incomplete: bool

    @property
    def finish(self) -> Finish:
        """What makes them of what tasks send."""
        return Finish(partial(rows_of, self.name, self.shape, self.allow_incomplete), self.shape.schema)


def _several(given: Any) -> list[Any]:
    return list(given) if isinstance(given, list | tuple) else [given]


def _given(
    source: Any, order: Any, session: SparkSession | None, configuration: Configuration
) -> tuple[SparkSession, Given]:
    """The session of a source, and the source. Raises UserError, SourceError."""
    if isinstance(source, Mapping):
        rows = {name: one if isinstance(one, Rows) else Rows(one) for name, one in source.items()}
        for name, one in rows.items():
            _check_frame(one.frame, name)
        if not rows:
            raise UserError("no DataFrame was given")
        rows = {
            n: replace(one, order=order) if one.order is None and order else one for n, one in rows.items()
        }
        frames = [one.frame for one in rows.values()]
        return session or frames[0].sparkSession, Given(tables=rows)
    several = _several(source)
    if not several:
        raise UserError("no source was given")
    if not all(isinstance(one, str | Path) for one in several):
        markets = [one if isinstance(one, Market) else Market(one) for one in several]
        for market in markets:
            _check_frame(market.frame, "a source")
        found = tuple(matched(one) for one in markets)
        if len({one.kind == "events" for one in found}) > 1:
            raise UserError(
                "events have versions of their own: give them apart from orders, levels and trades"
            )
        return session or found[0].frame.sparkSession, Given(markets=found)
    session = session or active_session()
    return session, Given(
        source_specs([str(one) for one in several], configuration.books.crossed_nanoseconds)
    )


def _check_frame(one: Any, name: str) -> None:
    if not hasattr(one, "mapInArrow"):
        raise UserError(
            f"{name}: a {type(one).__name__} is no DataFrame of Spark; spark.createDataFrame makes one"
        )
    if one.isStreaming:
        raise UserError(
            f"{name}: a stream; views are made of DataFrames that end. Write it to files and give those, or "
            "follow block logs with `orderbook stream`"
        )


def active_session() -> SparkSession:
    """The session that is active, classic or of Spark Connect. Raises UserError where there is none."""
    found = SparkSession.getActiveSession()
    if found is None:
        try:
            from pyspark.sql.connect.session import SparkSession as Connected

            found = Connected.getActiveSession()  # type: ignore[assignment]
        except ImportError:
            found = None
    if found is None:
        raise UserError(
            "no Spark session is active; make one (SparkSession.builder.getOrCreate()) or pass session="
        )
    return found


def _partitions(asked: int | None, session: SparkSession, given: Given) -> int:
    if asked is not None and asked < 1:
        raise UserError(f"partitions={asked}; give 1 or more")
    if any(spec.log is not None for spec in given.specs):
        if asked not in (None, 1):
            raise UserError("a log has the order of its run, and so is one task; leave partitions out")
        return 1
    return asked or cores(session) or _TASKS


def _view_shapes(settings: JobSettings, history: bool) -> dict[str, Shape]:
    compiled = settings.program.compiled()
    keys = {view.name: [key.name for key in view.keys] for view in compiled.views}
    datasets = {name: history_of(compiled.program.result(name), keys[name]) for name in settings.views}
    shape = Shape.changes if history else Shape.rows
    return {name: shape(dataset) for name, dataset in datasets.items()}


def _narrowed(settings: JobSettings, view: str) -> JobSettings:
    """The settings of one view, whose program has what it needs and nothing else."""
    program = settings.program.compiled()
    return replace(settings, program=JobProgram.of(only(program, view)), views=(view,))


def only(program: CompiledProgram, view: str) -> CompiledProgram:
    """The program without views that a view does not read; as it is where it has M3 written by hand."""
    if any(is_m3(*text) for text in program.texts):
        return program
    source, dropped = program.source, True
    while dropped:
        dropped = False
        for one in [one.name for one in source.catalog.views if one.name != view]:
            try:
                source, dropped = without_view(source, one), True
            except DataError:  # another view reads it
                continue
    return source.compiled(Dictionary())


def _frame(session: SparkSession, settings: JobSettings, given: Given, result: Result | None) -> DataFrame:
    """What all tasks send, or the rows of a result."""
    if given.tables is not None:
        return _of_tables(session, settings, given.tables, given.allow_incomplete, result)
    if given.markets:
        return _of_markets(session, settings, given.markets, result)
    plan = planned(settings, given.specs, settings.definitions())
    finish = None if result is None else result.finish
    tasks = [pickle.dumps(task) for task in plan.tasks]
    frame = map_blocks(session, tasks, partial(_read, settings), None if plan.levels else finish)
    return _through(frame, settings, plan.levels, plan.partitions, finish)


def _through(
    frame: DataFrame, settings: JobSettings, levels: Sequence[int], partitions: int, finish: Finish | None
) -> DataFrame:
    """Blocks through the stages of levels, the last of which makes what is wanted."""
    for number, level in enumerate(levels, start=1):
        last = finish if number == len(levels) else None
        frame = reduce_blocks(frame, partial(stage_task, settings, level), partitions, last)
    return frame


def _read(settings: JobSettings, description: bytes) -> Iterator[Sent]:
    """In a worker: one task that reads."""
    task: ReadTask = pickle.loads(description)
    yield from read_task(settings, task)


def _chosen(frame: DataFrame, result: Result) -> DataFrame:
    return map_in_workers(frame, result.finish.function, result.finish.schema)


def _of_tables(
    session: SparkSession,
    settings: JobSettings,
    rows: Mapping[str, Rows],
    allow_incomplete: bool,
    result: Result | None,
) -> DataFrame:
    tables = tables_of(rows, settings.program.compiled())
    levels = sorted(set(layout_of(settings).levels.values()))
    frame = table_frame(session, tables, settings, allow_incomplete)
    return _through(frame, settings, levels, _widest(settings), None if result is None else result.finish)


def _widest(settings: JobSettings) -> int:
    layout = layout_of(settings)
    words = layout.program.dictionary
    sizes = [layout.router(stage, words).count for stage in layout.distribution.stages]
    return max([settings.partitions, *sizes])


def _of_markets(
    session: SparkSession, settings: JobSettings, markets: Sequence[Matched], result: Result | None
) -> DataFrame:
    definitions = settings.definitions()
    why = None
    if settings.strategy_program is not None:
        why = why_one_task(definitions, settings.strategy_program.compiled(), settings.partitions)
    if why is not None or timed_relations(settings.program.compiled()):
        settings = replace(settings, partitions=1)
    layout = layout_of(settings)
    levels = sorted({level for level in layout.levels.values() if level})
    places = tuple(range(len(definitions)))
    versioned = all(one.kind == "events" for one in markets)
    task = partial(market_task, settings, places, sent_relations(layout), versioned)
    frames = [map_blocks(session, [b""], partial(_starts_after, settings))] if levels else []
    frames += [market_blocks(one, settings) for one in markets]
    finish = None if result is None else result.finish
    frame = reduce(DataFrame.union, frames)
    frame = reduce_blocks(frame, task, settings.partitions, None if levels else finish)
    return _through(frame, settings, levels, _widest(settings), finish)


def _starts_after(settings: JobSettings, description: bytes) -> Iterator[Sent]:
    layout = layout_of(settings)
    yield from Sender(layout, 0, layout.program.dictionary).starts()
