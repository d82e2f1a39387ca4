"""A topic of Kafka as a target: a message for every change of a view's row.

The message's key is the row's, as a JSON array, so that the changes of a row stay in order in one partition.
Its value is a JSON object: `view`, `version` ([stamp, switch, seq]), `op`, `key`, `row` (null of a delete).
Headers `version` and `op` say the same without reading it. NaN and infinities are texts, times are ns.

A message that a reader has seen comes again after a crash, with the same version: of a row it drops what is
not later than what it has.
"""

import threading
from collections.abc import Mapping, Sequence
from typing import Any

from orderbook.core.errors import extra
from orderbook.feeds.kafka_topic import topic_address
from orderbook.sinks.outbox import RowChange, SinkError, encode_json, json_value, key_text

# Seconds between two looks at whether it is to end, and until an open connection must be there.
_LOOK, _PATIENCE = 0.2, 5.0


class KafkaTopic:
    """See Target. `properties` are librdkafka's; `keys` are the columns of the view's keys."""

    def __init__(self, address: str, view: str, keys: Sequence[str], properties: Mapping[str, str]) -> None:
        with extra("kafka", "confluent_kafka"):
            import confluent_kafka
        self._kafka: Any = confluent_kafka
        brokers, self._topic = topic_address(address)
        self._view, self._keys = view, tuple(keys)
        self._properties = {
            "client.id": "orderbook",
            "acks": "all",
            "enable.idempotence": True,
            "linger.ms": 5,
            # Messages are never given up, so that later ones do not overtake them.
            "message.timeout.ms": 0,
            # What is wrong is said where it is tried again.
            "log_level": 2,
            **({"bootstrap.servers": brokers} if brokers else {}),
            **properties,
        }
        self._producer: Any = None
        self._ended = threading.Event()
        self._confirmed = 0
        self._errors: list[str] = []

    def open(self) -> None:
        """See Target."""
        if self._producer is not None:
            return
        try:
            producer = self._kafka.Producer(self._properties)
            producer.list_topics(self._topic, timeout=_PATIENCE)
        except (self._kafka.KafkaException, ValueError) as error:
            raise self._broken(str(error)) from error
        self._producer = producer

    def write(self, changes: list[RowChange]) -> None:
        """See Target; returns when the brokers have confirmed all."""
        self._confirmed, self._errors = 0, []
        producer = self._producer
        try:
            for change in changes:
                self._produce(producer, change)
            waited = 0.0
            while self._confirmed < len(changes) and not self._errors:
                before = self._confirmed
                producer.poll(_LOOK)
                waited = 0.0 if self._confirmed > before else waited + _LOOK
                if self._ended.is_set() and waited > _PATIENCE:
                    raise self._broken("the brokers do not confirm what they were sent")
        except self._kafka.KafkaException as error:
            raise self._broken(str(error)) from error
        if self._errors:
            raise self._broken(self._errors[0])

    def end(self) -> None:
        """The run ends: nothing is waited for any longer than a few seconds."""
        self._ended.set()

    def close(self) -> None:
        """See Target."""
        producer, self._producer = self._producer, None
        if producer is not None:
            producer.purge()
            producer.flush(_LOOK)

    def _produce(self, producer: Any, change: RowChange) -> None:
        version = ",".join(map(str, change.version))
        headers = [("version", version.encode()), ("op", change.op.encode())]
        key, value = key_text(change.key).encode(), self._value(change)
        while True:
            try:
                producer.produce(self._topic, value, key, headers=headers, on_delivery=self._note)
                producer.poll(0)
                return
            except BufferError:
                producer.poll(_LOOK)
                if self._ended.is_set():
                    raise self._broken("the brokers are behind") from None

    def _value(self, change: RowChange) -> bytes:
        gone = change.op == "delete"
        value: dict[str, Any] = {
            "view": self._view,
            "version": change.version,
            "op": change.op,
            "key": {n: json_value(one) for n, one in zip(self._keys, change.key, strict=True)},
            "row": None if gone else {name: json_value(one) for name, one in change.row.items()},
        }
        if change.multiplicity != 1:
            value["multiplicity"] = change.multiplicity
        return encode_json(value)

    def _note(self, error: Any, message: Any) -> None:
        if error is not None:
            self._errors.append(error.str())
        else:
            self._confirmed += 1

    def _broken(self, what: str) -> SinkError:
        """A producer with messages that failed is given up: another sends them all again, in their order."""
        self.close()
        return SinkError(f"topic {self._topic}: {what}")
