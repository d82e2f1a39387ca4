"""The physical plan of an M3 program: stores, and statements as pipelines of steps."""

from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, is_dataclass, replace
from functools import cache, cached_property
from typing import Any, Union

from orderbook.engine.maps.dense import Domain
from orderbook.views.calculus import Cmp, Scalar, Var, scalar_variables
from orderbook.views.conditions import NULL
from orderbook.views.m3 import Program, Result
from orderbook.views.types import Type


@dataclass(frozen=True, slots=True)
class Cursor:
    """A place kept at the cut where the running sum of `map` passes `limit`."""

    map: str
    inclusive: bool
    limit: Scalar


@dataclass(frozen=True, slots=True)
class Dense:
    """An array over all keys of a small domain, in place of a tree."""

    domain: Domain
    cursors: tuple[Cursor, ...]


@dataclass(frozen=True, slots=True)
class Store:
    """One physical structure for one or more maps with the same keys, one value column for each.

    `prefix` and `ordered` are positions among the keys: an ordered store is a tree over the key at
    `ordered` for every prefix, or an array over its domain when `dense`; a hashed store (`ordered` is
    None) has `slices`, the sets of key positions by which its entries can be looped over. Not `nullable`:
    the ordered key is never NULL. Not `summed`: nothing reads sums over ranges of the tree.
    """

    name: str
    maps: tuple[str, ...]
    key_types: tuple[Type, ...]
    layout: str
    prefix: tuple[int, ...] = ()
    ordered: int | None = None
    slices: tuple[tuple[int, ...], ...] = ()
    dense: Dense | None = None
    nullable: bool = True
    summed: bool = True


@dataclass(frozen=True, slots=True)
class Filter:
    """Goes on where the condition is not 0."""

    condition: Scalar


@dataclass(frozen=True, slots=True)
class Lookup:
    """Binds `value` to the entry at `keys`; goes on where it is not 0."""

    value: Var
    map: str
    keys: tuple[Scalar, ...]


@dataclass(frozen=True, slots=True)
class Aggregate:
    """Binds `value` to the sum of pipelines."""

    value: Var
    pipelines: tuple["Pipeline", ...]


@dataclass(frozen=True, slots=True)
class Cut:
    """A condition on sums of a tree that holds on one end of its order: found by one descent.

    `sums` are the variables in `condition` that stand for the sum of a map over the keys before the
    entry at hand (and the entry, when `inclusive`), in descending or ascending order of the key at
    `position`; `prefix` are the other keys. It holds on a leading run of the order, or, not `leading`, on
    all but such a run. `limit` is the greatest sum for which the run goes on, where one sum decides.
    """

    prefix: tuple[Scalar, ...]
    position: int
    sums: tuple[tuple[Var, str], ...]
    condition: Cmp
    descending: bool
    inclusive: bool
    leading: bool
    limit: Scalar | None = None


@dataclass(frozen=True, slots=True)
class Range:
    """Keys of a tree, at `position`, from every `low` to every `high`, within every cut.

    Bounds are words as the tree keeps them, see `Apply` "ordered_word" in ranges.py for doubles.
    """

    position: int
    low: tuple[Scalar, ...] = ()
    high: tuple[Scalar, ...] = ()
    cuts: tuple[Cut, ...] = ()

    @property
    def everything(self) -> bool:
        return not (self.low or self.high or self.cuts)

    @property
    def of_one(self) -> bool:
        """Whether it is one key alone, of which a tree has one entry for each prefix."""
        return any(end in self.high for end in self.low)

    @property
    def of_null(self) -> bool:
        """Whether that is NULL."""
        return NULL in self.low and NULL in self.high


@dataclass(frozen=True, slots=True)
class RangeSum:
    """Binds `value` to the sum of a map over a range of one key."""

    value: Var
    map: str
    keys: tuple[Scalar, ...]
    range: Range


@dataclass(frozen=True, slots=True)
class Extremum:
    """Binds `value` to the least or `greatest` key in a range; goes on where there is one.

    The other keys are known. Entries whose value is 0 do not count.
    """

    value: Var
    map: str
    keys: tuple[Scalar, ...]
    range: Range
    greatest: bool


@dataclass(frozen=True, slots=True)
class Loop:
    """Goes on for every entry that agrees with the known keys, binding the others and `value`.

    With `range`, the entries of one tree within it; else those of a slice by the key positions
    `known` (none: a scan).
    """

    value: Var
    map: str
    keys: tuple[Scalar, ...]
    known: tuple[int, ...]
    range: Range | None = None


@dataclass(frozen=True, slots=True)
class Gather:
    """Fills the scratch map with the sum of pipelines for every binding of `keys`, then goes on."""

    map: str
    keys: tuple[Var, ...]
    pipelines: tuple["Pipeline", ...]


@dataclass(frozen=True, slots=True)
class FirstKey:
    """Binds `value` to the least or `greatest` key of a range at which the sum of pipelines is not 0, which
    read it as `value`; goes on where there is one.

    The other keys are known. Keys beyond the first are not looked at.
    """

    value: Var
    map: str
    keys: tuple[Scalar, ...]
    range: Range
    greatest: bool
    pipelines: tuple["Pipeline", ...]


Step = Union[Filter, Lookup, Aggregate, RangeSum, Extremum, FirstKey, Loop, Gather]


@dataclass(frozen=True, slots=True)
class Pipeline:
    """Steps in order; where they all go on, the product of `values` counts.

    `seldom`: they go on only where rows have weights that rows usually have not; see `Lowering.poly`.
    """

    steps: tuple[Step, ...]
    values: tuple[Scalar, ...]
    seldom: bool = False


@dataclass(frozen=True, slots=True)
class StatementPlan:
    """`target[keys] op sum of pipelines`.

    `types` has the type of every variable in it. Statements that read the state after are run by
    `level`: each reads only what lower ones wrote. Those that read the state before have level 0.
    `erased` takes away, before a `:=` whose keys the event gives in part, the entries that agree with it.
    `rises`: no pipeline takes anything away.
    """

    target: str
    keys: tuple[Scalar, ...]
    op: str
    pipelines: tuple[Pipeline, ...]
    after: bool
    types: Mapping[Var, Type] = field(compare=False)
    level: int = 0
    erased: tuple[Pipeline, ...] = ()
    rises: bool = False

    def writes_one(self, parameters: Container[Var]) -> bool:
        """Whether the event alone says which entry is written."""
        return all(v in parameters for k in self.keys for v in scalar_variables(k))


@dataclass(frozen=True, slots=True)
class TriggerPlan:
    relation: str
    insert: bool
    parameters: tuple[Var, ...]
    statements: tuple[StatementPlan, ...]


@dataclass(frozen=True, slots=True)
class UpdatePlan:
    """An update (updates.py): `parts` are statements of the old row, of the new one, and of both."""

    relation: str
    old: tuple[Var, ...]
    new: tuple[Var, ...]
    same: tuple[int, ...]
    parts: tuple[tuple[StatementPlan, ...], ...]


@dataclass(frozen=True, slots=True)
class ResultPlan:
    """How a view's row is computed from its keys: lets in order, each a sum of pipelines."""

    result: Result
    lets: tuple[tuple[Var, tuple[Pipeline, ...]], ...]
    types: Mapping[Var, Type] = field(compare=False)


@dataclass(frozen=True, slots=True)
class Directory:
    """A derived map: how many entries the store of `source` has for each binding of some of its keys.

    `positions` are those keys among the source's. It gives a map's groups without a walk over its
    entries, and slices of it in the order of a key.
    """

    name: str
    source: str
    positions: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Projection:
    """A map that is the sum of `source` over the keys that are not at `positions`, and is written with it.

    See `projections.py`. Its statements stay in the plan, and are not run.
    """

    name: str
    source: str
    positions: tuple[int, ...]


@dataclass(frozen=True)
class Plan:
    """A program's plan; a map is held by every store that lists it.

    `program` has the derived maps too: directories, and the scratch maps that `Gather` fills.
    """

    program: Program
    stores: tuple[Store, ...]
    initial: tuple[StatementPlan, ...]
    triggers: tuple[TriggerPlan, ...]
    results: tuple[ResultPlan, ...]
    directories: tuple[Directory, ...] = ()
    updates: tuple[UpdatePlan, ...] = ()
    projections: tuple[Projection, ...] = ()

    def stores_of(self, name: str) -> tuple[Store, ...]:
        """The stores that hold a map, hashed ones first."""
        return self._stores_of.get(name, ())

    @cached_property
    def _stores_of(self) -> Mapping[str, tuple[Store, ...]]:
        found: dict[str, tuple[Store, ...]] = {}
        for store in self.stores:
            for name in dict.fromkeys(store.maps):
                found[name] = (*found.get(name, ()), store)
        return found

    def entries_of(self, name: str) -> Store:
        """The hashed store that holds a map; the multiplicities of a view have one."""
        return next(s for s in self.stores_of(name) if s.ordered is None)

    @property
    def statements(self) -> tuple[StatementPlan, ...]:
        of_updates = (s for u in self.updates for part in u.parts for s in part)
        return (*self.initial, *(s for t in self.triggers for s in t.statements), *of_updates)

    @cached_property
    def scratch(self) -> frozenset[str]:
        """The maps that `Gather` fills; what they hold between events is of no use."""
        pipelines = [p for s in self.statements for p in (*s.erased, *s.pipelines)]
        pipelines += [p for r in self.results for _, ps in r.lets for p in ps]
        return frozenset(s.map for s in steps_of(pipelines) if isinstance(s, Gather))

    @property
    def walked_to_a_cut(self) -> frozenset[str]:
        """The maps whose first entries loops visit."""
        found: set[str] = set()
        for pipeline in (p for s in self.statements for p in s.pipelines if not p.seldom):
            loops = [s for s in pipeline.steps if isinstance(s, Loop)]
            if any(s.range is not None and s.range.cuts for s in loops):
                found |= {s.map for s in loops}
        return frozenset(found)

    def directories_of(self, name: str) -> tuple[Directory, ...]:
        """The directories of the entries that a map shares with those of its store."""
        return self._directories_of.get(name, ())

    @cached_property
    def _directories_of(self) -> Mapping[str, tuple[Directory, ...]]:
        found: dict[str, tuple[Directory, ...]] = {}
        for directory in self.directories:
            for name in {m for s in self.stores_of(directory.source) for m in s.maps}:
                found[name] = (*found.get(name, ()), directory)
        return found

    def projections_of(self, name: str) -> tuple[Projection, ...]:
        """The maps that are written with a map."""
        return tuple(p for p in self.projections if p.source == name)

    @cached_property
    def projected(self) -> frozenset[str]:
        """The maps that are written with others."""
        return frozenset(p.name for p in self.projections)

    @cached_property
    def exchanged(self) -> frozenset[str]:
        """The maps of which triggers take something out as it was before, and put it back as it is after."""
        found: set[str] = set()
        for trigger in self.triggers:
            added = [s for s in trigger.statements if s.op == "+="]
            found |= {s.target for s in added if s.after} & {s.target for s in added if not s.after}
        return frozenset(found)

    def views_reading(self, name: str) -> Sequence[int]:
        """The numbers of the views whose rows are read of a map, or of one of its directories."""
        names = (name, *(d.name for d in self.directories_of(name)))
        return sorted({view for own in names for view in self._views_reading.get(own, ())})

    @cached_property
    def _views_reading(self) -> Mapping[str, list[int]]:
        found: dict[str, list[int]] = {}
        for view, result in enumerate(self.results):
            read = set(maps_in_pipelines(p for _, pipelines in result.lets for p in pipelines))
            if result.result.multiplicity is not None:
                read.add(result.result.multiplicity)
            for name in read:
                found.setdefault(name, []).append(view)
        return found


def steps_of(pipelines: Iterable[Pipeline]) -> Iterator[Step]:
    """All steps, those of nested pipelines included."""
    for pipeline in pipelines:
        for step in pipeline.steps:
            yield step
            if isinstance(step, Aggregate | FirstKey | Gather):
                yield from steps_of(step.pipelines)


def trees_of(pipelines: Iterable[Pipeline]) -> frozenset[tuple[str, int]]:
    """The maps of which pipelines read ranges, with the position of the key that is ordered."""
    found: set[tuple[str, int]] = set()
    for step in steps_of(pipelines):
        if isinstance(step, RangeSum | Extremum | FirstKey | Loop) and step.range is not None:
            found.add((step.map, step.range.position))
            found |= {(name, cut.position) for cut in step.range.cuts for _, name in cut.sums}
    return frozenset(found)


def over_trees(pipelines: Sequence[Pipeline], trees: Container[tuple[str, int]]) -> tuple[Pipeline, ...]:
    """Pipelines that loop over trees that are there, of a map by the position of a key; no other store."""
    return tuple(replace(p, steps=tuple(_over_tree(s, trees) for s in p.steps)) for p in pipelines)


def _over_tree(step: Step, trees: Container[tuple[str, int]]) -> Step:
    if isinstance(step, Aggregate | FirstKey | Gather):
        return replace(step, pipelines=over_trees(step.pipelines, trees))
    if isinstance(step, Loop) and step.range is None:
        left = [i for i in range(len(step.keys)) if i not in step.known]
        if len(left) == 1 and (step.map, left[0]) in trees:
            return replace(step, range=Range(left[0]))
    return step


def maps_in_pipelines(pipelines: Iterable[Pipeline]) -> Iterator[str]:
    """The maps that pipelines read, those of cuts included; a directory and a scratch map by own name."""
    return (name for name, _ in reads_in_pipelines(pipelines))


def reads_in_pipelines(pipelines: Iterable[Pipeline]) -> Iterator[tuple[str, tuple[Scalar | None, ...]]]:
    """Each map that pipelines read, with the keys it is read at; None stands for the key of a cut's order."""
    for step in steps_of(pipelines):
        if isinstance(step, Lookup | RangeSum | Extremum | FirstKey | Loop):
            yield step.map, step.keys
            ranges = () if isinstance(step, Lookup) else (step.range,)
            for cut in (cut for r in ranges if r for cut in r.cuts):
                keys = (*cut.prefix[: cut.position], None, *cut.prefix[cut.position :])
                yield from ((name, keys) for _, name in cut.sums)


def variables(part: object) -> Iterator[Var]:
    """All variables of statements or pipelines, as often as they stand there."""
    if isinstance(part, Var):
        yield part
    elif isinstance(part, tuple):
        for own in part:
            yield from variables(own)
    else:
        kind: Any = type(part)
        for name in _names_of(kind):
            yield from variables(getattr(part, name))


@cache
def _names_of(kind: Any) -> tuple[str, ...]:
    """The fields that may hold variables; none of what is no part of a plan."""
    return tuple(f.name for f in fields(kind)) if is_dataclass(kind) and kind is not Type else ()
