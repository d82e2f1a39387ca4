"""The tables of a configuration for feeds, and for how a run is watched and computed.

Feeds can be written as texts, too. A run has metrics and logs. `monitor` says where the page and the
websocket are served; `spark` where Spark runs, and what it is given.
"""

import os
import re
from collections.abc import Mapping
from dataclasses import asdict
from glob import has_magic
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, BeforeValidator, Field, ValidationInfo, field_validator, model_validator
from pydantic_core import PydanticCustomError

from orderbook.core.errors import UserError
from orderbook.core.options import (
    Duration,
    File,
    Products,
    Real,
    Section,
    Size,
    Text,
    is_loopback_host,
    matching,
    read_by,
)
from orderbook.core.units import nanoseconds, size_of
from orderbook.feeds.database_table import TableOptions, table_options
from orderbook.feeds.exchanges.exchange import EXCHANGES
from orderbook.feeds.kafka_topic import TopicOptions, topic_address
from orderbook.feeds.source_kinds import unknown_kind
from orderbook.feeds.storage import split_options


def _flat(value: Any, prefix: str = "") -> Any:
    """TOML's dotted keys are nested tables; Spark's properties are flat names."""
    if not isinstance(value, Mapping):
        return value
    flat: dict[str, Any] = {}
    for key, inner in value.items():
        nested = _flat(inner, f"{prefix}{key}.")
        flat.update(nested if isinstance(nested, Mapping) else {prefix + key: nested})
    return flat


def _text(value: Any) -> Any:
    return str(value).lower() if isinstance(value, bool) else str(value) if isinstance(value, int) else value


def unset(value: str) -> PydanticCustomError:
    """The error of `$NAME` where the environment has no such variable."""
    return PydanticCustomError(
        "environment", "the variable {name} of the environment is not set", {"name": value[1:]}
    )


def _environment(value: str) -> str:
    if value.startswith("$") and value[1:] not in os.environ:
        raise unset(value)
    return value


def from_environment(properties: Mapping[str, str]) -> dict[str, str]:
    """Properties with what the environment says of those that begin with "$"."""
    return {n: os.environ.get(v[1:], "") if v.startswith("$") else v for n, v in properties.items()}


Properties = Annotated[
    dict[str, Annotated[str, BeforeValidator(_text), AfterValidator(_environment)]], BeforeValidator(_flat)
]


class SimulatedFeed(Section):
    """The simulated exchange and its client.

    `events_per_second` counts order-book messages of all products; `imbalance` in [0, 1] is how
    hard one side presses, in episodes; `levels` are price levels a side.
    """

    kind: Literal["simulated"]
    products: Products = ("BTC-USD", "ETH-USD", "SOL-USD")
    seed: Annotated[int, Field(ge=0)] = 1
    events_per_second: Annotated[Real, Field(gt=0)] = 2000.0
    imbalance: Annotated[Real, Field(ge=0, le=1)] = 0.3
    levels: Annotated[int, Field(ge=1)] = 200


class ExchangeFeed(Section):
    """Products of an exchange, as it names them; `url` and `rest_url` None are the exchange's own.

    `depth` is the number of price levels a side, where the exchange offers several.
    """

    kind: Literal[EXCHANGES]  # type: ignore[valid-type]
    products: Products
    url: Annotated[str, matching(r"wss?://.+", "a ws(s) address")] | None = None
    rest_url: Annotated[str, matching(r"https?://.+", "an http(s) address")] | None = None
    depth: Annotated[int, Field(ge=1)] | None = None


class FileFeed(Section):
    """A recorded source, a file or a glob of files: `path` read as `format`, or as what it holds if None."""

    kind: Literal["file"]
    path: File
    format: Text | None = None

    @property
    def source(self) -> str:
        """The source as the command line writes it: FORMAT:FILE or FILE."""
        return f"{self.format}:{self.path}" if self.format else str(self.path)


class CaptureFeed(Section):
    """A recording of raw frames played as a live feed, `speed` times as fast (0: as fast as it is taken).

    `exchange` and `products` are needed where a recording of another program does not tell them.
    """

    kind: Literal["capture"]
    path: File
    exchange: Text | None = None
    products: Annotated[tuple[Text, ...], Field(strict=False)] = ()
    speed: Annotated[Real, Field(ge=0)] = 1.0


class TableFeed(Section):
    """A table of a database, read again every `interval_seconds`; the other keys are TableOptions'."""

    kind: Literal["table"]
    url: Text
    table: Text
    relation: str = ""
    mode: Literal["poll", "log"] = "poll"
    interval_seconds: Annotated[Real, Field(gt=0)] = 1.0
    key: Annotated[tuple[Text, ...], Field(strict=False)] = ()
    columns: Annotated[tuple[Text, ...], Field(strict=False)] = ()
    sequence: Text = "sequence"
    op: Text = "op"
    transaction: str = ""
    after: str = ""

    @property
    def table_options(self) -> TableOptions:
        """What a reader of the table is given."""
        return TableOptions(**self.model_dump(exclude={"kind", "interval_seconds"}))


class KafkaFeed(Section):
    """A topic of Kafka, `kafka://HOST:PORT,…/TOPIC`; the other keys are TopicOptions'."""

    kind: Literal["kafka"]
    address: Annotated[str, read_by(topic_address, "kafka://HOST:PORT,…/TOPIC")]
    relation: str = ""
    start: Literal["earliest", "latest"] = "earliest"
    properties: Properties = Field(default_factory=dict, repr=False)

    @property
    def topic_options(self) -> TopicOptions:
        """What a reader of the topic is given."""
        return TopicOptions(self.address, self.relation, self.start, from_environment(self.properties))


LiveKind = SimulatedFeed | ExchangeFeed | CaptureFeed | TableFeed | KafkaFeed
Feed = LiveKind | FileFeed
# Exchanges whose name is also that of a kind of files.
_FILES = ("binance", "bybit", "hyperliquid")
# As the exchange with slashes in them names them.
_PAIR = re.compile(r"[A-Z0-9]+/[A-Z0-9]+")
FEEDS: dict[str, type[Section]] = {
    "simulated": SimulatedFeed,
    "file": FileFeed,
    "capture": CaptureFeed,
    "table": TableFeed,
    "kafka": KafkaFeed,
    **dict.fromkeys(EXCHANGES, ExchangeFeed),
}


def feed_table(value: object) -> object:
    """`kraken:XBT/USD,ETH/USD`, `simulated`, `capture:PATH`, `table:URL#TABLE`, `FORMAT:FILE`, `FILE`.

    A feed's text as its table; `kafka://HOST:PORT,…/TOPIC?relation=NAME` is one, too.
    """
    if not isinstance(value, str):
        return value
    kind, colon, rest = value.partition(":")
    if kind == "simulated" or (kind in EXCHANGES and not (kind in _FILES and _is_path(kind, rest))):
        return {"kind": kind, "products": rest.split(",")} if colon else {"kind": kind}
    if kind == "capture" and colon:
        return _capture_table(rest)
    if value.startswith("kafka://"):
        address, options = split_options(value, ("relation", "start"))
        return {"kind": "kafka", "address": address, **options}
    if kind == "table" and colon:
        return {"kind": kind, **asdict(table_options(rest))}
    if (why := unknown_kind(value, FEEDS)) is not None:
        raise PydanticCustomError("feed", "{why}", {"why": why})
    if colon:
        return {"kind": "file", "format": kind, "path": rest}
    return {"kind": "file", "path": value}


def _is_path(kind: str, text: str) -> bool:
    """Whether what stands after an exchange's name is a file, and not its products."""
    # Products have neither slashes nor dots, but for the .P of Bybit's perpetuals and Hyperliquid's spot.
    products = text.split(",")
    dotted = any("." in product.removesuffix(".P") for product in products)
    pairs = kind == "hyperliquid"
    parted = any("/" in product and not (pairs and _PAIR.fullmatch(product)) for product in products)
    return dotted or parted or has_magic(text) or Path(text).exists()


def _capture_table(text: str) -> dict[str, object]:
    path, options = split_options(text, ("exchange", "products", "speed"))
    table: dict[str, object] = {"kind": "capture", "path": path, **options}
    if "products" in options:
        table["products"] = options["products"].split(",")
    if "speed" in options:
        try:
            table["speed"] = float(options["speed"])
        except ValueError:
            raise UserError(f"capture:{text}: the speed must be a number, such as 1 or 0.5") from None
    return table


class SinkOptions(Section):
    """Where the changes of a view's rows are sent: a table of PostgreSQL, or a topic of Kafka.

    `to` is `postgresql://…` or `kafka://HOST:PORT,…/TOPIC`. `table` "" is the view's name. `mode` "rows"
    keeps a table's rows those of the view, "changes" appends every change; None: rows of a table, changes of
    a topic.
    What changes within an `interval` is written together. `buffer_rows` rows that changed, or changes that
    take `spill` on the disk, wait at most. `properties` are librdkafka's; `$NAME` is one of the environment.
    """

    view: Text
    to: Annotated[
        str,
        matching(r"(postgres(ql)?|kafka)://.*", '"postgresql://…" or "kafka://HOST:PORT,…/TOPIC"'),
        Field(repr=False),
    ]
    table: str = ""
    mode: Literal["rows", "changes"] | None = None
    interval: Duration = "100ms"
    buffer_rows: Annotated[int, Field(ge=1)] = 100_000
    spill: Size = "1 GB"
    properties: Properties = Field(default_factory=dict, repr=False)

    @field_validator("to")
    @classmethod
    def _topic(cls, to: str) -> str:
        if to.startswith("kafka:"):
            try:
                topic_address(to)
            except UserError:
                raise PydanticCustomError("topic", "kafka://HOST:PORT,…/TOPIC") from None
        return to

    @field_validator("mode")
    @classmethod
    def _rows_of_tables(cls, mode: str | None, info: ValidationInfo) -> str | None:
        if mode == "rows" and info.data.get("to", "").startswith("kafka:"):
            raise PydanticCustomError("mode", '"changes", which is what a topic holds')
        return mode

    @property
    def sends(self) -> Literal["rows", "changes"]:
        """The mode."""
        return self.mode or ("changes" if self.to.startswith("kafka:") else "rows")

    @property
    def target(self) -> str:
        """The address and table without what is secret."""
        shown = re.sub(r"//[^@/]*@", "//", self.to).partition("?")[0]
        return shown if self.to.startswith("kafka:") else f"{shown}#{self.table or self.view}"


Token = Annotated[str, matching(r"[!-~]*", "visible ASCII characters without spaces"), Field(repr=False)]


class MetricsOptions(Section):
    """The metrics endpoint: `port` 0 is none. A `host` that is not loopback needs a `token`."""

    port: Annotated[int, Field(ge=0, le=65535)] = 0
    host: Text = "127.0.0.1"
    token: Token = ""

    @field_validator("token")
    @classmethod
    def _needed(cls, token: str, info: ValidationInfo) -> str:
        if info.data.get("port"):
            check_token(token, "metrics", info.data.get("host", ""))
        return token


class LoggingOptions(Section):
    """What is logged, from `level` on, and where: to `file` (None: standard error)."""

    level: Literal["debug", "info", "warning", "error"] = "info"
    format: Literal["text", "json"] = "text"
    file: File | None = None


def check_token(token: str, section: str, host: str) -> None:
    """Raises where others can reach what a section of the configuration serves, and there is no token."""
    if not token and not is_loopback_host(host):
        raise PydanticCustomError("token", f"a token, because {section}.host is not loopback")


_ORIGIN = r"(https?://[A-Za-z0-9.-]+(:\d{1,5})?)?"


# Less, and a process has no room beside what it needs for itself.
_LEAST_MEMORY = 384 * 10**6


def _memory(text: str) -> str:
    if size_of(text) < _LEAST_MEMORY:
        raise PydanticCustomError("memory", 'a size of at least "384 MB"')
    return text


_MEMORY = Annotated[Size, AfterValidator(_memory)]


class QueryOptions(Section):
    """What SQL of clients may take, ad hoc and for a continuous query or a view; beyond that it is refused.

    `time_limit` and `memory` are those of a query and of each of the two processes that run them, `rows` and
    `answer` the size of an answer. `copying` is what copying rows may take of the run's thread, as a fraction
    of the time in which it has events to apply, and ten times that of the time in which it waits, for SQL and
    once more for reads in bulk, which wait for it. `compile_time_limit` and
    `compile_memory` are those of a process that binds and compiles; `views` is how many continuous queries
    of SQL there are.
    """

    time_limit: Duration = "10s"
    memory: _MEMORY = "512 MB"
    rows: Annotated[int, Field(ge=1)] = 1_000_000
    answer: Size = "2 MB"
    copying: Annotated[float, Field(gt=0, le=1)] = 0.01
    compile_time_limit: Duration = "60s"
    compile_memory: _MEMORY = "1 GB"
    views: Annotated[int, Field(ge=0)] = 8

    @property
    def seconds(self) -> float:
        """`time_limit`."""
        return nanoseconds(self.time_limit) / 1e9

    @property
    def memory_bytes(self) -> int:
        """`memory`."""
        return size_of(self.memory)

    @property
    def answer_bytes(self) -> int:
        """`answer`."""
        return size_of(self.answer)

    @property
    def compile_seconds(self) -> float:
        """`compile_time_limit`."""
        return nanoseconds(self.compile_time_limit) / 1e9

    @property
    def compile_memory_bytes(self) -> int:
        """`compile_memory`."""
        return size_of(self.compile_memory)


# Half an hour of a few books.
_LEAST_HISTORY = 16_000_000


def _history(text: str) -> str:
    if size_of(text) < _LEAST_HISTORY:
        raise PydanticCustomError("history", 'a size of at least "16 MB"')
    return text


class MonitorOptions(Section):
    """The monitor of `orderbook run`. A `host` that is not loopback, and an `origin`, need a `token`.

    `port`: where it is taken, the next free one. `token`: what clients must give to change anything; without
    one nobody can. `origin`: where a proxy serves the page, "" for none. `history`: memory
    for the past that pages show as they are opened. `preview`: books and trades are shown while a start takes
    long.
    """

    enabled: bool = True
    port: Annotated[int, Field(ge=0, le=65535)] = 8799
    host: Text = "127.0.0.1"
    origin: Annotated[str, matching(_ORIGIN, 'an origin such as "https://desk.example"')] = ""
    token: Token = ""
    history: Annotated[Size, AfterValidator(_history)] = "256 MB"
    preview: bool = True

    @property
    def history_bytes(self) -> int:
        """`history`."""
        return size_of(self.history)

    @field_validator("token")
    @classmethod
    def _needed(cls, token: str, info: ValidationInfo) -> str:
        if info.data.get("enabled"):
            check_token(token, "monitor", info.data.get("host", ""))
            if info.data.get("origin") and not token:
                raise PydanticCustomError("token", "a token, because monitor.origin lets others in")
        return token


# Where the password of clients of PostgreSQL is, so that no file has it.
POSTGRES_PASSWORD = "ORDERBOOK_POSTGRES_PASSWORD"


class DoorOptions(Section):
    """A socket beside the monitor's that clients of another protocol connect to.

    `certificate` and `key`: PEM files by which connections are encrypted, both or neither.
    """

    enabled: bool = False
    host: Text = "127.0.0.1"
    certificate: File | None = None
    key: File | None = None

    @model_validator(mode="after")
    def _paired(self) -> Self:
        if (self.certificate is None) is not (self.key is None):
            raise PydanticCustomError("key", "both a certificate and its key, or neither")
        return self

    def told(self, descriptor: int) -> dict[str, Any]:
        """What the server takes: the descriptor of its socket, and by what it is encrypted."""
        certificate, key = (None if path is None else str(path) for path in (self.certificate, self.key))
        return {"descriptor": descriptor, "certificate": certificate, "key": key}


class PostgresOptions(DoorOptions):
    """What clients of PostgreSQL connect to. A `host` that is not loopback needs a password.

    `port`: where it is taken, the next free one. `user` logs in by SCRAM with the password that the
    environment variable ORDERBOOK_POSTGRES_PASSWORD has; without one there, everybody on this machine may
    read.
    """

    port: Annotated[int, Field(ge=0, le=65535)] = 5433
    user: Text = "orderbook"

    @model_validator(mode="after")
    def _closed(self) -> Self:
        if self.enabled and not is_loopback_host(self.host) and not os.environ.get(POSTGRES_PASSWORD):
            raise PydanticCustomError(
                "password", f"a password in {POSTGRES_PASSWORD}, because postgres.host is not loopback"
            )
        return self

    def told(self, descriptor: int) -> dict[str, Any]:
        """With who is let in."""
        return super().told(descriptor) | {
            "user": self.user,
            "password": os.environ.get(POSTGRES_PASSWORD, ""),
        }


class FlightOptions(DoorOptions):
    """What clients of Arrow Flight connect to. A `host` that is not loopback needs a `token`.

    `port`: where it is taken, the next free one. `answer`: bytes of the rows that one call gives at most.
    """

    port: Annotated[int, Field(ge=0, le=65535)] = 8815
    token: Token = ""
    answer: Size = "256 MB"

    @model_validator(mode="after")
    def _closed(self) -> Self:
        if self.enabled:
            check_token(self.token, "flight", self.host)
        return self

    def told(self, descriptor: int) -> dict[str, Any]:
        """With who is let in, and how much is given."""
        return super().told(descriptor) | {
            "host": self.host,
            "token": self.token,
            "most": size_of(self.answer),
        }


_MASTER = r"local(\[.*\])?|local-cluster\[.*\]|(spark|sc|k8s)://.+|yarn"


def _named(properties: dict[str, str]) -> dict[str, str]:
    if all(name.startswith("spark.") for name in properties):
        return properties
    raise PydanticCustomError("property", 'properties whose names begin with "spark."')


SparkProperties = Annotated[
    dict[str, Annotated[str, BeforeValidator(_text)]], BeforeValidator(_flat), AfterValidator(_named)
]


class SparkOptions(Section):
    """Where Spark runs: `master` is "local[N]", "local-cluster[…]", "spark://…", "yarn", "k8s://…" or "sc://…".

    `memory` is the JVM's heap on this machine, `folder` where temporary files go (None: the system's), `log`
    the file of Spark's messages (None: one that goes with the process), `java` the home of a Java 17 to 25
    (None: one that is found), `python` the interpreter of workers (None: this one on this machine, on a
    cluster what PYSPARK_PYTHON says, else `python3`). `properties` are handed to Spark as they are, over
    everything else.
    """

    master: Annotated[
        str, matching(_MASTER, '"local[N]", "local-cluster[…]", "spark://…", "yarn", "k8s://…" or "sc://…"')
    ] = "local[*]"
    memory: Size = "2 GB"
    folder: File | None = None
    log: File | None = None
    java: File | None = None
    python: Text | None = None
    properties: Annotated[SparkProperties, Field(strict=False)] = Field(default_factory=dict)
