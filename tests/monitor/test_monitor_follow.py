"""Continuous queries: snapshot and changes give the view at every version told, also after a reconnect."""

import asyncio
import json
import threading
from collections import Counter
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from monitor_support import Client, Running, client, running
from samples import PATIENCE, examples

from orderbook.engine.runtime.compile_process import compiled_elsewhere
from orderbook.monitor import hub, publisher
from orderbook.monitor.hub import _Ring
from orderbook.monitor.messages import Changes
from orderbook.monitor.view_topic import differences

Rows = Counter[tuple[Any, ...]]
STEP = st.one_of(
    st.tuples(st.sampled_from("ABC"), st.sampled_from(["1", "2.5", "-1"])),
    st.sampled_from(["leave", "look"]),
)


def rows_of(run: Running, view: str) -> Rows:
    found: Rows = Counter()
    for row in run.engine[view].values():
        values = [str(v) if not isinstance(v, int | str) else v for v in row.values()]
        found[tuple(values)] += row.multiplicity
    return found


def version_of(follower: "Follower") -> tuple[int, int, int]:
    stamp, switch, sequence = map(int, follower.version)
    return stamp, switch, sequence


class Follower:
    """What a client knows of a followed view."""

    def __init__(self, view: str) -> None:
        self.view = view
        self.version: Any = None
        self.rows: Rows = Counter()
        self.kinds: Counter[str] = Counter()

    async def begin(self, one: Client) -> None:
        await one.send(id=1, op="follow", view=self.view, after=self.version)

    def take(self, message: dict[str, Any]) -> None:
        self.kinds[message["type"]] += 1
        if message["type"] == "snapshot":
            assert message.get("reset", False) == (self.version is not None)
            counts = message.get("counts", [1] * len(message["rows"]))
            rows = zip(map(tuple, message["rows"]), counts, strict=True)
            self.rows = Counter(dict(rows))
        for count, *row in message.get("changes", ()):
            self.rows[tuple(row)] += count
            assert self.rows[tuple(row)] >= 0
        self.rows = +self.rows
        assert self.version is None or tuple(map(int, message["version"])) >= tuple(map(int, self.version))
        self.version = message["version"]


async def follow_steps(view: str, steps: list[Any]) -> Follower:
    """Do the steps, and check what a follower has at every version it is told."""
    async with running() as run:
        history = {run.engine.version: rows_of(run, view)}
        follower = Follower(view)
        quotes: Counter[tuple[str, str]] = Counter()
        socket = client(run)
        one = await socket.__aenter__()
        await follower.begin(one)

        async def look() -> None:
            while follower.version is None or tuple(map(int, follower.version)) < run.engine.version:
                follower.take(json.loads(await asyncio.wait_for(one.socket.recv(), PATIENCE)))
                assert follower.rows == history[version_of(follower)]

        for step in steps:
            if step == "look":
                await look()
            elif step == "leave":
                await socket.__aexit__(None, None, None)
                socket = client(run)
                one = await socket.__aenter__()
                await follower.begin(one)
            else:
                symbol, volume = step
                # A negative volume takes one away again.
                if volume == "-1":
                    present = [v for (s, v), n in quotes.items() if s == symbol and n]
                    if present:
                        run.engine.delete("quotes", {"symbol": symbol, "volume": present[0]})
                        quotes[symbol, present[0]] -= 1
                else:
                    run.engine.insert("quotes", {"symbol": symbol, "volume": volume})
                    quotes[symbol, volume] += 1
                history[run.engine.version] = rows_of(run, view)
        await look()
        await socket.__aexit__(None, None, None)
        return follower


@pytest.fixture(autouse=True)
def _fast(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(publisher, "FRAME_SECONDS", 0.002)


@examples(12)
@given(st.sampled_from(["totals", "kept"]), st.lists(STEP, max_size=25))
def test_a_follower_has_the_view_at_every_version(view: str, steps: list[Any]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(publisher, "FRAME_SECONDS", 0.002)
        asyncio.run(follow_steps(view, steps))


def test_a_reconnect_resumes_and_a_forgotten_version_is_reset(monkeypatch: pytest.MonkeyPatch) -> None:
    change = ("A", "1")
    follower = asyncio.run(follow_steps("totals", ["look", change, "look", "leave", change, "look"]))
    assert follower.kinds["resumed"] == 1
    assert follower.kinds["snapshot"] == 1
    monkeypatch.setattr(hub, "RING_MESSAGES", 0)
    follower = asyncio.run(follow_steps("totals", ["look", change, "look", "leave", change, "look"]))
    # The ring knows nothing before its last change.
    assert follower.kinds["snapshot"] + follower.kinds["resumed"] == 2


@given(st.lists(st.tuples(st.integers(1, 5), st.integers(0, 30)), max_size=30), st.integers(0, 80))
def test_a_ring_has_every_change_after_what_it_reaches(steps: list[tuple[int, int]], at: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(hub, "RING_BYTES", 100)
        patch.setattr(hub, "RING_MESSAGES", 6)
        ring, now, told = _Ring(since=(0, 0, 0), last=(0, 0, 0)), 0, []
        for ahead, size in steps:
            now += ahead
            changes = Changes("f", (0, 0, now), bytes(size))
            told += [changes] if size else []
            ring.add(changes)
        version = (0, 0, at)
        kept = [c for c in ring.changes if c.version > version]
        if ring.reaches(version):
            assert kept == [c for c in told if c.version > version]
        assert sum(len(c.body) for c in ring.changes) <= 100
        assert len(ring.changes) <= 6


@pytest.mark.sampled(2)
def test_sql_is_shared_and_goes_with_its_last_follower(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hub, "GRACE_SECONDS", 0.0)
    from orderbook.monitor import server

    monkeypatch.setattr(server, "_EXPIRE_SECONDS", 0.05)

    async def go() -> None:
        sql = "SELECT COUNT(*) AS n FROM quotes"
        async with running() as run, client(run) as one, client(run) as two:
            run.engine.insert("quotes", {"symbol": "A", "volume": "1"})
            for each in (one, two):
                await each.send(id=1, op="follow", sql=sql, progress=False)
                assert (await each.take(id=1))["rows"] == [[1]]
            assert len([v for v in run.engine.views if v.startswith("followed_")]) == 1
            run.engine.insert("quotes", {"symbol": "A", "volume": "1"})
            for each in (one, two):
                assert (await each.take(id=1))["changes"] == [[-1, 1], [1, 2]]
                await each.ask(id=2, op="unsubscribe", subscription=1)
            while any(v.startswith("followed_") for v in run.engine.views):
                await asyncio.sleep(0.01)
            wrong = await one.ask(id=3, op="follow", sql="SELECT nothing FROM quotes")
            assert "nothing" in wrong["error"]
            unknown = await one.ask(id=4, op="follow", sql="SELECT SUM(volume) AS v FROM trades")
            assert "kept" in unknown["error"]
            again = await one.ask(id=3, op="follow", view="totals")
            assert again["type"] == "snapshot"

    asyncio.run(go())


@pytest.mark.sampled(2)
def test_a_follower_that_leaves_before_its_view_is_there_leaves_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from orderbook.engine.runtime import program_replacement as replacement
    from orderbook.monitor import server

    monkeypatch.setattr(hub, "GRACE_SECONDS", 0.0)
    monkeypatch.setattr(server, "_EXPIRE_SECONDS", 0.05)
    compiling, go = threading.Event(), threading.Event()

    def slow(*arguments: Any) -> Any:
        compiling.set()
        assert go.wait(PATIENCE)
        return compiled_elsewhere(*arguments)

    monkeypatch.setattr(replacement, "compiled_elsewhere", slow)

    async def leave() -> None:
        sql, dropped = "SELECT MAX(volume) AS most FROM quotes", []
        async with running() as run, client(run) as one:
            drop = run.engine.drop_view

            def noted(view: str, **options: Any) -> Any:
                dropped.append(drop(view, **options))
                return dropped[-1]

            monkeypatch.setattr(run.engine, "drop_view", noted)
            await one.send(id=1, op="follow", sql=sql)
            await asyncio.to_thread(compiling.wait, PATIENCE)
            await one.ask(id=2, op="unsubscribe", subscription=1)
            while not dropped:
                await asyncio.sleep(0.01)
            # Whoever comes now has a view of his own, after that one has gone.
            await one.send(id=3, op="follow", sql=sql)
            await asyncio.sleep(0.05)
            go.set()
            assert (await one.take(id=3))["rows"] == [[None]]
            run.engine.insert("quotes", {"symbol": "A", "volume": "1"})
            assert (await one.take(id=3, type="changes"))["changes"] == [[-1, None], [1, "1.00"]]
            await one.ask(id=4, op="unsubscribe", subscription=3)
            while any(v.startswith("followed_") for v in run.engine.views):
                await asyncio.sleep(0.01)
        assert [one.error for one in dropped] == [None, None]

    asyncio.run(asyncio.wait_for(leave(), 2 * PATIENCE))


ROWS = st.lists(st.tuples(st.integers(0, 8), st.integers(0, 2)), unique_by=lambda row: row[0], max_size=9)


@given(ROWS, ROWS)
def test_differences_are_the_rows_that_the_other_has_not(before: list[Any], now: list[Any]) -> None:
    old, new = (np.array(rows, np.int64).reshape(-1, 2) for rows in (before, now))
    gone, come = differences(old, new)
    assert sorted(map(tuple, gone.tolist())) == sorted(set(before) - set(now))
    assert sorted(map(tuple, come.tolist())) == sorted(set(now) - set(before))
