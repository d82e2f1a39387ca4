"""The page of a run that is not there yet: its books, what it refuses, and how the run takes it over."""

import asyncio
import json
import os
import re
import signal
import socket
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from command_line_support import write
from hypothesis import given
from hypothesis import strategies as st
from plain_book import PlainBook
from samples import PATIENCE
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import connect

from orderbook.commands.preview import Preview
from orderbook.commands.preview_page import PlainBooks, opened, slowly
from orderbook.configuration.options import FileFeed, SimulatedFeed
from orderbook.feeds.merge import Item
from orderbook.feeds.recording.parquet_record import RecordWriter
from orderbook.market.events import Action, Events, Flag, Side
from orderbook.market.synthetic_flow import generate, synthetic_instruments

SMALL = """
[monitor]
port = 0
[[feeds]]
kind = "simulated"
products = ["BTC-USD", "ETH-USD"]
events_per_second = 50
levels = 10
[[feeds]]
kind = "file"
path = "flow.parquet"
"""


@given(seed=st.integers(0, 1000), symbols=st.integers(1, 3))
def test_books_are_those_of_the_flow(seed: int, symbols: int) -> None:
    books, plain = PlainBooks(symbols), [PlainBook() for _ in range(symbols)]
    for events in generate(1_500, symbols, 10, seed, batch=200, resting=40):
        books.apply(events)
        for number, one in enumerate(plain):
            one.apply_all(events[events["instrument"] == number])
    # What contradicts a book, or is of none, changes nothing.
    stray = events[:4].copy()
    stray["action"] = Action.ADD, Action.DELETE, Action.REDUCE, Action.ADD
    stray["order_id"], stray["side"], stray["instrument"] = 0, (Side.NONE, 0, 0, 0), (0, 0, 0, symbols)
    books.apply(stray)
    for number, one in enumerate(plain):
        assert books.state(number) is one.state and books.counts_orders(number) is bool(one.orders)
        for side in (Side.BID, Side.ASK):
            found = books.levels(number, side, 5)
            assert [tuple(level) for level in found[["price", "volume"]].tolist()] == one.best(side, 5)
            counts = [
                sum(order[:2] == [side, price] for order in one.orders.values())
                for price in found["price"].tolist()
            ]
            assert found["orders"].tolist() == counts


def test_levels_of_a_book_without_orders() -> None:
    books = PlainBooks(1)
    events = next(generate(1, 1, 10, 1))[:1].repeat(4)
    events["action"], events["side"] = Action.LEVEL, (0, 0, 1, 0)
    events["price"], events["volume"] = (10, 11, 12, 10), (5, 6, 7, 0)
    books.apply(events)
    assert books.levels(0, Side.BID, 9).tolist() == [(11, 6, 1)]
    assert books.levels(0, Side.ASK, 9).tolist() == [(12, 7, 1)]
    assert not books.counts_orders(0)
    events = events[:1]
    events["action"], events["side"] = Action.CLEAR, Side.BID
    books.apply(events)
    assert not len(books.levels(0, Side.BID, 9)) and len(books.levels(0, Side.ASK, 9)) == 1


def recorded(path: Path, count: int) -> Events:
    """The events of two instruments, written as a record."""
    events = next(generate(count, 2, 12, 7, batch=count, resting=40))
    with RecordWriter(path, synthetic_instruments(2)) as writer:
        writer.write(events)
    return events


def test_a_file_is_shown_slowly_in_whole_messages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    events, parts, slept = recorded(tmp_path / "flow.parquet", 3_000), list[Events](), list[float]()
    feed = FileFeed(kind="file", path=tmp_path / "flow.parquet")

    async def put(item: Item) -> None:
        assert isinstance(item, np.ndarray)
        parts.append(item)

    async def sleep(seconds: float) -> None:
        slept.append(seconds)

    async def follow() -> None:
        (run,), instruments = await opened([feed])
        assert [one.symbol for one in instruments] == ["AAA-USD", "AAB-USD"]
        monkeypatch.setattr(asyncio, "sleep", sleep)
        await run.follow(slowly(put))

    asyncio.run(follow())
    assert (np.concatenate(parts) == events).all()
    assert len(parts) > 10 and all(part["flags"][-1] & Flag.LAST for part in parts)
    assert sum(slept) == pytest.approx(len(events) / 2_000)


def test_a_file_that_cannot_be_opened_hides_no_exchange(tmp_path: Path) -> None:
    rows = tmp_path / "prices.csv"
    rows.write_text("symbol,price\nA,1\n")
    simulated = SimulatedFeed(kind="simulated", products=("BTC-USD",), levels=10)
    for path, shown in ((tmp_path / "missing.parquet", 1), (rows, 1)):
        runs, instruments = asyncio.run(opened([simulated, FileFeed(kind="file", path=path)]))
        assert len(runs) == shown and len(instruments) == 1


def test_a_page_has_books_and_trades_before_the_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """In a process whose functions are not compiled, until the run takes over what it listens on."""
    events = recorded(tmp_path / "flow.parquet", 4_000)
    preview = Preview(write(tmp_path / "c.toml", SMALL), (), None, 0.0)
    try:
        preview.tell("compiling views: 3 s")
        printed = ""
        while not (found := re.search(r"^monitor: http://(\S+):(\d+)/ \(books and trades", printed)):
            assert preview._thread.is_alive() or found
            printed += capsys.readouterr().out
        address = found[1], int(found[2])
        with connect(f"ws://{address[0]}:{address[1]}/ws", max_size=None) as page:

            def ask(**message: object) -> None:
                page.send(json.dumps(message))

            ask(id=1, op="subscribe", topic="book", venue="simulated", symbol="BTC-USD", depth=5)
            ask(id=2, op="subscribe", topic="status")
            ask(id=3, op="sql", sql="SELECT 1")
            ask(id=4, op="subscribe", topic="view", view="depth")
            ask(id=5, op="subscribe", topic="book", venue="SIM", symbol="AAB-USD", depth=5)
            seen: dict[int, dict[str, object]] = {}
            while not (
                {3, 4} <= seen.keys()
                and seen.get(1, {}).get("state") == "valid"
                and seen.get(1, {}).get("trades")
                and seen.get(5, {}).get("state") == "valid"
                and seen.get(2, {}).get("preparing") == "compiling views: 3 s"
            ):
                message = json.loads(page.recv(timeout=PATIENCE))
                seen[message["id"]] = message
            bids, asks = (np.array(seen[1][side])[:, 0] for side in ("bids", "asks"))
            assert len(bids) == len(asks) == 5 and bids.max() < asks.min()
            assert (np.diff(bids) < 0).all() and (np.diff(asks) > 0).all()
            book, told = PlainBook(), set()
            for event in events[events["instrument"] == 1]:
                book.apply(event)
                if event["flags"] & Flag.LAST:
                    told.add(tuple(tuple(book.best(side, 5)) for side in (Side.BID, Side.ASK)))
            shown = (seen[5][side] for side in ("bids", "asks"))
            assert tuple(tuple(map(tuple, np.array(one)[:, :2].tolist())) for one in shown) in told
            for number in (3, 4):
                assert "the run has not begun" in str(seen[number]["error"])
            with preview.end() or socket.socket() as taken:
                assert taken.getsockname() == address
                with pytest.raises(ConnectionClosed) as closed:
                    list(iter(partial(page.recv, timeout=PATIENCE), None))
                assert closed.value.rcvd is not None and closed.value.rcvd.code == 1012
                # Nobody else answers there any more; whoever connects now waits for the run.
                with socket.create_connection(address) as client:
                    taken.settimeout(PATIENCE)
                    accepted, place = taken.accept()
                    accepted.close()
                    assert place == client.getsockname()
    finally:
        preview.close()


@pytest.mark.parametrize("off", ["enabled = false", "preview = false"])
def test_none_is_shown_where_the_configuration_says_so(tmp_path: Path, off: str) -> None:
    preview = Preview(write(tmp_path / "c.toml", f"[monitor]\n{off}\n"), (), None, 0.0)
    while preview._process is None:
        assert preview._thread.is_alive()
    preview._process.wait(PATIENCE)
    assert preview.end() is None
    preview.close()


def test_a_run_that_is_there_before_it_listens_does_not_wait(tmp_path: Path) -> None:
    preview = Preview(write(tmp_path / "c.toml", SMALL), (), None, 0.0)
    while preview._line is None:
        assert preview._thread.is_alive()
    # Stopped, it could not end by itself.
    os.kill(preview._process.pid, signal.SIGSTOP)  # type: ignore[union-attr]
    assert preview.end() is None
    preview.close()
    assert preview._process is not None and preview._process.returncode == -signal.SIGKILL


def test_a_run_that_is_there_before_has_none() -> None:
    preview = Preview(None, (), None, 1_000.0)
    assert preview.end() is None
    preview.close()
    assert preview._process is None
