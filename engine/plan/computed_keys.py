"""Entries whose keys are computed of the event's row: statements that say so, in place of binding variables.

A group by the span of time that a row lies in is written `m[symbol, span] += … * (span ^= [bucket(ts)])`. All
that the event writes of that group is one entry, which `m[symbol, bucket(ts)] += …` says: maps that are
written so share their entries, which are looked up once.
"""

from collections.abc import Container
from dataclasses import replace
from functools import reduce

from orderbook.views.calculus import Apply, Const, Lift, Poly, Scalar, Term, Val, Var, variable_set
from orderbook.views.m3 import MapDeclaration, Program, Statement, Trigger
from orderbook.views.types import INT64_MAX, Kind, Type


def with_computed_keys(program: Program) -> Program:
    """The program whose statements add at keys that are scalars of the row, where that is what they bind."""
    maps = program.map_names
    triggers = tuple(
        replace(t, statements=tuple(_over_row(s, t, maps[s.target]) for s in t.statements))
        for t in program.triggers
    )
    return program if triggers == program.triggers else replace(program, triggers=triggers)


def _over_row(statement: Statement, trigger: Trigger, declaration: MapDeclaration) -> Statement:
    if statement.op != "+=" or not statement.value.terms:
        return statement
    computed: dict[Var, Scalar] = {}
    for key, kind in zip(statement.keys, declaration.key_types, strict=True):
        if isinstance(key, Var) and key not in trigger.parameters and _fits(kind):
            found = {_computed(term, key, trigger.parameters) for term in statement.value.terms}
            scalar = found.pop() if len(found) == 1 else None
            if scalar is not None:
                computed[key] = scalar
    if not computed:
        return statement
    keys = tuple(computed.get(k, k) if isinstance(k, Var) else k for k in statement.keys)
    terms = tuple(_without(term, computed) for term in statement.value.terms)
    return replace(statement, keys=keys, value=Poly(terms))


def _fits(kind: Type) -> bool:
    """Whether every value of a key is proved to be one of 64 bits, also of rows that conditions leave out."""
    return kind.kind is Kind.TEXT or (kind.exact and kind.low > -INT64_MAX and kind.high < INT64_MAX)


def _computed(term: Term, key: Var, row: Container[Var]) -> Scalar | None:
    """The scalar of the row that a term binds a variable to."""
    for factor in term:
        if isinstance(factor, Lift) and factor.var == key and len(factor.body.terms) == 1:
            scalars = [f.scalar for f in factor.body.terms[0] if isinstance(f, Val)]
            whole = len(scalars) == len(factor.body.terms[0])
            if whole and all(v in row for v in variable_set(factor.body)):
                return reduce(lambda a, b: Apply("*", (a, b)), scalars or [Const(1)])
    return None


def _without(term: Term, computed: Container[Var]) -> Term:
    """A term without what binds keys that nothing else of it reads."""
    return tuple(
        f
        for i, f in enumerate(term)
        if not (
            isinstance(f, Lift)
            and f.var in computed
            and not any(f.var in variable_set(other) for other in (*term[:i], *term[i + 1 :]))
        )
    )
