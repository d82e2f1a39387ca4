"""A topic of Kafka as changes of a relation: a message is a row that is inserted, or a change.

A message's value is a JSON object: a row of the relation that the topic is read as, or a change as in change
streams, `{"stream": …, "op": "+" or "-", "row": {…}}`. Numbers are exact. A message without a value says
nothing. Where a reader is in every partition is its own to say, not the broker's: it goes on after the
offsets that it is given.
"""

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any, Literal

import msgspec

from orderbook.core.errors import Problems, SourceError, UserError, extra
from orderbook.feeds.byte_stream import shown
from orderbook.feeds.change_stream import ChangeLine, RelationChange, check_row

# Seconds until brokers must have answered, and for which messages are waited for.
_PATIENCE, _WAIT = 10.0, 0.2
# Messages that are given together.
_TOGETHER = 1_000
_ADDRESS = re.compile(r"kafka://([^/@\s]*)/([A-Za-z0-9._-]{1,249})")


def topic_address(text: str) -> tuple[str, str]:
    """The brokers and the topic of `kafka://HOST:PORT,…/TOPIC`. Raises UserError."""
    found = _ADDRESS.fullmatch(text)
    if found is None:
        raise UserError(f"{text}: write a topic as kafka://HOST:PORT,…/TOPIC")
    return found[1], found[2]


@dataclass(frozen=True, slots=True)
class TopicOptions:
    """Which topic is read, as which relation ("": its messages are changes that name theirs), from where.

    `start`: where a reader begins that was not there before. `properties` are librdkafka's.
    """

    address: str
    relation: str = ""
    start: Literal["earliest", "latest"] = "earliest"
    properties: Mapping[str, str] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """The source as its address."""
        return self.address


class TopicReader:
    """Reads all partitions of a topic. One thread uses it.

    positions: how many messages of each partition were taken, counted from its first, by its `source_name`;
    the `line` of a change is that count with it. Partitions that it lacks are put into it.
    Raises SourceError where the brokers do not answer or there is no such topic.
    """

    def __init__(
        self,
        options: TopicOptions,
        problems: Problems,
        counts: Counter[str],
        positions: dict[str, int],
    ) -> None:
        with extra("kafka", "confluent_kafka"):
            import confluent_kafka
        self._kafka: Any = confluent_kafka
        self._options, self._problems, self._counts = options, problems, counts
        brokers, self._topic = topic_address(options.address)
        properties = {
            "group.id": "orderbook",
            "enable.auto.commit": False,
            "auto.offset.reset": "error",
            "client.id": "orderbook",
            "log_level": 2,
            **({"bootstrap.servers": brokers} if brokers else {}),
            **options.properties,
        }
        self._rows = msgspec.json.Decoder(dict[str, Any], float_hook=Decimal)
        self._changes = msgspec.json.Decoder(ChangeLine, float_hook=Decimal)
        try:
            self._consumer = confluent_kafka.Consumer(properties)
        except (confluent_kafka.KafkaException, ValueError) as error:
            raise self._error(str(error)) from error
        try:
            self._consumer.assign(self._partitions(positions))
        except confluent_kafka.KafkaException as error:
            self._consumer.close()
            raise self._error(str(error)) from error
        except SourceError:
            self._consumer.close()
            raise

    def close(self) -> None:
        """Give back the connection."""
        self._consumer.close()

    def read(self) -> Iterator[tuple[str, list[RelationChange]]]:
        """What has come since, by partition, after some time at most.

        Raises SourceError where a partition cannot be read on.
        """
        found: dict[str, list[RelationChange]] = {}
        try:
            messages = self._consumer.consume(_TOGETHER, _WAIT)
        except self._kafka.KafkaException as error:
            raise self._error(str(error)) from error
        for message in messages:
            if (wrong := message.error()) is not None:
                if wrong.code() == self._kafka.KafkaError._PARTITION_EOF:
                    continue
                raise self._error(wrong.str())
            change = self._change(message)
            if change is not None:
                found.setdefault(source_name(self._options, message.partition() or 0), []).append(change)
        yield from found.items()

    def _change(self, message: Any) -> RelationChange | None:
        self._counts["messages"] += 1
        offset, value = message.offset(), message.value()
        if value is None:
            self._counts["messages without a value"] += 1
            return None
        try:
            if self._options.relation:
                row = self._rows.decode(value)
                check_row(row)
                return RelationChange(offset + 1, self._options.relation, "+", row)
            line = self._changes.decode(value)
            check_row(line.row)
            return RelationChange(offset + 1, line.stream, line.op, line.row, True, line.time)
        except (msgspec.DecodeError, ValueError) as error:
            place = f"{self._options.name}[{message.partition()}]@{offset}"
            self._problems.add("malformed message", place, f"{error}: {shown(value)}")
            return None

    def _partitions(self, positions: dict[str, int]) -> list[Any]:
        kafka = self._kafka
        found = self._consumer.list_topics(self._topic, timeout=_PATIENCE).topics[self._topic]
        if found.error is not None or not found.partitions:
            why = "it has no partitions" if found.error is None else found.error.str()
            raise self._error(why)
        partitions = []
        for number in sorted(found.partitions):
            partition = kafka.TopicPartition(self._topic, number)
            low, high = self._consumer.get_watermark_offsets(partition, timeout=_PATIENCE)
            begin = low if self._options.start == "earliest" else high
            taken = positions.setdefault(source_name(self._options, number), begin)
            if taken < low:
                place = f"{self._options.name}[{number}]"
                self._problems.add("messages lost", place, f"offsets {taken} to {low - 1} are gone")
            partition.offset = max(taken, low)
            partitions.append(partition)
        return partitions

    def _error(self, what: str) -> SourceError:
        return SourceError(f"{self._options.name}: cannot be read: {what}")


def source_name(options: TopicOptions, partition: int) -> str:
    """What a partition's changes are logged under."""
    return f"{options.name}[{partition}]"
