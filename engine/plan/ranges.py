"""What conditions say of a key that is looped over: bounds of a range of keys, cuts of a tree's order.

Comparisons are solved for the loop variable. Conditions on running sums along a tree are cuts of its order.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from math import gcd

from orderbook.engine.plan.steps import Cut
from orderbook.engine.plan.stores import layout_of
from orderbook.views.calculus import (
    MIRRORED,
    NEGATED,
    Apply,
    Cmp,
    Const,
    Factor,
    Lift,
    MapRef,
    Poly,
    Scalar,
    Term,
    Val,
    Var,
    scalar_variables,
    substitute,
    substitute_scalar,
    variable_set,
)
from orderbook.views.conditions import NULL, is_condition, linear_form
from orderbook.views.intervals import scalar_type
from orderbook.views.names import canonical
from orderbook.views.types import INT64_MAX, Type


@dataclass(frozen=True, slots=True)
class Bounds:
    low: tuple[Scalar, ...] = ()
    high: tuple[Scalar, ...] = ()

    def __add__(self, other: "Bounds") -> "Bounds":
        return Bounds(self.low + other.low, self.high + other.high)

    def with_end(self, side: Var, end: Scalar) -> "Bounds":
        """The bounds with a scalar in place of a variable."""
        low, high = (tuple(substitute_scalar(s, {side: end}) for s in ends) for ends in (self.low, self.high))
        return Bounds(low, high)


def solve(comparison: Cmp, variable: Var, types: Mapping[Var, Type]) -> Bounds | None:
    """The bounds, inclusive, that a comparison sets on the key words of `variable`; None if it sets none."""
    if comparison.op == "<>":
        return None
    op, own, other = comparison.op, comparison.left, comparison.right
    if variable in scalar_variables(other):
        op, own, other = MIRRORED[op], other, own
    if variable not in scalar_variables(other) and own != variable:
        match own:
            case Apply("abs", (inner,)) if op in ("<", "<="):
                ends = Cmp(op, inner, other), Cmp(MIRRORED[op], inner, Apply("neg", (other,)))
                found = [solve(end, variable, types) for end in ends]
                return None if found[0] is None or found[1] is None else found[0] + found[1]
    if is_exact(comparison, types):
        return _solve_exact(comparison, variable)
    if variable in scalar_variables(other):
        return None
    low = End(other, op == ">") if op in ("=", ">", ">=") else None
    high = End(other, op == "<") if op in ("=", "<", "<=") else None
    return _solve_double(own, low, high, variable, types)


def is_exact(comparison: Cmp, types: Mapping[Var, Type]) -> bool:
    return all(scalar_type(s, types).exact for s in (comparison.left, comparison.right))


def _solve_exact(comparison: Cmp, variable: Var) -> Bounds | None:
    form = linear_form(Apply("-", (comparison.left, comparison.right)))
    if form is None:
        return _solve_for_side(comparison, variable)
    if variable not in form[0]:
        return None
    coefficients, constant = form
    coefficient = coefficients[variable]
    op = comparison.op if coefficient > 0 else MIRRORED[comparison.op]
    # variable * divisor  op  rest + constant; strict ends move before common factors are divided out.
    sign = -1 if coefficient > 0 else 1
    rest = {v: sign * c for v, c in coefficients.items() if v != variable}
    common = gcd(coefficient, *rest.values())
    divisor = abs(coefficient) // common
    rest, constant = {v: c // common for v, c in rest.items()}, sign * constant
    low: tuple[Scalar, ...] = ()
    high: tuple[Scalar, ...] = ()
    if op in ("=", ">=", ">"):
        least = -(-(constant + (op == ">")) // common)
        low = (_floor(_linear(rest, least + divisor - 1), divisor),)
    if op in ("=", "<=", "<"):
        high = (_floor(_linear(rest, (constant - (op == "<")) // common), divisor),)
    return Bounds(low, high)


def _solve_for_side(comparison: Cmp, variable: Var) -> Bounds | None:
    """The bounds where one side is not linear, but does not depend on the variable."""
    op, own, other = comparison.op, comparison.left, comparison.right
    if variable in scalar_variables(other):
        op, own, other = MIRRORED[op], other, own
    if not isinstance(other, Apply) or variable in scalar_variables(other):
        return None
    side = Var("$side")
    bounds = _solve_exact(Cmp(op, own, side), variable)
    return None if bounds is None else bounds.with_end(side, other)


@dataclass(frozen=True, slots=True)
class End:
    """An end of an interval of doubles; `strict` says that it is not in the interval."""

    at: Scalar
    strict: bool = False

    def negated(self) -> "End":
        return End(Apply("neg", (self.at,)), self.strict)


def _solve_double(
    own: Scalar, low: End | None, high: End | None, variable: Var, types: Mapping[Var, Type]
) -> Bounds | None:
    """The bounds where `own`, which depends on the variable, lies between doubles that do not.

    Doubles are ordered as the words that trees keep for them. No rounded sum, product or quotient with an
    operand that stays, and no conversion of exact keys, turns back as the key rises: one double is the
    last for which it lies within an end, so that bounds are exact.
    """
    if scalar_type(own, types).exact:
        return _solve_converted(own, Const(0), low, high, variable, types)
    match own:
        case Apply("double", (inner, scale)):
            return _solve_converted(inner, scale, low, high, variable, types)
        case Apply("neg", (inner,)):
            return _solve_double(inner, _negated(high), _negated(low), variable, types)
        case Apply("-", (left, right)) if variable not in scalar_variables(right):
            return _solve_double(Apply("+", (left, Apply("neg", (right,)))), low, high, variable, types)
        case Apply("-", (left, right)) if variable not in scalar_variables(left):
            return _solve_double(Apply("-", (right, left)), _negated(high), _negated(low), variable, types)
        case Apply("+" | "*", (left, right)) if variable not in scalar_variables(left):
            return _solve_double(Apply(own.op, (right, left)), low, high, variable, types)
        case Apply("+", (inner, operand)) if variable not in scalar_variables(operand):
            return _solve_double(
                inner,
                None if low is None else End(_least("+", low, operand)),
                None if high is None else End(_greatest("+", high, operand)),
                variable,
                types,
            )
        case Apply("*" | "/" as op, (inner, operand)) if variable not in scalar_variables(operand):
            return _solve_product(op, inner, operand, low, high, variable, types)
    if own != variable:
        return None
    lows = () if low is None else (_plus(Apply("ordered_word", (low.at,)), int(low.strict)),)
    highs = () if high is None else (_plus(Apply("ordered_word", (high.at,)), -int(high.strict)),)
    return Bounds(lows, highs)


def _negated(end: End | None) -> End | None:
    return None if end is None else end.negated()


def _greatest(op: str, end: End, operand: Scalar) -> Scalar:
    """The greatest double whose sum, product or quotient with `operand` lies below the end."""
    return Apply(f"last_{_INVERSES[op]}", (end.at, operand, Const(int(end.strict))))


_INVERSES = {"+": "addend", "*": "factor", "/": "dividend"}


def _least(op: str, end: End, operand: Scalar) -> Scalar:
    """The least double whose sum with `operand` lies above the end, or whose product or quotient below it.

    A rounded result changes its sign with what it is made of: y + a >= e where -y - a <= -e, and y * a <= e
    where -y * -a <= e.
    """
    mirrored = end.negated() if op == "+" else end
    return Apply("neg", (_greatest(op, mirrored, Apply("neg", (operand,))),))


def _solve_product(
    op: str,
    inner: Scalar,
    operand: Scalar,
    low: End | None,
    high: End | None,
    variable: Var,
    types: Mapping[Var, Type],
) -> Bounds | None:
    """The bounds by either sign of the operand: where it has the other one, an end is infinite."""
    bounds = Bounds()
    for end, by in ((high, operand), (_negated(low), Apply("neg", (operand,)))):
        if end is None:
            continue
        found = _solve_double(inner, End(_least(op, end, by)), End(_greatest(op, end, by)), variable, types)
        if found is None:
            return None
        bounds += found
    return bounds


def _solve_converted(
    inner: Scalar,
    scale: Scalar,
    low: End | None,
    high: End | None,
    variable: Var,
    types: Mapping[Var, Type],
) -> Bounds | None:
    """The bounds where the double of an exact scalar of 64 bits lies between the ends."""
    if not scalar_type(inner, types).exact:
        return _solve_double(inner, low, high, variable, types)
    if layout_of(scalar_type(inner, types)) != "i":
        return None
    words = Bounds(
        () if low is None else (_plus(_last(low, low.strict, scale), 1),),
        () if high is None else (_last(high, not high.strict, scale),),
    )
    if inner == variable:
        return words
    bounds = Bounds()
    for op, ends in ((">=", words.low), ("<=", words.high)):
        for end in ends:
            side = Var("$side")
            found = _solve_exact(Cmp(op, inner, side), variable)
            if found is None:
                return None
            bounds += found.with_end(side, end)
    return bounds


def _last(end: End, at_most: bool, scale: Scalar) -> Scalar:
    return Apply("last_at_most" if at_most else "last_below", (end.at, scale))


def null_or_not(factor: Factor, variable: Var) -> Bounds | None:
    """The bounds of NULL, whose word is below all others, or of all other keys, where the factor says so."""
    match factor:
        case Val(Apply("not", (Apply("is_null", (inner,)),))) if inner == variable:
            return Bounds((Const(-INT64_MAX),))
        case Val(Apply("is_null", (inner,))) if inner == variable:
            return Bounds((NULL,), (NULL,))
    return None


def _linear(coefficients: Mapping[Var, int], constant: int) -> Scalar:
    result: Scalar | None = None
    for variable, coefficient in coefficients.items():
        part: Scalar = variable if abs(coefficient) == 1 else Apply("*", (Const(abs(coefficient)), variable))
        if result is None:
            result = part if coefficient > 0 else Apply("neg", (part,))
        else:
            result = Apply("+" if coefficient > 0 else "-", (result, part))
    return Const(constant) if result is None else _plus(result, constant)


def _plus(scalar: Scalar, constant: int) -> Scalar:
    if isinstance(scalar, Const) and isinstance(scalar.value, int):
        return Const(scalar.value + constant)
    match scalar:
        case Apply("+", (inner, Const(int() as value))):
            return _plus(inner, value + constant)
    return scalar if constant == 0 else Apply("+", (scalar, Const(constant)))


def _floor(scalar: Scalar, divisor: int) -> Scalar:
    return scalar if divisor == 1 else Apply("floor_div", (scalar, Const(divisor)))


@dataclass(slots=True)
class Signs:
    """Which sums are never below 0, so that they rise along any order.

    `holds` says of a map that it holds nothing below 0 where it is read; `sums` are variables of sums of such
    maps.
    """

    holds: Callable[[MapRef], bool]
    sums: set[Var] = field(default_factory=set)
    lifts: Mapping[Var, Lift] = field(default_factory=dict)

    def rises(self, term: Term) -> bool:
        """Whether a term is made of conditions and of maps that hold nothing less than 0."""
        return all(
            isinstance(factor, Cmp)
            or (isinstance(factor, MapRef) and self.holds(factor))
            or (isinstance(factor, Val) and is_condition(factor.scalar))
            for factor in term
        )

    def is_not_negative(self, variable: Var) -> bool:
        """Whether a variable stands for a sum that is never below 0, computed or to be computed."""
        lift = self.lifts.get(variable)
        return variable in self.sums or (lift is not None and all(map(self.rises, lift.body.terms)))


def unbound(keys: Sequence[Scalar], known: frozenset[Var]) -> list[Var]:
    """The variables among keys that are not known, each once."""
    return list(dict.fromkeys(k for k in keys if isinstance(k, Var) and k not in known))


def cut(
    comparison: Cmp,
    variable: Var,
    lifts: Mapping[Var, Lift],
    known: frozenset[Var],
    binders: frozenset[Var],
    types: Mapping[Var, Type],
    maps: Mapping[str, Type],
    keys: Mapping[str, tuple[Type, ...]],
    signs: Signs,
) -> Cut | None:
    """The comparison as a cut of `variable`, where it compares running sums over it; else None.

    binders: what the term binds outside the sums, known yet or not; a sum runs over none of it.
    Sums of weights that are not negative, as `signs` knows them, rise along the order, so a linear
    comparison with one direction in all of them holds on one end of it, and so does one of a sum by itself
    where doubles are compared.
    """
    if comparison.op in ("=", "<>"):
        return None
    along = [v for v, lift in lifts.items() if variable in variable_set(lift)]
    form = _direction(comparison, is_exact(comparison, types), along, signs)
    if variable in form:
        return None
    running = [v for v in form if v in along]
    if not running or not all(v in known or v in running for v in form):
        return None
    sums = [_running_sum(lifts[v], variable, known, binders, types, keys, signs) for v in running]
    first = sums[0]
    if first is None or any(s is None or s[1:] != first[1:] for s in sums):
        return None
    directions = {form[v] > 0 for v in running}
    if len(directions) != 1:
        return None
    holds_when_small = (comparison.op in ("<", "<=")) == directions.pop()
    _, prefix, position, descending, inclusive = first
    if any(layout_of(scalar_type(p, types)) not in "id" for p in prefix):
        return None
    named = tuple((v, s[0]) for v, s in zip(running, sums, strict=True) if s is not None)
    limit = _limit(comparison, named, holds_when_small, types, maps)
    return Cut(prefix, position, named, comparison, descending, inclusive, holds_when_small, limit)


def _direction(comparison: Cmp, exact: bool, running: Collection[Var], signs: Signs) -> Mapping[Var, int]:
    """The variables of a comparison by what they are taken times, were all on its left; none where not known.

    Of doubles one of `running`, or what rises with it, stands alone on one side; others have 0.
    """
    form = linear_form(Apply("-", (comparison.left, comparison.right))) if exact else None
    if form is not None:
        return form[0]
    sides = (comparison.left, comparison.right, 1), (comparison.right, comparison.left, -1)
    for side, other, sign in sides:
        own = _rising_with(side, running, signs)
        others = {*variable_set(Val(other)), *variable_set(Val(side))} - {own}
        # A sum divided by another one, as a mean, rises and falls.
        if own is not None and own not in variable_set(Val(other)) and others.isdisjoint(running):
            return {**dict.fromkeys(others, 0), own: sign}
    return {}


def _rising_with(scalar: Scalar, running: Collection[Var], signs: Signs) -> Var | None:
    """The running sum that a scalar rises with, whatever other variables are."""
    match scalar:
        case Var():
            return scalar if scalar in running else None
        case Apply("double", (inner, _)):
            return _rising_with(inner, running, signs)
        case Apply("*" | "/" as op, (left, right)):
            found = _rising_with(left, running, signs) if _is_not_negative(right, signs) else None
            if found is None and op == "*" and _is_not_negative(left, signs):
                found = _rising_with(right, running, signs)
            return found
    return None


def _is_not_negative(scalar: Scalar, signs: Signs) -> bool:
    """Whether a factor or divisor is never below 0."""
    match scalar:
        case Const(int() | float() as value):
            return value >= 0
        case Apply("double", (inner, _)):
            return _is_not_negative(inner, signs)
        case Var():
            return signs.is_not_negative(scalar)
    return False


def bounded_sum(comparison: Cmp, lifts: Mapping[Var, Lift], signs: Signs) -> tuple[Var, Cmp] | None:
    """A sum of several terms, none of them less than 0, that a comparison bounds from above, and how.

    So it bounds each of them: as of the values that come before one in an order of two parts, those whose
    first part does.
    """
    summed = [v for v in variable_set(comparison) if v in lifts]
    if len(summed) != 1 or len(lifts[summed[0]].body.terms) < 2:
        return None
    (total,) = summed
    form = _direction(comparison, True, summed, signs)
    small = "<=" if form.get(total, 0) > 0 else ">="
    at_most = Cmp(small, comparison.left, comparison.right) if comparison.op == "=" else comparison
    if total not in form or at_most.op not in (small, small[0]):
        return None
    return (total, at_most) if all(signs.rises(t) for t in lifts[total].body.terms) else None


def _limit(
    comparison: Cmp,
    sums: Sequence[tuple[Var, str]],
    leading: bool,
    types: Mapping[Var, Type],
    maps: Mapping[str, Type],
) -> Scalar | None:
    """The greatest value of the only sum for which a condition (not `leading`: its opposite) holds."""
    if len(sums) != 1 or not is_exact(comparison, types):
        return None
    condition = comparison if leading else Cmp(NEGATED[comparison.op], comparison.left, comparison.right)
    ((variable, name),) = sums
    bounds = solve(condition, variable, {**types, variable: maps[name]})
    return None if bounds is None or bounds.low or len(bounds.high) != 1 else bounds.high[0]


RunningSum = tuple[str, tuple[Scalar, ...], int, bool, bool]


def _running_sum(
    lift: Lift,
    variable: Var,
    known: frozenset[Var],
    binders: frozenset[Var],
    types: Mapping[Var, Type],
    keys: Mapping[str, tuple[Type, ...]],
    signs: Signs,
) -> RunningSum | None:
    """(map, prefix, position, descending, inclusive) of `m[prefix, q] * {q op variable}`, or None."""
    if len(lift.body.terms) != 1:
        return None
    reads = [f for f in lift.body.terms[0] if isinstance(f, MapRef)]
    conditions: list[Factor] = [f for f in lift.body.terms[0] if not isinstance(f, MapRef)]
    if len(reads) != 1 or len(conditions) != 1 or not isinstance(conditions[0], Cmp):
        return None
    read, condition = reads[0], conditions[0]
    local = [k for k in read.keys if isinstance(k, Var) and k not in known and k != variable]
    if len(local) != 1 or local[0] in binders:
        return None
    key = local[0]
    if read.keys.count(key) != 1 or variable in read.keys or not signs.holds(read):
        return None
    prefix, position = tuple(k for k in read.keys if k != key), read.keys.index(key)
    kind = keys[read.name][position]
    bounds = solve(condition, key, {**types, key: kind}) if kind.exact == types[variable].exact else None
    if bounds is None or len(bounds.low) + len(bounds.high) != 1:
        return None
    descending = bool(bounds.low)
    bound = (bounds.low or bounds.high)[0]
    word = variable if kind.exact else Apply("ordered_word", (variable,))
    strict = Apply("+", (word, Const(1 if descending else -1)))
    if bound == word:
        return read.name, prefix, position, descending, True
    return (read.name, prefix, position, descending, False) if bound == strict else None


def ranked_sum(body: Poly, own: Var) -> tuple[Poly, Var, Cmp, Cmp] | None:
    """A sum whose terms all say alike how much of the sum lies up to `own`: that sum, and what they say.

    That is the variable of what lies up to it, what that means, and the condition.
    """
    rows, said = [], set()
    for term in body.terms:
        lifts = [f for f in term if isinstance(f, Lift)]
        if len(lifts) != 1:
            return None
        lift = lifts[0]
        conditions = [f for f in term if isinstance(f, Cmp) and lift.var in variable_set(f)]
        rest = tuple(f for f in term if f is not lift and f not in conditions)
        if len(conditions) != 1 or lift.var in variable_set(rest) or own in variable_set(conditions[0]):
            return None
        counted = _up_to(lift.body, own)
        if counted is None:
            return None
        rows.append(rest)
        said.add((lift.var, counted, conditions[0]))
    if len({(var, at, condition) for var, (_, at), condition in said}) != 1:
        return None
    (var, (_, at), condition), *_ = said
    whole = Poly(tuple(rows))
    shared = {v for _, (counted, _), _ in said for v in variable_set(counted)} & variable_set(whole)
    keys = (own, *sorted(shared - {own}, key=lambda v: v.name))
    forms = {canonical(keys, p) for p in (whole, *(counted for _, (counted, _), _ in said))}
    return (whole, var, at, condition) if len(forms) == 1 else None


def _up_to(body: Poly, own: Var) -> tuple[Poly, Cmp] | None:
    """The sum of which a body has what lies up to `own`, by that, and the comparison that says up to."""
    terms, said = [], set()
    for term in body.terms:
        compared = [f for f in term if isinstance(f, Cmp) and own in (f.left, f.right)]
        if len(compared) != 1 or own in variable_set(tuple(f for f in term if f is not compared[0])):
            return None
        (at,) = compared
        key = at.right if at.left == own else at.left
        if at.op not in ("<=", ">=") or not isinstance(key, Var):
            return None
        terms.append(substitute(Poly((tuple(f for f in term if f is not at),)), {key: own}).terms[0])
        said.add(Cmp(at.op if at.right == own else MIRRORED[at.op], Var("$key"), own))
    return (Poly(tuple(terms)), said.pop()) if len(said) == 1 else None
