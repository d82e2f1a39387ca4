"""Rewrites the calculus to a fixpoint by rules, and adds up equal terms.

Each rule takes a term and the variables that must stay (keys of the result) and gives the terms that
replace it, or None where it does not apply. There are rules on constants (coefficients, decided comparisons,
repeated conditions), on comparisons of one linear form with constants, rules that give two names of one
value one name, and rules on factors that hold a polynomial of their own. `RULES` has them in the order
they are tried.
"""

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import lru_cache
from math import isfinite
from typing import Any

from orderbook.core.errors import DataError, ExactnessError
from orderbook.views.calculus import (
    CONDITIONS,
    MIRRORED,
    NEGATED,
    NESTED,
    ZERO,
    Apply,
    Cmp,
    Const,
    Exists,
    Extreme,
    Factor,
    Lift,
    MapRef,
    Neighbour,
    Poly,
    Rel,
    Scalar,
    Term,
    Val,
    Var,
    bound_by,
    counting,
    map_scalar,
    product,
    relations,
    scalar_variables,
    spend,
    substitute,
    substitute_scalar,
    substitute_term,
    term_size,
    variable_set,
    variables,
    with_body,
    with_scalars,
)
from orderbook.views.certain_rows import (
    drop_certain_counts,
    drop_certain_ends,
    drop_certain_groups,
    unlift_single,
)
from orderbook.views.conditions import compare, is_itself, linear_form
from orderbook.views.names import (
    apart_from,
    bound_in,
    canonical,
    outer_variables,
    rows_form,
    used_outside,
    visible,
)
from orderbook.views.running_sums import add_own, cancel, less_own
from orderbook.views.scalars import texts
from orderbook.views.scalars.evaluate import evaluate


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
            decided = Cmp(factor.op, folded(left), folded(right))
            if decided != factor:
                return [(*term[:i], decided, *term[i + 1 :])]
        if isinstance(factor, Val) and isinstance(factor.scalar, Apply):
            scalar = folded(factor.scalar)
            if scalar != factor.scalar:
                return [(*term[:i], Val(scalar), *term[i + 1 :])]
    return None


def folded(scalar: Scalar) -> Scalar:
    """The scalar with its comparisons and functions of constants evaluated."""
    return map_scalar(scalar, _fold)


def _fold(scalar: Scalar) -> Scalar:
    if not isinstance(scalar, Apply):
        return scalar
    if scalar.op in ("<>", "<", ">") and scalar.args[0] == scalar.args[1]:
        return Const(0)
    if scalar.op in ("and", "or"):
        return _fold_connective(scalar.op, *scalar.args)
    if scalar.op == "if":
        condition, value, other = scalar.args
        if isinstance(condition, Const):
            return value if condition.value else other
        if is_itself(condition, value, other):
            return value
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
    if scalar.op in texts.NOTED:
        return scalar
    if scalar.op in texts.FUNCTIONS:
        said = texts.FUNCTIONS[scalar.op].function(*values)
        return Const(said)
    try:
        value = evaluate(scalar.op, values)
    except (ExactnessError, KeyError, DataError):
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


def decide_nulls(term: Term, keep: frozenset[Var]) -> list[Term] | None:
    """[not(is_null(x))] * (y ^= Q * [is_null(x)] + R) is [not(is_null(x))] * (y ^= R), and so on."""
    for i, factor in enumerate(term):
        match factor:
            case Val(Apply("not", (Apply("is_null", (Var(),)) as asked,))):
                holds = 0
            case Val(Apply("is_null", (Var(),)) as asked):
                holds = 1
            case _:
                continue
        rest = term[:i] + term[i + 1 :]
        decided = with_scalars(rest, {asked: Const(holds)})
        if decided != rest:
            return [(factor, *decided)]
    return None


def drop_repeated(term: Term, keep: frozenset[Var]) -> list[Term] | None:
    """A condition that stands twice holds once: [c] * [c] is [c]; beside its opposite it removes the term."""
    for i, factor in enumerate(term):
        scalar = factor.scalar if isinstance(factor, Val) else None
        if isinstance(scalar, Apply) and scalar.op in CONDITIONS:
            if factor in term[:i]:
                return [term[:i] + term[i + 1 :]]
            if scalar.op == "not" and Val(scalar.args[0]) in term:
                return []
    return None


Linear = tuple[tuple[tuple[str, int], ...], float, float]


def drop_implied(term: Term, keep: frozenset[Var]) -> list[Term] | None:
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


def unify_equalities(term: Term, keep: frozenset[Var]) -> list[Term] | None:
    """{x = y} with an x that no aggregate binds becomes y everywhere in the term.

    Not where y is an aggregate that depends on x, which would then depend on itself.
    """
    lifted = frozenset(v for f in term if isinstance(f, Lift | Extreme | Neighbour) for v in bound_by(f))
    for i, factor in enumerate(term):
        if not isinstance(factor, Cmp) or factor.op != "=":
            continue
        for old, new in ((factor.left, factor.right), (factor.right, factor.left)):
            if not isinstance(old, Var) or old.name.startswith("@") or old in keep or old in lifted:
                continue
            if new in lifted and old in _inputs(new, term):
                continue
            if isinstance(new, Var) or (isinstance(new, Const) and old not in set(_binding(term))):
                return [substitute_term(term[:i] + term[i + 1 :], {old: new})]
    return None


def _inputs(variable: Scalar, term: Term) -> frozenset[Var]:
    """The variables that the aggregates which bind a variable depend on, through others too."""
    found: frozenset[Var] = frozenset()
    pending = {variable}
    while pending:
        binding = [f for f in term if isinstance(f, Lift | Extreme | Neighbour) and bound_by(f) & pending]
        more = frozenset[Var]().union(*map(_inputs_of, binding)) - found
        found |= more
        pending = set(more)
    return found


def _inputs_of(factor: Lift | Extreme | Neighbour) -> frozenset[Var]:
    inside = variable_set(factor.body)
    return inside | (visible(factor) - bound_by(factor)) if isinstance(factor, Neighbour) else inside


def substitute_lifts(term: Term, keep: frozenset[Var]) -> list[Term] | None:
    """(x ^= [s]) without relations becomes s wherever x is used, (x ^= [x]) is 1; a sum of nothing is 0."""
    for i, factor in enumerate(term):
        if isinstance(factor, Lift) and factor.body == product(Val(factor.var)):
            return [term[:i] + term[i + 1 :]]
        if not isinstance(factor, Lift) or factor.var in keep or len(factor.body.terms) > 1:
            continue
        summed = factor.body.terms[0] if factor.body.terms else (Val(Const(0)),)
        values = [f.scalar for f in summed if isinstance(f, Val)]
        if len(values) < len(summed):
            continue
        if any(isinstance(f, Rel | MapRef) and factor.var in bound_by(f) for f in term):
            continue
        scalar: Scalar = values[0] if values else Const(1)
        for value in values[1:]:
            scalar = Apply("*", (scalar, value))
        rest = term[:i] + term[i + 1 :]
        if isinstance(scalar, Var) or factor.var not in set(_binding(rest)):
            return [substitute_term(rest, {factor.var: scalar})]
    return None


def _binding(term: Term) -> Iterator[Var]:
    """The variables that stand, at any depth, where only a variable can."""
    for factor in term:
        if isinstance(factor, NESTED):
            yield from bound_by(factor)
            if isinstance(factor, Extreme):
                yield factor.value
            elif isinstance(factor, Neighbour):
                yield from factor.values
            yield from _binding_inside(factor.body)


def _binding_inside(body: Poly) -> Iterator[Var]:
    for term in body.terms:
        yield from _binding(term)


def drop_empty(term: Term, keep: frozenset[Var]) -> list[Term] | None:
    """Groups and extremes of nothing are 0, and neighbours in nothing are not found."""
    if any(isinstance(f, Exists | Extreme) and f.body == ZERO for f in term):
        return []
    for i, factor in enumerate(term):
        if isinstance(factor, Neighbour) and factor.body == ZERO:
            nothing = (Lift(v, product(Val(Const(0)))) for v in (factor.found, *factor.vars))
            return [(*term[:i], *nothing, *term[i + 1 :])]
    return None


def unlift(term: Term, keep: frozenset[Var]) -> list[Term] | None:
    """(x ^= Q) * x, with x used nowhere else, becomes Q; an unused lift is 1, and so is an unused neighbour.

    Not where Q reads a neighbour: what reaches that one reaches the term, where rows of it do not. Nor where
    Q is grouped by what it computes and other lifts are, too: their groups would be looked for by its rows.
    """
    if not any(isinstance(f, Lift | Neighbour) for f in term):
        return None
    uses = Counter(v for f in term if not isinstance(f, Lift) for v in variables(f))
    inner = Counter(v for f in term if isinstance(f, Lift) for v in variables(f.body))
    beside = frozenset(v for f in term if isinstance(f, Neighbour) for v in bound_by(f))
    for i, factor in enumerate(term):
        if isinstance(factor, Neighbour) and not bound_by(factor) & (keep | _used(term, i)):
            return [term[:i] + term[i + 1 :]]
        if not isinstance(factor, Lift) or factor.var in keep or inner[factor.var]:
            continue
        if not uses[factor.var]:
            return [term[:i] + term[i + 1 :]]
        if variable_set(factor.body) & beside or _computed_keys(factor) & _in_lifts(term, i):
            continue
        if uses[factor.var] == 1 and Val(factor.var) in term:
            rest = tuple(f for f in term if f not in (factor, Val(factor.var)))
            local = variable_set(factor.body) - used_outside(term, i) - keep
            names = apart_from((v for v in local if not v.name.startswith("@")), variable_set(rest) | keep)
            return [rest + inner_term for inner_term in substitute(factor.body, names).terms]
    return None


def _computed_keys(lift: Lift) -> frozenset[Var]:
    """What the rows of a lift compute of their columns."""
    inner = (f for t in lift.body.terms for f in t if isinstance(f, Lift) and not relations(f))
    return frozenset(f.var for f in inner)


def _in_lifts(term: Term, index: int) -> frozenset[Var]:
    """The variables of the other lifts of a term."""
    others = (f for i, f in enumerate(term) if i != index and isinstance(f, Lift | Extreme))
    return frozenset[Var]().union(*(variable_set(f.body) for f in others))


def _used(term: Term, index: int) -> frozenset[Var]:
    """All variables of the other factors."""
    return variable_set(term[:index] + term[index + 1 :])


def share_extremes(term: Term, keep: frozenset[Var]) -> list[Term] | None:
    """Two extremes of equal bodies are one, and their variables equal."""
    extremes = [(i, f) for i, f in enumerate(term) if isinstance(f, Extreme)]
    for at, (i, first) in enumerate(extremes):
        for j, second in extremes[at + 1 :]:
            if first.greatest != second.greatest or _form(term, i, first) != _form(term, j, second):
                continue
            without = term[:j] + term[j + 1 :]
            if first.var == second.var:
                return [without]
            if second.var not in keep:
                return [substitute_term(without, {second.var: first.var})]
            if first.var not in keep:
                return [substitute_term(term[:i] + term[i + 1 :], {first.var: second.var})]
    return None


def _form(term: Term, index: int, extreme: Extreme) -> object:
    """What is equal for extremes that differ only in the names of their local variables."""
    outer = outer_variables(term, index, extreme.body)
    keys = (extreme.value, *outer)
    form, places = canonical(keys, extreme.body)
    return form, tuple(keys[i] if i else None for i in places)


def share_neighbours(term: Term, keep: frozenset[Var]) -> list[Term] | None:
    """Two looks at the same neighbour are one, and their variables equal."""
    looks = [(i, f) for i, f in enumerate(term) if isinstance(f, Neighbour)]
    for at, (i, first) in enumerate(looks):
        for j, second in looks[at + 1 :]:
            if (first.greatest, first.order, first.partition, first.away) != (
                second.greatest,
                second.order,
                second.partition,
                second.away,
            ) or _look(term, i, first) != _look(term, j, second):
                continue
            for kept, other, left in ((first, second, j), (second, first, i)):
                if not bound_by(other) & keep:
                    names = zip((other.found, *other.vars), (kept.found, *kept.vars), strict=True)
                    return [substitute_term(term[:left] + term[left + 1 :], dict(names))]
    return None


def _look(term: Term, index: int, look: Neighbour) -> object:
    """What is equal for neighbours that differ only in the names of their local variables."""
    keys = (*look.values, *outer_variables(term, index, look.body))
    form, places = canonical(keys, look.body)
    return form, tuple(i if i < len(look.values) else keys[i] for i in places)


def certain_extremes(term: Term, keep: frozenset[Var]) -> list[Term] | None:
    """The greatest value beside {n > 0}, n the rows it is taken from, is an Extreme of the term itself."""
    held = [(i, e) for i, f in enumerate(term) if (e := _held_extreme(f)) is not None]
    if not held:
        return None
    lifts = {f.var: (i, f.body) for i, f in enumerate(term) if isinstance(f, Lift)}
    for i, factor in enumerate(term):
        if not isinstance(factor, Cmp) or (factor.op, factor.right) != (">", Const(0)):
            continue
        at, body = lifts.get(factor.left, (0, ZERO))  # type: ignore[arg-type]
        for j, certain in held:
            if body.terms and rows_form(term, at, body) == rows_form(term, j, certain.body):
                return [tuple(certain if k == j else f for k, f in enumerate(term) if k != i)]
    return None


def _held_extreme(factor: Factor) -> Extreme | None:
    """The Extreme whose value, or 0, a lift holds, with the lift's variable."""
    match factor:
        case Lift(held, Poly(((Extreme(var, _, _, _) as extreme, Val(value)),))) if value == var:
            return replace(extreme, var=held)
    return None


def drop_known_conditions(term: Term, keep: frozenset[Var]) -> list[Term] | None:
    """(n ^= Q) * {n > 0} goes inside of a sum beside the same, or groups with the same, if Q is one number.

    So what `NOW()` needs to be known, a tick of the clock, hides no order of rows compared with it.
    """
    around = keep | bound_in(term) | used_outside(term)
    known = _conditions_on_totals(term, around)
    for group in (f for f in term if isinstance(f, Exists) and f.body.terms):
        of_terms = [
            _conditions_on_totals(t, around | bound_in(t) | used_outside(t)) for t in group.body.terms
        ]
        known |= frozenset.intersection(*of_terms)
    if not known:
        return None
    for i, factor in enumerate(term):
        if isinstance(factor, Lift):
            body = tuple(_without_conditions(inner, known, around) for inner in factor.body.terms)
            if body != factor.body.terms:
                return [(*term[:i], with_body(factor, Poly(body)), *term[i + 1 :])]
    return None


# A comparison with a constant, and the canonical form of what is compared.
Condition = tuple[str, Scalar, object]


def _conditions_on_totals(term: Term, around: frozenset[Var]) -> frozenset[Condition]:
    """What a term says of totals, which depend on nothing around them."""
    lifts = {f.var: f.body for f in term if isinstance(f, Lift)}
    compared = [
        (f.op, f.right, lifts[f.left])
        for f in term
        if isinstance(f, Cmp) and isinstance(f.right, Const) and isinstance(f.left, Var) and f.left in lifts
    ]
    return frozenset((op, at, canonical((), b)[0]) for op, at, b in compared if not variable_set(b) & around)


def _without_conditions(term: Term, known: Collection[Condition], around: frozenset[Var]) -> Term:
    """The term without its totals that are compared as `known` says, and not used otherwise."""
    for i, factor in enumerate(term):
        if not isinstance(factor, Lift) or factor.var in around:
            continue
        rest = term[:i] + term[i + 1 :]
        users = [f for f in rest if factor.var in variable_set(f)]
        own = {(f.op, f.right) for f in users if isinstance(f, Cmp) and f.left == factor.var}
        if len(users) != 1 or not own:
            continue
        outside = around | bound_in(rest) | used_outside(rest)
        alone = not variable_set(factor.body) & (outside - {factor.var})
        if alone and (*own.pop(), canonical((), factor.body)[0]) in known:
            return tuple(f for f in rest if f is not users[0])
    return term


Rule = Callable[[Term, frozenset[Var]], list[Term] | None]

# In the order they are tried.
RULES: tuple[tuple[str, Rule], ...] = (
    ("drop empty groups and extremes", drop_empty),
    ("split products", split_products),
    ("fold constants", fold_constants),
    ("unify equalities", unify_equalities),
    ("substitute lifts", substitute_lifts),
    ("decide conditions", decide_conditions),
    ("unlift", unlift),
    ("unlift what is 0 or 1", unlift_single),
    ("share extremes", share_extremes),
    ("share neighbours", share_neighbours),
    ("certain extremes", certain_extremes),
    ("drop certain counts", drop_certain_counts),
    ("drop certain groups", drop_certain_groups),
    ("drop certain ends", drop_certain_ends),
    ("cancel", cancel),
    ("running sums less their own", less_own),
    ("running sums with their own", add_own),
    ("drop known conditions", drop_known_conditions),
    ("decide what is NULL", decide_nulls),
    ("drop repeated conditions", drop_repeated),
    ("drop implied comparisons", drop_implied),
)


def simplify(poly: Poly, keep: Iterable[Var] = ()) -> Poly:
    """The simplified polynomial; variables of `keep` are neither renamed nor eliminated."""
    result, steps = _simplest(poly, frozenset(keep))
    spend(steps)
    return result


# A view asks for the same ones several times.
@lru_cache(maxsize=4096)
def _simplest(poly: Poly, kept: frozenset[Var]) -> tuple[Poly, int]:
    """With the steps that it takes, which whoever asks for it again spends, too."""
    with counting() as budget:
        before = budget.left
        return _simplified(without_unused(poly, kept), kept, set()), before - budget.left


def without_unused(poly: Poly, keep: frozenset[Var]) -> Poly:
    """The polynomial without lifts and neighbours, at any depth, whose variables nothing else uses.

    Rules drop them, too, one by one; what is computed of a query that reads little of another is most of it.
    """
    return Poly(tuple(_used_factors(t, keep) for t in poly.terms))


def _used_factors(term: Term, keep: frozenset[Var]) -> Term:
    uses = Counter(v for f in term for v in _reads(f))
    factors = list(term)
    for factor in reversed(term):
        if isinstance(factor, Lift | Neighbour):
            bound = bound_by(factor)
            if keep.isdisjoint(bound) and not any(uses[v] for v in bound):
                factors.remove(factor)
                uses.subtract(_reads(factor))
    used = tuple(factors)
    return tuple(
        with_body(f, without_unused(f.body, _kept_inside(used, i, keep))) if isinstance(f, NESTED) else f
        for i, f in enumerate(used)
    )


def _reads(factor: Factor) -> frozenset[Var]:
    """The variables that a factor uses, those left out that it is the lift of, or the neighbour."""
    match factor:
        case Lift(_, body):
            return variable_set(body)
        case Neighbour(_, _, _, values, _, _, body):
            return visible(factor) - bound_by(factor) | variable_set(body) | frozenset(values)
    return variable_set(factor)


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
            factor = with_body(factor, _simplified(factor.body, _kept_inside(term, i, keep), known))
        result.append(factor)
    return tuple(result)


def _kept_inside(term: Term, index: int, keep: frozenset[Var]) -> frozenset[Var]:
    """The variables of a nested polynomial that are used outside of it."""
    factor = term[index]
    outside = keep | bound_in(term[:index] + term[index + 1 :]) | used_outside(term, index)
    match factor:
        case Exists(group, _):
            return outside.union(group)
        case Extreme(_, _, value, _):
            return outside | {value}
        case Neighbour():
            return outside.union(factor.values)
    return outside


def _merged(terms: list[Term]) -> Poly:
    """Adds the coefficients of terms with the same factors."""
    sums: dict[frozenset[tuple[Factor, int]], list[Any]] = {}
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
