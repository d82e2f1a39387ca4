"""Deribit: futures, perpetuals and options; books whose snapshot comes in the stream, trades, tickers.

Sources: Deribit API v2 documentation, "Notifications", "book.(instrument_name).(interval)",
"trades.(instrument_name).(interval)", "ticker.(instrument_name).(interval)", "public/set_heartbeat",
"public/subscribe", "public/get_instrument", "Rate Limits".

    {"jsonrpc": "2.0", "method": "subscription", "params": {"channel": "book.BTC-25JUN21.100ms", "data":
     {"type": "change", "timestamp": 1622626784890, "prev_change_id": 31479339296, "change_id": 31479339507,
     "instrument_name": "BTC-25JUN21", "bids": [["new", 37392.5, 3000.0]],
     "asks": [["delete", 37848.5, 0.0]]}}}
    {… "channel": "trades.BTC-PERPETUAL.100ms", "data": [{"trade_seq": 30289442, "trade_id": "48079269",
     "timestamp": 1590484512188, "price": 8950.0, "instrument_name": "BTC-PERPETUAL", "direction": "sell",
     "amount": 10.0, …}]}
    {… "channel": "ticker.BTC-PERPETUAL.100ms", "data": {"timestamp": 1550652954406,
     "open_interest": 18918470, "mark_price": 3940.06, "instrument_name": "BTC-PERPETUAL",
     "index_price": 3931.73, "current_funding": 0.00042, …}}
    {"jsonrpc": "2.0", "method": "heartbeat", "params": {"type": "test_request"}}
    {"jsonrpc": "2.0", "id": 1, "result": ["book.BTC-PERPETUAL.100ms", …], …}

A change's `prev_change_id` is the `change_id` of the message before; a snapshot has none and begins anew.
There is no checksum. Numbers are JSON's, and are read as decimals: nothing passes through a float. Amounts
are USD of inverse futures and perpetuals, and of the base currency for options and linear contracts.

Trades are numbered within their product (`trade_seq`): each is given once, and what is missing is counted.
Block trades are left out. Where one side of a trade was liquidated (`liquidation`: M maker, T taker, or MT)
it is a row of liquidations, too. Funding is paid continuously, so it has no next time.

Channels come every 100 ms; those without delay (`raw`) need an account, and are read from recordings. Limits:
20 requests a second; a test request of the server's heartbeat has to be answered.
"""

from collections.abc import Sequence
from decimal import Decimal
from typing import Annotated, ClassVar, Literal
from urllib.parse import quote

import msgspec

from orderbook.core.errors import SourceError
from orderbook.feeds.exchanges.books import LATE_IN_A_ROW, StreamBook
from orderbook.feeds.exchanges.contract_values import ContractValues
from orderbook.feeds.exchanges.exchange import Exchange, ExchangeOptions, FeedBook, Link
from orderbook.market.contract_terms import Kind, Terms, amount, expiry_of, option_type_of
from orderbook.market.events import Side, StateReason
from orderbook.market.instruments import ContractType, Instrument

Identifier = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]
Milliseconds = Annotated[int, msgspec.Meta(ge=0, le=(2**63 - 1) // 1_000_000)]
Change = tuple[Literal["new", "change", "delete"], Decimal, Decimal]


class Parameters(msgspec.Struct, frozen=True, gc=False):
    """What a notification is about: a channel's data, or the type of a heartbeat."""

    channel: str = ""
    data: msgspec.Raw = msgspec.Raw(b"")
    type: str = ""


class Failure(msgspec.Struct, frozen=True, gc=False):
    code: int = 0
    message: str = ""


class Message(msgspec.Struct, frozen=True, gc=False):
    """A notification (`method`), or the answer to the request `id`."""

    method: str = ""
    params: Parameters = Parameters()
    id: int | None = None
    result: msgspec.Raw = msgspec.Raw(b"null")
    error: Failure | None = None


class Depth(msgspec.Struct, frozen=True, gc=False):
    """Levels that changed, with what they are now; before 2021 a snapshot had no `type`."""

    timestamp: Milliseconds
    instrument_name: str
    change_id: Identifier
    bids: list[Change]
    asks: list[Change]
    prev_change_id: Identifier | None = None
    type: Literal["snapshot", "change"] | None = None


class Trade(msgspec.Struct, frozen=True, gc=False):
    """A trade; `direction` is the taker's."""

    trade_seq: Identifier
    timestamp: Milliseconds
    instrument_name: str
    price: Decimal
    amount: Decimal
    direction: Literal["buy", "sell"]
    liquidation: Literal["M", "T", "MT", "none"] = "none"
    block_trade_id: str | None = None


class Ticker(msgspec.Struct, frozen=True, gc=False):
    timestamp: Milliseconds
    instrument_name: str
    mark_price: Decimal | None = None
    index_price: Decimal | None = None
    open_interest: Decimal | None = None
    current_funding: Decimal | None = None


class Product(msgspec.Struct, frozen=True, gc=False):
    """{"instrument_name": "BTC-PERPETUAL", "tick_size": 0.5, "min_trade_amount": 10.0, "kind": "future",
    "instrument_type": "reversed", …}; `tick_size` is the finest, of low prices."""

    instrument_name: str
    tick_size: Decimal
    min_trade_amount: Decimal
    kind: str = ""
    instrument_type: str = ""
    settlement_period: str = ""
    settlement_currency: str | None = None
    expiration_timestamp: int | None = None
    strike: Decimal | None = None
    option_type: str | None = None


class Information(msgspec.Struct, frozen=True, gc=False):
    """The answer of get_instrument, or of get_instruments."""

    result: Product | list[Product]


class Placed(msgspec.Struct, frozen=True, gc=False):
    """Of a message that cannot be read, where it belongs."""

    params: Parameters


decode_message = msgspec.json.Decoder(Message).decode
decode_depth = msgspec.json.Decoder(Depth).decode
decode_trades = msgspec.json.Decoder(list[Trade]).decode
decode_ticker = msgspec.json.Decoder(Ticker).decode
decode_channels = msgspec.json.Decoder(list[str] | str | None).decode
decode_information = msgspec.json.Decoder(Information).decode
decode_placed = msgspec.json.Decoder(Placed).decode

MILLISECOND = 1_000_000
_HEARTBEAT = 30
_SHORT = 30
_KINDS: dict[str, Kind] = {
    "spot": "spot",
    "future": "future",
    "option": "option",
    "future_combo": "spread",
    "option_combo": "spread",
}
# Ids of requests that are of no product.
_SET_HEARTBEAT, _TEST, _FIRST = 1, 2, 10


def _text(number: Decimal) -> str:
    # Written out only where that is short: an exponent may be anything.
    return format(number, "f") if abs(number.adjusted()) < _SHORT else str(number)


def _levels(changes: Sequence[Change]) -> list[tuple[str, str]]:
    return [(_text(price), "0" if action == "delete" else _text(amount)) for action, price, amount in changes]


class DeribitBook(StreamBook):
    """One product: a message is one unit, `sequence` its change id. A trade's `order_id` is its number."""

    def __init__(self, book: FeedBook, link: Link) -> None:
        super().__init__(book, link)
        self._values = ContractValues(book)
        self._last_trade: int | None = None
        self.begin_connection()

    def begin_connection(self) -> None:
        """Forget the connection before."""
        self._last = self._late = 0

    def depth(self, depth: Depth) -> None:
        """Take a snapshot or a change, of which each must follow the one before."""
        time, number = depth.timestamp * MILLISECOND, depth.change_id
        if depth.type == "snapshot" or (depth.type is None and depth.prev_change_id is None):
            self._last, self._late = number, 0
            self.snapshot(_levels(depth.bids), _levels(depth.asks), time, number)
        elif depth.prev_change_id is None or number < depth.prev_change_id:
            raise ValueError(f"a change to {number} that follows {depth.prev_change_id}")
        elif not self.synchronised:
            return
        elif depth.prev_change_id == self._last:
            self._last, self._late = number, 0
            self.update(_levels(depth.bids), _levels(depth.asks), time, number)
        elif number <= self._last:
            self._passed(number)
        else:
            detail = f"change {number} follows {depth.prev_change_id}, not {self._last}"
            self._link.lose(self.book, StateReason.GAP, detail)

    def trades(self, trades: Sequence[Trade]) -> None:
        """Write the trades of a message as one unit. Raises ValueError or DataError."""
        book, last = self.book, self._last_trade
        for trade in trades:
            self._check(trade.instrument_name)
            where, number = f"{book.product} trade {trade.trade_seq}", trade.trade_seq
            if last is not None and number <= last:
                self._link.statistics.problems.add("late trade", where, "repeated or out of order")
                continue
            if last is not None and number > last + 1:
                self._link.statistics.problems.add("missed trades", where, f"came after {last}")
            last = number
            if trade.block_trade_id is None:
                self._trade(trade)
        self._last_trade = last
        book.end()

    def _trade(self, trade: Trade) -> None:
        book, price, amount = self.book, _text(trade.price), _text(trade.amount)
        taker, maker = (Side.BID, Side.ASK) if trade.direction == "buy" else (Side.ASK, Side.BID)
        book.begin(trade.timestamp * MILLISECOND, self._link.receive_time, trade.trade_seq, apart=True)
        book.trade(trade.trade_seq, taker, price, amount)
        for letter, side in (("T", taker), ("M", maker)):
            if letter in trade.liquidation:
                self._values.liquidation(side, price, amount, trade.trade_seq)

    def ticker(self, ticker: Ticker) -> None:
        """Write what a ticker tells of the contract as one unit. Raises ValueError or DataError."""
        self._check(ticker.instrument_name)
        values = self._values
        values.begin(ticker.timestamp * MILLISECOND, self._link.receive_time)
        if ticker.mark_price is not None:
            index = ticker.index_price
            values.mark(_text(ticker.mark_price), "" if index is None else _text(index))
        if ticker.current_funding is not None:
            values.funding(_text(ticker.current_funding))
        if ticker.open_interest is not None:
            values.open_interest(_text(ticker.open_interest))
        values.end()

    def _check(self, name: str) -> None:
        if name != self.book.product:
            raise ValueError(f"{name} in a channel of {self.book.product}")

    def _passed(self, number: int) -> None:
        """A number that was passed already: a repeat, or where there are many the numbers began again."""
        self._late += 1
        if self._late >= LATE_IN_A_ROW:
            self._late = 0
            self._link.lose(self.book, StateReason.RESET, f"change {number} after {self._last}")
        else:
            where = f"{self.book.product} change {number}"
            self._link.statistics.problems.add("late message", where, "repeated or out of order")


class Deribit(Exchange):
    """Whole books; `depth` is not used."""

    venue: ClassVar[str] = "deribit"
    url = "wss://www.deribit.com/ws/api/v2"
    rest_url = "https://www.deribit.com"
    snapshots: ClassVar[Literal["stream", "request"]] = "stream"
    silence = 1.5 * _HEARTBEAT
    send_interval = 0.1
    get_interval = 0.1

    def __init__(self, link: Link, options: ExchangeOptions) -> None:
        super().__init__(link, options)
        self._books = {name: DeribitBook(book, link) for name, book in link.books.items()}
        self._products = tuple(link.books)

    @classmethod
    def instrument_urls(cls, products: Sequence[str], rest_url: str) -> Sequence[str]:
        address = f"{rest_url}/api/v2/public/get_instrument"
        return [f"{address}?instrument_name={quote(product)}" for product in products]

    @classmethod
    def instruments(cls, products: Sequence[str], bodies: Sequence[bytes]) -> list[Instrument]:
        known: dict[str, Product] = {}
        for body in bodies:
            try:
                result = decode_information(body).result
            except (msgspec.DecodeError, UnicodeDecodeError) as error:
                raise SourceError(f"{cls.venue}: not instruments: {error}: {body[:100]!r}") from None
            listed = result if isinstance(result, list) else [result]
            known.update({one.instrument_name: one for one in listed})
        return [cls._instrument(name, known.get(name)) for name in products]

    @classmethod
    def _instrument(cls, name: str, product: Product | None) -> Instrument:
        if product is None:
            raise SourceError(f"{cls.venue}: no product {name!r}; names are as in BTC-PERPETUAL")
        linear = product.kind == "future" and product.instrument_type == "linear"
        tick, lot = product.tick_size.normalize(), product.min_trade_amount.normalize()
        contract: ContractType | None = "linear" if linear else None
        return Instrument.listed(cls.venue, name, tick, lot, contract=contract, terms=_terms(product))

    def connected(self) -> None:
        for book in self._books.values():
            book.begin_connection()

    def opening(self) -> Sequence[str]:
        return [_request(_SET_HEARTBEAT, "public/set_heartbeat", {"interval": _HEARTBEAT})]

    def subscribe(self, products: Sequence[str]) -> Sequence[str]:
        # A request each, so that a refusal is of one product.
        return [self._request(product, "subscribe", ("book", "trades", "ticker")) for product in products]

    def resubscribe(self, product: str) -> Sequence[str]:
        return [self._request(product, f"{what}subscribe", ("book",)) for what in ("un", "")]

    def frame(self, data: bytes) -> None:
        message = decode_message(data)
        if message.method == "subscription":
            self._notified(message.params)
        elif message.method == "heartbeat":
            if message.params.type == "test_request":
                self.link.send(_request(_TEST, "public/test", {}))
        elif message.method or message.id is None:
            self.link.statistics.problems.add("unknown message", self.venue, message.method or "no method")
        else:
            self._answer(message.id, message)

    def unreadable(self, data: bytes) -> bool:
        kind, _, rest = decode_placed(data).params.channel.partition(".")
        book = self._books.get(rest.rpartition(".")[0])
        if book is None:
            return False
        if kind == "book":
            self.link.lose(book.book, StateReason.MALFORMED, f"{kind}.{rest}")
        return True

    def _notified(self, params: Parameters) -> None:
        kind, _, rest = params.channel.partition(".")
        name = rest.rpartition(".")[0]
        book = self._books.get(name)
        if book is None:
            self.link.book(name)
        elif kind == "book":
            depth = decode_depth(params.data)
            if depth.instrument_name != name:
                raise ValueError(f"{depth.instrument_name} in the channel {params.channel}")
            book.depth(depth)
        elif kind == "trades":
            book.trades(decode_trades(params.data))
        elif kind == "ticker":
            book.ticker(decode_ticker(params.data))
        else:
            self.link.statistics.problems.add("unknown message", self.venue, params.channel)

    def _answer(self, number: int, message: Message) -> None:
        place = number - _FIRST
        product = self._products[place] if 0 <= place < len(self._products) else None
        if message.error is not None:
            self.link.refused(f"{message.error.message} (code {message.error.code})", product)
        elif product is not None:
            channels = decode_channels(message.result)
            # Channels that there are not are left out of the answer.
            if isinstance(channels, list) and not channels:
                self.link.refused("no such channels", product)
            else:
                self.link.subscribed(product)

    def _request(self, product: str, what: str, kinds: Sequence[str]) -> str:
        channels = [f"{kind}.{product}.100ms" for kind in kinds]
        number = _FIRST + self._products.index(product)
        return _request(number, f"public/{what}", {"channels": channels})


def _terms(product: Product) -> Terms:
    """Amounts count units of the base, of inverse contracts of the quote currency."""
    kind, perpetual = _KINDS.get(product.kind), product.settlement_period == "perpetual"
    return Terms(
        kind="perpetual" if perpetual and kind == "future" else kind,
        settlement=product.settlement_currency,
        multiplier=Decimal(1) if kind in ("spot", "future", "option") else None,
        expiry=None if perpetual or kind == "spot" else expiry_of(product.expiration_timestamp),
        strike=amount(product.strike),
        option_type=option_type_of(product.option_type or ""),
    )


def _request(number: int, method: str, parameters: dict[str, object]) -> str:
    request = {"jsonrpc": "2.0", "id": number, "method": method, "params": parameters}
    return msgspec.json.encode(request).decode()
