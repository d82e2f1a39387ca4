"""Clients that stall, lie or flood, and what the run has to do with that: nothing."""

import asyncio
import json
import logging
import os
import signal
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from monitor_support import SYMBOL, VENUE, Running, client, flow, running, trade, valid_books
from samples import PATIENCE
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidStatus

from orderbook.monitor import client as client_module
from orderbook.monitor import hub, publisher, server
from orderbook.monitor import server as connections
from orderbook.monitor.messages import (
    LENGTH,
    Alive,
    Changes,
    Close,
    Open,
    Topic,
    TopicFrame,
    read_run_message,
)
from orderbook.monitor.publisher import BUSY_SHARE, Mailbox, Share
from orderbook.monitor.run_monitor import ServerProcess
from orderbook.operations.access import Access
from orderbook.run.event_queue import EventQueue, HybridClock

TOKEN = "a-token-of-sixteen"


async def closed(socket: ClientConnection) -> tuple[int, str]:
    """The code and reason that a connection is closed with; messages before are read and forgotten."""
    async with asyncio.timeout(PATIENCE):
        try:
            while True:
                await socket.recv()
        except ConnectionClosed as error:
            told = error.rcvd
    assert told is not None, "closed without a reason"
    return told.code, told.reason


async def goes_on(run: Running) -> None:
    """The run applies events, and another client is served."""
    await run.put(flow(300))
    async with client(run) as other:
        assert (await other.ask(id=1, op="subscribe", topic="status"))["engine"]["events"]


def hostile(attack: Callable[[Running, ClientConnection], object]) -> None:
    async def go() -> None:
        async with running() as run, connect(run.url, compression=None, close_timeout=0.1) as one:
            await run.put(valid_books())
            await attack(run, one)  # type: ignore[misc]
            await goes_on(run)

    asyncio.run(go())


def test_garbage_is_answered_and_then_ends_the_connection() -> None:
    async def attack(run: Running, one: ClientConnection) -> None:
        await one.send("{")
        assert "not a request" in json.loads(await one.recv())["error"]
        await one.send('{"id": 7, "op": "subscribe", "topic": "weather"}')
        assert json.loads(await one.recv())["id"] == 7
        for garbage in (b"\xff\xfe", "[" * 5000, "null", '{"id":-1,"op":"rules"}', "x", "") * 10:
            await one.send(garbage)
        assert await closed(one) == (1008, "more than 50 messages that were refused")

    hostile(attack)


def test_text_that_is_none_ends_the_connection_and_is_not_logged() -> None:
    async def attack(run: Running, one: ClientConnection) -> None:
        told: list[logging.LogRecord] = []
        handler = logging.Handler()
        handler.emit = told.append  # type: ignore[method-assign, assignment]
        logging.getLogger("uvicorn").addHandler(handler)
        await one.send(b'{"id": 1, \xff', text=True)
        assert await closed(one) == (1007, "text that is not UTF-8")
        logging.getLogger("uvicorn").removeHandler(handler)
        assert told == []

    hostile(attack)


def test_an_oversized_message_ends_the_connection() -> None:
    async def attack(run: Running, one: ClientConnection) -> None:
        await one.send(json.dumps({"id": 1, "op": "sql", "sql": "x" * (server.LARGEST_MESSAGE + 1)}))
        assert (await closed(one))[0] == 1009

    hostile(attack)


def test_a_message_of_endless_empty_parts_ends_the_connection() -> None:
    async def attack(run: Running, one: ClientConnection) -> None:
        async def parts() -> AsyncIterator[str]:
            for _ in range(connections._MOST_PARTS + 2):
                yield ""
            await asyncio.sleep(PATIENCE)

        sending = asyncio.create_task(one.send(parts()))
        assert (await closed(one))[0] == 1009
        sending.cancel()
        await asyncio.gather(sending, return_exceptions=True)

    hostile(attack)


def test_ten_thousand_subscriptions_are_refused() -> None:
    async def attack(run: Running, one: ClientConnection) -> None:
        async def flood() -> None:
            for number in range(10_000):
                await one.send(
                    json.dumps(
                        {
                            "id": number,
                            "op": "subscribe",
                            "topic": "view",
                            "view": "totals",
                            "limit": 1 + number % 900,
                        }
                    )
                )

        flooding = asyncio.create_task(flood())
        assert await closed(one) == (1008, "more than 50 messages that were refused")
        await asyncio.gather(flooding, return_exceptions=True)

    hostile(attack)


def test_topics_of_all_clients_together_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hub, "MOST_TOPICS", 2)

    async def go() -> None:
        async with running() as run, client(run) as one, client(run) as two:
            for number in (1, 2):
                await one.ask(id=number, op="subscribe", topic="view", view="totals", limit=number)
            assert "different topics" in (await two.ask(id=1, op="subscribe", topic="status"))["error"]
            shared = await two.ask(id=2, op="subscribe", topic="view", view="totals", limit=1)
            assert shared["type"] == "view"
            await one.ask(id=3, op="unsubscribe", subscription=2)
            assert (await two.ask(id=4, op="subscribe", topic="status"))["type"] == "status"

    asyncio.run(go())


def test_a_client_that_falls_behind_is_let_go(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_module, "BACKLOG_BYTES", 1000)

    async def attack(run: Running, one: ClientConnection) -> None:
        await one.send(json.dumps({"id": 1, "op": "follow", "view": "totals"}))
        await one.recv()
        (member,) = run.server.served.hub.members.values()

        def enqueue() -> None:
            for _ in range(11):
                member.enqueue(bytes(100))

        run.server.loop.call_soon_threadsafe(enqueue)
        assert (await closed(one))[0] == client_module.TOO_SLOW

    hostile(attack)


def test_a_client_that_takes_nothing_is_let_go(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "_CLOSING_SECONDS", 0.1)

    async def attack(run: Running, one: ClientConnection) -> None:
        await one.send(json.dumps({"id": 1, "op": "rules"}))
        await one.recv()
        (member,) = run.server.served.hub.members.values()
        with monkeypatch.context() as patch:
            patch.setattr(client_module, "PATIENCE_SECONDS", 0.1)
            # More than the system's buffers hold; the library's own reading stops after a few messages.
            for _ in range(30):
                run.server.loop.call_soon_threadsafe(member.enqueue, b'"%s"' % (b"x" * 1_000_000))
                await asyncio.sleep(0.01)
            while run.server.served.hub.members or run.server.served._server.server_state.connections:
                await asyncio.sleep(0.01)

    hostile(attack)


def test_clients_and_silent_connections_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "MOST_CLIENTS", 1)
    monkeypatch.setattr(connections, "MOST_CONNECTIONS", 4)

    async def attack(run: Running, one: ClientConnection) -> None:
        await one.send(json.dumps({"id": 1, "op": "rules"}))
        await one.recv()
        async with connect(run.url, compression=None) as two:
            assert (await closed(two))[0] == 1013
        with monkeypatch.context() as patch:
            # Short for these only: on a busy machine, whoever does ask may take that long.
            patch.setattr(connections, "REQUEST_SECONDS", 0.2)
            silent = [socket.create_connection(("127.0.0.1", run.server.port)) for _ in range(6)]
            for connection in silent:
                connection.settimeout(PATIENCE)
                with suppress(ConnectionResetError):
                    assert await asyncio.to_thread(connection.recv, 1) == b""
                connection.close()
        await one.close()
        while run.server.served.hub.members:
            await asyncio.sleep(0.01)

    hostile(attack)


def test_what_is_refused_never_reaches_the_run() -> None:
    async def go() -> None:
        async with running() as run:
            told: list[object] = []
            given = run.server.served.hub
            send = given.send

            def noted(command: object) -> None:
                told.append(command)
                send(command)

            given.send = noted
            large, changing = "x" * (server.LARGEST_MESSAGE + 1), '{"id":1,"op":"drop_view","view":"totals"}'
            for attack in (["x"] * 60, [large], [changing]):
                async with connect(run.url, compression=None, close_timeout=0.1) as one:
                    with suppress(ConnectionClosed):
                        for message in attack:
                            await one.send(message)
                        await one.recv()
            with pytest.raises(InvalidStatus):
                await connect(run.url, additional_headers={"Origin": "https://evil.example"})
            assert told == []
            async with connect(run.url, compression=None, close_timeout=0.1) as one:
                for number in range(client_module.MOST_SUBSCRIPTIONS + 51):
                    asked = {"op": "subscribe", "topic": "view", "view": "totals", "limit": number + 1}
                    await one.send(json.dumps({"id": number, **asked}))
                await closed(one)
            opened = [command.topic for command in told if isinstance(command, Open)]
            assert len(opened) == client_module.MOST_SUBSCRIPTIONS
            assert sorted(opened) == sorted(command.topic for command in told if isinstance(command, Close))
            await goes_on(run)

    asyncio.run(go())


def test_pages_of_other_origins_and_names_are_refused() -> None:
    async def go() -> None:
        async with running() as run:
            here = f"127.0.0.1:{run.server.port}"
            for headers in ({"Origin": "https://evil.example"}, {"Origin": "http://127.0.0.1:1"}):
                with pytest.raises(InvalidStatus) as refused:
                    await connect(run.url, additional_headers=headers)
                assert refused.value.response.status_code == 403
            async with connect(run.url, additional_headers={"Origin": f"http://{here}"}) as one:
                await one.send('{"id":1,"op":"rules"}')
                assert json.loads(await one.recv())["rules"] == []

    asyncio.run(go())


@pytest.mark.parametrize(
    ("host", "origin", "refused"),
    [
        ("127.0.0.1:8799", None, False),
        ("localhost:8799", "http://localhost:8799", False),
        ("[::1]:8799", "http://[::1]:8799", False),
        ("monitor.lan", "http://monitor.lan", False),
        ("monitor.lan:80", "http://monitor.lan", False),
        ("localhost:8799", "http://127.0.0.1:8799", True),
        ("localhost:8799", "http://localhost:8798", True),
        ("localhost:8799", "null", True),
        ("localhost:8799", "http://localhost:8799/x", True),
        ("localhost:8799", "file://localhost:8799", True),
        ("evil.example:8799", "http://evil.example:8799", True),
        ("localhost.evil.example", None, True),
        ("127.0.0.1@evil.example", None, True),
        ("localhost:port", None, True),
        ("", None, True),
        (None, None, True),
    ],
)
def test_hosts_and_origins(host: str | None, origin: str | None, refused: bool) -> None:
    assert (Access("monitor.lan", "").refusal(host, origin) is not None) == refused


@pytest.mark.parametrize(
    ("host", "origin", "refused"),
    [
        ("desk.example", "https://desk.example", False),
        ("127.0.0.1:8799", "https://desk.example", False),
        ("127.0.0.1:8799", "http://127.0.0.1:8799", False),
        ("desk.example", None, False),
        ("desk.example", "http://desk.example.evil.example", True),
        ("127.0.0.1:8799", "https://evil.example", True),
        ("evil.example", "https://desk.example", True),
    ],
)
def test_a_proxy_s_origin(host: str, origin: str | None, refused: bool) -> None:
    access = Access("127.0.0.1", TOKEN, "https://desk.example")
    assert (access.refusal(host, origin) is not None) == refused
    # It says nothing of who is behind it.
    assert not access.may_read(None, None)
    assert access.may_read(f"Bearer {TOKEN}", None)


def test_beyond_loopback_reading_needs_the_token() -> None:
    local, far = Access("127.0.0.1", ""), Access("0.0.0.0", TOKEN)
    assert local.may_read(None, None)
    assert not local.token_is("")
    assert not far.may_read(None, None)
    assert not far.may_read(f"Basic {TOKEN}", None)
    assert not far.may_read(None, TOKEN[:-1])
    assert far.may_read(f"Bearer {TOKEN}", None)
    assert far.may_read(None, TOKEN)


def letters_in(data: bytes) -> list[Any]:
    found = []
    while data:
        end = LENGTH + int.from_bytes(data[:LENGTH], "big")
        found.append(read_run_message(data[LENGTH:end]))
        data = data[end:]
    return found


def received(line: socket.socket) -> bytes:
    found = b""
    with suppress(BlockingIOError):
        while data := line.recv(1 << 20):
            found += data
    return found


@given(st.lists(st.tuples(st.integers(0, 4), st.integers(1, 60)), max_size=60))
def test_a_mailbox_is_bounded_and_keeps_what_accumulates(steps: list[tuple[int, int]]) -> None:
    async def go() -> None:
        own, theirs = socket.socketpair()
        theirs.setblocking(False)
        # A line that is soon full.
        own.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
        mailbox, topic = Mailbox(own), Topic("notes")
        put, data = 0, b""
        posted: list[Any] = []
        for kind, size in steps:
            match kind:
                case 0 | 1:
                    items = [b"%d" % (put + i) for i in range(size)]
                    put += size
                    mailbox.put(TopicFrame(topic, b"", {"notes": items}))
                case 2:
                    letter = Changes("f", (0, 0, len(posted)), bytes(200 * size))
                    posted += [letter] if mailbox.post(letter) else []
                case 3:
                    data += received(theirs)
                case _:
                    mailbox.flush()
            assert mailbox._bytes <= publisher.MOST_BYTES
        before = None
        # What the line has no room for goes by itself as soon as it has.
        mailbox.flush()
        while before != data:
            before = data
            # Once around for the loop to see that there is room, once for what it then does.
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            data += received(theirs)
        mailbox.close()
        theirs.close()
        told = letters_in(data)
        assert [one for one in told if isinstance(one, Changes)] == posted
        got = [int(item) for one in told if isinstance(one, TopicFrame) for item in one.items["notes"]]
        # At most the newest KEPT_ITEMS wait, in order.
        assert got == sorted(set(got))
        assert got[-1:] == ([put - 1] if put else [])

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(publisher, "MOST_BYTES", 60_000)
        asyncio.run(go())


def test_frames_of_a_run_that_is_silent_are_told_to_nobody_as_new() -> None:
    class Member:
        number = 1
        told = 0

        def touched(self, topic: Topic) -> None:
            self.told += 1

    one, topic = Member(), Topic("status")
    topics = hub.Hub(lambda _: None, None)  # type: ignore[arg-type]
    topics.open(one, topic)  # type: ignore[arg-type]
    topics.deliver(TopicFrame(topic, b"{"))
    assert one.told == 1
    topics.open(one, topic)  # type: ignore[arg-type]
    assert one.told == 2
    topics._heard -= hub.SILENT_SECONDS
    topics.open(one, topic)  # type: ignore[arg-type]
    assert one.told == 2
    topics.deliver(Alive())
    assert one.told == 3


def test_the_server_is_a_process_whose_end_is_no_concern_of_the_run(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def go() -> None:
        async with running(server_kind=ServerProcess) as run:
            await run.put(valid_books())
            async with client(run) as one:
                asked = {"op": "subscribe", "topic": "book", "venue": VENUE, "symbol": SYMBOL}
                assert (await one.ask(id=1, **asked))["state"] == "valid"
                os.kill(run.server.pid, signal.SIGKILL)
                with pytest.raises(ConnectionClosed):
                    await one.take(id=2)
            while not run.mailbox.lost:
                await asyncio.sleep(0.01)
            await run.put(flow(300))
        async with running(server_kind=ServerProcess) as run:
            line = await connect(run.url, compression=None)
            await line.send('{"id":1,"op":"rules"}')
            await line.recv()
        assert (await closed(line))[0] == 1012

    asyncio.run(go())
    assert "the run goes on without it" in caplog.text


def test_a_busy_run_gives_a_small_share_and_an_idle_one_more() -> None:
    now, own, waited = [0.0], [0.0], [0.0]
    shares = {}
    for busy in (True, False):
        share = Share(lambda: waited[0], clock=lambda: now[0], own=lambda: own[0])
        spent = 0.0
        for tick in range(2000):
            now[0] += 0.05
            own[0] += 0.05 if busy else 0.001
            waited[0] += 0.0 if busy else 0.049
            share.fill()
            while share.left and tick > 1000:
                with share.spending():
                    own[0] += 0.001
                    now[0] += 0.001
                spent += 0.001
        shares[busy] = spent / (999 * 0.05)
    assert shares[True] == pytest.approx(BUSY_SHARE, rel=0.1)
    assert shares[False] > 0.3


def test_a_run_that_always_finds_something_in_its_queue_has_no_time_left() -> None:
    """Also where nothing waits at the moment of a look, since all of it was taken."""

    async def go() -> None:
        queue = EventQueue(100, HybridClock())
        item = trade(1, 1)

        async def feed() -> None:
            while True:
                await queue.put(item.repeat(10), False)
                await asyncio.sleep(0)

        feeding = asyncio.create_task(feed())
        await asyncio.sleep(0)
        before = queue.waited
        for _ in range(50):
            assert await queue.get(256)
            assert not queue.waiting
            await asyncio.sleep(0)
        assert queue.waited == before
        feeding.cancel()
        while queue.waiting:
            await queue.get(256)
        waiting = asyncio.create_task(queue.get())
        await asyncio.sleep(0.001)
        assert queue.waited > before
        waiting.cancel()

    asyncio.run(go())


def test_trades_wait_no_longer_than_a_turn_when_nobody_looks() -> None:
    async def go() -> None:
        async with running() as run:
            await run.put(valid_books(), trade(1, 1))
            async with asyncio.timeout(PATIENCE):
                while run.monitor._tape._noted:
                    await asyncio.sleep(0.01)

    asyncio.run(go())
