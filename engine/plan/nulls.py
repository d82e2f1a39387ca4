"""NULL kept apart from the other values of a key, so that it hides no range or cut of them.

What SQL compares is guarded: `(sum ^= m[q] * {q > p} * [not(is_null(p))])` is 0 where p is NULL, which is no
running sum along the order of p. Where a map that binds p has no entries of NULL the guard goes; elsewhere
the term becomes two, for p that is not NULL and for NULL alone, where cuts are gained by it.
"""

from collections.abc import Iterable, Iterator

from orderbook.engine.plan.restrictions import Scope, restriction
from orderbook.engine.plan.stores import excludes_null, of_null_only
from orderbook.views.calculus import (
    NESTED,
    Apply,
    Cmp,
    Exists,
    Extreme,
    Factor,
    Lift,
    MapRef,
    Poly,
    Scalar,
    Term,
    Val,
    Var,
    bound_by,
    map_scalar,
    scalars_of,
    variable_set,
    with_body,
)
from orderbook.views.conditions import FALSE, TRUE, is_null, not_null
from orderbook.views.simplify import folded


def without_null(
    scope: Scope, term: Term, known: frozenset[Var], told: frozenset[Var] = frozenset()
) -> list[Term]:
    """The term, or several that add up to it, NULL apart from the other values where it hides a cut.

    told: variables that are apart already.
    """
    for variable in asked(term, known):
        guard = Val(not_null(variable))
        rest = tuple(f for f in term if f != guard)
        present = decided(rest, variable, null=False)
        # What asks inside of a key stays.
        if present is None or present == rest:
            continue
        if any(_excludes_null(scope, map_of(r), variable) for r in reads_of(term, variable)):
            return without_null(scope, present, known, told)
        if guard in term:
            return without_null(scope, (guard, *present), known, told)
    variable_apart = _hiding(scope, term, known)
    if variable_apart is None or variable_apart in told:
        return [term]
    result = []
    for null, condition in ((False, not_null(variable_apart)), (True, is_null(variable_apart))):
        one = decided(term, variable_apart, null)
        if one is not None:
            result += without_null(scope, (Val(condition), *one), known, told | {variable_apart})
    return result


def _excludes_null(scope: Scope, read: MapRef, variable: Var) -> bool:
    declaration = scope.derived.declared.get(read.name)
    place = read.keys.index(variable)
    return declaration is not None and excludes_null(declaration, place, scope.derived.relations)


def nulls_of(scope: Scope, read: MapRef, known: frozenset[Var]) -> list[Factor]:
    """That unknown keys are NULL, where all entries of the map have NULL there."""
    declaration = scope.derived.declared.get(read.name)
    if declaration is None:
        return []
    pairs = ((k, of_null_only(declaration, i)) for i, k in enumerate(read.keys))
    return [Val(is_null(k)) for k, null in pairs if null and isinstance(k, Var) and k not in known]


def _hiding(scope: Scope, term: Term, known: frozenset[Var]) -> Var | None:
    """The first variable that has to be not NULL for all cuts that there are where none is."""
    variables = asked(term, known)
    if not variables:
        return None
    most = _cuts(scope, all_present(term, variables), known)
    if most == _cuts(scope, term, known):
        return None
    for variable in variables:
        others = all_present(term, [v for v in variables if v != variable])
        if _cuts(scope, others, known) < most:
            return variable
    return None


def _cuts(scope: Scope, term: Term, known: frozenset[Var]) -> int:
    """How many cuts conditions of a term make in the order of a key, each once all else is known."""
    lifts = {f.var: f for f in term if isinstance(f, Lift)}
    binders = known | frozenset(v for f in term for v in bound_by(f))
    for variable in binders - known:
        for read in reads_of(term, variable):
            scope.type_keys(map_of(read))
    cuts = 0
    for variable in binders - known - lifts.keys():
        others = frozenset(v for v in binders if v in scope.types or v in lifts) - {variable}
        known_then = others - frozenset(v for v, f in lifts.items() if variable in variable_set(f))
        for read in reads_of(term, variable):
            cuts += len(restriction(scope, term, read, variable, known_then, binders).cuts)
    return cuts


def asked(term: Term, known: frozenset[Var]) -> list[Var]:
    """The variables that the bodies of a term's lifts ask whether they are NULL, if it binds them."""
    found = (v for f in term if isinstance(f, Lift) for t in f.body.terms for v in _asked(t))
    return [v for v in dict.fromkeys(found) if v in known or any(reads_of(term, v))]


def _asked(term: Term) -> Iterator[Var]:
    for factor in term:
        for scalar in scalars_of(factor):
            yield from _asked_by(scalar)
        if isinstance(factor, NESTED):
            for inner in factor.body.terms:
                yield from _asked(inner)


def _asked_by(scalar: Scalar) -> Iterator[Var]:
    match scalar:
        case Apply("is_null", (Var() as variable,)):
            yield variable
        case Apply(_, arguments):
            for argument in arguments:
                yield from _asked_by(argument)


def decided(term: Term, variable: Var, null: bool) -> Term | None:
    """The term where the variable is NULL, or is not; None where the term is 0 then."""
    result: list[Factor] = []
    for factor in term:
        match factor:
            case Val(scalar):
                value = _decided(scalar, variable, null)
                if value == FALSE:
                    return None
                if value != TRUE:
                    result.append(Val(value))
            case Cmp(_, left, right) if null and variable in (left, right):
                return None
            case Lift(_, body) | Exists(_, body):
                result.append(with_body(factor, _decided_body(body, variable, null)))
            case Extreme(_, _, value, body) if value != variable:
                told = _decided_body(body, variable, null)
                # One of nothing stays as it was, for nothing else says of what type its 0 is.
                result.append(with_body(factor, told) if told.terms else factor)
            case _:
                result.append(factor)
    return tuple(result)


def all_present(term: Term, variables: Iterable[Var]) -> Term:
    """The term where none of the variables is NULL, as far as it is not 0 then."""
    for variable in variables:
        term = decided(term, variable, null=False) or term
    return term


def _decided_body(body: Poly, variable: Var, null: bool) -> Poly:
    terms = [decided(t, variable, null) for t in body.terms]
    return Poly(tuple(t for t in terms if t is not None))


def _decided(scalar: Scalar, variable: Var, null: bool) -> Scalar:
    asks = is_null(variable)
    answer = TRUE if null else FALSE
    told = map_scalar(scalar, lambda s: answer if s == asks else s)
    return scalar if told == scalar else folded(told)


def reads_of(term: Term, variable: Var) -> Iterator[MapRef | Exists]:
    """The factors of a term that bind a variable to keys of one map."""
    for factor in term:
        match factor:
            case MapRef(_, keys) if variable in keys:
                yield factor
            case Exists(group, Poly(((MapRef(_, keys),),))) if variable in group and variable in keys:
                yield factor


def map_of(read: MapRef | Exists) -> MapRef:
    """The map that a factor reads whose keys it binds."""
    if isinstance(read, MapRef):
        return read
    found = read.body.terms[0][0]
    assert isinstance(found, MapRef)
    return found
