"""The tables of feeds in a configuration, and the text that each can be written as."""

from dataclasses import asdict
from glob import has_magic
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field
from pydantic_core import PydanticCustomError

from feeds.database import TableOptions, table_options
from feeds.exchanges.registry import EXCHANGES
from feeds.source import unknown_kind
from feeds.source_options import split_options
from orderbook.errors import UserError
from orderbook.option_types import File, Products, Real, Section, Text, matching


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


LiveKind = SimulatedFeed | ExchangeFeed | CaptureFeed | TableFeed
Feed = LiveKind | FileFeed
# Exchanges whose name is also that of a kind of files.
_FILES = ("binance", "bybit")
FEEDS: dict[str, type[Section]] = {
    "simulated": SimulatedFeed,
    "file": FileFeed,
    "capture": CaptureFeed,
    "table": TableFeed,
    **dict.fromkeys(EXCHANGES, ExchangeFeed),
}


def feed_table(value: object) -> object:
    """`kraken:XBT/USD,ETH/USD`, `simulated`, `capture:PATH`, `table:URL#TABLE`, `FORMAT:FILE`, `FILE`.

    A feed's text as its table.
    """
    if not isinstance(value, str):
        return value
    kind, colon, rest = value.partition(":")
    if kind == "simulated" or (kind in EXCHANGES and not (kind in _FILES and _is_path(rest))):
        return {"kind": kind, "products": rest.split(",")} if colon else {"kind": kind}
    if kind == "capture" and colon:
        return _capture_table(rest)
    if kind == "table" and colon:
        return {"kind": kind, **asdict(table_options(rest))}
    if (why := unknown_kind(value, FEEDS)) is not None:
        raise PydanticCustomError("feed", "{why}", {"why": why})
    if colon:
        return {"kind": "file", "format": kind, "path": rest}
    return {"kind": "file", "path": value}


def _is_path(text: str) -> bool:
    """Whether what stands after an exchange's name is a file, and not its products."""
    # Products have neither slashes nor dots, but for the .P of Bybit's perpetuals.
    products = text.split(",")
    dotted = any("." in product.removesuffix(".P") for product in products)
    return dotted or "/" in text or has_magic(text) or Path(text).exists()


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
