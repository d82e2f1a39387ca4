"""One batch of one node: found in memory or made from what is stored, given its messages, and stored."""

import secrets
from collections import OrderedDict
from collections.abc import Iterable, Iterator

from engine.protocol.messages import Address
from orderbook.streaming.coding import travellers
from orderbook.streaming.node_store import Head, LiveNode, NodeState, Taken, loaded, store
from orderbook.streaming.plan import StreamSettings, plan_of
from orderbook.streaming.travel import Traveller

# Nodes that a process keeps between batches.
_MOST_KEPT = 256

_kept: OrderedDict[tuple[str, int, Address], LiveNode] = OrderedDict()


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

    A node that the process has kept is used where what is stored has come of it: tasks of one node go from
    process to process, so that it often has a batch or two to take in first.
    """
    plan, address = plan_of(settings), Address(*node)
    place = (settings.job.folder, settings.generation, address)
    head, live = Head.of(state), _kept.pop(place, None)
    if live is None or not live.catch_up(plan, head, state):
        live = loaded(plan, address, head, state)
    own = Taken.of(taken, live.node)
    sent = list(travellers(plan, own.by(plan, live.node)))
    store(plan, live, head, own, secrets.token_hex(8), state)
    _kept[place] = live
    while len(_kept) > _MOST_KEPT:
        _kept.popitem(last=False)
    return iter(sent)
