"""What is stored of a stream's nodes, and nodes that processes keep and bring up to what is stored."""

import random
from collections import OrderedDict
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from backtest_support import contents
from streaming_support import LocalStream, Recorded, arrivals, settings

from orderbook.jobs.job import open_job
from orderbook.streaming import nodes
from orderbook.streaming import nodes as node_store
from orderbook.streaming.block_log import decoded
from orderbook.streaming.nodes import Head, Listing, StoredFiles


@pytest.mark.parametrize("entry_bytes", [0, pytest.param(40, marks=pytest.mark.exhaustive), 10**6])
def test_nodes_that_go_from_process_to_process(
    recorded: Recorded, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sample_seed: int, entry_bytes: int
) -> None:
    # A snapshot in every batch, now and then, and never; in the last, nodes wait rather than go back.
    monkeypatch.setattr(node_store, "_DEAR_ENTRIES", 0 if entry_bytes == 10**6 else 10**9)
    monkeypatch.setattr(node_store, "_ENTRY_BYTES", entry_bytes)
    monkeypatch.setattr(node_store, "_ROW_BYTES", entry_bytes)
    lacking, loads = [], 0
    catch_up, loaded = node_store.LiveNode.catch_up, node_store.loaded

    def followed(live: node_store.LiveNode, plan: Any, head: Any, state: Any) -> Any:
        missing = head.after(live.number, live.mark)
        lacking.append(-1 if missing is None else len(missing))
        return catch_up(live, plan, head, state)

    def read(*arguments: Any) -> Any:
        nonlocal loads
        loads += 1
        return loaded(*arguments)

    monkeypatch.setattr(node_store.LiveNode, "catch_up", followed)
    monkeypatch.setattr(nodes, "loaded", read)
    choose = random.Random(sample_seed)
    processes: list[OrderedDict[Any, Any]] = [OrderedDict() for _ in range(3)]
    stream = LocalStream(settings(tmp_path / "job", 2), recorded.logs, {})
    batches = arrivals(recorded.entries, 3, sample_seed)
    for number, batch in enumerate(batches):
        if choose.random() < 0.1:
            processes[0].clear()  # it was started again
        monkeypatch.setattr(nodes, "_kept", choose.choice(processes))
        stream.batch(number, batch)
    assert contents(open_job(tmp_path / "job")) == contents(recorded.expected)
    assert not any(stream.log_sizes())
    pieces = [len(state.pieces) for state in stream.states.values()]
    if entry_bytes == 0:
        assert set(pieces) == {1} and -1 in lacking
    elif entry_bytes == 10**6:
        # Nodes are read only by processes that have none; those without an entry yet are written whole.
        assert max(pieces) >= len(batches) - 2 and max(lacking) > 1 and loads < len(lacking) / 2


def test_a_large_node_waits_for_a_slow_sender(
    recorded: Recorded, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(node_store, "_DEAR_ENTRIES", -1)
    stream = LocalStream(settings(tmp_path / "job", 1), recorded.logs, {})
    rows = [entry for entry in recorded.entries if entry.rows]
    reached = []
    for switch in range(2):
        own = [entry for entry in rows if entry.switch == switch]
        stream.batch(switch, own)
        blocks = [block for entry in own for block in decoded(entry, stream.plan.dictionary)]
        reached.append(max(int(b.versions["stamp"][-1]) for b in blocks if b.source == "bids"))
        found = open_job(tmp_path / "job").history("sides", tentative=True)
        assert (len(found) > 0) is (switch == 1)
    final = recorded.expected.history("sides")
    assert found.rows() == final.filter(pl.col("stamp") < min(reached)).rows() != final.rows()


def test_a_node_of_another_batch_is_not_used() -> None:
    head = Head(3, ("snapshot", "a", "b"))
    assert head.last == 5
    assert head.after(3, "snapshot") == range(4, 6) and head.after(5, "b") == range(6, 6)
    # Before the snapshot, of a batch that was done again, and of one that is not stored.
    assert head.after(2, "a") is head.after(4, "b") is head.after(6, "c") is None


def test_states_in_files(tmp_path: Path) -> None:
    listing = Listing()
    kept: dict[int, bytes] = {}
    for batch in range(30):
        state = StoredFiles(tmp_path, listing.nodes.get("0.0"))
        assert state.head() == (b"%d" % (batch - 1) if batch else None)
        assert {number: state.piece(number) for number in kept} == kept
        dropped = range(batch - 10, batch) if batch % 10 == 0 and batch else range(0)
        state.write(b"%d" % batch, batch, b"piece %d" % batch, dropped)
        kept = {**{k: v for k, v in kept.items() if k not in dropped}, batch: b"piece %d" % batch}
        assert state.written is not None and set(state.written.pieces) == set(kept)
        # A batch that ends here has changed nothing.
        assert Listing.read(tmp_path) == listing
        listing = listing.after(batch, {"0.0": state.written})
        listing.write(tmp_path)
        assert {p.name for p in tmp_path.glob("*.state")} == set(state.written.pieces.values())
        assert Listing.read(tmp_path) == listing
