"""The data types of Tardis files, known by their headers.

Source: Tardis.dev documentation, "Downloadable CSV files, Data types".
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from feeds.places import Place
from feeds.tardis_rows import Kind
from orderbook.errors import SourceError
from orderbook.symbols import normalise_symbol

_NAMES = ("exchange", "symbol", "timestamp", "local_timestamp")
_UPDATES = ("is_snapshot", "side", "price", "amount")
_TRADES = ("id", "side", "price", "amount")
_QUOTES = ("bid_price", "bid_amount", "ask_price", "ask_amount")
_KINDS = {
    "exchange": Kind.NAME,
    "symbol": Kind.NAME,
    "timestamp": Kind.TIME,
    "local_timestamp": Kind.TIME,
    "is_snapshot": Kind.FLAG,
    "side": Kind.SIDE,
    "id": Kind.ID,
    "price": Kind.NUMBER,
    "amount": Kind.NUMBER,
}
_LEVEL = re.compile(r"(asks|bids)\[(\d+)\]\.(price|amount)")
_KNOWN = "incremental_book_L2, trades, book_snapshot_5, book_snapshot_25, quotes and book_ticker"


@dataclass(frozen=True, slots=True)
class Layout:
    """Where a data type's columns are.

    `kinds` has a Kind for each column. `times` are timestamp and local_timestamp. Updates and trades have
    `updates`: times, is_snapshot or id, side, price, amount. Snapshots of `depth` levels have `levels`: for
    bids and asks, for each level, price and amount.
    """

    data_type: str
    kinds: tuple[int, ...]
    times: tuple[int, int]
    exchange: int
    symbol: int
    trades: bool = False
    updates: tuple[int, ...] = ()
    depth: int = 0
    levels: tuple[tuple[tuple[int, int], ...], ...] = ()

    @property
    def numbers(self) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """The columns of prices, and of amounts."""
        if not self.depth:
            return (self.updates[4],), (self.updates[5],)
        levels = [level for side in self.levels for level in side]
        return tuple(price for price, _ in levels), tuple(amount for _, amount in levels)

    def name(self, line: str) -> tuple[str, str]:
        """Exchange and symbol of a row."""
        fields = line.split(",")
        return fields[self.exchange], fields[self.symbol]


def layout_of(path: Place, header: Sequence[str]) -> Layout:
    """The layout of the file at `path` by the columns of its first line.

    Raises SourceError for a data type that is not read.
    """
    place = {name: i for i, name in enumerate(header)}
    if not all(name in place for name in _NAMES) or place["symbol"] < place["exchange"]:
        raise SourceError(
            f"{path}: its first line has no columns {', '.join(_NAMES)}; read are Tardis's {_KNOWN}"
        )
    times = (place["timestamp"], place["local_timestamp"])
    names = (place["exchange"], place["symbol"])
    levels = _levels(place)
    if levels:
        depth = len(levels[0])
        data_type = "quotes" if depth == 1 else f"book_snapshot_{depth}"
        used = {column for side in levels for level in side for column in level}
        kinds = tuple(
            int(Kind.NUMBER if i in used else _kind(name, _NAMES)) for i, name in enumerate(header)
        )
        return Layout(data_type, kinds, times, *names, depth=depth, levels=levels)
    for data_type, columns in (("incremental_book_L2", _UPDATES), ("trades", _TRADES)):
        if all(name in place for name in columns) and "liquidations" not in path.name:
            kinds = tuple(int(_kind(name, (*_NAMES, *columns))) for name in header)
            updates = (*times, *(place[name] for name in columns))
            return Layout(data_type, kinds, times, *names, data_type == "trades", updates)
    raise SourceError(f"{path}: of a data type that is not read; read are Tardis's {_KNOWN}")


def venue_of(exchange: str) -> str:
    """The venue of an exchange as Tardis names it: `binance_futures` for `binance-futures`."""
    return re.sub(r"^okex\b", "okx", exchange.lower()).replace("-", "_")


def symbol_of(exchange: str, symbol: str) -> str:
    """The normalised symbol."""
    return normalise_symbol(venue_of(exchange), symbol)


def _kind(name: str, wanted: Sequence[str]) -> Kind:
    return _KINDS[name] if name in wanted else Kind.SKIPPED


def _levels(place: dict[str, int]) -> tuple[tuple[tuple[int, int], ...], ...]:
    """For bids and asks the columns of price and amount, level by level; () where they are incomplete."""
    if all(name in place for name in _QUOTES):
        bid_price, bid_amount, ask_price, ask_amount = (place[name] for name in _QUOTES)
        return (((bid_price, bid_amount),), ((ask_price, ask_amount),))
    depth = 1 + max((int(found[2]) for name in place if (found := _LEVEL.fullmatch(name))), default=-1)
    try:
        return tuple(
            tuple((place[f"{side}[{k}].price"], place[f"{side}[{k}].amount"]) for k in range(depth))
            for side in ("bids", "asks")
        ) if depth else ()
    except KeyError:
        return ()
