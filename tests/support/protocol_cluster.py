"""A simulated cluster whose messages wait until the test delivers them."""

from collections.abc import Iterable, Sequence

from protocol_schedules import check
from protocol_simulation import Setting, Simulation, Step
from toy_stages import ToyProgram

from orderbook.engine.protocol.messages import SPECULATIVE, SWITCHES, Address, Message, Mode, RowsMessage
from orderbook.engine.protocol.switch import RowChange


class _Held:
    """A network that delivers nothing by itself."""

    next = None

    def __init__(self) -> None:
        self.messages: list[Message] = []

    def send(self, now: int, messages: Iterable[Message]) -> None:
        self.messages += messages


class Cluster(Simulation):
    """Epochs last 1000; every axis has so many partitions."""

    def __init__(
        self,
        program: ToyProgram,
        partitions: int = 1,
        switches: int = 2,
        mode: Mode = SPECULATIVE,
        log_limit: int = 0,
    ):
        sizes = [[partitions] * len(s.axes) for s in program.distribution.stages]
        setting = Setting(program.distribution, program.factory, sizes, switches, mode, 1000, log_limit)
        super().__init__(setting, program.dictionary)
        self.program, self._network = program, _Held()  # type: ignore[assignment]

    @property
    def waiting(self) -> list[Message]:
        return self._network.messages  # type: ignore[attr-defined, no-any-return]

    def say(self, switch: int, clock: int, *event: RowChange) -> None:
        """A switch sends one event."""
        self.step(Step(clock, switch, clock, (event,)))

    def hand(self, receiver: Address | None = None, sender: Address | None = None) -> list[Message]:
        """Delivers, one by one in the order they were sent, what waits now; all of it or of one pair."""
        chosen = [m for m in self.waiting if receiver in (None, m.receiver) and sender in (None, m.sender)]
        for message in chosen:
            self.waiting.remove(message)
        for message in chosen:
            self.deliver(message.receiver, [message])
        return chosen

    def settle(self) -> list[Message]:
        """Delivers until nothing waits."""
        delivered: list[Message] = []
        while self.waiting:
            delivered += self.hand()
        return delivered

    def finish(self, stamp: int = 2000) -> None:
        """All switches say so late a time; the end must be as serial execution."""
        for switch in range(len(self.switches)):
            self.step(Step(stamp, switch, stamp))
        self.settle()
        check(self, self.program)

    def rows(self, view: str) -> list[tuple[int, int, int]]:
        """Stamp, key and value of the tentative history of a toy's view."""
        found = self.sink.tentative().get(view)
        return [] if found is None else [(row[0], row[-2], row[-1]) for row in found.tolist()]


def insert(relation: str, *values: int) -> RowChange:
    return RowChange(relation, False, values)


def delete(relation: str, *values: int) -> RowChange:
    return RowChange(relation, True, values)


def switch(number: int) -> Address:
    return Address(SWITCHES, number)


def retracting(messages: Sequence[Message]) -> set[tuple[int, int]]:
    """From which stage to which something was taken back."""
    return {
        (m.sender.stage, m.receiver.stage) for m in messages if isinstance(m, RowsMessage) and m.retracted
    }
