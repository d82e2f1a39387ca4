"""A distribution run row by row: an interpreter for every partition, rows routed by version."""

from collections.abc import Mapping
from itertools import product

from orderbook.core.changes import Dictionary
from orderbook.engine.distribution.stages import Distribution, Input, Phase, Stage
from orderbook.engine.runtime.interpreter import Interpreter
from orderbook.views.m3 import Result

Word = int | float | None
Row = tuple[Word, ...]
# A signed row of a stream or output.
Signed = tuple[bool, Row]


def partition_of(word: Word, partitions: int) -> int:
    """Any function of the value will do; this one separates small numbers."""
    if word is None:
        return 0
    return (int(word * 8) * 7 + 3) // 2 % partitions


class PlainDistribution:
    """Runs a distribution with so many partitions along each axis of each stage."""

    def __init__(self, distribution: Distribution, dictionary: Dictionary, partitions: int):
        self.distribution = distribution
        self.partitions = partitions
        relations = {r.name for r in distribution.program.relations}
        self.stages = [_PlainStage(s, dictionary, partitions, relations) for s in distribution.stages]
        self.messages = 0

    def change(self, relation: str, insert: bool, row: Row) -> None:
        """One inserted or deleted row: a version of its own."""
        sent: dict[str, list[Signed]] = {relation: [(insert, row)]}
        for stage in self.stages:
            found = stage.change(sent)
            self.messages += sum(map(len, found.values()))
            sent |= found

    def rows(self, view: str) -> dict[Row, tuple[int, Row]]:
        """The rows of a view in all partitions, by key; each must be in one of them."""
        found: dict[Row, tuple[int, Row]] = {}
        own = [s for s in self.stages if view in s.stage.views]
        assert len(own) == 1, f"{view} is read in {len(own)} stages"
        for engine in own[0].engines.values():
            for key, count, columns in engine.rows(view):
                assert key not in found, f"{view}: row {key} is in two partitions"
                found[key] = count, columns
        return found

    def entries(self) -> int:
        """Entries of all maps in all partitions."""
        return sum(
            len(engine.map(m.name))
            for s in self.stages
            for engine in s.engines.values()
            for m in s.stage.program.maps
        )


class _PlainStage:
    def __init__(self, stage: Stage, dictionary: Dictionary, partitions: int, relations: set[str]):
        self.relations = relations
        self.stage = stage
        places = product(range(partitions), repeat=len(stage.axes))
        self.partitions = partitions
        self.engines = {place: Interpreter(stage.program, dictionary) for place in places}
        self.order = {r.name: i for i, r in enumerate(stage.program.relations)}
        self.before = {place: self._outputs(place) for place in self.engines}

    def change(self, sent: Mapping[str, list[Signed]]) -> dict[str, list[Signed]]:
        """Applies what is sent of one version in every partition; what the outputs became."""
        arrived: dict[tuple[int, ...], list[tuple[Input, bool, Row]]] = {p: [] for p in self.engines}
        for entry in self.stage.inputs:
            assert (entry.phase is Phase.CHANGES) == (entry.source not in self.relations)
            for insert, row in sent.get(entry.source, ()):
                narrow = tuple(row[i] for i in entry.columns)
                for place in self.engines:
                    if all(
                        at is None or partition_of(narrow[at], self.partitions) == own
                        for at, own in zip(entry.route, place, strict=True)
                    ):
                        arrived[place].append((entry, insert, narrow))
        found: dict[str, list[Signed]] = {}
        for place, rows in arrived.items():
            if rows:
                rows.sort(key=lambda r: (r[0].phase, r[1], self.order[r[0].stream]))
                for entry, insert, row in rows:
                    self.engines[place].change(entry.stream, insert, row)
                self._changed(place, found)
        return found

    def _changed(self, place: tuple[int, ...], found: dict[str, list[Signed]]) -> None:
        before, after = self.before[place], self._outputs(place)
        self.before[place] = after
        for name in after:
            changes = found.setdefault(name, [])
            for key in dict.fromkeys((*before[name], *after[name])):
                old, new = before[name].get(key), after[name].get(key)
                if old != new:
                    changes += [(False, key + old)] if old is not None else []
                    changes += [(True, key + new)] if new is not None else []

    def _outputs(self, place: tuple[int, ...]) -> dict[str, dict[Row, Row]]:
        found = {}
        for output in self.stage.outputs:
            self._check_words(self.stage.program.result(output.view))
            rows = self.engines[place].rows(output.view)
            found[output.name] = {key: columns for key, _, columns in rows}
        return found

    def _check_words(self, result: Result) -> None:
        for column in result.columns:
            assert not column.type.exact or max(abs(column.type.low), abs(column.type.high)) < 2**63
