"""Ad-hoc SQL of clients: what it may take, who waits for whom, and that the run outlives all of it."""

import asyncio
import os
import signal
import time
from collections.abc import Callable
from typing import Any

import pytest
from monitor_support import Client, Running, client, flow, running, valid_books
from samples import PATIENCE

from orderbook.configuration.configuration import load_configuration
from orderbook.configuration.options import QueryOptions
from orderbook.core.errors import ConfigurationError, DataError
from orderbook.core.processors import memory_of
from orderbook.monitor.query_pool import MOST_OF_A_CLIENT, FairQueue, QueryPool

# Ends by no limit but that of time.
MANY = "range(1000000)"
ENDLESS = f"SELECT COUNT(*) FROM {MANY} a, {MANY} b, {MANY} c WHERE a.range < b.range + c.range"
OF_VIEW = f"{ENDLESS} AND a.range > (SELECT MAX(orders) FROM depth)"
SHORT = "SELECT symbol, orders FROM depth ORDER BY symbol"
HUNGRY = [
    "SELECT * FROM range(1000000000)",
    "SELECT repeat('x', 1000000000)",
    "SELECT string_agg(repeat('x', 1000), '') FROM range(10000000)",
    "SELECT list(range) FROM range(1000000000)",
    "SELECT range(1000000000)",
    "SELECT * FROM range(100000) a, range(100000) b ORDER BY random()",
    "SELECT * FROM bids a, bids b, bids c, bids d, bids e",
    "SELECT repeat('x', 100000) FROM range(1000)",
    "SELECT lpad('', 2000000000, 'x'), list_sort(list_transform(range(100000000), lambda x: -x))[1]",
    "SELECT array_agg(a.range * b.range) OVER (PARTITION BY a.range % 2) FROM range(9000) a, range(9000) b",
    "SELECT " + "(" * 5_000 + "1" + ")" * 5_000,
    "SELECT " + "-" * 3_000 + "1",
    "SELECT " + " + ".join(["1"] * 8_000),
    "SELECT * FROM bids WHERE id IN (" + ", ".join(map(str, range(4_000))) + ")",
    "SELECT * FROM " + ", ".join(f"bids b{i}" for i in range(500)),
]


def pool(run: Running) -> QueryPool:
    return run.monitor._operations._queries


async def until(holds: Callable[[], object]) -> None:
    async with asyncio.timeout(PATIENCE):
        while not holds():
            await asyncio.sleep(0.01)


async def under_way(run: Running) -> None:
    """A query is in a process."""
    await until(lambda: any(process.asked for process in pool(run)._all))


async def asked(one: Client, sql: str) -> dict[str, Any]:
    """The answer to SQL, for which the loaded machine of a test has time."""
    await one.send(id=7, op="sql", sql=sql)
    async with asyncio.timeout(PATIENCE):
        while True:
            message: dict[str, Any] = await one.take()
            if message.get("id") == 7:
                return message


def _within_limits(queries: list[str]) -> None:
    most = 0

    async def watch(run: Running) -> None:
        nonlocal most
        while True:
            most = max([most, *map(memory_of, pool(run).pids)])
            await asyncio.sleep(0.005)

    async def go() -> None:
        options = QueryOptions(time_limit="5s", memory="400 MB", rows=100_000, answer="500 KB")
        async with running(queries=options) as run, client(run) as one:
            await run.put(valid_books(), flow(3000))
            watching = asyncio.create_task(watch(run))
            for sql in queries:
                answer = await asked(one, sql)
                assert answer["type"] in ("error", "table"), answer
                assert len(str(answer)) < 1_000_000
                if answer["type"] == "error":
                    assert "\n" not in answer["error"]
                    assert len(answer["error"]) < 300
                assert (await asked(one, SHORT))["count"] == 2
            watching.cancel()

    asyncio.run(go())
    assert 50 << 20 < most < 400 * 10**6


def test_no_query_takes_more_than_its_limits() -> None:
    _within_limits([HUNGRY[0], HUNGRY[2], HUNGRY[5], HUNGRY[10]])


@pytest.mark.exhaustive
def test_no_hostile_query_takes_more_than_its_limits() -> None:
    _within_limits(HUNGRY)


def test_each_limit_is_named() -> None:
    async def go() -> None:
        async with running(queries=QueryOptions(time_limit="300ms")) as run, client(run) as one:
            assert "longer than 300ms" in (await asked(one, ENDLESS))["error"]
        options = QueryOptions(time_limit="600s", rows=5_000, answer="20 KB")
        async with running(queries=options) as run, client(run) as one:
            assert "add a LIMIT" in (await asked(one, "SELECT * FROM range(5001)"))["error"]
            whole = await asked(one, "SELECT range % 2 FROM range(5000)")
            assert (whole["count"], len(whole["rows"]), whole["truncated"]) == (5_000, 1_000, True)
            assert "more than 20 KB" in (await asked(one, "SELECT repeat('x', 100) FROM range(300)"))["error"]
            assert "memory" in (await asked(one, "SELECT repeat('x', 2000000000)"))["error"]
            assert "not let through" in (await asked(one, "FROM duckdb_settings()"))["error"]

    asyncio.run(go())


@pytest.mark.sampled(2)
def test_a_short_query_of_another_client_waits_for_no_long_one() -> None:
    async def go() -> None:
        options = QueryOptions(time_limit="600s")
        async with (
            running(queries=options) as run,
            client(run) as one,
            client(run) as two,
            client(run) as three,
        ):
            await run.put(valid_books(), flow(300))
            for long in (one, two):
                for number in range(3):
                    await long.send(id=number, op="sql", sql=ENDLESS)
            await under_way(run)
            for _ in range(3):
                assert (await asked(three, SHORT))["count"] == 2
            assert not one.taken and not two.taken

    asyncio.run(go())


@pytest.mark.parametrize("how", ["cancel", "cancel twice", "leave", "end"])
def test_a_query_ends_with_who_asks_it(how: str) -> None:
    async def go() -> None:
        async with running(queries=QueryOptions(time_limit="600s")) as run, client(run) as two:
            async with client(run) as one:
                await one.send(id=1, op="sql", sql=ENDLESS)
                await under_way(run)
                if how == "cancel":
                    assert "no request 5" in (await one.ask(id=3, op="cancel", request=5))["error"]
                    assert (await one.ask(id=2, op="cancel", request=1))["type"] == "done"
                    assert "cancelled" in (await one.take(id=1))["error"]
                if how == "cancel twice":
                    task = next(iter(run.monitor._operations._cancellable.values()))
                    task.cancel()
                    await asyncio.sleep(0)
                    await asyncio.sleep(0)
                    task.cancel()
                if how == "end":
                    pids, start = pool(run).pids, time.monotonic()
            if how != "end":
                await until(lambda: not any(process.asked for process in pool(run)._all))
                assert (await asked(two, SHORT))["type"] == "table"
        if how == "end":
            assert pids
            for pid in pids:
                with pytest.raises(ProcessLookupError):
                    os.kill(pid, 0)
            assert time.monotonic() - start < PATIENCE

    asyncio.run(go())


@pytest.mark.sampled(2)
def test_a_process_that_is_killed_takes_only_its_query_with_it() -> None:
    async def go() -> None:
        options = QueryOptions(time_limit="600s")
        async with running(queries=options) as run, client(run) as one, client(run) as two:
            await run.put(valid_books(), flow(300))
            await one.send(id=1, op="sql", sql=ENDLESS)
            await under_way(run)
            (pid,) = pool(run).pids
            assert (await asked(two, SHORT))["type"] == "table"
            os.kill(pid, signal.SIGKILL)
            assert "killed by signal 9" in (await one.take(id=1))["error"]
            assert (await asked(one, SHORT))["type"] == "table"
            # What it reads is known: whether it ended the process is seen when it is asked once more.
            await one.send(id=2, op="sql", sql=OF_VIEW)
            await under_way(run)
            await one.send(id=3, op="cancel", request=2)
            await until(lambda: not any(process.asked for process in pool(run)._all))
            await one.send(id=4, op="sql", sql=OF_VIEW)
            told = asyncio.create_task(one.take(id=4))
            killed = set[int]()
            while not told.done():
                for process in pool(run)._all:
                    if process.asked and process.pid not in killed:
                        killed.add(process.pid)
                        os.kill(process.pid, signal.SIGKILL)
                await asyncio.sleep(0.05)
            assert "killed by signal 9" in told.result()["error"]
            assert 1 <= len(killed) <= 2
            # One that is killed between two queries is nobody's error.
            for pid in pool(run).pids:
                os.kill(pid, signal.SIGKILL)
            assert (await asked(one, SHORT))["count"] == 2

    asyncio.run(go())


def test_queries_that_wait_are_bounded() -> None:
    async def go() -> None:
        async with running(queries=QueryOptions(time_limit="600s")) as run, client(run) as one:
            for number in range(MOST_OF_A_CLIENT + 3):
                await one.send(id=number, op="sql", sql=ENDLESS)
            refused = await one.take(type="error")
            assert "wait already" in refused["error"]

    asyncio.run(go())


def test_strings_and_programs_reach_processes_as_they_change() -> None:
    async def go() -> None:
        async with running() as run, client(run) as one:
            for number, symbol in enumerate(["é", "A\nB", "C" * 500, "é"]):
                run.engine.insert("quotes", {"symbol": symbol, "volume": number})
                answer = await asked(one, "SELECT symbol, n FROM totals ORDER BY volume DESC LIMIT 1")
                assert answer["rows"] == [[symbol, 2 if number == 3 else 1]]
                assert answer["version"] == [str(run.engine.version[0]), *run.engine.version[1:]]
            run.engine.add_view("CREATE VIEW best AS SELECT MAX(volume) AS v FROM kept")
            assert (await asked(one, "SELECT * FROM best"))["rows"] == [["3.00"]]
            assert (await asked(one, "SELECT * FROM best"))["rows"] == [["3.00"]]
            run.engine.drop_view("best")
            assert "best" in (await asked(one, "SELECT * FROM best"))["error"]
            run.engine.add_view(
                "CREATE VIEW best AS SELECT symbol, MIN(volume) AS v FROM kept GROUP BY symbol"
            )
            found = await asked(one, "SELECT * FROM best")
            assert [name for name, _ in found["columns"]] == ["symbol", "v"]
            assert sorted(found["rows"]) == [["A\nB", "1.00"], ["C" * 500, "2.00"], ["é", "0.00"]]

    asyncio.run(go())


def test_turns_go_to_whom_has_had_least_and_one_place_to_what_takes_long() -> None:
    async def go() -> None:
        fair, order = FairQueue(2), []
        ends: dict[str, asyncio.Event] = {}

        async def query(client: int, name: str, long: bool = False) -> None:
            async with fair.turn(client, long) as turn:
                order.append(name)
                ends[name] = asyncio.Event()
                if name.startswith("slow"):
                    assert fair.stays(turn)
                await ends[name].wait()

        async def begin(*queries: tuple[int, str]) -> list[asyncio.Task[None]]:
            tasks = [asyncio.create_task(query(*one)) for one in queries]
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            return tasks

        tasks = await begin((1, "slow 1"), (2, "a 2"), (1, "b 1"), (3, "c 3"), (2, "d 2"))
        assert order == ["slow 1", "a 2"]
        fair.charge(2, 10.0)
        tasks += await begin((4, "e 4"))
        for end, then in (("a 2", "c 3"), ("c 3", "e 4"), ("e 4", "d 2"), ("slow 1", "b 1")):
            ends[end].set()
            for _ in range(5):
                await asyncio.sleep(0)
            assert order[-1] == then
        # A second long one has to wait.
        async with asyncio.timeout(PATIENCE):
            for name in ("d 2", "b 1"):
                ends[name].set()
            await asyncio.gather(*tasks)
        async with fair.turn(5) as first:
            assert fair.stays(first)
            async with fair.turn(6) as second:
                waiting = await begin((7, "f 7"))
                assert not fair.stays(second)
                for task in waiting:
                    task.cancel()
                await asyncio.gather(*waiting, return_exceptions=True)
                assert fair.stays(second)

    asyncio.run(go())


def test_a_queue_is_bounded() -> None:
    async def go() -> None:
        fair = FairQueue(1)

        async def query(client: int) -> None:
            async with fair.turn(client):
                await asyncio.sleep(60)

        waiting = [asyncio.create_task(query(number // 2)) for number in range(70)]
        await asyncio.sleep(0)
        with pytest.raises(DataError, match="all clients"):
            await query(99)
        for task in waiting:
            task.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)
        assert not fair._turns

    asyncio.run(go())


@pytest.mark.parametrize(
    ("key", "value", "said"),
    [
        ("time_limit", "10", "a time"),
        ("memory", "1 MB", "at least"),
        ("rows", 0, "rows"),
        ("anwser", "1 MB", "answer"),
    ],
)
def test_limits_are_checked(key: str, value: object, said: str) -> None:
    with pytest.raises(ConfigurationError, match=said):
        load_configuration(None, {f"queries.{key}": value})
