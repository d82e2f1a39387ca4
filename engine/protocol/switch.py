"""A switch: stamps events, sends blocks of them to the nodes that need them, and ends epochs."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from orderbook.core.run_clock import Epoch
from orderbook.engine.distribution.blocks import VERSION, Block, parted
from orderbook.engine.protocol.messages import (
    SPECULATIVE,
    SWITCHES,
    Address,
    Committed,
    DeadLetter,
    EndRequest,
    EpochEnd,
    Message,
    Mode,
    Moment,
    Notice,
    Output,
    Resend,
    Route,
)
from orderbook.engine.protocol.node_logs import SendLog


@dataclass(frozen=True, slots=True)
class RowChange:
    """One row of a relation, encoded as in a ChangeBatch."""

    relation: str
    delete: bool
    values: tuple[int, ...]


# An event is changes at once; a message is events.
Event = Sequence[RowChange]


@dataclass(frozen=True, slots=True)
class SwitchLinks:
    """A switch's place. receivers: the nodes it sends to. readers: for each node, which it sends rows to.

    switches: how many there are.
    """

    number: int
    switches: int
    receivers: tuple[Address, ...]
    readers: dict[Address, tuple[Address, ...]]

    @property
    def address(self) -> Address:
        return Address(SWITCHES, self.number)


@dataclass(frozen=True, slots=True)
class SwitchState:
    """A switch between two calls, without messages that it would send again.

    numbers: of the last message to each of the receivers of its links, in their order. promised: everything
    below this stamp is stamped. sequence, dispatches: how many events and dispatches there were. ends: where
    epochs end, from the one whose marker was sent last, `marked`. asked: the last one whose end is asked for.
    """

    numbers: tuple[int, ...]
    promised: int
    sequence: int
    dispatches: int
    ends: dict[int, int]
    marked: int
    asked: int


class Switch:
    """One switch. Its send log is what survives: nodes that start again are sent it again.

    length: ns that an epoch lasts at least, unless a node asks for its end.
    """

    def __init__(
        self, links: SwitchLinks, route: Route, length: int, mode: Mode = SPECULATIVE, resends: bool = True
    ):
        self.links, self.mode = links, mode
        self.sent = SendLog(links.address, links.receivers, resends)
        # Everything below is stamped already.
        self.promised = 0
        self._route, self._length = route, length
        self._sequence = self._dispatches = 0
        # Where epochs end, from the last one whose marker was sent; that one; the last one asked for.
        self._ends: dict[int, int] = {0: 0}
        self._marked = self._asked = 0

    def stamp(self, message: Sequence[Event], clock: int) -> list[Block]:
        """The rows of one message, stamped with the time (ns, never going back), by relation."""
        stamp = max(clock, self.promised)
        last = self._sequence + len(message)
        rows: dict[str, list[tuple[tuple[int, ...], RowChange]]] = {}
        for event in message:
            self._sequence += 1
            for part, change in enumerate(event):
                version = (stamp, self.links.number, part, self._sequence, last)
                rows.setdefault(change.relation, []).append((version, change))
        return [_block(relation, found) for relation, found in rows.items()]

    def send(self, blocks: Sequence[Block]) -> list[Message | Output]:
        """Sends stamped rows, whole messages of this switch in their order.

        Rows with stamps below what was promised are given out as dead, and sent nowhere.
        """
        late, blocks = parted(blocks, self.promised)
        own = self.links.address
        out: list[Message | Output] = [DeadLetter(own, own, tuple(late))] if late else []
        if blocks:
            self.promised = max(int(b.versions["stamp"][-1]) for b in blocks)
            out += self._dispatch(blocks)
        return out + self._epochs()

    def promise(self, stamp: int) -> list[Message | Output]:
        """Nothing below `stamp` will come; a switch that has nothing to send says so too."""
        out: list[Message | Output] = []
        if stamp > self.promised:
            self.promised = stamp
            if self.mode.barriers:
                promise = (stamp, self.links.number, -1)
                out += [self.sent.rows(r, promise=promise) for r in self.links.receivers]
        return out + self._epochs()

    def receive(self, messages: Iterable[Message]) -> list[Message | Output]:
        """Takes messages in and returns those to send."""
        out: list[Message | Output] = []
        for message in messages:
            match message:
                case EpochEnd():
                    if message.epoch.number > self._marked:
                        self._ends[message.epoch.number] = message.epoch.end
                case EndRequest():
                    out += self._ask(message)
                case Committed():
                    self.sent.acknowledged(message.sender, message.through, message.life)
                case Resend():
                    out += self.sent.unacknowledged(message.sender)
                case _:
                    raise ValueError(f"{self.links.address} got a message for nodes: {message}")
        return out + self._epochs()

    def save(self) -> SwitchState:
        """What another switch of the same links goes on from, which resends nothing of before."""
        numbers = tuple(self.sent.numbers[receiver] for receiver in self.links.receivers)
        counts = self._sequence, self._dispatches
        return SwitchState(numbers, self.promised, *counts, dict(self._ends), self._marked, self._asked)

    def load(self, state: SwitchState) -> None:
        """Goes on from what was saved."""
        self.sent.numbers = dict(zip(self.links.receivers, state.numbers, strict=True))
        self.promised, self._sequence, self._dispatches = state.promised, state.sequence, state.dispatches
        self._ends, self._marked, self._asked = dict(state.ends), state.marked, state.asked

    def _dispatch(self, blocks: Sequence[Block]) -> list[Message | Output]:
        parts: dict[Address, list[Block]] = {}
        for found in blocks:
            for receiver, part in self._route(found):
                parts.setdefault(receiver, []).append(part)
        promise, receivers = None, sorted(parts)
        if self.mode.barriers:
            stamp, switch, last = max(_last(b) for b in blocks)
            promise, receivers = (stamp, switch, last + 1), sorted(self.links.receivers)
        notices = self._notices(blocks, parts.keys()) if self.mode.notices else {}
        return [
            self.sent.rows(r, tuple(parts.get(r, ())), promise=promise, notice=notices.get(r))
            for r in sorted({*receivers, *notices})
        ]

    def _notices(self, blocks: Sequence[Block], direct: Iterable[Address]) -> dict[Address, Notice]:
        """For every node that these rows reach, at once or through others, what it is to wait for."""
        self._dispatches += 1
        reached, waiting = set(direct), sorted(direct)
        while waiting:
            found = set(self.links.readers[waiting.pop()]) - reached
            reached |= found
            waiting += sorted(found)
        first, last = min(_first(b) for b in blocks), max(_last(b) for b in blocks)
        notice = Notice(self.links.number, self._dispatches, first, last)
        awaits = {
            node: tuple(sorted(other for other in reached if node in self.links.readers[other]))
            for node in reached
        }
        return {node: replace(notice, awaits=awaited) for node, awaited in awaits.items()}

    def _ask(self, request: EndRequest) -> list[Message | Output]:
        """Notes a request where this switch holds the token of that epoch, else passes it on."""
        holder = (request.epoch - 1) % self.links.switches
        if holder == self.links.number:
            self._asked = max(self._asked, request.epoch)
            return []
        return [replace(request, receiver=Address(SWITCHES, holder))]

    def _epochs(self) -> list[Message | Output]:
        """Ends the epoch where this switch has the token, and sends the markers that are due."""
        out: list[Message | Output] = []
        number = self._marked
        while number + 1 in self._ends:
            number += 1
        holds = number % self.links.switches == self.links.number
        if holds and self._is_over(number + 1, self._ends[number]):
            epoch = Epoch(number + 1, self.links.number, self.promised)
            self._ends[epoch.number] = epoch.end
            others = [n for n in range(self.links.switches) if n != self.links.number]
            out += [EpochEnd(self.links.address, Address(SWITCHES, n), epoch) for n in others]
        while (end := self._ends.get(self._marked + 1)) is not None and end <= self.promised:
            del self._ends[self._marked]
            self._marked += 1
            out += [self.sent.marker(r, self._marked, end) for r in self.links.receivers]
        return out

    def _is_over(self, number: int, start: int) -> bool:
        if self._asked >= number:
            return self.promised > start
        return self.promised >= start + self._length


def _block(relation: str, rows: Sequence[tuple[tuple[int, ...], RowChange]]) -> Block:
    return Block(
        relation,
        np.array([version for version, _ in rows], VERSION),
        np.array([change.delete for _, change in rows], bool),
        np.array([change.values for _, change in rows], np.int64),
    )


def _first(block: Block) -> Moment:
    return _moment(block, 0)


def _last(block: Block) -> Moment:
    return _moment(block, -1)


def _moment(block: Block, place: int) -> Moment:
    stamp, switch, _, _, last = block.versions[place].item()
    return stamp, switch, last
