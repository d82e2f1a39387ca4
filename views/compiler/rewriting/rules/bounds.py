"""Rules on comparisons of one linear form with constants."""

from views.compiler.calculus import MIRRORED, Apply, Cmp, Term, Var
from views.compiler.rewriting.linear import linear_form

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
