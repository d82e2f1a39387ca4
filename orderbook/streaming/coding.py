"""Messages of the protocol and outputs of nodes as travellers, and back.

`rows`: `bytes` are the blocks asserted, `more` those retracted. `marker`: `epoch` and `end`. Outputs:
`tentative`: `bytes` are the tables of the views, `more` the versions that they replace. `final`: `epoch`,
`end`, and in `bytes` the files that the node has written. `dead`: a table. `request`: `epoch`.
"""

from collections.abc import Iterable, Iterator

from engine.distribution.ipc import decode_blocks, encode_blocks
from engine.protocol.messages import (
    SWITCHES,
    Address,
    DeadLetter,
    EndRequest,
    Final,
    Life,
    Marker,
    Message,
    Output,
    Rows,
    Tentative,
)
from orderbook.block_log import Entry, decoded
from orderbook.streaming import outputs
from orderbook.streaming.plan import StreamPlan
from orderbook.streaming.travel import DEAD, FINAL, MARKER, REQUEST, ROWS, TENTATIVE, Traveller

# What carries messages loses none and needs no node to start again: each has one life.
_LIFE = Life(0, 0)


def routed(plan: StreamPlan, entry: Entry) -> Iterator[Traveller]:
    """A switch's message to every node that hears switches, each with the number that it has in the log."""
    if entry.epoch:
        for node in plan.first:
            yield Traveller(*node, MARKER, SWITCHES, entry.switch, entry.number, entry.epoch, entry.end)
        return
    parts: dict[Address, list] = {}
    for block in decoded(entry, plan.words):
        for receiver, part in plan.wiring.route(block):
            parts.setdefault(receiver, []).append(part)
    for node in plan.first:
        found = parts.get(node)
        data = b"" if not found else bytes(encode_blocks(found, plan.streams(node.stage), plan.words))
        yield Traveller(*node, ROWS, SWITCHES, entry.switch, entry.number, bytes=data)


def message_of(plan: StreamPlan, traveller: Traveller) -> Rows | Marker:
    """Raises DataError where the bytes are damaged."""
    one = traveller
    sender, receiver = Address(*one.sender), Address(*one.node)
    if one.kind == MARKER:
        return Marker(sender, receiver, _LIFE, one.number, one.epoch, one.end)
    asserted, retracted = (
        tuple(decode_blocks(data, plan.words)) if data else () for data in (one.bytes, one.more)
    )
    return Rows(sender, receiver, _LIFE, one.number, asserted, retracted)


def travellers(plan: StreamPlan, messages: Iterable[Message | Output]) -> Iterator[Traveller]:
    """What a node sends and gives out; files that it writes stand before what names them leaves."""
    for message in messages:
        match message:
            case Rows():
                yield traveller_of(plan, message)
            case Marker():
                place = (*message.receiver, MARKER, *message.sender)
                yield Traveller(*place, message.number, message.epoch, message.end)
            case Tentative():
                tables, versions = outputs.tables(plan, message.blocks), message.versions.tobytes()
                yield Traveller.output(TENTATIVE, message.sender, bytes=tables, more=versions)
            case Final():
                files, epoch, end = outputs.files(plan, message.blocks), message.epoch, message.end
                yield Traveller.output(FINAL, message.sender, epoch=epoch, end=end, bytes=files)
            case DeadLetter():
                yield Traveller.output(DEAD, message.sender, bytes=outputs.dead(plan, message))
            case EndRequest():
                yield Traveller.output(REQUEST, message.sender, epoch=message.epoch)
            case _:
                raise ValueError(f"nothing carries {message}")


def traveller_of(plan: StreamPlan, message: Rows) -> Traveller:
    """A message of rows."""
    texts = plan.streams(message.receiver.stage)
    asserted, retracted = (
        bytes(encode_blocks(blocks, texts, plan.words)) if blocks else b""
        for blocks in (message.asserted, message.retracted)
    )
    place = (*message.receiver, ROWS, *message.sender)
    return Traveller(*place, message.number, bytes=asserted, more=retracted)
