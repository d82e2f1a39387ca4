"""Nodes without one part of the protocol, each of which seeded schedules must find."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from orderbook.engine.protocol.execution import Execution, Sending
from orderbook.engine.protocol.messages import Moment
from orderbook.engine.protocol.node_logs import Channel, Numbered, ReceiveLog, SendLog, WriteLog
from orderbook.engine.protocol.versioned_rows import Runs, after


def no_write_log(patch: pytest.MonkeyPatch) -> None:
    """What came late is applied after what was executed, as if it had come in time."""
    between = WriteLog.between

    def forgetful(self: WriteLog, first: Moment, end: Moment) -> list[Any]:
        found = between(self, first, end)
        self.truncate(end)
        return found

    patch.setattr(WriteLog, "between", forgetful)


def no_receive_log(patch: pytest.MonkeyPatch) -> None:
    """Nobody notes what came: everything counts as new, and nothing as missing."""

    def accept(self: Channel, message: Numbered) -> bool:
        self.through = 1 << 40
        return message.number > self.settled

    patch.setattr(Channel, "accept", accept)


def no_send_log(patch: pytest.MonkeyPatch) -> None:
    """Nobody notes what was sent: nothing is taken back."""
    compare = Sending._compare

    def forgetful(self: Sending, *arguments: object) -> None:
        self.log.outputs.clear()
        compare(self, *arguments)  # type: ignore[arg-type]

    patch.setattr(Sending, "_compare", forgetful)
    patch.setattr(SendLog, "unacknowledged", lambda self, receiver: iter(()))


def no_corrections(patch: pytest.MonkeyPatch) -> None:
    """What is executed again is kept, but nobody is told."""
    compare = Sending._compare

    def silent(self: Sending, execution: Execution, correct: bool, changes: dict[Any, Any]) -> None:
        execution.corrected = None
        compare(self, execution, False, changes)
        if self.head is not None:
            for source, rows in execution.operation.outputs.items():
                self.log.outputs[source] = said = Runs()
                said.extend(rows.between(end=after(self.head)))

    patch.setattr(Sending, "_compare", silent)


def no_epoch_barrier(patch: pytest.MonkeyPatch) -> None:
    """An epoch commits as soon as one sender has ended it."""

    def end_of(self: ReceiveLog, epoch: int) -> int | None:
        ends = (channel.end_of(epoch) for channel in self.channels.values())
        return next((end for end in ends if end is not None), None)

    def truncate(self: Channel, epoch: int) -> None:
        if epoch in self.markers:
            whole(self, epoch)

    whole = Channel.truncate
    patch.setattr(ReceiveLog, "end_of", end_of)
    patch.setattr(Channel, "truncate", truncate)


MUTATIONS = {
    "write log": no_write_log,
    "receive log": no_receive_log,
    "send log": no_send_log,
    "corrections": no_corrections,
    "epoch barrier": no_epoch_barrier,
}


@contextmanager
def without(part: str) -> Iterator[None]:
    """While it lasts, nodes lack a part."""
    with pytest.MonkeyPatch.context() as patch:
        MUTATIONS[part](patch)
        yield
