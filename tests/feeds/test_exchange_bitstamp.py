"""Bitstamp: a recorded session against books by hand, and frames of orders, which no recording here has."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from plain_book import PlainBook, messages
from recorded_support import recorded
from session_support import Driven, instrument

from orderbook.core.changes import Dictionary
from orderbook.core.errors import SourceError
from orderbook.feeds.exchanges.bitstamp import Bitstamp, BitstampOrders
from orderbook.feeds.exchanges.exchange import Exchange
from orderbook.feeds.live.session import Disconnect, Get, Send
from orderbook.feeds.recording.capture_replay import CaptureSource
from orderbook.market.books import Books
from orderbook.market.events import Action, BookState, Side

ETH, BTC = (instrument("bitstamp", name, "0.01") for name in ("ethusd", "btcusd"))
VALID, SYNCING, STALE = BookState.VALID, BookState.SYNCING, BookState.STALE
CHANNELS: dict[type[Exchange], str] = {Bitstamp: "diff_order_book", BitstampOrders: "live_orders"}


class Client(Driven):
    """Its products are acknowledged; `answer` gives a snapshot that was asked for."""

    def __init__(self, kind: type[Exchange], *products: Any) -> None:
        self.channel = CHANNELS[kind]
        super().__init__(kind, products or [ETH, BTC])
        for product in self.books:
            self.frame({"event": "bts:subscription_succeeded", "channel": f"{self.channel}_{product}"})

    def answer(self, product: str, moment: int, bids: list[Any], asks: list[Any]) -> list[tuple[int, ...]]:
        body = {"timestamp": "1", "microtimestamp": str(moment), "bids": bids, "asks": asks}
        self.session.answered(product, json.dumps(body).encode(), self.time)
        return self._settle()

    def asked(self, seconds: float) -> list[str]:
        return [command.product for command in self.commands(seconds) if isinstance(command, Get)]

    def levels_at(self, moment: int, *levels: str, product: str = "ethusd") -> list[tuple[int, ...]]:
        """A message of levels such as "bids 100.5 2"."""
        data: dict[str, Any] = {"timestamp": "1", "microtimestamp": str(moment), "bids": [], "asks": []}
        for side, price, size in map(str.split, levels):
            data[side].append([price, size])
        return self.frame({"event": "data", "channel": f"diff_order_book_{product}", "data": data})

    def order(self, event: str, moment: int, number: int, price: str, size: str, **other: Any) -> Any:
        data = {"id": number, "id_str": str(number), "order_type": 0, "microtimestamp": str(moment)}
        data |= {"amount_str": size, "price_str": price, "amount": float(size), "price": float(price)}
        channel = "live_orders_ethusd"
        return self.frame({"event": f"order_{event}", "channel": channel, "data": data | other})


def served(kind: type[Exchange] = Bitstamp) -> Client:
    """Valid books: 100.00 bid and 101.00 asked, in order 1 and 2 where there are orders; at moment 20."""
    client = Client(kind)
    client.now += 6.0
    for product in ("ethusd", "btcusd"):
        bids, asks = (["100.00", "1", "1"], ["101.00", "2", "2"])
        size = 3 if kind is BitstampOrders else 2
        client.answer(product, 20, [bids[:size]], [asks[:size]])
        assert client.state(product) is VALID
    client.commands(0.0)
    return client


def test_the_recorded_session(shared_data: Path) -> None:
    path = shared_data / "cryptofeed" / "BITSTAMP.jsonl.zst"
    source = CaptureSource(path)
    events = np.concatenate(list(source))
    statistics = source.statistics
    assert statistics.problems.counts == {}
    assert (statistics.frames, statistics.gaps, statistics.malformed) == (747, 0, 0)
    assert len(source.instruments) == 10
    names = {one.native_symbol: index for index, one in enumerate(source.instruments)}
    moments: dict[str, int] = {}
    by_hand: dict[str, dict[str, dict[str, str]]] = {}
    books, plain = Books(source.instruments, Dictionary()), [PlainBook() for _ in names]
    units = iter(list(messages([events])))

    def following(sequence: int) -> None:
        """Apply the units up to the one of a message."""
        for unit in units:
            books.apply(unit)
            for event in unit:
                plain[event["instrument"]].apply(event)
            if unit["sequence"][0] == sequence and unit["action"][0] == Action.LEVEL:
                return

    compared = crossed = contained = trades = 0
    for record in sorted((r for r in recorded(path) if "ts" in r), key=lambda r: r["ts"]):
        if record["t"] == "http" and "order_book" in record["url"]:
            data = json.loads(record["data"])
            product = record["url"].rpartition("/")[2]
            moments[product] = int(data["microtimestamp"])
            by_hand[product] = {side: dict(data[side]) for side in ("bids", "asks")}
        if record["t"] != "recv":
            continue
        frame = json.loads(record["data"])
        trades += frame["event"] == "trade"
        if frame["event"] != "data":
            continue
        product, data = frame["channel"].rpartition("_")[2], frame["data"]
        moment = int(data["microtimestamp"])
        if moment < moments[product]:
            contained += 1
            continue
        for own in ("bids", "asks"):
            for price, size in data[own]:
                by_hand[product][own].pop(price, None)
                if float(size):
                    by_hand[product][own][price] = size
        following(moment)
        one, index = source.instruments[names[product]], names[product]
        for side, own in ((Side.BID, "bids"), (Side.ASK, "asks")):
            wire = {one.ticks(p): one.lots(s) for p, s in by_hand[product][own].items()}
            assert plain[index].levels[side] == wire
            found = books.levels(index, side, 5)[["price", "volume"]].tolist()
            assert found == plain[index].best(side, 5)
        best_bid, best_ask = books.best(index)
        crossed += best_bid is None or best_ask is None or best_bid >= best_ask
        compared += 1
    assert all(books.state(index) is VALID for index in range(10))
    # That the stream ran when the snapshots were made shows in messages from before them.
    print(f"bitstamp: {compared} books compared, {contained} messages older, {crossed} crossed")
    assert (events["action"] == Action.TRADE).sum() == trades == 10
    assert (compared > 500, contained > 50, crossed) == (True, True, 0)


def test_what_is_sent_and_asked_for() -> None:
    client = Client(BitstampOrders, ETH)
    sent = [json.loads(c.text) for c in client.commands(0.0) if isinstance(c, Send)]
    assert [m["data"]["channel"] for m in sent] == ["live_orders_ethusd", "live_trades_ethusd"]
    (get,) = [command for command in client.commands(1.0) if isinstance(command, Get)]
    assert get.url == "https://www.bitstamp.net/api/v2/order_book/ethusd?group=2"
    assert [json.loads(m.text) for m in client.commands(10.0) if isinstance(m, Send)] == [
        {"event": "bts:heartbeat"}
    ]


def test_instruments() -> None:
    pair = {"url_symbol": "ethusd", "base_decimals": 8, "counter_decimals": 1, "trading": "Enabled"}
    (found,) = Bitstamp.instruments(["ethusd"], [json.dumps([pair]).encode()])
    assert (str(found), str(found.tick), str(found.lot)) == ("bitstamp:ETH-USD", "0.1", "1E-8")
    with pytest.raises(SourceError, match="no product 'foousd'"):
        Bitstamp.instruments(["foousd"], [json.dumps([pair]).encode()])
    with pytest.raises(SourceError, match="no list of trading pairs"):
        Bitstamp.instruments(["ethusd"], [b"<html>"])


def test_a_snapshot_fits_once_the_stream_is_known_to_have_run() -> None:
    client = Client(Bitstamp)
    assert sorted(client.asked(1.0)) == ["btcusd", "ethusd"]
    client.answer("ethusd", 10, [], [])
    assert client.state("ethusd") is SYNCING
    client.levels_at(12, "bids 99.00 1")
    client.levels_at(15, "bids 98.00 1")
    client.answer("ethusd", 11, [], [])
    client.answer("ethusd", 12, [], [])
    assert client.state("ethusd") is SYNCING
    client.answer("ethusd", 13, [["97.00", "1"]], [])
    assert client.state("ethusd") is VALID
    assert [price for price, _ in client.levels("ethusd")[0]] == [9800, 9700]
    assert client.problems == {"old snapshot": 3}


def test_a_quiet_book_needs_a_snapshot_of_long_after_the_subscription() -> None:
    client = Client(Bitstamp)
    client.answer("ethusd", 10, [], [])
    client.now += 4.9
    client.answer("ethusd", 10, [], [])
    assert client.state("ethusd") is SYNCING
    client.now += 0.2
    client.answer("ethusd", 10, [["97.00", "1"]], [])
    assert client.state("ethusd") is VALID


def test_levels_are_absolute_and_a_message_is_one_unit() -> None:
    client = served()
    events = client.levels_at(21, "bids 100.00 0", "asks 101.00 0.5", "asks 102.00 1")
    assert [event[1] for event in events] == [Action.LEVEL] * 3
    assert client.levels("ethusd") == ([], [(10_100, 50_000_000), (10_200, 100_000_000)])
    client.levels_at(21, "bids 99.00 1")
    assert client.problems == {}
    client.levels_at(20, "bids 98.00 1")
    assert (client.state("ethusd"), client.state("btcusd")) == (SYNCING, VALID)
    assert client.problems == {"reset": 1}


def test_orders() -> None:
    client = served(BitstampOrders)

    def events(*arguments: Any, **other: Any) -> list[tuple[int, ...]]:
        return [event[1:] for event in client.order(*arguments, **other)]

    lot = 10**8
    assert events("created", 21, 3, "99.00", "2") == [(Action.ADD, Side.BID, 9900, 2 * lot, 3)]
    assert events("created", 21, 3, "99.00", "2") == []
    assert events("changed", 22, 3, "99.00", "1.5") == [(Action.EXECUTE, Side.BID, 9900, lot // 2, 3)]
    assert events("changed", 23, 3, "98.00", "1.5") == [(Action.MODIFY, Side.BID, 9800, 3 * lot // 2, 3)]
    assert events("changed", 24, 3, "98.00", "3") == [(Action.MODIFY, Side.BID, 9800, 3 * lot, 3)]
    assert events("deleted", 25, 3, "98.00", "0") == [(Action.EXECUTE, Side.BID, 9800, 3 * lot, 3)]
    assert events("deleted", 26, 1, "100.00", "1") == [(Action.DELETE, Side.BID, 10_000, lot, 1)]
    assert events("deleted", 27, 77, "90.00", "1") == []
    assert events("created", 28, 5, "0", "1") == []
    assert events("changed", 29, 6, "95.00", "1") == [(Action.ADD, Side.BID, 9500, lot, 6)]
    # An order's moment may lie before that of another's message.
    assert events("created", 28, 7, "102.00", "1", order_type=1) == [(Action.ADD, Side.ASK, 10_200, lot, 7)]
    assert client.problems == {}
    assert set(client.books["ethusd"].orders) == {2, 6, 7}
    client.order("created", 30, 8, "102.00", "1", order_type=4)
    assert (client.state("ethusd"), client.problems) == (SYNCING, {"malformed": 1})


def test_orders_of_before_the_snapshot_are_dropped_and_those_of_its_moment_applied_once_more() -> None:
    client = Client(BitstampOrders)
    client.order("created", 10, 3, "99.00", "2")
    client.order("changed", 12, 3, "99.00", "1")
    client.order("created", 12, 4, "98.00", "1")
    client.order("deleted", 13, 3, "99.00", "1")
    client.answer("ethusd", 12, [["99.00", "1", "3"]], [["103.00", "1", "9"]])
    assert client.state("ethusd") is VALID
    assert set(client.books["ethusd"].orders) == {4, 9}
    client.order("created", 11, 5, "98.00", "1")
    assert set(client.books["ethusd"].orders) == {4, 5, 9}


def test_an_order_of_before_a_snapshot_ahead_of_the_stream_is_dropped() -> None:
    client = served(BitstampOrders)
    client.order("created", 19, 3, "99.00", "2")
    client.order("deleted", 19, 1, "100.00", "2")
    assert set(client.books["ethusd"].orders) == {1, 2}


def test_trades() -> None:
    client = served()
    data = {"id": 7, "type": 1, "microtimestamp": "5", "amount_str": "0.5", "price_str": "100.00"}
    frame = {"event": "trade", "channel": "live_trades_ethusd", "data": data}
    assert client.frame(frame) == [(0, Action.TRADE, Side.ASK, 10_000, 50_000_000, 7)]
    assert client.frame(frame) == []
    client.frame(frame | {"data": data | {"id": 8, "amount_str": "-1"}})
    assert client.problems == {"unusable message": 1}
    assert client.state("ethusd") is client.state("btcusd") is VALID


@pytest.mark.parametrize("kind", [Bitstamp, BitstampOrders])
def test_what_cannot_be_read_loses_what_it_may_have_been_of(kind: type[Exchange]) -> None:
    client = served(kind)
    client.frame({"event": "data", "channel": f"{client.channel}_ethusd", "data": {"microtimestamp": 9}})
    assert (client.state("ethusd"), client.state("btcusd")) == (SYNCING, VALID)
    client = served(kind)
    client.frame(b'{"event": "data", "cha')
    assert client.state("ethusd") is client.state("btcusd") is SYNCING
    assert client.levels("ethusd") == ([], [])
    # The snapshot must be of after what was lost.
    assert sorted(client.asked(1.0)) == ["btcusd", "ethusd"]
    client.answer("ethusd", 30, [], [])
    assert client.state("ethusd") is SYNCING
    client.now += 5.0
    client.answer("ethusd", 30, [], [])
    assert client.state("ethusd") is VALID
    assert client.statistics.resyncs == 1


def test_what_changes_no_book() -> None:
    client = served()
    client.frame({"event": "bts:heartbeat", "channel": "", "data": {"status": "success"}})
    assert client.problems == {}
    client.frame({"event": "tea", "channel": "", "data": {}})
    client.levels_at(21, "bids 100.00 0", product="foousd")
    assert client.problems == {"unknown message": 1, "unknown product": 1}
    assert client.state("ethusd") is client.state("btcusd") is VALID


def test_the_exchange_asks_to_reconnect() -> None:
    client = served()
    client.frame({"event": "bts:request_reconnect", "channel": "", "data": ""})
    assert any(isinstance(command, Disconnect) for command in client.commands(0.0))
    client.session.disconnected("closed", client.time)
    client.connect()
    assert client.state("ethusd") is SYNCING
    client.levels_at(21, "bids 100.00 3")
    client.answer("ethusd", 22, [], [["103.00", "1"]])
    assert client.levels("ethusd") == ([], [(10_300, 100_000_000)])


def test_a_refused_subscription() -> None:
    client = Client(Bitstamp)
    client.frame({"event": "bts:error", "channel": "", "data": {"code": 4, "message": "Bad subscription."}})
    assert client.session.refusal == "Bad subscription. (code 4)"


EVENTS = ("created", "changed", "deleted", "cut")


@given(
    steps=st.lists(
        st.tuples(st.sampled_from(EVENTS), st.integers(1, 9), st.integers(90, 110)),
        max_size=60,
    ),
    lag=st.integers(0, 5),
)
def test_orders_equal_the_exchanges(steps: list[tuple[str, int, int]], lag: int) -> None:
    client = served(BitstampOrders)
    orders = {1: (0, 100, 1), 2: (1, 101, 2)}
    history = [dict(orders)]
    moment = 20
    for event, number, price in steps:
        moment += 1
        side = orders[number][0] if number in orders else int(price > 100)
        if event == "deleted":
            orders.pop(number, None)
        elif event != "cut":
            orders[number] = (side, price, number + price % 3)
        history.append(dict(orders))
        if event == "cut":
            client.frame(b'{"event":')
        else:
            size = str(number + price % 3)
            client.order(event, moment, number, f"{price}.00", size, order_type=side)
        for product in client.asked(1.0):
            if product == "ethusd":
                made = max(0, len(history) - 1 - lag)
                sides: list[list[Any]] = [[], []]
                for one, (own, level, volume) in history[made].items():
                    sides[own].append([f"{level}.00", str(volume), str(one)])
                client.answer("ethusd", 20 + made, *sides)
        found = {one: (s, p // 100, v // 10**8) for one, (s, p, v) in client.books["ethusd"].orders.items()}
        assert found == (orders if client.state("ethusd") is VALID else {})
