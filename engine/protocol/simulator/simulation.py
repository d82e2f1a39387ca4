"""A whole cluster in one thread: switches, nodes, a network, and a sink, driven by a list of steps."""

import random
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from engine.distribution.block import Block
from engine.distribution.stage import Distribution
from engine.protocol.messages import (
    SWITCHES,
    Address,
    DeadLetter,
    Final,
    Marker,
    Message,
    Output,
    Rows,
    Tentative,
)
from engine.protocol.modes import SPECULATIVE, Mode
from engine.protocol.node import Node, Settings
from engine.protocol.operators import OperatorFactory
from engine.protocol.saved import Saved
from engine.protocol.switch import Event, Switch
from engine.protocol.wiring import Wiring
from orderbook.dictionary import Dictionary

from .network import Faults, Network
from .sink import Sink


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


class Simulation:
    """Runs steps until nothing is on its way. `trace`: a line for every message taken, if asked for."""

    def __init__(
        self, setting: Setting, words: Dictionary, node_kind: type[Node] = Node, traced: bool = False
    ):
        self.setting, self._node_kind, self.traced = setting, node_kind, traced
        self.now = 0
        self.trace: list[str] = []
        self.counts, self.sink = Counts(), Sink()
        # All rows that switches were given, and that were in time.
        self.sent: list[Block] = []
        self._network = Network(setting.faults, random.Random(f"network {setting.seed}"))
        self.wiring = Wiring(
            setting.distribution, setting.partitions, setting.switches, words, setting.mode
        )
        self._settings = Settings(setting.mode, setting.resends, setting.log_limit)
        self.nodes = {address: self._node(address) for address in self.wiring.nodes()}
        self.switches = [
            Switch(
                self.wiring.switch_links(n), self.wiring.route, setting.length, setting.mode, setting.resends
            )
            for n in range(setting.switches)
        ]
        self._saved: dict[Address, Saved] = {a: node.save() for a, node in self.nodes.items()}
        for address, node in self.nodes.items():
            self._take(address, node.receive(()))

    def _node(self, address: Address, saved: Saved | None = None, life: int = 0) -> Node:
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
        for block in blocks:
            for stamp in block.versions["stamp"].tolist():
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
                if isinstance(message, Rows):
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
        case Rows():
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
