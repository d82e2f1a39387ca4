"""A whole cluster in one thread: switches, nodes, a network, and a sink, driven by a list of steps.

The network delays, reorders and repeats messages as one seed says. The sink is what a user of both outputs
sees: tentative rows, replaced version by version, and committed epochs. What must come of it is serial
execution: stage after stage in one partition, over all rows in the order of their versions.
"""

import heapq
import random
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np

from orderbook.core.changes import Dictionary
from orderbook.engine.distribution.blocks import Block
from orderbook.engine.distribution.stages import Distribution, narrowed
from orderbook.engine.protocol.messages import (
    SPECULATIVE,
    SWITCHES,
    Address,
    DeadLetter,
    Final,
    Marker,
    Message,
    Mode,
    OperatorFactory,
    Output,
    RowsMessage,
    Tentative,
)
from orderbook.engine.protocol.node import Node, SavedNode, Settings
from orderbook.engine.protocol.switch import Event, Switch, SwitchLinks
from orderbook.engine.protocol.topology import Wiring
from orderbook.engine.protocol.versioned_rows import FIXED, block, matrix, net


@dataclass(frozen=True, slots=True)
class Faults:
    """delay: ns at most. ordered: pairwise in-order delivery. repeated: how many of a hundred come twice."""

    delay: int = 20
    ordered: bool = False
    repeated: int = 0


class Network:
    """Messages on their way, by the time they arrive; what arrives somewhere at once is given together."""

    def __init__(self, faults: Faults, generator: random.Random):
        self._faults, self._random = faults, generator
        self._waiting: list[tuple[int, Address, int, Message]] = []
        self._sent = 0
        self._latest: dict[tuple[Address, Address], int] = {}

    def send(self, now: int, messages: Iterable[Message]) -> None:
        """Puts messages on their way at time `now`."""
        for message in messages:
            pair = message.sender, message.receiver
            arrival = now + 1 + self._random.randrange(self._faults.delay)
            if self._faults.ordered:
                arrival = self._latest[pair] = max(arrival, self._latest.get(pair, 0))
            self._push(arrival, message)
            if self._faults.repeated and self._random.randrange(100) < self._faults.repeated:
                self._push(arrival + 1 + self._random.randrange(2 * self._faults.delay), message)

    def _push(self, arrival: int, message: Message) -> None:
        self._sent += 1
        # Equal arrivals keep the order of sending, which pairwise order needs.
        heapq.heappush(self._waiting, (arrival, message.receiver, self._sent, message))

    @property
    def next(self) -> int | None:
        """When something arrives next; None: nothing is on its way."""
        return self._waiting[0][0] if self._waiting else None

    def arrive(self) -> tuple[int, Address, list[Message]]:
        """The next arrival: its time, where, and what."""
        time, receiver, _, message = heapq.heappop(self._waiting)
        messages = [message]
        while self._waiting and self._waiting[0][:2] == (time, receiver):
            messages.append(heapq.heappop(self._waiting)[3])
        if not self._faults.ordered:
            self._random.shuffle(messages)
        return time, receiver, messages


# History of views by name: matrices of rows, in order.
Histories = dict[str, np.ndarray]


def serial(
    distribution: Distribution, factory: Callable[[int], OperatorFactory], blocks: Sequence[Block], end: int
) -> Histories:
    """The history of all views where rows come in order; `end` is above all stamps."""
    sources = gathered(blocks)
    views: list[Block] = []
    for place, stage in enumerate(distribution.stages):
        operator = factory(place)(None)
        rows = [narrowed(block(i.source, sources[i.source]), i) for i in stage.inputs if i.source in sources]
        for produced in (operator.apply((), -(2**63)), operator.apply(rows, end)):
            sources |= gathered(produced.outputs)
            views += produced.views
    return gathered(views)


def gathered(blocks: Sequence[Block]) -> Histories:
    """The rows of blocks by source, in order."""
    parts: dict[str, list[np.ndarray]] = {}
    for found in blocks:
        parts.setdefault(found.source, []).append(matrix(found))
    return {source: ordered(np.concatenate(rows)) for source, rows in parts.items() if sum(map(len, rows))}


def ordered(rows: np.ndarray) -> np.ndarray:
    """Rows in order; as often as they are."""
    distinct, counts = net(rows, np.ones(len(rows), np.int64))
    return np.repeat(distinct, counts, axis=0)


def difference_of(expected: Histories, found: Histories) -> str | None:
    """What differs between two histories; None: nothing."""
    for view in sorted(expected.keys() | found.keys()):
        none = np.empty((0, FIXED), np.int64)
        want, have = expected.get(view, none), found.get(view, none)
        if want.shape != have.shape or not np.array_equal(want, have):
            missing = [row for row in want.tolist() if row not in have.tolist()][:5]
            extra = [row for row in have.tolist() if row not in want.tolist()][:5]
            return f"view {view}: {len(want)} rows, not {len(have)}; missing {missing}, too many {extra}"
    return None


_Version = tuple[int, ...]
_Rows = list[tuple[str, tuple[int, ...]]]


@dataclass(slots=True)
class _Node:
    """What one node gave out."""

    life: int = 0
    tentative: dict[_Version, _Rows] = field(default_factory=dict)
    finals: dict[int, Final] = field(default_factory=dict)


class Sink:
    """Takes outputs in the order in which each node gives them, any of them more than once."""

    def __init__(self) -> None:
        self.nodes: dict[Address, _Node] = {}
        self.dead: list[Block] = []

    def take(self, output: Output) -> None:
        """One output of a node or a switch."""
        if isinstance(output, DeadLetter):
            self.dead += output.blocks
            return
        node = self.nodes.setdefault(output.sender, _Node())
        if isinstance(output, Final):
            same = node.finals.setdefault(output.epoch, output)
            assert _same(same, output), f"{output.sender} gave epoch {output.epoch} twice, differently"
            return
        if output.life < node.life:
            return
        if output.life > node.life:
            node.life = output.life
            end = max((final.end for final in node.finals.values()), default=-(2**63))
            node.tentative = {v: rows for v, rows in node.tentative.items() if v[0] < end}
        _replace(node.tentative, output)

    def epoch(self, nodes: int) -> int:
        """The last epoch that all of so many nodes have committed."""
        if len(self.nodes) < nodes:
            return 0
        return min(max(node.finals, default=0) for node in self.nodes.values())

    def committed(self, epoch: int) -> Histories:
        """The history that became final with an epoch."""
        return gathered(
            [b for node in self.nodes.values() if epoch in node.finals for b in node.finals[epoch].blocks]
        )

    def tentative(self) -> Histories:
        """All history as last said."""
        found: dict[str, list[tuple[int, ...]]] = {}
        for node in self.nodes.values():
            for rows in node.tentative.values():
                for view, row in rows:
                    found.setdefault(view, []).append(row)
        return {view: ordered(np.array(rows, np.int64)) for view, rows in found.items()}


def _replace(held: dict[_Version, _Rows], output: Tentative) -> None:
    for version in output.versions.tolist():
        stamp, switch, part, sequence, last = version
        held.pop((stamp, switch, last, sequence, part), None)
    for sent in output.blocks:
        for row in matrix(sent).tolist():
            held.setdefault(tuple(row[:5]), []).append((sent.source, tuple(row)))


def _same(first: Final, second: Final) -> bool:
    one, other = gathered(first.blocks), gathered(second.blocks)
    return one.keys() == other.keys() and all(np.array_equal(one[view], other[view]) for view in one)


@dataclass(frozen=True, slots=True)
class Step:
    """At `time` a switch, whose clock shows `clock`, sends a message; without events it says the time."""

    time: int
    switch: int
    clock: int
    message: Sequence[Event] = ()


@dataclass(frozen=True, slots=True)
class Restart:
    """At `time` a node loses everything since its last commit, and starts again from it."""

    time: int
    node: Address


SERIAL, PIPELINED, BYPASS = Mode(barriers=True), Mode(tick=1), Mode(notices=True)
MODES = {
    "serial": SERIAL,
    "pipelined": PIPELINED,
    "bypass": BYPASS,
    "speculative": SPECULATIVE,
    "buffered": Mode(buffer=4),
    "unsuppressed": Mode(suppress=False),
}


@dataclass(frozen=True, slots=True)
class Setting:
    """What is simulated. length: of epochs, ns. log_limit, resends: see Settings."""

    distribution: Distribution
    factory: Callable[[int], OperatorFactory]
    partitions: Sequence[Sequence[int]]
    switches: int
    mode: Mode = SPECULATIVE
    length: int = 40
    log_limit: int = 0
    resends: bool = True
    faults: Faults = field(default_factory=Faults)
    seed: int = 0


@dataclass(slots=True)
class Counts:
    """What happened. Delays are ns from an event to the last tentative word on it, and to its commit."""

    messages: Counter[str] = field(default_factory=Counter)
    rows: int = 0
    retracted: int = 0
    said: dict[int, int] = field(default_factory=dict)
    settled: dict[int, int] = field(default_factory=dict)
    committed: dict[int, int] = field(default_factory=dict)


def _switch_links(wiring: Wiring, number: int) -> SwitchLinks:
    receivers = tuple(n for n in wiring.nodes() if wiring.hears_switches(n.stage))
    return SwitchLinks(number, wiring.switches, receivers, {n: wiring.receivers(n) for n in wiring.nodes()})


class Simulation:
    """Runs steps until nothing is on its way. `trace`: a line for every message taken, if asked for."""

    def __init__(
        self, setting: Setting, dictionary: Dictionary, node_kind: type[Node] = Node, traced: bool = False
    ):
        self.setting, self._node_kind, self.traced = setting, node_kind, traced
        self.now = 0
        self.trace: list[str] = []
        self.counts, self.sink = Counts(), Sink()
        # All rows that switches were given, and that were in time.
        self.sent: list[Block] = []
        self._network = Network(setting.faults, random.Random(f"network {setting.seed}"))
        self.wiring = Wiring(
            setting.distribution, setting.partitions, setting.switches, dictionary, setting.mode
        )
        self._settings = Settings(setting.mode, setting.resends, setting.log_limit)
        self.nodes = {address: self._node(address) for address in self.wiring.nodes()}
        self.switches = [
            Switch(
                _switch_links(self.wiring, n),
                self.wiring.route,
                setting.length,
                setting.mode,
                setting.resends,
            )
            for n in range(setting.switches)
        ]
        self._saved: dict[Address, SavedNode] = {a: node.save() for a, node in self.nodes.items()}
        for address, node in self.nodes.items():
            self._take(address, node.receive(()))

    def _node(self, address: Address, saved: SavedNode | None = None, life: int = 0) -> Node:
        factory = self.setting.factory(address.stage)
        return self._node_kind(
            self.wiring.links(address), factory, self.wiring.route, self._settings, saved, life
        )

    def run(self, steps: Iterable[Step | Restart]) -> None:
        """Takes steps at their times, and lets everything arrive that was sent."""
        for step in steps:
            self._until(step.time)
            self.now = step.time
            if isinstance(step, Restart):
                self.restart(step.node)
            else:
                self.step(step)
            if self.setting.mode.tick:
                for address, node in self.nodes.items():
                    self._take(address, node.advance(self.now))
        self._until(None)

    def _until(self, time: int | None) -> None:
        while (arrival := self._network.next) is not None and (time is None or arrival <= time):
            self.now, address, messages = self._network.arrive()
            self.deliver(address, messages)

    def deliver(self, address: Address, messages: Sequence[Message]) -> None:
        """Messages arrive somewhere together."""
        if self.traced:
            self.trace += [f"{self.now:5} {address} takes {_told(m)}" for m in messages]
        if address.stage == SWITCHES:
            self._take(address, self.switches[address.partition].receive(messages))
        else:
            self._take(address, self.nodes[address].receive(messages))

    def step(self, step: Step) -> None:
        """A switch sends a message, and says the time."""
        switch = self.switches[step.switch]
        if step.message:
            blocks = switch.stamp(step.message, step.clock)
            self.inject(step.switch, blocks)
        self._take(switch.links.address, switch.promise(step.clock))

    def inject(self, number: int, blocks: Sequence[Block]) -> None:
        """Stamped rows for a switch to send."""
        for sent in blocks:
            for stamp in sent.versions["stamp"].tolist():
                self.counts.said[stamp] = self.now
        self.sent += blocks
        switch = self.switches[number]
        self._take(switch.links.address, switch.send(blocks))

    def restart(self, address: Address) -> None:
        """A node loses what it did since its last commit."""
        if self.traced:
            self.trace.append(f"{self.now:5} {address} starts again from its last commit")
        life = self.nodes[address].life + 1
        self.nodes[address] = self._node(address, self._saved[address], life)
        self._take(address, self.nodes[address].receive(()))

    def _take(self, address: Address, messages: Iterable[Message | Output]) -> None:
        sending: list[Message] = []
        for message in messages:
            if isinstance(message, Tentative | Final | DeadLetter):
                self._give(message)
            else:
                sending.append(message)
                self.counts.messages[type(message).__name__] += 1
                if isinstance(message, RowsMessage):
                    self.counts.rows += sum(len(b) for b in message.blocks)
                    self.counts.retracted += sum(len(b) for b in message.retracted)
        self._network.send(self.now, sending)

    def _give(self, output: Output) -> None:
        if self.traced:
            self.trace.append(f"{self.now:5} {output.sender} gives {_given(output)}")
        self.sink.take(output)
        if isinstance(output, Tentative):
            for stamp in output.versions["stamp"].tolist():
                self.counts.settled[stamp] = self.now
        elif isinstance(output, Final):
            # Kept before anything is sent, so that what is sent survives.
            self._saved[output.sender] = self.nodes[output.sender].save()
            for block in output.blocks:
                for stamp in block.versions["stamp"].tolist():
                    self.counts.committed[stamp] = self.now


def _told(message: Message) -> str:
    match message:
        case RowsMessage():
            parts = [f"+{b.source}{_rows(b)}" for b in message.asserted]
            parts += [f"-{b.source}{_rows(b)}" for b in message.retracted]
            life = f" life {message.life.number}" if message.life.number else ""
            return f"rows {message.number}{life} of {message.sender}: {' '.join(parts) or 'none'}"
        case Marker():
            whose = f"{message.sender}'s marker of epoch {message.epoch}"
            return f"{whose} at {message.end} after {message.count}"
        case _:
            return f"{message.sender}'s {type(message).__name__}"


def _given(output: Output) -> str:
    what = "epoch " + str(output.epoch) if isinstance(output, Final) else type(output).__name__.lower()
    return f"{what}: {' '.join(b.source + _rows(b) for b in output.blocks) or 'nothing'}"


def _rows(block: Block) -> str:
    rows = zip(block.versions.tolist(), block.deletes.tolist(), block.values.tolist(), strict=True)
    texts = [f"{v[0]}/{v[1]}/{v[3]}.{v[2]}{'x' if d else ''}{tuple(values)}" for v, d, values in rows]
    return "[" + ", ".join(texts) + "]"
