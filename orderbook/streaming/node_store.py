"""What is stored of a node: a snapshot now and then, and what it was sent in every batch since.

A node that takes in again what it took in after the snapshot is what it was, so a batch costs what came in
it, and not what the node holds.
"""

import pickle
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

import msgspec

from engine.distribution.ipc import decode_blocks, encode_blocks
from engine.protocol.messages import Address, Message, Output, Rows
from engine.protocol.node import Node, Settings
from engine.protocol.saved import Saved
from orderbook.streaming.coding import message_of, traveller_of
from orderbook.streaming.plan import StreamPlan
from orderbook.streaming.travel import Traveller

# What carries rows delivers them again itself, and gives back the state that goes with them.
_RESENDS = False
# About what an entry of an engine, and an uncommitted row, take in a snapshot.
_ENTRY_BYTES, _ROW_BYTES = 40, 40
# A node with more entries waits rather than go back to its last commit, which copies them all.
_DEAR_ENTRIES = 50_000
# Batches since a snapshot, at most: a node that is read takes all of them in again.
_MOST_BATCHES = 128


class NodeState(Protocol):
    """The stored state of one node as of the last batch; what is written counts when the batch does.

    A piece is a snapshot, or what came in one batch, under a number; the head says which there are.
    """

    def head(self) -> bytes | None:
        """None: nothing was ever written."""

    def piece(self, number: int) -> bytes: ...

    def write(self, head: bytes, number: int, piece: bytes, dropped: Iterable[int]) -> None:
        """Replaces the head, adds a piece and forgets some."""


class Head(msgspec.Struct, frozen=True):
    """marks: a random name for the snapshot, of number `first`, and for each batch after it.

    first is -1 where there is no snapshot, and a node begins empty. bytes: of all pieces after the snapshot.
    """

    first: int = -1
    marks: tuple[str, ...] = ("",)
    bytes: int = 0

    @classmethod
    def of(cls, state: NodeState) -> "Head":
        """As it was written last."""
        data = state.head()
        return cls() if data is None else msgspec.msgpack.decode(data, type=cls)

    @property
    def last(self) -> int:
        """The number of the last piece."""
        return self.first + len(self.marks) - 1

    def after(self, number: int, mark: str) -> range | None:
        """The pieces that a node of that number and mark has not taken in; None: it is another node."""
        place = number - self.first
        known = 0 <= place < len(self.marks) and self.marks[place] == mark
        return range(number + 1, self.last + 1) if known else None


@dataclass(frozen=True, slots=True)
class Taken:
    """What a node takes in at once, in this order; hold: see Node.receive."""

    messages: Sequence[Traveller]
    hold: bool

    @classmethod
    def of(cls, messages: Iterable[Traveller], node: Node) -> "Taken":
        """What is sent to a node in a batch, in an order that a task done again gives too."""
        found = sorted(messages, key=lambda one: (*one.sender, one.number))
        return cls(found, node.execution.size() > _DEAR_ENTRIES)

    @classmethod
    def read(cls, piece: bytes) -> "Taken":
        """As `written` gave it."""
        hold, messages = pickle.loads(piece)
        return cls([Traveller(*values) for values in messages], hold)

    def written(self) -> bytes:
        """As a piece."""
        return pickle.dumps((self.hold, [one.values for one in self.messages]), pickle.HIGHEST_PROTOCOL)

    def by(self, plan: StreamPlan, node: Node) -> list[Message | Output]:
        """Lets the node take it in; what it sends and gives out. Raises OrderbookError."""
        return node.receive([message_of(plan, one) for one in self.messages], self.hold)


@dataclass(slots=True)
class LiveNode:
    """A node in memory, as of the piece `number` of that mark."""

    node: Node
    number: int
    mark: str

    def catch_up(self, plan: StreamPlan, head: Head, state: NodeState) -> bool:
        """Takes in what it lacks; False: it cannot become what is stored."""
        missing = head.after(self.number, self.mark)
        if missing is None:
            return False
        for number in missing:
            # What it sends and gives out was sent and given out when that batch was done.
            Taken.read(state.piece(number)).by(plan, self.node)
        self.number, self.mark = head.last, head.marks[-1]
        return True


def loaded(plan: StreamPlan, address: Address, head: Head, state: NodeState) -> LiveNode:
    """The node as it is stored, a fresh one where nothing is. Raises OrderbookError."""
    links, factory = plan.nodes[address], plan.factory(address.stage)
    saved = None if head.first < 0 else _saved(plan, address, state.piece(head.first))
    how = Settings(resends=_RESENDS, log_limit=plan.settings.log_limit)
    live = LiveNode(Node(links, factory, plan.wiring.route, how, saved), head.first, head.marks[0])
    live.catch_up(plan, head, state)
    return live


def store(
    plan: StreamPlan, live: LiveNode, head: Head, taken: Taken, mark: str, state: NodeState
) -> None:
    """Writes what a node of that head has become by what it took in."""
    number = head.last + 1
    piece = taken.written()
    size = head.bytes + len(piece)
    live.number, live.mark = number, mark
    if size < _snapshot_bytes(live.node) and len(head.marks) <= _MOST_BATCHES:
        now, dropped = Head(head.first, (*head.marks, mark), size), range(0)
    else:
        piece = _snapshot(plan, live.node)
        now, dropped = Head(number, (mark,)), range(max(0, head.first), number)
    state.write(msgspec.msgpack.encode(now), number, piece, dropped)


def _snapshot_bytes(node: Node) -> int:
    """What a snapshot would take, about."""
    return _ENTRY_BYTES * node.execution.size() + _ROW_BYTES * len(node.execution.write)


def _snapshot(plan: StreamPlan, node: Node) -> bytes:
    saved, texts, outputs = node.save(), plan.outputs(node.links.address.stage), None
    if saved.outputs is not None:
        outputs = bytes(encode_blocks([b for b in saved.outputs if len(b)], texts, plan.words))
    received = [traveller_of(plan, message).values for message in saved.received.values()]
    return pickle.dumps((saved.base, saved.status, received, outputs), pickle.HIGHEST_PROTOCOL)


def _saved(plan: StreamPlan, address: Address, piece: bytes) -> Saved:
    base, status, received, outputs = pickle.loads(piece)
    messages = {}
    for values in received:
        message = message_of(plan, Traveller(*values))
        assert isinstance(message, Rows)
        messages[message.sender, message.number] = message
    sent = None if outputs is None else tuple(decode_blocks(outputs, plan.words))
    return Saved(base, status, messages, {}, sent)
