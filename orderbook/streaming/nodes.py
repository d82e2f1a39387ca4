"""One batch of one node: found in memory or made from what is stored, given its messages, and stored.

What is stored of a node is a snapshot now and then, and what it was sent in every batch since. A node that
takes in again what it took in after the snapshot is what it was, so a batch costs what came in it, and not
what the node holds.

For programs of more levels than are chained as operators of Spark, the states are files of a stream's own,
with a listing of those that count.
"""

import pickle
import secrets
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import msgspec

from orderbook.core.errors import SourceError
from orderbook.core.files import replace_file
from orderbook.engine.distribution.blocks import decode_blocks, encode_blocks
from orderbook.engine.protocol.messages import Address, Message, Output, RowsMessage
from orderbook.engine.protocol.node import Node, SavedNode, Settings
from orderbook.streaming.encoding import message_of, row_of_message, rows_of_messages
from orderbook.streaming.plan import StreamPlan, StreamSettings, plan_of
from orderbook.streaming.shuffle import ShuffleRow

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
class NodeInput:
    """What a node takes in at once, in this order; hold: see Node.receive."""

    messages: Sequence[ShuffleRow]
    hold: bool

    @classmethod
    def of(cls, messages: Iterable[ShuffleRow], node: Node) -> "NodeInput":
        """What is sent to a node in a batch, in an order that a task done again gives too."""
        found = sorted(messages, key=lambda one: (*one.sender, one.number))
        return cls(found, node.execution.size() > _DEAR_ENTRIES)

    @classmethod
    def read(cls, piece: bytes) -> "NodeInput":
        """As `written` gave it."""
        hold, messages = pickle.loads(piece)
        return cls([ShuffleRow(*values) for values in messages], hold)

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
            NodeInput.read(state.piece(number)).by(plan, self.node)
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
    plan: StreamPlan, live: LiveNode, head: Head, taken: NodeInput, mark: str, state: NodeState
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
        outputs = bytes(encode_blocks([b for b in saved.outputs if len(b)], texts, plan.dictionary))
    received = [row_of_message(plan, message).values for message in saved.received.values()]
    return pickle.dumps((saved.base, saved.status, received, outputs), pickle.HIGHEST_PROTOCOL)


def _saved(plan: StreamPlan, address: Address, piece: bytes) -> SavedNode:
    base, status, received, outputs = pickle.loads(piece)
    messages = {}
    for values in received:
        message = message_of(plan, ShuffleRow(*values))
        assert isinstance(message, RowsMessage)
        messages[message.sender, message.number] = message
    sent = None if outputs is None else tuple(decode_blocks(outputs, plan.dictionary))
    return SavedNode(base, status, messages, {}, sent)


_LISTING = "states.json"


class NodeFiles(msgspec.Struct, frozen=True):
    """A node's state: see NodeState; the file of each piece."""

    head: bytes
    pieces: dict[int, str]


class Listing(msgspec.Struct, frozen=True):
    """The states as of a batch (-1: none was done), by node."""

    batch: int = -1
    nodes: dict[str, NodeFiles] = {}

    @classmethod
    def read(cls, folder: Path) -> "Listing":
        """As of the last batch that was done. Raises SourceError where it is damaged."""
        path = folder / _LISTING
        try:
            return msgspec.json.decode(path.read_bytes(), type=cls)
        except FileNotFoundError:
            return cls()
        except (OSError, msgspec.MsgspecError) as error:
            raise SourceError(f"{path}: cannot read: {error}") from None

    def after(self, batch: int, changed: Mapping[str, NodeFiles]) -> "Listing":
        """With the states that a batch has changed."""
        return Listing(batch, {**self.nodes, **changed})

    def write(self, folder: Path) -> None:
        """Replaces the listing as a whole, and removes files that it does not name."""
        replace_file(folder / _LISTING, msgspec.json.encode(self))
        named = {name for node in self.nodes.values() for name in node.pieces.values()}
        for path in folder.iterdir():
            if path.suffix == ".state" and path.name not in named:
                path.unlink(missing_ok=True)


class StoredFiles:
    """See NodeState; a node's state in files. `written`: what they are after a batch, None as before it."""

    def __init__(self, folder: Path, files: NodeFiles | None) -> None:
        self._folder, self._files = folder, files
        self.written: NodeFiles | None = None

    def head(self) -> bytes | None:
        """See NodeState."""
        return None if self._files is None else self._files.head

    def piece(self, number: int) -> bytes:
        """See NodeState. Raises SourceError where it cannot be read."""
        assert self._files is not None
        path = self._folder / self._files.pieces[number]
        try:
            return path.read_bytes()
        except OSError as error:
            raise SourceError(f"{path}: cannot read: {error.strerror or error}") from None

    def write(self, head: bytes, number: int, piece: bytes, dropped: Iterable[int]) -> None:
        """See NodeState."""
        before = {} if self._files is None else self._files.pieces
        name = f"{secrets.token_hex(8)}.state"
        replace_file(self._folder / name, piece)
        gone = set(dropped)
        kept = {one: path for one, path in before.items() if one not in gone}
        self.written = NodeFiles(head, {**kept, number: name})


# Nodes that a process keeps between batches.
_MOST_KEPT = 256

_kept: OrderedDict[tuple[str, int, Address], LiveNode] = OrderedDict()


def forget() -> None:
    """Keep no nodes, as a new process does."""
    _kept.clear()


def run_level(
    settings: StreamSettings, level: int, node: tuple[int, int], taken: Iterable[ShuffleRow], state: NodeState
) -> Iterator[ShuffleRow]:
    """What becomes of all that was sent to one receiver: nodes of the level take it in, the rest passes."""
    links = plan_of(settings).nodes.get(Address(*node))
    if links is None or links.depth != level:
        return iter(taken)
    return run_node(settings, node, taken, state)


def run_node(
    settings: StreamSettings, node: tuple[int, int], taken: Iterable[ShuffleRow], state: NodeState
) -> Iterator[ShuffleRow]:
    """Gives a node what was sent to it; what it sends and gives out. Raises OrderbookError.

    A node that the process has kept is used where what is stored has come of it: tasks of one node go from
    process to process, so that it often has a batch or two to take in first.
    """
    plan, address = plan_of(settings), Address(*node)
    place = (settings.job.folder, settings.generation, address)
    head, live = Head.of(state), _kept.pop(place, None)
    if live is None or not live.catch_up(plan, head, state):
        live = loaded(plan, address, head, state)
    own = NodeInput.of(taken, live.node)
    sent = list(rows_of_messages(plan, own.by(plan, live.node)))
    store(plan, live, head, own, secrets.token_hex(8), state)
    _kept[place] = live
    while len(_kept) > _MOST_KEPT:
        _kept.popitem(last=False)
    return iter(sent)
