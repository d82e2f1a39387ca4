"""What the pending factors of a term say of one key of a read: bounds, cuts, and what is left.

Maps that a plan adds to its program are collected on the way: directories of a map's keys, and scratch maps.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import count

from orderbook.engine.plan.ranges import Bounds, Signs, bounded_sum, cut, null_or_not, solve
from orderbook.engine.plan.statistics import Statistics
from orderbook.engine.plan.steps import Cut, Directory, Range
from orderbook.engine.plan.stores import key_type
from orderbook.views.calculus import (
    ZERO,
    Cmp,
    Const,
    Factor,
    Lift,
    MapRef,
    Poly,
    Scalar,
    Var,
    product,
    variable_set,
)
from orderbook.views.intervals import Types, exact
from orderbook.views.m3 import MapDeclaration
from orderbook.views.types import INT64_MAX, Relation, Type
from orderbook.views.weights import Weights, counted_rows, weights_of


@dataclass(slots=True)
class Derived:
    """Collects derived maps while a program is lowered.

    `leaders` names for each map the first of those that share its entries, so that they share
    directories too. `statistics` are what orders of loops are chosen by. `types` and `keys` are of the
    program's own maps, keys as their stores hold them. `asked` are what directories were asked for of,
    `scratches` how many scratch maps there are.
    """

    declared: Mapping[str, MapDeclaration]
    relations: Mapping[str, Relation]
    leaders: Mapping[str, str]
    statistics: Statistics | None = None
    maps: dict[str, MapDeclaration] = field(default_factory=dict)
    directories: dict[str, Directory] = field(default_factory=dict)
    asked: set[tuple[str, tuple[int, ...]]] = field(default_factory=set)
    scratches: int = 0
    types: Mapping[str, Type] = field(init=False)
    keys: Mapping[str, tuple[Type, ...]] = field(init=False)

    def __post_init__(self) -> None:
        self.types = {name: m.type for name, m in self.declared.items()}
        self.keys = {name: tuple(map(key_type, m.key_types)) for name, m in self.declared.items()}

    def holds(self, read: MapRef, zero: frozenset[MapRef] = frozenset()) -> bool:
        """Whether a map holds nothing below 0 where it is read, while these entries hold 0.

        They are of maps that count rows with less than 0.
        """
        kind = self.types[read.name]
        if kind.exact and kind.low >= 0:
            return True
        if not zero or read.name not in self.declared:
            return False
        weights = weights_of(self.declared[read.name].definition, self._read_at(read), self.relations)
        known = [self.counted(one) for one in zero]
        return weights is not None and all(any(k and k.covers(w) for k in known) for w in weights)

    def counted(self, read: MapRef) -> Weights | None:
        """The rows of which an entry counts those below 0; None where it counts others."""
        return counted_rows(self.declared[read.name].definition, self._read_at(read), self.relations)

    def _read_at(self, read: MapRef) -> Mapping[Var, Scalar]:
        return dict(zip(self.declared[read.name].keys, read.keys, strict=True))

    def directory(self, source: str, positions: tuple[int, ...]) -> str:
        """The name of the map that counts the source's entries by the keys at `positions`."""
        self.asked.add((source, positions))
        source = self.leaders.get(source, source)
        if source in self.maps:
            raise ValueError(f"{source} is derived itself")
        name = self._unused("_".join([source, "keys", *map(str, positions)]), of=source)
        if name not in self.maps:
            whole = self.declared[source]
            keys = tuple(whole.keys[p] for p in positions)
            kinds = tuple(whole.key_types[p] for p in positions)
            definition = product(MapRef(source, whole.keys))
            self.maps[name] = MapDeclaration(name, keys, kinds, exact(0, INT64_MAX), definition)
            self.directories[name] = Directory(name, source, positions)
        return name

    def scratch(self, kinds: Sequence[Type], value: Type) -> str:
        """The name of a new map that a statement fills and reads."""
        self.scratches += 1
        name = self._unused(f"scratch_{self.scratches}")
        keys = tuple(Var(f"key_{i}") for i in range(len(kinds)))
        self.maps[name] = MapDeclaration(name, keys, tuple(kinds), value, ZERO)
        return name

    def _unused(self, name: str, of: str = "") -> str:
        while name in self.declared or (name in self.maps and not of):
            name += "_"
        return name


@dataclass(slots=True)
class Scope:
    """What lowering has come to know: the types of variables seen so far, and maps derived.

    `zero` are entries of maps that hold 0 where what is lowered is run, `presumed` other maps that were taken
    to hold nothing below 0 for that. `sums` are variables that are bound to sums that are not.
    """

    derived: Derived
    types: dict[Var, Type]
    numbers: "count[int]" = field(default_factory=count, kw_only=True)
    zero: frozenset[MapRef] = field(default=frozenset(), kw_only=True)
    presumed: set[str] = field(default_factory=set, kw_only=True)
    sums: set[Var] = field(default_factory=set, kw_only=True)

    @property
    def maps(self) -> Mapping[str, Type]:
        return self.derived.types

    @property
    def keys(self) -> Mapping[str, tuple[Type, ...]]:
        return self.derived.keys

    def signs(self, lifts: Mapping[Var, Lift]) -> Signs:
        """What is known of the signs of sums, these to be computed included."""
        return Signs(self._holds, self.sums, lifts)

    def _holds(self, read: MapRef) -> bool:
        """Whether a map holds nothing below 0 where it is read."""
        if self.derived.holds(read):
            return True
        if not self.derived.holds(read, self.zero):
            return False
        self.presumed.add(read.name)
        return True

    def value_variable(self, kind: Type) -> Var:
        variable = Var(f"$value_{next(self.numbers)}")
        self.types[variable] = kind
        return variable

    def type_keys(self, read: MapRef) -> None:
        for key, kind in zip(read.keys, self.keys[read.name], strict=True):
            if isinstance(key, Var):
                self.types.setdefault(key, kind)


# Keys that are walked one by one rather than that all groups are asked how many of them they have.
_FEW = 1000


@dataclass(frozen=True, slots=True)
class Restriction:
    """The factors that depend on a key: bounds and cuts answer `taken`, `lifts` are the sums of cuts.

    `complete` says that there are no others.
    """

    bounds: Bounds
    cuts: tuple[Cut, ...]
    taken: tuple[Factor, ...]
    lifts: tuple[Lift, ...]
    complete: bool

    @property
    def users(self) -> tuple[Factor, ...]:
        return self.taken + self.lifts

    @property
    def narrows(self) -> bool:
        return bool(self.bounds.high or self.cuts) or any(isinstance(f, Cmp) for f in self.taken)

    @property
    def takes_few(self) -> bool:
        """Whether few keys lie before a cut: no entry weighs less than 1."""
        ends = [c.limit.value for c in self.cuts if c.leading and isinstance(c.limit, Const)]
        return any(isinstance(end, int) and end <= _FEW for end in ends)

    @property
    def is_window(self) -> bool:
        return bool(self.bounds.low and self.bounds.high)

    def range(self, position: int) -> Range:
        return Range(position, self.bounds.low, self.bounds.high, self.cuts)


def restriction(
    scope: Scope,
    pending: Sequence[Factor],
    read: Factor,
    variable: Var,
    known: frozenset[Var],
    binders: frozenset[Var],
) -> Restriction:
    """What `pending` says of a key of `read`, if `known` variables were known.

    binders: all that the term of `pending` binds, known yet or not.
    """
    lifts = {f.var: f for f in pending if isinstance(f, Lift)}
    types, signs = _types_with(scope, lifts), scope.signs(lifts)
    users = [f for f in pending if f is not read and _uses(f, variable, lifts)]
    bounds, cuts, taken = Bounds(), [], []
    for factor in users:
        if isinstance(factor, Lift):
            continue
        solved = null_or_not(factor, variable)
        if isinstance(factor, Cmp) and variable_set(factor) - {variable} <= known:
            solved = solve(factor, variable, types)
        if solved is not None:
            bounds += solved
            taken.append(factor)
        elif isinstance(factor, Cmp) and variable_set(factor) <= known | lifts.keys():
            # What equals a running sum lies between two ends of its order.
            ends = [replace(factor, op=op) for op in ("<=", ">=")] if factor.op == "=" else [factor]
            found = [
                cut(e, variable, lifts, known, binders, types, scope.maps, scope.keys, signs) for e in ends
            ]
            if None not in found:
                cuts += [c for c in found if c is not None]
                taken.append(factor)
                continue
            bounded = bounded_sum(factor, lifts, signs)
            if bounded is not None:
                total, at_most = bounded
                parts = [{total: Lift(total, Poly((term,)))} for term in lifts[total].body.terms]
                found = [
                    cut(at_most, variable, p, known, binders, types, scope.maps, scope.keys, signs)
                    for p in parts
                ]
                cuts += [c for c in found if c is not None and c.leading][:1]
    summed = [lifts[v] for c in cuts for v, _ in c.sums]
    left = [f for f in users if not any(f is t for t in (*taken, *summed))]
    return Restriction(bounds, tuple(cuts), tuple(taken), tuple(dict.fromkeys(summed)), not left)


def _uses(factor: Factor, variable: Var, lifts: Mapping[Var, Lift]) -> bool:
    """Whether the factor depends on the variable, itself or through a pending lift."""
    used = variable_set(factor)
    return variable in used or any(v in lifts and variable in variable_set(lifts[v]) for v in used)


def _types_with(scope: Scope, lifts: Mapping[Var, Lift]) -> Mapping[Var, Type]:
    """Types with those of pending lifts, taken from the map each of them sums."""
    types = Types(scope.types)
    for variable, lift in lifts.items():
        total = exact(0, 0)
        for term in lift.body.terms:
            for read in (f for f in term if isinstance(f, MapRef)):
                scope.type_keys(read)
                total = scope.maps[read.name]
        types.setdefault(variable, total)
    return types
