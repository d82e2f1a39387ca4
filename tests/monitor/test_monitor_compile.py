"""SQL that clients follow or add: bound and compiled within limits, in processes of their own."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from monitor_support import Client, client, flow, running, valid_books
from paths import SUPPORT
from samples import PATIENCE

from orderbook.configuration.options import MonitorOptions, QueryOptions
from orderbook.core.errors import CompileError, DataError, OrderbookError
from orderbook.engine.plan.describe import Cost
from orderbook.engine.runtime.compile_process import (
    BindRequest,
    CompileRequest,
    Setting,
    WorkLimits,
    bound_elsewhere,
    compiled_elsewhere,
)
from orderbook.monitor import client as client_module
from orderbook.views.compilation import AddViews, compile_views
from orderbook.views.program import CompiledProgram

TOKEN = "a-token-of-sixteen"
LIMITS = WorkLimits(60.0, 1 << 30)
HOSTILE = [
    "SELECT " + "(" * 10_000 + "price" + ")" * 10_000 + " FROM bids",
    "SELECT " + "-" * 1 + " -" * 10_000 + "price FROM bids",
    "SELECT id FROM bids WHERE " + "NOT " * 7_000 + "TRUE",
    "SELECT " + "CASE WHEN " * 2_000 + "TRUE" + " THEN 1 END" * 1_000 + " FROM bids",
    "SELECT COUNT(*) FROM " + ", ".join(f"bids b{i}" for i in range(500)),
    "SELECT id FROM bids WHERE id IN (" + ",".join(map(str, range(6_000))) + ")",
    "SELECT " + " + ".join(["price"] * 3_000) + " FROM bids",
    "SELECT " + ", ".join(f"SUM(price * {i})" for i in range(1_500)) + " FROM bids",
    "SELECT '" + "x" * 30_000 + "' FROM bids",
    "WITH " + ", ".join(f"a{i} AS (SELECT * FROM bids)" for i in range(900)) + " SELECT 1 FROM a1",
    "CREATE VIEW x AS SELECT 1 AS one FROM bids",
    "SELECT id FROM bids; SELECT id FROM asks",
    "views/sobi.sql",
    "/etc/passwd.sql",
    "",
    ";",
]


@pytest.fixture(scope="module")
def program() -> CompiledProgram:
    return compile_views("CREATE VIEW depth AS SELECT symbol, COUNT(*) AS n FROM bids GROUP BY symbol")


def setting(known: frozenset[str] = frozenset({"bids", "asks"})) -> Setting:
    return Setting(None, None, False, known, (), compiles=False)


def made(program: CompiledProgram, sql: str) -> str | None:
    """What keeps SQL from being followed; None where it is."""
    try:
        source = bound_elsewhere(
            BindRequest(program.source, AddViews(((None, sql),), {}, "followed")), LIMITS
        )
        request = CompileRequest(program.source, source, setting(), Cost.SLICE)
        found = compiled_elsewhere(request, program.dictionary, LIMITS).program.results
    except OrderbookError as error:
        return str(error)
    return None if "followed" in {result.name for result in found} else "it is not there"


def _bound_or_refused(program: CompiledProgram, sql: str) -> None:
    refused = made(program, sql)
    assert refused is None or (refused and "\n" not in refused and len(refused) < 500)


def test_a_client_loads_no_module_and_calls_what_is_declared(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    touched = "from pathlib import Path\n\nPath(__file__).with_suffix('.loaded').touch()\n"
    (tmp_path / "sent_module.py").write_text(f"{touched}\n\ndef f(x):\n    return x\n")
    function = "CREATE FUNCTION {} RETURNS DOUBLE LANGUAGE python AS '{}';"
    own = function.format("root(x DOUBLE)", "user_signals:root")
    view = "CREATE VIEW v AS SELECT id, price FROM bids"
    program = compile_views({str(SUPPORT / "v.sql"): own + view})
    sent = function.format("f(x DOUBLE)", "sent_module:f") + "SELECT id, f(price) AS y FROM bids"
    refused = made(program, sent)
    assert refused is not None and "a function in Python is not added to what runs" in refused
    assert not (tmp_path / "sent_module.loaded").exists()
    assert made(program, "SELECT id, root(price) AS y FROM bids") is None


@pytest.mark.sampled(3)
@pytest.mark.parametrize("sql", HOSTILE[:1] + HOSTILE[4:5] + HOSTILE[10:11], ids=lambda sql: sql[:30])
def test_hostile_texts_are_bound_or_refused(program: CompiledProgram, sql: str) -> None:
    _bound_or_refused(program, sql)


@pytest.mark.exhaustive
@pytest.mark.parametrize("sql", HOSTILE, ids=lambda sql: sql[:30])
def test_all_hostile_texts_are_bound_or_refused(program: CompiledProgram, sql: str) -> None:
    _bound_or_refused(program, sql)


class Greedy:
    """Takes what it can; stands for SQL that nobody has thought of."""

    def __init__(self, what: str) -> None:
        self.what = what

    def __call__(self, source: object) -> Any:
        if self.what == "memory":
            return [bytearray(1 << 24) for _ in range(1000)]
        while True:
            sum(range(1000))


@pytest.mark.parametrize(("what", "said"), [("memory", "more memory"), ("time", "longer than 1 s")])
def test_a_process_that_takes_too_much_is_ended(program: CompiledProgram, what: str, said: str) -> None:
    limits = WorkLimits(1.0 if what == "time" else 60.0, 400 << 20)
    with pytest.raises(CompileError, match=said):
        bound_elsewhere(BindRequest(program.source, Greedy(what)), limits)


def test_what_takes_long_for_an_event_is_refused(program: CompiledProgram) -> None:
    sql = "SELECT COUNT(*) AS n FROM bids a, asks b WHERE a.price * b.volume > b.price * a.volume"
    source = AddViews(((None, sql),), {}, "followed")(program.source)
    request = CompileRequest(program.source, source, setting(), Cost.SLICE)
    with pytest.raises(DataError, match="for each event"):
        request.compiled()
    # Not where somebody with the token adds it.
    CompileRequest(program.source, source, setting()).compiled()


@pytest.mark.sampled(2)
def test_clients_are_refused_and_the_run_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_module, "MOST_SQL_FOLLOWS", 1)

    async def followed(one: Client, number: int, sql: str) -> dict[str, Any]:
        await one.send(id=number, op="follow", sql=sql)
        async with asyncio.timeout(PATIENCE):
            while True:
                message = await one.take(id=number)
                if message["type"] in ("snapshot", "error"):
                    return message

    async def go() -> None:
        options = QueryOptions(views=2)
        async with running(queries=options) as run, client(run) as one, client(run) as two:
            await run.put(valid_books(), flow(300))
            assert "nested" in (await followed(one, 1, HOSTILE[0]))["error"]
            assert "one SELECT" in (await followed(one, 2, HOSTILE[11]))["error"]
            sql = "SELECT symbol, n + 1 AS n FROM totals"
            assert (await followed(one, 10, sql))["type"] == "snapshot"
            assert "a client" in (await followed(one, 30, "SELECT n FROM totals"))["error"]
            assert (await followed(two, 31, "SELECT n FROM totals"))["type"] == "snapshot"
            async with client(run) as three:
                assert "the limit" in (await followed(three, 32, "SELECT n + 9 AS n FROM totals"))["error"]
            run.engine.insert("quotes", {"symbol": "A", "volume": 1})
            assert (await two.take(id=31, type="changes"))["changes"] == [[1, 1]]

    asyncio.run(go())


def test_no_file_is_read_for_a_client(tmp_path: Path) -> None:
    """A text that is the name of a file is SQL like any other."""
    secret = tmp_path / "secret.sql"
    secret.write_text("SELECT 'secret' FROM nothing")

    async def go() -> None:
        async with running(MonitorOptions(port=0, token=TOKEN)) as run, client(run) as one:
            for number, path in enumerate([str(secret), f" {secret}"]):
                told = await one.ask(id=2 * number, op="add_view", sql=path, token=TOKEN)
                assert "secret'" not in told["error"]
                assert "nothing" not in told["error"]
                told = await one.ask(id=2 * number + 1, op="follow", sql=path)
                assert "nothing" not in told["error"]

    asyncio.run(go())
