"""The configuration of a run: typed, frozen, and validated with the place of every mistake.

`config.toml` documents each key with its unit; the copy in this package is the default, and every
other file is laid over it. Nothing here opens a feed or compiles a view.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from decimal import Decimal
from functools import cache, reduce
from importlib import resources
from math import inf
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar, cast

from pydantic import BeforeValidator, Field, PlainValidator, PrivateAttr, ValidationError
from pydantic_core import PydanticCustomError

from orderbook.configuration.alert_options import (
    AlertingOptions,
    AlertOptions,
    ChannelOptions,
    EscalationStep,
)
from orderbook.configuration.alert_options import Name as AlertName
from orderbook.configuration.options import (
    FEEDS,
    CaptureFeed,
    DoorOptions,
    Feed,
    FileFeed,
    FlightOptions,
    LoggingOptions,
    MetricsOptions,
    MonitorOptions,
    PostgresOptions,
    QueryOptions,
    SinkOptions,
    SparkOptions,
    TableFeed,
    feed_table,
)
from orderbook.core.errors import ConfigurationError, UserError, nearest, suggestion
from orderbook.core.options import (
    Duration,
    File,
    Filled,
    KeyPath,
    Real,
    Section,
    Size,
    Text,
    TomlDocument,
    explain,
    matching,
    parse_toml,
    problem,
    read_by,
    read_toml,
)
from orderbook.core.processors import unavailable
from orderbook.core.run_clock import ClockLimits
from orderbook.core.units import delay, nanoseconds, size_of
from orderbook.engine.log.log import SyncPolicy
from orderbook.strategies.execution.gateway_options import GATEWAYS, GatewayOptions
from orderbook.strategies.execution.venue_model import (
    RiskLimits,
    RiskOptions,
    SimulationOptions,
    TradingOptions,
    VenueFees,
    strategy_table,
)
from orderbook.views.library import files_by_name

Scalar = Decimal | int | str | bool


def _scalar(value: object) -> Scalar:
    if isinstance(value, float):
        value = Decimal(repr(value))
    if isinstance(value, int | str) or (isinstance(value, Decimal) and value.is_finite()):
        return value
    raise PydanticCustomError("scalar", "a finite number, a string or a boolean")


Scalars = dict[str, Annotated[Scalar, PlainValidator(_scalar)]]
StrategyName = Annotated[
    str, matching(r"([A-Za-z_][\w.]*:)?[A-Za-z_]\w*", "MODULE:CLASS, or the name of a strategy in SQL")
]


class RunOptions(Section):
    """What runs: names or .sql paths of views, MODULE:CLASS of strategies, or their names in
    SQL, seconds (None: until Ctrl-C).

    `allow_incomplete`: the exit status is 0 also where a result is incomplete, see orderbook.run.findings.
    `core` is the processor that the engine's thread has to itself; None: it runs where the system puts it.
    """

    views: Annotated[tuple[Text, ...], Field(strict=False)]
    strategies: Annotated[tuple[StrategyName, ...], Field(strict=False)]
    backend: Literal["numba", "interpreter"]
    duration_seconds: Annotated[Real, Field(gt=0)] | None = None
    allow_incomplete: bool = False
    core: Annotated[int, Field(ge=0)] | None = None


class ViewOptions(Section):
    """Folders of .sql files, or files, searched in order before the views that ship."""

    paths: Annotated[tuple[File, ...], Field(strict=False)] = ()


def _limits(rotate: str) -> tuple[float, float]:
    """The bytes and seconds that a size or time says. Raises UserError."""
    try:
        return size_of(rotate), inf
    except UserError:
        return inf, nanoseconds(rotate) / 1e9


class ClockOptions(Section):
    """How often the clock that NOW() reads moves: a number and a unit, such as "100ms".

    The rest are the limits of RunClock: from where on the machine's clock has jumped, how long a jump stands
    before it is followed, and how far a log may end after that clock's time.
    """

    resolution: Duration = "1s"
    max_step: Duration = "1s"
    settle: Duration = "60s"
    max_ahead: Duration = "24h"

    @property
    def limits(self) -> ClockLimits:
        """What the run's time keeps to."""
        return ClockLimits(*map(nanoseconds, (self.max_step, self.settle, self.max_ahead)))

    @property
    def nanoseconds(self) -> int:
        """The resolution in ns."""
        return nanoseconds(self.resolution)


class BookOptions(Section):
    """How long a book may be crossed outside auctions and halts before it is lost: "5s"; "0s": for ever."""

    crossed_limit: Annotated[str, read_by(delay, 'a time such as "5s"')] = "5s"

    @property
    def crossed_nanoseconds(self) -> int:
        """The limit in ns, 0 for none."""
        return delay(self.crossed_limit)


class EpochOptions(Section):
    """How long an epoch is, of which committed versions are made."""

    length: Duration = "1s"

    @property
    def nanoseconds(self) -> int:
        """The length in ns."""
        return nanoseconds(self.length)


class LogOptions(Section):
    """The durable log of a run: its `folder` (None: no log), and when what is appended is durable.

    `sync` is "batch", "never" or an interval. `segment` is the size of a file; a checkpoint is written every
    `checkpoint_interval`, and the last `keep` stay; what the log has before them goes, unless `keep_log`.
    """

    folder: File | None = None
    sync: Annotated[str, read_by(SyncPolicy.parse, '"batch", "never" or a time such as "100ms"')] = "batch"
    segment: Size = "64 MB"
    checkpoint_interval: Duration = "60s"
    keep: Annotated[int, Field(ge=1)] = 2
    keep_log: bool = False

    @property
    def checkpoint_seconds(self) -> float:
        """The interval between checkpoints in seconds."""
        return nanoseconds(self.checkpoint_interval) / 1e9


class RecordOptions(Section):
    """Recordings of live feeds: their `folder` (None: none), and after what size or time files `rotate`."""

    folder: File | None = None
    rotate: Annotated[str, read_by(_limits, 'a size or time such as "1 GB" or "1h"')] | None = None

    @property
    def limits(self) -> tuple[float, float]:
        """The bytes and seconds of a file."""
        if self.rotate is None:
            return inf, inf
        return _limits(self.rotate)


# Each has books and maps of its own, and an image of every instrument's book.
MOST_THREADS = 64


class EngineOptions(Section):
    """`batch_size` and `queue_size` count events; `cache` None leaves the folder to the engine.

    `when_behind` says what strategies see while half of the queue waits: every change, or each row's last.
    `keep_rows` keeps the rows of all relations for views that are added later; `statistics` is a file of
    `orderbook replan`. `materialize` is how much is kept of views that do not say so, `memory_budget` the
    size that all maps are to stay within. `threads` is how many run books and views at once.
    """

    batch_size: Annotated[int, Field(ge=1)]
    queue_size: Annotated[int, Field(ge=1)]
    cache: File | None = None
    keep_rows: bool = False
    statistics: File | None = None
    when_behind: Literal["block", "conflate"] = "block"
    materialize: Literal["none", "first", "full"] = "full"
    memory_budget: Size | None = None
    threads: Annotated[int, Field(ge=1, le=MOST_THREADS)] = 1


class Configuration(Section):
    """A validated configuration; `load_configuration` makes them."""

    run: RunOptions
    parameters: Scalars
    views: ViewOptions
    feeds: Annotated[
        tuple[Annotated[Feed, Field(discriminator="kind"), BeforeValidator(feed_table)], ...],
        Field(strict=False),
        Filled,
    ]
    sinks: Annotated[tuple[SinkOptions, ...], Field(strict=False)] = ()
    strategies: dict[str, Scalars]
    simulation: SimulationOptions
    risk: RiskOptions
    execution: dict[
        Annotated[str, matching("|".join(GATEWAYS), f"a venue with an order gateway: {', '.join(GATEWAYS)}")],
        GatewayOptions,
    ]
    clock: ClockOptions
    books: BookOptions
    epochs: EpochOptions
    log: LogOptions
    record: RecordOptions
    alerts: dict[AlertName, AlertOptions]
    channels: dict[AlertName, ChannelOptions]
    alerting: AlertingOptions
    metrics: MetricsOptions
    monitor: MonitorOptions
    postgres: PostgresOptions
    flight: FlightOptions
    queries: QueryOptions
    logging: LoggingOptions
    engine: EngineOptions
    spark: SparkOptions
    _document: TomlDocument = PrivateAttr()
    _overridden: frozenset[KeyPath] = PrivateAttr(frozenset())
    # As the file says it, without what the command line says.
    _run_of_file: RunOptions = PrivateAttr()

    @property
    def trading(self) -> TradingOptions:
        """All that decides what becomes of orders. Raises ConfigurationError for files of latencies."""
        return TradingOptions(self.simulation.loaded(), self.risk)

    @property
    def live_trading(self) -> TradingOptions:
        """The same of a run, and of what is made of its log: with the order gateways."""
        venues = tuple(venue for venue, one in self.execution.items() if one.mode != "off")
        return TradingOptions(self.simulation.loaded(), self.risk, venues)

    def with_run(self, **options: object) -> "Configuration":
        """The same with other options of `run`."""
        return self.model_copy(update={"run": self.run.model_copy(update=options)})

    def without_views(self) -> "Configuration":
        """The same run without views of its own; the files that had them are searched first.

        Raises ConfigurationError as `view_file` does.
        """
        files = tuple(map(self.view_file, self.run.views))
        views = self.views.model_copy(update={"paths": (*files, *self.views.paths)})
        return self.with_run(views=()).model_copy(update={"views": views})

    def view_file(self, name: str) -> Path:
        """The .sql file of a view named in `run.views` or on the command line.

        Raises ConfigurationError, with the nearest name, when no folder of the search path has it.
        """
        if name.endswith(".sql"):
            if not Path(name).is_file():
                raise self.error(("run", "views"), f"no such file: {name}")
            return Path(name)
        for path in self.views.paths:
            if not path.exists():
                raise self.error(("views", "paths"), f"no such file or folder: {path}")
        known = files_by_name(self.views.paths)
        if name not in known:
            raise self.error(("run", "views"), f"no view is named {name!r}; {suggestion(name, known)}")
        return known[name]

    def strategy_parameters(self, strategy: str) -> Mapping[str, Scalar]:
        """The parameters of the strategy MODULE:CLASS; empty without its table."""
        return self.strategies.get(strategy_table(strategy), {})

    def check_core(self) -> None:
        """Raises ConfigurationError where this machine cannot give the engine's thread `run.core`."""
        core = self.run.core
        if core is not None and (why := unavailable(core)) is not None:
            raise self.error(("run", "core"), why)

    def check_parameters(
        self, used: Collection[str], elsewhere: Callable[[], Collection[str]] | None = None
    ) -> None:
        """Refuse misspelt SQL parameters, given the names that the run uses, and what gives those of all
        other views that it could have.

        A parameter is misspelt when nothing uses it and it resembles one that is used and that the
        file does not set, or when nothing else has it either; those of the default configuration are not.
        Raises ConfigurationError.
        """
        own = [name for name in self.parameters if self._document.contains(("parameters", name))]
        unset = set(used).difference(own)
        for name in own:
            if name in used or name in _default().values["parameters"]:
                continue
            path: KeyPath = ("parameters", name)
            if near := nearest(name, unset):
                raise self.error(path, f"nothing uses it; did you mean {near!r}?")
            if elsewhere is not None:
                known = {*used, *elsewhere()}
                if name not in known:
                    raise self.error(path, f"nothing uses it; {suggestion(name, known)}")

    def check_strategy_parameters(self, strategy: str, refusal_of: Callable[[str], str | None]) -> None:
        """Refuse the keys of a strategy's table that `refusal_of` gives a reason for. Raises
        ConfigurationError with a line for each."""
        table = strategy_table(strategy)
        found = [(name, refusal_of(name)) for name in self.strategies.get(table, {})]
        errors = [str(self.error(("strategies", table, name), why)) for name, why in found if why]
        if errors:
            raise ConfigurationError("\n".join(errors))

    @property
    def other_strategies(self) -> tuple[str, ...]:
        """Strategies that are not run and have a table, of the file and of the default configuration."""
        named = (*self._run_of_file.strategies, *_default().values["run"]["strategies"])
        run = set(map(strategy_table, self.run.strategies))
        return tuple(n for n in dict.fromkeys(named) if strategy_table(n) in {*self.strategies} - run)

    @property
    def views_of_file(self) -> tuple[str, ...]:
        """The views that the file names, whatever the command line does."""
        return self._run_of_file.views

    def error(self, path: KeyPath, message: str) -> ConfigurationError:
        """What is wrong with a key, and where it stands."""
        overridden = any(path[: len(key)] == key for key in self._overridden)
        return ConfigurationError(problem(path, message, None if overridden else self._document))


def load_configuration(
    path: Path | None = None, overrides: Mapping[str, object] | None = None
) -> Configuration:
    """Lay `path` over the default configuration, and `overrides` (dotted keys to values) over both.

    None is the default alone. Views and strategies of the default run belong together: where the file or an
    override names views, or strategies that are to run, only what is named runs. Relative paths of the file
    are made relative to its folder, those of overrides stay as they are. Raises ConfigurationError: one line
    for each mistake, in the file's order, with file, line and dotted key, or with line and column where the
    file is not TOML.
    """
    default = _default()
    document = default if path is None else read_toml(path)
    own = {} if path is None else document.values
    configuration = _validated(_laid_over(_asked_for(default.values, own), own), document)
    named = cast(Sequence[str], (overrides or {}).get("run.strategies", ()))
    _check_strategy_tables(configuration, document, default, named)
    if path is not None:
        configuration = _anchored(configuration, path.parent)
    configuration._document, configuration._run_of_file = document, configuration.run
    if not overrides:
        return configuration
    run = {key.removeprefix("run."): value for key, value in overrides.items() if key.startswith("run.")}
    values: Mapping[str, Any] = configuration.model_dump()
    if not _names_what_runs(own):
        values = _asked_for(values, {"run": run})
    keys = {tuple(dotted.split(".")): value for dotted, value in overrides.items()}
    for key, value in keys.items():
        values = _laid_over(values, reduce(lambda inner, part: {part: inner}, reversed(key), value))
    overridden = _validated(values, None)
    overridden._document, overridden._overridden = document, frozenset(keys)
    overridden._run_of_file = configuration.run
    return overridden


@cache
def _default() -> TomlDocument:
    text = resources.files("orderbook").joinpath("default.toml").read_text("utf-8")
    return parse_toml(text, "default configuration")


def _names_what_runs(values: Mapping[str, Any]) -> bool:
    """Whether a configuration names views, or strategies that are to run."""
    run = values.get("run")
    return isinstance(run, Mapping) and ("views" in run or bool(run.get("strategies")))


def _asked_for(base: Mapping[str, Any], over: Mapping[str, Any]) -> Mapping[str, Any]:
    """The base, whose views and strategies belong together: without both where `over` names any."""
    if not _names_what_runs(over):
        return base
    return {**base, "run": {**base["run"], "views": [], "strategies": []}}


def _laid_over(base: Any, over: Any) -> Any:
    """Tables merge key by key; anything else replaces what it lies on."""
    if not (isinstance(base, Mapping) and isinstance(over, Mapping)):
        return over
    return {**base, **{key: _laid_over(base.get(key), value) for key, value in over.items()}}


def _validated(values: Mapping[str, Any], document: TomlDocument | None) -> Configuration:
    try:
        return Configuration.model_validate(values)
    except ValidationError as error:
        problems = [explain(detail, _unknown_key) for detail in error.errors(include_url=False)]
    if document is not None:
        problems.sort(key=lambda item: document.line(item[0]))
    raise ConfigurationError("\n".join(problem(path, message, document) for path, message in problems))


def _unknown_key(location: KeyPath) -> str:
    """What to write instead of an undeclared key: the nearest of its table, or the same of another one."""
    sections = {
        name: field.annotation.model_fields
        for name, field in Configuration.model_fields.items()
        if isinstance(field.annotation, type) and issubclass(field.annotation, Section)
    }
    match location:
        case ("feeds", int(), str(kind), str(key)):
            known: Collection[str] = FEEDS[kind].model_fields
        case ("sinks", int(), str(key)):
            known = SinkOptions.model_fields
        case ("simulation", "fees", *_, str(key)):
            known = VenueFees.model_fields
        case ("risk", "strategies", _, str(key)):
            known = RiskLimits.model_fields
        case ("execution", _, str(key)):
            known = GatewayOptions.model_fields
        case ("alerts", _, "escalate", int(), str(key)):
            known = EscalationStep.model_fields
        case ("alerts", _, str(key)):
            known = {field.alias or name for name, field in AlertOptions.model_fields.items()}
        case ("channels", _, str(key)):
            known = ChannelOptions.model_fields
        case (str(section), str(key)):
            known = sections[section]
        case _:
            key, known = str(location[-1]), Configuration.model_fields
    elsewhere = [f"{name}.{key}" for name, fields in sections.items() if key in fields]
    if elsewhere and not nearest(key, known):
        return f"did you mean {elsewhere[0]!r}?"
    return suggestion(key, known)


def _check_strategy_tables(
    configuration: Configuration, document: TomlDocument, default: TomlDocument, named: Sequence[str]
) -> None:
    names = (*configuration.run.strategies, *named)
    known = set(default.values["strategies"]).union(map(strategy_table, names))
    tables: list[tuple[str, ...]] = [("strategies", name) for name in configuration.strategies]
    tables += [("risk", "strategies", name) for name in configuration.risk.strategies]
    problems = [
        problem(path, f"no strategy has this table; {suggestion(path[-1], known)}", document)
        for path in tables
        if path[-1] not in known
    ]
    if problems:
        raise ConfigurationError("\n".join(problems))


_Door = TypeVar("_Door", bound=DoorOptions)


def _with_files(options: _Door, folder: Path) -> _Door:
    """With certificate and key relative to `folder`."""
    files = {
        key: folder / path for key in ("certificate", "key") if (path := getattr(options, key)) is not None
    }
    return options.model_copy(update=files)


def _anchored(configuration: Configuration, folder: Path) -> Configuration:
    """Make relative paths relative to `folder`."""
    run, views, engine = configuration.run, configuration.views, configuration.engine
    record, logging, spark = configuration.record, configuration.logging, configuration.spark
    alerting = configuration.alerting
    names = tuple(str(folder / name) if name.endswith(".sql") else name for name in run.views)
    with_path = FileFeed | CaptureFeed
    feeds = tuple(
        feed.model_copy(update={"path": folder / feed.path}) if isinstance(feed, with_path) else feed
        for feed in configuration.feeds
    )
    feeds = tuple(
        feed.model_copy(update={"url": str(folder / feed.url)})
        if isinstance(feed, TableFeed) and "://" not in feed.url
        else feed
        for feed in feeds
    )
    return configuration.model_copy(
        update={
            "run": run.model_copy(update={"views": names}),
            "views": views.model_copy(update={"paths": tuple(folder / path for path in views.paths)}),
            "simulation": configuration.simulation.anchored(folder),
            "feeds": feeds,
            "engine": engine.model_copy(
                update={
                    "cache": folder / engine.cache if engine.cache else None,
                    "statistics": folder / engine.statistics if engine.statistics else None,
                }
            ),
            "log": configuration.log.model_copy(
                update={"folder": folder / configuration.log.folder if configuration.log.folder else None}
            ),
            "record": record.model_copy(update={"folder": folder / record.folder if record.folder else None}),
            "alerting": alerting.model_copy(
                update={"folder": folder / alerting.folder if alerting.folder else None}
            ),
            "logging": logging.model_copy(update={"file": folder / logging.file if logging.file else None}),
            "postgres": _with_files(configuration.postgres, folder),
            "flight": _with_files(configuration.flight, folder),
            "spark": spark.model_copy(
                update={
                    key: folder / path
                    for key in ("folder", "log", "java")
                    if (path := getattr(spark, key)) is not None
                }
            ),
        }
    )
