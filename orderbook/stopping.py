"""An engine that goes to one event and no further."""

from collections.abc import Callable
from typing import Any

import numpy as np

from engine.changes import END_OF_EVENT, END_OF_MESSAGE, ChangeBatch
from engine.messages import part_of
from engine.runtime import Runtime
from orderbook.gate import GatedEngine

_ENDS = END_OF_EVENT | END_OF_MESSAGE


class Reached(Exception):
    """The engine stands where it was to stop."""


class StoppingEngine(GatedEngine):
    """Raises Reached before the first event that it is not to apply.

    Without `stop_after` or `look_at` it is a GatedEngine.
    """

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._last: int | None = None
        self._looked: int | None = None
        self._look: Callable[[ChangeBatch], object] = lambda _: None
        self._after: Callable[[], object] = lambda: None
        # Relations whose events have no number, because the run whose numbers these are did not have them.
        self.unnumbered: frozenset[str] = frozenset()
        # Every change goes through `_step`.
        self._quiet = False

    def stop_after(self, sequence: int) -> None:
        """The event of this number, counted from 1, is the last."""
        self._last = sequence

    def look_at(
        self, sequence: int, look: Callable[[ChangeBatch], object], after: Callable[[], object]
    ) -> None:
        """`look` is given the changes of the event of this number before it is applied, `after` called then.

        The message it belongs to is the last, but for orders and fills that follow from it.
        """
        self._looked, self._look, self._after = sequence, look, after

    @property
    def runtime(self) -> Runtime:
        """What holds the maps."""
        return self._runtime

    def _settle(self) -> None:
        self._quiet = False

    def _step(self, batch: ChangeBatch, start: int) -> int:
        end = len(batch)
        if self._relation(batch, start) in self.unnumbered:
            number = self._sequence
            done = super()._step(batch, start)
            self._sequence = number
            return done
        if self._last is not None:
            if self._sequence >= self._last:
                raise Reached
            end = _end_of(batch, start, self._last - self._sequence)
        elif self._looked is not None and self._sequence < self._looked:
            end = _end_of(batch, start, max(self._looked - 1 - self._sequence, 1))
            if self._sequence == self._looked - 1:
                self._look(part_of(batch, start, end))
        elif self._ends_here(batch, start):
            raise Reached
        before = self._sequence
        done = super()._step(part_of(batch, 0, end), start)
        if self._looked is not None and before < self._looked == self._sequence:
            self._after()
        return done

    def _ends_here(self, batch: ChangeBatch, start: int) -> bool:
        """Whether the message that was looked at is over, and what comes does not follow from it."""
        if self._looked is None or self._message_open:
            return False
        return self._relation(batch, start) not in ("orders", "fills")

    def _relation(self, batch: ChangeBatch, start: int) -> str | None:
        kind = int(batch.kinds[start])
        return self.program.relations[kind >> 1].name if kind >= 0 else None


def _end_of(batch: ChangeBatch, start: int, events: int) -> int:
    """The index after the last change of the next `events` events."""
    ends = np.flatnonzero(batch.flags[start:] & _ENDS)[:events]
    return start + int(ends[-1]) + 1 if len(ends) == events else len(batch)
