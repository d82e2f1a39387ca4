"""Rewrites of the calculus to a fixpoint: folding, unification, unlifting, implied comparisons.

Each rule takes a term and the variables that must stay (keys of the result) and gives the terms
that replace it, or None where it does not apply. `RULES` lists them in the order they are tried.
"""

from collections import Counter
from collections.abc import Callable, Iterable

from .calculus import (
    MIRRORED,
    NEGATED,
    Apply,
    Cmp,
    Const,
    Exists,
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
    map_scalar,
    substitute,
    substitute_term,
    variable_set,
    variables,
)
from .conditions import compare
from .scoping import apart_from

# Functions whose value is 0 or 1.
CONDITIONS = (*NEGATED, "and", "or", "not", "is_null")

Keep = frozenset[Var]
Rule = Callable[[Term, Keep], list[Term] | None]


def simplify(poly: Poly, keep: Iterable[Var] = ()) -> Poly:
    """The simplified polynomial; variables of `keep` are neither renamed nor eliminated."""
    kept = frozenset(keep)
    done: list[Term] = []
    pending = list(reversed(poly.terms))
    while pending:
        term = _inside(pending.pop(), kept)
        for _, rule in RULES:
            replaced = rule(term, kept)
            if replaced is not None:
                pending.extend(reversed(replaced))
                break
        else:
            done.append(term)
    return _merged(done)


def _inside(term: Term, keep: Keep) -> Term:
    """Simplifies nested polynomials; what the term binds outside of them stays."""
    result: list[Factor] = []
    for i, factor in enumerate(term):
        if isinstance(factor, Lift):
            outside = keep | _bound(term[:i] + term[i + 1 :]) | _free_names(term, i)
            factor = Lift(factor.var, simplify(factor.body, outside))
        elif isinstance(factor, Exists):
            outside = keep | frozenset(factor.group) | _bound(term[:i] + term[i + 1 :])
            factor = Exists(factor.group, simplify(factor.body, outside))
        result.append(factor)
    return tuple(result)


def _bound(term: Term) -> Keep:
    return frozenset(v for f in term for v in bound_by(f))


def _free_names(term: Term, index: int) -> Keep:
    return frozenset(v for i, f in enumerate(term) if i != index for v in _visible(f))


def _visible(factor: Factor) -> Keep:
    return bound_by(factor) if isinstance(factor, Lift | Exists) else variable_set(factor)


def split_products(term: Term, keep: Keep) -> list[Term] | None:
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


def fold_constants(term: Term, keep: Keep) -> list[Term] | None:
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
    if not isinstance(scalar, Apply) or not all(isinstance(a, Const) for a in scalar.args):
        return scalar
    values = [a.value for a in scalar.args if isinstance(a, Const)]
    if scalar.op in NEGATED:
        return Const(int(compare(scalar.op, *values)))
    if scalar.op in ("+", "-", "*") and all(isinstance(v, int) for v in values):
        a, b = values
        return Const({"+": a + b, "-": a - b, "*": a * b}[scalar.op])  # type: ignore[operator]
    if scalar.op == "if":
        return scalar.args[1] if values[0] else scalar.args[2]
    if scalar.op == "not":
        return Const(int(not values[0]))
    return scalar


def unify_equalities(term: Term, keep: Keep) -> list[Term] | None:
    """{x = y} with an x that no lift binds becomes y everywhere in the term."""
    lifted = frozenset(f.var for f in term if isinstance(f, Lift))
    groups = frozenset(v for f in term if isinstance(f, Exists) for v in f.group)
    for i, factor in enumerate(term):
        if not isinstance(factor, Cmp) or factor.op != "=":
            continue
        for old, new in ((factor.left, factor.right), (factor.right, factor.left)):
            if (
                not isinstance(old, Var)
                or old.name.startswith("@")
                or old in keep
                or not isinstance(new, Var | Const)
            ):
                continue
            if old not in lifted and (old not in groups or isinstance(new, Var)):
                rest = term[:i] + term[i + 1 :]
                return [substitute_term(rest, {old: new})]
    return None


def substitute_lifts(term: Term, keep: Keep) -> list[Term] | None:
    """(x ^= [s]) without relations becomes s wherever x is used."""
    for i, factor in enumerate(term):
        if isinstance(factor, Lift) and factor.var not in keep and len(factor.body.terms) == 1:
            body = factor.body.terms[0]
            if all(isinstance(f, Val) for f in body) and not any(
                isinstance(f, Rel | MapRef) and factor.var in bound_by(f) for f in term
            ):
                scalar: Scalar = Const(1)
                for f in body:
                    scalar = f.scalar if scalar == Const(1) else Apply("*", (scalar, f.scalar))  # type: ignore[union-attr]
                rest = term[:i] + term[i + 1 :]
                return [substitute_term(rest, {factor.var: scalar})]
    return None


def unlift(term: Term, keep: Keep) -> list[Term] | None:
    """(x ^= Q) * x, with x used nowhere else, becomes Q; an unused lift is 1."""
    uses = Counter(v for f in term if not isinstance(f, Lift) for v in variables(f))
    inner = Counter(v for f in term if isinstance(f, Lift) for v in variables(f.body))
    for i, factor in enumerate(term):
        if not isinstance(factor, Lift) or factor.var in keep or inner[factor.var]:
            continue
        if not uses[factor.var]:
            return [term[:i] + term[i + 1 :]]
        if uses[factor.var] == 1 and Val(factor.var) in term:
            rest = tuple(f for f in term if f not in (factor, Val(factor.var)))
            local = variable_set(factor.body) - _free_names(term, i) - keep
            inner_names = apart_from(
                (v for v in local if not v.name.startswith("@")), variable_set(rest) | keep
            )
            body = substitute(factor.body, inner_names)
            return [rest + inner_term for inner_term in body.terms]
    return None


def drop_certain_counts(term: Term, keep: Keep) -> list[Term] | None:
    """(n ^= R(x, z)) * {n > 0} is 1 beside R(x, y): the row at hand is one of those counted."""
    lifts = {f.var: f.body for f in term if isinstance(f, Lift)}
    for i, factor in enumerate(term):
        if not isinstance(factor, Cmp) or (factor.op, factor.right) != (">", Const(0)):
            continue
        body = lifts.get(factor.left)  # type: ignore[arg-type]
        if body is None or len(body.terms) != 1 or len(body.terms[0]) != 1:
            continue
        counted = body.terms[0][0]
        outer = keep | _bound(term) | _free_names(term, -1)
        if isinstance(counted, Rel) and any(
            isinstance(f, Rel)
            and f.name == counted.name
            and all(
                a == b or (isinstance(a, Var) and a not in outer)
                for a, b in zip(counted.args, f.args, strict=True)
            )
            and len(set(counted.args)) == len(counted.args)
            for f in term
        ):
            return [term[:i] + term[i + 1 :]]
    return None


def drop_repeated(term: Term, keep: Keep) -> list[Term] | None:
    """A condition that stands twice holds once: [c] * [c] is [c]."""
    for i, factor in enumerate(term):
        scalar = factor.scalar if isinstance(factor, Val) else None
        if isinstance(scalar, Apply) and scalar.op in CONDITIONS and factor in term[:i]:
            return [term[:i] + term[i + 1 :]]
    return None


def drop_implied(term: Term, keep: Keep) -> list[Term] | None:
    """Of two bounds on one difference the tighter stays; contradicting ones remove the term."""
    bounds = [(i, _bound_on(f)) for i, f in enumerate(term) if isinstance(f, Cmp)]
    for at, (i, first) in enumerate(bounds):
        for j, second in bounds[at + 1 :]:
            if term[i] == term[j]:
                return [term[:j] + term[j + 1 :]]
            if first is None or second is None or first[0] != second[0]:
                continue
            (_, low_1, high_1), (_, low_2, high_2) = first, second
            if max(low_1, low_2) > min(high_1, high_2):
                return []
            if low_1 <= low_2 and high_1 >= high_2:
                return [term[:i] + term[i + 1 :]]
            if low_2 <= low_1 and high_2 >= high_1:
                return [term[:j] + term[j + 1 :]]
    return None


Linear = tuple[tuple[tuple[str, int], ...], float, float]


def _bound_on(factor: Cmp) -> Linear | None:
    """The interval of a linear form over integers that the comparison allows; None if not linear."""
    form, constant = linear_form(Apply("-", (factor.left, factor.right))) or (None, 0)
    if not form or factor.op == "<>":
        return None
    op = factor.op
    names = sorted((v.name, c) for v, c in form.items())
    if names[0][1] < 0:
        names, constant, op = [(n, -c) for n, c in names], -constant, MIRRORED[op]
    low, high = float("-inf"), float("inf")
    if op in ("=", ">=", ">"):
        low = -constant + (op == ">")
    if op in ("=", "<=", "<"):
        high = -constant - (op == "<")
    return tuple(names), low, high


def linear_form(scalar: Scalar) -> tuple[dict[Var, int], int] | None:
    """Coefficients and constant of an exact linear scalar; None where it is not one."""
    match scalar:
        case Var():
            return {scalar: 1}, 0
        case Const(value):
            return ({}, value) if isinstance(value, int) else None
        case Apply("+" | "-" as op, (left, right)):
            a, b = linear_form(left), linear_form(right)
            if a is None or b is None:
                return None
            sign = 1 if op == "+" else -1
            form = Counter(a[0])
            for v, c in b[0].items():
                form[v] += sign * c
            return {v: c for v, c in form.items() if c}, a[1] + sign * b[1]
        case Apply("neg", (inner,)):
            return linear_form(Apply("-", (Const(0), inner)))
        case Apply("*", (left, right)):
            a, b = linear_form(left), linear_form(right)
            if a is None or b is None or (a[0] and b[0]):
                return None
            (terms, constant), factor = (a, b[1]) if not b[0] else (b, a[1])
            return {v: c * factor for v, c in terms.items() if c * factor}, constant * factor
    return None


RULES: tuple[tuple[str, Rule], ...] = (
    ("split products", split_products),
    ("fold constants", fold_constants),
    ("unify equalities", unify_equalities),
    ("substitute lifts", substitute_lifts),
    ("unlift", unlift),
    ("drop certain counts", drop_certain_counts),
    ("drop repeated conditions", drop_repeated),
    ("drop implied comparisons", drop_implied),
)


def _merged(terms: list[Term]) -> Poly:
    """Adds the coefficients of terms with the same factors."""
    sums: dict[tuple[Factor, ...], list] = {}
    for term in terms:
        coefficient: int | float = 1
        factors = term
        if term and isinstance(term[0], Val) and isinstance(term[0].scalar, Const):
            coefficient, factors = term[0].scalar.value, term[1:]  # type: ignore[assignment]
        entry = sums.setdefault(tuple(sorted(factors, key=repr)), [0, factors])
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
