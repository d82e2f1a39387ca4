"""What both versions of Kraken's websocket protocol share: pairs, depths, checksums and trading states."""

from collections.abc import Callable, Sequence
from decimal import Decimal
from typing import ClassVar

import msgspec

from feeds.checksums import KRAKEN_LEVELS, kraken_checksum
from feeds.exchange import Exchange, ExchangeOptions, Link
from feeds.stream_book import CheckedBook
from orderbook.errors import ConfigurationError, SourceError
from orderbook.events import BookState, Side, StateReason
from orderbook.instruments import Instrument

PAIRS_PATH = "/0/public/AssetPairs"
DEPTHS = (10, 25, 100, 500, 1000)
# States in which orders are matched; in the others books stand still, or are only taken apart.
_MATCHING = ("online", "limit_only", "reduce_only")


class _Pair(msgspec.Struct, frozen=True):
    pair_decimals: int
    lot_decimals: int
    wsname: str | None = None


class _Answer(msgspec.Struct, frozen=True):
    error: list[str]
    result: dict[str, _Pair] = {}


def book_depth(options: ExchangeOptions) -> int:
    """The depth to subscribe to. Raises ConfigurationError for one that Kraken does not offer."""
    depth = options.depth or DEPTHS[0]
    if depth not in DEPTHS:
        offered = ", ".join(map(str, DEPTHS))
        raise ConfigurationError(f"kraken: depth {depth} is not offered; choose one of {offered}")
    return depth


class KrakenProtocol(Exchange):
    """What both versions do alike. Depths are 10 (the default), 25, 100, 500 and 1000 levels a side.

    A book is STALE (HALTED) while its pair or the exchange as a whole does not match orders: in
    maintenance, cancel-only and post-only.
    """

    venue: ClassVar[str] = "kraken"
    rest_url = "https://api.kraken.com"
    loss_shows = False
    silence = 10.0
    send_interval = 0.1

    def __init__(self, link: Link, options: ExchangeOptions) -> None:
        super().__init__(link, options)
        self._depth = book_depth(options)
        self._books = {name: CheckedBook(book, link, self._depth) for name, book in link.books.items()}
        self._states = TradingStates(link)

    @classmethod
    def instrument_urls(cls, products: Sequence[str], rest_url: str) -> Sequence[str]:
        return [rest_url + PAIRS_PATH]

    def connected(self) -> None:
        self._states.forget()


def kraken_instruments(
    products: Sequence[str], bodies: Sequence[bytes], name: Callable[[str], str]
) -> list[Instrument]:
    """The instruments of products from answers of AssetPairs; `name` is of a pair's `wsname`.

    Tick and lot are the pair's decimal places, in which its messages are written: `tick_size` may be
    coarser, but orders older than it are not bound by it. Raises SourceError for a product without a pair.
    """
    pairs: dict[str, _Pair] = {}
    problem = "no answer"
    for body in bodies:
        try:
            answer = msgspec.json.decode(body, type=_Answer)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            problem = f"not an answer of AssetPairs: {error}"
            continue
        problem = ", ".join(answer.error) or "Kraken has no such pair"
        pairs |= {name(pair.wsname): pair for pair in answer.result.values() if pair.wsname}
    found = []
    for product in products:
        if product not in pairs:
            raise SourceError(f"kraken: {product}: {problem}")
        tick, lot = (
            Decimal(1).scaleb(-places)
            for places in (pairs[product].pair_decimals, pairs[product].lot_decimals)
        )
        found.append(Instrument.listed("kraken", product, tick, lot))
    return found


def disagreement(book: CheckedBook, checksum: int) -> str | None:
    """What is wrong with a book whose checksum the exchange states."""
    found = kraken_checksum(book.best(Side.ASK, KRAKEN_LEVELS), book.best(Side.BID, KRAKEN_LEVELS))
    return None if found == checksum else f"{found} is not the exchange's {checksum}"


class TradingStates:
    """Holds books as HALTED while their pair, or the exchange as a whole, does not match orders."""

    def __init__(self, link: Link) -> None:
        self._link = link
        self._pairs: dict[str, str] = {}
        self.forget()

    def forget(self) -> None:
        """A new connection tells all states anew."""
        self._system = _MATCHING[0]
        self._pairs.clear()

    def system(self, status: str) -> None:
        """The exchange as a whole is in this state."""
        self._system = status
        for product in self._link.books:
            self._hold(product)

    def pair(self, product: str, status: str) -> None:
        """A pair, one of our products or not, is in this state."""
        if product in self._link.books:
            self._pairs[product] = status
            self._hold(product)

    def _hold(self, product: str) -> None:
        matching = self._system in _MATCHING and self._pairs.get(product, _MATCHING[0]) in _MATCHING
        state, reason = BookState.VALID, StateReason.SYNCHRONISED
        if not matching:
            state, reason = BookState.STALE, StateReason.HALTED
        self._link.hold(self._link.books[product], state, reason)
