"""Topics on librdkafka's own mock cluster: every change a message, taken up again where it was."""

import asyncio
import json
from collections import Counter
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import confluent_kafka
import pytest
from samples import PATIENCE
from sink_support import Run, messages

from orderbook.configuration.configuration import load_configuration
from orderbook.configuration.options import KafkaFeed
from orderbook.core.errors import ConfigurationError, Problems, SourceError
from orderbook.engine.runtime.engine_state import program_hash
from orderbook.feeds import kafka_topic
from orderbook.feeds.kafka_topic import TopicOptions, TopicReader, source_name, topic_address
from orderbook.run.feed_runs import TopicRun
from orderbook.sinks.delivery import ChangeDelivery
from orderbook.sinks.kafka import KafkaTopic
from orderbook.sinks.outbox import Outbox, RowChange, SinkError

KEYS = ("symbol",)


@pytest.fixture
def brokers() -> Iterator[str]:
    """The addresses of a cluster of three brokers, which goes with the client that it belongs to."""
    cluster = confluent_kafka.Producer({"test.mock.num.brokers": 3, "log_level": 0})
    found = cluster.list_topics(timeout=PATIENCE).brokers.values()
    yield ",".join(f"{one.host}:{one.port}" for one in found)
    del cluster


def read_all(brokers: str, topic: str, count: int) -> list[Any]:
    """The first messages of a topic, a partition's in their order."""
    options = {"bootstrap.servers": brokers, "group.id": "test", "enable.auto.commit": False}
    consumer = confluent_kafka.Consumer(options)
    partitions = consumer.list_topics(topic, timeout=PATIENCE).topics[topic].partitions
    consumer.assign([confluent_kafka.TopicPartition(topic, one, 0) for one in partitions])
    found: list[Any] = []
    for _ in range(100):
        found += consumer.consume(1000, 0.1)
        if len(found) >= count:
            break
    consumer.close()
    return found


def send(brokers: str, topic: str, values: list[bytes | None], key: bytes = b"k") -> None:
    producer = confluent_kafka.Producer({"bootstrap.servers": brokers})
    for value in values:
        producer.produce(topic, value, key)
    assert not producer.flush(10)


def exactly(value: Any) -> Any:
    """A value as JSON's decimals have it."""
    return Decimal(repr(value)) if isinstance(value, float) else value


def test_every_change_is_a_message_with_its_version(brokers: str, tmp_path: Path) -> None:
    def made(own: Any, folder: Path) -> list[ChangeDelivery]:
        target = KafkaTopic(f"kafka://{brokers}/totals", "totals", KEYS, {})
        outbox = Outbox(folder / "sinks" / "totals", program_hash(own).hex())
        return [ChangeDelivery("k", "totals", target, 0.0, outbox, 10**9, Problems())]

    flow = list(messages(1, 60))
    delivered = 0
    for part in (flow[:20], flow[20:]):
        run = Run(tmp_path, made)
        for message in part:
            run.apply(message)
        run.settle()
        rows = {key: {n: exactly(one) for n, one in row.items()} for key, row in run.rows().items()}
        run.close()
        delivered += run.deliveries[0].report().delivered
    found = read_all(brokers, "totals", delivered)
    present: dict[str, Any] = {}
    versions: dict[bytes, tuple[int, ...]] = {}
    for message in found:
        assert message.error() is None
        value = json.loads(message.value(), parse_float=Decimal)
        headers = dict(message.headers())
        version = tuple(value["version"])
        assert headers["version"] == ",".join(map(str, version)).encode()
        assert headers["op"] == value["op"].encode()
        assert json.loads(message.key()) == list(value["key"].values())
        assert versions.get(message.key(), (0,)) < version
        versions[message.key()] = version
        present[value["key"]["symbol"]] = value["row"]
        assert (value["row"] is None) == (value["op"] == "delete")
    assert {(key,): row for key, row in present.items() if row is not None} == rows


@pytest.mark.sampled(2)
def test_brokers_that_are_away_are_an_error(brokers: str) -> None:
    change = RowChange((1, 0, 1), "insert", ("A",), {"symbol": "A", "n": float("nan"), "wide": 2**70})
    away = KafkaTopic("kafka://127.0.0.1:1/t", "v", KEYS, {"log_level": "0"})
    with pytest.raises(SinkError, match="topic t"):
        away.open()
    target = KafkaTopic(f"kafka://{brokers}/t", "v", KEYS, {})
    target.open()
    target.write([change])
    target.close()
    (message,) = read_all(brokers, "t", 1)
    value = json.loads(message.value())
    assert value["row"] == {"symbol": "A", "n": "NaN", "wide": 2**70}


def test_a_topic_is_read_from_where_it_was(brokers: str) -> None:
    options = TopicOptions(f"kafka://{brokers}/quotes", "quotes")
    problems, counts = Problems(), Counter[str]()
    values: list[bytes | None] = [b'{"symbol": "A", "price": 1.10, "ts": 1.7e18}', b"{", None, b'{"a": [1]}']
    send(brokers, "quotes", [*values, b'{"symbol": "B"}'])
    positions: dict[str, int] = {}
    found = take(options, problems, counts, positions, 2)
    assert [change.row for change in found] == [
        {"symbol": "A", "price": Decimal("1.10"), "ts": 1_700_000_000_000_000_000},
        {"symbol": "B"},
    ]
    assert problems.counts == {"malformed message": 2}
    assert all("quotes[" in one and "@" in one for one in problems.examples["malformed message"])
    assert counts == {"messages": 5, "messages without a value": 1}
    send(brokers, "quotes", [b'{"symbol": "C"}'])
    assert [change.row for change in take(options, problems, counts, positions, 1)] == [{"symbol": "C"}]


def take(
    options: TopicOptions, problems: Problems, counts: Counter[str], positions: dict[str, int], count: int
) -> list[Any]:
    """So many changes, by a reader of their own."""
    reader = TopicReader(options, problems, counts, positions)
    found: list[Any] = []
    try:
        for _ in range(100):
            for source, changes in reader.read():
                positions[source] = changes[-1].line
                found += changes
            if len(found) >= count:
                return found
    finally:
        reader.close()
    raise AssertionError(found)


def test_changes_name_their_stream(brokers: str) -> None:
    send(brokers, "changes", [b'{"stream": "bids", "op": "-", "row": {"n": 1}, "time": 5}', b'{"n": 1}'])
    problems = Problems()
    found = take(TopicOptions(f"kafka://{brokers}/changes"), problems, Counter(), {}, 1)
    assert [(one.stream, one.op, one.row, one.time, one.last) for one in found] == [
        ("bids", "-", {"n": 1}, 5, True)
    ]
    assert problems.counts == {"malformed message": 1}


def test_from_the_latest_on(brokers: str) -> None:
    options = TopicOptions(f"kafka://{brokers}/new", "r", "latest")
    send(brokers, "new", [b'{"n": 1}'])
    positions: dict[str, int] = {}
    TopicReader(options, Problems(), Counter(), positions).close()
    send(brokers, "new", [b'{"n": 2}'])
    assert [one.row for one in take(options, Problems(), Counter(), positions, 1)] == [{"n": 2}]


def test_a_run_follows_a_topic_that_comes_later(brokers: str) -> None:
    feed = KafkaFeed(kind="kafka", address=f"kafka://{brokers}/late", relation="r")
    run = TopicRun(feed)
    run.positions = {source_name(feed.topic_options, one): 0 for one in range(4)}
    found: list[Any] = []

    async def go() -> None:
        done = asyncio.Event()

        async def put(item: Any) -> None:
            found.extend(item.changes)
            done.set()

        task = asyncio.create_task(run.follow(put))
        await asyncio.to_thread(send, brokers, "late", [b"nothing of the kind", b'{"n": 1}'])
        await asyncio.wait_for(done.wait(), PATIENCE)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    asyncio.run(go())
    assert [one.row for one in found] == [{"n": 1}]
    counts = run.report().problems.counts
    # Whether the topic is there at the first looks is a matter of time.
    counts.pop("topic not read", 0)
    assert counts == {"malformed message": 1}


def test_where_a_topic_was_is_in_the_log_and_its_checkpoints(tmp_path: Path) -> None:
    places = iter(range(1, 100))
    for number in range(4):
        run = Run(tmp_path, lambda own, folder: [])
        assert run.pipeline.positions == ({} if not number else {"test": 5 * number})
        for message in messages(number, 5):
            place = next(places)
            run.apply([change._replace(line=place) for change in message])
        if number % 2:
            assert run.durable.checkpoint()
        run.log.close()


def test_a_broker_that_is_not_there_is_an_error_of_the_source(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kafka_topic, "_PATIENCE", 0.5)
    with pytest.raises(SourceError, match="cannot be read"):
        TopicReader(
            TopicOptions("kafka://127.0.0.1:1/t", properties={"log_level": "0"}), Problems(), Counter(), {}
        )


def test_the_configuration(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "c.toml"
    path.write_text(
        'feeds = ["kafka://a:1,b:2/t.x?relation=quotes&start=latest"]\n[[sinks]]\nview = "v"\n'
        'to = "kafka://a:1/t"\nproperties = {"sasl.password" = "$SINK_PASSWORD"}\n'
    )
    with pytest.raises(
        ConfigurationError, match=r"properties.*variable SINK_PASSWORD of the environment is not set"
    ):
        load_configuration(path)
    monkeypatch.setenv("SINK_PASSWORD", "secret")
    configuration = load_configuration(path)
    (feed,), (sink,) = configuration.feeds, configuration.sinks
    assert isinstance(feed, KafkaFeed)
    assert feed.topic_options == TopicOptions("kafka://a:1,b:2/t.x", "quotes", "latest")
    assert topic_address(feed.address) == ("a:1,b:2", "t.x")
    assert (sink.sends, sink.target, sink.properties) == (
        "changes",
        "kafka://a:1/t",
        {"sasl.password": "$SINK_PASSWORD"},
    )
    assert "secret" not in repr(configuration)
    path.write_text('[[sinks]]\nview = "v"\nto = "kafka://a:1/t"\nmode = "rows"\ntabel = "t"\n')
    with pytest.raises(ConfigurationError) as raised:
        load_configuration(path)
    assert 'expected "changes"' in str(raised.value)
    assert "did you mean 'table'?" in str(raised.value)
