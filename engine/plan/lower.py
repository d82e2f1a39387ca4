"""Lowers polynomials over maps to pipelines: joins in order, ranges and cuts where they answer a read.

Of what can be evaluated the cheapest factor of a term is taken, until none is left.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial

from orderbook.engine.plan.nulls import nulls_of, without_null
from orderbook.engine.plan.ranges import Signs, bounded_sum, cut, ranked_sum, unbound
from orderbook.engine.plan.restrictions import Restriction, Scope, restriction
from orderbook.engine.plan.steps import (
    Aggregate,
    Extremum,
    Filter,
    FirstKey,
    Gather,
    Lookup,
    Loop,
    Pipeline,
    Range,
    RangeSum,
    Step,
    over_trees,
    trees_of,
    variables,
)
from orderbook.engine.plan.stores import (
    is_one_row,
    key_of,
    layout_of,
)
from orderbook.views.calculus import (
    Apply,
    Cmp,
    Const,
    Exists,
    Extreme,
    Factor,
    Lift,
    MapRef,
    Poly,
    Rel,
    Scalar,
    Term,
    Val,
    Var,
    bound_by,
    calls,
    product,
    substitute,
    substitute_scalar,
    variable_set,
)
from orderbook.views.intervals import exact, join, multiply, scalar_type
from orderbook.views.types import DOUBLE, INT64_MAX, Kind, Type
from orderbook.views.weights import counters


@dataclass(slots=True)
class Lowering(Scope):
    """Lowers a statement or a view's rows; `rows` are the primary keys of the event's rows."""

    rows: tuple[frozenset[Var], ...] = ()

    def poly(
        self, poly: Poly, known: frozenset[Var], live: frozenset[Var], gathering: bool = False
    ) -> tuple[Pipeline, ...]:
        """One pipeline for each term. `live` are variables that the target's keys need bound.

        gathering: to find an extreme, for which rows between two ends are fewer than values of all.
        """
        return tuple(p for term in poly.terms for p in self._pipelines(term, known, live, gathering))

    def _pipelines(
        self, term: Term, known: frozenset[Var], live: frozenset[Var], gathering: bool
    ) -> list[Pipeline]:
        """Of a term; it has two ways where sums have ends that are found while no row is weighed below 0."""
        counted = counters(term, known, live)
        rest = tuple(f for f in term if f not in counted) if counted else term
        zero = frozenset(counted.values()) - self.zero
        usual = self._while_zero(zero, rest, known, live, gathering) if zero else None
        pipelines = self._lowered(rest, known, live, gathering)
        if usual is None:
            return pipelines
        others = over_trees(pipelines, trees_of(usual))
        ways = (*((p, "=") for p in usual), *((replace(p, seldom=True), "<>") for p in others))
        return [replace(p, steps=(*self._comparing(sorted(zero, key=str), op), *p.steps)) for p, op in ways]

    def _lowered(
        self, term: Term, known: frozenset[Var], live: frozenset[Var], gathering: bool
    ) -> list[Pipeline]:
        found = []
        for one in without_null(self, term, known):
            sums = set(self.sums)
            found.append(_Term(self, one, known, live, gathering).lowered())
            self.sums = sums
        return found

    def _while_zero(
        self,
        zero: frozenset[MapRef],
        term: Term,
        known: frozenset[Var],
        live: frozenset[Var],
        gathering: bool,
    ) -> list[Pipeline] | None:
        """Of a term while some more entries hold 0; None where it is the same when they do not."""
        before, presumed = self.zero, self.presumed
        self.zero, self.presumed = before | zero, set()
        pipelines = self._lowered(term, known, live, gathering)
        differs = bool(self.presumed)
        self.zero, self.presumed = before, presumed | self.presumed
        return pipelines if differs else None

    def _comparing(self, zero: Sequence[MapRef], op: str) -> tuple[Step, ...]:
        """Goes on where the sum of these entries compares so with 0."""
        reads = []
        for entry in zero:
            value = self.value_variable(self.maps[entry.name])
            reads.append(Pipeline((Lookup(value, entry.name, entry.keys),), (value,)))
        total = self.value_variable(self.type_of(tuple(reads)))
        return Aggregate(total, tuple(reads)), Filter(Apply(op, (total, Const(0))))

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


# How a read could go on, and its rank: the least is taken.
Way = tuple[tuple[int, int, int], Callable[[], None]]


class _Term:
    """The lowering of one term: repeatedly takes the cheapest factor that can be evaluated."""

    def __init__(
        self,
        lowering: Lowering,
        term: Term,
        known: frozenset[Var],
        live: frozenset[Var],
        gathering: bool = False,
    ):
        self.lowering, self.live, self.gathering = lowering, live, gathering
        self.known = known
        self.pending: list[Factor] = list(term)
        self.binders = known | frozenset(v for f in term for v in bound_by(f))
        self.steps: list[Step] = []
        self.values: list[Scalar] = []
        self.guarded: set[Scalar] = set()
        self.bounded: set[Cmp] = set()
        for factor in term:
            if isinstance(factor, MapRef):
                lowering.type_keys(factor)
                self.pending += nulls_of(lowering, factor, known)

    def lowered(self) -> Pipeline:
        while self.pending:
            ahead = self._before_reads() or self._equal_keys() or self._lookups() or self._nested()
            if not (ahead or self._conditions(calling=True) or self._bounds_of_parts() or self._read()):
                raise ValueError(f"no order binds the variables of {self.pending}")
        return Pipeline(tuple(self.steps), tuple(self.values))

    def _take(self, *factors: Factor) -> None:
        self.pending = [f for f in self.pending if not any(f is taken for taken in factors)]

    def _before_reads(self) -> bool:
        return self._conditions() or self._guards()

    def _guards(self) -> bool:
        """Reads are made only at keys that 64 bits hold, as those of maps are: nothing equals another one."""
        for read in self._pending_reads():
            for key in read.keys:
                if key in self.guarded or not variable_set(Val(key)) <= self.known:
                    continue
                self.guarded.add(key)
                kind = scalar_type(key, self.lowering.types)
                if kind.exact and layout_of(kind) != "i":
                    self.steps.append(Filter(_in_one_word(key)))
                    return True
        return False

    def _pending_reads(self) -> Iterator[MapRef]:
        for factor in self.pending:
            match factor:
                case MapRef():
                    yield factor
                case Exists(_, Poly(((MapRef() as read,),))):
                    yield read

    def _conditions(self, calling: bool = False) -> bool:
        """calling: those with calls of users' functions, which come when all others have been looked at."""
        for factor in self.pending:
            if not isinstance(factor, Cmp | Val) or calls(factor) is not calling:
                continue
            if variable_set(factor) <= self.known:
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

    def _equal_keys(self) -> bool:
        """A key that is equal to what is known is that, for which no order has to be kept."""
        keys = {
            key: kind
            for read in self._pending_reads()
            for key, kind in zip(read.keys, self.lowering.keys[read.name], strict=True)
            if key not in self.known
        }
        for factor in self.pending:
            if not isinstance(factor, Cmp) or factor.op != "=" or calls(factor):
                continue
            for key, scalar in ((factor.left, factor.right), (factor.right, factor.left)):
                if key not in keys or not variable_set(Val(scalar)) <= self.known:
                    continue
                kinds = keys[key], scalar_type(scalar, self.lowering.types)
                if all(map(_is_word, kinds)):
                    assert isinstance(key, Var)
                    self._take(factor)
                    self._bind(key, self._aggregate(Poly(((Val(scalar),),))))
                    return True
        return False

    def _bounds_of_parts(self) -> bool:
        """What bounds a sum bounds what is known of it: where that is too much, nothing is walked."""
        lifts = {f.var: f for f in self.pending if isinstance(f, Lift)}
        for factor in [f for f in self.pending if isinstance(f, Cmp) and f not in self.bounded]:
            found = bounded_sum(factor, lifts, self.lowering.signs(lifts))
            if found is None or not variable_set(factor) - {found[0]} <= self.known:
                continue
            total, at_most = found
            terms = lifts[total].body.terms
            known = tuple(t for t in terms if variable_set(t) & self.binders <= self.known)
            if known and len(known) < len(terms):
                self.bounded.add(factor)
                part = {total: self._aggregate(Poly(known))}
                self.steps.append(
                    Filter(
                        Apply(
                            at_most.op,
                            (substitute_scalar(at_most.left, part), substitute_scalar(at_most.right, part)),
                        )
                    )
                )
                return True
        return False

    def _lookups(self) -> bool:
        for factor in self.pending:
            if isinstance(factor, MapRef) and not unbound(factor.keys, self.known):
                self._take(factor)
                value = self.lowering.value_variable(self.lowering.maps[factor.name])
                self.steps.append(Lookup(value, factor.name, factor.keys))
                self.values.append(value)
                return True
        return False

    def _nested(self) -> bool:
        """A nested polynomial whose value the known variables determine."""
        for factor in self.pending:
            match factor:
                case Lift(var, body) if self._ready(factor, (var,)):
                    self._take(factor)
                    self._bind(var, self._aggregate(body))
                    if all(map(self.lowering.signs({}).rises, body.terms)):
                        self.lowering.sums.add(var)
                    return True
                case Exists(group, body) if self._ready(factor, group) and frozenset(group) <= self.known:
                    self._take(factor)
                    self.steps.append(Filter(Apply("<>", (self._aggregate(body), Const(0)))))
                    return True
                case Extreme(var, _, value, _) if self._ready(factor, (var, value)):
                    self._take(factor)
                    self._bind(var, self._extreme(factor))
                    return True
        return False

    def _ready(self, factor: Lift | Exists | Extreme, own: tuple[Var, ...]) -> bool:
        return (variable_set(factor.body) & self.binders) - frozenset(own) <= self.known

    def _aggregate(self, body: Poly) -> Var:
        """A new variable for the sum of a body."""
        pipelines = self.lowering.poly(body, self.known, frozenset())
        value = self.lowering.value_variable(self.lowering.type_of(pipelines))
        self.steps.append(Aggregate(value, pipelines))
        return value

    def _bind(self, variable: Var, value: Var) -> None:
        """Gives a variable the value just computed, or compares the two where it has one."""
        if variable in self.known:
            self.steps.append(Filter(Apply("=", (variable, value))))
            return
        step = self.steps[-1]
        assert isinstance(step, Aggregate | Extremum)
        self.steps[-1] = replace(step, value=variable)
        kind, other = self.lowering.types.pop(value), self.lowering.types.get(variable)
        # A variable that several terms bind, such as a key of the target, holds what each of them gives.
        self.lowering.types[variable] = join(kind, other) if other else kind
        self.known |= {variable}

    def _extreme(self, factor: Extreme) -> Var:
        """A new variable for the extreme key, an end of the body's one map or of a scratch map."""
        own = Var(f"{factor.value.name} of {next(self.lowering.numbers)}")
        body = substitute(factor.body, {factor.value: own})
        step = (
            self._end_of_tree(body, own, factor.greatest)
            or self._rank_in_scratch(body, own, factor.greatest)
            or self._end_of_scratch(body, own, factor.greatest)
        )
        self.lowering.types[step.value] = self.lowering.types[own]
        self.steps.append(step)
        return step.value

    def _end_of_tree(self, body: Poly, own: Var, greatest: bool) -> Extremum | None:
        """The step for one map restricted by known values, whose steps come before; None for other bodies."""
        if len(body.terms) != 1:
            return None
        inner = _Term(self.lowering, body.terms[0], self.known, frozenset())
        while inner._before_reads() or inner._lookups() or inner._nested():
            pass
        reads = [f for f in inner.pending if isinstance(f, MapRef) and own in f.keys]
        if len(reads) != 1 or not inner._orders(reads[0], own):
            return None
        read = reads[0]
        found = inner._restriction(read, own, inner.known)
        inner._take(read, *found.users)
        if not found.complete or inner.pending or any(read.keys.count(v) != 1 for v in read.keys):
            return None
        self.steps += inner.steps
        self.steps += [Filter(Apply("<>", (v, Const(0)))) for v in inner.values]
        name, keys, within = inner._narrowed(read, own, found)
        return Extremum(self._key_variable(own), name, keys, within, greatest)

    def _rank_in_scratch(self, body: Poly, own: Var, greatest: bool) -> Extremum | None:
        """The first key of a body up to which its own sum fulfils a condition; None for other bodies.

        So a quantile of the rows between two ends takes them into one scratch map, and a cut of that.
        """
        ranked = ranked_sum(body, own)
        if ranked is None:
            return None
        rows, count, at, condition = ranked
        pipelines = self.lowering.poly(rows, self.known, frozenset((own,)), gathering=True)
        kind, value = self.lowering.types[own], self.lowering.type_of(pipelines)
        if value.kind is not Kind.INTEGER or value.low < 0:
            return None
        scratch = self.lowering.derived.scratch((kind,), value)
        key = at.right if at.left == own else at.left
        assert isinstance(key, Var)
        found = cut(
            condition,
            own,
            {count: Lift(count, product(MapRef(scratch, (key,)), at))},
            self.known,
            self.binders,
            {**self.lowering.types, count: value},
            {**self.lowering.maps, scratch: value},
            {**self.lowering.keys, scratch: (kind,)},
            Signs(lambda read: read.name == scratch),
        )
        self.lowering.types[count] = value
        if found is None:
            return None
        self.steps.append(Gather(scratch, (own,), pipelines))
        return Extremum(self._key_variable(own), scratch, (own,), Range(0, cuts=(found,)), greatest)

    def _end_of_scratch(self, body: Poly, own: Var, greatest: bool) -> Extremum:
        pipelines = self._first_keys(body, own, greatest)
        kind = self.lowering.types[own]
        scratch = self.lowering.derived.scratch((kind,), self.lowering.type_of(pipelines))
        self.steps.append(Gather(scratch, (own,), pipelines))
        return Extremum(self._key_variable(own), scratch, (own,), Range(0), greatest)

    def _first_keys(self, body: Poly, own: Var, greatest: bool) -> tuple[Pipeline, ...]:
        """Pipelines whose greatest or least key is that of a body.

        One that walks all keys with an entry, or in a range, to add something at each that is never less than
        0, ends at the first where that is more. One that knows more of the keys than another has few of them.
        """
        pipelines = self.lowering.poly(body, self.known, frozenset((own,)), gathering=True)
        walks = [_walk(pipeline, own) for pipeline in pipelines]
        known = [frozenset(loop.keys[at] for at in loop.known) for loop in walks if loop is not None]
        found = []
        for pipeline, loop in zip(pipelines, walks, strict=True):
            if loop is not None:
                mine = frozenset(loop.keys[at] for at in loop.known)
                if loop.range is not None or not any(other < mine for other in known):
                    pipeline = self._ending(pipeline, loop, own, greatest)
            found.append(pipeline)
        return tuple(found)

    def _ending(self, pipeline: Pipeline, loop: Loop, own: Var, greatest: bool) -> Pipeline:
        """A pipeline that walks keys, in order and up to the first at which it adds more than 0."""
        at = pipeline.steps.index(loop)
        inside = Pipeline(pipeline.steps[at + 1 :], pipeline.values)
        if loop.value in set(variables((inside,))):
            inside = replace(inside, steps=(Lookup(loop.value, loop.map, loop.keys), *inside.steps))
        kind = self.lowering.type_of((inside,))
        if kind.kind is not Kind.INTEGER or kind.low < 0 or layout_of(kind) != "i":
            return pipeline
        within = loop.range or Range(loop.keys.index(own))
        first = FirstKey(own, loop.map, loop.keys, within, greatest, (inside,))
        return Pipeline((*pipeline.steps[:at], first), ())

    def _key_variable(self, own: Var) -> Var:
        return self.lowering.value_variable(self.lowering.types[own])

    def _read(self) -> bool:
        """A map some of whose keys are not known: a range or cut where one answers it, else a loop."""
        reads = [f for f in self.pending if isinstance(f, MapRef)]
        for read in reads:
            if self._range_sum(read):
                return True
        groups = [f for f in self.pending if isinstance(f, Exists) and self._ready(f, f.group)]
        ways = [*map(self._read_way, reads), *map(self._group_way, groups)]
        if not ways:
            return False
        lengths = self._lengths(reads) if not groups else [0.0] * len(ways)
        min(zip(lengths, ways, strict=True), key=lambda way: (way[0], way[1][0]))[1][1]()
        return True

    def _read_way(self, read: MapRef) -> Way:
        """A loop over a read; one over a variable that is still to be computed comes late."""
        computed = {f.var for f in self.pending if isinstance(f, Lift | Extreme)}
        (kind, far, free), loop = self._way(read, read)
        late = len(read.keys) * bool(computed & set(unbound(read.keys, self.known)))
        return (kind, far, free + late), loop

    def _lengths(self, reads: Sequence[MapRef]) -> list[float]:
        """How many entries a loop over each read walks, as it was measured; all 0 where one was not."""
        statistics = self.lowering.derived.statistics
        found = []
        for read in reads:
            known = [i for i, k in enumerate(read.keys) if not isinstance(k, Var) or k in self.known]
            length = statistics.loop_length(read.name, known) if statistics else None
            if length is None:
                return [0.0] * len(reads)
            found.append(length)
        return found

    def _is_one(self, read: MapRef) -> bool:
        """Whether the known keys leave one entry at most, for which no order has to be kept."""
        declared = self.lowering.derived.declared.get(read.name)
        known = [i for i, k in enumerate(read.keys) if not isinstance(k, Var) or k in self.known]
        return declared is not None and is_one_row(self.lowering.derived.relations, declared, known)

    def _belongs_to_a_row(self, read: MapRef) -> bool:
        """Whether the known keys have the primary key of a row at hand, the event's or that of a loop.

        What belongs to a row is less than what belongs to what it shares with others, such as its nation.
        """
        known = {k for k in read.keys if isinstance(k, Var) and k in self.known}
        return any(row <= known for row in (*self.lowering.rows, *self._rows_at_hand()))

    def _rows_at_hand(self) -> Iterator[frozenset[Var]]:
        """The primary keys of rows that loops around have found, several of them by what was known."""
        relations = self.lowering.derived.relations
        for loop in (s for s in self.steps if isinstance(s, Loop)):
            declared = self.lowering.derived.declared.get(loop.map)
            if declared is None or is_one_row(relations, declared, loop.known):
                continue
            keys = dict(zip(declared.keys, loop.keys, strict=True))
            for factor in (f for t in declared.definition.terms for f in t if isinstance(f, Rel)):
                key = key_of(relations[factor.name], factor.args)
                if key and key <= keys.keys():
                    yield frozenset(k for v in key if isinstance(k := keys[v], Var))

    def _orders(self, read: MapRef, variable: Var) -> bool:
        """Whether the read's tree could be walked in the order of a variable."""
        return read.keys.count(variable) == 1

    def _restriction(self, read: MapRef | Exists, variable: Var, known: frozenset[Var]) -> Restriction:
        return restriction(self.lowering, self.pending, read, variable, known, self.binders)

    def _range_sum(self, read: MapRef) -> bool:
        """The read as a sum over a range of its one unknown key, if nothing else needs that key."""
        free = unbound(read.keys, self.known)
        if len(free) != 1 or free[0] in self.live or not self._orders(read, free[0]):
            return False
        found = self._restriction(read, free[0], self.known)
        if not found.complete or (found.narrows and self._is_one(read)):
            return False
        self._take(read, *found.users)
        value = self.lowering.value_variable(self.lowering.maps[read.name])
        within = found.range(read.keys.index(free[0]))
        self.steps.append(RangeSum(value, read.name, read.keys, within))
        self.values.append(value)
        return True

    def _way(self, read: MapRef, factor: MapRef | Exists) -> Way:
        """Loops over a read's groups, a range of it, a slice or all of it, whichever is the narrowest.

        The factor is the read itself, or the groups that are its entries.
        """
        free = unbound(read.keys, self.known)
        scan = len(free) == len(read.keys)
        one = self._is_one(read)
        far = int(not one and not self._belongs_to_a_row(read))
        for variable in free if len(free) > 1 and factor is read and not one else ():
            others = [v for v in free if v != variable]
            if self._grouped(read, variable, frozenset(others)):
                first = self._restriction(read, variable, self.known)
                if first.takes_few:
                    return (int(scan), far, len(free)), partial(
                        self._loop_range, read, factor, variable, first
                    )
                rank = (int(scan), far, len(others))
                for other in filter(partial(self._orders, read), others):
                    within = self._restriction(read, other, self.known)
                    # Of groups of several keys those in a window of one, as of a time around the event's.
                    if within.narrows and (len(others) == 1 or within.is_window):
                        return rank, partial(self._loop_range, read, factor, other, within)
                return rank, partial(self._loop_groups, read, variable)
        for variable in () if one else free:
            if self._orders(read, variable):
                within = self._restriction(factor, variable, self.known)
                if within.narrows:
                    return (int(scan), far, len(free)), partial(
                        self._loop_range, read, factor, variable, within
                    )
        return (2 * scan, far, len(free)), partial(self._loop, read, factor, None)

    def _grouped(self, read: MapRef, variable: Var, others: frozenset[Var]) -> bool:
        """Whether the read is a range sum over the variable once its other keys are known."""
        if variable in self.live or not self._orders(read, variable):
            return False
        found = self._restriction(read, variable, self.known | others)
        if self.gathering and found.bounds.low and found.bounds.high:
            return False
        return found.complete and found.narrows

    def _loop_groups(self, read: MapRef, variable: Var) -> None:
        positions = tuple(i for i, k in enumerate(read.keys) if k != variable)
        self._loop_directory(read, positions, None)

    def _loop_range(self, read: MapRef, factor: MapRef | Exists, variable: Var, found: Restriction) -> None:
        """Loops over the keys in a range, or the entries where that is the only key."""
        gone = (factor, *found.users)
        still = [f for f in self.pending if not any(f is g for g in gone)]
        used = variable_set(tuple(still)) | self.live
        lifts = [f for f in found.lifts if f.var not in used]
        if len(unbound(read.keys, self.known)) == 1:
            self._loop(read, factor, found.range(read.keys.index(variable)))
        else:
            name, keys, within = self._narrowed(read, variable, found)
            self._append_loop(name, keys, within)
        self._take(*found.taken, *lifts)

    def _narrowed(
        self, read: MapRef, variable: Var, found: Restriction
    ) -> tuple[str, tuple[Scalar, ...], Range]:
        """The map and keys with only one free variable: the read's own, or those of a directory."""
        positions = tuple(
            i for i, k in enumerate(read.keys) if k == variable or not isinstance(k, Var) or k in self.known
        )
        keys = tuple(read.keys[i] for i in positions)
        name = read.name
        if len(positions) < len(read.keys):
            name = self.lowering.derived.directory(read.name, positions)
        return name, keys, found.range(keys.index(variable))

    def _loop_directory(self, read: MapRef, positions: tuple[int, ...], within: Range | None) -> None:
        name = self.lowering.derived.directory(read.name, positions)
        self._append_loop(name, tuple(read.keys[i] for i in positions), within)

    def _loop(self, read: MapRef, factor: MapRef | Exists, within: Range | None) -> None:
        """Loops over the entries that agree with the known keys."""
        self._take(factor)
        value = self._append_loop(read.name, read.keys, within)
        if factor is read:
            self.values.append(value)

    def _append_loop(self, name: str, keys: tuple[Scalar, ...], within: Range | None) -> Var:
        known = tuple(i for i, k in enumerate(keys) if not isinstance(k, Var) or k in self.known)
        declared = self.lowering.derived.maps.get(name)
        value = self.lowering.value_variable(declared.type if declared else self.lowering.maps[name])
        self.steps.append(Loop(value, name, keys, known, within))
        self.known |= frozenset(unbound(keys, self.known))
        return value

    def _group_way(self, exists: Exists) -> Way:
        """Loops over the groups of an Exists: of one map keyed by the group, else gathered first."""
        free = unbound(exists.group, self.known)
        match exists.body.terms:
            case ((MapRef() as read,),) if frozenset(unbound(read.keys, self.known)) == frozenset(free):
                self.lowering.type_keys(read)
                return self._way(read, exists)
        scan = len(free) == len(exists.group) and not all(map(self._narrows, exists.body.terms))
        rank = (2 * scan + 1, 0, len(free))
        return rank, partial(self._loop_gathered, exists, tuple(free))

    def _narrows(self, term: Term) -> bool:
        """Whether known keys lead to the rows of a term."""
        reads = (f for f in term if isinstance(f, MapRef))
        return any(len(unbound(r.keys, self.known)) < len(r.keys) for r in reads)

    def _loop_gathered(self, exists: Exists, free: tuple[Var, ...]) -> None:
        self._take(exists)
        pipelines = self.lowering.poly(exists.body, self.known, frozenset(free))
        kinds = [self.lowering.types[v] for v in free]
        scratch = self.lowering.derived.scratch(kinds, self.lowering.type_of(pipelines))
        self.steps.append(Gather(scratch, free, pipelines))
        self._append_loop(scratch, free, None)


def _walk(pipeline: Pipeline, own: Var) -> Loop | None:
    """The first loop where it is over all entries that have known keys and `own`, or over those in a range of
    it; None where it is not.

    Nor where nothing is asked of entries in no range: then they are as few as the keys that there are.
    """
    loop = next((step for step in pipeline.steps if isinstance(step, Loop)), None)
    if loop is None or [key for at, key in enumerate(loop.keys) if at not in loop.known] != [own]:
        return None
    if loop.range is None:
        return None if loop is pipeline.steps[-1] else loop
    return loop if loop.keys[loop.range.position] == own and not loop.range.of_one else None


def _is_word(kind: Type) -> bool:
    """Whether equal values are one word, as doubles, which may be 0 or -0, are not."""
    return kind.kind is Kind.TEXT or (kind.exact and layout_of(kind) == "i")


def _in_one_word(scalar: Scalar) -> Scalar:
    within = Apply("and", (Apply(">=", (scalar, Const(-INT64_MAX))), Apply("<=", (scalar, Const(INT64_MAX)))))
    return Apply("or", (Apply("is_null", (scalar,)), within))
