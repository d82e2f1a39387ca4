"""What the text of functions is written of: the answers of a plan to what is asked of it, which are noted.

A function's text is the same in a module of another plan where all that was asked has the same answers; so of
a program that changes while it runs only the functions that differ are written.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from orderbook.engine.generate.numbering import NumberedPlan
from orderbook.engine.plan.steps import Directory, Projection, ResultPlan, Store, reads_in_pipelines
from orderbook.views.m3 import MapDeclaration

# How a written key of a map tells a row of a view: positions of its keys; None: any row.
RowKeys = tuple[int, ...] | None


@dataclass(frozen=True, slots=True)
class CutText:
    """The function of a cut search, and what the module must import for it."""

    name: str
    source: str
    imports: tuple[str, ...]


@dataclass(slots=True)
class PlanReads:
    """A numbered plan as the text of one module's functions reads it, and the cut functions they need.

    `asked` has what was asked since it was last emptied, and the answers.
    """

    plan: NumberedPlan
    cuts: dict[str, CutText] = field(default_factory=dict)
    asked: dict[tuple[str, str], Any] = field(default_factory=dict)
    _answers: dict[tuple[str, str], Any] = field(default_factory=dict)

    def stores_of(self, name: str) -> tuple[Store, ...]:
        """The stores that hold a map, hashed ones first."""
        answer: tuple[Store, ...] = self._ask("stores", name)
        return answer

    def directories_of(self, name: str) -> tuple[Directory, ...]:
        """The directories of the entries that a map shares with those of its store."""
        answer: tuple[Directory, ...] = self._ask("directories", name)
        return answer

    def projections_of(self, name: str) -> tuple[Projection, ...]:
        """The maps that are written with a map."""
        answer: tuple[Projection, ...] = self._ask("projections", name)
        return answer

    def is_projected(self, name: str) -> bool:
        """Whether a map is written with another one."""
        answer: bool = self._ask("projected", name)
        return answer

    def is_put(self, name: str) -> bool:
        """Whether an entry of a map is written in a function of its own, which all triggers call.

        That is what is exchanged, in trees: what comes and goes there takes more code than all around it.
        """
        answer: bool = self._ask("put", name)
        return answer

    def map(self, name: str) -> MapDeclaration:
        """A map."""
        answer: MapDeclaration = self._ask("map", name)
        return answer

    def counted_by(self, name: str) -> tuple[str, ...]:
        """The maps of doubles whose rows a map counts."""
        answer: tuple[str, ...] = self._ask("counted", name)
        return answer

    def rows_of(self, name: str) -> Sequence[tuple[int, RowKeys]]:
        """The views whose rows are read of a map, with how its keys tell the row."""
        answer: Sequence[tuple[int, RowKeys]] = self._ask("rows", name)
        return answer

    def cut(self, key: str, made: Callable[[str], CutText]) -> str:
        """The name of the function of a cut; `made` makes one of a name."""
        if key not in self.cuts:
            self.cuts[key] = made(f"cut{len(self.cuts)}")
        self.asked["cut", key] = self.cuts[key]
        return self.cuts[key].name

    def answers(self, asked: Mapping[tuple[str, str], Any]) -> bool:
        """Whether all that was asked of another plan has the same answers here."""
        return all(
            self._has_cut(of, answer) if what == "cut" else self._ask(what, of) == answer
            for (what, of), answer in asked.items()
        )

    def _has_cut(self, key: str, cut: CutText) -> bool:
        """Whether a cut is the same here; it is here from now on where it would be made as the next one."""
        if key not in self.cuts and cut.name == f"cut{len(self.cuts)}":
            self.cuts[key] = cut
        return self.cuts.get(key) == cut

    def _ask(self, what: str, of: str) -> Any:
        if (what, of) not in self._answers:
            self._answers[what, of] = _QUESTIONS[what](self.plan, of)
        answer = self.asked[what, of] = self._answers[what, of]
        return answer


def _row_keys(plan: NumberedPlan, name: str) -> list[tuple[int, RowKeys]]:
    return [
        (view, keys) for view in plan.views_reading(name) for keys in _keys_of(plan, plan.results[view], name)
    ]


def _keys_of(plan: NumberedPlan, result: ResultPlan, name: str) -> list[RowKeys]:
    """A row that reads a map at all of its own keys, whatever else, is not changed by other entries."""
    view_keys = [k.variable for k in result.result.keys]
    found: list[RowKeys] = []
    if result.result.multiplicity == name:
        found.append(tuple(range(len(view_keys))))
    places: dict[str, Sequence[int]] = {d.name: d.positions for d in plan.directories_of(name)}
    places[name] = range(len(plan.program.map(name).keys))
    for read, keys in reads_in_pipelines(p for _, pipelines in result.lets for p in pipelines):
        if read in places:
            at = dict(zip(keys, places[read], strict=True))
            found.append(tuple(at[k] for k in view_keys) if at.keys() >= {*view_keys} else None)
    return [None] if None in found else list(dict.fromkeys(found))


def _is_put(plan: NumberedPlan, name: str) -> bool:
    if name not in plan.exchanged or name in plan.projected or plan.program.counted.get(name):
        return False
    names = (name, *(p.name for p in plan.projections_of(name)))
    stores = [s for own in names for s in plan.stores_of(own)]
    trees = [*stores, *(s for own in names for d in plan.directories_of(own) for s in plan.stores_of(d.name))]
    return all(s.layout in ("i", "w", "W") for s in stores) and any(s.ordered is not None for s in trees)


_QUESTIONS: dict[str, Callable[[NumberedPlan, str], Any]] = {
    "stores": lambda plan, name: plan.stores_of(name),
    "directories": lambda plan, name: plan.directories_of(name),
    "projections": lambda plan, name: plan.projections_of(name),
    "put": _is_put,
    "projected": lambda plan, name: name in plan.projected,
    "map": lambda plan, name: plan.program.map(name),
    "counted": lambda plan, name: plan.program.counted.get(name, ()),
    "rows": _row_keys,
}
