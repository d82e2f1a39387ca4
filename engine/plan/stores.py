"""The stores that a program's reads need: which maps share entries, and how each is indexed."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from views.compiler.calculus import Extreme, Factor, Poly, Term, scalar_variables
from views.compiler.calculus import maps_read as maps_in
from views.compiler.m3 import MapDeclaration, Program, Statement
from views.compiler.types import INT64_MAX, INT128_MAX, Kind, Relation, Type

from .dense_keys import column_types, dense_of
from .statistics import Statistics, distinct
from .steps import Extremum, Loop, Pipeline, RangeSum, Store, steps_of


def levels(statements: Sequence[Statement]) -> list[int]:
    """For each statement how late it comes: 0 reads the state before, others what lower ones wrote."""
    written: dict[str, int] = {}
    found = []
    for statement in statements:
        level = 0
        if statement.after:
            level = 1 + max((written.get(m, 0) for m in maps_in(statement.value)), default=0)
            written[statement.target] = max(level, written.get(statement.target, 0))
        found.append(level)
    return found


def sharing(program: Program) -> list[list[MapDeclaration]]:
    """Maps that every trigger writes together, at one and the same key: they can share their entries.

    A map whose extreme keys are read shares none, so that an entry of its store is one of its own.
    """
    writes: defaultdict[str, list[object]] = defaultdict(list)
    alone = {s.target for s in program.initial} | set(_extremes_of(program))
    for number, trigger in enumerate(program.triggers):
        for level, statement in zip(levels(trigger.statements), trigger.statements, strict=True):
            free = {v for k in statement.keys for v in scalar_variables(k)} - set(trigger.parameters)
            if free:
                alone.add(statement.target)
            writes[statement.target].append((number, level, statement.op, statement.keys))
    groups: dict[object, list[MapDeclaration]] = {}
    for declaration in program.maps:
        own = writes[declaration.name]
        twice = len({w[:1] for w in own}) != len(own)  # type: ignore[index]
        signature: object = (
            declaration.name if twice or declaration.name in alone else (declaration.key_types, tuple(own))
        )
        groups.setdefault(signature, []).append(declaration)
    return list(groups.values())


def _extremes_of(program: Program) -> Iterator[str]:
    """Names of the maps that are read inside an Extreme."""
    statements = [*program.initial, *(s for t in program.triggers for s in t.statements)]
    for poly in [*(s.value for s in statements), *(p for r in program.results for _, p in r.lets)]:
        for extreme in _extremes(poly):
            yield from maps_in(extreme.body)


def _extremes(node: Factor | Term | Poly) -> Iterator[Extreme]:
    if isinstance(node, Poly):
        for term in node.terms:
            yield from _extremes(term)
    elif isinstance(node, tuple):
        for factor in node:
            yield from _extremes(factor)
    elif isinstance(node, Extreme):
        yield node
    elif hasattr(node, "body"):
        yield from _extremes(node.body)


@dataclass(slots=True)
class Access:
    """How maps are read: slices and scans (by known positions), and trees (ordered position)."""

    hashed: defaultdict[str, set[tuple[int, ...]]] = field(default_factory=lambda: defaultdict(set))
    ordered: defaultdict[str, set[int]] = field(default_factory=lambda: defaultdict(set))
    ranged: list[RangeSum | Extremum | Loop] = field(default_factory=list)

    def read_all(self, pipelines: Iterable[Pipeline]) -> None:
        for step in steps_of(pipelines):
            within = step.range if isinstance(step, RangeSum | Extremum | Loop) else None
            if isinstance(step, Loop) and within is None:
                self.hashed[step.map].add(step.known if len(step.known) < len(step.keys) else ())
            elif isinstance(step, RangeSum | Extremum | Loop) and within is not None:
                self.ranged.append(step)
                self.ordered[step.map].add(within.position)
                for cut in within.cuts:
                    for _, name in cut.sums:
                        self.ordered[name].add(cut.position)


def stores_for(
    types: Mapping[str, Type],
    relations: Mapping[str, Relation],
    group: Sequence[MapDeclaration],
    access: Access,
    statistics: Statistics | None,
) -> list[Store]:
    """The stores of a group: a hashed one for look-ups, slices and scans, a tree for every ordered key."""
    names = tuple(d.name for d in sorted(group, key=lambda d: d.type.kind is Kind.DOUBLE))
    key_types = group[0].key_types
    layout = "".join(layout_of(types[n]) for n in names)
    if "d" in layout and "i" not in layout:
        layout += "i"
    slices = sorted({p for n in names for p in access.hashed.get(n, ())})
    positions = sorted({p for n in names for p in access.ordered.get(n, ())})
    stores = []
    if slices or not positions:
        stores.append(Store(names[0], names, key_types, layout, slices=tuple(p for p in slices if p)))
    for position in positions:
        prefix = tuple(i for i in range(len(key_types)) if i != position)
        prefixes = None if statistics is None else _prefixes(statistics, group[0].name, prefix)
        dense = dense_of(relations, group, position, layout, access.ranged, prefixes)
        name = f"{names[0]}_by_{position}"
        nullable = not all(column_types(relations, d, position) for d in group)
        stores.append(Store(name, names, key_types, layout, prefix, position, dense=dense, nullable=nullable))
    return stores


def _prefixes(statistics: Statistics, name: str, prefix: Sequence[int]) -> int | None:
    """How many values the keys at `prefix` have; None where that was not measured."""
    if not statistics.loop_length(name, prefix):
        return None
    return distinct(statistics, name, statistics.entries.get(name, 0), prefix)


def layout_of(kind: Type) -> str:
    """The value column of a map: 64 bits, 128 bits, 128 bits checked, or a compensated double."""
    if kind.kind is Kind.DOUBLE:
        return "d"
    bound = max(abs(kind.low), abs(kind.high))
    return "i" if bound <= INT64_MAX else "w" if bound <= INT128_MAX else "W"


def key_type(kind: Type) -> Type:
    """The type of a key as a map holds it: in 64 bits, whatever the value that makes it may be."""
    return replace(kind, low=max(kind.low, -INT64_MAX), high=min(kind.high, INT64_MAX))
