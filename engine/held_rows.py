"""What an engine keeps beside its maps: the time, and rows that checks, expiry and new views need."""

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from orderbook.dictionary import Dictionary
from orderbook.errors import DataError
from orderbook.problems import Problems
from views.compiler.binding.bind import CLOCK
from views.compiler.m3 import Program
from views.compiler.types import Relation

from .base_rows import BaseRows
from .changes import ChangeBatch
from .checkpoint.state import EngineState
from .clock import Clock
from .kept_rows import KeptRows
from .relation_rows import RelationsCopy, Rows, rows_source
from .retention import Retention
from .runtime import Runtime


class HeldRows:
    """The clock; `checked` rows, which deletes are checked against, and `kept` rows, None where not kept."""

    def __init__(self, relations: Sequence[Relation], dictionary: Dictionary, check: bool, keep: bool):
        self.clock = Clock(relations)
        self.checked = BaseRows(relations, dictionary) if check else None
        self.kept = KeptRows(relations) if keep else None

    def extend(self, relations: Sequence[Relation]) -> None:
        """Takes the relations of a program that begins with those known."""
        for owner in (self.kept, self.checked, self.clock):
            if owner is not None:
                owner.extend(relations)

    def recorders(self) -> list[KeptRows | Retention]:
        """Those that are to be told of every change that has been applied."""
        expiring = [self.clock.retention] if self.clock.retention.relations else []
        return [*([] if self.kept is None else [self.kept]), *expiring]

    def admitted(self, changes: ChangeBatch, problems: Problems, where: str) -> ChangeBatch:
        """The changes without events that the checked rows refuse, which are counted in `problems`."""
        if self.checked is None or self.checked.trusts(changes):
            return changes
        admitted, refusals = self.checked.admit(changes)
        for refusal in refusals:
            problems.add(refusal.kind, where, refusal.detail)
        return admitted

    def rows_source(self, relation: str, program: Program, runtime: Runtime) -> Callable[[], Rows]:
        """What gives the rows of a relation, as `rows_of` of an engine. Raises DataError."""
        if relation == CLOCK:
            return self.clock.rows
        return rows_source(relation, program, runtime, self.kept, self.checked)

    def copy(self, sources: Mapping[str, Callable[[], Rows]], relations: Sequence[Relation]) -> RelationsCopy:
        """A copy, to be made in pieces, of relations that `sources` give the rows of."""
        index = {relation.name: place for place, relation in enumerate(relations)}
        own = [name for name in sources if name in index and name != CLOCK]
        kept = {} if self.kept is None else {name: self.kept.copy(index[name]) for name in own}
        return RelationsCopy(kept, {name: rows for name, rows in sources.items() if name not in kept})

    def require(self, state: EngineState) -> None:
        """Raises DataError where a state lacks rows that are to be kept."""
        for owner, saved, option in (
            (self.kept, state.kept, "keep_rows"),
            (self.checked, state.checked, "check_rows"),
        ):
            if owner is not None and saved is None:
                raise DataError(f"the state was saved without {option}; replay the stream")

    def restore(self, state: EngineState, codes: np.ndarray | None) -> None:
        """Replaces all rows and the time by those of a state; `codes` as in Runtime.restore."""
        self.clock.restore(state.now, state.expiring, codes)
        if self.checked is not None:
            self.checked.restore(state.checked or (), codes)
        if self.kept is not None:
            self.kept.restore(state.kept or (), codes)
