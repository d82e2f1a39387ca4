"""Orders factors so that values flow left to right, and statements so that each reads the right state."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from heapq import heappop, heappush

from orderbook.views.calculus import (
    NESTED,
    Cmp,
    Const,
    Exists,
    Factor,
    MapRef,
    Poly,
    Rel,
    Term,
    Val,
    Var,
    bound_by,
    calls,
    maps_read,
    scalar_variables,
    scalars_of,
    substitute,
    substitute_scalar,
    variable_set,
    variables,
    with_body,
)
from orderbook.views.conditions import is_condition
from orderbook.views.m3 import MapDeclaration, Program, Result, Statement, Trigger
from orderbook.views.names import UniqueNames, bound_in


def ordered_statement(poly: Poly, bound: frozenset[Var]) -> Poly:
    """Each term with its factors in an order in which every variable is bound before it is used."""
    return Poly(tuple(ordered_term(t, bound) for t in poly.terms))


def ordered_term(term: Term, bound: frozenset[Var]) -> Term:
    """Raises ValueError where no order binds every variable."""
    known = bound
    binders = bound_in(term) | bound
    pending = [(f, _needs(f, binders)) for f in term]
    calling = any(map(calls, term))
    result: list[Factor] = []
    while pending:
        ready = [one for one in pending if one[1] <= known]
        if not ready:
            raise ValueError(f"unbound variables in {[f for f, _ in pending]}")
        first = min(ready, key=lambda one: (_rank_with_calls if calling else _rank)(one[0], known))
        pending.remove(first)
        factor = first[0]
        result.append(_inner_ordered(factor, known))
        known |= bound_by(factor)
    return tuple(result)


def _inner_ordered(factor: Factor, known: frozenset[Var]) -> Factor:
    if not isinstance(factor, NESTED):
        return factor
    inside = known if isinstance(factor, Exists) else known - bound_by(factor)
    return with_body(factor, ordered_statement(factor.body, inside))


def _needs(factor: Factor, binders: frozenset[Var]) -> frozenset[Var]:
    """The variables that must be bound before the factor can be evaluated."""
    if isinstance(factor, NESTED):
        return (variable_set(factor.body) & binders) - bound_by(factor)
    if isinstance(factor, MapRef | Rel):
        return frozenset()
    return variable_set(factor)


def _rank(factor: Factor, known: frozenset[Var]) -> tuple[int, int]:
    """Coefficients, then filters, then exact look-ups, then loops (most bound first), then values."""
    if isinstance(factor, Val):
        return (0, 0) if isinstance(factor.scalar, Const) else (6, 0)
    if isinstance(factor, Cmp):
        return 1, 0
    unbound = len(bound_by(factor) - known)
    if isinstance(factor, MapRef | Rel | Exists):
        keys = len(scalars_of(factor))
    else:
        return 3, 0
    return (2, 0) if not unbound else (4, unbound * 100 - keys)


def _rank_with_calls(factor: Factor, known: frozenset[Var]) -> tuple[int, int]:
    """As `_rank`; users' functions are called where the other conditions that can be looked at hold."""
    if isinstance(factor, Val) and is_condition(factor.scalar):
        return (3, 1) if calls(factor) else (1, 0)
    if isinstance(factor, Cmp) and calls(factor):
        return 3, 1
    return _rank(factor, known)


def ordered_triggers(triggers: Iterable[Trigger], counts: Mapping[str, str | None]) -> tuple[Trigger, ...]:
    """Statements that read the state before come before what they read is written, others after.

    A map of doubles is written after the map that counts its rows, which `counts` names. Its entries go with
    that one, so that what reads them before comes before the count.
    """
    triggers = tuple(triggers)
    result = []
    for trigger in triggers:
        before = [s for s in trigger.statements if not s.after]
        after = [s for s in trigger.statements if s.after]
        ordered = (*_sorted(before, counts, True), *_sorted(after, counts, False))
        result.append(replace(trigger, statements=ordered))
    return tuple(result)


def _sorted(
    statements: Sequence[Statement], counts: Mapping[str, str | None], before: bool
) -> list[Statement]:
    """A stable topological order; raises ValueError naming the maps of a cycle.

    before: those that read a map come before those that write it, else after these.
    """
    writers: defaultdict[str | None, set[int]] = defaultdict(set)
    for number, statement in enumerate(statements):
        writers[statement.target].add(number)
    # By number of a statement those that it comes before, and how many come before it.
    later: list[set[int]] = [set() for _ in statements]
    for number, statement in enumerate(statements):
        read = maps_read(statement.value)
        if before:
            read |= {count for m in read if (count := counts.get(m)) is not None}
            later[number].update(*(writers[m] for m in read if m in writers))
        else:
            for other in {n for m in read if m in writers for n in writers[m]}:
                later[other].add(number)
        if (count := counts.get(statement.target)) in writers:
            for other in writers[count]:
                later[other].add(number)
    earlier = [0] * len(statements)
    for number, own in enumerate(later):
        own.discard(number)
        for other in own:
            earlier[other] += 1
    free = [number for number, before_it in enumerate(earlier) if not before_it]
    result: list[Statement] = []
    while free:
        number = heappop(free)
        result.append(statements[number])
        for other in later[number]:
            earlier[other] -= 1
            if not earlier[other]:
                heappush(free, other)
    if len(result) < len(statements):
        left = {s.target for number, s in enumerate(statements) if earlier[number]}
        raise ValueError("maps depend on each other in a cycle: " + ", ".join(sorted(left)))
    return result


def named(program: Program) -> Program:
    """Gives variables the plain names of their columns, unique within a statement, map or view."""
    return Program(
        program.relations,
        tuple(named_map(m) for m in program.maps),
        tuple(named_statement(s, ()) for s in program.initial),
        tuple(_named_trigger(t) for t in program.triggers),
        tuple(named_result(r) for r in program.results),
        tuple(replace(p, rows=named_result(p.rows)) for p in program.patterns),
    )


def _short(variable: Var) -> str:
    return variable.name.rpartition(".")[2].partition("~")[0].lstrip("@")


def _names(variables: Iterable[Var], taken: dict[Var, Var]) -> dict[Var, Var]:
    names = dict(taken)
    unique = UniqueNames({v.name for v in names.values()})
    for variable in variables:
        if variable not in names:
            names[variable] = Var(unique.new(_short(variable)))
    return names


def _ordered_variables(poly: Poly) -> list[Var]:
    return list(dict.fromkeys(variables(poly)))


def _rename(poly: Poly, names: dict[Var, Var]) -> Poly:
    return substitute(poly, names)


def named_map(declaration: MapDeclaration) -> MapDeclaration:
    """A map with plain names; see `named`."""
    names = _names([*declaration.keys, *_ordered_variables(declaration.definition)], {})
    return replace(
        declaration,
        keys=tuple(names[k] for k in declaration.keys),
        definition=_rename(declaration.definition, names),
    )


def named_parameters(parameters: Sequence[Var]) -> tuple[Var, ...]:
    """Plain names of the parameters of an event."""
    return tuple(_names(parameters, {}).values())


def named_statement(statement: Statement, parameters: Sequence[Var]) -> Statement:
    """A statement with plain names, of an event with these parameters; see `named`."""
    keys = [v for k in statement.keys for v in scalar_variables(k)]
    names = _names([*keys, *_ordered_variables(statement.value)], _names(parameters, {}))
    return replace(
        statement,
        keys=tuple(substitute_scalar(k, names) for k in statement.keys),
        value=_rename(statement.value, names),
    )


def _named_trigger(trigger: Trigger) -> Trigger:
    return replace(
        trigger,
        parameters=named_parameters(trigger.parameters),
        statements=tuple(named_statement(s, trigger.parameters) for s in trigger.statements),
    )


def named_result(result: Result) -> Result:
    """A view's result with plain names; see `named`."""
    names = _names([k.variable for k in result.keys], {})
    names = _names([v for v, _ in result.lets], names)
    inner = [v for _, p in result.lets for v in _ordered_variables(p)]
    names = _names(inner, names)
    return replace(
        result,
        keys=tuple(replace(k, variable=names[k.variable]) for k in result.keys),
        lets=tuple((names[v], _rename(p, names)) for v, p in result.lets),
        columns=tuple(
            replace(c, scalar=substitute_scalar(c.scalar, names), valid=substitute_scalar(c.valid, names))
            for c in result.columns
        ),
    )
