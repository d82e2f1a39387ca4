"""Two-valued conditions as scalars, built simplified, and their polynomials.

SQL's three-valued logic is gone before this point: a condition here says that a predicate is true
(or that it is false), with "is not NULL" as a condition of its own. Comparisons are solved and compared
by the linear forms of their exact scalars (`linear_form`).
"""

from collections import Counter
from collections.abc import Iterator

from orderbook.views.calculus import (
    CONDITIONS,
    MINUS_ONE,
    MIRRORED,
    NEGATED,
    ONE,
    ZERO,
    Apply,
    Cmp,
    Const,
    Factor,
    Poly,
    Scalar,
    Val,
    Var,
    product,
    scalar_variables,
)

# A disjunction of more disjoint terms is evaluated row by row, since each would read maps of its own; and the
# terms that several of them come to.
MOST_TERMS, MOST_PRODUCTS = 8, 64
TRUE = Const(1)
FALSE = Const(0)
# NULL as a key of its own: groups of NULL, never equal in a comparison.
NULL = Const(None)


def both(left: Scalar, right: Scalar) -> Scalar:
    if left == TRUE or left == right:
        return right
    if right == TRUE:
        return left
    return FALSE if FALSE in (left, right) else Apply("and", (left, right))


def either(left: Scalar, right: Scalar) -> Scalar:
    if left == FALSE or left == right:
        return right
    if right == FALSE:
        return left
    return TRUE if TRUE in (left, right) else Apply("or", (left, right))


def negation(condition: Scalar) -> Scalar:
    """The opposite condition, negations pushed down to comparisons."""
    match condition:
        case Const(value):
            return FALSE if value else TRUE
        case Apply("and", (left, right)):
            return either(negation(left), negation(right))
        case Apply("or", (left, right)):
            return both(negation(left), negation(right))
        case Apply("not", (inner,)):
            return inner
        case Apply(op, args) if op in NEGATED:
            return Apply(NEGATED[op], args)
    return Apply("not", (condition,))


def comparison(op: str, left: Scalar, right: Scalar) -> Scalar:
    """`left op right`; constants go right and decided comparisons become constants."""
    if isinstance(left, Const) and isinstance(right, Const):
        return TRUE if compare(op, left.value, right.value) else FALSE
    if isinstance(left, Const):
        return Apply(MIRRORED[op], (right, left))
    return Apply(op, (left, right))


def compare(op: str, left: object, right: object) -> bool:
    """Evaluates a comparison on Python values; nothing is true of None."""
    if left is None or right is None:
        return False
    return bool(
        {
            "=": lambda a, b: a == b,
            "<>": lambda a, b: a != b,
            "<": lambda a, b: a < b,
            "<=": lambda a, b: a <= b,
            ">": lambda a, b: a > b,
            ">=": lambda a, b: a >= b,
        }[op](left, right)
    )


def choose(condition: Scalar, then: Scalar, otherwise: Scalar) -> Scalar:
    if condition == TRUE or then == otherwise or is_itself(condition, then, otherwise):
        return then
    return otherwise if condition == FALSE else Apply("if", (condition, then, otherwise))


def is_itself(condition: Scalar, then: Scalar, otherwise: Scalar) -> bool:
    """Whether a choice is what it chooses: that where it is not NULL, else NULL.

    Only of what is NULL by itself: what is computed of NULL without asking for it is nothing.
    """
    by_itself = isinstance(then, Var) or (isinstance(then, Apply) and then.op == "if")
    return by_itself and otherwise == NULL and condition == not_null(then)


def conjuncts(condition: Scalar) -> Iterator[Scalar]:
    """The conditions that all have to hold."""
    match condition:
        case Apply("and", conditions):
            for each in conditions:
                yield from conjuncts(each)
        case _:
            yield condition


def choose_condition(condition: Scalar, then: Scalar, otherwise: Scalar) -> Scalar:
    """`choose` between two conditions, simplified where one is decided or both are one."""
    if {*conjuncts(then)} == {*conjuncts(otherwise)}:
        return then
    if then in (TRUE, FALSE) or otherwise in (TRUE, FALSE):
        return either(both(condition, then), both(negation(condition), otherwise))
    return choose(condition, then, otherwise)


def is_condition(scalar: Scalar) -> bool:
    """Whether the scalar is 0 or 1 by its form."""
    if isinstance(scalar, Const):
        return scalar.value in (0, 1)
    return isinstance(scalar, Apply) and scalar.op in CONDITIONS


def truth(scalar: Scalar) -> Scalar:
    """The condition that a BOOLEAN scalar is true."""
    return scalar if is_condition(scalar) else comparison("<>", scalar, Const(0))


def condition_poly(condition: Scalar, by_row: bool = False) -> Poly:
    """The polynomial that is 1 where the condition holds.

    by_row: rows are looked at one by one, so that a disjunction stays one factor.

    A disjunction becomes a sum of disjoint terms, `a + (not a) * b`, so that each comparison can be
    answered by an index; where one of them cannot, where it concerns the columns of one source only, or
    would become more than `MOST_TERMS`, it stays one factor. What a CASE with an ELSE is not NULL by,
    `a * [x is not NULL] + (not a)`, asks for `a` alone: it is `1 - a * [x is NULL]`.
    """
    match condition:
        case Const(value):
            return ONE if value else ZERO
        case Apply("and", (left, right)):
            first, second = condition_poly(left, by_row), condition_poly(right, by_row)
            if len(first.terms) * len(second.terms) <= MOST_PRODUCTS:
                return first * second
            if len(first.terms) > len(second.terms):
                return condition_poly(left, by_row=True) * second
            return first * condition_poly(right, by_row=True)
        case Apply("or") if by_row:
            return product(Val(condition))
        case Apply("or", (left, right)) if not _of_one_source(condition) and _is_looked_up(condition):
            disjoint = _disjunction(left, right)
            return product(Val(condition)) if disjoint is None else disjoint
        case Apply(">" | ">=" as op, (Apply("abs", (inner,)), bound)) if not _of_one_source(condition):
            opposite = Apply("neg", (bound,))
            return condition_poly(
                Apply("or", (Apply(op, (inner, bound)), Apply(MIRRORED[op], (inner, opposite))))
            )
        case Apply("<" | "<=" as op, (bound, Apply("abs") as size)):
            return condition_poly(Apply(MIRRORED[op], (size, bound)))
        case Apply(op, (left, right)) if op in NEGATED:
            return product(Cmp(op, left, right))
    return product(Val(condition))


def _disjunction(left: Scalar, right: Scalar) -> Poly | None:
    """`left or right` as a sum of disjoint terms; None where these are too many."""
    for one, other in ((left, right), (right, left)):
        match one:
            case Apply("and", (taken, known)) if taken == negation(other) and _asks_for_null(known):
                return ONE + product(MINUS_ONE) * condition_poly(both(taken, negation(known)))
    first, second = condition_poly(left), condition_poly(right)
    if len(first.terms) + len(second.terms) > MOST_TERMS:
        return None
    if _are_exclusive(left, right):
        return first + second
    opposite = condition_poly(negation(left))
    if len(first.terms) + len(opposite.terms) * len(second.terms) > MOST_TERMS:
        return None
    return first + opposite * second


def _are_exclusive(left: Scalar, right: Scalar) -> bool:
    """Whether one asks for a condition and the other for its opposite, as the ways of a CASE do."""
    parts = left.args if isinstance(left, Apply) and left.op == "and" else (left,)
    asked = right.args if isinstance(right, Apply) and right.op == "and" else (right,)
    return any(negation(part) in asked for part in parts)


def _asks_for_null(condition: Scalar) -> bool:
    """Whether the condition asks only which variables are NULL."""
    match condition:
        case Apply("is_null", (Var(),)):
            return True
        case Apply("and" | "or" | "not", args):
            return all(map(_asks_for_null, args))
    return False


def _of_one_source(condition: Scalar) -> bool:
    return (
        len({v.name.partition(".")[0] if "." in v.name else v.name for v in scalar_variables(condition)}) == 1
    )


def _is_looked_up(condition: Scalar) -> bool:
    """Whether every way to satisfy the condition has a comparison that an index may answer."""
    match condition:
        case Apply("or", args):
            return all(map(_is_looked_up, args))
        case Apply("and", args):
            return any(map(_is_looked_up, args))
        case Apply("is_null", (Var(),)) | Apply("not", (Apply("is_null", (Var(),)),)):
            return True
        case Apply(op, (left, right)) if op in NEGATED:
            variables = frozenset(scalar_variables(condition))
            return any(_is_solved(left, v) and _is_solved(right, v) for v in variables)
    return False


def _is_solved(scalar: Scalar, variable: Var) -> bool:
    """Whether a comparison of the scalar, exact or not, may be solved for the variable by an order of it."""
    if not isinstance(scalar, Apply) or variable not in scalar_variables(scalar):
        return True
    return scalar.op in _SOLVED and all(_is_solved(a, variable) for a in scalar.args)


_SOLVED = ("+", "-", "*", "/", "neg", "abs", "double")


def is_null(scalar: Scalar) -> Scalar:
    return Apply("is_null", (scalar,))


def not_null(scalar: Scalar) -> Scalar:
    return Apply("not", (is_null(scalar),))


def known_not_null(factor: Factor) -> Var | None:
    """The variable that a factor says is not NULL; None where it says something else."""
    match factor:
        case Val(Apply("not", (Apply("is_null", (Var() as variable,)),))):
            return variable
    return None


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
