"""DataFrames in and out of a session that is the user's: equal rows, and nothing set in it."""

import json
import os
import random
import shutil
import subprocess
import sys
from datetime import datetime
from decimal import Decimal
from pathlib import Path
from typing import Any
from weakref import WeakSet

import duckdb
import polars as pl
import pytest
from backtest_support import SEEN, VIEWS, Follower, job_settings, run, write_records
from paths import SUPPORT
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sql

import orderbook.spark
from orderbook.configuration.options import SparkOptions
from orderbook.core.errors import UserError
from orderbook.jobs.job import Job
from orderbook.spark import session

pytestmark = pytest.mark.spark

PLAIN = {"run.backend": "interpreter"}
DEPTH = """
CREATE VIEW depth AS
SELECT symbol, SUM(volume) AS volume, COUNT(*) AS orders, MAX(price) AS best, MAX(ts) AS last
FROM bids GROUP BY symbol
"""
QUOTES = """
CREATE STREAM quotes (
    at TIMESTAMP NOT NULL, id BIGINT PRIMARY KEY, symbol TEXT, price DECIMAL(12, 4) NOT NULL, last INTEGER
);
CREATE TABLE sectors (symbol TEXT NOT NULL, sector TEXT, weight DOUBLE NOT NULL);
CREATE VIEW by_sector AS
SELECT s.sector, COUNT(*) AS n, SUM(q.price) AS total, MAX(q.at) AS latest, SUM(q.last) AS last
FROM quotes q JOIN sectors s ON s.symbol = q.symbol GROUP BY s.sector;
CREATE VIEW everything AS SELECT COUNT(*) AS n, MIN(price) AS least FROM quotes;
"""


@pytest.fixture
def users(spark: SparkSession) -> SparkSession:
    """A session of the user's, who is in New York and has Spark's own settings."""
    own = spark.newSession()
    own.conf.set("spark.sql.session.timeZone", "America/New_York")
    own.conf.set("spark.sql.adaptive.enabled", "true")
    own.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", "10000")
    own.conf.set("spark.sql.shuffle.partitions", "5")
    return own


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A configuration that compiles nothing."""
    file = tmp_path_factory.mktemp("plain") / "plain.toml"
    file.write_text('[run]\nbackend = "interpreter"\n')
    return str(file)


@pytest.fixture(scope="module")
def records(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("records")
    write_records(folder, 3_000, 4, 2, 1, apart=True)
    return folder


@pytest.fixture(scope="module")
def job(records: Path, tmp_path_factory: pytest.TempPathFactory) -> Job:
    """What one process makes of them."""
    folder = tmp_path_factory.mktemp("job")
    views = ("depth", "brokers", "everything", "large", "states")
    return run(job_settings(folder / "job", 1, views=views, strategies=(Follower,)), [records])[0]


def settings(own: SparkSession) -> dict[str, str]:
    return {row.key: row.value for row in own.sql("SET").collect()}


def rows(frame: DataFrame | pl.DataFrame) -> list[tuple[Any, ...]]:
    """All rows in an order of their own, times in UTC."""
    found = frame if isinstance(frame, pl.DataFrame) else pl.DataFrame(pl.from_arrow(frame.toArrow()))
    times = pl.col(pl.Datetime(time_zone="*")).dt.convert_time_zone("UTC").dt.replace_time_zone(None)
    return sorted(found.with_columns(times).rows(), key=repr)


def micros(frame: pl.DataFrame) -> pl.DataFrame:
    return frame.with_columns(pl.col(pl.Datetime).dt.cast_time_unit("us"))


def test_views_are_those_of_one_process_and_the_session_stays_as_it_is(
    users: SparkSession, records: Path, job: Job
) -> None:
    own = users.range(3).select(sql.expr("date_format(timestamp_seconds(id * 3600), 'd HH') AS hour"), "id")
    before, answers = settings(users), own.collect()
    views = orderbook.spark.views(
        str(records), VIEWS, options=PLAIN, partitions=3, together=True, session=users
    )
    for name, frame in views.items():
        assert rows(frame) == rows(job.view(name)), name
    views.unpersist()
    history = orderbook.spark.views(
        [records], VIEWS, options=PLAIN, partitions=3, history=True, session=users
    )
    assert rows(history["depth"]) == rows(job.history("depth"))
    assert rows(history["everything"]) == rows(job.history("everything"))
    joined = history["depth"].join(own.withColumnRenamed("id", "orders"), "orders", "left")
    assert joined.count() == history["depth"].count()
    assert settings(users) == before
    assert own.collect() == answers
    assert answers[1].hour == "31 20"


def test_workers_call_functions_of_python(users: SparkSession, records: Path, tmp_path: Path) -> None:
    """Of a module beside the view's file, which the processes that are there already have not seen."""
    (tmp_path / "spark_signals.py").write_text("def quartered(x):\n    return x / 4.0\n")
    query = "CREATE VIEW {} AS SELECT symbol, SUM({} * volume) AS v FROM bids GROUP BY symbol;"
    function = "CREATE FUNCTION f(x DOUBLE) RETURNS DOUBLE LANGUAGE python AS 'spark_signals:quartered';"
    (tmp_path / "called.sql").write_text(function + query.format("called", "f(price)"))
    (tmp_path / "plain.sql").write_text(query.format("plain", "price::DOUBLE / 4"))
    files = [tmp_path / "called.sql", tmp_path / "plain.sql"]
    views = orderbook.spark.views(str(records), files, options=PLAIN, partitions=3, session=users)
    assert rows(views["called"]) == rows(views["plain"]) != []


def test_a_command_beside_a_users_session_has_one_of_its_own(
    users: SparkSession, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session, "_ours", WeakSet())
    monkeypatch.setattr(SparkSession, "getActiveSession", classmethod(lambda cls: users))
    before = settings(users)
    own = session.spark_session(
        SparkOptions(master="local[2]", properties={"spark.sql.ansi.enabled": "false"})
    )
    assert settings(users) == before
    assert own.conf.get("spark.sql.session.timeZone") == "UTC"
    assert own.conf.get("spark.sql.ansi.enabled") == "false"
    assert users.conf.get("spark.sql.ansi.enabled") == "true"


def test_times_are_instants_in_any_time_zone(users: SparkSession, records: Path, tmp_path: Path) -> None:
    wanted = run(job_settings(tmp_path / "job", 1, sql=DEPTH, views=("depth",)), [records])[0].view("depth")
    frame = orderbook.spark.views(str(records), DEPTH, options=PLAIN, partitions=2, session=users)["depth"]
    assert frame.schema.simpleString() == (
        "struct<symbol:string,volume:decimal(38,8),orders:bigint,best:decimal(38,8),last:timestamp>"
    )
    found = {
        row.symbol: row.us for row in frame.select("symbol", sql.expr("unix_micros(last) AS us")).collect()
    }
    assert found == {row["symbol"]: row["last"].timestamp() * 10**6 // 1 for row in micros(wanted).to_dicts()}


def test_events_of_files_are_a_source_and_views_of_them_are_those_of_the_files(
    users: SparkSession, records: Path, job: Job, plain: str
) -> None:
    orderbook.spark.register(users)
    before = settings(users)
    events = users.read.format("orderbook.events").load(str(records))
    assert events.where("symbol = 'AAA-USD' AND action = 'add'").count() > 0
    views = orderbook.spark.views(events.repartition(3), VIEWS, options=PLAIN, partitions=2, history=True)
    for name in ("depth", "everything"):
        assert rows(views[name]) == rows(job.history(name)), name
    source = (
        users.read.format("orderbook").option("sql", VIEWS).option("view", "depth").option("partitions", 2)
    ).option("config", plain)
    assert rows(source.load(str(records))) == rows(job.view("depth"))
    one = source.option("history", "true").load(str(records)).where("symbol = 'AAA-USD'")
    assert rows(one.select("sequence", "volume")) == rows(
        job.history("depth").filter(symbol="AAA-USD").select("sequence", "volume")
    )
    books = users.read.format("orderbook.books").option("config", plain).load(str(records))
    bids = (
        books.where("side = 'bid'")
        .groupBy("symbol")
        .agg(sql.sum("volume"), sql.sum("orders"), sql.max("price"))
    )
    assert rows(bids) == rows(job.view("depth"))
    assert settings(users) == before


def test_filters_reach_the_readers_where_the_user_lets_them(users: SparkSession, records: Path) -> None:
    users.conf.set("spark.sql.python.filterPushdown.enabled", "true")
    orderbook.spark.register(users)
    events = users.read.format("orderbook.events").load(str(records))
    stamps = [row.stamp for row in events.where("symbol = 'AAB-USD'").orderBy("stamp").collect()]
    some = events.where(f"symbol = 'AAB-USD' AND stamp >= {stamps[50]} AND stamp <= {stamps[90]}")
    assert [row.stamp for row in some.orderBy("stamp").collect()] == [
        stamp for stamp in stamps if stamps[50] <= stamp <= stamps[90]
    ]


@pytest.mark.sampled(2)
def test_a_stream_of_files_gives_the_changes_that_a_history_has(
    users: SparkSession, records: Path, tmp_path: Path, plain: str
) -> None:
    orderbook.spark.register(users)
    before = settings(users)
    folder = tmp_path / "days"
    folder.mkdir()
    reader = users.readStream.format("orderbook.changes").options(
        sql=VIEWS, view="depth", config=plain, partitions=2, states=str(tmp_path / "states")
    )

    def taken() -> DataFrame:
        """What a query has written when it has taken the files that are there."""
        changes = reader.load(str(folder)).where("volume IS NOT NULL OR gone")
        writer = changes.writeStream.format("parquet").option("path", str(tmp_path / "out"))
        query = writer.option("checkpointLocation", str(tmp_path / "at")).trigger(availableNow=True).start()
        query.awaitTermination()
        return users.read.parquet(str(tmp_path / "out"))

    for day in (0, 1):
        for path in records.glob(f"*-{day}.parquet"):
            if day == 0 or not path.name.startswith("AAB"):
                shutil.copy(path, folder)
        written = taken()
    assert {row.status for row in written.select("status").distinct().collect()} == {"asserted"}
    late = {row.symbol: row["count"] for row in written.groupBy("symbol").count().collect()}
    shutil.copy(records / "AAB-USD-1.parquet", folder)
    written = taken()
    wanted = orderbook.spark.views(str(records), VIEWS, options=PLAIN, history=True, session=users)["depth"]
    net = written.groupBy(wanted.columns).agg(sql.sum(sql.expr("if(status = 'asserted', 1, -1)")).alias("n"))
    assert rows(net.where("n = 1").drop("n")) == rows(wanted)
    assert net.where("n <> 0 AND n <> 1").count() == 0
    own = written.where("symbol NOT IN ('AAB-USD')").groupBy("symbol").count().collect()
    assert all(late[row.symbol] <= row["count"] for row in own)
    assert rows(
        users.read.format("orderbook.changes")
        .options(sql=VIEWS, view="depth", config=plain)
        .load(str(records))
        .where("status = 'asserted'")
        .drop("status")
    ) == rows(wanted)
    with pytest.raises(PySparkException, match="a stream gives changes: readStream"):
        users.readStream.format("orderbook").options(sql=VIEWS, view="depth", config=plain).load(
            str(folder)
        ).writeStream.format("noop").trigger(availableNow=True).start().awaitTermination()
    assert settings(users) == before


def vendor(events: DataFrame) -> DataFrame:
    """Events as a vendor has them: other names, short actions, sides of their own."""
    short: dict[Any, Any] = {
        "add": "A",
        "modify": "M",
        "delete": "D",
        "execute": "E",
        "reduce": "C",
        "trade": "T",
    }
    known = events.where(events.action.isin(list(short)))
    return known.select(
        sql.col("receive_time").alias("ts_recv"), sql.col("exchange_time").alias("ts_event"),
        sql.col("symbol"), sql.lit("SIM").alias("publisher"),
        sql.replace(sql.col("action"), sql.lit(""), sql.lit("")).alias("action"),
        sql.upper(sql.substring("side", 1, 1)).alias("side"), "order_id", "price",
        sql.col("volume").cast("double").alias("size"), sql.col("sequence"),
    ).replace(short, subset=["action"])  # fmt: skip


def test_orders_in_a_vendors_columns(users: SparkSession, records: Path, job: Job) -> None:
    orderbook.spark.register(users)
    orders = vendor(users.read.format("orderbook.events").load(str(records)))
    views = orderbook.spark.views(orders.repartition(2), VIEWS, options=PLAIN, partitions=2)
    assert rows(views["depth"]) == rows(job.view("depth"))
    assert rows(views["everything"]) == rows(job.view("everything"))


def test_levels_and_trades_of_two_frames(users: SparkSession) -> None:
    at = 1_767_623_400_000_000
    levels = users.createDataFrame(
        [(at, "X-USD", True, "bid", 10.5, 2.0), (at, "X-USD", True, "ask", 10.6, 1.0),
         (at + 5, "X-USD", False, "bid", 10.5, 0.0), (at + 5, "X-USD", False, "bid", 10.4, 7.0),
         (at + 9, "X-USD", True, "bid", 10.3, 3.0)],
        "local_timestamp bigint, symbol string, is_snapshot boolean, side string, price double, "
        "amount double",
    )  # fmt: skip
    trades = users.createDataFrame(
        [("X-USD", at + 2, "buy", 10.6, 0.5), ("X-USD", at + 7, "sell", 10.4, 1.5)],
        "ticker string, when bigint, aggressor string, px double, qty double",
    )
    shown = """
    CREATE VIEW book AS SELECT venue, symbol, price, volume FROM bids;
    CREATE VIEW traded AS SELECT symbol, side, SUM(volume) AS volume FROM trades GROUP BY symbol, side;
    """
    source = [
        orderbook.spark.Market(levels, venue="V", time_unit="us"),
        orderbook.spark.Market(trades, "trades", {"time": "when"}, "V", time_unit="us"),
    ]
    views = orderbook.spark.views(source, shown, options=PLAIN, partitions=2)
    assert rows(views["book"]) == [("V", "X-USD", Decimal("10.30000000"), Decimal("3.00000000"))]
    assert rows(views["traded"]) == [
        ("X-USD", "buy", Decimal("0.50000000")), ("X-USD", "sell", Decimal("1.50000000")),
    ]  # fmt: skip


def changes(seed: int, count: int) -> list[tuple[Any, ...]]:
    """(order, op, at, id, symbol, price, last): quotes that come, and some of them go again."""
    draw, made = random.Random(seed), list[tuple[Any, ...]]()
    there: list[tuple[Any, ...]] = []
    for order in range(count):
        if there and draw.random() < 0.4:
            made.append((order, "-", *there.pop(draw.randrange(len(there)))))
            continue
        last = None if draw.random() < 0.3 else draw.randrange(-9, 9)
        symbol = draw.choice(["A", "B", "C", "é", None])
        row = (
            1_767_623_400_000_000 + 1000 * order,
            order,
            symbol,
            Decimal(draw.randrange(10**6)) / 10_000,
            last,
        )
        there.append(row)
        made.append((order, "+", *row))
    return made


def in_duckdb(
    made: list[tuple[Any, ...]], sectors: list[tuple[Any, ...]], query: str
) -> list[tuple[Any, ...]]:
    gone = {row[3] for row in made if row[1] == "-"}
    left = [row[2:] for row in made if row[1] == "+" and row[3] not in gone]
    with duckdb.connect() as connection:
        connection.execute(
            "CREATE TABLE quotes (moment BIGINT, id BIGINT, symbol TEXT, price DECIMAL(12, 4), last INTEGER)"
        )
        connection.execute("CREATE TABLE sectors (symbol TEXT, sector TEXT, weight DOUBLE)")
        for table, values in (("quotes", left), ("sectors", sectors)):
            marks = ", ".join("?" * (5 if table == "quotes" else 3))
            if values:
                connection.executemany(f"INSERT INTO {table} VALUES ({marks})", values)
        return sorted(connection.execute(query).fetchall(), key=repr)


def test_two_joined_streams_of_an_own_schema_equal_duckdb(users: SparkSession) -> None:
    made = changes(3, 400)
    sectors = [("A", "x", 0.5), ("B", "y", 1.0), ("C", "x", 2.0), ("é", None, 0.0)]
    mixed = made.copy()
    random.Random(1).shuffle(mixed)
    frame = users.createDataFrame(
        mixed, "seq bigint, op string, at_us bigint, id bigint, Ticker string, price decimal(12, 4), last int"
    ).repartition(3)
    frame = frame.withColumn("at", sql.timestamp_micros("at_us")).drop("at_us")
    quotes = orderbook.spark.Rows(frame, "seq", columns={"symbol": "Ticker"})
    static = users.createDataFrame(sectors, "symbol string, sector string, weight double")
    source: dict[str, Any] = {"quotes": quotes, "sectors": static}
    views = orderbook.spark.views(source, QUOTES, options=PLAIN, partitions=3)
    query = """
    SELECT s.sector, COUNT(*), SUM(q.price), MAX(q.moment), SUM(q.last) FROM quotes q
    JOIN sectors s ON s.symbol = q.symbol GROUP BY s.sector
    """
    own = views["by_sector"].select("sector", "n", "total", sql.expr("unix_micros(latest)"), "last")
    assert rows(own) == in_duckdb(made, sectors, query)
    history = orderbook.spark.views(source, QUOTES, options=PLAIN, partitions=3, history=True)["everything"]
    found = {row.stamp: (row.n, row.least) for row in history.collect()}
    for end in (0, 7, 150, 399):
        wanted = in_duckdb(made[: end + 1], sectors, "SELECT COUNT(*), MIN(price) FROM quotes")
        assert [found[max(stamp for stamp in found if stamp <= end)]] == wanted


def test_patterns_are_found_in_the_rows_of_a_dataframe(users: SparkSession) -> None:
    program = (
        QUOTES.partition("CREATE TABLE")[0]
        + """CREATE VIEW falls AS SELECT * FROM quotes MATCH_RECOGNIZE (
        PARTITION BY symbol ORDER BY at MEASURES FIRST(price) AS high, LAST(price) AS low, COUNT(*) AS n
        PATTERN (a down{2,}) DEFINE down AS price < PREV(price)) m"""
    )
    kinds = "at timestamp_ntz, id bigint, symbol string, price decimal(12, 4), last int"
    prices = enumerate([5, 4, 3, 9, 8, 9, 7, 6, 5, 6])
    made = [(datetime(2026, 1, 5, 0, 0, at), at, "ab"[at % 2], Decimal(p), None) for at, p in prices]
    source = {"quotes": users.createDataFrame(made, kinds)}
    found = orderbook.spark.views(source, program, order="at", options=PLAIN, partitions=3)
    assert rows(found["falls"]) == [("a", Decimal(8), Decimal(5), 3)]


def test_rows_that_contradict_each_other_fail_the_query(users: SparkSession) -> None:
    kinds = (
        "seq bigint, op string, at timestamp_ntz, id bigint, symbol string, price decimal(12, 4), last int"
    )
    program = QUOTES.partition("CREATE TABLE")[0] + "CREATE VIEW n AS SELECT COUNT(*) AS n FROM quotes"

    def counted(*changed: tuple[Any, ...]) -> str:
        frame = users.createDataFrame(list(changed), kinds)
        view = orderbook.spark.views({"quotes": frame}, program, order="seq", options=PLAIN)["n"]
        with pytest.raises(PySparkException) as caught:
            view.collect()
        return str(caught.value)

    row = (datetime(2026, 1, 5), 1, "A", Decimal(1), 0)
    assert "quotes" in counted((1, "+", *row), (2, "-", datetime(2026, 1, 5), 1, "A", Decimal(2), 0))
    assert "quotes" in counted((1, "+", *row), (2, "+", *row))
    assert "op 'x' of a row; give + or -" in counted((1, "x", *row))
    assert "in the row of order 7, 0" in counted((7, "+", datetime(2026, 1, 5), None, "A", Decimal(1), 0))


def test_orders_and_fills_are_those_of_one_process(
    users: SparkSession, records: Path, job: Job, tmp_path: Path
) -> None:
    seen = tmp_path / "seen.sql"
    seen.write_text(SEEN)
    options = {**PLAIN, "views.paths": [str(seen)]}
    made = orderbook.spark.strategies(str(records), Follower, options=options, partitions=2, session=users)
    assert rows(made["orders"]) == rows(micros(job.order_changes()))
    assert rows(made["fills"]) == rows(micros(job.fills()))
    assert made["fills"].count() > 0


@pytest.mark.parametrize(("given", "said"), [
    ({"quotes": {}}, "a dict is no DataFrame of Spark"),
    ({"quote": None}, "the views declare no stream 'quote'; did you mean 'quotes'?"),
    ({"quotes": None, "sectors": None}, "stream quotes: the DataFrame has no column 'at'"),
    ({"quotes": None}, "views read sectors: give a DataFrame for each, by name"),
])  # fmt: skip
def test_what_cannot_be_is_refused_before_anything_runs(
    users: SparkSession, given: dict[str, Any], said: str
) -> None:
    frame = users.createDataFrame([], "ts bigint, id bigint, symbol string, price double, last int")
    source = {name: frame if one is None else one for name, one in given.items()}
    with pytest.raises(UserError, match=said.replace("?", r"\?")):
        orderbook.spark.views(source, QUOTES, options=PLAIN)


def test_types_orders_and_clocks_are_checked(users: SparkSession) -> None:
    kinds = "at timestamp, id string, symbol string, price double, last int"
    program = QUOTES.partition("CREATE TABLE")[0]
    frame = users.createDataFrame([], kinds)
    view = "CREATE VIEW n AS SELECT COUNT(*) AS n FROM quotes"
    with pytest.raises(UserError, match="which column says the order of its rows"):
        orderbook.spark.views({"quotes": frame}, program + view)
    wrong = frame.withColumn("price", sql.expr("array(price)"))
    with pytest.raises(
        UserError, match=r"column price is array<double>, and price is declared DECIMAL\(12, 4\)"
    ):
        orderbook.spark.views({"quotes": wrong}, program + view, order="at")
    timed = "CREATE VIEW n AS SELECT COUNT(*) AS n FROM quotes WHERE at > NOW() - INTERVAL '1 minute'"
    with pytest.raises(UserError, match="views need a clock"):
        orderbook.spark.views({"quotes": frame}, program + timed, order="at")
    stream = users.readStream.format("rate").load()
    with pytest.raises(UserError, match="quotes: a stream; views are made of DataFrames that end"):
        orderbook.spark.views({"quotes": stream}, program + view)
    keyless = "CREATE STREAM s (at TIMESTAMP NOT NULL, last BIGINT);"
    lagged = "CREATE VIEW n AS SELECT last - LAG(last) OVER (ORDER BY at) AS d FROM s"
    with pytest.raises(UserError, match=r"stream s: views tell its rows apart.*declare a PRIMARY KEY"):
        orderbook.spark.views({"s": frame}, keyless + lagged, order="at")
    with pytest.raises(UserError, match="what are the rows of the DataFrame"):
        orderbook.spark.views(frame, "depth")
    with pytest.raises(UserError, match="has no column for price"):
        orderbook.spark.views(orderbook.spark.Market(frame.drop("price"), "trades", {"time": "at"}), "depth")


REAL = {
    "lobster": "lobster/AAPL_2012-06-21_first999_message_10.csv.zst",
    "binance": "hftbacktest/spot_btcusdt_20240808.gz",
    "dbn": "dbn/test_data.mbp-1.v3.dbn.zst",
}
SIZES = """
CREATE VIEW sizes AS SELECT symbol, SUM(volume) AS volume, COUNT(*) AS n, MAX(price) AS best
FROM asks GROUP BY symbol
"""


@pytest.mark.sampled(3)
@pytest.mark.parametrize("kind", REAL)
def test_recorded_markets_are_equal_by_every_way(
    users: SparkSession, shared_data: Path, tmp_path: Path, kind: str
) -> None:
    source = f"{kind}:{shared_data / REAL[kind]}"
    settings = job_settings(tmp_path / "job", 1, sql=SIZES, views=("sizes",), backend="numba")
    wanted = run(settings, [source])[0]
    assert wanted.history("sizes").height > 0
    orderbook.spark.register(users)
    events = users.read.format("orderbook.events").load(source)
    incomplete: dict[str, Any] = {"history": True, "partitions": 2, "allow_incomplete": True}
    by_paths = orderbook.spark.views(source, SIZES, session=users, **incomplete)["sizes"]
    by_frame = orderbook.spark.views(events, SIZES, **incomplete)["sizes"]
    reader = users.read.format("orderbook").option("sql", SIZES).option("history", "true")
    by_source = reader.option("allow_incomplete", "true").load(source)
    for frame in (by_paths, by_frame, by_source):
        assert rows(frame) == rows(wanted.history("sizes"))


def test_the_notebook_of_the_documents_runs(
    spark: SparkSession, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MPLBACKEND", "Agg")
    cells = json.loads((project / "docs" / "spark.ipynb").read_text("utf-8"))["cells"]
    names: dict[str, Any] = {}
    for cell in cells:
        if cell["cell_type"] == "code":
            exec("".join(cell["source"]), names)
    assert names["daily"].count() == 3 * 365
    first = names["daily"].where("symbol = 'AAA'").orderBy("day").first()
    hours = (
        names["trades"]
        .where("symbol = 'AAA' AND sequence < 24")
        .agg(sql.max("price"), sql.sum("size"))
        .first()
    )
    assert (first.high, first.volume) == tuple(hours)
    assert len(names["above"].lines) == len(names["below"].lines) == 3
    names["daily"].unpersist()


@pytest.mark.sampled(4)
def test_workers_are_of_the_python_that_the_program_is_of(records: Path, job: Job, tmp_path: Path) -> None:
    """Where `python3` on the path is another, and PYSPARK_PYTHON is not set."""
    for name, when, then in (
        ("python3", '[ "$1" = -m ] && exit 3', f'exec {sys.executable} "$@"'),
        ("other", "", "echo 3.9"),
    ):
        program = tmp_path / name
        program.write_text(f"#!/bin/sh\n{when}\n{then}\n")
        program.chmod(0o755)
    other = str(tmp_path / "other")
    environment = os.environ | {"PATH": os.pathsep.join([str(tmp_path), os.environ["PATH"]])}
    environment.pop("PYSPARK_PYTHON", None)
    arguments = [sys.executable, str(SUPPORT / "spark_python.py"), str(records), str(tmp_path), other]
    done = subprocess.run(arguments, capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout.splitlines()[-1])
    wanted = json.loads(json.dumps(sorted(job.view("depth").rows()), default=str))
    assert said["views"] == said["source"] == said["job"] == wanted != []
    assert said["fills"] == len(job.fills()) > 0 and said["changes"] == len(job.history("depth"))
    # What else runs in the session has the Python that it had.
    assert said["python"] == "python3"
    assert said["refused"] == (
        f"Spark's workers run {other}, Python 3.9, and this is {sys.version_info.major}."
        f"{sys.version_info.minor}; start with PYSPARK_PYTHON={sys.executable}, or without that variable"
    )


@pytest.mark.exhaustive
def test_a_session_of_spark_connect(records: Path, job: Job, tmp_path: Path) -> None:
    pytest.importorskip("grpc", reason="no client of Spark Connect")
    arguments = [sys.executable, str(SUPPORT / "spark_connect.py"), str(records), str(tmp_path)]
    done = subprocess.run(arguments, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout.splitlines()[-1])
    history = job.history("everything").select("stamp", "sequence", "volume", "orders")
    for name, wanted in (("depth", job.view("depth")), ("history", history)):
        assert said[name] == json.loads(json.dumps(sorted(wanted.rows()), default=str)), name
    assert not said["changed"]
