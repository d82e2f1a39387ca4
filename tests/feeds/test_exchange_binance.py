"""Binance: recorded sessions against their own bookTickers and a plain book, and a market with faults."""

import io
import json
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from random import Random
from typing import Any

import pytest
import zstandard
from binance_market import Book, Market
from hypothesis import event as note
from hypothesis import given
from hypothesis import strategies as st
from plain_book import PlainBook, messages
from session_support import Driven, instrument

from orderbook.core.changes import Dictionary
from orderbook.core.errors import ConfigurationError, SourceError
from orderbook.feeds.exchanges.binance import BinanceFutures, BinanceSpot
from orderbook.feeds.exchanges.exchange import ExchangeOptions
from orderbook.feeds.live.session import Connect, Disconnect, Get, Send, Session
from orderbook.feeds.recording.capture_replay import CaptureSource
from orderbook.market.books import Books
from orderbook.market.events import Action, BookState, Flag, Side
from orderbook.market.instruments import Instruments

ABC, XYZ = "ABCUSDT", "XYZUSDT"
VALID, SYNCING = BookState.VALID, BookState.SYNCING
RECORDINGS = {"BINANCE": ("binance", 12), "BINANCE_FUTURES": ("binance_futures", 50)}


def recorded(path: Path) -> Iterator[dict[str, Any]]:
    with path.open("rb") as file:
        for line in io.TextIOWrapper(zstandard.ZstdDecompressor().stream_reader(file)):
            yield json.loads(line)


class Reference:
    """What a recording says, by the documented rules, in text: the book after each update id."""

    def __init__(self, path: Path) -> None:
        self.snapshots: dict[str, dict[str, Any]] = {}
        self.depth: dict[str, list[dict[str, Any]]] = {}
        self.tickers: dict[tuple[str, int], dict[str, str]] = {}
        self.trades: list[tuple[str, int, Decimal, Decimal, bool]] = []
        for line in recorded(path):
            if line["t"] == "http" and "/depth" in line["url"]:
                symbol = line["url"].partition("symbol=")[2].partition("&")[0]
                self.snapshots[symbol] = json.loads(line["data"])
            elif line["t"] == "recv":
                self._frame(json.loads(line["data"]))

    def _frame(self, frame: dict[str, Any]) -> None:
        kind, data = frame["stream"].split("@")[1], frame["data"]
        if kind == "depth":
            self.depth.setdefault(data["s"], []).append(data)
        elif kind == "bookTicker":
            self.tickers[data["s"], data["u"]] = data
        elif kind == "aggTrade":
            numbers = Decimal(data["p"]), Decimal(data["q"])
            self.trades.append((data["s"], data["a"], *numbers, data["m"]))

    def books(self, symbol: str) -> dict[int, dict[str, dict[Decimal, Decimal]]]:
        """The book after the snapshot, and after each diff that it does not contain."""
        snapshot = self.snapshots[symbol]
        last = snapshot["lastUpdateId"]
        book = {"b": as_levels(snapshot["bids"]), "a": as_levels(snapshot["asks"])}
        found = {last: {side: dict(levels) for side, levels in book.items()}}
        for diff in self.depth[symbol]:
            if diff["u"] < last or ("pu" not in diff and diff["u"] == last):
                continue
            assert diff["U"] <= last + 1 or diff["pu"] == last
            last = diff["u"]
            for side in "ba":
                book[side].update(as_levels(diff[side]))
                book[side] = {price: size for price, size in book[side].items() if size}
            found[last] = {side: dict(levels) for side, levels in book.items()}
        return found


def as_levels(levels: list[list[str]]) -> dict[Decimal, Decimal]:
    return {Decimal(price): Decimal(size) for price, size in levels}


@pytest.mark.parametrize("name", RECORDINGS)
def test_a_recorded_session_equals_a_plain_book_and_the_exchanges_own_tickers(
    name: str, shared_data: Path
) -> None:
    venue, least_tickers = RECORDINGS[name]
    path = shared_data / "cryptofeed" / f"{name}.jsonl.zst"
    reference = Reference(path)
    source = CaptureSource(path)
    names = [one.native_symbol for one in source.instruments]
    assert sorted(names) == sorted(reference.snapshots)
    assert {one.venue for one in source.instruments} == {venue}
    truth = {symbol: reference.books(symbol) for symbol in names}
    plain = [PlainBook() for _ in names]
    books = Books(source.instruments, Dictionary())
    compared = tickers = 0
    trades = []
    for events in messages(source):
        books.apply(events)
        index = int(events["instrument"][0])
        one, symbol = source.instruments[index], names[index]
        for event in events:
            plain[index].apply(event)
            if event["action"] == Action.TRADE:
                price, volume = one.price(int(event["price"])), one.volume(int(event["volume"]))
                trades.append((symbol, int(event["order_id"]), price, volume, event["side"] == Side.ASK))
        if events["action"][-1] != Action.LEVEL:
            continue
        number = int(events["sequence"][0])
        for key, side in (("b", Side.BID), ("a", Side.ASK)):
            rows = {one.price(price): one.volume(size) for price, size in plain[index].best(side)}
            assert rows == truth[symbol][number][key], f"{symbol} {number}"
            best = books.levels(index, side, 1)[0]
            assert plain[index].best(side, 1) == [(best["price"], best["volume"])]
        bid, ask = books.best(index)
        assert bid is not None and ask is not None and bid < ask
        compared += 1
        ticker = reference.tickers.get((symbol, number))
        if ticker is not None:
            own = [one.price(plain[index].best(side, 1)[0][0]) for side in (Side.BID, Side.ASK)]
            sizes = [one.volume(plain[index].best(side, 1)[0][1]) for side in (Side.BID, Side.ASK)]
            assert own == [Decimal(ticker["b"]), Decimal(ticker["a"])]
            assert sizes == [Decimal(ticker["B"]), Decimal(ticker["A"])]
            tickers += 1
    print(
        f"\n{name}: {compared} whole books equal the plain ones, {tickers} bookTickers (of "
        f"{len(reference.tickers)}) equal, {len(trades)} trades; {source.counts}"
    )
    # A futures' diff that ends at the snapshot's id is applied to it again, and changes nothing.
    assert compared >= sum(map(len, truth.values()))
    assert tickers >= least_tickers
    assert trades == reference.trades and trades
    statistics = source.statistics
    assert source.problems.report() == [] and books.problems() == {}
    assert statistics.gaps == statistics.resyncs == statistics.malformed == 0
    assert [books.state(index) for index in range(len(names))] == [VALID] * len(names)


def test_instruments_are_as_fine_as_the_messages(shared_data: Path) -> None:
    steps: dict[str, tuple[Decimal, Decimal]] = {}
    for name, kind in (("BINANCE", BinanceSpot), ("BINANCE_FUTURES", BinanceFutures)):
        lines = recorded(shared_data / "cryptofeed" / f"{name}.jsonl.zst")
        body = next(line["data"] for line in lines if "exchangeInfo" in line.get("url", "")).encode()
        products = ["NKNUSDT", "RUNEEUR"] if name == "BINANCE" else ["CTKUSDT", "BTCUSDT_210924"]
        steps |= {str(one): (one.tick, one.lot) for one in kind.instruments(products, [body])}
        with pytest.raises(SourceError, match=f"{kind.venue}: no product 'NOSUCH'; names are as in BTCUSDT"):
            kind.instruments(["NOSUCH"], [body])
    fine = Decimal("1E-8")
    assert steps == {
        "binance:NKN-USDT": (fine, fine),
        "binance:RUNE-EUR": (fine, fine),
        "binance_futures:CTK-USDT-PERP": (Decimal("0.00001"), 1),
        "binance_futures:BTC-USDT-210924": (Decimal("0.1"), Decimal("0.001")),
    }
    with pytest.raises(SourceError, match="not exchange information"):
        BinanceSpot.instruments(["BTCUSDT"], [b"<html>"])
    with pytest.raises(SourceError, match="ABC has no price or lot filter"):
        BinanceSpot.instruments(["ABC"], [b'{"symbols":[{"symbol":"ABC","filters":[]}]}'])


class Served:
    """A session of two products, and the markets behind it."""

    def __init__(self, random: Random, futures: bool = False) -> None:
        self.random = random
        self.kind = BinanceFutures if futures else BinanceSpot
        venue = self.kind.venue
        self.driven = Driven(self.kind, [instrument(venue, name, "0.01", "0.001") for name in (ABC, XYZ)])
        self.markets = {name: Market(random, futures, name) for name in (ABC, XYZ)}
        self.oldest_answer = 0
        self.asked: list[str] = []
        self.settle()

    def settle(self, seconds: float = 2.0) -> None:
        """Do what the session asks for in the next seconds, at once."""
        session, driven = self.driven.session, self.driven
        commands = driven.commands(seconds)
        while commands:
            for command in commands:
                match command:
                    case Connect():
                        session.connected(driven.time)
                    case Disconnect(reason):
                        session.disconnected(reason, driven.time)
                    case Send(text) if json.loads(text)["method"] == "SUBSCRIBE":
                        driven.frame({"result": None, "id": json.loads(text)["id"]})
                    case Get(product):
                        self.asked.append(product)
                        self.answer(product)
            commands = driven.commands(0)

    def answer(self, product: str) -> None:
        known = self.markets[product].history
        number = self.random.choice(list(known)[-1 - self.oldest_answer :])
        body = json.dumps(self.markets[product].answer(number)).encode()
        self.driven.session.answered(product, body, self.driven.time)

    def valid(self) -> None:
        """Lets time pass until both books are valid."""
        self.oldest_answer = 0
        for _ in range(20):
            self.settle(4.0)
            if self.states == [VALID, VALID]:
                return
            # What is due later than that was not waited for.
            self.driven.now += 4.0
            for market in self.markets.values():
                self.driven.frame(market.depth())
        raise AssertionError(self.driven.problems)

    @property
    def states(self) -> list[BookState]:
        return [self.driven.state(name) for name in (ABC, XYZ)]

    def book(self, product: str) -> Book:
        bids, asks = self.driven.levels(product)
        one = self.driven.instruments[0]
        return {
            side: {f"{one.price(price):.2f}": f"{one.volume(size):.3f}" for price, size in levels}
            for side, levels in (("b", bids), ("a", asks))
        }

    def equal(self) -> bool:
        return all(self.book(name) == market.book for name, market in self.markets.items())


def served(futures: bool = False, seed: int = 1) -> Served:
    both = Served(Random(seed), futures)
    both.valid()
    for market in both.markets.values():
        both.driven.frame(market.depth())
    assert both.driven.problems == {} and both.equal()
    return both


futures_or_spot = pytest.mark.parametrize("futures", [False, True])


def test_subscriptions_and_addresses() -> None:
    driven = Driven(BinanceSpot, [instrument("binance", ABC)])
    (sent,) = driven.sent(0)
    streams = ["abcusdt@depth@100ms", "abcusdt@trade"]
    assert sent == {"method": "SUBSCRIBE", "id": 1, "params": streams}
    driven.frame({"result": None, "id": 1})
    (get,) = driven.commands(0.2)
    assert get == Get(ABC, "https://api.binance.com/api/v3/depth?symbol=ABCUSDT&limit=1000")
    driven.session.answered(ABC, b'{"lastUpdateId": 1, "bids": [], "asks": []}', driven.time)
    assert driven.sent(16.0) == [{"method": "LIST_SUBSCRIPTIONS", "id": 0}]
    driven.frame({"result": streams, "id": 0})
    assert driven.problems == {} and driven.state(ABC) is VALID
    (url,) = BinanceSpot.instrument_urls(["BTCUSDT", "ETHUSDT"], "https://x")
    assert url == "https://x/api/v3/exchangeInfo?symbols=%5B%22BTCUSDT%22%2C%22ETHUSDT%22%5D"
    assert BinanceFutures.instrument_urls(["BTCUSDT"], "https://y") == ["https://y/fapi/v1/exchangeInfo"]


def test_many_products_are_subscribed_to_in_messages_that_the_exchange_takes() -> None:
    names = [f"1000000LONGNAME{number:02}USDT" for number in range(50)]
    driven = Driven(BinanceSpot, [instrument("binance", name) for name in names])
    sends = [command for command in driven.commands(1.0) if isinstance(command, Send)]
    assert len(sends) == 2 and max(len(send.text) for send in sends) < 4096
    streams = [stream for send in sends for stream in json.loads(send.text)["params"]]
    assert len(set(streams)) == 100


def test_depth_and_the_pace_of_its_requests() -> None:
    def made(kind: type[BinanceSpot], depth: int | None) -> Any:
        one = instrument(kind.venue, ABC)
        options = ExchangeOptions(depth=depth)
        exchange: Any = Session(kind, Instruments([one]), [0], options, lambda: 0.0)
        return exchange._exchange

    found = [made(BinanceSpot, depth) for depth in (None, 20, 501, 5000)]
    assert [one.snapshot_url(ABC).rpartition("=")[2] for one in found] == ["1000", "100", "1000", "5000"]
    weights = {100: 5, 1000: 50, 5000: 250}
    for one in found:
        weight = weights[int(one.snapshot_url(ABC).rpartition("=")[2])]
        assert weight / one.get_interval * 60 <= 6000 / 2
    with pytest.raises(ConfigurationError, match="binance_futures: no snapshot has 1001 levels; at most 100"):
        made(BinanceFutures, 1001)


def test_a_refused_subscription() -> None:
    driven = Driven(BinanceSpot, [instrument("binance", ABC)])
    driven.frame({"error": {"code": 2, "msg": "Invalid request: unknown property"}, "id": 1})
    assert driven.problems == {"refused": 1}
    assert driven.session.refusal == "Invalid request: unknown property (code 2)"
    driven.frame({"code": 3, "msg": "Invalid JSON"})
    assert driven.problems == {"refused": 2}


@futures_or_spot
def test_a_gap_loses_one_book_until_its_next_snapshot(futures: bool) -> None:
    both = served(futures)
    abc = both.markets[ABC]
    abc.depth()
    both.driven.frame(abc.depth())
    assert both.states == [SYNCING, VALID] and both.driven.levels(ABC) == ([], [])
    assert both.driven.problems == {"gap": 1}
    both.asked.clear()
    both.valid()
    assert both.asked == [ABC] and both.equal()
    assert both.driven.statistics.resyncs == 1


@futures_or_spot
def test_repeated_and_late_messages_are_ignored(futures: bool) -> None:
    both = served(futures)
    first, second = both.markets[ABC].depth(), both.markets[ABC].depth()
    for frame in (first, first, second, first):
        both.driven.frame(frame)
    assert both.states == [VALID, VALID] and both.equal()
    assert both.driven.problems == {"late message": 2}


@futures_or_spot
def test_an_old_snapshot_is_asked_for_again(futures: bool) -> None:
    both = Served(Random(3), futures)
    abc = both.markets[ABC]
    both.driven.session.disconnected("test", both.driven.time)
    abc.depth()
    both.driven.connect()
    both.driven.frame(abc.depth())
    both.driven.session.answered(ABC, json.dumps(abc.answer(1000)).encode(), both.driven.time)
    assert both.driven.problems == {"disconnected": 1, "old snapshot": 1}
    assert both.states == [SYNCING, SYNCING]
    both.valid()
    assert both.equal()


@futures_or_spot
def test_after_a_reconnection_nothing_is_applied_before_a_snapshot(futures: bool) -> None:
    both = served(futures)
    both.driven.session.disconnected("test", both.driven.time)
    assert both.driven.commands(0) == []
    assert both.states == [BookState.STALE] * 2 and both.equal()
    both.driven.connect()
    assert both.driven.frame(both.markets[ABC].depth()) == []
    assert both.driven.levels(ABC) == ([], []) and both.states == [SYNCING, SYNCING]
    both.valid()
    assert both.equal()


def test_a_futures_snapshot_from_between_two_diffs_joins() -> None:
    """Its id is of another product's change: no diff of this one has it between U and u."""
    driven = Driven(BinanceFutures, [instrument("binance_futures", ABC, "1", "1")])
    driven.frame({"result": None, "id": 1})
    body = b'{"lastUpdateId": 105, "E": 1, "bids": [["10", "1"]], "asks": [["12", "1"]]}'
    driven.session.answered(ABC, body, driven.time)
    data = {"e": "depthUpdate", "E": 1, "s": ABC, "U": 110, "u": 120, "pu": 100, "b": [["11", "2"]], "a": []}
    driven.frame({"stream": "abcusdt@depth@100ms", "data": data})
    assert driven.problems == {} and driven.state(ABC) is VALID
    assert driven.levels(ABC)[0] == [(11, 2), (10, 1)]
    driven.frame({"stream": "abcusdt@depth@100ms", "data": data | {"pu": 121, "U": 122, "u": 123}})
    assert driven.problems == {"gap": 1} and driven.state(ABC) is SYNCING


@futures_or_spot
@pytest.mark.parametrize(
    ("change", "kind"),
    [
        ({"b": [["99.501", "1.000"]]}, "malformed"),
        ({"b": [["-1", "1.000"]]}, "malformed"),
        ({"b": [["NaN", "1.000"]]}, "malformed"),
        ({"b": [[99.5, 1]]}, "gap"),
        ({"U": "x"}, "gap"),
    ],
)
def test_a_depth_message_that_cannot_be_used_loses_its_book_alone(
    futures: bool, change: dict[str, Any], kind: str
) -> None:
    both = served(futures)
    frame = both.markets[ABC].depth()
    frame["data"] |= change
    events = both.driven.frame(frame)
    assert both.states == [SYNCING, VALID]
    assert kind in both.driven.problems
    assert all(action != Action.LEVEL for _, action, *_ in events)
    both.valid()
    assert both.equal()


def test_what_else_may_come() -> None:
    both = served()
    driven, abc = both.driven, both.markets[ABC]
    driven.frame(abc.stream("weather", {}))
    driven.frame(abc.stream("kline_1m", {}))
    driven.frame({"stream": "nousdt@trade", "data": {}})
    driven.frame({"weather": "fine"})
    driven.frame("{")
    driven.frame(b"\xff")
    driven.frame([1])
    swapped = abc.depth()
    driven.frame(swapped | {"stream": "xyzusdt@depth@100ms"})
    assert driven.problems == {
        "unknown message": 2,
        "unknown product": 1,
        "malformed JSON": 2,
        "invalid field": 1,
        "unusable message": 1,
        "gap": 1,
    }
    assert both.states == [SYNCING, VALID]
    driven.frame({"e": "serverShutdown", "E": 1})
    assert driven.commands(0) == [Disconnect("server shutdown: announced by the exchange")]


def test_trades_are_given_once_and_block_trades_not() -> None:
    both = served(futures=True)
    driven, abc = both.driven, both.markets[ABC]
    trade = abc.trade()
    (given_once,) = driven.frame(trade)
    assert given_once == (0, Action.TRADE, Side.BID, 10_000, 1500, 1)
    assert driven.frame(trade) == []
    assert driven.frame(abc.trade(X="INSURANCE_FUND")) == []
    (sold,) = driven.frame(abc.trade(m=True))
    assert sold[2] == Side.ASK
    assert driven.problems == {"late trade": 1}
    aggregate = {"e": "aggTrade", "s": ABC, "a": 99, "p": "100.00", "q": "1", "T": 1, "m": True}
    assert driven.frame(abc.stream("aggTrade", aggregate)) == []
    assert driven.frame(abc.trade(p="1.001")) == []
    assert driven.problems == {"late trade": 1, "unusable message": 1}
    assert both.states == [VALID, VALID]
    driven.session.disconnected("test", driven.time)
    driven.connect()
    assert len(driven.frame(abc.stream("aggTrade", aggregate))) == 1


FAULTS = ("none", "none", "none", "drop", "repeat", "swap", "cut", "spoil", "reconnect", "trade")


@futures_or_spot
@given(seed=st.integers(0, 10**6), faults=st.lists(st.sampled_from(FAULTS), min_size=5, max_size=40))
def test_a_valid_book_is_the_truth_whatever_happens(futures: bool, seed: int, faults: list[str]) -> None:
    random = Random(seed)
    both = Served(random, futures)
    both.oldest_answer = random.choice((0, 5, 20))
    driven = both.driven
    late: list[dict[str, Any]] = []
    checked = 0
    for fault in faults:
        market = both.markets[random.choice((ABC, XYZ))]
        if fault == "reconnect":
            driven.session.disconnected("test", driven.time)
            late.clear()
        elif fault == "trade":
            driven.frame(market.trade())
        else:
            frame = market.depth()
            if fault == "spoil":
                frame["data"]["a"] = [["1.001", "1"]]
            text = json.dumps(frame)
            if fault == "swap":
                late.append(frame)
            elif fault != "drop":
                driven.frame(text[:-9] if fault == "cut" else text)
            if fault == "repeat":
                driven.frame(text)
            if late and fault == "none":
                driven.frame(late.pop())
        both.settle(random.choice((0.0, 0.3, 1.0)))
        for name, one in both.markets.items():
            # That of a trade otherwise, of which ids are lower.
            number = driven.session.books[name].sequence
            if driven.state(name) is VALID and number >= 1000:
                checked += 1
                assert both.book(name) == one.history[number]
    both.valid()
    for market in both.markets.values():
        driven.frame(market.depth())
    both.valid()
    assert both.equal()
    note(f"books compared: {min(checked, 10)} or more")
    assert driven.statistics.problems.counts["unexpected frame"] == 0


def test_the_snapshot_is_flagged_and_the_last_event_of_each_message_too() -> None:
    one = instrument("binance", ABC, "0.01", "0.001")
    session = Session(BinanceSpot, Instruments([one]), [0], ExchangeOptions(), lambda: 0.0)
    session.connected(1)
    market = Market(Random(5), False, ABC)
    for _ in range(3):
        session.frame(json.dumps(market.depth()).encode(), 2)
    session.answered(ABC, json.dumps(market.answer(1003)).encode(), 3)
    units = list(messages([session.take()]))
    assert [int(unit["action"][0]) for unit in units][:2] == [Action.STATE, Action.CLEAR]
    assert int(units[-1]["action"][0]) == Action.STATE
    for unit in units:
        assert bool(unit["flags"][0] & Flag.SNAPSHOT) == (unit["action"][0] == Action.CLEAR)
