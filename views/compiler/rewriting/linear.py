"""Linear forms of exact scalars: what comparisons are solved and compared by."""

from collections import Counter

from views.compiler.calculus import Apply, Const, Scalar, Var


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
