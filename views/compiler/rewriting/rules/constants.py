"""Rules on constants: coefficients, decided comparisons, repeated conditions."""

from collections.abc import Sequence
from math import isfinite

from orderbook.errors import ExactnessError
from views.compiler.calculus import (
    CONDITIONS,
    NEGATED,
    Apply,
    Cmp,
    Const,
    Factor,
    Lift,
    Scalar,
    Term,
    Val,
    Var,
    map_scalar,
    scalar_variables,
    substitute_scalar,
)
from views.compiler.conditions import compare
from views.scalars.evaluate import evaluate


def split_products(term: Term, keep: frozenset[Var]) -> list[Term] | None:
    """[a * b] becomes a * b; constants gather in one leading coefficient; 0 removes the term."""
    coefficient: int | float = 1
    factors: list[Factor] = []
    constants = 0
    changed = False
    for factor in term:
        scalar = factor.scalar if isinstance(factor, Val) else None
        if isinstance(scalar, Apply) and scalar.op in ("*", "neg"):
            factors += [Val(a) for a in scalar.args] + ([Val(Const(-1))] if scalar.op == "neg" else [])
            changed = True
        elif isinstance(scalar, Const) and isinstance(scalar.value, int | float):
            coefficient *= scalar.value
            constants += 1
        else:
            factors.append(factor)
    if coefficient == 0:
        return []
    expected = 0 if coefficient == 1 and isinstance(coefficient, int) else 1
    if (
        not changed
        and constants == expected
        and (not constants or (isinstance(term[0], Val) and isinstance(term[0].scalar, Const)))
    ):
        return None
    return [((Val(Const(coefficient)),) if expected else ()) + tuple(factors)]


def fold_constants(term: Term, keep: frozenset[Var]) -> list[Term] | None:
    """Decided comparisons and functions of constants are evaluated."""
    for i, factor in enumerate(term):
        rest = term[:i] + term[i + 1 :]
        if isinstance(factor, Cmp):
            left, right = factor.left, factor.right
            if isinstance(left, Const) and isinstance(right, Const):
                return [rest] if compare(factor.op, left.value, right.value) else []
            if left == right:
                return [rest] if factor.op in ("=", "<=", ">=") else []
        if isinstance(factor, Val) and isinstance(factor.scalar, Apply):
            folded = map_scalar(factor.scalar, _fold)
            if folded != factor.scalar:
                return [(*term[:i], Val(folded), *term[i + 1 :])]
    return None


def _fold(scalar: Scalar) -> Scalar:
    if not isinstance(scalar, Apply):
        return scalar
    if scalar.op in ("<>", "<", ">") and scalar.args[0] == scalar.args[1]:
        return Const(0)
    if scalar.op in ("and", "or"):
        return _fold_connective(scalar.op, *scalar.args)
    if scalar.op == "if" and isinstance(scalar.args[0], Const):
        return scalar.args[1] if scalar.args[0].value else scalar.args[2]
    if not all(isinstance(a, Const) for a in scalar.args):
        return scalar
    values = [a.value for a in scalar.args if isinstance(a, Const)]
    if scalar.op in NEGATED:
        return Const(int(compare(scalar.op, *values)))
    if scalar.op == "is_null":
        return Const(int(values[0] is None))
    return scalar if None in values else _evaluated(scalar, values)


def _evaluated(scalar: Apply, values: Sequence[object]) -> Scalar:
    """The value of a function of constants, where it has one that a program can hold."""
    try:
        value = evaluate(scalar.op, values)
    except (ExactnessError, KeyError):
        return scalar
    return Const(value) if isinstance(value, int) or isfinite(value) else scalar


def _fold_connective(op: str, left: Scalar, right: Scalar) -> Scalar:
    neutral, deciding = (Const(1), Const(0)) if op == "and" else (Const(0), Const(1))
    if deciding in (left, right):
        return deciding
    if left == neutral or left == right:
        return right
    return left if right == neutral else Apply(op, (left, right))


def decide_conditions(term: Term, keep: frozenset[Var]) -> list[Term] | None:
    """(x ^= [constant]) * [c(x)] is (x ^= [constant]) * [c(constant)], where x has to stay."""
    constants = {
        f.var: f.body.terms[0][0].scalar
        for f in term
        if isinstance(f, Lift) and len(f.body.terms) == 1 and len(f.body.terms[0]) == 1
        if isinstance(f.body.terms[0][0], Val) and isinstance(f.body.terms[0][0].scalar, Const)
    }
    for i, factor in enumerate(term):
        scalar = factor.scalar if isinstance(factor, Val) else None
        if (
            isinstance(scalar, Apply)
            and scalar.op in CONDITIONS
            and constants.keys() & set(scalar_variables(scalar))
        ):
            return [(*term[:i], Val(substitute_scalar(scalar, constants)), *term[i + 1 :])]
    return None


def drop_repeated(term: Term, keep: frozenset[Var]) -> list[Term] | None:
    """A condition that stands twice holds once: [c] * [c] is [c]."""
    for i, factor in enumerate(term):
        scalar = factor.scalar if isinstance(factor, Val) else None
        if isinstance(scalar, Apply) and scalar.op in CONDITIONS and factor in term[:i]:
            return [term[:i] + term[i + 1 :]]
    return None
