"""The monitor's topics and requests, over its websocket, against what the engine and the books hold."""

import asyncio
import json
import urllib.error
import urllib.request
from decimal import Decimal
from types import SimpleNamespace
from typing import Any, cast

import pytest
from monitor_support import INSTRUMENTS, SYMBOL, VENUE, client, flow, running, trade, valid_books
from samples import PATIENCE

from orderbook.configuration.configuration import load_configuration
from orderbook.configuration.options import MonitorOptions
from orderbook.core.errors import ConfigurationError, OrderbookError
from orderbook.market.events import Side
from orderbook.monitor import alerts, status_topic
from orderbook.monitor.alerts import Alerts, Notes
from orderbook.monitor.messages import Rule, wire_version
from orderbook.monitor.run_monitor import ServerProcess
from orderbook.strategies.execution.account import Fill, row_of
from orderbook.strategies.strategy import Strategy, StrategyDefinition, on_view

TOKEN = "a-token-of-sixteen"


def test_a_book_is_what_the_books_hold() -> None:
    async def go() -> None:
        async with running() as run, client(run) as one:
            await run.put(valid_books(), flow(2000))
            book = await one.ask(id=1, op="subscribe", topic="book", venue=VENUE, symbol=SYMBOL, depth=7)
            assert (book["type"], book["state"], book["tick"]) == ("book", "valid", "0.01")
            for name, side in (("bids", Side.BID), ("asks", Side.ASK)):
                assert run.pipeline.books is not None
                levels = run.pipeline.books.levels(0, side, 7)
                assert book[name] == [list(level) for level in levels.tolist()]
                assert len(book[name]) == 7
            assert {"view": "depth", "column": "best"}.items() <= book["marks"][0].items()
            assert Decimal(book["marks"][0]["price"]) == run.engine["depth"][SYMBOL].best

    asyncio.run(go())


class Rests(Strategy):
    """Buys below the best bid, once."""

    done = False

    @on_view("depth")
    def rest(self, event: Any) -> None:
        if not self.done and event.key == (SYMBOL,):
            self.done = True
            self.buy(SYMBOL, 7, event.new.best - Decimal("0.12"))


def test_own_orders_stand_in_the_book_with_their_fills() -> None:
    async def go() -> None:
        async with running(strategies=[StrategyDefinition(Rests)]) as run, client(run) as one:
            await run.put(valid_books(), flow(1000))
            book = await one.ask(id=1, op="subscribe", topic="book", venue=VENUE, symbol=SYMBOL, depth=50)
            (order,) = book["orders"]
            assert (order["strategy"], order["id"], order["side"], order["left"]) == ("Rests", 1, "buy", 7)
            ahead = [lots for ticks, lots, _ in book["bids"] if ticks == order["price"]]
            assert 0 <= order["ahead"] <= sum(ahead)
            assert order["price"] < book["bids"][0][0]
            fill = Fill(5, "Rests", 1, VENUE, SYMBOL, "buy", Decimal(3), Decimal("100.57"))
            run.engine.insert("fills", row_of(fill))
            told = await one.take(id=1)
            assert told["fills"] == [["5", "Rests", "buy", 10057, 3]]

    asyncio.run(go())


def test_trades_are_told_once_to_every_client_and_those_kept_to_a_new_one() -> None:
    async def go() -> None:
        async with running() as run, client(run) as one, client(run) as two:
            asked: dict[str, Any] = {"op": "subscribe", "topic": "book", "venue": VENUE, "symbol": SYMBOL}
            assert (await one.ask(id=1, **asked))["trades"] == []
            await run.put(trade(100, 5), trade(101, 6, Side.ASK), trade(7, 7, instrument=1))
            told = await one.take(id=1)
            assert [t[1:] for t in told["trades"]] == [[100, 5, "buy"], [101, 6, "sell"]]
            assert (await one.take(id=1))["trades"] == []
            assert [t[1:3] for t in (await two.ask(id=4, **asked))["trades"]] == [[100, 5], [101, 6]]

    asyncio.run(go())


def test_a_view_is_shown_by_its_keys_with_exact_values() -> None:
    async def go() -> None:
        async with running() as run, client(run) as one:
            for symbol, volume in (("B", "2.50"), ("A", "1.25"), ("A", "0.05")):
                run.engine.insert("quotes", {"symbol": symbol, "volume": volume})
            shown = await one.ask(id=3, op="subscribe", topic="view", view="totals")
            assert shown["columns"] == [["symbol", "text"], ["volume", "decimal"], ["n", "integer"]]
            assert shown["rows"] == [["A", "1.30", 2], ["B", "2.50", 1]]
            assert (shown["keys"], shown["count"], shown["version"]) == (["symbol"], 2, ["3", 0, 3])
            first = await one.ask(id=4, op="subscribe", topic="view", view="totals", limit=1)
            assert (first["rows"], first["count"]) == ([["A", "1.30", 2]], 2)
            run.engine.insert("quotes", {"symbol": "A", "volume": "1"})
            assert (await one.take(id=3))["rows"][0] == ["A", "2.30", 3]
            await one.ask(id=5, op="unsubscribe", subscription=3)
            assert (await one.ask(id=3, op="subscribe", topic="view", view="kept"))["count"] == 4

    asyncio.run(go())


def test_status_and_instruments_and_notes() -> None:
    async def go() -> None:
        async with running() as run, client(run) as one:
            await run.put(valid_books(), flow(500))
            status = await one.ask(id=1, op="subscribe", topic="status")
            assert status["engine"]["events"] == run.pipeline.events
            views = {view["view"]: view["rows"] for view in status["engine"]["views"]}
            assert views == {"totals": 0, "kept": 0, "depth": 2}
            (feed,) = status["feeds"]
            assert (feed["name"], feed["state"], feed["books"]["valid"]) == ("idle", "valid", 2)
            told = await one.ask(id=2, op="subscribe", topic="instruments")
            assert [i["symbol"] for i in told["instruments"]] == [i.symbol for i in INSTRUMENTS]
            run.monitor.notes.fill(
                {
                    "strategy": "s",
                    "order_id": 1,
                    "side": "buy",
                    "symbol": "A",
                    "venue": "V",
                    "volume": Decimal(1),
                    "price": Decimal(2),
                }
            )
            notes = await one.ask(id=3, op="subscribe", topic="notes")
            assert [(n["kind"], n["symbol"]) for n in notes["notes"]] == [("fill", "A")]

    asyncio.run(go())


def test_the_last_message_of_a_feed_is_noted_also_while_nobody_asks(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr(status_topic, "time", SimpleNamespace(monotonic=lambda: now[0]))

    async def go() -> None:
        async with running() as run:
            live: Any = SimpleNamespace(ended=lambda _: False)
            health = status_topic.FeedHealth(run.pipeline, live, [run.feed])
            for now[0] in (10.0, 20.0, 30.0):
                health.frame()
            (feed,) = health.state()
            assert feed["last_message_seconds"] == 20.0

    asyncio.run(go())


def test_requests_are_answered_or_refused_with_their_id() -> None:
    async def go() -> None:
        async with running() as run, client(run) as one:
            run.engine.insert("quotes", {"symbol": "A", "volume": "1"})
            table = await one.ask(id=1, op="sql", sql="SELECT symbol, n FROM totals")
            assert (table["rows"], table["count"], table["truncated"]) == ([["A", 1]], 1, False)
            explained = await one.ask(id=2, op="explain", view="totals")
            assert "quotes" in explained["m3"]
            assert explained["lineage"][:2] == ["reads quotes", "symbol: identity quotes.symbol"]
            for number, (request, error) in enumerate(
                (
                    ({"op": "sql", "sql": "SELECT nothing FROM totals"}, "nothing"),
                    ({"op": "explain", "view": "nope"}, "no view"),
                    ({"op": "subscribe", "topic": "view", "view": "nope"}, "no view"),
                    ({"op": "subscribe", "topic": "view"}, "by its name"),
                    ({"op": "subscribe", "topic": "book", "venue": "x", "symbol": "y"}, "no instrument"),
                    ({"op": "subscribe", "topic": "book", "depth": 5000}, "depth"),
                    ({"op": "unsubscribe", "subscription": 77}, "no subscription"),
                    ({"op": "follow"}, "either"),
                    ({"op": "follow", "sql": "CREATE VIEW v AS SELECT symbol FROM quotes"}, "one SELECT"),
                    ({"op": "add_view", "sql": "CREATE VIEW v AS SELECT 1"}, "read-only"),
                    ({"op": "why", "view": "totals", "at": ["1", 0, 1]}, "keeps no log"),
                    ({"op": "why", "view": "nope", "at": ["1", 0, 1]}, "no view"),
                    ({"op": "why", "view": "totals", "at": [1, 0, 1]}, "not a request"),
                    ({"op": "dance"}, "dance"),
                ),
                10,
            ):
                answer = await one.ask(id=number, **cast(dict[str, Any], request))
                assert answer["type"] == "error"
                assert error in answer["error"]

    asyncio.run(go())


def test_with_the_token_views_and_rules_come_and_go() -> None:
    async def go() -> None:
        async with running(MonitorOptions(port=0, token=TOKEN)) as run, client(run) as one:
            await run.put(valid_books())
            run.engine.insert("quotes", {"symbol": "A", "volume": "1"})
            sql = "CREATE VIEW counts AS SELECT COUNT(*) AS n FROM quotes"
            refused = await one.ask(id=1, op="add_view", sql=sql, token="another")
            assert "token" in refused["error"]
            assert "counts" not in run.engine.views
            assert "counts" in (await one.ask(id=2, op="add_view", sql=sql, token=TOKEN))["views"]
            assert (await one.ask(id=3, op="subscribe", topic="view", view="counts"))["rows"] == [[1]]
            # By a name that ships; the run keeps no rows of books.
            by_name = await one.ask(id=20, op="add_view", sql=" market/ask_levels ", token=TOKEN)
            assert "the rows of asks are not kept" in by_name["error"]
            rule = {"name": "many", "view": "counts", "when": "n > 2"}
            assert (await one.ask(id=4, op="set_rule", rule=rule, token=TOKEN))["type"] == "done"
            assert (await one.ask(id=5, op="rules"))["rules"] == [rule]
            await one.ask(id=6, op="subscribe", topic="notes")
            versions = []
            for _ in range(3):
                run.engine.insert("quotes", {"symbol": "A", "volume": "1"})
                versions.append([*wire_version(run.engine.version)])
            # A rule misses nothing, and its alert has the version of the event.
            run.engine.delete("quotes", {"symbol": "A", "volume": "1"})
            run.engine.delete("quotes", {"symbol": "A", "volume": "1"})
            (note,) = (await one.take(id=6))["notes"]
            assert (note["kind"], note["version"]) == ("alert", versions[1])
            for _ in range(2):
                run.engine.insert("quotes", {"symbol": "A", "volume": "1"})
            # Edge: what holds already alerts no more.
            run.engine.insert("quotes", {"symbol": "A", "volume": "1"})
            assert (await one.take(id=3, rows=[[5]]))["rows"]
            run.engine.insert("quotes", {"symbol": "A", "volume": "1"})
            assert (await one.take(id=3, rows=[[6]]))["rows"]
            assert len((await one.ask(id=8, op="subscribe", topic="status"))["alerts"]) == 2
            await one.send(id=7, op="drop_view", view="counts", token=TOKEN)
            assert (await one.take(id=3, type="error"))["error"]
            assert "counts" not in run.engine.views
            assert (await one.ask(id=9, op="rules"))["rules"] == []

    asyncio.run(go())


def test_a_rule_that_alerts_all_the_time_and_one_that_is_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(alerts, "MOST_A_SECOND", 3)
    # It stays the same second.
    monkeypatch.setattr(alerts, "time", SimpleNamespace(monotonic=lambda: 5.0))

    async def go() -> None:
        async with running(MonitorOptions(port=0, token=TOKEN)) as run:
            own = Alerts(run.engine, Notes(lambda: 0), lambda: 0)
            for when, told in (("volume > 0", 3), ("volume > 1", 3), ("volume > 0", 6)):
                own.begin(Rule("any", "totals", when))
                for _ in range(10):
                    run.engine.insert("quotes", {"symbol": "A", "volume": "1"})
                    run.engine.delete("quotes", {"symbol": "A", "volume": "1"})
                assert len(own.newest()) == told
            for wrong in (Rule("wrong", "totals", "nothing > 1"), Rule("wrong", "nothing", "volume > 1")):
                with pytest.raises(OrderbookError, match="nothing"):
                    own.begin(wrong)
            assert own.told() == [{"name": "any", "view": "totals", "when": "volume > 0"}]
            own.end("any")
            with pytest.raises(OrderbookError, match="no rule 'any'"):
                own.end("any")
            run.engine.insert("quotes", {"symbol": "A", "volume": "1"})
            assert len(own.newest()) == 6

    asyncio.run(go())


def test_http_serves_the_page_and_refuses_other_hosts_and_origins() -> None:
    async def go() -> None:
        async with running() as run:

            def get(path: str, **headers: str) -> int:
                request = urllib.request.Request(f"{run.server.url}{path}", headers=headers)
                try:
                    with urllib.request.urlopen(request, timeout=PATIENCE) as answer:
                        assert answer.headers["X-Content-Type-Options"] == "nosniff"
                        return int(answer.status)
                except urllib.error.HTTPError as error:
                    return error.code

            here = f"127.0.0.1:{run.server.port}"
            for path, headers, status in (
                ("", {}, 200),
                ("health", {}, 200),
                ("health", {"Origin": f"http://{here}"}, 200),
                ("health", {"Origin": "http://127.0.0.1:1"}, 403),
                ("health", {"Origin": "https://evil.example"}, 403),
                ("health", {"Origin": "null"}, 403),
                ("health", {"Host": "evil.example"}, 403),
                ("health", {"Host": f"localhost:{run.server.port}"}, 200),
                ("static/../server.py", {}, 404),
                ("nothing", {}, 404),
            ):
                assert await asyncio.to_thread(get, path, **headers) == status, (path, headers)

    asyncio.run(go())


def test_a_taken_port_is_passed_over_and_a_host_needs_its_token() -> None:
    first = ServerProcess(MonitorOptions(port=0))
    second = ServerProcess(MonitorOptions(port=first.port))
    assert second.port > first.port
    for server in (first, second):
        server.close()
    with pytest.raises(OrderbookError, match="cannot be served"):
        ServerProcess(MonitorOptions(port=1, host="203.0.113.1", token=TOKEN))
    with pytest.raises(ConfigurationError, match=r"monitor\.host is not loopback"):
        load_configuration(None, {"monitor.host": "0.0.0.0"})
    with pytest.raises(ConfigurationError, match=r"monitor\.origin"):
        load_configuration(None, {"monitor.origin": "https://desk.example"})
    with pytest.raises(ConfigurationError, match="an origin such as"):
        load_configuration(None, {"monitor.origin": "desk.example/x", "monitor.token": TOKEN})
    assert json.dumps(load_configuration(None, {}).monitor.model_dump())
