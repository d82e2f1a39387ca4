"""One batch of one node: its state read or found in memory, messages taken in, and what changed written."""

import pickle
import secrets
from collections import OrderedDict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Protocol

from engine.distribution.ipc import decode_blocks, encode_blocks
from engine.protocol.messages import Address, Rows
from engine.protocol.node import Node, Settings
from engine.protocol.saved import Key, Saved, Tracker
from orderbook.streaming.coding import message_of, traveller_of, travellers
from orderbook.streaming.plan import StreamPlan, StreamSettings, plan_of
from orderbook.streaming.travel import ROWS, Traveller

# What carries rows delivers them again itself, and gives back the state that goes with them.
_RESENDS = False
# Nodes that a process keeps between batches.
_MOST_KEPT = 256


class NodeState(Protocol):
    """The stored state of one node as of the last batch; what is written counts when the batch does.

    `mark` names what was written last. `received` are uncommitted messages by sender's stage, sender's
    partition and number.
    """

    def mark(self) -> str | None:
        """None: nothing was ever written."""

    def status(self) -> bytes: ...

    def base(self) -> bytes | None: ...

    def received(self) -> Iterable[tuple[tuple[int, int, int], tuple[bytes, bytes]]]:
        """By message, its blocks asserted and retracted."""

    def write(
        self,
        mark: str,
        status: bytes,
        base: bytes | None,
        added: Iterable[tuple[tuple[int, int, int], tuple[bytes, bytes]]],
        dropped: Iterable[tuple[int, int, int]],
    ) -> None:
        """`base` None: as it was."""


@dataclass(slots=True)
class _Live:
    """A node in memory, as of the stored state of that mark."""

    mark: str
    node: Node
    tracker: Tracker


_kept: OrderedDict[tuple[str, int, Address], _Live] = OrderedDict()


def forget() -> None:
    """Keep no nodes, as a new process does."""
    _kept.clear()


def run_level(
    settings: StreamSettings, level: int, node: tuple[int, int], taken: Iterable[Traveller], state: NodeState
) -> Iterator[Traveller]:
    """What becomes of all that was sent to one receiver: nodes of the level take it in, the rest passes."""
    links = plan_of(settings).nodes.get(Address(*node))
    if links is None or links.depth != level:
        return iter(taken)
    return run_node(settings, node, taken, state)


def run_node(
    settings: StreamSettings, node: tuple[int, int], taken: Iterable[Traveller], state: NodeState
) -> Iterator[Traveller]:
    """Gives a node what was sent to it; what it sends and gives out. Raises OrderbookError.

    A node that the process has kept is used only where its mark is that of the stored state: a batch that is
    done again, or here after it was elsewhere, begins from what was stored.
    """
    plan, address = plan_of(settings), Address(*node)
    place = (settings.job.folder, settings.generation, address)
    live = _kept.pop(place, None)
    if live is None or live.mark != state.mark():
        live = _loaded(plan, address, state)
    # In an order of their own, so that a task done again sends the same, whatever order rows come in.
    messages = sorted(taken, key=lambda one: (one.sender_stage, one.sender_partition, one.number))
    sent = list(travellers(plan, live.node.receive([message_of(plan, one) for one in messages])))
    live.mark = secrets.token_hex(8)
    _write(plan, live, state)
    _kept[place] = live
    while len(_kept) > _MOST_KEPT:
        _kept.popitem(last=False)
    return iter(sent)


def _loaded(plan: StreamPlan, address: Address, state: NodeState) -> _Live:
    links, factory = plan.nodes[address], plan.factory(address.stage)
    how = Settings(resends=_RESENDS, log_limit=plan.settings.log_limit)
    if state.mark() is None:
        tracker = Tracker()
        return _Live("", Node(links, factory, plan.wiring.route, how), tracker)
    status, outputs = pickle.loads(state.status())
    received: dict[Key, Rows] = {}
    for (stage, partition, number), blocks in state.received():
        stored = Traveller(*address, ROWS, stage, partition, number, bytes=blocks[0], more=blocks[1])
        message = message_of(plan, stored)
        assert isinstance(message, Rows)
        received[Address(stage, partition), number] = message
    sent = None if outputs is None else tuple(decode_blocks(outputs, plan.words))
    saved = Saved(state.base(), status, received, {}, sent)
    return _Live("", Node(links, factory, plan.wiring.route, how, saved), Tracker.of(saved))


def _write(plan: StreamPlan, live: _Live, state: NodeState) -> None:
    changed = live.tracker.changed(live.node)
    outputs = None
    if changed.outputs is not None:
        texts = plan.outputs(live.node.links.address.stage)
        outputs = bytes(encode_blocks([b for b in changed.outputs if len(b)], texts, plan.words))
    status = pickle.dumps((changed.status, outputs), pickle.HIGHEST_PROTOCOL)
    added = []
    for (sender, number), message in changed.received_added.items():
        stored = traveller_of(plan, message)
        added.append(((*sender, number), (stored.bytes, stored.more)))
    dropped = [(*sender, number) for sender, number in changed.received_dropped]
    state.write(live.mark, status, changed.base, added, dropped)
