"""The cases of the papers by name, each with messages in the order that makes it."""

from dataclasses import replace

import pytest
from protocol_cluster import Cluster, delete, insert, retracting, switch
from protocol_schedules import compare
from protocol_simulation import BYPASS, PIPELINED, SERIAL
from toy_stages import READS, SQUARES, Maps

from orderbook.core.errors import ExactnessError
from orderbook.engine.protocol.messages import Address, EndRequest, Marker, Message, RowsMessage

LEVELS, READER, FINAL = Address(0, 0), Address(1, 0), Address(2, 0)


def write(key: int, amount: int):  # type: ignore[no-untyped-def]
    return insert("writes", key, amount)


def look(key: int, broker: int = 1, weight: int = 1):  # type: ignore[no-untyped-def]
    return insert("looks", key, broker, weight)


def test_write_before_read() -> None:
    """A read that comes after a later write sees what was there before it."""
    cluster = Cluster(READS)
    cluster.say(0, 10, write(1, 4))
    cluster.say(0, 30, write(1, 5))
    cluster.settle()
    cluster.say(1, 20, look(1))
    assert retracting(cluster.settle()) == set()
    assert cluster.rows("read") == [(20, 1, 4)]
    cluster.finish()


def test_read_before_write() -> None:
    """A write that comes after a later read corrects what was read."""
    cluster = Cluster(READS)
    cluster.say(0, 5, write(1, 4))
    cluster.say(0, 30, look(1))
    cluster.settle()
    assert cluster.rows("read") == [(30, 1, 4)]
    cluster.say(1, 10, write(1, 5))
    assert retracting(cluster.settle()) == {(1, 2)}
    assert cluster.rows("read") == [(30, 1, 9)]
    cluster.finish()


def test_atomicity_violation() -> None:
    """Two writes of one event come to a reader at different times; the end sees both or neither."""
    cluster = Cluster(READS, partitions=3)
    cluster.say(0, 10, write(1, 4), write(2, 8), write(3, 2))
    cluster.say(1, 20, look(1), look(2), look(3))
    cluster.hand(sender=switch(0))
    cluster.hand(sender=switch(1))
    levels = sorted({m.sender for m in cluster.waiting if m.sender.stage == 0})
    assert len(levels) > 1
    cluster.hand(sender=levels[0])
    half = cluster.rows("read")
    cluster.settle()
    assert half != cluster.rows("read") == [(20, 1, 14)]
    cluster.finish()


@pytest.mark.parametrize("first", [0, 1])
def test_order_violation(first: int) -> None:
    """Events of one stamp take effect in the order of their switches, in whatever order they come."""
    cluster = Cluster(READS)
    cluster.say(0, 10, write(1, 4))
    cluster.say(1, 10, look(1))
    cluster.hand(sender=switch(first))
    cluster.settle()
    assert cluster.rows("read") == [(10, 1, 4)]
    cluster.finish()


def test_recursive_corrections() -> None:
    """A late write changes what every stage behind it has said."""
    cluster = Cluster(READS, switches=3)
    cluster.say(0, 20, write(1, 4))
    cluster.say(0, 30, look(1))
    cluster.say(1, 40, insert("sums", 1))
    cluster.settle()
    assert cluster.rows("final") == [(40, 0, 5)]
    cluster.say(2, 10, write(1, 5))
    assert retracting(cluster.settle()) == {(0, 1), (1, 2)}
    assert cluster.rows("final") == [(40, 0, 10)]
    cluster.finish()


def test_an_epoch_with_an_idle_switch() -> None:
    """A switch that has nothing to send ends epochs too; without its marker none commits."""
    cluster = Cluster(READS)
    cluster.say(0, 10, write(1, 4))
    cluster.say(0, 1500, write(1, 5))
    cluster.settle()
    assert {node.epoch for node in cluster.nodes.values()} == {0}
    cluster._take(switch(1), cluster.switches[1].promise(1500))
    cluster.settle()
    assert {node.epoch for node in cluster.nodes.values()} == {1}
    cluster.finish(4000)


def test_delete_before_insert() -> None:
    """A row is deleted before the insert comes that is before it."""
    cluster = Cluster(SQUARES)
    cluster.say(1, 20, delete("trades", 1, 1, 5))
    cluster.settle()
    assert cluster.rows("squares") == [(20, 0, 25)]
    cluster.say(0, 10, insert("trades", 1, 1, 5))
    cluster.settle()
    assert cluster.rows("squares") == [(10, 0, 25), (20, 0, 0)]
    cluster.finish()


def test_duplicates() -> None:
    """What comes twice counts once, also after its epoch."""
    cluster = Cluster(READS, partitions=2)
    cluster.say(0, 10, write(1, 4), write(2, 3))
    cluster.say(1, 20, look(1), look(2))
    seen: list[Message] = []
    while cluster.waiting:
        seen += cluster.hand()
        for rows in [m for m in seen if isinstance(m, RowsMessage)]:
            cluster.deliver(rows.receiver, [rows])
    assert cluster.rows("read") == [(20, 1, 7)]
    cluster.finish()
    for message in seen:
        cluster.deliver(message.receiver, [message])
    cluster.settle()
    assert all(not any(node.log_sizes().values()) for node in cluster.nodes.values())


def test_a_switch_gives_out_what_comes_after_its_promise() -> None:
    cluster = Cluster(SQUARES, switches=1)
    blocks = cluster.switches[0].stamp([[insert("trades", 1, 1, 5)]], 10)
    cluster._take(switch(0), cluster.switches[0].promise(1500))
    cluster._take(switch(0), cluster.switches[0].send(blocks))
    cluster.settle()
    (dead,) = cluster.sink.dead
    assert dead.versions["stamp"].tolist() == [10]
    assert cluster.rows("squares") == []


@pytest.mark.parametrize("before_the_marker", [False, True])
def test_late_for_a_committed_epoch(before_the_marker: bool) -> None:
    """Rows that are sent after the marker of their epoch are dead wherever and whenever they arrive."""
    cluster = Cluster(SQUARES, switches=1)
    cluster.say(0, 10, insert("trades", 1, 1, 5))
    cluster.settle()
    late = cluster.switches[0].stamp([[insert("trades", 2, 1, 3)]], 20)
    cluster._take(switch(0), cluster.switches[0].promise(1500))
    # A switch that breaks its promise: its next message, with rows of the epoch that it has ended.
    ((receiver, part),) = cluster.wiring.route(replace(late[0], source="trades"))
    message = cluster.switches[0].sent.rows(receiver, (part,))
    if before_the_marker:
        cluster.deliver(receiver, [message])
        cluster.hand(Address(1, 0), receiver)
        assert cluster.rows("squares")[-1] == (20, 0, 34)
        assert not cluster.sink.dead
    cluster.settle()
    cluster.deliver(receiver, [message])
    cluster.settle()
    assert [b.versions["stamp"].tolist() for b in cluster.sink.dead] == [[20]]
    assert cluster.rows("squares") == [(10, 0, 25)]
    assert {node.epoch for node in cluster.nodes.values()} == {1}


def test_a_node_short_of_memory_ends_the_epoch() -> None:
    cluster = Cluster(SQUARES, log_limit=10)
    for clock in range(1, 30):
        cluster.say(clock % 2, clock, insert("trades", 1, 1, clock))
        requests = [m for m in cluster.settle() if isinstance(m, EndRequest)]
        if requests:
            break
    assert requests
    for number in (0, 1):
        cluster._take(switch(number), cluster.switches[number].promise(100))
    cluster.settle()
    assert {node.epoch for node in cluster.nodes.values()} == {1}


def test_markers_count_corrections() -> None:
    """A marker counts what was sent before it, also what corrected; without it nothing commits."""
    cluster = Cluster(READS, switches=1)
    cluster.say(0, 20, write(1, 4))
    cluster.say(0, 30, look(1))
    cluster.hand(LEVELS)
    cluster.hand(READER, LEVELS)
    cluster.hand(READER)
    cluster._take(switch(0), cluster.switches[0].promise(2000))
    cluster.hand(LEVELS)
    cluster.hand(READER)
    markers = [m for m in cluster.waiting if isinstance(m, Marker) and m.receiver == FINAL]
    (own,) = [m for m in markers if m.sender == READER]
    sent = [m for m in cluster.waiting if isinstance(m, RowsMessage) and m.sender == READER]
    assert own.count == len(sent) > 0
    for message in [*markers]:
        cluster.waiting.remove(message)
        cluster.deliver(FINAL, [message])
    assert cluster.nodes[FINAL].epoch == 0
    cluster.settle()
    assert cluster.nodes[FINAL].epoch == 1
    cluster.finish(4000)


def test_a_restart_takes_back_what_was_not_committed() -> None:
    cluster = Cluster(READS)
    cluster.say(0, 10, write(1, 4))
    cluster.say(1, 20, look(1))
    cluster.settle()
    cluster.restart(READER)
    assert cluster.rows("read") == []
    cluster.settle()
    assert cluster.rows("read") == [(20, 1, 4)]
    cluster.finish()


def test_serial_execution_waits_for_promises() -> None:
    cluster = Cluster(READS, mode=SERIAL)
    cluster.say(0, 10, write(1, 4))
    cluster.say(0, 30, look(1))
    cluster.settle()
    assert cluster.rows("read") == []
    cluster.say(1, 20, write(1, 5))
    cluster.say(1, 40, write(1, 6))
    assert retracting(cluster.settle()) == set()
    assert cluster.rows("read") == [(30, 1, 9)]
    cluster.finish()


def test_pipelined_execution_waits_by_depth() -> None:
    cluster = Cluster(READS, mode=replace(PIPELINED, tick=10))
    cluster.say(0, 10, write(1, 4))
    cluster.say(0, 15, look(1))
    for node in (LEVELS, READER):
        cluster.settle()
        cluster._take(node, cluster.nodes[node].advance(20))
    assert cluster.rows("read") == []
    cluster._take(READER, cluster.nodes[READER].advance(26))
    assert cluster.rows("read") == [(15, 1, 4)]
    cluster.finish()


def test_known_pending_writes_block_only_what_follows() -> None:
    """A read waits for a write that its switch has told of; one before it passes."""
    cluster = Cluster(READS, switches=3, mode=BYPASS)
    cluster.say(0, 20, write(1, 4))
    cluster.say(1, 30, look(1))
    cluster.say(2, 10, look(1, broker=2))
    cluster.hand(READER)
    assert cluster.nodes[READER].execution.operation.head == (10, 2, 1)
    assert retracting(cluster.settle()) == set()
    assert cluster.rows("read") == [(30, 1, 4)]
    cluster.finish()


def _never_negative(maps: Maps) -> None:
    if any(value < 0 for value in maps.values("total")):
        raise ExactnessError("a total is negative")


def _strict() -> Cluster:
    """Totals below zero cannot be computed."""
    first, *others = SQUARES.toys
    return Cluster(replace(SQUARES, toys=(replace(first, after=_never_negative), *others)))


def test_what_cannot_be_computed_yet_waits() -> None:
    cluster = _strict()
    cluster.say(1, 20, delete("trades", 1, 1, 5))
    cluster.say(1, 30, insert("trades", 2, 1, 5))
    cluster.settle()
    assert cluster.rows("squares") == []
    cluster.say(0, 10, insert("trades", 1, 1, 5))
    cluster.settle()
    assert cluster.rows("squares") == [(10, 0, 25), (20, 0, 0), (30, 0, 25)]
    cluster.finish()


def test_what_can_never_be_computed_is_an_error() -> None:
    cluster = _strict()
    cluster.say(1, 20, delete("trades", 1, 1, 5))
    cluster.settle()
    with pytest.raises(ExactnessError, match="negative"):
        cluster.finish()


def test_versions_are_never_mixed() -> None:
    """Every event moves volume between two symbols; every version sums to the same, whatever comes late."""
    cluster = Cluster(SQUARES, switches=2)
    cluster.say(0, 1, insert("trades", 1, 1, 5), insert("trades", 2, 1, 5))
    for clock in range(2, 12):
        down, up = (1, 2) if clock % 3 else (2, 1)
        late = clock % 2
        cluster.say(late, clock, delete("trades", down, 1, clock), insert("trades", up, 1, clock))
    waiting = sorted(cluster.waiting, key=lambda m: (m.sender, -m.number))  # type: ignore[union-attr]
    cluster.waiting.clear()
    first = next(m for m in waiting if m.sender == switch(0) and m.number == 1)  # type: ignore[union-attr]
    for message in [first, *(m for m in waiting if m is not first)]:
        cluster.deliver(message.receiver, [message])
        totals: dict[int, int] = {}
        rows = cluster.rows("total")
        for stamp in sorted({row[0] for row in rows}):
            totals |= {key: value for at, key, value in rows if at == stamp}
            assert sum(totals.values()) == 10
    cluster.finish()


def test_the_modes_trade_messages_for_delay() -> None:
    costs = compare(range(10))
    assert costs["serial"].retracted == 0 < costs["speculative"].retracted
    assert costs["serial"].messages > costs["bypass"].messages > costs["speculative"].messages
    assert costs["unsuppressed"].retracted > costs["speculative"].retracted > costs["buffered"].retracted
    assert costs["pipelined"].retracted < costs["speculative"].retracted
    assert costs["speculative"].settled < costs["serial"].settled
