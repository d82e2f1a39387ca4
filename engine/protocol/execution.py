"""Executing rows in the order of their versions, and again from the base where some came late.

What is new of what was produced is sent at once, corrections when they need not wait.
"""

from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from orderbook.core.errors import OrderbookError
from orderbook.engine.distribution.blocks import Block, Versions
from orderbook.engine.protocol.messages import (
    BEGINNING,
    Address,
    Mode,
    Moment,
    Notice,
    Operator,
    OperatorFactory,
    Produced,
    Route,
    RowsMessage,
)
from orderbook.engine.protocol.node_logs import OperationLog, SendLog, WriteLog
from orderbook.engine.protocol.versioned_rows import (
    END,
    VERSION_COLUMNS,
    Runs,
    after,
    block,
    difference,
    matrix,
    moment,
    net,
    place,
    versions,
)

# What is there before any change has this version.
OPENING: Moment = (0, 0, 0)

Views = dict[str, NDArray[np.int64]]

# A row takes about as long to execute as so many entries to copy.
_ROW_COST = 2


class Execution:
    """A stage's operator at the last commit and as of what was executed since, with the logs between them.

    factory, saved: see operators. ended: where the last committed epoch ended.
    """

    def __init__(self, factory: OperatorFactory, saved: Any = None):
        self.write, self.operation = WriteLog(), OperationLog()
        self.ended = BEGINNING[0]
        # The first moment whose rows changed since they were executed.
        self.changed: Moment | None = None
        # The first moment whose results changed since somebody took note of it.
        self.corrected: Moment | None = None
        # Whether the rows as they are cannot be executed; what was produced is then as it was before.
        self.failed = False
        self._base: Operator = factory(saved)
        # As of the head where `_current` says so, else in no particular state.
        self._live: Operator = factory(None)
        self._current = False

    def add(self, message: RowsMessage, count: int) -> None:
        """Adds the uncommitted rows of a message (count 1), or takes them out (count -1)."""
        committed = (self.ended, -1, -1)
        for blocks, sign in ((message.asserted, count), (message.retracted, -count)):
            for found in blocks:
                rows = matrix(found)
                rows = rows[place(rows, committed) :]
                if len(rows):
                    self.write.add(found.source, rows, sign)
                    self.changed = earlier(self.changed, moment(rows[0]))

    def execute(self, limit: Moment, final: bool) -> Versions | None:
        """Executes rows before `limit`; the versions whose rows of views changed, None: nothing to do.

        final: whether the rows will not change. Raises OrderbookError where they are and cannot be executed.
        """
        head, changed = self.operation.head, self.changed
        start = BEGINNING if head is None else after(head)
        limit = max(limit, start)
        if changed is None or changed >= limit:
            return None
        rewind = changed < start
        if rewind or not self._current:
            self._renew()
        first = changed if rewind else start
        blocks = self.write.between(BEGINNING if rewind else start, limit)
        given = versions_of({})
        if blocks or rewind:
            try:
                produced = self._live.apply(blocks, _until(blocks))
            except OrderbookError:
                # Rows that will be corrected may make no sense; only what is final must.
                if final:
                    raise
                self._fail()
                return None
            given = self._record(first, produced)
        # While a correction waits, what was sent may reach beyond what is executed now.
        if rewind or self.corrected is not None:
            self.corrected = earlier(self.corrected, changed)
        if rewind:
            self.operation.head = None
        self.failed = False
        if blocks:
            self.operation.head = max(_moments(b)[1] for b in blocks)
        self.changed = self.write.first(limit)
        return given

    def _fail(self) -> None:
        self.changed = self.corrected = BEGINNING
        self._current, self.failed = False, True

    def _renew(self) -> None:
        self._live.become(self._base)
        self._current = True

    def _record(self, first: Moment, produced: Produced) -> Versions:
        """Notes what was produced from `first` on; the versions whose rows of views changed."""
        before = self.views(first)
        self.operation.record(first, produced)
        return _changed_versions(before, self.views(first))

    def views(self, first: Moment = BEGINNING, end: Moment = END) -> Views:
        """The history of views at or after `first`, and before `end`."""
        found = {source: runs.between(first, end) for source, runs in self.operation.views.items()}
        return {source: rows for source, rows in found.items() if len(rows)}

    def pass_time(self, end: int) -> Versions:
        """All that comes later has stamps of at least `end`; the versions whose rows of views changed."""
        head = self.operation.head
        if head is not None and head >= (end, -1, -1):
            return versions_of({})
        produced = (self._live if self._current else self._base).apply((), end)
        starts = [_moments(b)[0] for b in produced.views if len(b)]
        return self._record(min(starts), produced) if starts else versions_of({})

    def commit(self, end: int) -> None:
        """Makes everything before `end` part of the base; what was executed is what is final."""
        bound, head = (end, -1, -1), self.operation.head
        rows = self.write.between(BEGINNING, bound)
        executed = head is None or head < bound
        if executed and self._current and _ROW_COST * sum(map(len, rows)) >= self._base.size():
            self._base, self._live, self._current = self._live, self._base, False
        elif self._current or not executed:
            # Costs what came in the epoch, where a copy costs all there is.
            self._base.apply(rows, end)
        self.ended = end
        self.write.truncate(bound)
        self.operation.truncate(bound)

    def replay(self, first_epoch: bool) -> None:
        """Executes again up to a loaded head; in the first epoch also what is there before any row."""
        head = self.operation.head
        if head is None and not first_epoch:
            return
        if head is None:
            self.operation.head = OPENING
        self._renew()
        blocks = [] if head is None else self.write.between(BEGINNING, after(head))
        try:
            self.operation.record(BEGINNING, self._live.apply(blocks, _until(blocks)))
        except OrderbookError:
            self._fail()

    def size(self) -> int:
        """How many entries the operator has at the last commit, about."""
        return self._base.size()

    def save(self) -> Any:
        """The operator's state at the last commit."""
        return self._base.save()


def earlier(known: Moment | None, found: Moment) -> Moment:
    """The earlier of two moments."""
    return found if known is None else min(known, found)


def versions_of(views: Views) -> Versions:
    """The versions of rows, VERSION[n], each once, in order."""
    return _distinct([rows[:, :VERSION_COLUMNS] for rows in views.values()])


def _changed_versions(before: Views, now: Views) -> Versions:
    differing = []
    for source in before.keys() | now.keys():
        old, new = before.get(source), now.get(source)
        if old is None or new is None:
            differing += [rows for rows in (old, new) if rows is not None]
        else:
            differing += difference(old, new)
    return _distinct([rows[:, :VERSION_COLUMNS] for rows in differing])


def _distinct(parts: list[NDArray[np.int64]]) -> Versions:
    if len(parts) == 1:
        # In order already.
        rows = parts[0]
        return versions(rows[np.append(True, (rows[1:] != rows[:-1]).any(axis=1))[: len(rows)]])
    rows = np.concatenate(parts) if parts else np.empty((0, VERSION_COLUMNS), np.int64)
    return versions(net(rows, np.ones(len(rows), np.int64))[0])


def _moments(block: Block) -> tuple[Moment, Moment]:
    """The first and the last moment of a block that has rows."""
    (stamp, switch, _, _, last), (later, other, _, _, final) = block.versions[[0, -1]].tolist()
    return (stamp, switch, last), (later, other, final)


def _until(blocks: list[Block]) -> int:
    return max((_moments(b)[1][0] + 1 for b in blocks), default=BEGINNING[0])


# Blocks to assert and to retract, for each receiver.
_Changes = dict[Address, tuple[list[Block], list[Block]]]


class Sending:
    """Compares what was produced with what was sent."""

    def __init__(self, log: SendLog, route: Route, mode: Mode):
        self.log, self._route, self._mode = log, route, mode
        # Up to where anything was sent, and for how many calls corrections have waited.
        self.head: Moment | None = None
        self.waited = 0
        self.promised = BEGINNING

    def messages(
        self, execution: Execution, executed: bool, final: bool, limit: Moment, answers: tuple[Notice, ...]
    ) -> Iterable[RowsMessage]:
        """The messages due. final: nothing may wait. limit: what may be promised."""
        mode = self._mode
        correct = execution.corrected is not None and not execution.failed
        if correct and not final and self.waited < mode.buffer:
            self.waited += 1
            correct = False
        changes: _Changes = {}
        if executed or correct:
            self._compare(execution, correct, changes)
        promise = limit if mode.barriers and limit > self.promised else None
        if promise is not None:
            self.promised = promise
        everybody = promise is not None or answers or (executed and not mode.suppress)
        for receiver in self.log.numbers if everybody else sorted(changes):
            asserted, retracted = changes.get(receiver, ((), ()))
            yield self.log.rows(
                receiver, tuple(asserted), retracted=tuple(retracted), promise=promise, answers=answers
            )

    def _compare(self, execution: Execution, correct: bool, changes: _Changes) -> None:
        """What is to be said, of all that was corrected or of what is new only."""
        first = BEGINNING if self.head is None else after(self.head)
        if correct and execution.corrected is not None:
            first = min(first, execution.corrected)
            execution.corrected, self.waited = None, 0
        sent, produced = self.log.outputs, execution.operation.outputs
        for source in sorted(sent.keys() | produced.keys()):
            said = sent.setdefault(source, Runs())
            old = said.between(first)
            new = produced[source].between(first) if source in produced else old[:0]
            asserted, retracted = difference(old, new) if self._mode.suppress else (new, old)
            for rows, which in ((asserted, 0), (retracted, 1)):
                if len(rows):
                    for receiver, part in self._route(block(source, rows)):
                        changes.setdefault(receiver, ([], []))[which].append(part)
            said.keep_before(first)
            said.extend(new)
        executed = execution.operation.head
        # What was executed may now end earlier than it did.
        if correct or self.head is None:
            self.head = executed
        elif executed is not None:
            self.head = max(self.head, executed)
