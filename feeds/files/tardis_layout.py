"""The data types of Tardis' CSV files, by the columns of their first line.

Source: Tardis.dev documentation, "Downloadable CSV files": incremental_book_L2, trades, book_snapshot_5 and
_25, quotes, book_ticker, derivative_ticker, liquidations, options_chain. Files of liquidations have the
columns of trades, and are known by their path. A liquidation's side is the order's: sell where a long is
closed. A ticker's predicted rate and last price, and an option's volatilities and greeks, are not read.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from orderbook.core.errors import SourceError
from orderbook.feeds.files.tardis_text import Kind
from orderbook.feeds.storage import Place
from orderbook.market.contract_terms import Terms, amount, expiry_of, option_type_of
from orderbook.market.events import Action
from orderbook.market.instruments import normalise_symbol

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
    "funding_timestamp": Kind.LATER,
    "funding_rate": Kind.RATE,
    "mark_price": Kind.COMPUTED,
    "index_price": Kind.COMPUTED,
    "open_interest": Kind.COMPUTED,
}
# As `tardis_decoder` has the values of a contract.
_TOLD = ("mark_price", "index_price", "funding_rate", "funding_timestamp", "open_interest")
_CHAIN = ("mark_price", "", "", "", "open_interest")
_OPTION = ("type", "strike_price", "expiration")
_LEVEL = re.compile(r"(asks|bids)\[(\d+)\]\.(price|amount)")
_KNOWN = (
    "incremental_book_L2, trades, book_snapshot_5, book_snapshot_25, quotes, book_ticker, derivative_ticker, "
    "liquidations and options_chain"
)
_PRINTS = {"trades": int(Action.TRADE), "liquidations": int(Action.LIQUIDATION)}


@dataclass(frozen=True, slots=True)
class Layout:
    """Where a data type's columns are.

    `kinds` has a Kind for each column. `times` are timestamp and local_timestamp. Updates, trades and
    liquidations have `updates`: times, is_snapshot or id, side, price, amount; `prints` is the Action of the
    last two. Snapshots of `depth` levels have `levels`: for bids and asks, for each level, price and amount.
    Tickers and chains have `told`, the places of the values of a contract, -1 for what they lack, chains also
    `option`: those of type, strike and expiry.
    """

    data_type: str
    kinds: tuple[int, ...]
    times: tuple[int, int]
    exchange: int
    symbol: int
    prints: int = 0
    updates: tuple[int, ...] = ()
    depth: int = 0
    levels: tuple[tuple[tuple[int, int], ...], ...] = ()
    told: tuple[int, ...] = (-1,) * len(_TOLD)
    option: tuple[int, ...] = ()

    @property
    def tells_books(self) -> bool:
        """Whether rows are of books."""
        return bool(self.depth or (self.updates and not self.prints))

    @property
    def states_terms(self) -> bool:
        """Whether rows state what an instrument is."""
        return bool(self.option)

    @property
    def numbers(self) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """The columns of prices, and of amounts."""
        if not self.depth:
            return self.updates[4:5], self.updates[5:6]
        levels = [level for side in self.levels for level in side]
        return tuple(price for price, _ in levels), tuple(amount for _, amount in levels)

    def name(self, line: str) -> tuple[str, str]:
        """Exchange and symbol of a row."""
        fields = line.split(",")
        return fields[self.exchange], fields[self.symbol]

    def terms(self, line: str) -> Terms:
        """What a row states of its instrument; of an option, whose size is not stated."""
        if not self.option:
            return Terms()
        kind, strike, expiry = (line.split(",")[place] for place in self.option)
        return Terms(
            kind="option",
            option_type=option_type_of(kind),
            strike=amount(strike),
            expiry=expiry_of(expiry, 1_000),
        )


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
        chain = depth == 1 and all(name in place for name in _OPTION)
        told = tuple(place.get(name, -1) if chain else -1 for name in _CHAIN)
        wanted = (*_NAMES, *(name for name in _CHAIN if chain and name))
        kinds = tuple(int(Kind.NUMBER if i in used else _kind(name, wanted)) for i, name in enumerate(header))
        option = tuple(place[name] for name in _OPTION) if chain else ()
        data_type = "options_chain" if chain else data_type
        return Layout(data_type, kinds, times, *names, depth=depth, levels=levels, told=told, option=option)
    for data_type, columns in (("incremental_book_L2", _UPDATES), (_printed(path), _TRADES)):
        if all(name in place for name in columns):
            kinds = tuple(int(_kind(name, (*_NAMES, *columns))) for name in header)
            updates = (*times, *(place[name] for name in columns))
            return Layout(data_type, kinds, times, *names, _PRINTS.get(data_type, 0), updates)
    if all(name in place for name in _TOLD):
        told = tuple(place.get(name, -1) for name in _TOLD)
        kinds = tuple(int(_kind(name, (*_NAMES, *_TOLD))) for name in header)
        return Layout("derivative_ticker", kinds, times, *names, told=told)
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
        return (
            tuple(
                tuple((place[f"{side}[{k}].price"], place[f"{side}[{k}].amount"]) for k in range(depth))
                for side in ("bids", "asks")
            )
            if depth
            else ()
        )
    except KeyError:
        return ()


def _printed(path: Place) -> str:
    """What a file with the columns of trades has, by the last of both names in its path."""
    return max(_PRINTS, key=str(path).rfind)
