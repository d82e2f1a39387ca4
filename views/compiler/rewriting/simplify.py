"""Rewrites the calculus to a fixpoint by the rules of `rules`, and adds up equal terms."""

from collections import Counter
from collections.abc import Iterable

from views.compiler.calculus import (
    NESTED,
    Const,
    Exists,
    Extreme,
    Factor,
    Poly,
    Term,
    Val,
    Var,
    term_size,
    variable_set,
    with_body,
)
from views.compiler.maintenance.budget import spend

from .rules import RULES
from .scoping import bound_in, used_outside


def simplify(poly: Poly, keep: Iterable[Var] = ()) -> Poly:
    """The simplified polynomial; variables of `keep` are neither renamed nor eliminated."""
    return _simplified(poly, frozenset(keep), set())


def _simplified(poly: Poly, kept: frozenset[Var], known: set[tuple[Poly, frozenset[Var]]]) -> Poly:
    """`known` are polynomials that no rule applies to while those of their variables are kept."""
    if (poly, kept & variable_set(poly)) in known:
        return poly
    done: list[Term] = []
    pending = list(reversed(poly.terms))
    while pending:
        term = _inside(pending.pop(), kept, known)
        spend(term_size(term))
        for _, rule in RULES:
            replaced = rule(term, kept)
            if replaced is not None:
                pending.extend(reversed(replaced))
                break
        else:
            done.append(term)
    result = _merged(done)
    known.add((result, kept & variable_set(result)))
    return result


def _inside(term: Term, keep: frozenset[Var], known: set[tuple[Poly, frozenset[Var]]]) -> Term:
    """Simplifies nested polynomials; what the term uses outside of them stays."""
    result: list[Factor] = []
    for i, factor in enumerate(term):
        if isinstance(factor, NESTED):
            outside = keep | bound_in(term[:i] + term[i + 1 :]) | used_outside(term, i)
            if isinstance(factor, Exists):
                outside |= frozenset(factor.group)
            elif isinstance(factor, Extreme):
                outside |= {factor.value}
            factor = with_body(factor, _simplified(factor.body, outside, known))
        result.append(factor)
    return tuple(result)


def _merged(terms: list[Term]) -> Poly:
    """Adds the coefficients of terms with the same factors."""
    sums: dict[frozenset[tuple[Factor, int]], list] = {}
    for term in terms:
        coefficient: int | float = 1
        factors = term
        match term:
            case (Val(Const(int() | float() as value)), *others):
                coefficient, factors = value, tuple(others)
        entry = sums.setdefault(frozenset(Counter(factors).items()), [0, factors])
        entry[0] += coefficient
    return Poly(
        tuple(
            factors
            if coefficient == 1 and isinstance(coefficient, int)
            else (Val(Const(coefficient)), *factors)
            for coefficient, factors in sums.values()
            if coefficient != 0
        )
    )
