"""Which statements of a trigger are compiled together: those of one view, and no more than compile well.

A map belongs to the first view that is computed from it. So the functions of a view stay what they are where
views come after it, or another is edited, and so does their machine code (core/native_code.py).
"""

from collections import defaultdict
from collections.abc import Container, Hashable, Iterable, Iterator, Mapping, Sequence, Set
from itertools import groupby

from orderbook.engine.generate.preconditions import ALWAYS, NEVER, Precondition, either
from orderbook.engine.plan.steps import (
    Gather,
    Loop,
    Plan,
    StatementPlan,
    maps_in_pipelines,
    steps_of,
)
from orderbook.views.calculus import Var

# Statements that only look up and search are functions of their own, so many in each, where a view has more
# than twice as many in a trigger: what is compiled together takes longer than its parts.
_TOGETHER = 6
# Statements of several views that are compiled together: what looks up the same entry does so once.
PACK = 8

Owners = Mapping[str, int]


def owners(plan: Plan) -> Owners:
    """Of each map the number of the first view computed from it, or of one whose maps it is written with."""
    found = _first_views(plan)
    same = {number: number for number in found.values()}
    for names in _written_together(plan):
        numbers = {same[found[name]] for name in names}
        for number, of in same.items():
            if of in numbers:
                same[number] = min(numbers)
    return {name: same[number] for name, number in found.items()}


def _written_together(plan: Plan) -> list[Sequence[str]]:
    """Maps whose statements of one level are written in their order, in one function."""
    written = (s for t in plan.triggers for s in t.statements)
    assigned = {s.target for s in (*plan.initial, *written) if s.op == ":="}
    # What is added to some maps of a store leaves the others as they are.
    together: list[Sequence[str]] = [
        s.maps for s in plan.stores if "d" in s.layout or not assigned.isdisjoint(s.maps)
    ]
    together += [(m.name, m.count) for m in plan.program.maps if m.count]
    return [*together, *((p.name, p.source) for p in plan.projections)]


def _first_views(plan: Plan) -> dict[str, int]:
    reads: dict[str, set[str]] = {d.name: {d.source} for d in plan.directories}
    for statement in (*plan.initial, *(s for t in plan.triggers for s in t.statements)):
        reads.setdefault(statement.target, set()).update(_read(statement))
    found: dict[str, int] = {}
    for number, result in enumerate(plan.results):
        left = [*maps_in_pipelines(p for _, pipelines in result.lets for p in pipelines)]
        left += [result.result.multiplicity] if result.result.multiplicity is not None else []
        while left:
            name = left.pop()
            if name not in found:
                found[name] = number
                left += reads.get(name, ())
    return {m.name: found.get(m.name, len(plan.results)) for m in plan.program.maps}


# Statements in turns: those of a turn come after all of the turns before it.
Turns = Sequence[Sequence[StatementPlan]]


def by_view(plan: Plan, turns: Turns, own: Owners, preconditions: Mapping[int, Precondition]) -> list[Turns]:
    """Statements by whose their maps are, those of small views with one precondition together.

    One part's after the other's they do the same as all together.
    """
    parts: dict[_Key, Turns] = {
        number: [[s for s in turn if own[s.target] == number] for turn in turns]
        for number in sorted({own[s.target] for turn in turns for s in turn})
    }
    if len(parts) < 2:
        return list(parts.values())
    tied: dict[str, frozenset[str]] = {}
    for names in _written_together(plan):
        both = frozenset(names).union(*(tied[name] for name in names if name in tied))
        tied |= dict.fromkeys(both, both)
    return _in_order(plan, turns, parts, preconditions, tied)


# A part's key, whatever it is.
_Key = Hashable


def _in_order(
    plan: Plan,
    turns: Turns,
    parts: Mapping[_Key, Turns],
    preconditions: Mapping[int, Precondition],
    tied: Mapping[str, frozenset[str]],
    divided: bool = False,
) -> list[Turns]:
    """Parts in an order in which they may run, small neighbours of one precondition as one.

    Those that wait for each other are one, or `divided` by their preconditions. tied: with each map those
    that are written in their order with it.
    """
    after = _order({key: _levels(plan, part, tied) for key, part in parts.items()})
    found: list[list[_Key]] = []
    last = NEVER
    while after:
        ready = [key for key, needed in after.items() if needed.isdisjoint(after)]
        alike = [key for key in ready if precondition_of(parts[key], preconditions) == last]
        taken = (alike or ready)[:1]
        if not taken:
            break
        size = sum(_size(parts[key]) for key in (*taken, *(found[-1] if found else ())))
        precondition = precondition_of(parts[taken[0]], preconditions)
        if found and size <= PACK and precondition == last:
            found[-1] += taken
        else:
            found.append(taken)
        last = precondition
        del after[taken[0]]
    pieces = [_together(turns, [parts[key] for key in keys]) for keys in found]
    if after:
        rest = _together(turns, [parts[key] for key in after])
        apart = {} if divided else _by_precondition(rest, preconditions, tied)
        pieces += _in_order(plan, rest, apart, preconditions, tied, divided=True) if apart else [rest]
    return pieces


def _together(turns: Turns, parts: Iterable[Turns]) -> Turns:
    """Several parts as one, their statements in the order that they have in all."""
    own = {id(s) for part in parts for turn in part for s in turn}
    return [[s for s in turn if id(s) in own] for turn in turns]


def _by_precondition(
    turns: Turns, preconditions: Mapping[int, Precondition], tied: Mapping[str, frozenset[str]]
) -> dict[_Key, Turns]:
    """Statements by turn, level and precondition; none where that is one, as they share what is looked up."""
    of_tied: dict[frozenset[str], Precondition] = {}
    for statement in (s for turn in turns for s in turn if s.target in tied):
        names, own = tied[statement.target], preconditions.get(id(statement), ALWAYS)
        of_tied[names] = either((of_tied.get(names, NEVER), own))
    found: dict[tuple[int, int, Precondition], list[list[StatementPlan]]] = {}
    for number, turn in enumerate(turns):
        for statement in turn:
            own = preconditions.get(id(statement), ALWAYS)
            own = of_tied.get(tied.get(statement.target, frozenset()), own)
            key = number, statement.level, own
            found.setdefault(key, [[] for _ in turns])[number].append(statement)
    divided = len({own for _, _, own in found}) > 1
    return {key: part for key, part in found.items() if divided}


def precondition_of(turns: Turns, preconditions: Mapping[int, Precondition]) -> Precondition:
    """When one of several statements has something to do."""
    return either(preconditions.get(id(s), ALWAYS) for turn in turns for s in turn)


def when_called(parts: Sequence[Turns], preconditions: Mapping[int, Precondition]) -> list[Precondition]:
    """When each part has something to do.

    Parts that write one map have it at the same times: what one takes out another puts back.
    """
    needed = [precondition_of(part, preconditions) for part in parts]
    written = [{s.target for turn in part for s in turn} for part in parts]
    while True:
        of_maps: dict[str, Precondition] = {}
        for targets, own in zip(written, needed, strict=True):
            of_maps |= {name: either((of_maps.get(name, NEVER), own)) for name in targets}
        found = [either(of_maps[name] for name in targets) for targets in written]
        if found == needed:
            return needed
        needed = found


def _size(turns: Turns) -> int:
    return sum(map(len, turns))


# When each map is read or written: in which turn, at which level.
_Times = Mapping[str, Set[tuple[int, int]]]


def _order(levels: Mapping[_Key, tuple[_Times, _Times]]) -> dict[_Key, set[_Key]]:
    """What each part must come after, by when they read and write.

    Of one level, what is read is as it was before any of it is written.
    """
    readers: defaultdict[str, list[_Key]] = defaultdict(list)
    for number, (reads, _) in levels.items():
        for name in reads:
            readers[name].append(number)
    after: dict[_Key, set[_Key]] = {number: set() for number in levels}
    for writer, (_, writes) in levels.items():
        for name, written in writes.items():
            for reader in readers[name]:
                read = levels[reader][0][name]
                if reader != writer and min(written) < max(read):
                    after[reader].add(writer)
                if reader != writer and min(read) <= max(written):
                    after[writer].add(reader)
    return after


def _levels(plan: Plan, part: Turns, tied: Mapping[str, frozenset[str]]) -> tuple[_Times, _Times]:
    reads: defaultdict[str, set[tuple[int, int]]] = defaultdict(set)
    writes: defaultdict[str, set[tuple[int, int]]] = defaultdict(set)
    for turn, statements in enumerate(part):
        for statement in statements:
            for name in _read(statement):
                reads[name].add((turn, statement.level))
            for name in (statement.target, *(d.name for d in plan.directories_of(statement.target))):
                writes[name].add((turn, statement.level))
            # Of what is written in its order, no level before another.
            for name in tied.get(statement.target, ()):
                reads[name].add((turn, statement.level))
    return reads, writes


def _read(statement: StatementPlan) -> set[str]:
    return set(maps_in_pipelines((*statement.pipelines, *statement.erased)))


def compiled_together(
    plan: Plan, statements: Sequence[StatementPlan], parameters: Container[Var]
) -> list[Sequence[StatementPlan]]:
    """The statements of a view's part of a trigger, divided into functions, in order."""
    divided: list[Sequence[StatementPlan]] = [[]]
    for _, level in groupby(statements, key=lambda s: s.level):
        own = list(level)
        apart = list(_apart(plan, own, parameters))
        taken = {id(s) for together in apart for s in together}
        divided[-1] = [*divided[-1], *(s for s in own if id(s) not in taken)]
        divided += [*apart, []] if apart else []
    return [statements for statements in divided if statements]


def _apart(
    plan: Plan, level: Sequence[StatementPlan], parameters: Container[Var]
) -> Iterator[Sequence[StatementPlan]]:
    """Statements of a level to be written in functions of their own, where none writes what one reads."""
    written = {d.name for s in level for d in plan.directories_of(s.target)} | {s.target for s in level}
    counted = plan.program.counted
    written |= {name for count in counted.keys() & written for name in counted[count]}
    if not written.isdisjoint(m for s in level for m in maps_in_pipelines((*s.pipelines, *s.erased))):
        return
    # Entries of doubles go with what counts them, so these are written in their order.
    apart = {*counted, *(name for names in counted.values() for name in names)}
    by_store: dict[str, list[StatementPlan]] = {}
    for statement in level:
        walks = any(isinstance(s, Loop | Gather) for s in steps_of(statement.pipelines))
        if statement.writes_one(parameters) and not walks and statement.target not in apart:
            by_store.setdefault(plan.stores_of(statement.target)[0].name, []).append(statement)
    if sum(map(len, by_store.values())) <= 2 * _TOGETHER:
        return
    together: list[StatementPlan] = []
    for statements in by_store.values():
        together += statements
        if len(together) >= _TOGETHER:
            yield together
            together = []
    if together:
        yield together
