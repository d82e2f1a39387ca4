"""A node: one partition of one stage as a state machine, given messages, giving messages.

Eventual and periodic consistency between the nodes of a distributed program is that of Cumulus, section 4.
Switches send stamped blocks; nodes run stages over what has come, take back and correct what a late block
makes wrong, and commit epochs. Nothing here knows how messages are carried: `node` and `switch` are given
messages and say which to send.

What a node waits for are writes that it knows of and has not seen, so that others pass (Cumulus' bypass).
What of a node is kept (Saved) is what another can go on from.
"""

from collections.abc import Iterable, Mapping, Sequence, Sized
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from orderbook.engine.distribution.blocks import Block, Versions, parted
from orderbook.engine.protocol.execution import Execution, Sending, versions_of
from orderbook.engine.protocol.messages import (
    BEGINNING,
    SPECULATIVE,
    SWITCHES,
    Address,
    Committed,
    DeadLetter,
    EndRequest,
    Final,
    Marker,
    Message,
    Mode,
    Moment,
    Notice,
    OperatorFactory,
    Output,
    Resend,
    Route,
    RowsMessage,
    Tentative,
)
from orderbook.engine.protocol.node_logs import Channel, Numbered, ReceiveLog, SendLog
from orderbook.engine.protocol.versioned_rows import END, Runs, block, versions

Key = tuple[Address, int]


@dataclass(frozen=True, slots=True)
class SavedNode:
    """All of a node. Everything is plain values, but for the messages and blocks, and what an operator saves.

    base: state of the operator at the last commit. received and sent: messages by their other end and number.
    outputs: the changes of outputs that were sent where they are not those executed, None where they are.
    """

    base: Any
    status: Mapping[str, Any]
    received: Mapping[Key, RowsMessage]
    sent: Mapping[Key, Numbered]
    outputs: tuple[Block, ...] | None


@dataclass(slots=True)
class _Write:
    notice: Notice
    # Whether its switch has said whom it comes through, not only somebody that it came.
    known: bool = False
    answered: set[Address] = field(default_factory=set)

    @property
    def complete(self) -> bool:
        return self.known and self.answered.issuperset(self.notice.awaits)


class PendingWrites:
    """Dispatches of switches that are known and not executed."""

    def __init__(self) -> None:
        self._writes: dict[tuple[int, int], _Write] = {}

    def expect(self, notice: Notice) -> None:
        """A switch's notice has come."""
        write = self._write(notice)
        write.notice, write.known = notice, True

    def answer(self, sender: Address, notice: Notice) -> None:
        """A sender has sent all that a dispatch changes there."""
        self._write(notice).answered.add(sender)

    def _write(self, notice: Notice) -> _Write:
        return self._writes.setdefault((notice.switch, notice.number), _Write(notice))

    def blocked(self) -> Moment | None:
        """The first moment that must wait; None: none must."""
        return min((w.notice.first for w in self._writes.values() if not w.complete), default=None)

    def executed(self, end: Moment) -> tuple[Notice, ...]:
        """Complete dispatches before `end`, which need no further attention."""
        done = [k for k, w in self._writes.items() if w.complete and w.notice.last < end]
        return tuple(self._writes.pop(k).notice for k in done)

    def truncate(self, end: Moment) -> None:
        """Forgets dispatches before `end`, whether or not they were answered."""
        self._writes = {k: w for k, w in self._writes.items() if w.notice.last >= end}

    def __len__(self) -> int:
        return len(self._writes)

    def save(self) -> list[tuple[Notice, bool, set[Address]]]:
        return [(w.notice, w.known, set(w.answered)) for w in self._writes.values()]

    def load(self, saved: list[tuple[Notice, bool, set[Address]]]) -> None:
        for notice, known, answered in saved:
            self._writes[notice.switch, notice.number] = _Write(notice, known, set(answered))


@dataclass(frozen=True, slots=True)
class Links:
    """A node's place: whom it hears from and sends to. switches: how many. depth: stages before it."""

    address: Address
    senders: tuple[Address, ...]
    receivers: tuple[Address, ...]
    switches: int
    depth: int = 0


@dataclass(frozen=True, slots=True)
class Settings:
    """How a node runs.

    resends: whether messages are kept until acknowledged, so that nodes may start again from a commit; not
    where what carries them delivers them again by itself. log_limit: rows in all logs above which a node asks
    for the end of the epoch (0: never).
    """

    mode: Mode = SPECULATIVE
    resends: bool = True
    log_limit: int = 0


class Node:
    """Executes rows in the order of their versions, again where some came late, and says what changed.

    saved: what the node was, None for a fresh one. life: given where the node has started again from its last
    commit and has lost what it did since; how many times it has.
    """

    def __init__(
        self,
        links: Links,
        factory: OperatorFactory,
        route: Route,
        settings: Settings = Settings(),
        saved: SavedNode | None = None,
        life: int = 0,
    ):
        self.links, self.settings, self.life = links, settings, life
        # The last committed epoch, and the last one whose end was asked for.
        self.epoch = self._requested = 0
        self.execution = Execution(factory, None if saved is None else saved.base)
        self.received, self.pending = ReceiveLog(links.senders), PendingWrites()
        self.sent = SendLog(links.address, links.receivers, settings.resends)
        self._sending = Sending(self.sent, route, settings.mode)
        self._clock = BEGINNING
        self._out: list[Message | Output] = []
        if saved is not None:
            self._load(saved)
        self.execution.replay(self.epoch == 0)
        if saved is not None and saved.outputs is None:
            for source, runs in self.execution.operation.outputs.items():
                self.sent.outputs.setdefault(source, Runs()).extend(runs.between())
        if life:
            self.sent.restart(life)
            # What was about to be sent at the commit may not have been.
            self._out += self.sent.kept().values()
            self._out += [Resend(links.address, sender) for sender in links.senders]
        if saved is None or life:
            # Also where there is nothing to give, since it takes back what an earlier life gave.
            self._give(versions_of(self.execution.views()))
        if saved is None and self.execution.operation.outputs:
            # Rows that are there before any change are to be sent although nothing was executed.
            self.execution.corrected = BEGINNING

    # What a driver calls.

    def receive(self, messages: Iterable[Message], hold: bool = False) -> list[Message | Output]:
        """Takes messages in and returns those to send and what to give out, in this order.

        hold: wait with what is later than some sender has come to, since going back to the last commit is
        dear. The end of an epoch lets it go on at the latest.
        """
        for message in messages:
            self._take(message)
        return self._proceed(hold)

    def advance(self, clock: int) -> list[Message | Output]:
        """The time (ns, as the stamps) has come so far; what waited for it goes on."""
        self._clock = max(self._clock, (clock, -1, -1))
        return self._proceed()

    def save(self) -> SavedNode:
        """All that a node of the same place needs to go on."""
        received, sent = self.received.rows(), self.sent.kept()
        return SavedNode(self.execution.save(), self.status(), received, sent, self.outputs())

    def status(self) -> dict[str, Any]:
        """What is kept as plain values: where everything stands."""
        execution, sending = self.execution, self._sending
        return {
            "epoch": self.epoch,
            "requested": self._requested,
            "clock": self._clock,
            "execution": (execution.ended, execution.changed, execution.corrected, execution.operation.head),
            "sending": (sending.head, sending.waited, sending.promised),
            "received": self.received.save(),
            "sent": self.sent.save(),
            "pending": self.pending.save(),
        }

    def outputs(self) -> tuple[Block, ...] | None:
        """The changes of outputs as they were sent, None where they are those that were executed."""
        if self.execution.corrected is None:
            return None
        return tuple(block(source, runs.between()) for source, runs in self.sent.outputs.items())

    def _load(self, saved: SavedNode) -> None:
        status, execution, sending = saved.status, self.execution, self._sending
        self.epoch, self._requested, self._clock = status["epoch"], status["requested"], status["clock"]
        self.received.load(status["received"], saved.received)
        self.sent.load(status["sent"], saved.sent, saved.outputs or ())
        self.pending.load(status["pending"])
        execution.ended, changed, execution.corrected, execution.operation.head = status["execution"]
        sending.head, sending.waited, sending.promised = status["sending"]
        for message in saved.received.values():
            execution.add(message, 1)
        execution.changed = changed

    def log_sizes(self) -> dict[str, int]:
        """How much the logs hold: rows (write, operation), messages (receive), both (send)."""
        logs: Sequence[tuple[str, Sized]] = (
            ("write", self.execution.write),
            ("receive", self.received),
            ("operation", self.execution.operation),
            ("send", self.sent),
        )
        return {name: len(log) for name, log in logs}

    # Messages.

    def _take(self, message: Message) -> None:
        match message:
            case RowsMessage() | Marker():
                channel = self.received.channels[message.sender]
                for undone in channel.begin(message.life):
                    self.execution.add(undone, -1)
                if channel.accept(message):
                    if isinstance(message, RowsMessage):
                        self._take_rows(channel, message)
                    else:
                        self._take_marker(channel, message)
                elif message.number <= channel.settled and self.settings.resends:
                    # Sent again by a node that lost the word that it was kept.
                    self._out.append(self._committed(message.sender, channel))
            case Committed():
                self.sent.acknowledged(message.sender, message.through, message.life)
            case Resend():
                self._out += self.sent.unacknowledged(message.sender)
            case _:
                raise ValueError(f"{self.links.address} got a message for switches: {message}")

    def _take_rows(self, channel: Channel, message: RowsMessage) -> None:
        message, _ = self._without_late(message, channel.closed(message.number))
        if message.blocks:
            channel.rows[message.number] = message
            self.execution.add(message, 1)
        if message.notice is not None:
            self.pending.expect(message.notice)
        for answer in message.answers:
            self.pending.answer(message.sender, answer)

    def _take_marker(self, channel: Channel, marker: Marker) -> None:
        channel.markers[marker.epoch] = marker
        # What the sender sent after its marker is late wherever it arrives, also where that was before it.
        for number in [n for n in channel.rows if n > marker.number]:
            message, late = self._without_late(channel.rows[number], marker.end)
            if late is not None:
                self.execution.add(late, -1)
                del channel.rows[number]
                if message.blocks:
                    channel.rows[number] = message

    def _without_late(self, message: RowsMessage, end: int) -> tuple[RowsMessage, RowsMessage | None]:
        """A message without the rows that have stamps below `end`, and one with them, given out as dead."""
        if all(b.versions["stamp"][0] >= end for b in message.blocks):
            return message, None
        late, asserted = parted(message.asserted, end)
        undone, retracted = parted(message.retracted, end)
        self._out.append(DeadLetter(self.links.address, message.sender, tuple(late)))
        return (
            replace(message, asserted=tuple(asserted), retracted=tuple(retracted)),
            replace(message, asserted=tuple(late), retracted=tuple(undone)),
        )

    # Executing, sending.

    def _proceed(self, hold: bool = False) -> list[Message | Output]:
        ends = self._ends()
        limit = self._limit(ends[-1] if ends else None, hold)
        changed = self.execution.execute(limit, bool(ends))
        if changed is not None and len(changed):
            self._give(changed)
        answers = self.pending.executed(limit) if self.settings.mode.notices else ()
        self._out += self._sending.messages(self.execution, changed is not None, bool(ends), limit, answers)
        for end in ends:
            self._commit(end)
        self._request()
        out, self._out = self._out, []
        return out

    def _ends(self) -> list[int]:
        """Where the epochs end that every sender has ended, in order."""
        ends: list[int] = []
        while (end := self.received.end_of(self.epoch + len(ends) + 1)) is not None:
            ends.append(end)
        return ends

    def _limit(self, ending: int | None, hold: bool) -> Moment:
        """Up to where the mode lets rows be executed."""
        mode, limit = self.settings.mode, END
        if mode.barriers:
            limit = self.received.promised()
        elif mode.tick:
            limit = (self._clock[0] - self.links.depth * mode.tick, -1, -1)
        elif mode.notices:
            limit = self.pending.blocked() or END
        if hold:
            limit = min(limit, self.received.reached())
        return limit if ending is None else max(limit, (ending, -1, -1))

    def _give(self, changed: Versions) -> None:
        """Gives out the rows of versions, VERSION[n] in order, all that each of them has."""
        views = self.execution.views((int(changed["stamp"][0]), -1, -1)) if len(changed) else {}
        if not np.array_equal(versions_of(views), changed):
            views = {source: rows[np.isin(versions(rows), changed)] for source, rows in views.items()}
        blocks = tuple(block(source, rows) for source, rows in views.items() if len(rows))
        self._out.append(Tentative(self.links.address, self.life, changed, blocks))

    # Epochs.

    def _commit(self, end: int) -> None:
        """Ends the next epoch: everything before `end` is final here and sent."""
        changed, bound = self.execution.pass_time(end), (end, -1, -1)
        if len(changed):
            self._give(changed)
        self.epoch += 1
        blocks = (block(s, rows) for s, rows in self.execution.views(end=bound).items())
        self._out.append(Final(self.links.address, self.epoch, end, tuple(blocks)))
        self._out += [self.sent.marker(r, self.epoch, end) for r in self.links.receivers]
        self.execution.commit(end)
        self.sent.truncate(bound)
        self.pending.truncate(bound)
        self.received.truncate(self.epoch)
        if self.settings.resends:
            self._out += [self._committed(s, channel) for s, channel in self.received.channels.items()]

    def _committed(self, sender: Address, channel: Channel) -> Committed:
        life = channel.lives[-1].number if channel.lives else 0
        return Committed(self.links.address, sender, self.epoch, channel.settled, life)

    def _request(self) -> None:
        """Asks for the end of the epoch when the logs are too large, once an epoch."""
        limit = self.settings.log_limit
        if limit and self._requested <= self.epoch and sum(self.log_sizes().values()) > limit:
            self._requested = self.epoch + 1
            holder = Address(SWITCHES, self.epoch % self.links.switches)
            self._out.append(EndRequest(self.links.address, holder, self._requested))
