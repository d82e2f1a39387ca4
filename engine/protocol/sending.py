"""What a node sends of what it produced: what is new at once, corrections when they need not wait."""

from collections.abc import Iterable

from engine.distribution.block import Block

from .execution import Execution
from .logs import SendLog
from .messages import BEGINNING, Address, Moment, Notice, Rows
from .modes import Mode
from .operators import Route
from .rows import after, block, difference
from .runs import Runs

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
    ) -> Iterable[Rows]:
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

