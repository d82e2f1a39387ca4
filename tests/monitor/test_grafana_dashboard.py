"""The dashboard for Grafana asks what can be answered, by the queries that Grafana makes of it."""

import json
import re

import polars as pl
from paths import PROJECT

import orderbook
from orderbook.clients.postgres_queries import in_duckdb
from orderbook.configuration.configuration import load_configuration
from orderbook.run.assembly import assemble

FOLDER = PROJECT / "docs" / "grafana"
BEGIN = 1_767_600_000_000_000_000
MINUTE = 60_000_000_000
# What the macros of Grafana's source become, as its documentation lists them.
MACROS = {
    r"\$__timeGroupAlias\(([^,]+), '5m'\)": r'floor(extract(epoch from \1)/300)*300 AS "time"',
    r"\$__timeFilter\(([^)]+)\)": r"\1 BETWEEN '2026-01-05T00:00:00Z' AND '2026-01-06T00:00:00Z'",
    r"\$__time\(([^)]+)\)": r'\1 AS "time"',
    r"\$symbol": "'AAA','BBB'",
}


def test_its_queries_are_answered() -> None:
    dashboard = json.loads((FOLDER / "dashboard.json").read_text())
    views = ("touch", str(FOLDER / "bars.sql"))
    engine = orderbook.Engine(
        assemble(load_configuration(None, {"run.views": views})).program, backend="interpreter"
    )
    order = {"ts": BEGIN, "venue": "X", "broker_id": 0, "volume": 4}
    engine.tick(BEGIN)
    for symbol in ("AAA", "BBB", "CCC"):
        engine.insert("bids", order | {"symbol": symbol, "id": 1, "price": 99})
        engine.insert("asks", order | {"symbol": symbol, "id": 2, "price": 101, "volume": 12})
        for n, price in enumerate((100, 103, 98, 102)):
            trade = {"ts": BEGIN + n * MINUTE // 2, "venue": "X", "symbol": symbol, "id": n, "price": price}
            engine.insert("trades", trade | {"volume": 1, "side": "buy"})
    asked = {panel["title"]: panel["targets"][0]["rawSql"] for panel in dashboard["panels"]}
    found: dict[str, pl.DataFrame] = {}
    for title, sql in asked.items():
        for macro, instead in MACROS.items():
            sql = re.sub(macro, instead, sql)
        assert "$" not in sql
        found[title] = engine.query(in_duckdb(sql))
    assert found["Touch"]["symbol"].to_list() == ["AAA", "BBB"]
    assert found["Price"]["value"].to_list() == [103, 103, 102, 102]
    assert found["Imbalance of the touch"].rows() == [("X AAA", -0.5), ("X BBB", -0.5)]
    assert found["Volume in five minutes"]["value"].to_list() == [4, 4]
    (variable,) = dashboard["templating"]["list"]
    assert engine.query(in_duckdb(variable["query"]))["symbol"].to_list() == ["AAA", "BBB", "CCC"]
