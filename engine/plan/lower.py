"""Lowers polynomials over maps to pipelines: joins in order, ranges and cuts where they answer a read."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import count

from views.compiler.calculus import (
    Apply,
    Cmp,
    Const,
    Exists,
    Factor,
    Lift,
    MapRef,
    Poly,
    Scalar,
    Term,
    Val,
    Var,
    bound_by,
    variable_set,
)
from views.compiler.intervals import Types, exact, multiply, scalar_type
from views.compiler.m3 import Program
from views.compiler.types import DOUBLE, Kind, Type

from .ranges import Bounds, cut, is_ordered, solve, unbound
from .steps import Aggregate, Filter, Lookup, Loop, Pipeline, RangeSum, Step


@dataclass(slots=True)
class Lowering:
    """Lowers the statements of one program; `types` has the type of every variable seen so far."""

    program: Program
    types: dict[Var, Type]
    maps: Mapping[str, Type] = field(init=False)
    _keys: Mapping[str, tuple[Type, ...]] = field(init=False)
    _numbers: "count[int]" = field(default_factory=count)

    def __post_init__(self) -> None:
        self.maps = {m.name: m.type for m in self.program.maps}
        self._keys = {m.name: m.key_types for m in self.program.maps}

    def poly(self, poly: Poly, known: frozenset[Var], live: frozenset[Var]) -> tuple[Pipeline, ...]:
        """One pipeline for each term. `live` are variables that the target's keys need bound."""
        return tuple(_Term(self, t, known, live).lowered() for t in poly.terms)

    def value_variable(self, kind: Type) -> Var:
        variable = Var(f"value_{next(self._numbers)}")
        self.types[variable] = kind
        return variable

    def type_of(self, pipelines: tuple[Pipeline, ...]) -> Type:
        """The type of the sum of pipelines; a sum over a map's entries is within the map's own type."""
        total: Type | None = None
        for pipeline in pipelines:
            value = exact(1, 1)
            for scalar in pipeline.values:
                value = multiply(value, scalar_type(scalar, self.types))
            if total is None:
                total = value
            elif DOUBLE in (total, value):
                total = DOUBLE
            else:
                total = exact(min(total.low, 0) + min(value.low, 0), max(total.high, 0) + max(value.high, 0))
        if total is None:
            return exact(0, 0)
        return total if total.kind is Kind.DOUBLE else exact(min(total.low, 0), max(total.high, 0))

    def key_types(self, read: MapRef) -> tuple[Type, ...]:
        return self._keys[read.name]


class _Term:
    """The lowering of one term: repeatedly takes the cheapest factor that can be evaluated."""

    def __init__(self, lowering: Lowering, term: Term, known: frozenset[Var], live: frozenset[Var]):
        self.lowering, self.live = lowering, live
        self.known = known
        self.pending: list[Factor] = list(term)
        self.binders = known | frozenset(v for f in term for v in bound_by(f))
        self.steps: list[Step] = []
        self.values: list[Scalar] = []
        for factor in term:
            if isinstance(factor, MapRef):
                self._type_keys(factor)

    def _type_keys(self, read: MapRef) -> None:
        for key, kind in zip(read.keys, self.lowering.key_types(read), strict=True):
            if isinstance(key, Var):
                self.lowering.types.setdefault(key, kind)

    def lowered(self) -> Pipeline:
        while self.pending:
            if not (self._conditions() or self._lookups() or self._lifts() or self._read()):
                raise ValueError(f"no order binds the variables of {self.pending}")
        return Pipeline(tuple(self.steps), tuple(self.values))

    def _take(self, factor: Factor) -> None:
        self.pending = [f for f in self.pending if f is not factor]

    def _conditions(self) -> bool:
        for factor in self.pending:
            if isinstance(factor, Cmp | Val) and variable_set(factor) <= self.known:
                self._take(factor)
                if isinstance(factor, Cmp):
                    self.steps.append(Filter(Apply(factor.op, (factor.left, factor.right))))
                elif self._is_condition(factor.scalar):
                    self.steps.append(Filter(factor.scalar))
                else:
                    self.values.append(factor.scalar)
                return True
        return False

    def _is_condition(self, scalar: Scalar) -> bool:
        """Whether it is 0 or 1; a choice or column of conditions may be NULL too."""
        kind = scalar_type(scalar, self.lowering.types).kind
        return kind is Kind.BOOLEAN and isinstance(scalar, Apply) and scalar.op != "if"

    def _lookups(self) -> bool:
        for factor in self.pending:
            if isinstance(factor, MapRef) and not unbound(factor.keys, self.known):
                self._take(factor)
                value = self.lowering.value_variable(self.lowering.maps[factor.name])
                self.steps.append(Lookup(value, factor.name, factor.keys))
                self.values.append(value)
                return True
        return False

    def _lifts(self) -> bool:
        for factor in self.pending:
            if not isinstance(factor, Lift | Exists):
                continue
            needs = (variable_set(factor.body) & self.binders) - bound_by(factor)
            if isinstance(factor, Lift) and needs <= self.known:
                self._take(factor)
                pipelines = self.lowering.poly(factor.body, self.known, frozenset())
                self.lowering.types[factor.var] = self.lowering.type_of(pipelines)
                self.steps.append(Aggregate(factor.var, pipelines))
                self.known |= {factor.var}
                return True
            if isinstance(factor, Exists) and needs | frozenset(factor.group) <= self.known:
                self._take(factor)
                pipelines = self.lowering.poly(factor.body, self.known, frozenset())
                value = self.lowering.value_variable(self.lowering.type_of(pipelines))
                self.steps += [Aggregate(value, pipelines), Filter(Apply("<>", (value, Const(0))))]
                return True
        return False

    def _read(self) -> bool:
        """A map some of whose keys are not known: a range or cut where one answers it, else a loop."""
        reads = [f for f in self.pending if isinstance(f, MapRef)]
        for read in reads:
            step = self._range_sum(read)
            if step is not None:
                self.steps.append(step)
                self.values.append(step.value)
                return True
        groups = [f for f in self.pending if isinstance(f, Exists)]
        candidates: list[MapRef | Exists] = [*reads, *groups]
        if not candidates:
            return False
        best = min(candidates, key=self._rank)
        if isinstance(best, Exists):
            self._loop_groups(best)
        else:
            self._loop(best)
        return True

    def _rank(self, factor: MapRef | Exists) -> tuple[int, int]:
        keys = factor.keys if isinstance(factor, MapRef) else factor.group
        free = len(unbound(keys, self.known))
        return (len(keys) == free, free)

    def _range_sum(self, read: MapRef) -> RangeSum | None:
        """The read as a sum over a range of one unknown key, if nothing else needs that key."""
        free = unbound(read.keys, self.known)
        if len(free) != 1 or free[0] in self.live or read.keys.count(free[0]) != 1:
            return None
        variable = free[0]
        position = read.keys.index(variable)
        if not is_ordered(self.lowering.key_types(read)[position]):
            return None
        lifts = {f.var: f for f in self.pending if isinstance(f, Lift)}
        users = [f for f in self.pending if f is not read and self._uses(f, variable, lifts)]
        bounds, cuts, taken = Bounds(), [], set()
        for factor in users:
            if isinstance(factor, Lift):
                continue
            if not isinstance(factor, Cmp):
                return None
            solved = (
                solve(factor, variable, self._types_with(lifts)) if self._solvable(factor, variable) else None
            )
            if solved is not None:
                bounds += solved
                continue
            found = cut(factor, variable, lifts, self.known, self._types_with(lifts), self.lowering.maps)
            if found is None:
                return None
            cuts.append(found)
            taken |= {v for v, _ in found.sums}
        if any(isinstance(f, Lift) and f.var not in taken for f in users):
            return None
        for factor in users:
            self._take(factor)
        self._take(read)
        value = self.lowering.value_variable(self.lowering.maps[read.name])
        return RangeSum(value, read.name, read.keys, position, bounds.low, bounds.high, tuple(cuts))

    def _uses(self, factor: Factor, variable: Var, lifts: Mapping[Var, Lift]) -> bool:
        """Whether the factor depends on the variable, itself or through a pending lift."""
        used = variable_set(factor)
        return variable in used or any(v in lifts and variable in variable_set(lifts[v]) for v in used)

    def _solvable(self, factor: Cmp, variable: Var) -> bool:
        return variable_set(factor) - {variable} <= self.known

    def _types_with(self, lifts: Mapping[Var, Lift]) -> Mapping[Var, Type]:
        """Types with those of pending lifts, taken from the map each of them sums."""
        types = Types(self.lowering.types)
        for variable, lift in lifts.items():
            total = exact(0, 0)
            for term in lift.body.terms:
                reads = [f for f in term if isinstance(f, MapRef)]
                for read in reads:
                    self._type_keys(read)
                    total = self.lowering.maps[read.name]
            types.setdefault(variable, total)
        return types

    def _loop(self, read: MapRef) -> None:
        """Loops over the entries that agree with the known keys, within a range where one is given."""
        free = unbound(read.keys, self.known)
        known = tuple(i for i, k in enumerate(read.keys) if not isinstance(k, Var) or k in self.known)
        value = self.lowering.value_variable(self.lowering.maps[read.name])
        self._take(read)
        position, bounds = None, Bounds()
        if len(free) == 1 and read.keys.count(free[0]) == 1:
            at = read.keys.index(free[0])
            comparisons = [
                f
                for f in self.pending
                if isinstance(f, Cmp) and free[0] in variable_set(f) and self._solvable(f, free[0])
            ]
            for factor in comparisons if is_ordered(self.lowering.key_types(read)[at]) else ():
                solved = solve(factor, free[0], self.lowering.types)
                if solved is not None:
                    position, bounds = at, bounds + solved
                    self._take(factor)
        self.steps.append(Loop(value, read.name, read.keys, known, position, bounds.low, bounds.high))
        self.values.append(value)
        self.known |= frozenset(free)

    def _loop_groups(self, exists: Exists) -> None:
        """Loops over the groups of an Exists whose body is one map keyed by the group."""
        body = exists.body.terms[0] if len(exists.body.terms) == 1 else ()
        if len(body) != 1 or not isinstance(body[0], MapRef):
            raise NotImplementedError("groups of an expression over several maps")
        read = body[0]
        self._type_keys(read)
        if frozenset(unbound(read.keys, self.known)) - frozenset(exists.group):
            raise NotImplementedError("groups of a map with more keys")
        self._take(exists)
        known = tuple(i for i, k in enumerate(read.keys) if not isinstance(k, Var) or k in self.known)
        self.steps.append(Loop(self.lowering.value_variable(exact(0, 0)), read.name, read.keys, known))
        self.known |= frozenset(exists.group)
