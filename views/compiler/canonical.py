"""One name for equal map definitions: variables renamed and factors sorted in a canonical order."""

from collections.abc import Sequence
from itertools import islice, permutations, product as cartesian

from .calculus import Exists, Factor, Lift, Poly, Rel, Term, Var, bound_by, substitute_factor, variables

# Orders tried among equal-looking factors; beyond it two equal definitions may get two maps.
MOST_ORDERS = 120

Canonical = tuple[tuple[Var, ...], Poly]


def canonical(keys: Sequence[Var], body: Poly) -> tuple[Canonical, tuple[int, ...]]:
    """The canonical form of `Sum[keys](body)` and, for each canonical key, its place in `keys`."""
    best: tuple[str, Poly, dict[Var, Var]] | None = None
    for ordered in _orders(body):
        names: dict[Var, Var] = {}
        renamed = _rename(ordered, names)
        text = repr(renamed) + repr(sorted(names[k].name for k in keys if k in names))
        if best is None or text < best[0]:
            best = (text, renamed, names)
    assert best is not None
    _, renamed, names = best
    for key in keys:
        names.setdefault(key, Var(f"v{len(names)}"))
    places = sorted(range(len(keys)), key=lambda i: int(names[keys[i]].name[1:]))
    return (tuple(names[keys[i]] for i in places), renamed), tuple(places)


def _orders(body: Poly):  # type: ignore[no-untyped-def]
    """Polynomials with factors sorted by shape, equal shapes in every order."""
    choices = []
    for term in body.terms:
        shapes: dict[str, list[Factor]] = {}
        for factor in term:
            shapes.setdefault(_shape(factor), []).append(factor)
        groups = [permutations(shapes[s]) for s in sorted(shapes)]
        choices.append([tuple(f for g in combo for f in g) for combo in islice(cartesian(*groups), MOST_ORDERS)])
    for terms in islice(cartesian(*choices), MOST_ORDERS):
        yield Poly(tuple(sorted(terms, key=lambda t: [_shape(f) for f in t])))


def _shape(factor: Factor) -> str:
    """The factor with every variable called the same, relations before what filters them."""
    blank = {v: Var("_") for v in variables(factor)}
    kind = {Rel: 0, Exists: 1, Lift: 2}.get(type(factor), 3)
    return f"{kind}{substitute_factor(factor, blank)!r}"


def _rename(body: Poly, names: dict[Var, Var]) -> Poly:
    """Numbers variables by first occurrence; a factor's own bindings come first."""
    terms: list[Term] = []
    for term in body.terms:
        factors: list[Factor] = []
        for factor in term:
            if isinstance(factor, Lift | Exists):
                for variable in sorted(bound_by(factor), key=lambda v: names.get(v, v).name):
                    names.setdefault(variable, Var(f"v{len(names)}"))
                inner = min(_orders(factor.body), key=lambda p: repr(_rename(p, dict(names))))
                renamed = _rename(inner, names)
                outer = [names[v] for v in ((factor.var,) if isinstance(factor, Lift) else factor.group)]
                factors.append(Lift(outer[0], renamed) if isinstance(factor, Lift) else Exists(tuple(outer), renamed))
                continue
            for variable in variables(factor):
                names.setdefault(variable, Var(f"v{len(names)}"))
            factors.append(substitute_factor(factor, names))
        terms.append(tuple(factors))
    return Poly(tuple(terms))
